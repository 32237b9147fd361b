//! The cold region: once each, within its bytes, never anyone who is not cold.

use super::*;
use proptest::prelude::*;

fn region(sizes: &[u32], bytes_max: u64) -> Cold {
    Cold::new(sizes.into(), PackSize { bytes: 40, samples_min: 2, samples_max: 5 }, bytes_max, 3)
}

/// Reads everything there is room for.
fn fill(cold: &mut Cold) -> Vec<Pack> {
    let mut packs = Vec::new();
    while let Some(pack) = cold.next_pack(&mut Vec::new()) {
        cold.arrived(&pack, |_| true, &mut Vec::new());
        packs.push(pack);
    }
    packs
}

proptest! {
    /// Whatever the order of requests and of packs: every cold sample is served exactly once in every epoch, by itself
    /// or as a stand-in, as long as one can wait; the bytes stay within the limit; and what is told to go is gone.
    #[test]
    fn every_cold_sample_once_per_epoch(
        sizes in prop::collection::vec(0_u32..30, 40), bytes_max in 30_u64..200,
        epochs in prop::collection::vec((prop::collection::vec(any::<bool>(), 40), any::<u64>()), 1..4),
    ) {
        let mut cold = region(&sizes, bytes_max);
        let mut held = [false; 40];
        let mut coming: Vec<Pack> = Vec::new();
        for (epoch, (is_cold, random)) in epochs.into_iter().enumerate() {
            let mut stream = Stream::from_key(random);
            let ids: Vec<u32> = (0..40).filter(|&id| is_cold[id as usize]).collect();
            let mut gone = Vec::new();
            cold.begin(epoch as u64, &ids, &mut gone);
            let mut left: Vec<u32> = ids.clone();
            let mut served: Vec<u32> = Vec::new();
            while !left.is_empty() {
                for id in gone.drain(..) {
                    held[id.0 as usize] = false;
                    prop_assert!(!cold.holds(id));
                }
                match stream.below(3) {
                    0 => coming.extend(cold.next_pack(&mut gone)),
                    1 if !coming.is_empty() => {
                        let pack = coming.swap_remove(stream.below(coming.len() as u64) as usize);
                        pack.ids.iter().for_each(|id| held[id.0 as usize] = true);
                        cold.arrived(&pack, |_| true, &mut gone);
                    }
                    _ => {
                        let place = stream.below(left.len() as u64) as usize;
                        match cold.serve(SampleId(left[place])) {
                            Served::Exact => served.push(left.swap_remove(place)),
                            Served::StandIn(other) => {
                                prop_assert!(is_cold[other.0 as usize] && held[other.0 as usize]);
                                left.swap_remove(place);
                                served.push(other.0);
                            }
                            Served::Empty => prop_assert!(cold.takes_part(SampleId(left[place]))),
                        }
                    }
                }
                prop_assert!(cold.bytes() <= bytes_max);
                let here: u64 = (0..40).filter(|&id| cold.holds(SampleId(id))).map(|id| cold.size(id)).sum();
                let on_the_way: u64 = coming.iter().map(|pack| pack.bytes).sum();
                prop_assert_eq!(cold.bytes(), here + on_the_way);
            }
            gone.drain(..).for_each(|id| held[id.0 as usize] = false);
            served.sort_unstable();
            prop_assert_eq!(served, ids);
        }
    }
}

#[test]
fn packs_are_runs_of_neighbours_in_a_shuffled_order() {
    let ids: Vec<u32> = (0..600).filter(|id| id % 3 != 0).collect();
    let cut = |epoch: u64, ids: &[u32]| {
        let mut cold = region(&[10; 600], 1 << 20);
        cold.begin(epoch, ids, &mut Vec::new());
        let packs = fill(&mut cold);
        packs.iter().map(|pack| pack.ids.iter().map(|id| id.0).collect()).collect::<Vec<Vec<u32>>>()
    };
    let packs = cut(1, &ids);
    // Each is a run of the cold ids, of 4 because 5 would exceed 40 bytes; together they are all.
    for pack in &packs {
        let start = ids.binary_search(&pack[0]).unwrap();
        assert_eq!(pack[..], ids[start..start + pack.len()]);
        assert_eq!(pack.len(), 4);
    }
    let mut all = packs.concat();
    assert!(!all.is_sorted(), "packs come in the order of the store");
    all.sort_unstable();
    assert_eq!(all, ids);
    assert_ne!(cut(2, &ids), packs, "two epochs in the same order");
    // Other samples are cold, other packs are cut.
    assert_eq!(cut(1, &ids[..9]).len(), 3);
}

#[test]
fn packs_keep_to_bytes_and_numbers() {
    for (size, bytes_max, expected) in
        [(1, 1_000, 5), (15, 1_000, 2), (30, 1_000, 2), (30, 100, 1), (60, 100, 1)]
    {
        let mut cold = region(&[size; 20], bytes_max);
        cold.begin(0, &(0..20).collect::<Vec<_>>(), &mut Vec::new());
        assert_eq!(cold.next_pack(&mut Vec::new()).unwrap().ids.len(), expected, "{size} of {bytes_max}");
    }
    // One that is larger than the region is not read into it, and nobody stands in for it.
    let mut cold = region(&[10, 200, 10], 100);
    cold.begin(0, &[0, 1, 2, 9], &mut Vec::new());
    fill(&mut cold);
    assert_eq!(cold.len(), 2);
    assert!(!cold.takes_part(SampleId(1)) && !cold.takes_part(SampleId(9)));
    assert_eq!((cold.serve(SampleId(1)), cold.serve(SampleId(9))), (Served::Empty, Served::Empty));
}

#[test]
fn nobody_is_served_twice_and_the_served_make_room() {
    let mut cold = region(&[10; 8], 40);
    cold.begin(0, &[0, 1, 2, 3, 4, 5], &mut Vec::new());
    fill(&mut cold);
    assert_eq!(cold.len(), 4);
    let here: Vec<u32> = (0..8).filter(|&id| cold.holds(SampleId(id))).collect();
    let mut gone = Vec::new();
    assert_eq!(cold.next_pack(&mut gone), None, "there is no room");
    assert_eq!(cold.serve(SampleId(here[0])), Served::Exact);
    assert_eq!(cold.serve(SampleId(here[1])), Served::Exact);
    // Served already: another one stands in.
    assert!(matches!(cold.serve(SampleId(here[0])), Served::StandIn(id) if here[2..].contains(&id.0)));
    let pack = cold.next_pack(&mut gone).unwrap();
    assert_eq!(gone, [SampleId(here[0]), SampleId(here[1])], "who was served first goes first");
    assert_eq!(cold.bytes(), 40);
    cold.failed(&pack);
    assert_eq!((cold.bytes(), cold.len()), (20, 2));
    // A pack that comes twice, or was given up, brings nothing.
    cold.arrived(&pack, |_| true, &mut gone);
    assert_eq!(cold.len(), 2);
}

#[test]
fn stand_ins_of_one_pack_are_kept_apart() {
    let mut cold = region(&[10; 200], 1_000);
    cold.begin(0, &(0..200).collect::<Vec<_>>(), &mut Vec::new());
    fill(&mut cold);
    let absent: Vec<u32> = (0..200).filter(|&id| !cold.holds(SampleId(id))).collect();
    let served: Vec<u32> = absent
        .iter()
        .take(60)
        .map(|&id| match cold.serve(SampleId(id)) {
            Served::StandIn(other) => other.0,
            other => panic!("{other:?}"),
        })
        .collect();
    // Packs of 4: in the order of arrival three of four would have their neighbour beside them.
    let beside = served.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 4).count();
    assert!(beside < 12, "{beside} of 59: {served:?}");
}

#[test]
fn a_new_epoch_keeps_what_is_still_cold() {
    let mut cold = region(&[10; 8], 40);
    cold.begin(0, &[0, 1, 2, 3], &mut Vec::new());
    fill(&mut cold);
    assert_eq!(cold.serve(SampleId(1)), Served::Exact);
    let mut gone = Vec::new();
    cold.begin(1, &[1, 2, 3, 5], &mut gone);
    assert_eq!(gone, [SampleId(0)]);
    assert_eq!(cold.serve(SampleId(1)), Served::Exact, "a new epoch, a new turn");
    assert_eq!(cold.next_pack(&mut gone).unwrap().ids, [SampleId(5)], "what is here is not read again");
    // What was read past the region is in no pack.
    cold.begin(2, &[6, 7], &mut gone);
    cold.skip(SampleId(6));
    assert_eq!(fill(&mut cold).iter().flat_map(|pack| pack.ids.clone()).collect::<Vec<_>>(), [SampleId(7)]);
}

#[test]
fn the_size_hides_the_time_of_a_pack() {
    let sized = |now, bytes_per_s, refill_s, waits, occupancy_low| {
        sized(1_000_000, now, &Pressure { bytes_per_s, refill_s, waits, occupancy_low })
    };
    // Now, bytes per second, seconds, waits, occupancy -> next.
    assert_eq!(sized(100_000, 0.0, 0.0, 0, 0.5), 100_000, "no reason to change");
    assert_eq!(sized(100_000, 0.0, 0.0, 3, 0.5), 110_000, "waits: a tenth more");
    assert_eq!(sized(100_000, 500_000.0, 0.15, 3, 0.5), 150_000, "waits: what hides a pack");
    assert_eq!(sized(100_000, 0.0, 0.0, 0, 0.95), 90_000, "never needed: a tenth less");
    assert_eq!(sized(100_000, 480_000.0, 0.1, 0, 0.95), 96_000, "but not below what hides a pack");
    assert_eq!(sized(195_000, 0.0, 0.0, 9, 0.0), 200_000, "at most a fifth");
    assert_eq!(sized(21_000, 0.0, 0.0, 0, 1.0), 20_000, "at least a fiftieth");
}

#[test]
fn pressure_is_what_the_epoch_saw() {
    let mut cold = region(&[10; 100], 200);
    let ids: Vec<u32> = (0..100).collect();
    cold.begin(0, &ids, &mut Vec::new());
    assert_eq!(cold.serve(SampleId(0)), Served::Empty);
    assert_eq!(cold.pressure(1.0, 2.0).waits, 1);
    cold.begin(1, &ids, &mut Vec::new());
    for id in 0..50 {
        fill(&mut cold);
        cold.serve(SampleId(id));
    }
    let pressure = cold.pressure(1.0, 2.0);
    assert!(pressure.waits == 0 && pressure.occupancy_low > 0.7, "{pressure:?}");
    cold.begin(2, &ids, &mut Vec::new());
    fill(&mut cold);
    (0..15).for_each(|id| _ = cold.serve(SampleId(id)));
    assert!(cold.pressure(1.0, 2.0).occupancy_low < 0.4, "{:?}", cold.pressure(1.0, 2.0));
}

#[test]
fn the_lowest_scores_are_cold() {
    let scores = [0.5, 0.1, f32::NAN, 0.9, 0.1, 0.3];
    for (chosen, share, expected) in [
        (&[0, 1, 2, 3, 4, 5][..], 0.5, &[1, 4, 5][..]),
        (&[0, 1, 2, 3, 4, 5], 0.7, &[1, 4]),
        (&[0, 1, 2, 3, 4, 5], 0.84, &[4]),
        (&[1, 3, 4, 5], 0.5, &[1, 4]),
        (&[1, 3], 1.0, &[]),
        (&[1, 3], 0.0, &[1, 3]),
    ] {
        assert_eq!(coldest(chosen, &scores, share), expected, "{share} of {chosen:?}");
    }
}
