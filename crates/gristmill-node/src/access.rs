//! A node as one job sees it: in this process, or behind a wire.
//!
//! The loader asks for samples through this one interface and does not know where the node is. What it is served says
//! which sample it is and from where. An access never fails a sample that the store behind it still has.

use crate::Result;
use crate::client::Client;
use crate::node::{Ask, JobId, Node, NodeReport, Served, Standing, Tier};
use crate::split::{Expected, Staged, Wish};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::fmt::Debug;
use std::sync::Arc;

/// What a job tells its node before an epoch.
#[derive(Debug, Clone)]
pub struct Announcement {
    /// Which epoch.
    pub epoch: u64,
    /// Whether it has every sample of the data set (or of this rank's share).
    pub full: bool,
    /// The ids in the order in which they will be asked for.
    pub order: Vec<u32>,
    /// How every sample stands.
    pub standings: Vec<Standing>,
}

/// A node, as one job sees it.
pub trait Access: Debug + Send + Sync {
    /// A sample that is at hand, or nothing: this never waits.
    fn at_hand(&self, ask: Ask) -> Option<Served>;

    /// A sample, from the nearest tier that has it.
    fn fetch(&self, ask: Ask) -> BoxFuture<'_, Result<Served>>;

    /// The node behind the link, if there is one, which may run the first ops.
    fn offload(&self) -> Option<&Client> {
        None
    }

    /// A sample at the stage that is wished for, or raw: a tier here has it or has room for it, or the node did less.
    fn fetch_staged(&self, ask: Ask, _wish: Wish) -> BoxFuture<'_, Result<Staged>> {
        self.fetch(ask).map(|served| served.map(Staged::raw)).boxed()
    }

    /// Whether what a tier gave came over a link.
    fn is_across(&self, tier: Tier) -> bool {
        tier.is_behind()
    }

    /// What is expected of each of these samples in the coming epoch, without asking for them.
    fn expects(&self, ids: &[u32]) -> Vec<Expected> {
        vec![Expected::Missed; ids.len()]
    }

    /// Whether [`Access::fetch`] finishes on the calling thread without a reactor.
    fn immediate(&self) -> bool;

    /// Says what the coming epoch will ask for and how the samples stand.
    fn announce(&self, announcement: Announcement) -> Result<()>;

    /// Feedback came: the chances that the next epoch wants these samples are better known now than when the epoch was
    /// announced.
    fn learn(&self, _ids: &[u32], _wanted: &[f32]) {}

    /// What the node did so far, if it can be asked.
    fn report(&self) -> Option<NodeReport>;

    /// How many bytes were read from the store for this job so far, if nobody else asks this node.
    fn store_bytes(&self) -> Option<u64> {
        None
    }

    /// Requests so far that the hot and the cold region of a node in this process answered, if it has them.
    fn region_hits(&self) -> Option<[u64; 2]> {
        None
    }

    /// Samples so far that the store gave because a shared node did not.
    fn fallbacks(&self) -> u64 {
        0
    }

    /// The share of an epoch's samples that is hot, if cold ones may be stood in for.
    fn hot_share(&self) -> Option<f64> {
        None
    }

    /// The order in which the node would like a full epoch to be read, if it has a wish.
    fn order(&self, _epoch: u64) -> Option<Vec<u32>> {
        None
    }
}

/// A node in this process, joined by one job. Dropping it leaves.
#[derive(Debug)]
pub struct Embedded {
    node: Arc<Node>,
    job: JobId,
}

impl Embedded {
    /// Joins a node.
    pub fn join(node: Arc<Node>, name: &str) -> Result<Embedded> {
        let job = node.join(name)?;
        Ok(Embedded { node, job })
    }

    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Access for Embedded {
    fn at_hand(&self, ask: Ask) -> Option<Served> {
        self.node.at_hand(self.job, ask)
    }

    fn fetch(&self, ask: Ask) -> BoxFuture<'_, Result<Served>> {
        self.node.fetch_one(self.job, ask).boxed()
    }

    fn offload(&self) -> Option<&Client> {
        self.node.set().upstream().map(|upstream| upstream.client())
    }

    fn fetch_staged(&self, ask: Ask, wish: Wish) -> BoxFuture<'_, Result<Staged>> {
        self.node.fetch_staged(self.job, ask, wish).boxed()
    }

    fn expects(&self, ids: &[u32]) -> Vec<Expected> {
        self.node.expects(ids)
    }

    fn immediate(&self) -> bool {
        self.node.immediate()
    }

    fn announce(&self, announcement: Announcement) -> Result<()> {
        let Announcement { epoch, full, order, standings } = announcement;
        self.node.stand(self.job, &standings)?;
        self.node.announce(self.job, epoch, full, order)
    }

    fn learn(&self, ids: &[u32], wanted: &[f32]) {
        self.node.learn(self.job, ids, wanted);
    }

    fn report(&self) -> Option<NodeReport> {
        Some(self.node.report())
    }

    fn store_bytes(&self) -> Option<u64> {
        let report = self.node.report();
        (report.jobs.len() <= 1).then_some(report.store_bytes)
    }

    fn region_hits(&self) -> Option<[u64; 2]> {
        self.node.region_hits()
    }

    fn hot_share(&self) -> Option<f64> {
        let options = self.node.options();
        options.stand_ins.then_some(options.hot_share)
    }

    fn order(&self, epoch: u64) -> Option<Vec<u32>> {
        self.node.order(epoch)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.node.leave(self.job);
    }
}
