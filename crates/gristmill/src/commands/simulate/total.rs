//! All epochs of a way to shuffle together, and the ways side by side.

use super::table::{CausesRow, bytes, percent, time};
use crate::output::{counted, grouped};
use gristmill_sim::{Causes, EpochCost, Setup, Shuffle, Simulation};
use serde::Serialize;

/// The width of the longest bar.
const BAR: f64 = 40.0;

/// The sums over all epochs, as printed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Total {
    #[serde(rename = "total")]
    whole: bool,
    shuffle: &'static str,
    epochs: u64,
    /// All epochs, without the first fill.
    seconds: f64,
    epoch_s: f64,
    fill_s: f64,
    #[serde(flatten)]
    causes: CausesRow,
    #[serde(skip)]
    named: [(&'static str, f64); 7],
    exchanged: u64,
    exchanged_bytes: f64,
    exchanged_share: f64,
    store_bytes: f64,
    held_share: f64,
    held_bytes: f64,
    seen_share: f64,
    seen_least: f64,
    seen_most: f64,
    followed: u32,
    divergence_first: f64,
    divergence: f64,
    divergence_expected: f64,
    restarts: u64,
    refilled: u64,
    again: u64,
    left: u64,
    setup: Simulated,
}

/// What was simulated: enough to do it again.
#[derive(Debug, Clone, Serialize)]
struct Simulated {
    seed: u64,
    ranks: u32,
    ranks_per_node: u32,
    cores: u32,
    samples: u32,
    bytes: f64,
    spread: f64,
    classes: u32,
    batch: u32,
    cpu_ms: f64,
    step_ms: f64,
    fraction: Option<f64>,
    kept: f64,
    cached: f64,
    threads: u32,
    reads_in_flight: u32,
    prefetch_batches: u32,
    disk_bytes_per_s: Option<f64>,
    disk_latency_ms: f64,
    disk_sync_ms: f64,
    link_bytes_per_s: Option<f64>,
    link_latency_ms: f64,
    store_bytes_per_s: Option<f64>,
    store_requests_per_s: Option<f64>,
    store_latency_ms: f64,
    faults: Vec<String>,
}

impl Simulated {
    fn new(setup: &Setup) -> Simulated {
        let Setup { machine, load, knobs, faults, seed, .. } = setup;
        // JSON has no infinity: no limit is null.
        let limit = |rate: f64| rate.is_finite().then_some(rate);
        Simulated {
            seed: *seed,
            ranks: machine.ranks,
            ranks_per_node: machine.ranks_per_node,
            cores: machine.cores,
            samples: load.samples,
            bytes: load.bytes,
            spread: load.spread,
            classes: load.classes,
            batch: load.batch,
            cpu_ms: load.cpu_s * 1e3,
            step_ms: load.step_s * 1e3,
            fraction: match knobs.shuffle {
                Shuffle::Global => None,
                Shuffle::Held(options) => Some(options.fraction),
            },
            kept: knobs.kept,
            cached: knobs.cached,
            threads: knobs.threads,
            reads_in_flight: knobs.reads_in_flight,
            prefetch_batches: knobs.prefetch_batches,
            disk_bytes_per_s: limit(machine.disk.bytes_per_s),
            disk_latency_ms: machine.disk.latency_s * 1e3,
            disk_sync_ms: machine.disk.sync_s * 1e3,
            link_bytes_per_s: limit(machine.link.bytes_per_s),
            link_latency_ms: machine.link.latency_s * 1e3,
            store_bytes_per_s: limit(machine.store.bytes_per_s),
            store_requests_per_s: limit(machine.store.requests_per_s),
            store_latency_ms: machine.store.latency_s * 1e3,
            faults: faults.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Total {
    pub(super) fn new(simulation: &Simulation, costs: &[EpochCost]) -> Total {
        let setup = simulation.setup();
        let mut causes = Causes::default();
        costs.iter().for_each(|cost| causes.add(&cost.causes));
        let sum = |of: fn(&EpochCost) -> f64| costs.iter().map(of).sum::<f64>();
        let count = |of: fn(&EpochCost) -> u64| costs.iter().map(of).sum::<u64>();
        let (seconds, epochs) = (sum(|cost| cost.seconds), costs.len().max(1) as f64);
        let last = costs.last();
        let held_share = costs.iter().map(|cost| cost.held_share).fold(0.0, f64::max);
        let data_bytes = setup.load.bytes * f64::from(setup.load.samples);
        let exchanged = count(|cost| cost.traffic.exchanged);
        Total {
            whole: true,
            shuffle: setup.knobs.shuffle.name(),
            epochs: costs.len() as u64,
            seconds,
            epoch_s: seconds / epochs,
            fill_s: simulation.fill_seconds(),
            causes: causes.into(),
            named: causes.named(),
            exchanged,
            exchanged_bytes: sum(|cost| cost.traffic.exchanged_bytes),
            exchanged_share: exchanged as f64 / epochs / f64::from(setup.load.samples),
            store_bytes: sum(|cost| cost.traffic.store_bytes),
            held_share,
            held_bytes: held_share * data_bytes,
            seen_share: last.map_or(0.0, |cost| cost.seen.mean),
            seen_least: last.map_or(0.0, |cost| cost.seen.least),
            seen_most: last.map_or(0.0, |cost| cost.seen.most),
            followed: simulation.followed(),
            divergence_first: costs.first().map_or(0.0, |cost| cost.divergence.mean),
            divergence: last.map_or(0.0, |cost| cost.divergence.mean),
            divergence_expected: last.map_or(0.0, |cost| cost.divergence.expected),
            restarts: count(|cost| cost.restarts.into()),
            refilled: count(|cost| cost.refilled),
            again: count(|cost| cost.again),
            left: count(|cost| cost.left),
            setup: Simulated::new(setup),
        }
    }
}

/// Where all the time went, and what else all epochs came to.
pub(super) fn text(total: &Total) -> Vec<String> {
    let epochs = counted(total.epochs, "epoch", "epochs");
    let mut out =
        vec![String::new(), format!("{epochs} in {}, {} each", time(total.seconds), time(total.epoch_s))];
    for (cause, seconds) in total.named.into_iter().filter(|(_, seconds)| *seconds > 0.0) {
        let share = seconds / total.seconds;
        let bar = "#".repeat((share * BAR).round() as usize);
        let row = format!(
            "  {cause:<10} {:>9} {:>9}  {bar:<40}  {}",
            time(seconds),
            percent(share),
            meaning(cause)
        );
        out.push(row);
    }
    let each = total.epochs.max(1) as f64;
    let mut traffic = Vec::new();
    if total.exchanged > 0 {
        let (all, share) = (bytes(total.exchanged_bytes / each), percent(total.exchanged_share));
        traffic.push(format!("{all} between ranks in an epoch ({share} of the data)"));
    }
    if total.store_bytes > 0.0 {
        traffic.push(format!("{} from the store in all", bytes(total.store_bytes)));
    }
    if total.fill_s > 0.0 {
        traffic.push(format!("slices filled from the store in {}", time(total.fill_s)));
    }
    out.push(format!("  {:<10} {}", "traffic", traffic.join("; ")));
    if total.held_share > 0.0 {
        let (share, held) = (percent(total.held_share), bytes(total.held_bytes));
        out.push(format!(
            "  {:<10} at most {share} of the data on a rank ({held}), what comes in included",
            "held"
        ));
    }
    let of = match total.followed {
        followed if followed < total.setup.ranks => {
            format!(
                "; followed on {} of {} ranks",
                grouped(followed.into()),
                grouped(total.setup.ranks.into())
            )
        }
        _ => String::new(),
    };
    let (mean, least, most) =
        (percent(total.seen_share), percent(total.seen_least), percent(total.seen_most));
    out.push(format!("  {:<10} {mean} of the data by a rank so far ({least} to {most}{of})", "seen"));
    out.push(format!(
        "  {:<10} slices are {:.3} from the whole ({:.3} at first; chance alone makes {:.3})",
        "classes", total.divergence, total.divergence_first, total.divergence_expected
    ));
    if total.restarts > 0 {
        let lost = counted(total.restarts, "restart", "restarts");
        let again = counted(total.refilled, "sample", "samples");
        out.push(format!("  {:<10} {lost}, {again} read again, nothing lost", "faults"));
    }
    out.push(format!("  {:<10} every invariant held in each of {epochs}", "checked"));
    out
}

/// What a cause means.
fn meaning(cause: &str) -> &'static str {
    match cause {
        "compute" => "the accelerators work",
        "disk" => "waiting for the own disk",
        "cpu" => "waiting for samples to be decoded",
        "exchange" => "waiting for the exchange after the last step",
        "store" => "waiting for the shared store",
        "slowest" => "waiting for the slowest rank",
        _ => "a node was lost: lost work, timeout, start, refill",
    }
}

/// Several ways to shuffle in one table; nothing for one.
pub(super) fn beside(totals: &[&Total]) -> Vec<String> {
    let [first, _, ..] = totals else { return Vec::new() };
    let mut out = vec![
        String::new(),
        format!(
            "{:<8}  {:>9}  {:>7}  {:>8}  {:>10}  {:>10}  {:>9}  {:>8}  {:>8}",
            "shuffle", "epoch", "faster", "compute", "exchanged", "from store", "held", "seen", "classes"
        ),
    ];
    for total in totals {
        let each = total.epochs.max(1) as f64;
        out.push(format!(
            "{:<8}  {:>9}  {:>6.2}x  {:>8}  {:>10}  {:>10}  {:>9}  {:>8}  {:>8.3}",
            total.shuffle,
            time(total.epoch_s),
            first.epoch_s / total.epoch_s.max(1e-12),
            percent(total.named[0].1 / total.seconds.max(1e-12)),
            bytes(total.exchanged_bytes / each),
            bytes(total.store_bytes / each),
            if total.held_share > 0.0 { percent(total.held_share) } else { "-".into() },
            percent(total.seen_share),
            total.divergence,
        ));
    }
    out.push(format!("traffic is per epoch; faster is against {}", first.shuffle));
    out
}
