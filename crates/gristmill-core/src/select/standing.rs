//! What a cache can know about the epoch after this one: what a sample is worth, and whether it will be wanted.
//!
//! Selection decides from scores that the coming epoch may still change, so this is a forecast, but a good one: samples
//! rest for several epochs, and the turns of `weighted` are known in advance but for the change of a chance. Where
//! chances are flipped, the chance is the forecast. Deliberately not here: what to do with it (`cache`).

use super::{Context, Memory, Readings, Selection, Selector, baselines, bucket, percentile, weighted};
use crate::math::power;

/// What is known now about every sample's next epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The last known loss. Who was never trained counts as the largest, and as 1 while nothing is known.
    pub score: Vec<f32>,
    /// How likely the epoch after the one that began last has it; for a sample whose turn comes later, one part in
    /// the number of epochs until then.
    pub wanted: Vec<f32>,
}

impl Selector {
    /// What is known now about the epoch after the one that began last. Asked when all of an epoch's feedback is in it
    /// is at its best; asked before, it goes by what was known at the visits before.
    pub fn standing(&self, readings: &Readings) -> Standing {
        let mut wanted = self.wanted(readings);
        self.probe.ids.iter().for_each(|&id| wanted[id as usize] = 1.0);
        Standing { score: self.losses(), wanted }
    }

    /// What `wanted` is now for a few samples whose feedback has just come, at a cost per sample named and not per sample
    /// there is. Empty where one sample's feedback says nothing before all of it is in.
    pub fn wanted_of(&self, ids: &[u32], readings: &Readings) -> Vec<f32> {
        if ids.iter().any(|id| *id as usize >= self.scores.len()) {
            return Vec::new();
        }
        match (&self.selection, &self.memory) {
            (Selection::Weighted(options), Memory::Weighted(memory)) => {
                let by_cost = options.cost && readings.io_bound;
                let (latency, per_byte) = readings.times.fit().unwrap_or((1.0, 0.0));
                let seconds = |bytes: f64| (latency + per_byte * bytes).max(1e-12);
                let usual = seconds(self.mean_bytes);
                let cost = |id: u32| {
                    let bytes = f64::from(self.facts.sizes[id as usize]);
                    if by_cost { (seconds(bytes) / usual) as f32 } else { 1.0 }
                };
                let bounds = options.bounds(self.norm, self.facts.epochs);
                let mut wanted = weighted::wanted_of(memory, bounds, &self.scores, ids, cost);
                let probed = wanted.iter_mut().zip(ids).filter(|(_, id)| self.probe.has(**id as usize));
                probed.for_each(|(wanted, _)| *wanted = 1.0);
                wanted
            }
            _ => Vec::new(),
        }
    }

    fn losses(&self) -> Vec<f32> {
        let known = self.scores.loss.iter().zip(&self.scores.seen).filter(|(_, seen)| **seen > 0);
        let most = known.map(|(loss, _)| *loss).filter(|loss| loss.is_finite()).fold(f32::NAN, f32::max);
        let unknown = if most.is_nan() { 1.0 } else { most };
        let one = |(&loss, &seen): (&f32, &u32)| if seen > 0 && loss.is_finite() { loss } else { unknown };
        self.scores.loss.iter().zip(&self.scores.seen).map(one).collect()
    }

    fn wanted(&self, readings: &Readings) -> Vec<f32> {
        let samples = self.scores.len();
        let all = || vec![1.0; samples];
        let before = self.chosen.as_ref().map(|chosen| chosen.epoch);
        let epoch = before.map_or(0, |epoch| epoch + 1);
        if self.scores.seen.iter().all(|&seen| seen == 0) {
            return all(); // nothing is known, or nobody tells: everything is trained
        }
        let (facts, scores, probe) = (&self.facts, &self.scores, &self.probe);
        // Whether the guard will ask for everything shows only when the epoch is over.
        let context = Context { facts, scores, epoch, before, readings, probe, guard: "", norm: self.norm };
        match (&self.selection, &self.memory) {
            (Selection::Bucket(options), Memory::Bucket(memory)) => {
                if context.whole(options.warmup, options.full_share).is_some() {
                    return all();
                }
                // Who goes to rest and who is recalled follows from the scores: decide it on a copy.
                let mut memory = memory.clone();
                let options = probe.raised(options);
                bucket::pick(&options, &mut memory, &context);
                // The earliest recall after that is when the accuracy has not grown for long enough.
                let until = options.stagnation.saturating_sub(memory.stagnating).max(1);
                let back = if options.recall { 0.5 * options.recall_share / f64::from(until) } else { 0.0 };
                let resting = if options.soft > 0.0 { 1.0 - options.soft } else { back } as f32;
                memory.resting.iter().map(|&rests| if rests { resting } else { 1.0 }).collect()
            }
            (Selection::Online(options), _) if context.whole(options.warmup, 0.0).is_none() => {
                baselines::online_wanted(options, &context)
            }
            (Selection::ActiveBias(options), Memory::History(history))
                if options.draw && context.whole(options.warmup, 0.0).is_none() =>
            {
                baselines::drawn_wanted(history, samples)
            }
            (Selection::BiggestLoser(options), _) if percentile::is_stale(options, epoch) => {
                self.by_percentile(options.power)
            }
            (Selection::Proxy(options), Memory::Fixed(ids)) => {
                let mut wanted = vec![0.0; samples];
                let pick = baselines::proxy(options, &mut ids.clone(), &context);
                pick.ids.iter().for_each(|&id| wanted[id as usize] = 1.0);
                wanted
            }
            (Selection::Iis(options), _) if !percentile::is_full(options, epoch) => {
                self.by_percentile(options.power)
            }
            (Selection::InfoBatch(options), _)
                if context.whole(options.warmup, options.full_share).is_none() =>
            {
                let (kept, mean) = (1.0 - options.prune as f32, baselines::mean_loss(&context));
                let learned = |id: usize| baselines::infobatch_loss(&context, id) < mean as f32;
                (0..samples).map(|id| if learned(id) { kept } else { 1.0 }).collect()
            }
            (Selection::Weighted(options), Memory::Weighted(memory)) => {
                weighted::wanted(options, memory, &context)
            }
            _ => all(),
        }
    }

    /// The share of losses that is lower, to a power; who is not known is taken for sure.
    fn by_percentile(&self, to_the: f64) -> Vec<f32> {
        let losses = self.losses();
        let mut sorted = losses.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let one = |(&loss, &seen): (&f32, &u32)| {
            let lower = sorted.partition_point(|known| *known < loss);
            if seen == 0 { 1.0 } else { power(lower as f64 / sorted.len() as f64, to_the) as f32 }
        };
        losses.iter().zip(&self.scores.seen).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Norm;
    use super::super::tests::{facts, run, selector};
    use super::*;
    use crate::score::ReadTimes;

    /// The correlation of what was said with what came.
    fn correlation(said: &[f32], came: &[f32]) -> f64 {
        let n = said.len() as f64;
        let mean = |column: &[f32]| column.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let (a, b) = (mean(said), mean(came));
        let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            said.iter().zip(came).map(|(&x, &y)| f(f64::from(x) - a, f64::from(y) - b)).sum()
        };
        sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
    }

    fn came(samples: usize, ids: &[u32]) -> Vec<f32> {
        let mut came = vec![0.0; samples];
        ids.iter().for_each(|&id| came[id as usize] = 1.0);
        came
    }

    #[test]
    fn what_is_said_is_what_comes() {
        // Way, options, least correlation over the epochs that leave something out.
        type Options = &'static [(&'static str, &'static str)];
        let cases: [(&str, Options, f64); 8] = [
            ("bucket", &[("warmup", "1")], 0.99),
            ("bucket", &[("warmup", "1"), ("soft", "0.7")], 0.4),
            ("online", &[], 0.4),
            ("active-bias", &[("draw", "on"), ("warmup", "2")], 0.05),
            ("biggest-loser", &[("staleness", "2"), ("power", "1")], 0.4),
            ("proxy", &[("warmup", "2")], 0.99),
            ("iis", &[("warmup", "1"), ("power", "1")], 0.4),
            ("infobatch", &[], 0.4),
        ];
        for (name, options, least) in cases {
            let mut selector = selector(name, options, facts(vec![0; 3_000], 5, None));
            let readings = Readings::default();
            let mut found = Vec::new();
            for epoch in 0..12 {
                run(&mut selector, epoch..epoch + 1, &readings);
                let wanted = selector.standing(&readings).wanted;
                let next = selector.clone().begin(epoch + 1, &readings).unwrap().ids.clone();
                assert!(wanted.iter().all(|p| (0.0..=1.0).contains(p)), "{name}");
                if next.len() == 3_000 && next.is_sorted_by(|a, b| a < b) {
                    assert!(wanted.iter().all(|p| *p > 0.99), "{name} in epoch {epoch}");
                } else {
                    found.push(correlation(&wanted, &came(3_000, &next)));
                    assert!(found.last().is_some_and(|found| !found.is_nan()), "{name} in epoch {epoch}");
                }
            }
            let mean = found.iter().sum::<f64>() / found.len() as f64;
            assert!(found.len() >= 3 && mean > least, "{name}: {mean:.3} of {found:.3?}");
        }
    }

    #[test]
    fn the_turns_of_weighted_are_known() {
        [Norm::Unknown, Norm::Weighed].into_iter().for_each(turns_are_known);
    }

    fn turns_are_known(norm: Norm) {
        let mut selector = selector("weighted", &[], facts(vec![0; 4_000], 3, Some(40)));
        selector.norm(norm);
        let readings = Readings::default();
        let (mut due, mut kept, mut far, mut far_kept) = (0.0, 0.0, 0.0, 0.0);
        let (mut ahead, mut ahead_kept, mut correlations) = (0.0, 0.0, Vec::new());
        for epoch in 0..30 {
            let after = selector.standing(&readings).wanted;
            let chosen = selector.begin(epoch, &readings).unwrap().ids.clone();
            // Before the epoch's feedback is in, two epochs ahead of what it was learned from.
            let before = selector.standing(&readings).wanted;
            run(&mut selector, epoch..epoch + 1, &readings);
            let (now, next) = (
                came(4_000, &chosen),
                came(4_000, &selector.clone().begin(epoch + 1, &readings).unwrap().ids),
            );
            if chosen.len() < 4_000 {
                correlations.push(correlation(&after, &now));
            }
            for id in (0..4_000).filter(|_| epoch > 3) {
                if after[id] > 0.9 {
                    (due, kept) = (due + 1.0, kept + now[id]);
                } else if after[id] < 0.4 {
                    (far, far_kept) = (far + 1.0, far_kept + now[id]);
                }
                if before[id] > 0.9 {
                    (ahead, ahead_kept) = (ahead + 1.0, ahead_kept + next[id]);
                }
            }
        }
        assert!(kept / due >= 0.99, "{kept} of {due} that were due");
        assert!(far_kept / far < 0.05, "{far_kept} of {far} that were far");
        // This model learns fast: its gradients halve between the forecast and the epoch.
        assert!(ahead_kept / ahead >= 0.7, "{ahead_kept} of {ahead} an epoch ahead");
        let mean = correlations.iter().sum::<f64>() / correlations.len() as f64;
        assert!(mean > 0.8, "{mean}");
    }

    #[test]
    fn a_few_are_told_as_all_are() {
        // With the threshold held, one by one is the same as all at once.
        let readings =
            Readings { io_bound: true, times: ReadTimes { sums: [2.0, 1e3, 1.5, 1.1e3, 1e6] }, steps: 0 };
        let held = [("smoothing", "0.999"), ("wrong_max", "1"), ("cost", "off")];
        for options in [&held[..2], &held] {
            let mut selector = selector("weighted", options, facts(vec![0; 500], 3, None));
            run(&mut selector, 0..1, &readings);
            let sizes = selector.wanted_of(&[7, 9], &readings);
            assert_eq!(sizes.len(), 2);
            run(&mut selector, 1..6, &readings);
            let ids: Vec<u32> = (0..500).rev().collect();
            let mut few = selector.wanted_of(&ids, &readings);
            few.reverse();
            let all = selector.standing(&readings).wanted;
            // A threshold that moves by a thousandth may move a turn.
            let other = few.iter().zip(&all).filter(|(a, b)| (**a - **b).abs() > 1e-2).count();
            assert!(other < 5, "{other} of 500");
            assert!(all.iter().any(|p| *p < 0.5) && all.iter().any(|p| *p > 0.9));
        }
        let selector = selector("iis", &[], facts(vec![0; 3], 5, None));
        assert!(selector.wanted_of(&[0], &readings).is_empty());
    }

    #[test]
    fn scores_are_losses_and_the_unknown_count_most() {
        let mut selector = selector("iis", &[], facts(vec![0; 3], 5, None));
        let readings = Readings::default();
        assert_eq!(selector.standing(&readings), Standing { score: vec![1.0; 3], wanted: vec![1.0; 3] });
        selector.begin(0, &readings).unwrap();
        let said = crate::score::Feedback {
            ids: &[0, 2],
            p_true: &[0.5, f32::NAN],
            p_rival: &[0.5, 0.1],
            loss: &[0.75, 0.2],
            entropy: None,
        };
        selector.feedback(&said).unwrap();
        assert_eq!(selector.standing(&readings).score, [0.75; 3]);
    }
}
