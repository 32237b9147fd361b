//! Reading ahead: packs for the cold region, and what the announced plans ask for next.
//!
//! One thread does it, in waves. Packs are read whenever the cold region has room. The plans are followed only while
//! nobody waits for the store, since reading ahead must never hold up a read that somebody needs now, and only for
//! samples that the policy would keep until they are asked for. A wave is bounded in bytes, and small by default, since each
//! sample of it changes what the policy would keep; neighbours are read together. Where samples come at a stage from a node
//! behind, in this epoch or the one before, only what finds room is read ahead: for the rest the link carries less when they
//! are asked for.

use super::inner::Inner;
use super::run;
use crate::{Error, Result};
use bytes::Bytes;
use futures::future::join_all;
use gristmill_core::SampleId;
use gristmill_core::cache::{Pack, Policy};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How far a plan is looked at in one wave.
const LOOK_SAMPLES: usize = 4_096;
/// How long nobody must have waited for the store before it counts as idle.
const IDLE: Duration = Duration::from_millis(5);
/// How long the thread sleeps when nobody rings.
const NAP: Duration = Duration::from_millis(10);

/// Who waits for the store, and a bell for the thread.
#[derive(Debug)]
pub(super) struct Bell {
    waiting: AtomicU64,
    /// When the last one stopped waiting, in microseconds since the start.
    idle_since_us: AtomicU64,
    started: Instant,
    stop: AtomicBool,
    /// Whether samples came at a stage since a plan was announced, and before that, of whatever job.
    staged: [AtomicBool; 2],
    notify: Arc<Notify>,
}

impl Default for Bell {
    fn default() -> Bell {
        Bell {
            waiting: AtomicU64::new(0),
            idle_since_us: AtomicU64::new(0),
            started: Instant::now(),
            stop: AtomicBool::new(false),
            staged: Default::default(),
            notify: Arc::default(),
        }
    }
}

/// Somebody waits for the store as long as this lives.
#[derive(Debug)]
pub(super) struct Waiting<'a>(&'a Bell);

impl Bell {
    /// Somebody begins to wait for the store.
    pub(super) fn waiting(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Relaxed);
        Waiting(self)
    }

    /// Whether nobody has waited for the store for a while.
    fn is_idle(&self) -> bool {
        let now = self.started.elapsed();
        let since = Duration::from_micros(self.idle_since_us.load(Relaxed));
        self.waiting.load(Relaxed) == 0 && now.saturating_sub(since) >= IDLE
    }

    /// A sample was asked for at a stage.
    pub(super) fn staged(&self) {
        self.staged[0].store(true, Relaxed);
    }

    /// An epoch begins: it is believed to be as the last one until it shows.
    pub(super) fn begin(&self) {
        self.staged[1].store(self.staged[0].swap(false, Relaxed), Relaxed);
    }

    fn is_staged(&self) -> bool {
        self.staged.iter().any(|staged| staged.load(Relaxed))
    }

    /// There may be something to read ahead.
    pub(super) fn ring(&self) {
        self.notify.notify_one();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Relaxed) == 1 {
            self.0.idle_since_us.store(self.0.started.elapsed().as_micros() as u64, Relaxed);
        }
    }
}

/// The thread that reads ahead. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Ahead {
    inner: Weak<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Starts the thread, if there is anything it could ever do.
    pub(super) fn start(inner: &Arc<Inner>) -> Result<Option<Ahead>> {
        let options = &inner.options;
        let follows = matches!(options.policy, Policy::Foresight | Policy::Quiver);
        let ahead = follows && options.prefetch_bytes_max > 0 && !inner.set.immediate();
        if !ahead && !options.stand_ins {
            return Ok(None);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::io("start", "an I/O runtime", e))?;
        let (weak, notify) = (Arc::downgrade(inner), Arc::clone(&inner.bell.notify));
        let body = {
            let weak = weak.clone();
            move || runtime.block_on(run_until_dropped(&weak, &notify, ahead))
        };
        let thread = std::thread::Builder::new().name("grist-ahead".into()).spawn(body);
        let thread = thread.map_err(|e| Error::io("start", "thread grist-ahead", e))?;
        Ok(Some(Ahead { inner: weak, thread: Some(thread) }))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.bell.stop.store(true, Relaxed);
            inner.bell.ring();
        }
        if let Some(thread) = self.thread.take() {
            // It stops after the wave it is in; a panic of it costs only reading ahead.
            let _ = thread.join();
        }
    }
}

async fn run_until_dropped(weak: &Weak<Inner>, notify: &Notify, follows: bool) {
    loop {
        let Some(inner) = weak.upgrade().filter(|inner| !inner.bell.stop.load(Relaxed)) else { return };
        let busy = inner.read_pack().await || (follows && inner.read_wave().await);
        drop(inner);
        if !busy {
            let _ = tokio::time::timeout(NAP, notify.notified()).await;
        }
    }
}

impl Inner {
    /// Reads one pack into the cold region; whether there was one.
    async fn read_pack(&self) -> bool {
        let mut pack = None;
        self.memory().change(|policy, gone| pack = policy.next_pack(gone));
        let Some(pack) = pack else { return false };
        let ids: Vec<u32> = pack.ids.iter().map(|id| id.0).collect();
        match self.read_apart(&ids).await {
            Ok(read) => self.memory().arrived(&pack, read),
            Err(_) => self.memory().change(|policy, _| policy.failed(&pack)),
        }
        true
    }

    /// Reads some of what the plans ask for next; whether there was any.
    async fn read_wave(&self) -> bool {
        if !self.bell.is_idle() {
            return false;
        }
        let leads: Vec<_> = self.wanted_next().into_iter().filter_map(|id| self.flights.lead(id)).collect();
        if leads.is_empty() {
            return false;
        }
        let read = self.read_runs(leads).await.unwrap_or(0);
        self.counts.prefetched(read);
        read > 0
    }

    /// What the plans ask for next that is not here and would be kept. Nothing is proposed twice in an epoch: what was
    /// not kept then would not be kept now.
    fn wanted_next(&self) -> Vec<u32> {
        let mut jobs = self.jobs();
        let bytes_max = self.options.prefetch_bytes_max;
        let (mut wanted, mut bytes) = (Vec::new(), 0);
        let memory = self.memory();
        let room = if self.bell.is_staged() { memory.policy.free_bytes() } else { u64::MAX };
        let mut taken = 0;
        for look in jobs.looks(LOOK_SAMPLES) {
            while let Some(id) = look.peek() {
                let size = self.set.catalog().size(id).map_or(0, u64::from);
                if bytes + size > bytes_max && size <= bytes_max {
                    return wanted;
                }
                look.pass();
                let entry = self.entry_bytes(id);
                let keeps = memory.policy.worth(id) && !memory.has(id) && !self.is_elsewhere(id);
                if size <= bytes_max && taken + entry <= room && keeps {
                    bytes += size;
                    taken += entry;
                    wanted.push(id.0);
                }
            }
        }
        wanted
    }

    /// Reads samples, neighbours together, without offering them to the hot region.
    async fn read_apart(&self, ids: &[u32]) -> Result<Vec<(SampleId, Bytes)>> {
        let runs = run::runs(&self.set, ids, self.options.gap_bytes_max)?;
        let reads = join_all(runs.iter().map(async |run| {
            let start = Instant::now();
            let read = run.read(&self.set, |_| true).await;
            self.counts.read(run.bytes(), start.elapsed());
            read
        }));
        reads.await.into_iter().flatten().map(|(id, bytes)| Ok((SampleId(id), bytes?))).collect()
    }
}

impl super::memory::Memory {
    /// Takes the bytes of a pack into the cold region.
    fn arrived(&mut self, pack: &Pack, read: Vec<(SampleId, Bytes)>) {
        for (id, bytes) in read {
            self.put(id, &bytes);
        }
        self.change(|policy, gone| policy.arrived(pack, gone));
    }
}
