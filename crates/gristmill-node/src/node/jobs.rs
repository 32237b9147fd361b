//! The jobs that a node serves: what each announced, how samples stand with it, and what caching brings to it.
//!
//! What caching brings is measured while a job works, not probed by holding it up: of the time since its epoch began,
//! the part in which it had asked for something that only the store had. That part is what an all-knowing cache would
//! save of its time, the benefit of iCACHE's probe.

use super::{JobReport, NodeOptions, Standing, Tier};
use crate::{Error, Result};
use gristmill_core::SampleId;
use gristmill_core::cache::cold::coldest;
use gristmill_core::cache::jobs::{Jobs as Columns, Relative, benefit};
use gristmill_core::cache::{JobId, Policy};
use std::sync::Arc;
use std::time::Instant;

/// The longest name of a job that is kept.
const NAME_CHARS_MAX: usize = 100;
/// How long a job must have worked before its benefit is believed.
const JUDGED_S_MIN: f64 = 0.2;

#[derive(Debug)]
struct Job {
    id: JobId,
    report: JobReport,
    /// Score or chance of being wanted, as the policy goes by.
    values: Vec<f32>,
    /// How much of its epoch was asked for.
    position: usize,
    look: Look,
    /// Where each sample comes in the order; empty unless somebody asks for that.
    places: Vec<u32>,
    since: Instant,
    waiting: u32,
    waiting_since: Instant,
    waited_s: f64,
}

/// How far a plan was looked along.
#[derive(Debug, Default)]
pub(super) struct Look {
    order: Arc<[u32]>,
    place: usize,
    end: usize,
}

impl Look {
    /// The next sample of the plan, as far ahead as may be looked.
    pub(super) fn peek(&self) -> Option<SampleId> {
        (self.place < self.end).then(|| SampleId(self.order[self.place]))
    }

    /// Goes on.
    pub(super) fn pass(&mut self) {
        self.place += 1;
    }
}

/// All jobs.
#[derive(Debug)]
pub(super) struct Jobs {
    known: Vec<Job>,
    columns: Columns,
    next: u32,
    samples: u32,
    policy: Policy,
}

/// The plan of an epoch.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) epoch: u64,
    /// Whether it has every sample.
    pub(super) full: bool,
    pub(super) order: Arc<[u32]>,
    /// Where each sample comes in the order; empty where nobody asks [`Jobs::soon`].
    pub(super) places: Vec<u32>,
}

/// What a new epoch of one job changes for the cache.
#[derive(Debug)]
pub(super) struct Changed {
    /// What every sample is worth now; none for a policy that does not go by that.
    pub(super) values: Option<Vec<f32>>,
    /// The samples that may be stood in for; none without stand-ins.
    pub(super) cold: Option<Vec<u32>>,
    /// How many bytes of cold samples the epoch before asked for per second, if that is known.
    pub(super) cold_bytes_per_s: Option<f64>,
    /// How much each job counts.
    pub(super) weights: Vec<(JobId, f64)>,
}

impl Jobs {
    pub(super) fn new(samples: u32, policy: Policy) -> Jobs {
        let relative = if policy == Policy::Foresight { Relative::Plain } else { Relative::Rank };
        Jobs { known: Vec::new(), columns: Columns::new(samples, relative), next: 0, samples, policy }
    }

    pub(super) fn join(&mut self, name: &str) -> Result<JobId> {
        let id = JobId(self.next);
        self.columns.join(id)?;
        self.next = self.next.wrapping_add(1);
        let now = Instant::now();
        let name = name.chars().take(NAME_CHARS_MAX).collect();
        self.known.push(Job {
            id,
            report: JobReport { id: id.0, name, ..JobReport::default() },
            values: Vec::new(),
            position: 0,
            look: Look::default(),
            places: Vec::new(),
            since: now,
            waiting: 0,
            waiting_since: now,
            waited_s: 0.0,
        });
        Ok(id)
    }

    pub(super) fn leave(&mut self, job: JobId) {
        self.known.retain(|known| known.id != job);
        self.columns.leave(job);
    }

    fn job(&mut self, job: JobId) -> Result<&mut Job> {
        let known = self.known.iter_mut().find(|known| known.id == job);
        known.ok_or_else(|| Error::config(format!("job {} has not joined, or has left", job.0)))
    }

    /// Takes how samples stand with a job.
    pub(super) fn stand(&mut self, job: JobId, standings: &[Standing]) -> Result<()> {
        let (samples, policy) = (self.samples as usize, self.policy);
        let job = self.job(job)?;
        if !policy.values() || standings.is_empty() {
            return Ok(());
        }
        job.values.resize(samples, 1.0);
        for standing in standings {
            let value = if policy == Policy::Score { standing.score } else { standing.wanted };
            job.values[standing.id.0 as usize] = value;
        }
        Ok(())
    }

    /// A job's new epoch: its plan replaces the old one, and what it said of samples now counts.
    pub(super) fn announce(
        &mut self,
        id: JobId,
        plan: Announced,
        options: &NodeOptions,
        room: u32,
    ) -> Result<Changed> {
        let Announced { epoch, full, order, places } = plan;
        // What stands in for one job's sample must be one that it has selected, and the cold region is everybody's.
        let alone = self.columns.len() == 1;
        let job = self.job(id)?;
        let now = Instant::now();
        let elapsed_s = (now - job.since).as_secs_f64();
        let judged = job.position > 0 && elapsed_s >= JUDGED_S_MIN;
        let (waited_s, asked) = (job.waited_s(now), job.position as f64);
        let cold = options.stand_ins.then(|| {
            let none = full || !alone || job.values.is_empty();
            if none { Vec::new() } else { coldest(&order, &job.values, options.hot_share) }
        });
        let mean_bytes = options.memory_bytes_max as f64 / f64::from(room.max(1));
        let cold_bytes_per_s = judged.then(|| asked / elapsed_s * (1.0 - options.hot_share) * mean_bytes);
        job.report.epoch = epoch;
        (job.position, job.since) = (0, now);
        job.places = places;
        job.look = Look { order, ..Look::default() };
        (job.waited_s, job.waiting_since) = (0.0, now);
        let values = std::mem::take(&mut job.values);
        if judged {
            let benefit = benefit(elapsed_s - waited_s, elapsed_s);
            job.report.benefit = Some(benefit);
            self.columns.set_benefit(id, Some(benefit))?;
            self.columns.set_rate(id, asked / elapsed_s)?;
        }
        if !values.is_empty() {
            self.columns.replace(id, &values)?;
            self.job(id)?.values = values;
        }
        let values = self.policy.values().then(|| match self.job(id) {
            // With one job there is nothing to compare it with: its own values say more than their ranks.
            Ok(job) if alone && !job.values.is_empty() => job.values.clone(),
            _ => self.columns.aggregate(room),
        });
        Ok(Changed { values, cold, cold_bytes_per_s, weights: self.columns.weights() })
    }

    /// Whether there is no other job.
    pub(super) fn is_alone(&self, job: JobId) -> bool {
        self.known.iter().all(|known| known.id == job)
    }

    /// A job asks for some samples, of which so many were at hand.
    pub(super) fn asked(&mut self, job: JobId, samples: u64, hits: u64) {
        if let Ok(job) = self.job(job) {
            job.position += samples as usize;
            job.report.requests += samples;
            job.report.hits += hits;
        }
    }

    /// What it asked for must be got from the store, or has been.
    pub(super) fn waits(&mut self, job: JobId, begins: bool) {
        if let Ok(job) = self.job(job) {
            let now = Instant::now();
            job.waited_s = job.waited_s(now);
            job.waiting_since = now;
            job.waiting = if begins { job.waiting + 1 } else { job.waiting.saturating_sub(1) };
        }
    }

    /// What was not at hand was served.
    pub(super) fn served(&mut self, job: JobId, tier: Tier) {
        if let Ok(job) = self.job(job) {
            job.report.hits += u64::from(!tier.is_behind());
        }
    }

    /// A look along the plan of every job, from where it is or was looked at last, so far ahead of it.
    pub(super) fn looks(&mut self, ahead: usize) -> impl Iterator<Item = &mut Look> {
        self.known.iter_mut().map(move |job| {
            job.look.place = job.look.place.max(job.position);
            job.look.end = (job.position + ahead).min(job.look.order.len());
            &mut job.look
        })
    }

    /// Whether some job will ask for this sample within this share of its epoch.
    pub(super) fn soon(&self, id: u32, share: f64) -> bool {
        self.known.iter().any(|job| {
            let ahead = job.places.get(id as usize).map(|&place| (place as usize).checked_sub(job.position));
            ahead.flatten().is_some_and(|ahead| (ahead as f64) < share * job.look.order.len() as f64)
        })
    }

    pub(super) fn report(&self) -> Vec<JobReport> {
        self.known.iter().map(|job| job.report.clone()).collect()
    }
}

impl Job {
    /// How long it has waited for the store since its epoch began.
    fn waited_s(&self, now: Instant) -> f64 {
        let open = if self.waiting > 0 { (now - self.waiting_since).as_secs_f64() } else { 0.0 };
        self.waited_s + open
    }
}
