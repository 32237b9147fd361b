//! Every way of selecting, with ranks that hold slices: all make equally many steps, and each trains what it holds.

use super::*;

/// What one rank saw of a run.
struct Run {
    epochs: Vec<Seen>,
    /// What it trained without holding it.
    strange: Vec<u32>,
    state: Vec<u8>,
}

/// Some epochs with feedback as a model gives it that has learned two thirds of the samples.
fn run(kind: &str, choose: Choose, samples: u32, epochs: u64) -> Vec<Run> {
    let mut options = options(3, 4, ExchangeSettings { choose, ..settings(0.3) });
    options.selection.selection = Selection::named(kind).unwrap();
    options.selection.epochs = Some(60);
    ranks(&set(samples), &options, |rank, loader| {
        let loader = loader.unwrap();
        let exchanger = loader.exchanger().unwrap();
        let (mut all, mut strange) = (Vec::new(), Vec::new());
        for epoch in 0..epochs {
            let owners = exchanger.owners(epoch).unwrap_or_else(|error| panic!("{kind} {epoch}: {error}"));
            let seen = train(&loader, epoch, usize::MAX).unwrap();
            let ids = seen.ids();
            strange.extend(ids.iter().filter(|id| !owners.held(rank).contains(id)));
            if let Some(choice) = loader.choice() {
                let p_true: Vec<f32> = ids.iter().map(|id| if id % 3 == 0 { 0.4 } else { 0.995 }).collect();
                let p_rival: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
                let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
                let said =
                    Feedback { ids: &ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
                choice.feedback(&said).unwrap();
            }
            all.push(seen);
        }
        Run { epochs: all, strange, state: exchanger.state() }
    })
}

#[test]
fn every_selection_keeps_ranks_even_and_samples_at_home() {
    let (samples, epochs) = (97, 8);
    for kind in Selection::NAMES {
        let scored = Selection::named(kind).unwrap().needs_feedback();
        for choose in [Choose::Uniform, Choose::Class, Choose::Importance, Choose::Balanced] {
            if choose.by_score() && !scored {
                continue;
            }
            let ranks = run(kind, choose, samples, epochs);
            let name = format!("{kind}, {choose:?}");
            assert!(ranks.iter().all(|rank| rank.strange.is_empty()), "{name}: trains what it holds");
            assert!(ranks.iter().all(|rank| rank.state == ranks[0].state), "{name}: all know who holds what");
            let mut trained = 0;
            for epoch in 0..epochs as usize {
                let steps: Vec<Vec<usize>> = ranks
                    .iter()
                    .map(|rank| rank.epochs[epoch].batches.iter().map(Vec::len).collect())
                    .collect();
                assert!(steps.iter().all(|one| *one == steps[0]), "{name}, epoch {epoch}: {steps:?}");
                assert!(!steps[0].is_empty(), "{name}, epoch {epoch} is empty");
                trained += steps[0].iter().sum::<usize>() * 3;
                let held: Vec<u32> = ranks.iter().flat_map(|rank| rank.epochs[epoch].held.clone()).collect();
                assert_eq!(sorted(&held), (0..samples).collect::<Vec<_>>(), "{name}: complete and disjoint");
                let swap = |rank: &Run| rank.epochs[epoch].report.exchange.clone().unwrap();
                assert!(ranks.iter().all(|rank| swap(rank).committed && swap(rank).missed == 0), "{name}");
            }
            if ["infobatch", "weighted"].contains(&kind) {
                assert!(trained < samples as usize * epochs as usize, "{name}: nothing was left out");
            }
        }
    }
}
