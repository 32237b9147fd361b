//! What moves messages between the ranks of a job.
//!
//! The exchange knows before an epoch who sends how many bytes to whom, so a transport needs no discovery, no headers and
//! no "from anybody": every receive is posted for its computed source, tag and size. Nothing here waits except
//! [`Transport::gather`], which all ranks call together at the boundaries of epochs. Every transport passes the same
//! conformance suite ([`super::testing`]).

use crate::Result;
use bytes::Bytes;
use std::fmt::Debug;
use std::time::Duration;

/// One rank's end of the connections to all ranks. It has one owner, and that one calls it from one thread.
pub trait Transport: Debug + Send {
    /// Which rank this is.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn world(&self) -> u32;

    /// What it is called in messages: `local`, `mpi`.
    fn name(&self) -> &'static str;

    /// Everybody's words in the order of ranks. All ranks call it together, equally often. The error of one that waited
    /// longer than `patience` names the ranks that are missing.
    fn gather(&mut self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>>;

    /// Hands a message over and returns at once. A pair of ranks uses a tag once per epoch.
    fn send(&mut self, to: u32, tag: u32, message: Bytes) -> Result<()>;

    /// Posts the receive of a message whose source, tag and size are known, and returns at once.
    fn expect(&mut self, from: u32, tag: u32, bytes: usize) -> Result<()>;

    /// A message that has arrived, as its source, tag and content; this never waits.
    fn arrived(&mut self) -> Result<Option<(u32, u32, Bytes)>>;

    /// How many messages were handed over and have not left yet; makes progress with them.
    fn sending(&mut self) -> Result<usize>;

    /// What is expected and has not arrived, as sources and tags: who is late, by name.
    fn outstanding(&self) -> Vec<(u32, u32)>;
}
