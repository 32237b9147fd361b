//! Whole epochs through the policies: what each is for must show in its hits.

use super::*;
use crate::rng::{Purpose, Stream};
use crate::score::Feedback;
use crate::select::{Facts, Readings, Selection, Selector};

const SAMPLES: u32 = 2_000;

/// A model that learns: the harder a sample, the later.
fn p_true(id: u32, epoch: u64) -> f32 {
    let difficulty = (id.wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0;
    1.0 / (1.0 + (-(0.25 * epoch as f32 + 2.0 - 6.0 * difficulty)).exp())
}

/// What a run does beside the plain requests.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Plain,
    /// It reads what is worth it 64 places before its turn.
    Ahead,
    /// Feedback comes batch by batch, and the cache hears of it.
    Fresh,
}

/// Reads and requests in a run of one job with a cache of a fifth of the data.
fn run(policy: Policy, selection: &str, epochs: u64, how: How) -> (u32, u32) {
    let facts = Facts {
        labels: vec![0; SAMPLES as usize],
        sizes: vec![10; SAMPLES as usize],
        seed: 5,
        epochs: None,
        class_floor: 0.0,
    };
    let mut selection = Selection::named(selection).unwrap();
    // This model knows little for long.
    let _ = selection.set("wrong_max", "1");
    let mut selector = Selector::new(selection, facts).unwrap();
    let options = CacheOptions { cold_share: 0.0, ..CacheOptions::new(policy, u64::from(SAMPLES) * 10 / 5) };
    let mut cache = Cache::new(options, vec![10; SAMPLES as usize].into(), 1).unwrap();
    let readings = Readings::default();
    let (mut reads, mut asked) = (0, 0);
    for epoch in 0..epochs {
        let chosen = selector.begin(epoch, &readings).unwrap();
        let order = chosen.shuffled(9).0;
        cache.announce(JobId(0), order.len() == SAMPLES as usize, &order).unwrap();
        let standing = selector.standing(&readings);
        match policy {
            Policy::Score => cache.renew(standing.score).unwrap(),
            Policy::Foresight => cache.renew(standing.wanted).unwrap(),
            _ => {}
        }
        for (place, &id) in order.iter().enumerate() {
            if how == How::Ahead
                && let Some(&next) = order.get(place + 64)
                && cache.worth(SampleId(next))
            {
                reads += 1;
                cache.offer(SampleId(next), &mut Vec::new());
            }
            if !cache.ask(JobId(0), SampleId(id)) {
                reads += 1;
                cache.offer(SampleId(id), &mut Vec::new());
            }
            if how == How::Fresh && (place % 50 == 49 || place + 1 == order.len()) {
                let batch = &order[place - place % 50..=place];
                tell(&mut selector, batch, epoch);
                let values = selector.wanted_of(batch, &readings);
                batch.iter().zip(values).for_each(|(&id, value)| _ = cache.update(SampleId(id), value));
            }
        }
        asked += order.len() as u32;
        if how != How::Fresh {
            tell(&mut selector, &order, epoch);
        }
    }
    (reads, asked)
}

/// What the model says about these samples.
fn tell(selector: &mut Selector, order: &[u32], epoch: u64) {
    let mut ids = order.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let p: Vec<f32> = ids.iter().map(|&id| p_true(id, epoch)).collect();
    let rest: Vec<f32> = p.iter().map(|p| 1.0 - p).collect();
    let said = Feedback { ids: &ids, p_true: &p, p_rival: &rest, loss: &rest, entropy: None };
    selector.feedback(&said).unwrap();
}

fn hit_ratio(policy: Policy, selection: &str) -> f64 {
    let (reads, asked) = run(policy, selection, 30, How::Plain);
    1.0 - f64::from(reads) / f64::from(asked)
}

#[test]
fn without_selection_nothing_beats_keeping_what_came_first() {
    // Every sample once per epoch: at best all residents are hit, in all epochs but the first.
    let most = 0.2 * 29.0 / 30.0;
    for policy in [Policy::Static, Policy::Score, Policy::Foresight] {
        let found = hit_ratio(policy, "uniform");
        assert!((found - most).abs() < 1e-9, "{policy:?}: {found}");
    }
    let (lru, lfu) = (hit_ratio(Policy::Lru, "uniform"), hit_ratio(Policy::Lfu, "uniform"));
    assert!(lru < 0.05 && lfu < 0.15, "{lru} {lfu}");
}

#[test]
fn foresight_holds_what_selection_will_want() {
    for selection in ["weighted", "bucket", "infobatch", "iis"] {
        let [fixed, score, ours] =
            [Policy::Static, Policy::Score, Policy::Foresight].map(|policy| hit_ratio(policy, selection));
        let least = if selection == "iis" { 1.03 } else { 1.3 };
        assert!(ours > least * fixed, "{selection}: {ours} against {fixed} of static");
        assert!(ours > 0.995 * score, "{selection}: {ours} against {score} of score");
    }
    let ours = hit_ratio(Policy::Foresight, "weighted");
    assert!(ours > 0.33, "{ours}");
}

#[test]
fn reading_ahead_costs_no_extra_reads() {
    // What is only wanted once is no reason to let go who will be wanted again.
    for selection in ["uniform", "weighted", "bucket"] {
        let [plain, ahead] = [How::Plain, How::Ahead].map(|how| run(Policy::Foresight, selection, 15, how).0);
        assert!(f64::from(ahead) < 1.01 * f64::from(plain), "{selection}: {ahead} against {plain}");
    }
}

#[test]
fn fresh_feedback_makes_better_guesses() {
    // Most of all in the beginning, when nothing else is known.
    for (epochs, least) in [(2, 50), (20, 80)] {
        let [plain, fresh] =
            [How::Plain, How::Fresh].map(|how| run(Policy::Foresight, "weighted", epochs, how).0);
        assert!(fresh + least <= plain, "{fresh} reads in {epochs} epochs, {plain} without");
    }
}

#[test]
fn two_jobs_on_one_cache_share_their_reads() {
    // The second job is a quarter of an epoch behind: what the first reads now, the second will ask for.
    let run = |second_announces: bool| {
        let options = CacheOptions::new(Policy::Foresight, u64::from(SAMPLES) * 10 / 5);
        let mut cache = Cache::new(options, vec![10; SAMPLES as usize].into(), 1).unwrap();
        let mut reads = 0;
        for epoch in 0..4 {
            let order = Stream::new(3, epoch, Purpose::TrainingOrder, &[]).permutation(SAMPLES);
            cache.announce(JobId(1), false, &order).unwrap();
            cache.announce(JobId(2), false, if second_announces { &order } else { &[] }).unwrap();
            let behind = order.len() / 8;
            for place in 0..order.len() + behind {
                let (first, second) = (order.get(place), place.checked_sub(behind).map(|place| order[place]));
                for (job, id) in [(JobId(1), first.copied()), (JobId(2), second)] {
                    let Some(id) = id else { continue };
                    if !cache.ask(job, SampleId(id)) {
                        reads += 1;
                        cache.offer(SampleId(id), &mut Vec::new());
                    }
                }
            }
        }
        reads
    };
    let (known, unknown) = (run(true), run(false));
    assert!(4 * known < 3 * unknown, "{known} reads with the plan of the second, {unknown} without");
}
