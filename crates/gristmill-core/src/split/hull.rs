//! Our own decision: the mix of forms that makes the epoch shortest.
//!
//! Put a price on a second of the link, of the upstream cores and of the local ones, and every sample takes its cheapest
//! form: a vertex of the lower convex hull of its candidates. Sweeping the price of the upstream cores from infinity
//! down adds hull segments in order of incremental efficiency, as the greedy rule does; with three prices the choice
//! also sees that a cut sample is decoded faster here, and which resource is scarce may change on the way.
//!
//! Each price vector gives one corner of what is attainable, in one pass over the samples. A small zero-sum game
//! ([`game`]) says which mix of the corners found so far is best and which prices to try next; the value at those
//! prices is a lower bound, so it is known how far from the optimum we are. Prices are found on an even sample of the
//! candidates and then settled on all of them. Last, the mix is rounded to whole samples and polished.
//!
//! When the accelerator will be the limit, upstream seconds are made dearer until the rest keeps up with it with something
//! to spare: no core upstream works for nothing.

mod game;

use super::model::{Candidates, Entry, Load, Resource, Resources};
use super::policy;
use super::{Roles, Stop};
use game::{Play, Point, dot, play};

/// Prices are first sought on about so many samples.
const SKETCH: usize = 16_384;
/// How near the bound a mix must come, as a share.
const TOLERANCE: f64 = 2e-4;
/// Passes over the sketch, and over everything, to settle prices.
const ROUNDS: (usize, usize) = (40, 8);
/// The share of the accelerator's time that the rest aims at: batches are not equally hard, and cores that are busy all
/// of the time make them late.
const KEEP_UP: f64 = 0.75;
/// Up to so many samples, pairs are tried as well: among more, one sample hardly matters.
const PAIRS_MAX: usize = 256;
/// Of so few samples, what others decide is polished as well.
const HANDFUL: usize = 24;
/// Passes over the samples to polish a decision.
const POLISH_MAX: usize = 8;

/// The candidates, or an even sample of them, with what a unit of load takes of each resource.
struct View<'a> {
    candidates: &'a Candidates,
    step: usize,
    /// Seconds per byte, and per CPU second upstream and here.
    rates: Point,
}

impl View<'_> {
    /// Seconds per resource of a load.
    fn point(&self, load: Load) -> Point {
        [load.bytes * self.rates[0], load.upstream_s * self.rates[1], load.local_s * self.rates[2]]
    }

    /// What a unit of load costs at these prices of a second.
    fn weights(&self, prices: Point) -> Point {
        std::array::from_fn(|row| prices[row] * self.rates[row])
    }

    /// The corner at these prices of a second.
    fn corner(&self, prices: Point) -> Point {
        let weights = self.weights(prices);
        let mut sum = Load::default();
        for (_, miss, entries) in self.candidates.every(self.step) {
            sum.add(Load::of(miss, &entries[0], &entries[cheapest(entries, weights)]));
        }
        self.point(sum)
    }
}

/// The cheapest form, the earliest of equals.
#[inline]
fn cheapest(entries: &[Entry], weights: Point) -> usize {
    let mut best = (0, f64::INFINITY);
    for (index, entry) in entries.iter().enumerate() {
        let cost = weights[0] * f64::from(entry.bytes)
            + weights[1] * f64::from(entry.upstream_s)
            + weights[2] * f64::from(entry.local_s);
        if cost < best.1 {
            best = (index, cost);
        }
    }
    best.0
}

/// The corners found so far, with the prices that lead there.
#[derive(Default)]
struct Corners {
    prices: Vec<Point>,
    points: Vec<Point>,
}

impl Corners {
    fn add(&mut self, view: &View, prices: Point) {
        self.prices.push(prices);
        self.points.push(view.corner(prices));
    }

    /// Adds corners until the best mix of them is near the optimum, upstream seconds counting `dearth` times.
    fn settle(&mut self, view: &View, dearth: f64, rounds: usize) -> Play {
        let mut scaled: Vec<Point> = self.points.iter().map(|&[a, b, c]| [a, dearth * b, c]).collect();
        let mut bound: f64 = 0.0;
        for _ in 0..rounds {
            let mix = play(&scaled);
            let prices = [mix.prices[0], dearth * mix.prices[1], mix.prices[2]];
            let [link, upstream, local] = view.corner(prices);
            let corner = [link, dearth * upstream, local];
            bound = bound.max(dot(mix.prices, corner));
            self.prices.push(prices);
            self.points.push([link, upstream, local]);
            scaled.push(corner);
            if mix.value - bound <= TOLERANCE * mix.value {
                break;
            }
        }
        play(&scaled)
    }
}

/// One index into the candidates per sample; no slower than any other policy.
pub(super) fn best(candidates: &Candidates, resources: &Resources, roles: Roles) -> Vec<u8> {
    let samples = candidates.len();
    let epoch_s = |picks: &[u8]| {
        let load = Load::total(candidates, |sample| picks[sample] as usize);
        load.times(resources, samples).epoch_s()
    };
    let raw = vec![0; samples];
    let before = Load::total(candidates, |_| 0).times(resources, samples);
    if before.bottleneck() == Resource::Accelerator {
        return raw;
    }
    let mut picks = mixed(candidates, resources, before.accelerator_s);
    polish(candidates, resources, &mut picks);
    let mut best_s = epoch_s(&picks);
    // What others decide is a candidate as well: on a handful of samples rounding may cost more than the mix gains.
    let others: [&dyn Fn() -> Vec<u8>; 5] = [
        &|| raw.clone(),
        &|| policy::whole(candidates, roles.finished),
        &|| policy::whole(candidates, roles.cropped),
        &|| policy::fastflow(candidates, resources, roles),
        &|| policy::sophon(candidates, resources, roles, Stop::Published),
    ];
    for decide in others {
        let mut rival = decide();
        if samples <= HANDFUL {
            // Another way up may lead higher.
            polish(candidates, resources, &mut rival);
        }
        let rival_s = epoch_s(&rival);
        if rival_s < best_s {
            (picks, best_s) = (rival, rival_s);
        }
    }
    picks
}

/// The best mix of corners, rounded to whole samples.
fn mixed(candidates: &Candidates, resources: &Resources, accelerator_s: f64) -> Vec<u8> {
    let samples = candidates.len();
    let rates =
        [1.0 / resources.link_bytes_per_s, 1.0 / resources.upstream_cores, 1.0 / resources.local_cores];
    let sketch = View { candidates, step: samples.div_ceil(SKETCH).max(1), rates };
    let seen = samples.div_ceil(sketch.step);
    let mut corners = Corners::default();
    for prices in [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.4, 0.3, 0.3]] {
        corners.add(&sketch, prices);
    }
    let target_s = KEEP_UP * accelerator_s * seen as f64 / samples as f64;
    let (mut dearth, mut mix) = dearest(&mut corners, &sketch, target_s);
    if sketch.step > 1 {
        let all = View { candidates, step: 1, rates };
        let mut settled = Corners::default();
        settled.add(&all, [0.0, 1.0, 0.0]);
        mix.shares.iter().for_each(|&(corner, _)| settled.add(&all, corners.prices[corner]));
        mix = settled.settle(&all, dearth, ROUNDS.1);
        // The sketch may have promised too much.
        while mix.value > accelerator_s && dearth > 1.0 {
            dearth = (dearth * 0.8).max(1.0);
            mix = settled.settle(&all, dearth, ROUNDS.1);
        }
        corners = settled;
    }
    let view = View { candidates, step: 1, rates };
    let shares: Vec<(Point, f64)> =
        mix.shares.iter().map(|&(corner, share)| (view.weights(corners.prices[corner]), share)).collect();
    round(&view, &shares)
}

/// The mix for the shortest epoch; where that is shorter than the target, the one that meets it with the least work
/// upstream. With how much dearer upstream seconds were made for it.
fn dearest(corners: &mut Corners, view: &View, target_s: f64) -> (f64, Play) {
    let mut met = (1.0, corners.settle(view, 1.0, ROUNDS.0));
    if met.1.value >= target_s {
        return met;
    }
    let mut missed = 1.0;
    for _ in 0..16 {
        missed *= 4.0;
        let mix = corners.settle(view, missed, ROUNDS.0);
        if mix.value > target_s {
            break;
        }
        met = (missed, mix);
    }
    for _ in 0..8 {
        let between = (met.0 * missed).sqrt();
        let mix = corners.settle(view, between, ROUNDS.0);
        if mix.value > target_s {
            missed = between;
        } else {
            met = (between, mix);
        }
    }
    met
}

/// Gives every sample one of the mixed corners' forms, so that the sums stay as near the mix as they can.
fn round(view: &View, shares: &[(Point, f64)]) -> Vec<u8> {
    let mut error = [0.0; 3];
    let choose = |(_, miss, entries): (usize, f64, &[Entry])| {
        let first = cheapest(entries, shares[0].0);
        let picks = shares.iter().map(|(weights, share)| (cheapest(entries, *weights), *share));
        if miss == 0.0 || picks.clone().all(|(pick, _)| pick == first) {
            return if miss == 0.0 { 0 } else { first as u8 };
        }
        let point = |pick: usize| view.point(Load::of(miss, &entries[0], &entries[pick]));
        let mut wanted = error;
        for (pick, share) in picks.clone() {
            let point = point(pick);
            (0..3).for_each(|row| wanted[row] -= share * point[row]);
        }
        let mut least = (first, f64::INFINITY, error);
        for (pick, _) in picks {
            let point = point(pick);
            let off: Point = std::array::from_fn(|row| wanted[row] + point[row]);
            if dot(off, off) < least.1 {
                least = (pick, dot(off, off), off);
            }
        }
        error = least.2;
        least.0 as u8
    };
    view.candidates.every(1).map(choose).collect()
}

/// Changes single samples, and pairs of a few, while that shortens the epoch noticeably.
fn polish(candidates: &Candidates, resources: &Resources, picks: &mut [u8]) {
    let samples = candidates.len();
    let mut load = Load::total(candidates, |sample| picks[sample] as usize);
    let epoch_s = |load: Load| load.times(resources, samples).epoch_s();
    let of = |sample: usize, pick: u8| {
        let entries = candidates.of(sample);
        Load::of(candidates.miss(sample), &entries[0], &entries[pick as usize])
    };
    let forms = |sample: usize| {
        let fetched = candidates.miss(sample) > 0.0;
        0..if fetched { candidates.of(sample).len() as u8 } else { 1 }
    };
    for _ in 0..POLISH_MAX {
        let start_s = epoch_s(load);
        let mut best_s = start_s;
        for a in 0..samples {
            for form in forms(a) {
                let next = load.swapped(of(a, picks[a]), of(a, form));
                if epoch_s(next) < best_s {
                    (picks[a], load, best_s) = (form, next, epoch_s(next));
                }
            }
            let partners = if samples <= PAIRS_MAX { 0..a } else { 0..0 };
            for b in partners {
                for (form_a, form_b) in forms(a).flat_map(|x| forms(b).map(move |y| (x, y))) {
                    let next = load.swapped(of(a, picks[a]), of(a, form_a));
                    let next = next.swapped(of(b, picks[b]), of(b, form_b));
                    if epoch_s(next) < best_s {
                        (picks[a], picks[b], load, best_s) = (form_a, form_b, next, epoch_s(next));
                    }
                }
            }
        }
        if best_s >= start_s * (1.0 - TOLERANCE) {
            break;
        }
    }
}
