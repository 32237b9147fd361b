//! Integration tests of the node: real files, real sockets on loopback, no network.

#[cfg(test)]
mod catalog;
mod loader;
mod store;
