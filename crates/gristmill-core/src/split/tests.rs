//! The conformance vector, brute force on small instances, and a bound on larger ones.

use super::model::Load;
use super::*;
use crate::rng::Stream;
use proptest::prelude::*;

const RAW: u8 = 0;
const CUT: u8 = 1;
const CROPPED: u8 = 3;
const PACKED: u8 = 4;
const FINISHED: u8 = 6;
const ROLES: Roles = Roles { decoded: 2, cropped: CROPPED, finished: FINISHED };

fn choice(stage: u8, bytes: f64, upstream_s: f64, local_s: f64) -> Choice {
    Choice { stage, bytes, upstream_s, local_s }
}

fn candidates<'a>(samples: impl IntoIterator<Item = &'a Vec<Choice>>) -> Candidates {
    let mut candidates = Candidates::new();
    samples.into_iter().for_each(|choices| candidates.push(1.0, choices));
    candidates
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * b.abs().max(1e-6)
}

/// The published example in bytes and seconds: 1 KB/ms is 1e6 bytes per second. Ops and training take 20 ms either way.
fn example() -> Candidates {
    let rows = [(400.0, 15.0), (300.0, 6.0), (100.0, 9.0), (160.0, 8.0)];
    let samples = rows.map(|(raw_kb, to_crop_ms)| {
        vec![
            choice(RAW, raw_kb * 1e3, 0.0, 0.005),
            choice(CROPPED, 150e3, to_crop_ms * 1e-3, 0.005),
            choice(FINISHED, 600e3, (to_crop_ms + 1.0) * 1e-3, 0.0),
        ]
    });
    candidates(&samples)
}

fn example_resources(upstream_cores: f64) -> Resources {
    let accelerator_samples_per_s = 4.0 / 0.020;
    Resources { link_bytes_per_s: 10e6, upstream_cores, local_cores: 1.0, accelerator_samples_per_s }
}

#[test]
fn the_conformance_vector() {
    let cases: [(f64, Stop, [u8; 4], f64, f64); 4] = [
        (1.0, Stop::Published, [3, 3, 0, 3], 55e-3, 29e-3),
        (0.3, Stop::Published, [3, 3, 0, 0], 56e-3, 70e-3),
        (1.0, Stop::PublicCode, [3, 3, 0, 3], 55e-3, 29e-3),
        (0.3, Stop::PublicCode, [0, 3, 0, 0], 81e-3, 20e-3),
    ];
    for (cores, stop, stages, link_s, upstream_s) in cases {
        let decided = sophon(&example(), &example_resources(cores), ROLES, stop).unwrap();
        assert_eq!(decided.stages, stages, "{cores} {stop:?}");
        assert!(near(decided.before.link_s, 96e-3) && decided.before.upstream_s == 0.0);
        assert!(near(decided.after.link_s, link_s), "{:?}", decided.after);
        assert!(near(decided.after.upstream_s, upstream_s), "{:?}", decided.after);
        assert!(near(decided.after.local_s, 20e-3) && near(decided.after.accelerator_s, 20e-3));
    }
}

#[test]
fn the_conformance_vector_step_by_step() {
    let example = example();
    let order = policy::savings(&example, ROLES);
    let order: Vec<(u32, f64)> = order.iter().map(|saving| (saving.sample, saving.efficiency)).collect();
    let expected = [(1, 25e6), (0, 250e6 / 15.0), (3, 1.25e6)];
    assert_eq!(order.len(), expected.len(), "sample 2 would grow");
    for ((sample, efficiency), (id, wanted)) in order.into_iter().zip(expected) {
        assert!(sample == id && near(efficiency, wanted), "{sample} {efficiency}");
    }
    // Seconds of link and upstream after 0, 1, 2 and 3 of them.
    for (moved, link_s, upstream_s) in
        [(0, 96e-3, 0.0), (1, 81e-3, 6e-3), (2, 56e-3, 21e-3), (3, 55e-3, 29e-3)]
    {
        let is_moved = |sample: usize| expected[..moved].iter().any(|(id, _)| *id as usize == sample);
        let load = Load::total(&example, |sample| usize::from(is_moved(sample)));
        let times = load.times(&example_resources(1.0), 4);
        assert!(near(times.link_s, link_s) && near(times.upstream_s, upstream_s), "{moved} {times:?}");
    }
}

#[test]
fn a_crop_helps_exactly_above_its_own_size() {
    let sample = |raw: f64| {
        let ops = [(2, 2e6, 0.004), (CROPPED, 150_528.0, 0.005), (FINISHED, 602_112.0, 0.006)];
        let ops = ops.map(|(stage, bytes, seconds)| choice(stage, bytes, seconds, 0.006 - seconds));
        [vec![choice(RAW, raw, 0.0, 0.006)], ops.to_vec()].concat()
    };
    let raws = [50_000.0, 150_527.0, 150_528.0, 150_529.0, 800_000.0];
    let samples = raws.map(sample);
    let fast = Resources { upstream_cores: f64::INFINITY, local_cores: 100.0, ..example_resources(1.0) };
    let decided = decide(SplitPolicy::Sophon, &candidates(&samples), &fast, ROLES).unwrap();
    assert_eq!(decided.stages, [0, 0, 0, CROPPED, CROPPED]);
    assert_eq!(decided.moved, 2);
}

#[test]
fn every_policy_on_the_example() {
    let cases = [
        (SplitPolicy::None, [0, 0, 0, 0]),
        (SplitPolicy::All, [6, 6, 6, 6]),
        (SplitPolicy::Resize, [3, 3, 3, 3]),
        (SplitPolicy::Fastflow, [0, 0, 0, 0]),
        (SplitPolicy::Sophon, [3, 3, 0, 3]),
        (SplitPolicy::Best, [3, 3, 0, 3]),
    ];
    for (policy, stages) in cases {
        assert_eq!(SplitPolicy::named(policy.name()), Ok(policy));
        let decided = decide(policy, &example(), &example_resources(1.0), ROLES).unwrap();
        assert_eq!(decided.stages, stages, "{policy:?}");
        assert_eq!(decided, decide(policy, &example(), &example_resources(1.0), ROLES).unwrap());
        let alone = decide(policy, &example(), &example_resources(0.0), ROLES).unwrap();
        assert_eq!((alone.stages, alone.after), (vec![RAW; 4], decided.before), "{policy:?} without cores");
    }
    let sentence = SplitPolicy::named("sofon").unwrap_err().0;
    assert!(sentence.contains("did you mean \"sophon\"?"), "{sentence}");
}

#[test]
fn whole_recipes_move_only_when_the_local_cpu_is_the_bottleneck() {
    let sample = vec![choice(RAW, 1e5, 0.0, 0.010), choice(FINISHED, 6e5, 0.010, 0.0)];
    let samples = vec![sample; 100];
    let base = Resources {
        link_bytes_per_s: 1e9,
        upstream_cores: 1.0,
        local_cores: 1.0,
        accelerator_samples_per_s: f64::INFINITY,
    };
    let cases = [
        // As many cores there as here: half of the samples, every other one.
        (base, 50),
        (Resources { upstream_cores: 3.0, ..base }, 75),
        // The accelerator takes 150 a second: no more than it asks for, a third.
        (Resources { upstream_cores: 3.0, accelerator_samples_per_s: 150.0, ..base }, 33),
        // Less than 1.3 times the local rate of 100 a second is no bottleneck.
        (Resources { accelerator_samples_per_s: 129.0, ..base }, 0),
        (Resources { link_bytes_per_s: 1e6, ..base }, 0),
    ];
    for (resources, moved) in cases {
        let decided = decide(SplitPolicy::Fastflow, &candidates(&samples), &resources, ROLES).unwrap();
        assert_eq!(decided.moved, moved, "{resources:?}: {}", decided.reason);
        if moved == 50 {
            assert!(decided.stages.chunks(2).all(|pair| pair == [RAW, FINISHED]), "{:?}", decided.stages);
        }
    }
}

#[test]
fn what_is_here_already_costs_neither_link_nor_upstream() {
    let sample = [choice(RAW, 4e5, 0.0, 0.008), choice(CROPPED, 1e5, 0.006, 0.002)];
    let mut candidates = Candidates::new();
    for miss in [1.0, 0.25, 0.0] {
        candidates.push(miss, &sample);
    }
    let resources = Resources { link_bytes_per_s: 1e6, ..example_resources(1.0) };
    let decided = decide(SplitPolicy::Resize, &candidates, &resources, ROLES).unwrap();
    assert_eq!(decided.stages, [CROPPED, CROPPED, RAW]);
    assert!(near(decided.bytes_before, 5e5) && near(decided.bytes_after, 1.25e5));
    assert!(near(decided.after.upstream_s, 1.25 * 0.006), "{:?}", decided.after);
    // 2 ms; a quarter of 2 ms and three of 8 ms; 8 ms.
    assert!(near(decided.after.local_s, 0.002 + 0.0065 + 0.008), "{:?}", decided.after);
}

#[test]
fn reasons_say_cause_and_effect() {
    let seconds = |kb: f64| vec![choice(RAW, kb * 1e6, 0.0, 5.0), choice(CROPPED, 150e6, 8.0, 5.0)];
    let samples = [400.0, 300.0, 100.0, 160.0].map(seconds);
    let base = Resources { accelerator_samples_per_s: 0.4, ..example_resources(1.0) };
    let cases = [
        (
            SplitPolicy::Sophon,
            base,
            "the link is the bottleneck (96.0 s of link, 20.0 s of ops, 10.0 s of training); 3 of 4 samples are cut \
             upstream, predicted 55.0 s (1.75x)",
        ),
        (
            SplitPolicy::Best,
            Resources { accelerator_samples_per_s: 0.01, ..base },
            "the accelerator is the bottleneck",
        ),
        (SplitPolicy::Best, Resources { upstream_cores: 0.0, ..base }, "the upstream node gives no cores"),
        (SplitPolicy::Best, Resources { upstream_cores: 0.01, ..base }, "no sample has a form"),
        (SplitPolicy::Fastflow, base, "whole recipes would make the traffic larger"),
        (SplitPolicy::None, base, "the policy is none"),
    ];
    for (policy, resources, part) in cases {
        let reason = decide(policy, &candidates(&samples), &resources, ROLES).unwrap().reason;
        assert!(reason.contains(part), "{reason}");
    }
    let nothing = decide(SplitPolicy::Best, &Candidates::new(), &base, ROLES).unwrap();
    assert_eq!((nothing.moved, nothing.after.epoch_s()), (0, 0.0));
    assert!(nothing.reason.contains("no samples"), "{}", nothing.reason);
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let base = example_resources(1.0);
    let resources = [
        (Resources { link_bytes_per_s: 0.0, ..base }, "link_bytes_per_s is 0;"),
        (Resources { link_bytes_per_s: f64::INFINITY, ..base }, "link_bytes_per_s is inf;"),
        (Resources { link_bytes_per_s: f64::NAN, ..base }, "link_bytes_per_s is NaN;"),
        (Resources { upstream_cores: -1.0, ..base }, "upstream_cores is -1;"),
        (Resources { upstream_cores: f64::NAN, ..base }, "upstream_cores is NaN;"),
        (Resources { local_cores: 0.0, ..base }, "local_cores is 0;"),
        (Resources { accelerator_samples_per_s: 0.0, ..base }, "accelerator_samples_per_s is 0;"),
    ];
    for policy in SplitPolicy::ALL {
        for (resources, part) in &resources {
            let sentence = decide(policy, &example(), resources, ROLES).unwrap_err().0;
            assert!(sentence.contains(part), "{sentence}");
        }
    }
    let samples: [(f32, Vec<Choice>, &str); 6] = [
        (1.0, vec![], "sample 1 has 0 candidates"),
        (1.0, vec![choice(0, 1.0, 0.0, 1.0); 17], "sample 1 has 17 candidates"),
        (1.5, vec![choice(0, 1.0, 0.0, 1.0)], "miss probability of 1.5"),
        (f32::NAN, vec![choice(0, 1.0, 0.0, 1.0)], "miss probability of NaN"),
        (1.0, vec![choice(0, 1.0, 0.0, 1.0), choice(3, f64::NAN, 0.0, 1.0)], "a stage 3 of NaN bytes"),
        (1.0, vec![choice(3, 1.0, 2.0, 1.0)], "the first is raw"),
    ];
    for (miss, choices, part) in samples {
        let mut candidates = Candidates::new();
        candidates.push(1.0, &[choice(0, 1.0, 0.0, 1.0)]);
        candidates.push(miss, &choices);
        candidates.push(1.0, &[choice(0, 1.0, 0.0, 1.0)]);
        let sentence = decide(SplitPolicy::None, &candidates, &base, ROLES).unwrap_err().0;
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn a_tenth_is_no_change() {
    let base = Resources { upstream_cores: f64::INFINITY, ..example_resources(1.0) };
    let cases = [
        (base, 1_000, false),
        (Resources { link_bytes_per_s: 10.9e6, ..base }, 1_000, false),
        (Resources { link_bytes_per_s: 11.1e6, ..base }, 1_000, true),
        (Resources { link_bytes_per_s: 8.9e6, ..base }, 1_000, true),
        (Resources { upstream_cores: 4.0, ..base }, 1_000, true),
        (Resources { local_cores: 2.0, ..base }, 1_000, true),
        (Resources { accelerator_samples_per_s: f64::INFINITY, ..base }, 1_000, true),
        (Resources { accelerator_samples_per_s: f64::NAN, ..base }, 1_000, true),
        (base, 1_100, false),
        (base, 880, true),
    ];
    for (now, samples, expected) in cases {
        assert_eq!(changed(&base, &now, 1_000, samples), expected, "{now:?} {samples}");
    }
    let none = Resources { upstream_cores: 0.0, ..base };
    assert!(changed(&none, &Resources { upstream_cores: 0.5, ..base }, 1, 1) && !changed(&none, &none, 1, 1));
}

/// Pictures as they are: sizes over a decade, seconds that follow from them, crops of any share.
pub(super) fn pictures(count: usize, seed: u64) -> Vec<Vec<Choice>> {
    let mut stream = Stream::from_key(seed);
    (0..count)
        .map(|_| {
            let raw = 20e3 + 480e3 * stream.unit() * stream.unit();
            let (whole_s, share) = (1e-3 + raw * (20e-9 + 20e-9 * stream.unit()), 0.1 + 0.9 * stream.unit());
            let pack_s = 1e-3 + 1e-3 * stream.unit();
            vec![
                choice(RAW, raw, 0.0, whole_s),
                choice(CUT, 600.0 + share * raw, 0.3 * whole_s, 1e-3 + share * (whole_s - 1e-3)),
                choice(CROPPED, 150_528.0, whole_s - 0.5e-3, 0.5e-3),
                choice(PACKED, 60e3 + 60e3 * stream.unit(), whole_s - 0.5e-3 + pack_s, 1e-3),
                choice(FINISHED, 602_112.0, whole_s, 0.1e-3),
            ]
        })
        .collect()
}

/// Prices on a grid, and on a finer one about the best of them: no decision can be faster than any of them says.
fn bound_s(samples: &[Vec<Choice>], resources: &Resources) -> f64 {
    let at = |link: f64, upstream: f64| {
        if link < 0.0 || upstream < 0.0 || link + upstream > 1.0 {
            return 0.0;
        }
        let cost = |c: &Choice| {
            link * c.bytes / resources.link_bytes_per_s
                + upstream * c.upstream_s / resources.upstream_cores
                + (1.0 - link - upstream) * c.local_s / resources.local_cores
        };
        samples.iter().map(|choices| choices.iter().map(cost).fold(f64::INFINITY, f64::min)).sum()
    };
    let mut best = (samples.len() as f64 / resources.accelerator_samples_per_s, 0.5, 0.5);
    for width in [0.5, 0.05, 0.005] {
        let (_, link, upstream) = best;
        for step in 0..21 * 21 {
            let offset = |count: i32| f64::from(count - 10) / 10.0 * width;
            let (link, upstream) = (link + offset(step / 21), upstream + offset(step % 21));
            let bound = at(link, upstream);
            if bound > best.0 {
                best = (bound, link, upstream);
            }
        }
    }
    best.0
}

fn machines() -> impl Strategy<Value = Resources> {
    // A tenth to ten times what would balance a hundred pictures a second.
    let tenfold = || (-10_i32..=10).prop_map(|tenths| crate::math::power(10.0, f64::from(tenths) / 10.0));
    (tenfold(), tenfold(), tenfold(), prop_oneof![Just(f64::INFINITY), (50.0_f64..500.0)]).prop_map(
        |(link, upstream, local, accelerator_samples_per_s)| Resources {
            link_bytes_per_s: 10e6 * link,
            upstream_cores: 0.5 * upstream,
            local_cores: 0.5 * local,
            accelerator_samples_per_s,
        },
    )
}

/// The most that one sample can weigh on any resource.
fn one_sample_s(samples: &[Vec<Choice>], resources: &Resources) -> f64 {
    let weight = |c: &Choice| {
        let (link_s, upstream_s) =
            (c.bytes / resources.link_bytes_per_s, c.upstream_s / resources.upstream_cores);
        link_s.max(upstream_s).max(c.local_s / resources.local_cores)
    };
    samples.iter().flatten().map(weight).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn near_the_bound_for_fifty_samples_and_more(
        count in 50_usize..200, seed: u64, resources in machines()
    ) {
        let samples = pictures(count, seed);
        let decided = decide(SplitPolicy::Best, &candidates(&samples), &resources, ROLES).unwrap();
        let bound = bound_s(&samples, &resources);
        let epoch_s = decided.after.epoch_s();
        prop_assert!(epoch_s >= bound * (1.0 - 1e-6), "{epoch_s} cannot be less than {bound}");
        // With a twentieth of a core upstream one sample may take as long as the epoch, and no decision meets the bound, which
        // cuts samples into parts: a quarter of one may be left over.
        let limit_s = (bound * 1.01).max(bound + 0.25 * one_sample_s(&samples, &resources));
        prop_assert!(epoch_s <= limit_s, "{epoch_s} {bound} {}", decided.reason);
    }

    #[test]
    fn never_slower_than_any_other(count in 1_usize..120, seed: u64, resources in machines()) {
        let candidates = candidates(&pictures(count, seed));
        let best = decide(SplitPolicy::Best, &candidates, &resources, ROLES).unwrap();
        for policy in SplitPolicy::ALL {
            let other = decide(policy, &candidates, &resources, ROLES).unwrap();
            prop_assert!(best.after.epoch_s() <= other.after.epoch_s(), "{policy:?}");
        }
    }

    #[test]
    fn beside_every_possible_decision(
        samples in prop::collection::vec(
            (1.0_f64..100.0, prop::collection::vec((0.0_f64..100.0, 0.0_f64..10.0, 0.0_f64..10.0), 0..4)), 1..6
        ),
        link in 1.0_f64..50.0, upstream in 0.1_f64..5.0, local in 0.1_f64..5.0, accelerator in 0.05_f64..5.0,
    ) {
        let stages = [CUT, CROPPED, FINISHED];
        let samples: Vec<Vec<Choice>> = samples.into_iter().map(|(raw, rest)| {
            let rest = rest.into_iter().zip(stages).map(|((b, u, l), stage)| choice(stage, b, u, l));
            [choice(RAW, raw, 0.0, 5.0)].into_iter().chain(rest).collect()
        }).collect();
        let resources = Resources {
            link_bytes_per_s: link, upstream_cores: upstream, local_cores: local,
            accelerator_samples_per_s: accelerator,
        };
        let times = |picks: &[usize]| {
            let sum = |f: fn(&Choice) -> f64| samples.iter().zip(picks).map(|(s, &p)| f(&s[p])).sum::<f64>();
            (sum(|c| c.bytes) / link)
                .max(sum(|c| c.upstream_s) / upstream)
                .max(sum(|c| c.local_s) / local)
                .max(samples.len() as f64 / accelerator)
        };
        let mut picks = vec![0; samples.len()];
        let mut least_s = f64::INFINITY;
        'all: loop {
            least_s = least_s.min(times(&picks));
            for digit in 0.. {
                if digit == picks.len() { break 'all; }
                picks[digit] += 1;
                if picks[digit] < samples[digit].len() { break; }
                picks[digit] = 0;
            }
        }
        let candidates = candidates(&samples);
        for policy in SplitPolicy::ALL {
            let decided = decide(policy, &candidates, &resources, ROLES).unwrap();
            // The model, from the stages that were told.
            let told: Vec<usize> = samples.iter().zip(&decided.stages)
                .map(|(s, &stage)| s.iter().position(|c| c.stage == stage).unwrap()).collect();
            prop_assert!(near(decided.after.epoch_s(), times(&told)), "{policy:?}");
            prop_assert!(decided.after.epoch_s() >= least_s * (1.0 - 1e-5));
        }
        let best = decide(SplitPolicy::Best, &candidates, &resources, ROLES).unwrap();
        let limit_s = least_s + one_sample_s(&samples, &resources);
        prop_assert!(best.after.epoch_s() <= limit_s, "{} {least_s}", best.after.epoch_s());
    }

    #[test]
    fn more_cores_upstream_are_never_slower(count in 1_usize..150, seed: u64, resources in machines()) {
        let samples = pictures(count, seed);
        let candidates = candidates(&samples);
        let mut before = [f64::INFINITY; 2];
        for cores in [0.0, 0.1, 0.3, 1.0, 2.0, 5.0, 20.0, f64::INFINITY] {
            let resources = Resources { upstream_cores: cores, ..resources };
            for (policy, before) in [SplitPolicy::Sophon, SplitPolicy::Best].into_iter().zip(&mut before) {
                let epoch_s = decide(policy, &candidates, &resources, ROLES).unwrap().after.epoch_s();
                let slack_s = if policy == SplitPolicy::Best {
                    (0.01 * *before).min(one_sample_s(&samples, &resources))
                } else {
                    1e-9
                };
                prop_assert!(epoch_s <= *before + slack_s, "{policy:?} {cores} {epoch_s} {before}");
                *before = epoch_s;
            }
        }
    }
}

#[test]
fn what_only_this_epoch_has_is_added_and_told_apart() {
    let samples = pictures(200, 5);
    let raw_bytes: f64 = samples.iter().map(|choices| choices[0].bytes).sum();
    let resources = Resources {
        link_bytes_per_s: raw_bytes / 20.0,
        upstream_cores: 2.0,
        local_cores: 4.0,
        accelerator_samples_per_s: f64::INFINITY,
    };
    let plain = decide(SplitPolicy::Best, &candidates(&samples), &resources, ROLES).unwrap();
    let once = plain.clone().with_once(SplitPolicy::Best, 60.0, 8.0, &resources);
    assert!((once.after.upstream_s - plain.after.upstream_s - 30.0).abs() < 1e-9, "{:?}", once.after);
    assert!((once.after.local_s - plain.after.local_s - 2.0).abs() < 1e-9, "{:?}", once.after);
    assert_eq!((once.lasting, &once.stages), (plain.after, &plain.stages));
    assert!(
        once.reason != plain.reason && once.reason.contains("limited by the upstream CPU"),
        "{}",
        once.reason
    );
    assert_eq!(plain.clone().with_once(SplitPolicy::Best, 0.0, 0.0, &resources), plain);
}

#[test]
fn no_core_upstream_works_for_nothing() {
    // The link takes 20 s and training 14 s; with all of the upstream cores the link would take far less than that.
    let samples = pictures(2_000, 5);
    let raw_bytes: f64 = samples.iter().map(|choices| choices[0].bytes).sum();
    let resources = Resources {
        link_bytes_per_s: raw_bytes / 20.0,
        upstream_cores: 64.0,
        local_cores: 64.0,
        accelerator_samples_per_s: 2_000.0 / 14.0,
    };
    let best = decide(SplitPolicy::Best, &candidates(&samples), &resources, ROLES).unwrap();
    let sophon = decide(SplitPolicy::Sophon, &candidates(&samples), &resources, ROLES).unwrap();
    assert_eq!(best.after.bottleneck(), Resource::Accelerator, "{}", best.reason);
    assert!(
        (0.7 * 14.0..0.8 * 14.0).contains(&best.after.link_s),
        "with a quarter to spare: {:?}",
        best.after
    );
    assert!(best.after.upstream_s < 0.8 * sophon.after.upstream_s, "{:?} {:?}", best.after, sophon.after);
}

#[test]
fn many_samples_are_decided_as_well_as_few() {
    // More than the sketch, and in an order that a regular sample of them could be misled by.
    let mut samples = pictures(20_000, 8);
    samples.sort_by(|a, b| a[0].bytes.total_cmp(&b[0].bytes));
    for (upstream_cores, local_cores) in [(4.0, 8.0), (8.0, 3.0)] {
        let resources = Resources {
            link_bytes_per_s: 60e6,
            upstream_cores,
            local_cores,
            accelerator_samples_per_s: f64::INFINITY,
        };
        let best = decide(SplitPolicy::Best, &candidates(&samples), &resources, ROLES).unwrap();
        let bound = bound_s(&samples, &resources);
        let epoch_s = best.after.epoch_s();
        assert!(epoch_s <= bound * 1.005, "{epoch_s} {bound} {}", best.reason);
    }
}
