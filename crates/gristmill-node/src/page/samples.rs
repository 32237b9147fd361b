//! Samples for a page: the hardest, those left out most often, families, stand-ins.
//!
//! A window of a ranking at a time, each sample with its class, its scores and how often it was left out. Which names and
//! sizes there are comes from the catalog and is shown as it is: escaping is the page's.

use super::history::{History, Rank, Seen};
use super::{Shared, lock};
use gristmill_core::SampleId;
use gristmill_core::family::Families;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// The most families that can be looked at, the largest first.
const FAMILIES_MAX: usize = 1_000;
/// The most members of one that are shown.
const MEMBERS_MAX: usize = 24;
/// The most samples, families or stand-ins in one answer.
pub(super) const WINDOW_MAX: usize = 100;

/// What kind of samples is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hardest,
    Skipped,
    Families,
    StandIns,
}

impl Kind {
    /// The names in URLs.
    pub(super) const NAMES: [(&str, Kind); 4] = [
        ("hardest", Kind::Hardest),
        ("skipped", Kind::Skipped),
        ("families", Kind::Families),
        ("stand-ins", Kind::StandIns),
    ];

    /// The kind of this name.
    pub(super) fn named(name: &str) -> Option<Kind> {
        Kind::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// The families that are shown.
#[derive(Debug)]
pub(super) struct Shown {
    /// All there are, and all samples in them.
    families: usize,
    grouped: usize,
    /// The largest: how many members each has, and the first of them.
    largest: Vec<(usize, Vec<u32>)>,
}

impl Shown {
    pub(super) fn new(families: &Families) -> Shown {
        let mut all: Vec<&[u32]> = families.iter().collect();
        all.sort_by_key(|family| (Reverse(family.len()), family[0]));
        let first = |family: &&[u32]| (family.len(), family[..family.len().min(MEMBERS_MAX)].to_vec());
        Shown {
            families: families.len(),
            grouped: families.grouped(),
            largest: all.iter().take(FAMILIES_MAX).map(first).collect(),
        }
    }
}

/// Samples `from` and on of a kind, at most `count` of them and at most [`WINDOW_MAX`].
pub(super) fn window(shared: &Shared, kind: Kind, from: usize, count: usize) -> Value {
    let count = count.min(WINDOW_MAX);
    let mut history = lock(&shared.history);
    let (total, items): (usize, Vec<Value>) = match kind {
        Kind::Hardest | Kind::Skipped => {
            let by = if kind == Kind::Hardest { Rank::Hardest } else { Rank::Skipped };
            let ranked = history.ranked(by);
            let (total, ids): (usize, Vec<u32>) =
                (ranked.len(), ranked.iter().skip(from).take(count).copied().collect());
            (total, ids.into_iter().map(|id| sample(shared, &history, id)).collect())
        }
        Kind::Families => match shared.families.get() {
            None => (0, Vec::new()),
            Some(shown) => {
                let some = shown.largest.iter().skip(from).take(count);
                let members =
                    |ids: &[u32]| ids.iter().map(|id| sample(shared, &history, *id)).collect::<Vec<_>>();
                let items = some.map(|(size, ids)| json!({ "size": size, "members": members(ids) }));
                (shown.largest.len(), items.collect())
            }
        },
        Kind::StandIns => {
            let all = history.stand_ins();
            let some = all.iter().skip(from).take(count).map(|one| {
                json!({
                    "asked": sample(shared, &history, one.asked), "served": sample(shared, &history, one.served),
                    "times": one.times, "epoch": one.epoch,
                })
            });
            (all.len(), some.collect())
        }
    };
    let families = shared.families.get().map(|shown| (shown.families, shown.grouped));
    json!({ "total": total, "from": from, "items": items, "families": families })
}

/// One sample.
fn sample(shared: &Shared, history: &History, id: u32) -> Value {
    let catalog = shared.set.catalog();
    let label = catalog.label(SampleId(id)).ok();
    let class = label.and_then(|label| catalog.classes().get(label as usize));
    let name = catalog.locate(SampleId(id)).map_or(String::new(), |at| at.name.to_string());
    let seen = history.seen(id);
    let (score, skipped, trained, scores) = match seen {
        Some(Seen { score, skipped, trained, scores }) => (score, Some(skipped), Some(trained), scores),
        None => (None, None, None, Vec::new()),
    };
    let scores: Vec<Option<f64>> = scores.into_iter().map(|score| score.map(digits)).collect();
    json!({
        "id": id, "label": label, "class": class, "name": name, "bytes": catalog.size(SampleId(id)).ok(),
        "score": score.filter(|score| score.is_finite()).map(digits), "skipped": skipped, "trained": trained,
        "scores": scores,
    })
}

/// A score with as many digits as are shown.
fn digits(score: f32) -> f64 {
    (f64::from(score) * 1e4).round() / 1e4
}

/// All samples of what [`window`] answered.
pub(super) fn ids(answer: &Value) -> Vec<u32> {
    fn collect(value: &Value, out: &mut Vec<u32>) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| collect(one, out)),
            Value::Object(fields) => {
                if let Some(id) = fields.get("id").and_then(Value::as_u64) {
                    out.push(id as u32);
                }
                fields.values().for_each(|one| collect(one, out));
            }
            _ => {}
        }
    }
    let mut out = Vec::new();
    collect(&answer["items"], &mut out);
    out
}
