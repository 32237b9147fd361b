//! A node that several jobs share, as one of them sees it, with the store behind it for when it is away.
//!
//! A node that dies, hangs or restarts costs time, never a sample: what it does not give in time is read from the
//! store, and after a time-out it is left alone for a while that doubles, so that a node that hangs is not waited for
//! again and again. When it is back it is asked again. What it gives is checked against the catalog.

use crate::access::{Access, Announcement};
use crate::client::{Client, ClientOptions};
use crate::dataset::DataSet;
use crate::node::{Ask, NodeReport, Served, Tier};
use crate::split::{Shortfall, Staged, StagedAsk, Wish};
use crate::{Error, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_core::SampleId;
use gristmill_ops::Stage;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a node may take for one sample before the store is asked.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take for one that waits for ops.
const OPS_PATIENCE: Duration = Duration::from_secs(8);
/// What a node sends per second at the least; slower than that is as good as away.
pub(crate) const BYTES_PER_S_LEAST: u64 = 4 << 20;
/// How long a node that did not answer is left alone at first, and at most.
const REST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long announcing an epoch may take.
const ANNOUNCE: Duration = Duration::from_secs(5);

/// A shared node and the store behind it.
#[derive(Debug)]
pub struct Shared {
    client: Client,
    set: Arc<DataSet>,
    rest: Mutex<Rest>,
    /// Samples that the store gave because the node did not.
    fallbacks: AtomicU64,
}

/// Until when the node is left alone.
#[derive(Debug, Default)]
struct Rest {
    until: Option<Instant>,
    last: Duration,
}

impl Shared {
    /// A job at the node of this URL. A node that is away now may come later; one with another data set, or one that
    /// does not let this job in, is an error.
    pub fn join(url: &str, options: ClientOptions, set: Arc<DataSet>) -> Result<Shared> {
        let options = ClientOptions { digest: Some(set.catalog().digest()), ..options };
        let client = match Client::connect(url, options.clone()) {
            Ok(client) => client,
            Err(error) if error.kind() == crate::Kind::Unavailable => Client::start(url, options)?,
            Err(error) => return Err(error),
        };
        Ok(Shared { client, set, rest: Mutex::default(), fallbacks: AtomicU64::new(0) })
    }

    fn rests(&self) -> bool {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        rest.until.is_some_and(|until| Instant::now() < until)
    }

    /// The node did not answer in time, or did.
    fn answered(&self, in_time: bool) {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        if in_time {
            *rest = Rest::default();
        } else if rest.until.is_none_or(|until| until <= Instant::now()) {
            rest.last = (rest.last * 2).clamp(REST.0, REST.1);
            rest.until = Some(Instant::now() + rest.last);
        }
    }

    /// What the node gives, if it gives the right thing in time.
    async fn ask(&self, ask: Ask, wish: Option<Wish>) -> Option<Staged> {
        if !self.client.is_up() || self.rests() {
            return None;
        }
        let asks = [StagedAsk { ask, wish }];
        let size = self.set.catalog().size(ask.id).ok()?;
        let most = u64::from(wish.map_or(size, |wish| wish.bytes_max.max(size)));
        let patience = if wish.is_some() { OPS_PATIENCE } else { PATIENCE };
        let patience = patience + Duration::from_millis(most * 1_000 / BYTES_PER_S_LEAST);
        let answer = tokio::time::timeout(patience, self.client.fetch_staged(&asks)).await;
        self.answered(!away(&answer));
        let staged = answer.ok()?.ok()?.pop()?.ok()?;
        let served = &staged.served;
        let size = self.set.catalog().size(served.id).ok()?;
        let right_size = match staged.stage {
            Stage::Raw => served.bytes.len() as u64 == u64::from(size),
            _ => served.bytes.len() as u64 <= most,
        };
        ((served.id == ask.id || ask.cold) && right_size).then_some(staged)
    }

    /// The store's, because the node did not give it.
    async fn fall_back(&self, id: SampleId) -> Result<Served> {
        self.fallbacks.fetch_add(1, Relaxed);
        let bytes = self.set.read(id).await?;
        Ok(Served { id, bytes, tier: self.set.tier() })
    }
}

impl Access for Shared {
    fn at_hand(&self, _ask: Ask) -> Option<Served> {
        None
    }

    fn fetch(&self, ask: Ask) -> BoxFuture<'_, Result<Served>> {
        async move {
            match self.ask(ask, None).await {
                Some(staged) => Ok(staged.served),
                None => self.fall_back(ask.id).await,
            }
        }
        .boxed()
    }

    fn offload(&self) -> Option<&Client> {
        Some(&self.client)
    }

    fn is_across(&self, _tier: Tier) -> bool {
        true
    }

    fn fetch_staged(&self, ask: Ask, wish: Wish) -> BoxFuture<'_, Result<Staged>> {
        async move {
            match self.ask(ask, Some(wish)).await {
                Some(staged) => Ok(staged),
                None => Ok(Staged::short(self.fall_back(ask.id).await?, Shortfall::Away)),
            }
        }
        .boxed()
    }

    fn immediate(&self) -> bool {
        false
    }

    fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Relaxed)
    }

    fn announce(&self, announcement: Announcement) -> Result<()> {
        let Announcement { epoch, full, order, standings } = announcement;
        let away_now = !self.client.is_up() || self.rests();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::io("start", "an I/O runtime", e))?;
        let tell = async {
            if !away_now {
                self.client.stand(&standings).await?;
            }
            // Remembered and repeated to a node that comes back; how samples stand is said again before the next epoch.
            self.client.announce(epoch, full, order).await
        };
        let told = runtime.block_on(async { tokio::time::timeout(ANNOUNCE, tell).await });
        self.answered(!away(&told));
        match told {
            // What the node does not take is a slip of this program and not the node's absence.
            Ok(Err(error)) if error.kind() == crate::Kind::Config => Err(error),
            _ => Ok(()),
        }
    }

    fn report(&self) -> Option<NodeReport> {
        None
    }
}

/// Whether what came back says that the node is not there.
fn away<T>(answer: &Result<Result<T>, tokio::time::error::Elapsed>) -> bool {
    match answer {
        Ok(Ok(_)) => false,
        Ok(Err(error)) => error.kind() == crate::Kind::Unavailable,
        Err(_) => true,
    }
}

/// The node behind a data set that has no store of its own: samples by id, tried again until the deadline.
#[derive(Debug)]
pub struct Upstream {
    client: Client,
    deadline: Duration,
    retries: AtomicU64,
}

impl Upstream {
    /// Samples from this node, each within the deadline.
    pub fn new(client: Client, deadline: Duration) -> Upstream {
        Upstream { client, deadline, retries: AtomicU64::new(0) }
    }

    /// The node's URL.
    pub fn url(&self) -> &str {
        self.client.url()
    }

    /// How many attempts were made again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    /// The handle to the node.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// One sample.
    pub async fn read(&self, id: SampleId) -> Result<bytes::Bytes> {
        let ask = StagedAsk { ask: Ask { id, cold: false }, wish: None };
        Ok(self.try_again(ask).await?.served.bytes)
    }

    /// One sample at the stage that is wished for, or raw.
    pub async fn read_staged(&self, id: SampleId, wish: Wish) -> Result<Staged> {
        self.try_again(StagedAsk { ask: Ask { id, cold: false }, wish: Some(wish) }).await
    }

    /// A stage is asked for once: if that fails, or something else comes, the raw bytes are.
    async fn try_again(&self, mut ask: StagedAsk) -> Result<Staged> {
        let (start, id) = (Instant::now(), ask.ask.id);
        let mut pause = Duration::from_millis(50);
        let mut shortfall = Shortfall::None;
        loop {
            let error = match self.client.fetch_staged(&[ask]).await {
                Ok(mut answers) => match answers.pop() {
                    Some(Ok(mut staged)) if staged.served.id == id => {
                        if shortfall != Shortfall::None {
                            staged.shortfall = shortfall;
                        }
                        return Ok(staged);
                    }
                    Some(Err(_)) if ask.wish.take().is_some() => {
                        shortfall = Shortfall::Damaged;
                        continue;
                    }
                    Some(Err(error)) => return Err(error),
                    _ => return Err(Error::corrupt(format!("{} sent another sample than {id}", self.url()))),
                },
                Err(error) => error,
            };
            if start.elapsed() + pause > self.deadline {
                return Err(error.hint("start the node again, or raise store.deadline_ms"));
            }
            if ask.wish.take().is_some() {
                shortfall = Shortfall::Away;
            }
            self.retries.fetch_add(1, Relaxed);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }
}
