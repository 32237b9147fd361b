//! Every policy again, as plainly as possible: lists that are searched, sorted and summed anew at every step.
//!
//! The real one must hold exactly the same samples after any steps, and never more bytes than it may.

use super::*;
use proptest::prelude::*;

struct Model {
    policy: Policy,
    sizes: Vec<u32>,
    bytes_max: u64,
    horizon: usize,
    residents: Vec<u32>,
    /// Requests since it came in, and the time of the last.
    asked: Vec<(u32, u64)>,
    now: u64,
    values: Vec<f32>,
    missed: Vec<bool>,
    plans: Vec<Plan>,
    saving: (f64, f64),
    updated: Option<Vec<u32>>,
    packages: Packages,
    open: Vec<u32>,
}

struct Plan {
    job: JobId,
    full: bool,
    weight: f64,
    order: Vec<u32>,
    consumed: Vec<u32>,
}

fn count(list: &[u32], id: u32) -> usize {
    list.iter().filter(|other| **other == id).count()
}

impl Model {
    fn left(plan: &Plan, id: u32) -> usize {
        count(&plan.order, id) - count(&plan.consumed, id)
    }

    fn near(&self, id: u32) -> bool {
        self.plans.iter().any(|plan| {
            let end = (plan.consumed.len() + self.horizon).min(plan.order.len());
            Model::left(plan, id) > 0 && plan.order[..end].contains(&id)
        })
    }

    /// Value, and value per byte.
    fn worth(&self, id: u32, but_one: bool) -> (f64, f32) {
        let size = f64::from(self.sizes[id as usize].max(1));
        let value = f64::from(self.values[id as usize]);
        if self.policy == Policy::Score {
            return (value, value as f32);
        }
        let uses = self.plans.iter().flat_map(|plan| vec![plan.weight; Model::left(plan, id)]);
        let mut uses: Vec<f64> = uses.collect();
        uses.sort_by(f64::total_cmp);
        if but_one {
            uses.pop();
        }
        let worth = (uses.iter().sum::<f64>() + value) * (self.saving.0 + self.saving.1 * size);
        (worth, (worth / size) as f32)
    }

    fn bytes(&self) -> u64 {
        self.residents.iter().map(|&id| u64::from(self.sizes[id as usize])).sum()
    }

    /// Who goes first.
    fn ordered(&self) -> Vec<u32> {
        let mut ids = self.residents.clone();
        ids.sort_unstable();
        match self.policy {
            Policy::Lru => ids.sort_by_key(|&id| self.asked[id as usize].1),
            Policy::Lfu => ids.sort_by_key(|&id| self.asked[id as usize]),
            Policy::Score => ids.sort_by(|&a, &b| self.worth(a, false).1.total_cmp(&self.worth(b, false).1)),
            Policy::Foresight => {
                ids.retain(|&id| !self.near(id));
                ids.sort_by(|&a, &b| self.worth(a, false).1.total_cmp(&self.worth(b, false).1));
            }
            Policy::Static | Policy::Quiver => ids.clear(),
        }
        ids
    }

    fn ask(&mut self, job: JobId, id: u32) -> bool {
        self.now += 1;
        if let Some(plan) = self.plans.iter_mut().find(|plan| plan.job == job)
            && Model::left(plan, id) > 0
        {
            plan.consumed.push(id);
        }
        let hit = self.residents.contains(&id);
        if hit {
            let asked = &mut self.asked[id as usize];
            *asked = (asked.0 + 1, self.now);
        } else {
            self.missed[id as usize] = true;
        }
        hit
    }

    fn insert(&mut self, id: u32) {
        self.missed[id as usize] = false;
        self.residents.push(id);
        self.asked[id as usize] = (1, self.now);
    }

    fn offer(&mut self, id: u32) -> bool {
        if self.residents.contains(&id) {
            return true;
        }
        let but_one = !std::mem::take(&mut self.missed[id as usize]);
        let size = u64::from(self.sizes[id as usize]);
        if self.policy == Policy::Quiver {
            return self.offer_package(id, true);
        }
        if size > self.bytes_max {
            return false;
        }
        let mut out: Vec<u32> = Vec::new();
        let freed = |out: &[u32]| out.iter().map(|&id| u64::from(self.sizes[id as usize])).sum::<u64>();
        let mut order = self.ordered().into_iter();
        while self.bytes() - freed(&out) + size > self.bytes_max {
            let Some(next) = order.next() else { return false };
            out.push(next);
        }
        let full = !self.plans.is_empty() && self.plans.iter().all(|plan| plan.full);
        if !out.is_empty() && matches!(self.policy, Policy::Score | Policy::Foresight) {
            let lost: f64 = out.iter().map(|&id| self.worth(id, false).0).sum();
            let passing = self.policy == Policy::Foresight && !but_one && self.near(id);
            if (lost >= self.worth(id, but_one).0 && !passing) || (full && self.policy == Policy::Score) {
                return false;
            }
        }
        self.residents.retain(|id| !out.contains(id));
        self.insert(id);
        true
    }

    fn offer_package(&mut self, id: u32, may_evict: bool) -> bool {
        let Some(package) = self.packages.of(id) else { return false };
        if !self.open.contains(&package) {
            if self.open.len() == 2 {
                let wanted = |package: u32| {
                    let of = |id: &&u32| self.packages.of(**id) == Some(package);
                    self.plans.iter().any(|plan| {
                        plan.order.iter().filter(of).count() > plan.consumed.iter().filter(of).count()
                    })
                };
                let Some(old) = self.open.iter().copied().find(|old| may_evict && !wanted(*old)) else {
                    return false;
                };
                self.open.retain(|package| *package != old);
                let packages = &self.packages;
                self.residents.retain(|id| packages.of(*id) != Some(old));
            }
            self.open.push(package);
        }
        self.insert(id);
        true
    }

    fn restore(&mut self, id: u32) -> bool {
        let fits = self.bytes() + u64::from(self.sizes[id as usize]) <= self.bytes_max;
        match self.policy {
            _ if self.residents.contains(&id) => return true,
            Policy::Quiver => return fits && self.offer_package(id, false),
            _ => {}
        }
        if fits {
            self.insert(id);
        }
        fits
    }
}

const SAMPLES: u32 = 24;

/// Steps that anyone may take: what, for which job, which sample, and a number.
type Step = (u8, u32, u32, u8);

fn check(policy: Policy, sizes: &[u32], bytes_max: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let options = CacheOptions { cold_share: 0.0, horizon: 3, ..CacheOptions::new(policy, bytes_max) };
    let mut cache = Cache::new(options, sizes.into(), 7).unwrap();
    let mut model = Model {
        policy,
        sizes: sizes.to_vec(),
        bytes_max,
        horizon: 3,
        residents: Vec::new(),
        asked: vec![(0, 0); sizes.len()],
        now: 0,
        values: vec![1.0; sizes.len()],
        missed: vec![false; sizes.len()],
        plans: Vec::new(),
        saving: (0.0, 1.0),
        updated: None,
        packages: Packages::cut(sizes, bytes_max, 7),
        open: Vec::new(),
    };
    let mut snapshots = std::collections::VecDeque::new();
    for &(what, job, id, number) in steps {
        let sample = SampleId(id);
        let job = JobId(job);
        let mut gone = Vec::new();
        let before = held(&cache);
        match what {
            0..8 => {
                let hit = cache.ask(job, sample);
                prop_assert_eq!(hit, model.ask(job, id));
                if !hit {
                    let worth = cache.worth(sample);
                    let kept = cache.offer(sample, &mut gone);
                    prop_assert_eq!(kept, model.offer(id), "offer of {}", id);
                    prop_assert_eq!(worth, kept);
                }
            }
            8..10 => {
                let (held, worth) = (cache.holds(sample), cache.worth(sample));
                let kept = cache.offer(sample, &mut gone);
                prop_assert_eq!(kept, model.offer(id), "prefetch of {}", id);
                prop_assert_eq!(worth, kept && !held);
            }
            10 => {
                // Some samples twice, some not, one that does not exist.
                let order: Vec<u32> =
                    (0..u32::from(number) % 20).map(|i| (id + i * i) % (SAMPLES + 1)).collect();
                cache.announce(job, number % 2 == 0, &order).unwrap();
                let weight = model.plans.iter().find(|plan| plan.job == job).map_or(1.0, |plan| plan.weight);
                model.plans.retain(|plan| plan.job != job);
                let order = order.into_iter().filter(|id| *id < SAMPLES).collect();
                let plan = Plan { job, full: number % 2 == 0, weight, order, consumed: Vec::new() };
                model.plans.push(plan);
            }
            11 => seldom(&mut cache, &mut model, job, id, number)?,
            12 => {
                prop_assert_eq!(cache.restore(sample), model.restore(id));
            }
            13 => {
                if cache.update(sample, f32::from(number) / 32.0) {
                    model.values[id as usize] = f32::from(number) / 32.0;
                    model.updated.iter_mut().for_each(|updated| updated.push(id));
                }
            }
            14 => {
                snapshots.push_back(cache.snapshot());
                model.updated = policy.values().then(Vec::new);
            }
            _ => {
                let values = |id: u32| f32::from((id as u8).wrapping_mul(number) % 8) / 8.0;
                let mut values: Vec<f32> = (0..SAMPLES).map(values).collect();
                if let Some(snapshot) = snapshots.pop_front() {
                    cache.swap(snapshot.rebuild(values.clone()).unwrap());
                    for id in model.updated.take().unwrap_or_default() {
                        values[id as usize] = model.values[id as usize];
                    }
                    if policy.values() {
                        model.values = values;
                    }
                }
            }
        }
        let mut expected = model.residents.clone();
        expected.sort_unstable();
        let now = held(&cache);
        prop_assert_eq!(&now, &expected, "after {:?}", (what, job, id, number));
        prop_assert!(cache.bytes() <= bytes_max);
        prop_assert_eq!(cache.bytes(), model.bytes());
        prop_assert_eq!(cache.len() as usize, expected.len());
        // Who is told to go is who went, each once.
        let mut gone: Vec<u32> = gone.into_iter().map(|id| id.0).collect();
        gone.sort_unstable();
        let went: Vec<u32> = before.into_iter().filter(|id| !now.contains(id)).collect();
        prop_assert!(what == 11 || gone == went, "told {:?}, went {:?}", gone, went);
    }
    Ok(())
}

/// What happens now and then: a job leaves or counts differently, reads cost something else, a sample is lost.
fn seldom(
    cache: &mut Cache,
    model: &mut Model,
    job: JobId,
    id: u32,
    number: u8,
) -> Result<(), TestCaseError> {
    match number % 4 {
        0 => {
            cache.leave(job);
            model.plans.retain(|plan| plan.job != job);
        }
        1 => {
            let known = cache.weigh(job, f64::from(number / 64));
            let plan = model.plans.iter_mut().find(|plan| plan.job == job);
            prop_assert_eq!(known, plan.is_some());
            plan.into_iter().for_each(|plan| plan.weight = f64::from(number / 64));
        }
        2 => {
            model.saving = (f64::from(number / 16), 0.25);
            cache.set_saving(model.saving.0, model.saving.1);
        }
        _ => {
            cache.remove(SampleId(id));
            model.residents.retain(|other| *other != id);
        }
    }
    Ok(())
}

fn held(cache: &Cache) -> Vec<u32> {
    (0..SAMPLES).filter(|&id| cache.holds(SampleId(id))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_policy_is_its_model(
        sizes in prop_oneof![
            Just(vec![10_u32; SAMPLES as usize]),
            prop::collection::vec(prop_oneof![Just(0_u32), 1_u32..9, 5_u32..60], SAMPLES as usize),
        ],
        bytes_max in 60_u64..150,
        steps in prop::collection::vec((0_u8..16, 0_u32..3, 0..SAMPLES, any::<u8>()), 0..150),
    ) {
        for (_, policy) in Policy::NAMES {
            check(policy, &sizes, bytes_max, &steps)?;
        }
    }
}
