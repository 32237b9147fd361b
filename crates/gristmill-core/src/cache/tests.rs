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
