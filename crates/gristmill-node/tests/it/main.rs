//! Integration tests of the node: real sockets on loopback, no network, no sleeps.

mod loader;
mod store;
