//! What the threads of one epoch note about the split: counts, and how fast the link and the consumer are.

use super::link::{Link, Rate};
use super::report::{ShortfallUse, SplitReport, StageUse};
use super::{Shortfall, Staged};
use gristmill_ops::Stage;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts of one epoch.
#[derive(Debug)]
pub(super) struct Measured {
    samples: [AtomicU64; 7],
    bytes: [AtomicU64; 7],
    raw_bytes: [AtomicU64; 7],
    shortfalls: [AtomicU64; 6],
    wanted: AtomicU64,
    upstream_cpu_ns: AtomicU64,
    consumer_ns: AtomicU64,
    consumed: AtomicU64,
    link: Mutex<Link>,
}

impl Measured {
    pub(super) fn new() -> Measured {
        Measured {
            samples: Default::default(),
            bytes: Default::default(),
            raw_bytes: Default::default(),
            shortfalls: Default::default(),
            wanted: AtomicU64::new(0),
            upstream_cpu_ns: AtomicU64::new(0),
            consumer_ns: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            link: Mutex::new(Link::new()),
        }
    }

    /// A sample came over the link, of so many raw bytes, while others were under way; and so much came beside.
    pub(super) fn came(&self, staged: &Staged, wanted: bool, raw_bytes: u64, under_way: usize, beside: u64) {
        let (at, bytes) = (staged.stage as usize, staged.served.bytes.len() as u64);
        self.samples[at].fetch_add(1, Relaxed);
        self.bytes[at].fetch_add(bytes, Relaxed);
        self.raw_bytes[at].fetch_add(raw_bytes, Relaxed);
        self.wanted.fetch_add(wanted.into(), Relaxed);
        self.fell_short(staged.shortfall);
        self.upstream_cpu_ns.fetch_add(staged.cpu_ns, Relaxed);
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.came(bytes + beside, under_way, Instant::now());
    }

    pub(super) fn fell_short(&self, shortfall: Shortfall) {
        if shortfall != Shortfall::None {
            self.shortfalls[shortfall as usize].fetch_add(1, Relaxed);
        }
    }

    /// One more is asked for; whether the link is busy since now.
    pub(super) fn asked(&self, under_way: usize) -> bool {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).asked(under_way, Instant::now())
    }

    /// Nothing was under way until now.
    pub(super) fn idle(&self) {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).restart(Instant::now());
    }

    /// The consumer had a batch of so many samples for so long.
    pub(super) fn consumed(&self, samples: u64, took: Duration) {
        self.consumed.fetch_add(samples, Relaxed);
        self.consumer_ns.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    /// Samples that the consumer had.
    pub(super) fn consumed_samples(&self) -> u64 {
        self.consumed.load(Relaxed)
    }

    /// Samples that a stage was wished for.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted.load(Relaxed)
    }

    /// CPU seconds that the node's ops took, and bytes that came.
    pub(super) fn moved(&self) -> (f64, u64) {
        let bytes = self.bytes.iter().map(|bytes| bytes.load(Relaxed)).sum();
        (self.upstream_cpu_ns.load(Relaxed) as f64 / 1e9, bytes)
    }

    pub(super) fn link(&self) -> Option<Rate> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).rate()
    }

    /// What the consumer takes per second of its own time.
    pub(super) fn accelerator_samples_per_s(&self) -> Option<f64> {
        let seconds = self.consumer_ns.load(Relaxed) as f64 / 1e9;
        let rate = self.consumed.load(Relaxed) as f64 / seconds;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    pub(super) fn fill(&self, report: &mut SplitReport) {
        report.stages = Stage::ALL
            .map(|stage| StageUse {
                stage,
                samples: self.samples[stage as usize].load(Relaxed),
                bytes: self.bytes[stage as usize].load(Relaxed),
                raw_bytes: self.raw_bytes[stage as usize].load(Relaxed),
            })
            .to_vec();
        (report.upstream_cpu_s, report.bytes) = self.moved();
        report.raw_bytes = report.stages.iter().map(|used| used.raw_bytes).sum();
        report.wanted = self.wanted.load(Relaxed);
        let count = |why: &Shortfall| ShortfallUse {
            why: *why,
            reason: why.reason(),
            samples: self.shortfalls[*why as usize].load(Relaxed),
        };
        report.shortfalls = Shortfall::ALL.iter().map(count).filter(|short| short.samples > 0).collect();
    }
}
