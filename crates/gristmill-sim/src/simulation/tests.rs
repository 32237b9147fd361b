//! Published figures, faults and knobs over whole trainings.

use super::*;
use gristmill_core::exchange::{Choose, Form};
use proptest::prelude::*;

fn partial(fraction: f64) -> Shuffle {
    Shuffle::Held(ExchangeOptions { fraction, form: Form::Derangement, choose: Choose::Uniform })
}

fn setup(samples: u32, ranks: u32, shuffle: Shuffle) -> Setup {
    Setup {
        machine: Machine { ranks, ..Machine::default() },
        load: Load { samples, classes: 10, batch: 8, step_s: 0.01, cpu_s: 1e-3, ..Load::default() },
        knobs: Knobs { shuffle, ..Knobs::default() },
        ..Setup::default()
    }
}

fn epochs(setup: Setup, epochs: usize) -> Vec<EpochCost> {
    let mut simulation = Simulation::new(setup).unwrap();
    (0..epochs).map(|_| simulation.next_epoch().unwrap()).collect()
}

#[test]
fn mixing_as_measured() {
    // Measured with the published form; the other moves one sample in sixteen more.
    for (form, points) in [(Form::Plain, 1.0), (Form::Derangement, 2.5)] {
        for (fraction, after) in
            [(0.1, [0.12, 0.22, 0.47]), (0.3, [0.22, 0.47, 0.83]), (0.9, [0.47, 0.84, 0.995])]
        {
            let options = ExchangeOptions { fraction, form, choose: Choose::Uniform };
            let costs = epochs(setup(3_200, 16, Shuffle::Held(options)), 91);
            for (epochs, expected) in [10, 30, 90].into_iter().zip(after) {
                // What comes in with the last of these epochs is trained in the next.
                let seen = costs[epochs].seen.mean;
                let off = (seen - expected).abs() * 100.0;
                assert!(off < points, "{form:?} {fraction}, {epochs} epochs: {seen} against {expected}");
            }
        }
    }
}

#[test]
fn room_and_traffic_as_published() {
    // 625 samples each, and 187 that come in: 0.0635 % of the data.
    let cost = epochs(setup(1_280_000, 2_048, partial(0.3)), 1).remove(0);
    assert!((cost.held_share * 100.0 - 0.0635).abs() < 1e-4, "{}", cost.held_share);
    // The plain form leaves a sample where it is with a chance of one in all ranks.
    let plain = ExchangeOptions { fraction: 0.5, form: Form::Plain, choose: Choose::Uniform };
    let costs = epochs(setup(3_200, 16, Shuffle::Held(plain)), 20);
    let share = costs.iter().map(|cost| cost.traffic.exchanged as f64 / 3_200.0).sum::<f64>() / 20.0;
    assert!((share - 0.5 * (1.0 - 1.0 / 16.0)).abs() < 0.005, "{share}");
}

#[test]
fn from_a_sorted_partition_the_exchange_makes_slices_alike() {
    let sorted = |shuffle| {
        let mut setup = setup(3_200, 16, shuffle);
        setup.load.labels = Labels::Sorted;
        epochs(setup, 31)
    };
    let (local, mixed) = (sorted(partial(0.0)), sorted(partial(0.3)));
    let excess = |cost: &EpochCost| cost.divergence.excess();
    assert!(excess(&local[0]) > 0.7 && (excess(&local[30]) - excess(&local[0])).abs() < 1e-12);
    assert!(excess(&mixed[0]) > 0.7 && excess(&mixed[30]) < 0.05, "{}", excess(&mixed[30]));
    let global = epochs(setup(3_200, 16, Shuffle::Global), 1);
    assert!(excess(&global[0]) < 0.05);
    assert!((local[30].seen.mean - 1.0 / 16.0).abs() < 1e-12 && local[30].traffic.exchanged == 0);
}

#[test]
fn a_lost_node_costs_time_and_nothing_else() {
    let mut hit = setup(3_200, 16, partial(0.3));
    hit.machine.ranks_per_node = 4;
    let well = epochs(hit.clone(), 3);
    hit.faults = vec![Fault::LostNode { rank: 6, epoch: 1 }];
    let sick = epochs(hit.clone(), 3);
    assert_eq!((sick[0], sick[2]), (well[0], well[2]));
    assert_eq!((sick[1].restarts, sick[1].refilled, well[1].restarts), (1, 800, 0));
    let Machine { timeout_s, restart_s, .. } = hit.machine;
    let more = sick[1].seconds - well[1].seconds;
    assert!(more > timeout_s + restart_s + well[1].seconds / 2.0, "{more}");
    assert!((sick[1].causes.restart_s - more).abs() < 1e-9);
    let same = EpochCost {
        seconds: well[1].seconds,
        causes: well[1].causes,
        restarts: 0,
        refilled: 0,
        traffic: well[1].traffic,
        ..sick[1]
    };
    assert_eq!(same, well[1], "what is trained and exchanged does not change");
    let mut global = hit;
    global.knobs.shuffle = Shuffle::Global;
    let cost = epochs(global, 2).remove(1);
    assert_eq!((cost.restarts, cost.refilled), (1, 0), "who holds nothing loses nothing");
}

#[test]
fn one_rank_has_nobody_to_exchange_with() {
    let one = epochs(setup(100, 1, partial(0.5)), 2);
    assert_eq!((one[1].traffic, one[1].seen.mean), (Traffic::default(), 1.0));
    let few = epochs(setup(16, 8, partial(0.3)), 2);
    assert_eq!(few[1].traffic.exchanged, 0, "a fraction of two samples is none");
}

#[test]
fn from_a_slow_store_holding_slices_is_faster() {
    let mut slow = setup(3_200, 16, Shuffle::Global);
    slow.machine.store.bytes_per_s = 50e6;
    slow.knobs.reads_in_flight = 16;
    let global = epochs(slow.clone(), 1).remove(0);
    slow.knobs.shuffle = partial(0.3);
    let held = epochs(slow, 1).remove(0);
    assert!(global.seconds > 3.0 * held.seconds, "{} {}", global.seconds, held.seconds);
    // 3,200 samples of 110 kB at 50 MB/s.
    assert!((global.seconds / 7.04 - 1.0).abs() < 0.05, "{}", global.seconds);
    assert!(global.causes.store_s > 0.8 * (global.seconds - global.causes.compute_s), "{global:?}");
}

#[test]
fn nonsense_is_refused() {
    let refused = |setup: Setup| Simulation::new(setup).unwrap_err().0;
    assert!(refused(setup(10, 11, partial(0.3))).contains("11 ranks are more than 10 samples"));
    assert!(refused(setup(10, 2, partial(1.5))).contains("1.5"));
    assert!(refused(setup(10, 2, partial(f64::NAN))).contains("NaN"));
    let mut faulty = setup(20, 2, partial(0.3));
    faulty.faults = vec![Fault::LateRank { rank: 2, seconds: 1.0 }];
    assert!(refused(faulty.clone()).contains("ranks are 0 to 1"));
    faulty.faults.clear();
    (faulty.machine.disk.bytes_per_s, faulty.load.bytes) = (1e-9, 1e12);
    assert!(refused(faulty).contains("is not counted"));
    let knobs = Knobs { kept: 0.0, ..Knobs::default() };
    assert!(
        simulate_epoch(&Machine::default(), &Load::default(), &knobs)
            .unwrap_err()
            .to_string()
            .contains("kept 0")
    );
}

proptest! {
    /// Whatever is asked for, all invariants hold, the causes add up, and the same seed gives the same bits.
    #[test]
    fn any_training_is_sound(
        samples in 1_u32..300, ranks in 1_u32..12, fraction in 0.0..=1.0_f64, kept in 0.05..=1.0_f64, all: bool,
        plain: bool, class: bool, sorted: bool, memory: bool, global: bool, batch in 1_u32..20, seed: u64,
    ) {
        prop_assume!(ranks <= samples);
        let options = ExchangeOptions {
            fraction,
            form: if plain { Form::Plain } else { Form::Derangement },
            choose: if class { Choose::Class } else { Choose::Uniform },
        };
        let mut setup = setup(samples, ranks, if global { Shuffle::Global } else { Shuffle::Held(options) });
        setup.knobs.kept = if all { 1.0 } else { kept };
        setup.knobs.hold = if memory { Hold::Memory } else { Hold::Disk };
        setup.load.labels = if sorted { Labels::Sorted } else { Labels::Even };
        setup.load.classes = samples.min(5);
        (setup.load.batch, setup.load.spread, setup.seed) = (batch, 0.5, seed);
        setup.faults = vec![Fault::LostNode { rank: ranks - 1, epoch: 1 }];
        let (mut one, mut two) = (Simulation::new(setup.clone()).unwrap(), Simulation::new(setup).unwrap());
        for _ in 0..4 {
            let cost = match one.next_epoch() {
                Ok(cost) => cost,
                Err(trouble) => return Err(TestCaseError::fail(trouble.to_string())),
            };
            prop_assert_eq!(Ok(cost), two.next_epoch());
            let causes: f64 = cost.causes.named().iter().map(|(_, seconds)| seconds).sum();
            prop_assert!((causes - cost.seconds).abs() < 1e-6 * cost.seconds.max(1.0), "{:?}", cost);
            prop_assert!(cost.held_share <= 2.0 && cost.seen.least <= cost.seen.mean && cost.seen.most <= 1.0);
        }
    }
}
