//! Families against their definitions: naive clustering, a naive cache, and the figure of the published system.

use super::*;
use crate::plan::{Shape, Uneven};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Families with these members among `samples`, as if they had been found.
fn families(samples: u32, groups: &[&[u32]]) -> Families {
    let mut leaders: Vec<u32> = (0..samples).collect();
    for group in groups {
        group.iter().for_each(|&id| leaders[id as usize] = group[0]);
    }
    Families::of_leaders(&leaders, 2, false)
}

fn naive_leaders(hashes: &[u64], labels: &[u32], radius: u32, cross_label: bool) -> Vec<u32> {
    let mut leaders: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    for id in 0..hashes.len() {
        let near = |&leader: &usize| {
            (hashes[leader] ^ hashes[id]).count_ones() <= radius
                && (cross_label || labels[leader] == labels[id])
        };
        let leader = if hashes[id] == NO_HASH { Some(id) } else { leaders.iter().copied().find(near) };
        found.push(leader.unwrap_or(id) as u32);
        if leader.is_none() {
            leaders.push(id);
        }
    }
    found
}

/// Hashes that lie close to a few centres, and some that lie nowhere.
fn hashes(most: usize) -> impl Strategy<Value = Vec<u64>> {
    let near = (0_u64..6, prop::collection::vec(0_u32..64, 0..7))
        .prop_map(|(centre, bits)| bits.iter().fold(crate::rng::mix(centre), |hash, bit| hash ^ 1 << bit));
    let hash = prop_oneof![8 => near, 1 => any::<u64>(), 1 => Just(NO_HASH)];
    prop::collection::vec(hash, 0..most)
}

#[test]
fn members_lie_within_the_radius_of_their_leader_and_chains_do_not_hold() {
    let hashes = [0b1, 0b11, 0b111, 0b1111, NO_HASH, 0b1];
    let families = Families::group(&hashes, &[0; 6], 1, false).unwrap();
    assert_eq!(families.iter().collect::<Vec<_>>(), [&[0, 1, 5][..], &[2, 3]]);
    assert_eq!([0, 3, 4, 5, 9].map(|id| families.leader(id)), [0, 2, 4, 0, 9]);
    assert_eq!(families.family(3), [2, 3]);
    assert!(families.family(4).is_empty() && families.family(99).is_empty());
    assert_eq!((families.len(), families.grouped(), families.largest()), (2, 5, 3));
}

#[test]
fn labels_are_kept_apart_unless_asked() {
    let (hashes, labels) = ([7, 7, 7, 7], [0, 1, 0, 1]);
    let apart = Families::group(&hashes, &labels, 2, false).unwrap();
    assert_eq!(apart.iter().collect::<Vec<_>>(), [[0, 2], [1, 3]]);
    assert!((apart.purity(&labels) - 1.0).abs() < 1e-12);
    let mixed = Families::group(&hashes, &labels, 2, true).unwrap();
    assert_eq!((mixed.len(), mixed.cross_label()), (1, true));
    assert!((mixed.purity(&labels) - 0.5).abs() < 1e-12);
}

#[test]
fn nonsense_is_refused() {
    assert!(Families::group(&[1, 2], &[0], 2, false).unwrap_err().0.contains("2 hashes and 1 labels"));
    assert!(Families::group(&[1], &[0], 11, false).unwrap_err().0.contains("radius 11"));
    assert!(Families::group(&[], &[], 4, true).unwrap().is_empty());
    let limits = StandInLimits { held_bytes_max: 9, repeats_max: 2 };
    let families = families(3, &[&[0, 1]]);
    assert!(families.stand_ins(&[0, 3], Shape::single(1), &[1; 3], limits, &[]).is_err());
    assert!(families.stand_ins(&[0], Shape::single(1), &[1; 2], limits, &[]).is_err());
    assert!(families.stand_ins(&[0], Shape::single(0), &[1; 3], limits, &[]).is_err());
    assert_eq!(families.remove(&[7, 1, 0], 0, 0, &[]).len(), 2, "an unknown id is nobody's relative");
}

/// 100,000 equal hashes, and as many that differ a little: neither may take longer than a moment.
#[test]
fn a_crowd_of_equal_pictures_is_quick() {
    let count = 100_000_u32;
    let labels: Vec<u32> = (0..count).map(|id| id % 7).collect();
    let equal = vec![5; count as usize];
    let close: Vec<u64> =
        (0..u64::from(count)).map(|id| 0xABCD_EF01_2345_6789 ^ (crate::rng::mix(id) & 0x3FFFF)).collect();
    let distinct: Vec<u32> = (0..count).collect();
    for radius in [0, 2, 4] {
        for cross_label in [false, true] {
            assert_eq!(Families::group(&equal, &labels, radius, true).unwrap().largest(), count as usize);
            let found = Families::group(&close, &labels, radius, cross_label).unwrap();
            assert!(
                radius == 0 || found.grouped() as u32 > count / 2,
                "radius {radius}: {}",
                found.grouped()
            );
        }
        assert!(Families::group(&equal, &distinct, radius, false).unwrap().is_empty());
    }
    let all: Vec<u32> = (0..count).collect();
    let one = Families::group(&equal, &labels, 2, true).unwrap();
    assert_eq!(one.remove(&all, 3, 0, &[]).len(), 1);
    let limits = StandInLimits { held_bytes_max: 1 << 30, repeats_max: 2 };
    let served = one.stand_ins(&all, Shape::single(8_192), &vec![784; count as usize], limits, &[]).unwrap();
    assert!(served.count > count / 2 && served.count < count * 2 / 3 + 2, "{}", served.count);
}

#[test]
fn a_radius_that_groups_too_much_is_tightened() {
    assert_eq!([28, 32, 33, 63, 64, 500].map(radius_for), [2, 2, 3, 3, 4, 4]);
    // Pairs at distance 4: far too many at radius 4, none at 3.
    let hashes: Vec<u64> =
        (0..100).map(|i| crate::rng::mix(i / 2) ^ if i % 2 == 0 { 0 } else { 0b1111 }).collect();
    let tight = Families::calibrated(&hashes, &[0; 100], 4, false).unwrap();
    assert_eq!((tight.radius(), tight.len()), (3, 0));
    // Five pairs of different labels: few enough, but not pure.
    let hashes: Vec<u64> = (0..100).map(|i| crate::rng::mix(i % 95) ^ u64::from(i >= 95)).collect();
    let labels: Vec<u32> = (0..100).collect();
    assert_eq!(Families::calibrated(&hashes, &labels, 4, true).unwrap().radius(), 0);
    assert_eq!(Families::calibrated(&hashes, &[1; 100], 4, true).unwrap().radius(), 4);
    // Exact duplicates stay duplicates, however many.
    assert_eq!(Families::calibrated(&[9; 50], &[0; 50], 4, false).unwrap().grouped(), 50);
}

#[test]
fn removal_rotates_until_every_member_was_seen() {
    let families = families(8, &[&[1, 4, 6], &[2, 3]]);
    let all: Vec<u32> = (0..8).collect();
    let mut seen = [0; 8];
    for epoch in 0..6 {
        let kept = families.remove(&all, epoch, 9, &[]);
        assert_eq!(kept.len(), 5);
        assert!(kept.is_sorted());
        kept.iter().for_each(|&id| seen[id as usize] += 1);
    }
    assert_eq!(seen, [6, 2, 3, 3, 2, 6, 2, 6]);
    assert_eq!(families.remove(&[4, 6, 0], 1, 9, &[]).len(), 2);
    assert_eq!(families.remove(&[6], 2, 9, &[]), [6], "a relative that is not selected takes nobody's place");
}

/// The figure of the published system: 2 is resident, so 4 and 7 are served by it.
#[test]
fn the_published_example() {
    let families = families(8, &[&[2, 4, 7], &[5, 6]]);
    let limits = StandInLimits { held_bytes_max: 100, repeats_max: 2 };
    let order = [2, 0, 4, 1, 7, 5];
    let found = families.stand_ins(&order, Shape::single(2), &[100; 8], limits, &[]).unwrap();
    assert_eq!(found.served, [2, 0, 2, 1, 2, 5]);
    assert_eq!((found.count, &found.holds[..]), (2, &[Hold { from: 0, until: 4 }][..]));
    assert_eq!((found.held_until(0), found.held_until(2)), (Some(4), None));
    // In one batch nothing is served twice, and without memory nothing is served again.
    assert_eq!(families.stand_ins(&order, Shape::single(6), &[100; 8], limits, &[]).unwrap().count, 0);
    let none = StandInLimits { held_bytes_max: 99, ..limits };
    assert_eq!(families.stand_ins(&order, Shape::single(2), &[100; 8], none, &[]).unwrap().served, order);
}

#[test]
fn a_rank_stands_in_only_with_what_it_fetched_itself() {
    let families = families(4, &[&[0, 1]]);
    let limits = StandInLimits { held_bytes_max: 100, repeats_max: 2 };
    let shape = Shape { batch: 1, rank: 0, world: 2, uneven: Uneven::Pad, drop_last: false };
    let same_rank = families.stand_ins(&[0, 2, 1, 3], shape, &[1; 4], limits, &[]).unwrap();
    assert_eq!(same_rank.served, [0, 2, 0, 3]);
    let other_rank = families.stand_ins(&[0, 2, 3, 1], shape, &[1; 4], limits, &[]).unwrap();
    assert_eq!(other_rank.served, [0, 2, 3, 1]);
}

/// One rank's walk by the definition: a list of what is held, searched from end to end.
fn naive_stand_ins(
    families: &Families,
    order: &[u32],
    batch: usize,
    sizes: &[u32],
    limits: StandInLimits,
    always: &[u32],
) -> Vec<u32> {
    let mut held: Vec<u32> = Vec::new(); // in the order of fetching
    let mut used: BTreeMap<u32, usize> = BTreeMap::new();
    let mut repeats: BTreeMap<u32, u32> = BTreeMap::new();
    let mut served: Vec<u32> = Vec::new();
    for (position, &id) in order.iter().enumerate() {
        let begin = position / batch * batch;
        let end = (begin + batch).min(order.len());
        let relatives = families.family(id);
        let stand_in = held
            .iter()
            .copied()
            .filter(|j| {
                relatives.contains(j) && !served[begin..].contains(j) && !order[begin..end].contains(j)
            })
            .min_by_key(|j| used[j]);
        if relatives.is_empty() {
            served.push(id);
        } else if let Some(j) = stand_in.filter(|_| !held.contains(&id) && !always.contains(&id)) {
            served.push(j);
            used.insert(j, position);
            *repeats.entry(j).or_default() += 1;
            held.retain(|h| *h != j || repeats[&j] < limits.repeats_max);
        } else {
            served.push(id);
            used.insert(id, position);
            let size = |id: u32| u64::from(sizes[id as usize]);
            let spent = repeats.get(&id).is_some_and(|n| *n >= limits.repeats_max);
            if !held.contains(&id) && size(id) <= limits.held_bytes_max && !spent {
                while held.iter().map(|&id| size(id)).sum::<u64>() + size(id) > limits.held_bytes_max {
                    held.remove(0);
                }
                held.push(id);
            }
        }
    }
    served
}

proptest! {
    #[test]
    fn grouping_is_leader_clustering(hashes in hashes(160), radius in 0_u32..=10, cross_label: bool, classes in 1_u32..4) {
        let labels: Vec<u32> = (0..hashes.len() as u32).map(|id| id % classes).collect();
        let found = Families::group(&hashes, &labels, radius, cross_label).unwrap();
        let naive = naive_leaders(&hashes, &labels, radius, cross_label);
        prop_assert_eq!(&found, &Families::of_leaders(&naive, radius, cross_label));
        for (id, leader) in naive.iter().enumerate() {
            prop_assert_eq!(found.leader(id as u32), *leader);
        }
    }

    #[test]
    fn bytes_come_back_and_damage_is_noticed(hashes in hashes(80), at: prop::sample::Index, bit in 0..8_u32, cut: prop::sample::Index) {
        let labels = vec![0; hashes.len()];
        let families = Families::group(&hashes, &labels, 3, false).unwrap();
        let samples = families.samples();
        let mut bytes = families.to_bytes();
        prop_assert_eq!(&Families::from_bytes(&bytes, samples).unwrap(), &families);
        prop_assert!(Families::from_bytes(&bytes, samples + 1).is_err());
        prop_assert!(Families::from_bytes(&bytes[..cut.index(bytes.len())], samples).is_err());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        // Another sound value may come of it; it must be one that the rest of the code can rely on.
        if let Ok(other) = Families::from_bytes(&bytes, samples) {
            prop_assert_eq!(Families::from_bytes(&other.to_bytes(), samples).unwrap(), other);
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_families(bytes in prop::collection::vec(any::<u8>(), 0..200), samples in 0_u32..9) {
        let _ = Families::from_bytes(&bytes, samples);
    }

    #[test]
    fn removal_keeps_one_of_each_family_and_all_that_stay(
        hashes in hashes(120), epoch in 0_u64..50, seed: u64, step in 1_usize..4, every in 1_usize..9, stay: bool,
    ) {
        let families = Families::group(&hashes, &vec![0; hashes.len()], 4, false).unwrap();
        let ids: Vec<u32> = (0..hashes.len() as u32).step_by(step).collect();
        let always: Vec<u32> = if stay { ids.iter().copied().step_by(every).collect() } else { Vec::new() };
        let kept = families.remove(&ids, epoch, seed, &always);
        prop_assert!(always.iter().all(|id| kept.contains(id)));
        let mut leaders: Vec<u32> = ids.iter().map(|&id| families.leader(id)).collect();
        leaders.sort_unstable();
        leaders.dedup();
        let mut kept_leaders: Vec<u32> = kept.iter().map(|&id| families.leader(id)).collect();
        kept_leaders.sort_unstable();
        // Who shares a family with one that stays goes, but for those that stay themselves.
        let of = |ids: &[u32], leader: u32| ids.iter().filter(|&&id| families.leader(id) == leader).count();
        prop_assert!(leaders.iter().all(|&leader| of(&kept, leader) == of(&always, leader).max(1)));
        kept_leaders.dedup();
        prop_assert_eq!(kept_leaders, leaders, "each family once, each loner once");
        prop_assert!(kept.iter().all(|id| ids.contains(id)) && kept.is_sorted());
    }

    #[test]
    fn stand_ins_are_what_a_naive_cache_gives(
        hashes in hashes(120), seed: u64, batch in 1_u32..20, held in 0_u64..400, repeats_max in 0_u32..4, twice: bool,
        stay: bool,
    ) {
        let samples = hashes.len() as u32;
        let families = Families::group(&hashes, &vec![0; hashes.len()], 4, false).unwrap();
        let sizes: Vec<u32> = (0..samples).map(|id| 1 + id % 40).collect();
        let mut order: Vec<u32> = crate::rng::Stream::from_key(seed).permutation(samples);
        if twice {
            order.extend_from_within(..order.len() / 3);
        }
        let limits = StandInLimits { held_bytes_max: held, repeats_max };
        let always: Vec<u32> = (0..samples).step_by(3).filter(|_| stay).collect();
        let found = families.stand_ins(&order, Shape::single(batch), &sizes, limits, &always).unwrap();
        let other = order.iter().zip(&found.served).filter(|(asked, served)| asked != served);
        prop_assert!(other.into_iter().all(|(asked, _)| !always.contains(asked)));
        if repeats_max > 0 {
            let naive = naive_stand_ins(&families, &order, batch as usize, &sizes, limits, &always);
            prop_assert_eq!(&found.served, &naive);
        }
        check_stand_ins(&families, &order, &found, batch as usize, repeats_max)?;
        check_holds(&order, &found, &sizes, held)?;
    }
}

fn check_stand_ins(
    families: &Families,
    order: &[u32],
    found: &StandIns,
    batch: usize,
    repeats_max: u32,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.served.len(), order.len());
    let mut repeats = BTreeMap::new();
    let mut count = 0;
    for (asked, served) in order.iter().zip(&found.served).filter(|(asked, served)| asked != served) {
        prop_assert!(families.family(*asked).contains(served), "only relatives stand in");
        *repeats.entry(served).or_insert(0) += 1;
        count += 1;
    }
    prop_assert_eq!(found.count, count);
    prop_assert!(repeats.values().all(|n| *n <= repeats_max));
    for (asked, served) in order.chunks(batch).zip(found.served.chunks(batch)) {
        let twice =
            |ids: &[u32]| ids.iter().filter(|id| ids.iter().filter(|other| other == id).count() > 1).count();
        prop_assert!(twice(served) <= twice(asked), "nothing is served twice in a batch");
    }
    Ok(())
}

/// The holds are enough to serve everything that is not fetched, and stay within the limit.
fn check_holds(
    order: &[u32],
    found: &StandIns,
    sizes: &[u32],
    held_bytes_max: u64,
) -> Result<(), TestCaseError> {
    let mut held: Vec<(u32, u32)> = Vec::new();
    for (position, (asked, served)) in order.iter().zip(&found.served).enumerate() {
        if asked != served {
            prop_assert!(held.iter().any(|(id, until)| id == served && *until >= position as u32));
        }
        if let Some(until) = found.held_until(position as u32) {
            prop_assert!(until > position as u32);
            held.push((*served, until));
        }
        held.retain(|(_, until)| *until > position as u32);
        prop_assert!(
            held.iter().map(|(id, _)| u64::from(sizes[*id as usize])).sum::<u64>() <= held_bytes_max
        );
    }
    Ok(())
}
