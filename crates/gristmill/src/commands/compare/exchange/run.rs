//! Runs the trainings, several at once, with progress; Ctrl-C ends all of them.

use super::case::Training;
use crate::commands::compare::keep::Kept;
use crate::progress::{EPOCHS, Progress};
use crate::stop;
use anyhow::Result;
use gristmill_node::Error;
use gristmill_train::TrainOptions;
use gristmill_train::ranks::{self, Fraction, Held, Orders, Outcome};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

/// What all trainings have in common.
pub(super) struct Bench<'a> {
    pub(super) train: &'a Held,
    pub(super) test: &'a Held,
    pub(super) options: &'a TrainOptions,
    pub(super) seed: u64,
    pub(super) seeds: u32,
    pub(super) threads: usize,
    /// What tells this data from other data.
    pub(super) identity: String,
}

/// One training from one seed.
#[derive(Debug, Clone, Copy)]
struct Job {
    run: usize,
    round: usize,
    training: Training,
    seed: u64,
}

/// What a thread says.
enum Told {
    Epoch(Job),
    Done(Job, gristmill_node::Result<Option<Outcome>>),
}

impl Bench<'_> {
    /// The outcomes of every training, seed after seed. The seeds take turns.
    pub(super) fn run(
        &self,
        runs: &[Training],
        mut kept: Option<&mut Kept<Outcome>>,
        quiet: bool,
    ) -> Result<Vec<Vec<Outcome>>> {
        let mut outcomes: Vec<Vec<Option<Outcome>>> = vec![vec![None; self.seeds as usize]; runs.len()];
        let mut jobs = Vec::new();
        let rounds = (0..self.seeds as usize).flat_map(|round| (0..runs.len()).map(move |run| (round, run)));
        for (round, run) in rounds {
            let seed = self.seed.wrapping_add(round as u64);
            let job = Job { run, round, training: runs[run], seed };
            outcomes[run][round] = kept.as_deref().and_then(|kept| kept.find(&self.name(job)));
            if outcomes[run][round].is_none() {
                jobs.push(job);
            }
        }
        let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let ended = std::thread::scope(|scope| {
            let (tell, told) = channel();
            for _ in 0..self.threads.min(jobs.len()) {
                let (tell, jobs, next, over) = (tell.clone(), &jobs, &next, &over);
                scope.spawn(move || self.work(jobs, next, over, &tell));
            }
            drop(tell);
            let mut bar = Progress::new("compare", quiet);
            let all = jobs.iter().map(|job| job.training.world.epochs).sum();
            let mut epochs = 0;
            let ended = loop {
                match told.recv_timeout(stop::SLICE) {
                    Ok(Told::Epoch(job)) => {
                        epochs += 1;
                        bar.at(epochs, Some(all), EPOCHS, || self.words(job));
                    }
                    Ok(Told::Done(job, Ok(Some(outcome)))) => {
                        outcomes[job.run][job.round] = Some(outcome);
                        let added = kept.as_deref_mut().map(|kept| kept.add(self.name(job), outcome));
                        if let Some(Err(error)) = added {
                            break Err(error);
                        }
                    }
                    Ok(Told::Done(_, Ok(None))) | Err(RecvTimeoutError::Timeout) => {}
                    Ok(Told::Done(_, Err(error))) => break Err(error.into()),
                    Err(RecvTimeoutError::Disconnected) => break Ok(()),
                }
                if stop::asked() {
                    break stop::check().map_err(Into::into);
                }
            };
            over.store(true, Relaxed);
            bar.done();
            ended
        });
        ended?;
        stop::check()?;
        let whole = |seeds: Vec<Option<Outcome>>| seeds.into_iter().collect::<Option<Vec<Outcome>>>();
        let all: Option<Vec<_>> = outcomes.into_iter().map(whole).collect();
        all.ok_or_else(|| Error::new(gristmill_node::Kind::Stopped, "a training ended without a word").into())
    }

    fn work(&self, jobs: &[Job], next: &AtomicUsize, quit: &AtomicBool, tell: &Sender<Told>) {
        let stop = || quit.load(Relaxed) || stop::asked();
        while let Some(&job) = jobs.get(next.fetch_add(1, Relaxed)).filter(|_| !stop()) {
            // Nobody listens any more once the others were told to stop.
            let outcome = self.one(job, &stop, &mut |_| drop(tell.send(Told::Epoch(job))));
            drop(tell.send(Told::Done(job, outcome)));
        }
    }

    fn one(
        &self,
        job: Job,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(u64),
    ) -> gristmill_node::Result<Option<Outcome>> {
        let Training { world, dealing } = job.training;
        let orders = Orders::new(self.train.labels(), world.ranks, world.batch, job.seed, dealing)?;
        let options =
            TrainOptions { rate: world.rate, epochs: world.epochs, seed: job.seed, ..self.options.clone() };
        ranks::train(&options, self.train, self.test, orders, stop, tell)
    }

    fn words(&self, job: Job) -> String {
        let Training { world, dealing } = job.training;
        let how = match dealing.fraction {
            Fraction::Global => "global".to_string(),
            Fraction::Part(part) => format!("{}, fraction {part}", dealing.partition.name()),
        };
        format!("{} ranks, {how}, seed {} of {}", world.ranks, job.round + 1, self.seeds)
    }

    /// Everything that a training's outcome depends on.
    fn name(&self, job: Job) -> String {
        let Training { world, dealing } = job.training;
        let TrainOptions { hidden, schedule, sgd, .. } = self.options;
        let (version, seed) = (env!("CARGO_PKG_VERSION"), job.seed);
        format!("{version} {} {hidden:?} {schedule} {sgd:?} {world:?} {dealing:?} seed {seed}", self.identity)
    }
}
