//! Several jobs, one cache: whose scores count how much (iCACHE).
//!
//! Losses of different models cannot be compared, so each job's scores are made relative first: by rank, which takes
//! away both what the model can do and how far its training is. A job counts by what caching brings it (measured by a
//! [`Probe`]) times how fast it reads. What a sample is worth is the weighted sum over the jobs.
//!
//! A weighted sum alone would let a fast job push out everything that a slow one needs. So every job that benefits
//! keeps half of its fair share twice over: of the weight, and of the room, where its own best samples come first.

use super::heap::ascending;
use super::{JOBS_MAX, JobId};
use crate::Invalid;

/// Iterations of each kind that a probe takes.
pub const PROBE_ITERATIONS: u32 = 20;
/// Epochs between probes.
pub const PROBE_EPOCHS: u64 = 10;
/// A job that gains less does not wait for its data, and caching for it is wasted.
pub const BENEFIT_MIN: f64 = 0.05;
/// The part of its fair share that no job falls below.
const FLOOR: f64 = 0.5;

/// Measures what caching brings to a job: the time of iterations served from memory, and from the store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Probe {
    hit: (u32, f64),
    miss: (u32, f64),
    done: Option<(u64, f64)>,
}

impl Probe {
    /// Whether this epoch should probe: nothing is known yet, or it was long ago.
    pub fn due(&self, epoch: u64) -> bool {
        self.done.is_none_or(|(at, _)| epoch >= at + PROBE_EPOCHS)
    }

    /// Whether the next iteration should be served from memory (`true`) or from the store; none when there are enough.
    pub fn next(&self) -> Option<bool> {
        match (self.hit.0, self.miss.0) {
            (hit, _) if hit < PROBE_ITERATIONS => Some(true),
            (_, miss) if miss < PROBE_ITERATIONS => Some(false),
            _ => None,
        }
    }

    /// Notes an iteration. Returns the benefit once there are enough of both kinds, and is then ready for the next probe.
    pub fn note(&mut self, epoch: u64, from_memory: bool, seconds: f64) -> Option<f64> {
        let side = if from_memory { &mut self.hit } else { &mut self.miss };
        if side.0 < PROBE_ITERATIONS && seconds.is_finite() && seconds >= 0.0 {
            *side = (side.0 + 1, side.1 + seconds);
        }
        if self.next().is_some() {
            return None;
        }
        let benefit = benefit(self.hit.1, self.miss.1);
        *self = Probe { done: Some((epoch, benefit)), ..Probe::default() };
        Some(benefit)
    }

    /// What the last probe found.
    pub fn benefit(&self) -> Option<f64> {
        self.done.map(|(_, benefit)| benefit)
    }
}

/// The share of a job's time that hits save; 0 where it is too little to count.
pub fn benefit(hit_s: f64, miss_s: f64) -> f64 {
    let benefit = if miss_s > 0.0 { (miss_s - hit_s) / miss_s } else { 0.0 };
    if benefit < BENEFIT_MIN { 0.0 } else { benefit }
}

/// How scores of different jobs are made comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relative {
    /// By the rank within the job, from just above 0 to 1; equals share the mean of their ranks.
    Rank,
    /// By the share of the job's sum.
    Share,
    /// They are already: probabilities of being wanted.
    Plain,
}

#[derive(Debug, Clone)]
struct Column {
    job: JobId,
    relative: Vec<f32>,
    benefit: Option<f64>,
    rate: f64,
}

/// The jobs that share a cache, each with its column of relative scores.
#[derive(Debug, Clone)]
pub struct Jobs {
    samples: usize,
    relative: Relative,
    columns: Vec<Column>,
}

impl Jobs {
    /// No jobs yet.
    pub fn new(samples: u32, relative: Relative) -> Jobs {
        Jobs { samples: samples as usize, relative, columns: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// A job joins; until it tells its scores, all samples are alike to it. Joining twice changes nothing.
    pub fn join(&mut self, job: JobId) -> Result<(), Invalid> {
        if self.columns.iter().any(|column| column.job == job) {
            return Ok(());
        }
        if self.columns.len() >= JOBS_MAX {
            return Err(Invalid(format!("{JOBS_MAX} jobs share this cache already; let one leave first")));
        }
        let relative = relative(&vec![1.0; self.samples], self.relative);
        self.columns.push(Column { job, relative, benefit: None, rate: 0.0 });
        Ok(())
    }

    /// A job leaves or was killed; its scores count no more.
    pub fn leave(&mut self, job: JobId) {
        self.columns.retain(|column| column.job != job);
    }

    /// Replaces the scores of one job.
    pub fn replace(&mut self, job: JobId, scores: &[f32]) -> Result<(), Invalid> {
        if scores.len() != self.samples {
            return Err(Invalid(format!(
                "job {} has {} scores for {} samples",
                job.0,
                scores.len(),
                self.samples
            )));
        }
        let kind = self.relative;
        self.column(job)?.relative = relative(scores, kind);
        Ok(())
    }

    /// What caching brings to a job: none if it was not probed yet.
    pub fn set_benefit(&mut self, job: JobId, benefit: Option<f64>) -> Result<(), Invalid> {
        self.column(job)?.benefit = benefit.filter(|benefit| benefit.is_finite());
        Ok(())
    }

    /// How many samples per second a job asks for; 0 if that is not known.
    pub fn set_rate(&mut self, job: JobId, samples_per_s: f64) -> Result<(), Invalid> {
        self.column(job)?.rate = if samples_per_s.is_finite() { samples_per_s.max(0.0) } else { 0.0 };
        Ok(())
    }

    /// How much each job counts; together they are 1.
    pub fn weights(&self) -> Vec<(JobId, f64)> {
        weights(&self.columns)
    }

    /// What each sample is worth to all jobs, in a cache with room for so many samples.
    pub fn aggregate(&self, room: u32) -> Vec<f32> {
        let weights: Vec<f64> = weights(&self.columns).into_iter().map(|(_, weight)| weight).collect();
        let mut sum = vec![0.0_f32; self.samples];
        for (column, &weight) in self.columns.iter().zip(&weights).filter(|(_, weight)| **weight > 0.0) {
            sum.iter_mut().zip(&column.relative).for_each(|(sum, value)| *sum += weight as f32 * value);
        }
        let benefit = weights.iter().filter(|weight| **weight > 0.0).count();
        if benefit < 2 {
            return sum;
        }
        // The best of each job's own, as many as half of its fair share of the room, come before all others.
        let most = (f64::from(room) * FLOOR / benefit as f64) as usize;
        let lift = sum.iter().fold(0.0_f32, |most, value| most.max(*value));
        let mut own = vec![false; self.samples];
        for (column, _) in self.columns.iter().zip(&weights).filter(|(_, weight)| **weight > 0.0) {
            best(&column.relative, &sum, most).into_iter().for_each(|id| own[id as usize] = true);
        }
        sum.iter_mut().zip(&own).filter(|(_, own)| **own).for_each(|(sum, _)| *sum += lift);
        sum
    }

    fn column(&mut self, job: JobId) -> Result<&mut Column, Invalid> {
        let column = self.columns.iter_mut().find(|column| column.job == job);
        column.ok_or_else(|| Invalid(format!("job {} has not joined; it may have left", job.0)))
    }
}

/// The samples with the highest values of a job that are worth anything to it; of equals those that all jobs want more.
fn best(values: &[f32], sum: &[f32], most: usize) -> Vec<u32> {
    let key = |id: u32| !(ascending(values[id as usize]) << 32 | ascending(sum[id as usize]));
    let mut ids: Vec<(u64, u32)> =
        (0..values.len() as u32).filter(|id| values[*id as usize] > 0.0).map(|id| (key(id), id)).collect();
    if most < ids.len() {
        ids.select_nth_unstable(most);
        ids.truncate(most);
    }
    ids.into_iter().map(|(_, id)| id).collect()
}

/// Benefit times rate as shares, but none of those that benefit below half of an equal share.
fn weights(columns: &[Column]) -> Vec<(JobId, f64)> {
    // Who was not probed yet counts like the mean of those who were; who has no rate yet likewise.
    let mean = |known: &mut dyn Iterator<Item = f64>| {
        let (sum, count) = known.fold((0.0, 0_u32), |(sum, count), x| (sum + x, count + 1));
        if count == 0 || sum <= 0.0 { 1.0 } else { sum / f64::from(count) }
    };
    let usual_benefit = mean(&mut columns.iter().filter_map(|column| column.benefit));
    let usual_rate = mean(&mut columns.iter().map(|column| column.rate).filter(|rate| *rate > 0.0));
    let one = |column: &Column| {
        let benefit = column.benefit.unwrap_or(usual_benefit);
        let benefit = if benefit < BENEFIT_MIN { 0.0 } else { benefit };
        benefit * if column.rate > 0.0 { column.rate } else { usual_rate }
    };
    let mut raw: Vec<f64> = columns.iter().map(one).collect();
    if raw.iter().all(|raw| *raw <= 0.0) {
        raw.fill(1.0); // nobody benefits, so nobody is preferred
    }
    let benefiting = raw.iter().filter(|raw| **raw > 0.0).count();
    let floor = FLOOR / benefiting.max(1) as f64;
    // Who is below the floor is lifted to it and the others share the rest; that may put another one below.
    let mut lifted = vec![false; raw.len()];
    loop {
        let rest = 1.0 - floor * lifted.iter().filter(|lifted| **lifted).count() as f64;
        let sum: f64 = raw.iter().zip(&lifted).filter(|(_, lifted)| !**lifted).map(|(raw, _)| raw).sum();
        let share = |place: usize| if lifted[place] { floor } else { raw[place] / sum * rest };
        let low = (0..raw.len()).find(|&place| !lifted[place] && raw[place] > 0.0 && share(place) < floor);
        match low {
            Some(place) => lifted[place] = true,
            None => {
                return columns
                    .iter()
                    .enumerate()
                    .map(|(place, column)| (column.job, share(place)))
                    .collect();
            }
        }
    }
}

/// Scores that can be compared between jobs.
pub fn relative(scores: &[f32], kind: Relative) -> Vec<f32> {
    let sane = |score: f32| if score.is_nan() { f32::MAX } else { score };
    match kind {
        Relative::Plain => scores.iter().map(|&score| sane(score).clamp(0.0, 1.0)).collect(),
        Relative::Share => {
            let sum: f64 = scores.iter().map(|&score| f64::from(sane(score).max(0.0))).sum();
            let share =
                |score: f32| if sum > 0.0 { (f64::from(sane(score).max(0.0)) / sum) as f32 } else { 0.0 };
            scores.iter().map(|&score| share(score)).collect()
        }
        Relative::Rank => {
            let key = |id: u32| ascending(scores[id as usize]) << 32 | u64::from(id);
            let mut ranked: Vec<u64> = (0..scores.len() as u32).map(key).collect();
            ranked.sort_unstable();
            let mut relative = vec![0.0; scores.len()];
            let mut below = 0_usize;
            for equals in ranked.chunk_by(|a, b| a >> 32 == b >> 32) {
                let rank = below as f64 + (equals.len() + 1) as f64 / 2.0;
                let share = (rank / scores.len() as f64) as f32;
                equals.iter().for_each(|&key| relative[key as u32 as usize] = share);
                below += equals.len();
            }
            relative
        }
    }
}

#[cfg(test)]
mod tests;
