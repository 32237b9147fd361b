//! Several jobs: benefit, relative scores, weights, and nobody starves.

use super::*;
use crate::SampleId;
use crate::cache::{Cache, CacheOptions, Policy};
use proptest::prelude::*;

#[test]
fn a_probe_takes_twenty_of_each_and_comes_again() {
    let mut probe = Probe::default();
    assert!(probe.due(0) && probe.next() == Some(true));
    (0..20).for_each(|_| assert_eq!(probe.note(3, true, 0.1), None));
    assert_eq!(probe.next(), Some(false));
    assert_eq!(probe.note(3, true, 99.0), None, "there are enough of these");
    assert_eq!(probe.note(3, false, f64::NAN), None);
    (0..19).for_each(|_| assert_eq!(probe.note(3, false, 0.4), None));
    let benefit = probe.note(3, false, 0.4).unwrap();
    assert!((benefit - 0.75).abs() < 1e-9 && probe.benefit() == Some(benefit), "{benefit}");
    assert!(!probe.due(12) && probe.due(13));
    for (hit, miss, expected) in
        [(1.0, 2.0, 0.5), (0.96, 1.0, 0.0), (2.0, 1.0, 0.0), (0.0, 0.0, 0.0), (0.94, 1.0, 0.06)]
    {
        assert!((super::benefit(hit, miss) - expected).abs() < 1e-9, "{hit} {miss}");
    }
}

#[test]
fn relative_scores_are_ranks_or_shares() {
    assert_eq!(relative(&[30.0, 1.0, 2.0, 1e9], Relative::Rank), [0.75, 0.25, 0.5, 1.0]);
    assert_eq!(relative(&[5.0, 1.0, 5.0, 5.0], Relative::Rank), [0.75, 0.25, 0.75, 0.75], "equals are alike");
    assert_eq!(relative(&[1.0, f32::NAN, 0.5, 0.1], Relative::Rank), [0.75, 1.0, 0.5, 0.25]);
    assert_eq!(relative(&[1.0, 3.0, 0.0], Relative::Share), [0.25, 0.75, 0.0]);
    assert_eq!(relative(&[0.0, 0.0], Relative::Share), [0.0, 0.0]);
    assert_eq!(relative(&[0.5, 2.0, -1.0], Relative::Plain), [0.5, 1.0, 0.0]);
}

fn jobs(facts: &[(Option<f64>, f64)]) -> Jobs {
    let mut jobs = Jobs::new(4, Relative::Rank);
    for (job, &(benefit, rate)) in facts.iter().enumerate() {
        let job = JobId(job as u32);
        jobs.join(job).unwrap();
        jobs.set_benefit(job, benefit).unwrap();
        jobs.set_rate(job, rate).unwrap();
    }
    jobs
}

#[test]
fn weights_are_benefit_times_rate_above_a_floor() {
    let found = |facts: &[(Option<f64>, f64)]| -> Vec<f64> {
        jobs(facts).weights().into_iter().map(|(_, weight)| (weight * 1e6).round() / 1e6).collect()
    };
    assert_eq!(found(&[(Some(0.5), 100.0), (Some(0.25), 200.0)]), [0.5, 0.5]);
    assert_eq!(found(&[(Some(0.6), 100.0), (Some(0.4), 100.0)]), [0.6, 0.4]);
    assert_eq!(found(&[(Some(0.9), 1_000.0), (Some(0.1), 1.0)]), [0.75, 0.25], "half of an equal share");
    assert_eq!(found(&[(Some(0.9), 100.0), (Some(0.04), 100.0)]), [1.0, 0.0], "no benefit, no weight");
    assert_eq!(found(&[(Some(0.0), 10.0), (Some(0.01), 100.0)]), [0.5, 0.5], "nobody benefits");
    assert_eq!(found(&[(None, 0.0), (Some(0.4), 100.0)]), [0.5, 0.5], "not known yet: like the others");
    assert_eq!(found(&[]), [0.0; 0]);
}

proptest! {
    #[test]
    fn weights_are_shares(facts in prop::collection::vec((prop::option::of(0.0_f64..1.0), 0.0_f64..1e4), 1..9)) {
        let weights = jobs(&facts).weights();
        prop_assert!((weights.iter().map(|(_, weight)| weight).sum::<f64>() - 1.0).abs() < 1e-9);
        let benefiting = weights.iter().filter(|(_, weight)| *weight > 0.0).count();
        let floor = 0.5 / benefiting as f64 - 1e-12;
        prop_assert!(weights.iter().all(|(_, weight)| *weight == 0.0 || *weight >= floor), "{:?}", weights);
        // More benefit and rate never weighs less.
        for (a, b) in facts.iter().zip(&weights).flat_map(|a| facts.iter().zip(&weights).map(move |b| (a, b))) {
            if let ((Some(ba), ra), (Some(bb), rb)) = (a.0, b.0) && *ra > 0.0 && *rb > 0.0 && ba >= bb && ra >= rb {
                prop_assert!(a.1.1 >= b.1.1 - 1e-12);
            }
        }
    }
}

#[test]
fn a_sample_is_worth_what_it_is_to_all() {
    let mut jobs = jobs(&[(Some(0.6), 100.0), (Some(0.4), 100.0)]);
    jobs.replace(JobId(0), &[4.0, 3.0, 2.0, 1.0]).unwrap();
    jobs.replace(JobId(1), &[10.0, 40.0, 30.0, 20.0]).unwrap();
    let near =
        |found: &[f32], expected: &[f32]| found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
    let sum = jobs.aggregate(0);
    assert!(near(&sum, &[0.7, 0.85, 0.6, 0.35]), "{sum:?}");
    // A job that leaves takes its scores along, one that joins begins with all alike.
    jobs.leave(JobId(1));
    assert!(near(&jobs.aggregate(0), &[1.0, 0.75, 0.5, 0.25]));
    jobs.join(JobId(7)).unwrap();
    let sum = jobs.aggregate(0);
    assert!(sum.is_sorted_by(|a, b| a > b), "{sum:?}");
    assert!(jobs.replace(JobId(1), &[0.0; 4]).unwrap_err().0.contains("has not joined"));
    assert!(jobs.replace(JobId(0), &[0.0; 3]).is_err());
}

#[test]
fn a_fast_job_does_not_push_out_a_slow_one() {
    // Two jobs that want different halves; one reads a thousand times as fast.
    let half = |first: bool| -> Vec<f32> {
        (0..1_000)
            .map(|id| if (id < 500) == first { 0.2 + (id % 500) as f32 / 1_000.0 } else { 0.0 })
            .collect()
    };
    for relative in [Relative::Rank, Relative::Share, Relative::Plain] {
        let mut jobs = Jobs::new(1_000, relative);
        for (job, rate) in [(JobId(0), 1_000.0), (JobId(1), 1.0)] {
            jobs.join(job).unwrap();
            jobs.set_benefit(job, Some(0.5)).unwrap();
            jobs.set_rate(job, rate).unwrap();
            jobs.replace(job, &half(job == JobId(0))).unwrap();
        }
        let mut cache = Cache::new(
            CacheOptions { cold_share: 0.0, ..CacheOptions::new(Policy::Score, 200) },
            vec![1; 1_000].into(),
            0,
        )
        .unwrap();
        cache.renew(jobs.aggregate(200)).unwrap();
        // The fast one reads all of its own again and again.
        for id in (0..1_000).chain(0..500).chain(0..500).map(SampleId) {
            if !cache.ask(JobId(0), id) {
                cache.offer(id, &mut Vec::new());
            }
        }
        let slow = (500..1_000).filter(|&id| cache.holds(SampleId(id))).count();
        assert!((50..=110).contains(&slow), "{relative:?}: {slow} of 200 are the slow job's");
        // Its best ones, not any.
        let best = (950..1_000).filter(|&id| cache.holds(SampleId(id))).count();
        assert_eq!(best, 50, "{relative:?}");
    }
}
