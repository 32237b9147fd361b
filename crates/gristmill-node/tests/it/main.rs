//! Integration tests of the node: real files, real sockets on loopback, no network.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod along;
mod catalog;
mod conflicts;
mod disk;
mod exchange;
mod families;
mod guard;
mod loader;
mod node;
mod page;
mod remote;
mod selection;
mod serve;
mod split;
mod steer;
mod store;
