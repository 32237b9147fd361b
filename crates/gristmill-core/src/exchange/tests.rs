//! The published vectors, and the invariants of an exchange over random worlds.

use super::measure::{Divergence, FIRST_FRACTION, divergence, next_fraction};
use super::steps::destinations;
use super::*;
use crate::plan::{Plan, Shape, Uneven};
use proptest::prelude::*;
use std::collections::BTreeSet;

const PLAIN: Form = Form::Plain;

fn options(fraction: f64) -> ExchangeOptions {
    ExchangeOptions { fraction, form: Form::Derangement, choose: Choose::Uniform }
}

fn dealt(samples: u32, world: u32) -> Owners {
    let held = (0..world).map(|rank| (rank..samples).step_by(world as usize).collect());
    Owners::of(held.collect()).unwrap()
}

#[test]
fn destinations_are_the_published_ones() {
    let steps = |form, epoch| {
        [0, 1, 2]
            .map(|step| destinations(form, &mut Stream::new(42, epoch, Purpose::ExchangeRanks, &[step]), 4))
    };
    assert_eq!(steps(PLAIN, 0), [[0, 1, 3, 2], [0, 3, 2, 1], [3, 0, 1, 2]]);
    assert_eq!(steps(PLAIN, 1), [[1, 3, 0, 2], [1, 3, 2, 0], [0, 2, 3, 1]]);
    assert_eq!(steps(Form::Derangement, 0), [[1, 3, 0, 2], [2, 3, 0, 1], [2, 3, 0, 1]]);
    assert_eq!(steps(Form::Derangement, 1), [[3, 2, 0, 1], [3, 2, 0, 1], [2, 3, 1, 0]]);
}

#[test]
fn the_published_run_of_forty_samples() {
    let mut owners = dealt(40, 4);
    let plain = ExchangeOptions { form: PLAIN, ..options(0.3) };
    for (epoch, sends) in [[1, 2, 2, 3], [2, 3, 2, 3], [1, 3, 3, 3]].into_iter().enumerate() {
        let exchange = owners.exchange(42, epoch as u64, &plain, View::default()).unwrap();
        assert_eq!(exchange.steps(), 3);
        assert_eq!([0, 1, 2, 3].map(|rank| exchange.sends(rank).len()), sends);
        assert_eq!([0, 1, 2, 3].map(|rank| exchange.receives(rank).len()), sends);
        owners.commit(&exchange);
        assert_eq!([0, 1, 2, 3].map(|rank| owners.held(rank).len()), [10; 4]);
        assert_eq!(owners.held_max(0, 0.3), 13);
    }
}

#[test]
fn a_slice_of_two_thousand() {
    let owners = Owners::new(1_280_000, 2_048, 1).unwrap();
    let share = f64::from(owners.held_max(2_047, 0.3)) / 1_280_000.0;
    assert!((share - 0.000_635).abs() < 1e-6, "{share}");
    let exchange = owners.exchange(1, 0, &options(0.3), View::default()).unwrap();
    // 187 of 625 move, to somebody else each time.
    assert_eq!(exchange.all().count(), 187 * 2_048);
}

#[test]
fn the_first_sent_are_the_first_trained_and_the_received_come_last() {
    let mut owners = dealt(40, 4);
    let shape = Shape { world: 4, rank: 2, ..Shape::single(5) };
    let laid = owners.lay_out(7, 3, shape, true, None);
    let plan = Plan::weighted(laid.order, laid.weights, shape).unwrap();
    let exchange = owners.exchange(7, 3, &options(0.3), View::default()).unwrap();
    let first: Vec<u32> = plan.batch(0).map(|id| id.0).take(3).collect();
    assert_eq!(exchange.sends(2).iter().map(|sent| sent.id).collect::<Vec<_>>(), first);
    let received: Vec<u32> = exchange.receives(2).iter().map(|one| one.id).collect();
    owners.commit(&exchange);
    assert_eq!(owners.held(2)[7..], received);
}

#[test]
fn steps_are_spread_over_the_batches() {
    let exchange = dealt(40, 4).exchange(0, 0, &options(0.9), View::default()).unwrap();
    assert_eq!([0, 1, 2, 3].map(|batch| exchange.due(batch, 4)), [2, 4, 6, 9]);
    assert_eq!(exchange.due(0, 1), 9);
    assert_eq!(exchange.due(0, 0), 9, "an epoch without batches has everything due");
    assert_eq!(exchange.due(99, 4), 9);
}

#[test]
fn degenerate_worlds() {
    let alone = Owners::new(10, 1, 0).unwrap();
    for form in [PLAIN, Form::Derangement] {
        let options = ExchangeOptions { form, ..options(1.0) };
        assert_eq!(alone.exchange(0, 0, &options, View::default()).unwrap().all().count(), 0);
    }
    let local = Owners::new(10, 2, 0).unwrap().exchange(0, 0, &options(0.0), View::default()).unwrap();
    assert_eq!((local.steps(), local.sends(0).len()), (0, 0));
    assert!(Owners::new(3, 4, 0).unwrap_err().0.contains("at most 3 ranks"));
    assert!(Owners::new(3, 0, 0).is_err());
    assert!(Owners::of(vec![vec![0, 1], vec![]]).is_err());
    assert!(Owners::of(vec![vec![0, 1], vec![1]]).is_err());
    assert!(Owners::of(vec![vec![0, 1], vec![9]]).is_err());
    for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let refused = alone.exchange(0, 0, &options(fraction), View::default()).unwrap_err();
        assert!(refused.0.contains("from 0"), "{refused}");
    }
    let class = ExchangeOptions { choose: Choose::Class, ..options(0.5) };
    assert!(alone.exchange(0, 0, &class, View::default()).unwrap_err().0.contains("labels for 10"));
    let importance = ExchangeOptions { choose: Choose::Importance, ..options(0.5) };
    assert!(alone.exchange(0, 0, &importance, View::default()).unwrap_err().0.contains("scores"));
    let beyond = View { active: Some(&[3, 10]), ..View::default() };
    assert!(alone.exchange(0, 0, &options(0.5), beyond).is_err());
}

/// The share of the data set that rank 0 has held after some epochs.
fn seen(fraction: f64, epochs: u64) -> f64 {
    let mut owners = Owners::new(3_200, 16, 5).unwrap();
    let mut seen: BTreeSet<u32> = BTreeSet::new();
    for epoch in 0..epochs {
        seen.extend(owners.held(0));
        let exchange = owners.exchange(5, epoch, &options(fraction), View::default()).unwrap();
        owners.commit(&exchange);
    }
    seen.len() as f64 / 3_200.0
}

#[test]
fn samples_mix_as_fast_as_published() {
    let table = [(0.1, [0.12, 0.22, 0.47]), (0.3, [0.22, 0.47, 0.83]), (0.9, [0.47, 0.84, 0.995])];
    for (fraction, shares) in table {
        for (epochs, share) in [10, 30, 90].into_iter().zip(shares) {
            let found = seen(fraction, epochs);
            assert!((found - share).abs() < 0.03, "{fraction} after {epochs}: {found}, published {share}");
        }
    }
}

#[test]
fn important_samples_leave_first() {
    let owners = dealt(1_000, 2);
    let importance: Vec<f32> = (0..1_000).map(|id| if id % 10 < 2 { 20.0 } else { 1.0 }).collect();
    let weighted = ExchangeOptions { choose: Choose::Importance, ..options(0.1) };
    let view = View { importance: &importance, ..View::default() };
    let exchange = owners.exchange(3, 0, &weighted, view).unwrap();
    let important = exchange.all().filter(|(_, _, _, id)| id % 10 < 2).count();
    assert!(important > 70, "{important} of 100 sent are among the fifth that is important");
    assert!(important < 100, "and it is a draw, not a rule");
    let odd = vec![f32::NAN; 1_000];
    let view = View { importance: &odd, ..View::default() };
    assert_eq!(owners.exchange(3, 0, &weighted, view).unwrap().all().count(), 100);
}

#[test]
fn slices_become_alike_sooner_if_they_send_what_they_have_too_much_of() {
    let labels: Vec<u32> = (0..8_000).map(|id| id % 10).collect();
    let importance: Vec<f32> = (0..8_000).map(|id| if id % 7 == 0 { 20.0 } else { 1.0 }).collect();
    let after = |choose, epochs| {
        let mut owners = Owners::sorted(&labels, 16).unwrap();
        for epoch in 0..epochs {
            let view = View { labels: &labels, importance: &importance, ..View::default() };
            let options = ExchangeOptions { choose, ..options(0.2) };
            let exchange = owners.exchange(1, epoch, &options, view).unwrap();
            owners.commit(&exchange);
        }
        divergence(&owners, &labels)
    };
    let [start, class, uniform] =
        [after(Choose::Uniform, 0), after(Choose::Class, 5), after(Choose::Uniform, 5)];
    assert!(start.mean > 0.8, "{start:?}");
    assert!(class.excess() < 0.06, "{class:?}");
    assert!(uniform.excess() > 4.0 * class.excess(), "{uniform:?} against {class:?}");
    // By scores alone the same few travel; balanced, they go first and the slices become alike as by class.
    let [scores, balanced] = [after(Choose::Importance, 5), after(Choose::Balanced, 5)];
    assert!(
        balanced.excess() < 0.06 && scores.excess() > 4.0 * balanced.excess(),
        "{scores:?}, {balanced:?}"
    );
    let owners = Owners::sorted(&labels, 16).unwrap();
    let view = View { labels: &labels, importance: &importance, ..View::default() };
    let sent = |choose| {
        let exchange = owners.exchange(1, 0, &ExchangeOptions { choose, ..options(0.2) }, view).unwrap();
        exchange.all().filter(|(_, _, _, id)| id % 7 == 0).count()
    };
    assert!(sent(Choose::Balanced) > 2 * sent(Choose::Class));
}

#[test]
fn the_fraction_rises_while_slices_are_strangers() {
    let apart = Divergence { mean: 0.6, expected: 0.1 };
    let small = Divergence { mean: 0.6, expected: 0.55 };
    assert_eq!([0.1, 0.3, 0.9, 0.2].map(|f| next_fraction(f, apart)), [0.3, 0.9, 0.9, 0.3]);
    assert!(
        (next_fraction(FIRST_FRACTION, small) - 0.1).abs() < 1e-12,
        "a small slice cannot be like the whole"
    );
    let labels: Vec<u32> = (0..20_000).map(|id| id % 10).collect();
    let even = divergence(&Owners::new(20_000, 500, 3).unwrap(), &labels);
    assert!((even.mean - even.expected).abs() < 0.01, "{even:?}: what chance gives is foreseen");
}

#[test]
fn a_selection_is_evened_out_within_the_fraction() {
    // Rank 0 would train 100 of its 100, rank 3 only 20.
    let owners = dealt(400, 4);
    let active: Vec<u32> = (0..400).filter(|id| id / 4 < [100, 60, 40, 20][*id as usize % 4]).collect();
    let view = View { active: Some(&active), ..View::default() };
    let count = |owners: &Owners| {
        [0, 1, 2, 3]
            .map(|rank| owners.held(rank).iter().filter(|id| active.binary_search(id).is_ok()).count())
    };
    let mut half = owners.clone();
    let exchange = half.exchange(1, 0, &options(0.5), view).unwrap();
    half.commit(&exchange);
    assert_eq!(count(&half), [55; 4]);
    assert!(exchange.balanced() >= 90, "{}", exchange.balanced());
    let mut little = owners.clone();
    little.commit(&little.clone().exchange(1, 0, &options(0.1), view).unwrap());
    assert_eq!(count(&little), [90, 50, 50, 30], "ten steps go as far as they can");
    assert_eq!(count(&owners).iter().sum::<usize>(), count(&little).iter().sum());
}

#[test]
fn saved_owners_are_the_same_and_damaged_ones_are_refused() {
    let mut owners = Owners::new(100, 7, 9).unwrap();
    owners.leave(vec![9, 3]);
    let bytes = owners.to_bytes();
    let again = Owners::from_bytes(&bytes).unwrap();
    assert_eq!((again.digest(), &again), (owners.digest(), &owners));
    assert_ne!(again.digest(), Owners::new(100, 7, 9).unwrap().digest());
    for cut in 0..bytes.len() {
        assert!(Owners::from_bytes(&bytes[..cut]).is_none(), "cut at {cut}");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x81;
        assert!(Owners::from_bytes(&bytes).is_none_or(|other| other != owners), "byte {at}");
    }
}

/// A selection of some of the samples, ascending; a few twice if asked.
fn selection(samples: u32, share: u64, twice: bool, seed: u64) -> Vec<u32> {
    let mut stream = Stream::from_key(seed);
    let mut chosen: Vec<u32> = (0..samples).filter(|_| stream.below(100) < share).collect();
    if twice {
        chosen.extend(chosen.clone().iter().step_by(5));
        chosen.sort_unstable();
    }
    chosen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn invariants(
        world in 1_u32..20, each in 1_u32..30, more in 0_u32..20, fraction in 0.0_f64..=1.0, seed: u64,
        plain: bool, class: bool, share in prop::option::of(0_u64..=100),
    ) {
        let samples = world * each + more % world;
        let labels: Vec<u32> = (0..samples).map(|id| id % 5).collect();
        let form = if plain { Form::Plain } else { Form::Derangement };
        let choose = if class { Choose::Class } else { Choose::Uniform };
        let options = ExchangeOptions { fraction, form, choose };
        let mut owners = Owners::new(samples, world, seed).unwrap();
        let sizes: Vec<usize> = (0..world).map(|rank| owners.held(rank).len()).collect();
        prop_assert!(sizes.iter().all(|&n| n == each as usize || n == each as usize + 1));
        for epoch in 0..4 {
            let active = share.map(|share| selection(samples, share, false, seed ^ epoch));
            let view = View { active: active.as_deref(), labels: &labels, ..View::default() };
            let exchange = owners.exchange(seed, epoch, &options, view).unwrap();
            prop_assert_eq!(&exchange, &owners.clone().exchange(seed, epoch, &options, view).unwrap());
            for step in 0..exchange.steps() {
                let moves: Vec<_> = exchange.all().filter(|one| one.0 == step).collect();
                let to: BTreeSet<u32> = moves.iter().map(|one| one.2).collect();
                prop_assert_eq!(to.len(), moves.len(), "a step is a bijection");
                if share.is_none() && form == Form::Derangement && world > 1 {
                    prop_assert_eq!(moves.len(), world as usize, "everybody sends in every step");
                }
            }
            for rank in 0..world {
                let (sent, received) = (exchange.sends(rank), exchange.receives(rank));
                prop_assert_eq!(sent.len(), received.len());
                prop_assert!(sent.iter().all(|one| owners.held(rank).contains(&one.id) && one.peer != rank));
                prop_assert!(received.iter().all(|one| owners.held(one.peer).contains(&one.id)));
                let peak = owners.held(rank).len() + received.len();
                prop_assert!(peak as u32 <= owners.held_max(rank, fraction));
                if share.is_none() && form == Form::Derangement && world > 1 {
                    prop_assert_eq!(sent.len() as u32, (fraction * f64::from(each)).floor() as u32);
                }
            }
            owners.commit(&exchange);
            let now: Vec<usize> = (0..world).map(|rank| owners.held(rank).len()).collect();
            prop_assert_eq!(&now, &sizes);
            let mut all: Vec<u32> = (0..world).flat_map(|rank| owners.held(rank).to_vec()).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..samples).collect::<Vec<_>>(), "complete and disjoint");
        }
    }

    #[test]
    fn every_rank_trains_what_it_holds_and_all_train_equally_much(
        world in 1_u32..12, each in 1_u32..30, more in 0_u32..12, batch in 1_u32..9, seed: u64, pad: bool,
        drop_last: bool, shuffle: bool, share in prop::option::of(0_u64..=100), twice: bool, weigh: bool,
    ) {
        let samples = world * each + more % world;
        let owners = Owners::new(samples, world, seed).unwrap();
        let uneven = if pad { Uneven::Pad } else { Uneven::Drop };
        let chosen = share.map(|share| selection(samples, share, twice, seed));
        let weights: Vec<f32> =
            chosen.iter().flatten().filter(|_| weigh).map(|&id| id as f32 + 0.5).collect();
        let of = |rank| Shape { batch, rank, world, uneven, drop_last };
        let always = selection(samples, share.map_or(0, |share| share / 3), false, !seed);
        let always: Vec<u32> =
            always.into_iter().filter(|id| chosen.iter().flatten().any(|chosen| chosen == id)).collect();
        let given = chosen.as_deref().map(|ids| Active { ids, weights: &weights, always: &always });
        let laid = owners.lay_out(seed, 1, of(0), shuffle, given);
        for &id in laid.left.iter().filter(|id| always.contains(id)) {
            let rank = (0..world).find(|&rank| owners.held(rank).contains(&id)).unwrap();
            let trains = laid.order.iter().filter(|id| owners.held(rank).contains(id));
            prop_assert!(trains.into_iter().all(|id| always.contains(id)), "{id} was left out before others");
        }
        let mut trained = vec![0_u32; samples as usize];
        for rank in 0..world {
            let plan = Plan::weighted(laid.order.clone(), laid.weights.clone(), of(rank)).unwrap();
            for b in 0..plan.batches() {
                for (slot, id) in plan.batch(b).enumerate() {
                    prop_assert!(owners.held(rank).contains(&id.0), "rank {rank} holds what it trains");
                    trained[id.0 as usize] += 1;
                    let weight = plan.weight(b, slot);
                    prop_assert!(weights.is_empty() || weight == id.0 as f32 + 0.5 || weight == 1.0);
                }
            }
        }
        if drop_last {
            return Ok(());
        }
        let wanted = chosen.unwrap_or_else(|| (0..samples).collect());
        let mut missing = wanted.clone();
        for (id, &times) in trained.iter().enumerate() {
            for _ in 0..times {
                if let Ok(at) = missing.binary_search(&(id as u32)) {
                    missing.remove(at);
                }
            }
        }
        let mut left = laid.left.clone();
        left.sort_unstable();
        prop_assert!(missing.len() <= left.len(), "{:?} not trained, {:?} left", missing, left);
        prop_assert_eq!(trained.iter().sum::<u32>() as usize, wanted.len() - left.len() + laid.again as usize);
        if share.is_none() {
            prop_assert!(laid.again < world && laid.left.len() < world as usize);
            let exact = if pad { left.is_empty() } else { laid.again == 0 };
            prop_assert!(exact);
        }
    }

    #[test]
    fn what_was_left_out_goes_first(samples in 20_u32..200, world in 2_u32..6, seed: u64) {
        let mut owners = Owners::new(samples, world, seed).unwrap();
        let chosen: Vec<u32> = owners.held(0).iter().copied().chain(owners.held(1)[..1].to_vec()).collect();
        let mut chosen = chosen;
        chosen.sort_unstable();
        let shape = Shape { world, ..Shape::single(4) };
        let laid = owners.lay_out(seed, 0, shape, true, Some(Active { ids: &chosen, ..Active::default() }));
        prop_assert!(!laid.left.is_empty());
        let left = laid.left.clone();
        owners.leave(laid.left);
        let next = owners.lay_out(seed, 1, shape, true, Some(Active { ids: &chosen, ..Active::default() }));
        let plan = Plan::weighted(next.order, next.weights, shape).unwrap();
        let first: Vec<u32> = (0..plan.batches()).flat_map(|b| plan.batch(b).map(|id| id.0).collect::<Vec<_>>())
            .take(left.len()).collect();
        prop_assert!(first.iter().all(|id| left.contains(id)), "{:?} of {:?}", first, left);
    }
}
