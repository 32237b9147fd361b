//! Epoch by epoch: as text, as JSON and as a picture.

use super::Side;
use crate::output::{counted, grouped, size};
use crate::plot::{Series, Words, lines};
use gristmill_sim::{Causes, EpochCost, Hold, Labels, Setup, Shuffle};
use serde::Serialize;

/// More epochs than this are not all shown.
pub(super) const ROWS_MAX: usize = 20;

/// One epoch, as printed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    shuffle: &'static str,
    epoch: u64,
    epoch_s: f64,
    #[serde(flatten)]
    causes: CausesRow,
    batches: u32,
    trained: u64,
    again: u64,
    left: u64,
    exchanged: u64,
    balanced: u64,
    exchanged_bytes: f64,
    stored: u64,
    store_bytes: f64,
    held_share: f64,
    seen_share: f64,
    seen_least: f64,
    seen_most: f64,
    divergence: f64,
    divergence_expected: f64,
    restarts: u32,
    refilled: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[expect(clippy::struct_field_names, reason = "units end names")]
pub(super) struct CausesRow {
    compute_s: f64,
    disk_s: f64,
    cpu_s: f64,
    exchange_s: f64,
    store_s: f64,
    slowest_s: f64,
    restart_s: f64,
}

impl From<Causes> for CausesRow {
    fn from(causes: Causes) -> CausesRow {
        let Causes { compute_s, disk_s, cpu_s, exchange_s, store_s, slowest_s, restart_s } = causes;
        CausesRow { compute_s, disk_s, cpu_s, exchange_s, store_s, slowest_s, restart_s }
    }
}

impl Row {
    pub(super) fn new(setup: &Setup, cost: &EpochCost) -> Row {
        let traffic = cost.traffic;
        Row {
            shuffle: setup.knobs.shuffle.name(),
            epoch: cost.epoch,
            epoch_s: cost.seconds,
            causes: cost.causes.into(),
            batches: cost.batches,
            trained: cost.trained,
            again: cost.again,
            left: cost.left,
            exchanged: traffic.exchanged,
            balanced: traffic.balanced,
            exchanged_bytes: traffic.exchanged_bytes,
            stored: traffic.stored,
            store_bytes: traffic.store_bytes,
            held_share: cost.held_share,
            seen_share: cost.seen.mean,
            seen_least: cost.seen.least,
            seen_most: cost.seen.most,
            divergence: cost.divergence.mean,
            divergence_expected: cost.divergence.expected,
            restarts: cost.restarts,
            refilled: cost.refilled,
        }
    }
}

/// What is simulated, and its epochs, or about so many of them.
pub(super) fn text(side: &Side, rows_max: usize) -> Vec<String> {
    let Side { setup, costs, .. } = side;
    let mut out = heading(setup, costs.first());
    out.push(String::new());
    let named = |cost: &EpochCost| cost.causes.named();
    // A cause that never takes time has no column.
    let shown: Vec<usize> = (0..named(&costs[0]).len())
        .filter(|cause| costs.iter().any(|cost| named(cost)[*cause].1 > 0.0))
        .collect();
    let mut head = vec![format!("{:>5}", "epoch"), format!("{:>9}", "time")];
    head.extend(shown.iter().map(|cause| format!("{:>8}", named(&costs[0])[*cause].0)));
    head.push(format!("{:>10}  {:>10}  {:>8}  {:>7}", "exchanged", "from store", "seen", "classes"));
    out.push(head.join("  "));
    let picked = picked(costs, rows_max);
    for &at in &picked {
        let cost = &costs[at];
        let mut row = vec![format!("{:>5}", cost.epoch), format!("{:>9}", time(cost.seconds))];
        row.extend(shown.iter().map(|cause| format!("{:>8}", share(named(cost)[*cause].1, cost.seconds))));
        row.push(format!(
            "{:>10}  {:>10}  {:>8}  {:>7.3}",
            bytes(cost.traffic.exchanged_bytes),
            bytes(cost.traffic.store_bytes),
            percent(cost.seen.mean),
            cost.divergence.mean
        ));
        match (cost.restarts, cost.refilled) {
            (0, _) => {}
            (_, 0) => row.push("a node was lost".into()),
            (_, again) => {
                row.push(format!("a node was lost, {} read again", counted(again, "sample", "samples")));
            }
        }
        if cost.left + cost.again > 0 {
            row.push(format!("{} left, {} again", grouped(cost.left), grouped(cost.again)));
        }
        out.push(row.join("  "));
    }
    if picked.len() < costs.len() {
        out.push(format!("({} of {} epochs are shown; --json has all)", picked.len(), costs.len()));
    }
    out
}

/// What there is and what is done with it.
fn heading(setup: &Setup, first: Option<&EpochCost>) -> Vec<String> {
    let Setup { machine, load, knobs, faults, .. } = setup;
    let labels = if load.labels == Labels::Sorted { ", sorted by class" } else { "" };
    let steps = first.map_or(0, |cost| u64::from(cost.batches));
    let mut out = vec![format!(
        "{} on {}: {} of {} in {}{labels}",
        counted(machine.ranks.into(), "rank", "ranks"),
        counted(machine.nodes().into(), "node", "nodes"),
        counted(load.samples.into(), "sample", "samples"),
        size(load.bytes as u64),
        counted(load.classes.into(), "class", "classes"),
    )];
    let disk = match (knobs.shuffle, knobs.hold) {
        (Shuffle::Global, _) => String::new(),
        (_, Hold::Memory) => ", slices in memory".into(),
        (_, Hold::Disk) => {
            format!(", disk {} + {}", rate(machine.disk.bytes_per_s), ms(machine.disk.latency_s))
        }
    };
    out.push(format!(
        "  each rank   {} of {} and {}; {}, {} a sample; link {} + {}{disk}",
        counted(steps, "step", "steps"),
        load.batch,
        ms(load.step_s),
        counted(knobs.threads.into(), "thread", "threads"),
        ms(load.cpu_s),
        rate(machine.link.bytes_per_s),
        ms(machine.link.latency_s),
    ));
    let requests = match machine.store.requests_per_s {
        requests if requests.is_finite() => format!(", {} requests/s", grouped(requests as u64)),
        _ => String::new(),
    };
    out.push(format!(
        "  together    store {} + {}{requests}; {} per node",
        rate(machine.store.bytes_per_s),
        ms(machine.store.latency_s),
        counted(machine.cores.into(), "core", "cores"),
    ));
    let kept = if knobs.kept < 1.0 { format!(", {} selected", percent(knobs.kept)) } else { String::new() };
    let cached =
        if knobs.cached > 0.0 { format!(", {} cached", percent(knobs.cached)) } else { String::new() };
    out.push(format!("  shuffle     {}{kept}{cached}", shuffling(setup, first)));
    if !faults.is_empty() {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        out.push(format!("  faults      {}", faults.join(", ")));
    }
    out
}

/// The way to shuffle in words.
fn shuffling(setup: &Setup, first: Option<&EpochCost>) -> String {
    let ranks = u64::from(setup.machine.ranks);
    let each = u64::from(setup.load.samples).div_ceil(ranks);
    let sent = first.map_or(0, |cost| cost.traffic.exchanged / ranks);
    match &setup.knobs.shuffle {
        Shuffle::Global => "global: each rank reads its part from the store in every epoch".into(),
        Shuffle::Held(_) if ranks == 1 => "one rank holds everything and has nobody to exchange with".into(),
        Shuffle::Held(options) if options.fraction == 0.0 => {
            format!("local: each rank keeps its slice of {} samples for ever", grouped(each))
        }
        Shuffle::Held(options) if sent == 0 => {
            let fraction = options.fraction;
            format!("partial, but a fraction of {fraction} of {} samples is none", grouped(each))
        }
        Shuffle::Held(options) => format!(
            "partial: each rank holds {} samples and swaps a fraction of {}, {} in every epoch",
            grouped(each),
            options.fraction,
            grouped(sent)
        ),
    }
}

/// Which epochs are shown: all if they are few; else the first ones, then some on the way, what was special, and the last.
fn picked(costs: &[EpochCost], rows_max: usize) -> Vec<usize> {
    if costs.len() <= rows_max {
        return (0..costs.len()).collect();
    }
    let (last, first) = (costs.len() - 1, rows_max / 4);
    let mut picked: Vec<usize> = (0..first).collect();
    let steps = rows_max - first;
    picked.extend((1..=steps).map(|step| first - 1 + (last + 1 - first) * step / steps));
    picked.extend(costs.iter().enumerate().filter(|(_, cost)| cost.restarts > 0).map(|(at, _)| at));
    picked.sort_unstable();
    picked.dedup();
    picked
}

/// How much was seen and how alike slices are, by epoch; two lines per way to shuffle.
pub(super) fn picture(sides: &[Side]) -> String {
    let line = |side: &Side, what: &str, of: fn(&EpochCost) -> f64| Series {
        name: format!("{} {what}", side.setup.knobs.shuffle.name()),
        points: side.costs.iter().map(|cost| (cost.epoch as f64, of(cost) * 100.0)).collect(),
    };
    let both = |side: &Side| {
        [line(side, "seen", |cost| cost.seen.mean), line(side, "apart", |cost| cost.divergence.excess())]
    };
    let words = Words {
        title: "What a rank has seen, and how far slices are from the whole",
        x: "epoch",
        y: "% of the data; % beyond chance",
    };
    lines(words, &sides.iter().flat_map(both).collect::<Vec<_>>())
}

/// A part of an epoch; nothing at all is a dash.
fn share(part: f64, all: f64) -> String {
    match part / all {
        share if share.is_nan() || share <= 0.0 => "-".into(),
        share if share < 0.000_5 => "<0.1 %".into(),
        share => format!("{:.1} %", share * 100.0),
    }
}

/// A share, with three digits that say something, whatever the scale.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = match percent {
        _ if percent >= 10.0 || percent == 0.0 => 1,
        _ if percent >= 1.0 => 2,
        _ if percent >= 0.1 => 3,
        _ => 4,
    };
    format!("{percent:.digits$} %")
}

/// Bytes; none at all are a dash.
pub(super) fn bytes(bytes: f64) -> String {
    match bytes {
        _ if bytes <= 0.0 => "-".into(),
        _ if bytes >= 1e12 => format!("{:.1} TB", bytes / 1e12),
        _ => size(bytes as u64),
    }
}

/// A time in the unit that people would use for it.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.01 => format!("{:.2} ms", seconds * 1e3),
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 100.0 => format!("{seconds:.2} s"),
        _ if seconds < 6_000.0 => format!("{:.1} min", seconds / 60.0),
        _ if seconds < 360_000.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

/// A short time as it was typed.
fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    // As many digits as it was typed with, three at most.
    let text = format!("{ms:.3}");
    format!("{} ms", text.trim_end_matches('0').trim_end_matches('.'))
}

fn rate(bytes_per_s: f64) -> String {
    if bytes_per_s.is_finite() { format!("{}/s", size(bytes_per_s as u64)) } else { "without limit".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        assert_eq!([0.0, 0.000_635, 0.3, 1.0].map(percent), ["0.0 %", "0.0635 %", "30.0 %", "100.0 %"]);
        assert_eq!(
            [0.005, 0.05, 2.0, 187.0, 9_000.0].map(time),
            ["5.00 ms", "50 ms", "2.00 s", "3.1 min", "2.5 h"]
        );
        assert_eq!([0.0, 500.0, 42.1e9, 3.2e12].map(bytes), ["-", "500 B", "42.1 GB", "3.2 TB"]);
        assert_eq!([0.000_05, 0.2].map(ms), ["0.05 ms", "200 ms"]);
        assert_eq!([0.0, 0.000_1, 0.5].map(|part| share(part, 2.0)), ["-", "<0.1 %", "25.0 %"]);
    }
}
