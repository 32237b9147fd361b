//! What the jobs have announced: whom they will still ask for in their present epochs.
//!
//! A plan is exact, so a use that is left in it is certain. A job consumes its uses one by one as it asks, more or
//! less in the order of its plan; the next `horizon` of them are *near*: whoever is among them must not be let go
//! just before it is needed. Each job has one plan, the new one replaces the old, and a job that leaves takes its
//! plan with it, so a job that is gone holds nothing.

use super::JobId;
use crate::bits::Bits;

#[derive(Debug)]
struct Plan {
    job: JobId,
    full: bool,
    weight: f64,
    order: Vec<u32>,
    /// Uses consumed, and how many places of the order have come near.
    consumed: usize,
    entered: usize,
    /// Uses left of each sample.
    left: Vec<u8>,
    near: Bits,
}

/// The announced plans of all jobs.
#[derive(Debug)]
pub(super) struct Plans {
    of_jobs: Vec<Plan>,
    horizon: usize,
    /// Whether uses are counted; else only who is in a full epoch is known.
    counts: bool,
}

impl Plans {
    pub(super) fn new(horizon: u32, counts: bool) -> Plans {
        Plans { of_jobs: Vec::new(), horizon: horizon as usize, counts }
    }

    pub(super) fn len(&self) -> usize {
        self.of_jobs.len()
    }

    pub(super) fn knows(&self, job: JobId) -> bool {
        self.of_jobs.iter().any(|plan| plan.job == job)
    }

    /// Whether every job that has announced something is in a full epoch.
    pub(super) fn full(&self) -> bool {
        !self.of_jobs.is_empty() && self.of_jobs.iter().all(|plan| plan.full)
    }

    /// Replaces the plan of a job. Ids that do not exist are left out.
    pub(super) fn announce(&mut self, job: JobId, full: bool, order: &[u32], samples: usize) {
        let weight = self.of_jobs.iter().find(|plan| plan.job == job).map_or(1.0, |plan| plan.weight);
        self.of_jobs.retain(|plan| plan.job != job);
        let mut plan = Plan {
            job,
            full,
            weight,
            order: Vec::new(),
            consumed: 0,
            entered: 0,
            left: Vec::new(),
            near: Bits::default(),
        };
        if self.counts {
            plan.order = order.iter().copied().filter(|id| (*id as usize) < samples).collect();
            plan.left = vec![0; samples];
            for &id in &plan.order {
                plan.left[id as usize] = plan.left[id as usize].saturating_add(1);
            }
            plan.near = Bits::new(samples);
            plan.come_near(self.horizon, |_| ());
        }
        self.of_jobs.push(plan);
    }

    /// How much this job's uses count. Returns whether it has announced anything.
    pub(super) fn weigh(&mut self, job: JobId, weight: f64) -> bool {
        let plan = self.of_jobs.iter_mut().find(|plan| plan.job == job);
        plan.map(|plan| plan.weight = weight).is_some()
    }

    pub(super) fn leave(&mut self, job: JobId) {
        self.of_jobs.retain(|plan| plan.job != job);
    }

    /// Notes that a job asks for a sample; `touched` is told of those whose uses or nearness change.
    /// Returns whether the plan had this use.
    pub(super) fn consume(&mut self, job: JobId, id: u32, mut touched: impl FnMut(u32)) -> bool {
        let horizon = self.horizon;
        let Some(plan) = self.of_jobs.iter_mut().find(|plan| plan.job == job) else { return false };
        let Some(left) = plan.left.get_mut(id as usize).filter(|left| **left > 0) else { return false };
        *left -= 1;
        if *left == 0 {
            plan.near.set(id, false);
        }
        plan.consumed += 1;
        touched(id);
        plan.come_near(horizon, touched);
        true
    }

    /// Uses left of a sample in all plans.
    pub(super) fn left(&self, id: u32) -> u32 {
        self.of_jobs.iter().map(|plan| plan.left.get(id as usize).copied().map_or(0, u32::from)).sum()
    }

    /// Uses left of a sample, by the weights of the jobs; `but_one` leaves out the dearest of them.
    pub(super) fn certain(&self, id: u32, but_one: bool) -> f64 {
        let (mut sum, mut dearest) = (0.0, 0.0_f64);
        for plan in &self.of_jobs {
            let left = plan.left.get(id as usize).copied().unwrap_or(0);
            if left > 0 {
                sum += plan.weight * f64::from(left);
                dearest = dearest.max(plan.weight);
            }
        }
        if but_one { (sum - dearest).max(0.0) } else { sum }
    }

    /// Whether a sample is among the next uses of some job.
    pub(super) fn near(&self, id: u32) -> bool {
        self.counts && self.of_jobs.iter().any(|plan| plan.near.has(id))
    }

    pub(super) fn overhead_bytes(&self) -> u64 {
        let one = |plan: &Plan| {
            (4 * plan.order.capacity() + plan.left.capacity()) as u64 + plan.near.overhead_bytes()
        };
        self.of_jobs.iter().map(one).sum()
    }
}

impl Plan {
    /// Lets the places up to the horizon come near.
    fn come_near(&mut self, horizon: usize, mut touched: impl FnMut(u32)) {
        let end = self.consumed.saturating_add(horizon).min(self.order.len());
        while self.entered < end {
            let id = self.order[self.entered];
            self.entered += 1;
            // One that was asked for before its turn is not needed again.
            if self.left[id as usize] > 0 && !self.near.set(id, true) {
                touched(id);
            }
        }
    }
}
