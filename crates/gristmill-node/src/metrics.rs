//! What `/metrics` of a node and of a run can show, as a list for the reference page.
//!
//! The list is read from the very text that is served, of a report in which nothing is missing: so it cannot say anything that is not there.

use crate::node::{NodeReport, Tier};
use crate::report::{EpochReport, TierUse};
use crate::selection::SelectionReport;
use crate::serve::{OpsReport, ServerReport, SetReport, StageCount};
use gristmill_ops::Stage;

/// One figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// `gauge` or `counter`.
    pub kind: String,
    /// The names of its labels, with commas between them; empty without any.
    pub labels: String,
    /// What it is.
    pub meaning: String,
}

/// The figures of a node.
pub fn of_a_node() -> Vec<Figure> {
    figures(&crate::serve::metrics::text(&server()))
}

/// The figures of a training run.
pub fn of_a_run() -> Vec<Figure> {
    figures(&crate::page::metrics::text(Some(&run()), 1))
}

/// A node in which there is one of everything.
pub(crate) fn server() -> ServerReport {
    let set = SetReport {
        name: "train".into(),
        digest: String::new(),
        node: NodeReport::default(),
        hit_ratio: 0.0,
    };
    let stages = vec![StageCount { stage: Stage::Raw, samples: 0, bytes: 0 }];
    ServerReport {
        version: String::new(),
        up_s: 0.0,
        connections: 0,
        connections_max: 0,
        refused: 0,
        cut_off: 0,
        lane_bytes: 0,
        messages: 0,
        samples: 0,
        bytes: 0,
        bytes_in_flight: 0,
        bytes_in_flight_max: 0,
        draining: false,
        ops: OpsReport { stages, ..OpsReport::default() },
        sets: vec![set],
    }
}

/// A run in which there is one of everything.
pub(crate) fn run() -> EpochReport {
    let tiers = Tier::ALL.map(|tier| TierUse { tier, samples: 1, bytes: 1 }).to_vec();
    let selection =
        SelectionReport { probe: Some(0.0), class_shares: vec![1.0], ..SelectionReport::default() };
    EpochReport { tiers, selection: Some(selection), ..EpochReport::default() }
}

/// Every figure of a text in the format of Prometheus.
fn figures(text: &str) -> Vec<Figure> {
    let mut all: Vec<Figure> = Vec::new();
    for line in text.lines() {
        if let Some((name, meaning)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            let (name, meaning) = (name.to_string(), meaning.to_string());
            all.push(Figure { name, kind: String::new(), labels: String::new(), meaning });
            continue;
        }
        let Some(last) = all.last_mut() else { continue };
        if let Some(kind) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').nth(1)) {
            last.kind = kind.to_string();
        } else if let Some((_, rest)) = line.split_once('{')
            && let Some((labels, _)) = rest.split_once('}')
        {
            let names = labels.split(',').filter_map(|label| label.split_once('='));
            last.labels = names.map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_all_its_parts() {
        for (figures, least) in [(of_a_node(), 30), (of_a_run(), 10)] {
            assert!(figures.len() >= least, "{}", figures.len());
            for figure in figures {
                assert!(figure.name.starts_with("gristmill_") && figure.meaning.ends_with('.'), "{figure:?}");
                assert!(["gauge", "counter"].contains(&&*figure.kind), "{figure:?}");
                assert_eq!(figure.kind == "counter", figure.name.ends_with("_total"), "{figure:?}");
            }
        }
        let tiers = of_a_node().into_iter().find(|one| one.name == "gristmill_served_samples_total");
        assert_eq!(tiers.unwrap().labels, "set, tier");
        let waits = of_a_run().into_iter().find(|one| one.name == "gristmill_run_wait_seconds");
        assert_eq!(waits.unwrap().labels, "what");
    }
}
