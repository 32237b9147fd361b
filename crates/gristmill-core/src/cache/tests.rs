//! The published example, and every policy against a naive model of it.

use super::*;

fn cache(policy: Policy, bytes_max: u64, sizes: &[u32]) -> Cache {
    let options = CacheOptions { cold_share: 0.0, ..CacheOptions::new(policy, bytes_max) };
    Cache::new(options, sizes.into(), 7).unwrap()
}

fn request(cache: &mut Cache, id: u32) -> bool {
    let hit = cache.ask(JobId(0), SampleId(id));
    if !hit {
        cache.offer(SampleId(id), &mut Vec::new());
    }
    hit
}

fn residents(cache: &Cache) -> Vec<u32> {
    (0..cache.sizes.len() as u32).filter(|&id| cache.holds(SampleId(id))).collect()
}

#[test]
fn published_example_of_the_hot_region() {
    let mut cache = cache(Policy::Score, 2, &[1; 4]);
    cache.renew(vec![1.0, 0.5, 0.7, 0.6]).unwrap();
    for (id, after) in [(0, &[0][..]), (1, &[0, 1]), (2, &[0, 2]), (3, &[0, 2])] {
        assert!(!request(&mut cache, id));
        assert_eq!(residents(&cache), after, "after {id}");
    }
    cache.renew(vec![0.1, 0.5, 0.9, 0.6]).unwrap();
    request(&mut cache, 3);
    assert_eq!(residents(&cache), [2, 3]);
}

#[test]
fn an_epoch_that_reads_everything_displaces_nobody() {
    let mut cache = cache(Policy::Score, 2, &[1; 4]);
    cache.renew(vec![0.1, 0.2, 0.3, 0.4]).unwrap();
    cache.announce(JobId(0), true, &[0, 1, 2, 3]).unwrap();
    (0..4).for_each(|id| _ = request(&mut cache, id));
    assert_eq!(residents(&cache), [0, 1]);
    // Another job that chooses is reason enough to go by scores; when it leaves, no more.
    cache.announce(JobId(1), false, &[3]).unwrap();
    assert!(cache.worth(SampleId(3)));
    cache.leave(JobId(1));
    assert!(!cache.worth(SampleId(3)));
}

#[test]
fn what_one_job_reads_waits_for_the_other_that_follows_it() {
    const SAMPLES: u32 = 400;
    const BEHIND: usize = 5;
    let options = CacheOptions { horizon: 10, ..CacheOptions::new(Policy::Foresight, 40) };
    let mut cache = Cache::new(options, vec![1; SAMPLES as usize].into(), 7).unwrap();
    // Those at the end of the epoch are here from before and wanted by both: by their worth alone nobody else comes in.
    (SAMPLES - 40..SAMPLES).for_each(|id| assert!(cache.restore(SampleId(id))));
    let order: Vec<u32> = (0..SAMPLES).collect();
    (0..2).for_each(|job| cache.announce(JobId(job), true, &order).unwrap());
    let mut reads = 0;
    for step in 0..SAMPLES as usize + BEHIND {
        let follower = step.checked_sub(BEHIND);
        for (job, at) in [(0, Some(step)), (1, follower)] {
            let Some(&id) = at.and_then(|at| order.get(at)) else { continue };
            if !cache.ask(JobId(job), SampleId(id)) {
                reads += 1;
                cache.offer(SampleId(id), &mut Vec::new());
            }
        }
    }
    assert!(reads <= SAMPLES, "each sample once at most, not once per job: {reads}");
}

#[test]
fn sizes_count_when_somebody_must_go() {
    let mut cache = cache(Policy::Score, 10, &[5, 5, 8, 10]);
    cache.renew(vec![0.3, 0.4, 0.7, 0.8]).unwrap();
    (0..2).for_each(|id| _ = request(&mut cache, id));
    assert!(!cache.worth(SampleId(2)), "0.7 is not more than 0.3 + 0.4");
    assert!(cache.worth(SampleId(3)));
}

#[test]
fn foresight_knows_what_is_asked_next() {
    let mut cache = cache(Policy::Foresight, 20, &[10; 6]);
    cache.renew(vec![0.5; 6]).unwrap();
    cache.announce(JobId(0), false, &[0, 1, 2, 0]).unwrap();
    (0..2).for_each(|id| _ = request(&mut cache, id));
    // 1 was used, and 0 will be again.
    assert!(!cache.worth(SampleId(2)), "2 is no better than 1 once it was used");
    cache.update(SampleId(2), 0.75);
    assert!(cache.worth(SampleId(2)));
    let mut gone = Vec::new();
    assert!(!cache.ask(JobId(0), SampleId(2)) && cache.offer(SampleId(2), &mut gone));
    assert_eq!((gone, residents(&cache)), (vec![SampleId(1)], vec![0, 2]));
    // A use that another job has announced is certain.
    cache.announce(JobId(1), false, &[5]).unwrap();
    cache.ask(JobId(0), SampleId(5));
    assert!(cache.worth(SampleId(5)));
    cache.leave(JobId(1));
    assert!(!cache.worth(SampleId(5)));
}

#[test]
fn what_another_tier_lets_go_was_not_read_for_a_use() {
    let mut cache = cache(Policy::Foresight, 10, &[10; 2]);
    cache.renew(vec![0.5; 2]).unwrap();
    request(&mut cache, 0);
    cache.announce(JobId(0), false, &[1]).unwrap();
    let mut gone = Vec::new();
    assert!(!cache.offer(SampleId(1), &mut gone), "read ahead for its only use");
    assert!(cache.spill(SampleId(1), &mut gone) && gone == [SampleId(0)]);
    assert!(!cache.spill(SampleId(9), &mut gone));
}

#[test]
fn foresight_prefers_what_saves_more_time_per_byte() {
    let mut cache = cache(Policy::Foresight, 20, &[10, 10, 5, 20]);
    // Where the latency is all, the small ones; where bytes are all, whoever is wanted most.
    cache.set_saving(1.0, 0.0);
    (0..2).for_each(|id| _ = request(&mut cache, id));
    cache.renew(vec![0.5, 0.5, 0.6, 0.9]).unwrap();
    assert!(cache.worth(SampleId(2)) && !cache.worth(SampleId(3)));
    cache.set_saving(0.0, 1.0);
    assert!(!cache.worth(SampleId(2)) && cache.worth(SampleId(3)));
}

#[test]
fn the_regions_share_the_bytes() {
    let options = CacheOptions::new(Policy::Score, 1_000);
    let mut cache = Cache::new(options, vec![10; 400].into(), 7).unwrap();
    let regions = |hot_bytes, hot_bytes_max, cold_bytes, cold_bytes_max| Regions {
        hot_bytes,
        hot_bytes_max,
        cold_bytes,
        cold_bytes_max,
    };
    assert_eq!(cache.regions(), regions(0, 1_000, 0, 0), "nothing is cold yet");
    cache.renew((0..400_u16).map(|id| 1.0 + f32::from(id)).collect()).unwrap();
    (0..100).for_each(|id| _ = request(&mut cache, id));
    assert_eq!(cache.regions(), regions(1_000, 1_000, 0, 0));
    // The cold ones come in packs, but for what the hot region has; the lowest scores of that make room for them.
    let mut gone = Vec::new();
    let ids: Vec<u32> = (5..10).chain(95..120).collect();
    cache.begin_cold(3, &ids, &mut gone);
    assert_eq!(cache.regions(), regions(900, 900, 0, 100));
    assert_eq!(gone, (0..10).map(SampleId).collect::<Vec<_>>());
    assert!(cache.takes_part(SampleId(5)), "one that had to go comes in a pack");
    assert_eq!(cache.serve(SampleId(99)), Served::Exact);
    assert_eq!(cache.serve(SampleId(105)), Served::Empty);
    let pack = cache.next_pack(&mut gone).unwrap();
    assert!(pack.ids.iter().all(|id| id.0 < 10 || id.0 >= 100), "{pack:?}");
    // One of them was read on its own meanwhile.
    let first = *pack.ids.iter().find(|id| id.0 >= 100).unwrap();
    let other = *pack.ids.iter().find(|id| **id != first).unwrap();
    assert!(cache.offer(first, &mut gone));
    gone.clear();
    cache.arrived(&pack, &mut gone);
    assert!(gone.is_empty() && cache.holds(first), "it is hot by now and keeps its bytes");
    assert!(cache.holds(other) && cache.ask(JobId(0), other));
    assert!(cache.bytes() <= 1_000);
    // There was a wait, so the cold region grows and the lowest scores of the hot one go.
    gone.clear();
    cache.adapt(0.0, 0.0, &mut gone);
    assert_eq!((cache.regions().hot_bytes_max, cache.regions().cold_bytes_max), (890, 110));
    assert_eq!(gone.len(), 1);
    assert!(cache.regions().hot_bytes <= 890 && !cache.holds(gone[0]));
    // An epoch without cold samples: who is in the cold region moves over, and nobody goes.
    let held: Vec<u32> = (0..400).filter(|id| cache.holds(SampleId(*id))).collect();
    let bytes = cache.bytes();
    gone.clear();
    cache.begin_cold(4, &[], &mut gone);
    cache.adapt(0.0, 0.0, &mut gone);
    assert!(gone.is_empty() && held.iter().all(|id| cache.is_hot(SampleId(*id))));
    assert_eq!(cache.regions(), regions(bytes, 1_000, 0, 0));
    let hot: Vec<u32> = (0..400).filter(|id| cache.is_hot(SampleId(*id))).take(20).collect();
    cache.begin_cold(5, &hot, &mut gone);
    assert!(gone.is_empty(), "what is cold is here already");
    // And one that has some again.
    cache.begin_cold(6, &ids, &mut gone);
    assert!(cache.regions().hot_bytes <= 890 && cache.bytes() <= 1_000);
    let mut fixed = CacheOptions::new(Policy::Score, 1_000);
    fixed.adapt = false;
    let mut cache = Cache::new(fixed, vec![10; 400].into(), 7).unwrap();
    cache.begin_cold(0, &ids, &mut gone);
    cache.serve(SampleId(105));
    cache.adapt(0.0, 0.0, &mut gone);
    assert_eq!(cache.regions().cold_bytes_max, 100);
}

#[test]
fn bad_input_is_refused() {
    let new = |options: CacheOptions, sizes: &[u32]| Cache::new(options, sizes.into(), 0);
    let usual = CacheOptions::new(Policy::Score, 100);
    assert!(new(usual.clone(), &[]).unwrap_err().0.contains("no samples"));
    assert!(new(usual.clone(), &[101, 200]).unwrap_err().0.contains("smallest sample has 101"));
    assert!(new(CacheOptions { cold_share: f64::NAN, ..usual.clone() }, &[1]).is_err());
    let pack = PackSize { samples_min: 9, samples_max: 8, ..PackSize::default() };
    assert!(new(CacheOptions { pack, ..usual.clone() }, &[1]).is_err());
    for (name, policy) in Policy::NAMES {
        assert_eq!((Policy::named(name), policy.name()), (Ok(policy), name));
        // Ids of another data set, in every function.
        let mut cache = new(CacheOptions::new(policy, 100), &[10; 4]).unwrap();
        let (strange, mut gone) = (SampleId(4), Vec::new());
        assert!(!cache.ask(JobId(0), strange) && !cache.offer(strange, &mut gone) && !cache.restore(strange));
        assert!(!cache.worth(strange) && !cache.holds(strange) && !cache.update(strange, 1.0));
        cache.remove(strange);
        cache.skip(strange);
        cache.announce(JobId(0), false, &[9, 1, 4, u32::MAX]).unwrap();
        assert_eq!(cache.serve(strange), Served::Empty);
        assert!(cache.announce(JobId(0), false, &[0; 11]).is_err());
        assert!(cache.snapshot().rebuild(vec![0.0; 5]).is_err());
        assert!(cache.renew(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0]).is_ok());
        (0..4).for_each(|id| _ = request(&mut cache, id));
        assert!(cache.bytes() <= 100);
    }
    assert!(Policy::named("lfru").unwrap_err().0.contains("did you mean"));
    let mut cache = new(usual, &[10; 4]).unwrap();
    (0..JOBS_MAX as u32).for_each(|job| cache.announce(JobId(job), true, &[]).unwrap());
    assert!(cache.announce(JobId(9_999), true, &[]).unwrap_err().0.contains("one too many"));
    assert!(cache.announce(JobId(1), true, &[]).is_ok());
}

#[test]
fn a_snapshot_that_is_forgotten_costs_no_more_and_more() {
    for policy in [Policy::Score, Policy::Foresight] {
        let mut cache = cache(policy, 20, &[10; 8]);
        let snapshot = cache.snapshot();
        let before = cache.overhead_bytes();
        for round in 0..1_000_u16 {
            request(&mut cache, u32::from(round % 8));
            cache.update(SampleId(u32::from(round % 8)), f32::from(round));
        }
        assert!(cache.overhead_bytes() < before + 1_000, "{policy:?}: {}", cache.overhead_bytes());
        drop(snapshot);
    }
}

#[test]
fn deciding_costs_little_beside_the_bytes() {
    // 20,000 samples of 110 KB, a fifth of them cached, and a plan.
    let sizes: Arc<[u32]> = vec![110_000; 20_000].into();
    for (name, policy) in Policy::NAMES {
        let options = CacheOptions::new(policy, 20_000 / 5 * 110_000);
        let mut cache = Cache::new(options, Arc::clone(&sizes), 1).unwrap();
        let order: Vec<u32> = (0..20_000).collect();
        cache.announce(JobId(0), false, &order).unwrap();
        cache.begin_cold(0, &order[10_000..], &mut Vec::new());
        let snapshot = cache.snapshot();
        order.iter().for_each(|&id| _ = request(&mut cache, id));
        cache.swap(snapshot.rebuild(vec![1.0; 20_000]).unwrap());
        let share = cache.overhead_bytes() as f64 / (0.8 * cache.options.bytes_max as f64);
        assert!(share > 1e-5 && share < 0.005, "{name}: {:.3} %", 100.0 * share);
    }
}
