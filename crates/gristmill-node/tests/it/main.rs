//! Integration tests of the node: real sockets on loopback, no network, no sleeps.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod store;
