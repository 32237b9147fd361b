//! Quiver: packages that fit, an epoch that walks over them.

use super::*;
use crate::SampleId;
use crate::cache::{Cache, CacheOptions, JobId, Policy};
use proptest::prelude::*;

proptest! {
    /// Every sample that fits is in one package, none is over half of the cache; and an epoch has exactly what was
    /// chosen, from at most two packages at any time.
    #[test]
    fn packages_and_orders(
        sizes in prop::collection::vec(0_u32..50, 1..80), bytes_max in 10_u64..400, seed: u64, epoch in 0_u64..5,
        resident in prop::collection::vec(0_u32..4, 0..3), twice in any::<bool>(),
    ) {
        let packages = Packages::cut(&sizes, bytes_max, seed);
        let mut bytes = vec![0_u64; packages.len() as usize];
        for (id, &size) in sizes.iter().enumerate() {
            match packages.of(id as u32) {
                Some(package) => bytes[package as usize] += u64::from(size),
                None => prop_assert!(u64::from(size) > bytes_max / 2),
            }
        }
        prop_assert!(bytes.iter().all(|bytes| *bytes <= bytes_max / 2));
        let mut chosen: Vec<u32> = (0..sizes.len() as u32).filter(|id| id % 5 != 3).collect();
        if twice {
            chosen.extend(chosen.clone());
            chosen.sort_unstable();
        }
        let order = order(&packages, &resident, &chosen, seed, epoch);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, chosen);
        // A third package begins only after one of the two is done.
        let mut left = vec![0_u32; packages.len() as usize + 1];
        let package = |id: u32| packages.of(id).unwrap_or(packages.len()) as usize;
        order.iter().for_each(|&id| left[package(id)] += 1);
        let mut open: Vec<usize> = Vec::new();
        for &id in &order {
            let package = package(id);
            if !open.contains(&package) {
                open.push(package);
            }
            prop_assert!(open.len() <= 2);
            left[package] -= 1;
            open.retain(|package| left[*package] > 0);
        }
    }
}

fn walk(cache: &mut Cache, epoch: u64) -> u32 {
    let samples: Vec<u32> = (0..1_000).collect();
    let (packages, resident) = cache.packages().unwrap();
    let order = order(packages, resident, &samples, 3, epoch);
    cache.announce(JobId(0), true, &order).unwrap();
    let mut hits = 0;
    for id in order.into_iter().map(SampleId) {
        let hit = cache.ask(JobId(0), id);
        hits += u32::from(hit);
        if !hit {
            cache.offer(id, &mut Vec::new());
        }
        assert!(cache.bytes() <= 2_000);
    }
    hits
}

#[test]
fn what_is_left_of_an_epoch_is_the_first_of_the_next() {
    // A fifth of the data fits: ten packages, of which two stay.
    let mut cache = Cache::new(CacheOptions::new(Policy::Quiver, 2_000), vec![10; 1_000].into(), 3).unwrap();
    assert_eq!(cache.packages().unwrap().0.len(), 10);
    assert_eq!(walk(&mut cache, 0), 0);
    for epoch in 1..6 {
        assert_eq!(walk(&mut cache, epoch), 200, "in epoch {epoch}");
    }
}

#[test]
fn neighbours_mix_and_epochs_differ() {
    let packages = Packages::cut(&[10; 1_000], 2_000, 3);
    let all: Vec<u32> = (0..1_000).collect();
    let first = order(&packages, &[4, 7], &all, 3, 0);
    let of = |id: &u32| packages.of(*id).unwrap();
    // The first 150 are the resident ones, both of them from early on.
    assert!(first[..150].iter().all(|id| [4, 7].contains(&of(id))));
    let early: Vec<u32> = first[..30].iter().map(of).collect();
    assert!(early.contains(&4) && early.contains(&7), "{early:?}");
    assert_ne!(order(&packages, &[4, 7], &all, 3, 1), first);
    // A package is not a run of neighbours: data sets may be sorted by class.
    let spread =
        all.iter().filter(|id| of(id) == 0).map(|id| id / 100).collect::<std::collections::BTreeSet<_>>();
    assert!(spread.len() >= 9, "{spread:?}");
}
