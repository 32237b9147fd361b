//! The published ways that need little: online batch selection, active bias, proxy, `InfoBatch`.

use super::options::{ActiveBias, InfoBatch, Online, Proxy};
use super::percentile::level;
use super::{Context, Pick};
use crate::math::{log2, power};
use crate::score::Scores;

/// The loss that `InfoBatch` gives a sample it knows nothing about: everything is kept at first.
const UNSEEN_LOSS: f32 = 3.0;

fn loss_or(scores: &Scores, id: usize, unseen: f32) -> f32 {
    if scores.seen[id] == 0 { unseen } else { scores.loss[id] }
}

/// Online batch selection (Loshchilov and Hutter 2016): drawn with replacement, by the rank of the loss.
pub(super) fn online(options: &Online, context: &Context<'_>) -> Pick {
    if let Some(whole) = context.whole(options.warmup, 0.0) {
        return whole;
    }
    let samples = context.samples();
    let ranked = by_loss(context);
    let pressure = pressure(options, context);
    let mut coins = context.coins();
    let draws = draws(options, samples);
    let rank_of = ranks(pressure, samples);
    // A byte each, so that counting at random places stays near the processor. It is enough: there are at most as many draws
    // as samples, and by the largest pressure the first of many is drawn 21 times.
    let mut of_rank = vec![0_u8; samples];
    // Drawn in groups: counting waits for memory, and waits overlap where nothing else is between them.
    let mut group = [0_usize; 1_024];
    for first in (0..draws).step_by(group.len()) {
        let group = &mut group[..(draws - first).min(1_024)];
        group.iter_mut().for_each(|rank| *rank = rank_of(coins.unit()));
        group.iter().for_each(|&rank| of_rank[rank] = of_rank[rank].saturating_add(1));
    }
    let mut times = vec![0_u32; samples];
    ranked.iter().zip(of_rank).for_each(|(&key, drawn)| times[key as u32 as usize] = drawn.into());
    let ids = repeated(&times);
    let reason = format!("drawn by the rank of the loss, the first {pressure:.0} times as often as the last");
    Pick { ids, reason, ..Pick::default() }
}

/// Loss and id in one number, so that sorting looks nowhere else: the largest loss first, then the smallest id.
fn by_loss(context: &Context<'_>) -> Vec<u64> {
    let one = |id: usize| u64::from(!level(loss_or(context.scores, id, f32::INFINITY))) << 32 | id as u64;
    let mut ranked: Vec<u64> = (0..context.samples()).map(one).collect();
    ranked.sort_unstable();
    ranked
}

fn pressure(options: &Online, context: &Context<'_>) -> f64 {
    let through =
        context.facts.epochs.map_or(0.0, |epochs| context.epoch as f64 / f64::from(epochs)).min(1.0);
    options.pressure * power(options.pressure_end / options.pressure, through)
}

fn draws(options: &Online, samples: usize) -> usize {
    ((samples as f64 * options.share) as usize).max(1)
}

/// How likely each sample is drawn at least once in this epoch.
pub(super) fn online_wanted(options: &Online, context: &Context<'_>) -> Vec<f32> {
    let samples = context.samples();
    let (pressure, draws) = (pressure(options, context), draws(options, samples));
    let mut wanted = vec![0.0; samples];
    for (rank, key) in by_loss(context).into_iter().enumerate() {
        wanted[key as u32 as usize] = once(rank_chance(rank, pressure, samples), draws);
    }
    wanted
}

/// The chance of being drawn at least once, for the chance of each draw.
fn once(chance: f64, draws: usize) -> f32 {
    (1.0 - power(1.0 - chance.clamp(0.0, 1.0), draws as f64)) as f32
}

/// Each id as often as it was drawn, in ascending order.
fn repeated(times: &[u32]) -> Vec<u32> {
    let each = times.iter().enumerate();
    each.flat_map(|(id, &times)| std::iter::repeat_n(id as u32, times as usize)).collect()
}

/// The chance of rank `i` (from 0) of `n`: each is the same factor less likely than the one before.
pub(super) fn rank_chance(i: usize, pressure: f64, n: usize) -> f64 {
    if pressure <= 1.0 + 1e-9 {
        return 1.0 / n as f64;
    }
    let below = |k: usize| (1.0 - power(pressure, -(k as f64) / n as f64)) / (1.0 - 1.0 / pressure);
    below(i + 1) - below(i)
}

/// Gives the rank whose piece of the cumulative distribution holds `u`: the sum is geometric, so it can be inverted.
fn ranks(pressure: f64, n: usize) -> impl Fn(f64) -> usize {
    let even = pressure <= 1.0 + 1e-9;
    let (drawn, per_log) = (1.0 - 1.0 / pressure, -(n as f64) / log2(pressure));
    move |u| {
        let rank = if even { u * n as f64 } else { log2(1.0 - u * drawn) * per_log };
        (rank as usize).min(n - 1)
    }
}

/// How each sample's probability has varied: count, mean and sum of squared differences (Welford).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct History {
    pub(super) visits: Vec<u32>,
    pub(super) mean: Vec<f32>,
    pub(super) squares: Vec<f32>,
}

impl History {
    pub(super) fn new(samples: usize) -> History {
        History { visits: vec![0; samples], mean: vec![0.0; samples], squares: vec![0.0; samples] }
    }

    /// Adds one visit of a sample.
    pub(super) fn visit(&mut self, id: u32, p_true: f32) {
        let id = id as usize;
        self.visits[id] += 1;
        let away = p_true - self.mean[id];
        self.mean[id] += away / self.visits[id] as f32;
        self.squares[id] += away * (p_true - self.mean[id]);
    }

    /// The deviation of a sample's probability, with the doubt about it; `None` before the second visit.
    pub(super) fn deviation(&self, id: usize) -> Option<f64> {
        let visits = f64::from(self.visits[id]);
        let variance = f64::from(self.squares[id]) / visits;
        (self.visits[id] >= 2).then(|| (variance + variance * variance / (visits - 1.0)).max(0.0).sqrt())
    }
}

/// Active bias (Chang 2017): weights, or chances, by how much the prediction varies.
pub(super) fn active_bias(options: &ActiveBias, history: &History, context: &Context<'_>) -> Pick {
    if let Some(whole) = context.whole(options.warmup, 0.0) {
        return whole;
    }
    let samples = context.samples();
    let Some(weights) = variation(history, samples) else {
        return Pick::all(samples, "no prediction has varied yet");
    };
    if !options.draw {
        let all = Pick::all(samples, "weighted by how much the prediction varies");
        return Pick { weights, ..all };
    }
    let mut sums: Vec<f64> = Vec::with_capacity(samples);
    let total = weights.iter().fold(0.0, |sum, &weight| {
        sums.push(sum + f64::from(weight));
        sum + f64::from(weight)
    });
    let mut coins = context.coins();
    let one = |u: f64| sums.partition_point(|&below| below <= u * total).min(samples - 1) as u32;
    let mut times = vec![0_u32; samples];
    (0..samples).for_each(|_| times[one(coins.unit()) as usize] += 1);
    Pick {
        ids: repeated(&times),
        reason: "drawn by how much the prediction varies".into(),
        ..Pick::default()
    }
}

/// How much each prediction varies, beside the mean of all; none before one has.
fn variation(history: &History, samples: usize) -> Option<Vec<f32>> {
    let known: Vec<Option<f64>> = (0..samples).map(|id| history.deviation(id)).collect();
    let (sum, count) = known.iter().flatten().fold((0.0, 0_u32), |(sum, count), s| (sum + s, count + 1));
    let mean = sum / f64::from(count.max(1));
    // A smoothing of the mean itself: the least certain weigh more, and none nothing.
    let weight = |s: &Option<f64>| s.map_or(1.0, |s| ((s + mean) / (2.0 * mean)) as f32);
    (count > 0 && mean > 0.0).then(|| known.iter().map(weight).collect())
}

/// How likely each sample is drawn at least once, where the variation is the chance.
pub(super) fn drawn_wanted(history: &History, samples: usize) -> Vec<f32> {
    let weights = variation(history, samples).unwrap_or_else(|| vec![1.0; samples]);
    let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    weights.iter().map(|&weight| once(f64::from(weight) / total, samples)).collect()
}

/// Selection by proxy (Coleman 2020): once the small model is trained, the share it was least sure of, for good.
pub(super) fn proxy(options: &Proxy, fixed: &mut Vec<u32>, context: &Context<'_>) -> Pick {
    let samples = context.samples();
    if context.epoch < options.epochs(context.facts.epochs).into() {
        return Pick::all(samples, "a small model is trained on everything first");
    }
    if fixed.is_empty() {
        let scores = context.scores;
        // 1 - the largest probability, whichever label it was for; what was never seen comes first.
        let doubt = |id: u32| {
            let id = id as usize;
            let p_rival = scores.margin[id] - 1.0 + scores.p_true[id];
            if scores.seen[id] == 0 { 2.0 } else { 1.0 - scores.p_true[id].max(p_rival) }
        };
        let most = ((samples as f64 * options.share) as usize).clamp(1, samples);
        let mut ids: Vec<u32> = (0..samples as u32).collect();
        let by_doubt = |a: &u32, b: &u32| doubt(*b).total_cmp(&doubt(*a)).then(a.cmp(b));
        if most < samples {
            ids.select_nth_unstable_by(most, by_doubt);
            ids.truncate(most);
        }
        ids.sort_unstable();
        *fixed = ids;
    }
    let reason = format!("the {:.0} % that the small model was least sure of", 100.0 * options.share);
    Pick { ids: fixed.clone(), reason, ..Pick::default() }
}

/// The loss that `InfoBatch` goes by.
pub(super) fn infobatch_loss(context: &Context<'_>, id: usize) -> f32 {
    loss_or(context.scores, id, UNSEEN_LOSS)
}

/// The mean loss of all samples.
pub(super) fn mean_loss(context: &Context<'_>) -> f64 {
    let samples = context.samples();
    (0..samples).map(|id| f64::from(infobatch_loss(context, id))).sum::<f64>() / samples as f64
}

/// `InfoBatch` (Qin 2024): a random share of the samples below the mean loss is skipped, the others weigh more.
pub(super) fn infobatch(options: &InfoBatch, context: &Context<'_>) -> Pick {
    if let Some(whole) = context.whole(options.warmup, options.full_share) {
        return whole;
    }
    let samples = context.samples();
    let loss = |id: usize| infobatch_loss(context, id);
    let mean = mean_loss(context);
    // Compared in the precision the losses have: a loss that is the mean is not below it.
    let skippable = |id: usize| loss(id) < mean as f32 && !context.probe.has(id);
    let mut learned: Vec<u32> = (0..samples as u32).filter(|&id| skippable(id as usize)).collect();
    // A random part of them in front: that many steps of a shuffle.
    let keep = (learned.len() as f64 * (1.0 - options.prune)).round() as usize;
    let keep = keep.clamp(usize::from(!learned.is_empty()), learned.len());
    let mut coins = context.coins();
    for i in 0..keep {
        let j = i + coins.below((learned.len() - i) as u64) as usize;
        learned.swap(i, j);
    }
    // What is kept carries the weight of all of them, so the sum of weights is the number of samples.
    let weight = learned.len() as f32 / keep.max(1) as f32;
    let mut skipped = vec![false; samples];
    learned[keep..].iter().for_each(|&id| skipped[id as usize] = true);
    let mut carries = vec![false; samples];
    learned[..keep].iter().for_each(|&id| carries[id as usize] = true);
    let ids: Vec<u32> = (0..samples as u32).filter(|&id| !skipped[id as usize]).collect();
    let weights = ids.iter().map(|&id| if carries[id as usize] { weight } else { 1.0 }).collect();
    let reason = format!("{} of the {} below the mean loss are skipped", learned.len() - keep, learned.len());
    Pick { ids, weights, threshold: Some(mean), reason, ..Pick::default() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{facts, selector, train};
    use super::super::{Memory, Readings, Selector};

    #[test]
    fn who_fills_up_a_last_batch_is_visited_once_and_who_is_drawn_twice_twice() {
        let begin =
            |draw| selector("active-bias", &[("warmup", "2"), ("draw", draw)], facts(vec![0; 50], 1, None));
        let visits = |selector: &Selector| {
            let Memory::History(history) = &selector.memory else { panic!("it has a history") };
            (history.visits.clone(), history.mean.clone())
        };
        for draw in ["off", "on"] {
            let (mut padded, mut plain) = (begin(draw), begin(draw));
            for epoch in 0..2 {
                for selector in [&mut padded, &mut plain] {
                    let ids = selector.begin(epoch, &Readings::default()).unwrap().ids.clone();
                    train(selector, &ids, epoch);
                }
                train(&mut padded, &[3, 7], epoch + 5);
            }
            assert_eq!(visits(&padded), visits(&plain));
        }
        let mut selector = begin("on");
        for epoch in 0..3 {
            let (before, _) = visits(&selector);
            let ids = selector.begin(epoch, &Readings::default()).unwrap().ids.clone();
            train(&mut selector, &ids, epoch);
            let times: Vec<u32> =
                (0..50).map(|id| ids.iter().filter(|&&other| other == id).count() as u32).collect();
            let grown =
                visits(&selector).0.iter().zip(&before).map(|(now, before)| now - before).collect::<Vec<_>>();
            assert_eq!(grown, times);
            assert!(epoch < 2 || times.iter().any(|&times| times > 1), "some are drawn more than once");
        }
    }
}
