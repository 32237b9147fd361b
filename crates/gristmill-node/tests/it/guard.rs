//! The guard of accuracy at work: a probe that is never skipped, whoever else decides, and an epoch of everything when
//! training trails on it; the same on every rank.

use crate::exchange::{self, ranks};
use gristmill_core::cache::Policy;
use gristmill_core::family::Families;
use gristmill_core::plan::Shape;
use gristmill_core::score::Feedback;
use gristmill_core::select::Selection;
use gristmill_node::access::Embedded;
use gristmill_node::config::Config;
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::node::{Node, NodeOptions};
use gristmill_node::report::EpochReport;
use gristmill_node::selection::{Choice, FamilyUse, SelectionOptions};
use std::sync::Arc;

const SAMPLES: u32 = 600;
/// From this epoch on a quarter of all samples is forgotten.
const FORGETS: u64 = 5;
/// Its epoch and two more trail; then everything is trained.
const GUARDED: u64 = FORGETS + 3;

fn options(kind: &str, families: FamilyUse, probe_share: f64) -> LoaderOptions {
    let mut options = Config::default().settings().loader();
    (options.shape, options.threads) = (Shape::single(32), 1);
    let mut selection = Selection::named(kind).unwrap();
    if kind == "iis" {
        selection.set("warmup", "1").unwrap();
        selection.set("history", "64").unwrap();
    }
    options.selection = SelectionOptions {
        selection,
        epochs: Some(400),
        families,
        probe_share,
        ..SelectionOptions::default()
    };
    options
}

/// A trainer to whom most samples are easy.
fn tell(choice: &Choice, epoch: u64, ids: &[u32]) {
    let p = |id: &u32| match id.wrapping_mul(2_654_435_761) >> 20 & 3 {
        0 if epoch >= FORGETS => 0.2,
        1 => 0.6,
        easy => 0.98 + 0.005 * easy as f32,
    };
    let p_true: Vec<f32> = ids.iter().map(p).collect();
    let p_rival: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
    let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
    let said = Feedback { ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
    choice.feedback(&said).unwrap();
}

/// The ids of an epoch with their weights, and its report.
fn train(loader: &Loader, epoch: u64) -> (Vec<(u32, f32)>, EpochReport) {
    let mut running = loader.epoch(epoch, 0).unwrap();
    let mut served = Vec::new();
    while let Some(batch) = running.next_batch().unwrap() {
        tell(loader.choice().unwrap(), epoch, &batch.ids);
        served.extend(batch.ids.iter().copied().zip(batch.weights.iter().copied()));
    }
    (served, running.report())
}

/// Every four samples are relatives.
fn families() -> Arc<Families> {
    let hashes: Vec<u64> = (0..u64::from(SAMPLES)).map(|id| (id / 4 + 1) << 20).collect();
    Arc::new(Families::group(&hashes, &[0; SAMPLES as usize], 0, false).unwrap())
}

fn sorted(ids: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    ids
}

#[test]
fn the_probe_is_served_in_every_epoch_whatever_families_and_caches_do() {
    let set = Arc::new(exchange::set(SAMPLES));
    for (kind, families_use, cached) in [
        ("weighted", FamilyUse::Off, false),
        ("weighted", FamilyUse::Remove, false),
        ("infobatch", FamilyUse::Repeat, false),
        ("iis", FamilyUse::Off, true),
    ] {
        let mut loader = Loader::new(Arc::clone(&set), None, options(kind, families_use, 0.05)).unwrap();
        if families_use != FamilyUse::Off {
            loader = loader.with_families(families()).unwrap();
        }
        let cache =
            NodeOptions { stand_ins: true, hot_share: 0.1, ..NodeOptions::new(Policy::Score, 40_000) };
        let node = Arc::new(Node::new(Arc::clone(&set), cache).unwrap());
        if cached {
            let access = Embedded::join(Arc::clone(&node), "test").unwrap();
            loader = loader.with_access(Some(Arc::new(access)));
        }
        let probe = loader.choice().unwrap().probe();
        assert!((28..=32).contains(&probe.len()), "{}", probe.len());
        let (mut skipped, mut others) = (0, 0_u64);
        for epoch in 0..FORGETS + 2 {
            let (served, report) = train(&loader, epoch);
            let facts = report.selection.unwrap();
            for id in &probe {
                assert!(served.iter().any(|(other, _)| other == id), "{kind} {families_use:?} {epoch}: {id}");
            }
            // Who stands in for another has that one's weight there.
            let mut weights: Vec<f32> =
                served.iter().filter(|(id, _)| probe.contains(id)).map(|(_, w)| *w).collect();
            weights.sort_unstable_by(f32::total_cmp);
            let own = weights[0];
            assert!(own <= 1.0 && weights[probe.len() - 1] <= own, "{kind}: {weights:?}");
            skipped += SAMPLES - facts.kept;
            others += u64::from(facts.removed + facts.stand_ins);
        }
        others += node.report().stand_ins;
        assert!(skipped > 0, "{kind} skips");
        assert_eq!(others > 0, families_use != FamilyUse::Off || cached, "{kind} {families_use:?}");
    }
}

#[test]
fn when_the_probe_trails_everything_is_trained_and_that_is_said() {
    let set = Arc::new(exchange::set(SAMPLES));
    for (kind, families_use) in
        [("weighted", FamilyUse::Off), ("weighted", FamilyUse::Remove), ("infobatch", FamilyUse::Repeat)]
    {
        for probe_share in [0.1, 0.0] {
            let options = options(kind, families_use, probe_share);
            let loader = Loader::new(Arc::clone(&set), None, options).unwrap();
            let loader = match families_use {
                FamilyUse::Off => loader,
                _ => loader.with_families(families()).unwrap(),
            };
            for epoch in 0..=GUARDED + 1 {
                let (served, report) = train(&loader, epoch);
                let said = report.to_string();
                let facts = report.selection.unwrap();
                let asked = epoch == GUARDED && probe_share > 0.0;
                assert_eq!(!facts.guard.is_empty(), asked, "{kind} {epoch}: {}", facts.guard);
                assert_eq!(facts.probe.is_some(), epoch > 0 && probe_share > 0.0, "{kind} {epoch}");
                let whole = sorted(served.iter().map(|(id, _)| *id)) == (0..SAMPLES).collect::<Vec<_>>();
                if asked {
                    assert!(
                        whole && served.iter().all(|(_, w)| w.to_bits() == 1.0_f32.to_bits()),
                        "{kind}: {}",
                        served.len()
                    );
                    assert!(said.contains("accuracy: the probe trails its best (100.0 %) by"), "{said}");
                    assert!(facts.probe.is_some_and(|p| (0.6..0.9).contains(&p)), "{:?}", facts.probe);
                    assert_eq!((facts.removed, facts.stand_ins, facts.kept), (0, 0, SAMPLES));
                } else if epoch > 3 {
                    assert!(!whole, "{kind} skips some in epoch {epoch}");
                }
            }
        }
    }
}

#[test]
fn ranks_that_share_what_they_heard_are_alarmed_as_one() {
    let labels: Vec<u32> = (0..SAMPLES).map(|id| id % 4).collect();
    let sizes = vec![784; SAMPLES as usize];
    let options = options("weighted", FamilyUse::Off, 0.1).selection;
    let choice = |world| Choice::new(&options, &labels, &sizes, 5, world).unwrap();
    let (alone, mut ranks) = (choice(1), [choice(2), choice(2)]);
    let mut alarms = 0;
    for epoch in 0..=GUARDED + 2 {
        let one = alone.decide(epoch, Shape::single(20), true).unwrap();
        let ids: Vec<u32> = (0..one.plan.batches())
            .flat_map(|b| one.plan.batch(b).map(|id| id.0).collect::<Vec<_>>())
            .collect();
        tell(&alone, epoch, &ids);
        for (rank, choice) in ranks.iter().enumerate() {
            let shape = Shape { rank: rank as u32, world: 2, ..Shape::single(10) };
            let part = choice.decide(epoch, shape, true).unwrap();
            assert_eq!(part.active, one.active, "epoch {epoch}");
            assert_eq!((&part.report.guard, part.report.probe), (&one.report.guard, one.report.probe));
            let plan = part.plan;
            let ids: Vec<u32> =
                (0..plan.batches()).flat_map(|b| plan.batch(b).map(|id| id.0).collect::<Vec<_>>()).collect();
            tell(choice, epoch, &ids);
        }
        alarms += u32::from(!one.report.guard.is_empty());
        let packs: Vec<Vec<u8>> = ranks.iter().map(Choice::pending).collect();
        ranks.iter().for_each(|choice| choice.merge(&packs).unwrap());
        // A rank that starts again goes on where it was.
        let again = choice(2);
        again.restore(&ranks[1].state()).unwrap();
        ranks[1] = again;
    }
    assert_eq!(alarms, 1);
}

#[test]
fn ranks_that_hold_slices_leave_no_probe_out() {
    let mut how = exchange::options(3, 8, exchange::settings(0.3));
    how.selection = options("weighted", FamilyUse::Off, 0.1).selection;
    let seen = ranks(&exchange::set(SAMPLES), &how, |_, loader| {
        let loader = loader.unwrap();
        let probe = loader.choice().unwrap().probe();
        let epochs: Vec<_> = (0..=GUARDED)
            .map(|epoch| {
                let seen = exchange::train(&loader, epoch, usize::MAX).unwrap();
                tell(loader.choice().unwrap(), epoch, &seen.ids());
                (seen.ids(), seen.report.selection.unwrap())
            })
            .collect();
        (probe, epochs)
    });
    let (probe, first) = &seen[0];
    for (epoch, (_, facts)) in first.iter().enumerate() {
        let all: Vec<u32> = sorted(seen.iter().flat_map(|(_, epochs)| epochs[epoch].0.clone()));
        assert!(probe.iter().all(|id| all.binary_search(id).is_ok()), "epoch {epoch}");
        assert!(seen.iter().all(|(_, epochs)| epochs[epoch].1.guard == facts.guard));
        let guarded = epoch as u64 == GUARDED;
        assert_eq!(!facts.guard.is_empty(), guarded, "{epoch}: {}", facts.guard);
        if guarded {
            assert_eq!(all, (0..SAMPLES).collect::<Vec<_>>());
        }
    }
    assert!(first.iter().any(|(_, facts)| facts.kept < SAMPLES / 2 * 2 - 60));
}

#[test]
fn a_probe_that_cannot_be_is_said() {
    let set = Arc::new(exchange::set(20));
    for (share, words) in [(1.5, "larger than the data"), (-0.1, "not from 0 to 1"), (f64::NAN, "not from")] {
        let made = Loader::new(Arc::clone(&set), None, options("weighted", FamilyUse::Off, share));
        let error = made.unwrap_err().to_string();
        assert!(error.contains("steer.probe_share") && error.contains(words), "{error}");
    }
    let text = |value: &str| {
        Config::load(None, &[("steer.probe_share".into(), value.into())]).unwrap_err().to_string()
    };
    for wrong in ["1.01", "-1", "much"] {
        assert!(text(wrong).contains("a number from 0 to 1"), "{}", text(wrong));
    }
    let whole = Loader::new(Arc::clone(&set), None, options("weighted", FamilyUse::Off, 1.0)).unwrap();
    assert_eq!(whole.choice().unwrap().probe().len(), 20);
    let plain = Loader::new(set, None, options("uniform", FamilyUse::Remove, 0.1)).unwrap();
    let families = Families::group(&[1; 20], &[0; 20], 0, false).unwrap();
    let plain = plain.with_families(Arc::new(families)).unwrap();
    assert!(plain.choice().unwrap().probe().is_empty(), "nothing is skipped by a score: nothing is watched");
}
