//! Integration tests of the node: real files, real sockets on loopback, no network.

mod catalog;
mod loader;
mod store;
