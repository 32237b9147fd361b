//! Where an epoch's time went.
//!
//! The loader's threads count how long they read, decode, run the other ops, and stand idle. Whenever the
//! consumer has to wait for a batch, that wait is charged to what the threads were doing meanwhile: the answer to
//! "what is my training waiting for" is measured, not guessed.
//!
//! Deliberately not here: advice and decisions, which are the steering's, and printing, which is the caller's.

use crate::exchange::ExchangeReport;
use crate::node::Tier;
use crate::selection::SelectionReport;
use crate::split::SplitReport;
use crate::steer::Decision;
use gristmill_core::score::ReadTimes;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What the threads do with their time, in nanoseconds, added up over all of them.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    /// Reads by the threads themselves.
    pub(crate) read_ns: AtomicU64,
    /// The durations of reads in flight, which overlap.
    pub(crate) flight_ns: AtomicU64,
    pub(crate) starved_ns: AtomicU64,
    pub(crate) decode_ns: AtomicU64,
    pub(crate) ops_ns: AtomicU64,
    pub(crate) full_ns: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
    pub(crate) fetched_bytes: AtomicU64,
    pub(crate) processed: AtomicU64,
    /// Samples and their bytes by the tier they came from.
    tiers: [AtomicU64; 6],
    tier_bytes: [AtomicU64; 6],
    /// How long reads from the store took, by their size.
    times: Mutex<ReadTimes>,
}

impl Meters {
    /// Notes one sample, and how long it took to get if the store had to be asked: what a cache answers says nothing
    /// about what a sample costs.
    pub(crate) fn note(&self, tier: Tier, bytes: usize, took: Duration) {
        self.tiers[tier as usize].fetch_add(1, Relaxed);
        self.tier_bytes[tier as usize].fetch_add(bytes as u64, Relaxed);
        if !tier.is_behind() {
            return;
        }
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.note(u32::try_from(bytes).unwrap_or(u32::MAX), took.as_secs_f64());
    }

    /// How long reads from the store took so far.
    pub(crate) fn times(&self) -> ReadTimes {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time the threads gave so far to getting bytes, decoding, and the other ops.
    fn work(&self) -> [u64; 3] {
        let fetch = self.read_ns.load(Relaxed) + self.starved_ns.load(Relaxed);
        [fetch, self.decode_ns.load(Relaxed), self.ops_ns.load(Relaxed)]
    }
}

/// Adds a duration to a meter.
pub(crate) fn add(meter: &AtomicU64, spent: Duration) {
    meter.fetch_add(spent.as_nanos() as u64, Relaxed);
}

/// Charges the consumer's waits to what the threads did meanwhile.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaitLedger {
    charged_ns: [f64; 3],
    hand_over_ns: u64,
    /// Waits during which no thread finished anything yet; charged with the next one.
    open_ns: u64,
    before: [u64; 3],
}

impl WaitLedger {
    pub(crate) fn begin(&mut self, meters: &Meters) {
        if self.open_ns == 0 {
            self.before = meters.work();
        }
    }

    pub(crate) fn end(&mut self, meters: &Meters, waited: Duration, hand_over: Duration) {
        let hand_over = hand_over.min(waited);
        self.hand_over_ns += hand_over.as_nanos() as u64;
        self.open_ns += waited.saturating_sub(hand_over).as_nanos() as u64;
        let now = meters.work();
        let delta = [0, 1, 2].map(|i| now[i].saturating_sub(self.before[i]));
        self.charge(delta);
    }

    fn charge(&mut self, work: [u64; 3]) {
        let total: u64 = work.iter().sum();
        if total == 0 {
            return;
        }
        for (charged, part) in self.charged_ns.iter_mut().zip(work) {
            *charged += self.open_ns as f64 * part as f64 / total as f64;
        }
        self.open_ns = 0;
    }

    pub(crate) fn total(mut self, meters: &Meters) -> Wait {
        self.charge(meters.work());
        let [fetch, decode, ops] = self.charged_ns.map(|ns| ns / 1e6);
        // What no thread ever worked on (an epoch that was stopped at once) was waited for at the hand-over.
        let hand_over = (self.hand_over_ns + self.open_ns) as f64 / 1e6;
        Wait {
            total_ms: fetch + decode + ops + hand_over,
            fetch_ms: fetch,
            decode_ms: decode,
            ops_ms: ops,
            hand_over_ms: hand_over,
        }
    }
}

/// How long the consumer waited for batches, and for what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Wait {
    /// In all.
    pub total_ms: f64,
    /// For bytes from the store.
    pub fetch_ms: f64,
    /// For decoding.
    pub decode_ms: f64,
    /// For the other ops.
    pub ops_ms: f64,
    /// For a finished batch to reach it.
    pub hand_over_ms: f64,
}

/// What one tier gave in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TierUse {
    /// The tier.
    pub tier: Tier,
    /// Samples.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Samples of an epoch by the region of the memory tier that had them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RegionHits {
    /// The region of high scores.
    pub hot: u64,
    /// The region that packs are read into.
    pub cold: u64,
}

/// What one epoch (or the part of it that was read) cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EpochReport {
    /// Which epoch.
    pub epoch: u64,
    /// Batches handed over.
    pub batches: u32,
    /// Samples in them.
    pub samples: u64,
    /// Samples left out because they are bad.
    pub skipped: u64,
    /// Samples read and processed, those included that were prefetched and never asked for.
    pub processed: u64,
    /// Bytes of raw samples read for that.
    pub bytes: u64,
    /// Whether they came from memory, where the whole data set is held.
    pub from_memory: bool,
    /// Reads that were tried again.
    pub retries: u64,
    /// Time from the start to the end.
    pub wall_ms: f64,
    /// Samples handed over per second of that.
    pub samples_per_s: f64,
    /// How long the consumer waited.
    pub wait: Wait,
    /// CPU time of the loader's own threads.
    pub loader_cpu_ms: f64,
    /// Time the threads spent reading (or, with reads in flight, the sum of the reads' durations).
    pub fetch_ms: f64,
    /// Time the threads spent decoding.
    pub decode_ms: f64,
    /// Time the threads spent on the other ops.
    pub ops_ms: f64,
    /// Time the threads stood idle because no bytes had come.
    pub starved_ms: f64,
    /// Time the threads stood idle because the consumer had enough batches.
    pub full_ms: f64,
    /// Finished batches that lay ready when the consumer asked, on average.
    pub ready_batches_mean: f64,
    /// Raw samples that lay ready when the consumer asked, on average.
    pub fetched_samples_mean: f64,
    /// Threads.
    pub threads: usize,
    /// Reads in flight; 0 where the threads read for themselves.
    pub reads_in_flight: usize,
    /// Finished batches that might lie ready.
    pub prefetch_batches: usize,
    /// What the steering decided before it.
    pub decisions: Vec<Decision>,
    /// Where samples came from; empty without a cache or a slice of one's own.
    pub tiers: Vec<TierUse>,
    /// Samples by region of the memory tier; none where it has but one.
    pub regions: Option<RegionHits>,
    /// Samples that the store gave because a shared node was away or too slow.
    pub fallbacks: u64,
    /// What was selected; none for a plain epoch.
    pub selection: Option<SelectionReport>,
    /// Where samples were cut; none if nothing was to be split.
    pub split: Option<SplitReport>,
    /// What the ranks swapped; none if each may have any sample.
    pub exchange: Option<ExchangeReport>,
}

impl EpochReport {
    pub(crate) fn fill(&mut self, meters: &Meters) {
        let ms = |meter: &AtomicU64| meter.load(Relaxed) as f64 / 1e6;
        self.bytes = meters.fetched_bytes.load(Relaxed);
        self.loader_cpu_ms = ms(&meters.cpu_ns);
        self.fetch_ms = ms(&meters.read_ns) + ms(&meters.flight_ns);
        self.processed = meters.processed.load(Relaxed);
        self.decode_ms = ms(&meters.decode_ns);
        self.ops_ms = ms(&meters.ops_ns);
        self.starved_ms = ms(&meters.starved_ns);
        self.full_ms = ms(&meters.full_ns);
        self.samples_per_s = if self.wall_ms > 0.0 { self.samples as f64 * 1e3 / self.wall_ms } else { 0.0 };
    }

    /// Notes where samples came from.
    pub(crate) fn fill_tiers(&mut self, meters: &Meters) {
        let used = Tier::ALL.map(|tier| TierUse {
            tier,
            samples: meters.tiers[tier as usize].load(Relaxed),
            bytes: meters.tier_bytes[tier as usize].load(Relaxed),
        });
        self.tiers = used.to_vec();
    }

    /// The share of samples that did not come from the store, or from the node in its place; none without a cache.
    pub fn hit_ratio(&self) -> Option<f64> {
        let all: u64 = self.tiers.iter().map(|used| used.samples).sum();
        let hits: u64 =
            self.tiers.iter().filter(|used| !used.tier.is_behind()).map(|used| used.samples).sum();
        (all > 0).then(|| hits as f64 / all as f64)
    }

    /// Which part of the epoch the consumer waited, 0 to 1.
    pub fn wait_share(&self) -> f64 {
        if self.wall_ms > 0.0 { (self.wait.total_ms / self.wall_ms).min(1.0) } else { 0.0 }
    }
}

impl fmt::Display for EpochReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wait { total_ms, fetch_ms, decode_ms, ops_ms, hand_over_ms } = self.wait;
        writeln!(
            f,
            "epoch {}: {} samples in {} {}, {}, {:.0} samples/s, {:.1} MB {}",
            self.epoch,
            self.samples,
            self.batches,
            if self.batches == 1 { "batch" } else { "batches" },
            time(self.wall_ms),
            self.samples_per_s,
            self.bytes as f64 / 1e6,
            if self.from_memory { "from memory" } else { "read" }
        )?;
        writeln!(f, "  waited {} ({:.0} % of the epoch)", time(total_ms), self.wait_share() * 100.0)?;
        let parts =
            [("fetch", fetch_ms), ("decode", decode_ms), ("other ops", ops_ms), ("hand-over", hand_over_ms)];
        for (name, ms) in parts {
            let share = if total_ms > 0.0 { ms / total_ms } else { 0.0 };
            let bar = "#".repeat((share * 30.0).round() as usize);
            let row = format!("    {name:<10} {:>9} {:>4.0} %  {bar}", time(ms), share * 100.0);
            writeln!(f, "{}", row.trim_end())?;
        }
        write!(
            f,
            "  ready when asked: {:.1} batches, {:.1} raw samples; {} {} idle {} for bytes, {} because full",
            self.ready_batches_mean,
            self.fetched_samples_mean,
            self.threads,
            if self.threads == 1 { "thread" } else { "threads" },
            time(self.starved_ms),
            time(self.full_ms)
        )?;
        if let Some(selection) = &self.selection {
            write!(
                f,
                "\n  selection {}: {} of {} samples ({:.0} %): {}",
                selection.kind,
                selection.kept,
                selection.samples,
                selection.kept_share() * 100.0,
                selection.reason
            )?;
            if !selection.bottleneck.is_empty() {
                write!(f, "\n  before it: {}", selection.bottleneck)?;
            }
            let shares = || selection.class_shares.iter().copied();
            let (least, most) = (shares().fold(1.0, f32::min), shares().fold(0.0, f32::max));
            if least < 1.0 && selection.class_shares.len() > 1 {
                write!(f, "\n  classes keep {:.0} to {:.0} % of their samples", least * 100.0, most * 100.0)?;
            }
            if !selection.guard.is_empty() {
                write!(f, "\n  accuracy: {}", selection.guard)?;
            }
            if selection.removed > 0 {
                write!(f, "\n  {} near-duplicates of others were left out", selection.removed)?;
            }
            if selection.stand_ins > 0 {
                write!(f, "\n  {} samples were served by a near-duplicate in memory", selection.stand_ins)?;
            }
            if selection.unknown > 0 {
                write!(f, "\n  {} reports of the trainer were no numbers", selection.unknown)?;
            }
        }
        if let Some(ratio) = self.hit_ratio() {
            let tier = if self.exchange.is_some() { "slice" } else { "cache" };
            write!(f, "\n  {tier}: {:.1} % of the samples were there", ratio * 100.0)?;
            for TierUse { tier, samples, bytes } in self.tiers.iter().filter(|used| used.samples > 0) {
                write!(f, "; {samples} from {tier} ({:.1} MB)", *bytes as f64 / 1e6)?;
            }
        }
        if let Some(split) = &self.split {
            write!(f, "\n  {split}")?;
        }
        if let Some(exchange) = &self.exchange {
            write!(f, "\n  {exchange}")?;
        }
        for decision in &self.decisions {
            write!(f, "\n  steering: {decision}")?;
        }
        if self.fallbacks > 0 {
            write!(
                f,
                "\n  {} samples were read from the store because the shared node did not give them",
                self.fallbacks
            )?;
        }
        if self.retries > 0 {
            write!(f, "\n  {} reads were tried again", self.retries)?;
        }
        if self.skipped > 0 {
            write!(f, "\n  {} bad samples were left out", self.skipped)?;
        }
        Ok(())
    }
}

/// A time in the unit that people would use for it.
fn time(ms: f64) -> String {
    if ms < 1_000.0 { format!("{ms:.1} ms") } else { format!("{:.2} s", ms / 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_charged_to_what_the_threads_did_meanwhile() {
        let (meters, ms) = (Meters::default(), Duration::from_millis);
        let mut ledger = WaitLedger::default();
        add(&meters.decode_ns, ms(500));
        add(&meters.flight_ns, ms(9_000)); // reads in flight overlap: they say nothing about what is waited for
        ledger.begin(&meters);
        ledger.end(&meters, ms(10), ms(0)); // nothing finished meanwhile: charged with the next wait
        ledger.begin(&meters);
        add(&meters.starved_ns, ms(30));
        add(&meters.ops_ns, ms(10));
        ledger.end(&meters, ms(35), ms(5));
        let wait = ledger.total(&meters);
        assert_eq!((wait.fetch_ms, wait.decode_ms, wait.ops_ms, wait.hand_over_ms), (30.0, 0.0, 10.0, 5.0));
        assert!((wait.total_ms - 45.0).abs() < 1e-9);
    }
}
