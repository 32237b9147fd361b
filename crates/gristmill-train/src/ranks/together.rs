//! A few ranks that load for themselves and step together.
//!
//! Every rank has a loader on a thread of its own, as it would have a process of its own; the calling thread has the
//! model, takes one batch of each rank, makes one step on all of them, and only then lets the ranks go on. So ranks wait
//! for the slowest, as in synchronous training, and what a loader measures is what it would measure there. Batch norm
//! sees the batches of all ranks as one.
//!
//! Deliberately not here: gradients on a wire, and resuming.

use crate::loss::Facts;
use crate::model::Mlp;
use crate::trainer::evaluate::evaluate;
use crate::trainer::input::Inputs;
use crate::trainer::pace::Pace;
use crate::trainer::{EpochRow, SLICE, TrainOptions, sizes};
use gristmill_core::score::Feedback;
use gristmill_node::loader::{Batch, Loader, Polled};
use gristmill_node::report::EpochReport;
use gristmill_node::selection::Choice;
use gristmill_node::{Error, Kind, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What ranks do together.
pub struct Joint<'a> {
    /// What is trained, and how.
    pub options: &'a TrainOptions,
    /// How many ranks there are.
    pub world: u32,
    /// Makes the loader of a rank, on that rank's thread, together with all others.
    pub loader: &'a (dyn Fn(u32) -> Result<Loader> + Sync),
    /// Data to measure accuracy on.
    pub test: &'a Loader,
    /// Samples per second that a pretended accelerator takes, all ranks together; 0 for no limit.
    pub samples_per_s: f64,
    /// Asked often whether to stop.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// What a rank says.
enum Said {
    Ready { choice: Option<Arc<Choice>>, inputs: usize, classes: usize, samples: u64 },
    Begun { batches: u32 },
    Batch(Box<Batch>),
    Over(Box<EpochReport>),
    Failed(Error),
}

/// What a rank is told.
enum Told {
    Epoch(u64),
    Next,
}

/// A rank, as the thread with the model sees it.
struct Rank {
    said: Receiver<Said>,
    tell: Sender<Told>,
}

/// Trains with all ranks; `watch` hears of every epoch: its figures over all ranks, and what each rank's loader measured.
/// None if it was told to stop.
pub fn together(
    joint: &Joint<'_>,
    watch: &mut dyn FnMut(&EpochRow, &[EpochReport]),
) -> Result<Option<Vec<EpochRow>>> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut ranks = Vec::new();
        for rank in 0..joint.world {
            let (up, said) = channel();
            let (tell, down) = channel();
            let quit = || over.load(Relaxed) || (joint.stop)();
            let thread = std::thread::Builder::new().name(format!("grist-rank-{rank}"));
            let body = move || {
                if let Err(error) = one_rank(joint, rank, &up, &down, &quit) {
                    // Nobody listens any more once another rank has failed.
                    let _ = up.send(Said::Failed(error));
                }
            };
            thread.spawn_scoped(scope, body).map_err(|e| Error::io("start", "a thread", e))?;
            ranks.push(Rank { said, tell });
        }
        let outcome = lead(joint, &ranks, watch);
        over.store(true, Relaxed);
        outcome
    })
}

/// The life of a rank: a loader, and epochs of it for as long as somebody asks.
fn one_rank(
    joint: &Joint<'_>,
    rank: u32,
    up: &Sender<Said>,
    down: &Receiver<Told>,
    quit: &dyn Fn() -> bool,
) -> Result<()> {
    let loader = (joint.loader)(rank)?;
    let (inputs, classes) = sizes(&loader)?;
    let samples = u64::from(loader.set().catalog().len());
    // A closed channel means that it is over; the thread with the model knows why.
    let _ = up.send(Said::Ready { choice: loader.choice().cloned(), inputs, classes, samples });
    let stall = Duration::from_millis(loader.options().stall_ms_max);
    while let Ok(Told::Epoch(number)) = down.recv() {
        let mut epoch = loader.epoch(number, 0)?;
        let _ = up.send(Said::Begun { batches: epoch.batches() });
        let mut since = Instant::now();
        loop {
            match epoch.poll(SLICE)? {
                Polled::Batch(batch) => {
                    if up.send(Said::Batch(batch)).is_err() || down.recv().is_err() {
                        return Ok(());
                    }
                    since = Instant::now();
                }
                Polled::Pending if quit() => return Ok(()),
                Polled::Pending if since.elapsed() > stall => return Err(epoch.stalled()),
                Polled::Pending => {}
                Polled::Done => break,
            }
        }
        epoch.end();
        let _ = up.send(Said::Over(Box::new(epoch.report())));
    }
    Ok(())
}

/// The model's side.
fn lead(
    joint: &Joint<'_>,
    ranks: &[Rank],
    watch: &mut dyn FnMut(&EpochRow, &[EpochReport]),
) -> Result<Option<Vec<EpochRow>>> {
    let options = joint.options;
    let mut choices = Vec::new();
    let (mut inputs, mut classes, mut samples) = (0, 0, 0);
    for rank in ranks {
        match hear(joint, rank)? {
            None => return Ok(None),
            Some(Said::Ready { choice, inputs: width, classes: count, samples: all }) => {
                choices.push(choice);
                (inputs, classes, samples) = (width, count, all);
            }
            Some(_) => return Err(out_of_step(0)),
        }
    }
    options.check(inputs, classes)?;
    let mut lead =
        Lead { joint, choices, model: Mlp::new(inputs, &options.hidden, classes, options.seed), samples };
    lead.choices.iter().flatten().for_each(|choice| choice.norm(lead.model.norm()));
    let mut rows: Vec<EpochRow> = Vec::new();
    for number in 0..options.epochs {
        let before_ms = rows.last().map_or(0.0, |row| row.elapsed_ms);
        let Some((row, reports)) = lead.epoch(ranks, number, before_ms)? else { return Ok(None) };
        watch(&row, &reports);
        rows.push(row);
    }
    Ok(Some(rows))
}

struct Lead<'a> {
    joint: &'a Joint<'a>,
    choices: Vec<Option<Arc<Choice>>>,
    model: Mlp,
    samples: u64,
}

impl Lead<'_> {
    fn epoch(
        &mut self,
        ranks: &[Rank],
        number: u64,
        before_ms: f64,
    ) -> Result<Option<(EpochRow, Vec<EpochReport>)>> {
        let (options, pace) = (self.joint.options, Pace::of(self.joint.samples_per_s));
        let started = Instant::now();
        tell(ranks, || Told::Epoch(number));
        let Some(begun) = self.round(ranks)? else { return Ok(None) };
        let batches = begun.iter().map(|said| if let Said::Begun { batches } = said { *batches } else { 0 });
        let steps = batches.max().unwrap_or(0);
        let begin_ms = started.elapsed().as_secs_f64() * 1e3;
        let mut row = EpochRow { epoch: number, samples: self.samples, begin_ms, ..EpochRow::default() };
        let mut right = 0;
        let reports = loop {
            let Some(said) = self.round(ranks)? else { return Ok(None) };
            let step = Instant::now();
            let mut parts = Vec::new();
            let mut reports = Vec::new();
            for one in said {
                match one {
                    Said::Batch(batch) => parts.push(batch),
                    Said::Over(report) => reports.push(*report),
                    _ => return Err(out_of_step(number)),
                }
            }
            if parts.is_empty() {
                break reports;
            }
            if !reports.is_empty() {
                return Err(out_of_step(number));
            }
            let factor = options.schedule.factor(number, options.epochs, row.steps, steps.into());
            let (loss, correct) = self.learn(&parts, options.rate * factor)?;
            let served = parts.iter().map(|part| part.len()).sum::<usize>();
            drop(parts);
            (row.loss, right) = (row.loss + loss * served as f64, right + correct);
            row.served += served as u64;
            row.steps += 1;
            pace.wait(step, served, self.joint.stop);
            tell(ranks, || Told::Next);
        };
        self.share()?;
        row.wall_ms = started.elapsed().as_secs_f64() * 1e3;
        row.elapsed_ms = before_ms + row.wall_ms;
        row.trained = row.served;
        row.accuracy = right as f64 / row.served.max(1) as f64;
        row.loss /= row.served.max(1) as f64;
        row.rate = f64::from(options.rate * options.schedule.factor(number, options.epochs, u64::MAX - 1, 1));
        row.bytes = reports.iter().map(|report| report.bytes).sum();
        row.skipped = reports.iter().map(|report| report.skipped).sum();
        row.retries = reports.iter().map(|report| report.retries).sum();
        row.kept = self.samples;
        if let Some(selection) = reports.first().and_then(|report| report.selection.as_ref()) {
            (row.kept, row.reason) = (selection.kept.into(), selection.reason.clone());
        }
        // The one that waited longest held up all others.
        let longest = reports.iter().max_by(|a, b| a.wait.total_ms.total_cmp(&b.wait.total_ms));
        row.wait = longest.map(|report| report.wait).unwrap_or_default();
        let Some((loss, accuracy)) = evaluate(&mut self.model, self.joint.test, &self.joint.stop)? else {
            return Ok(None);
        };
        (row.test_loss, row.test_accuracy) = (Some(loss), Some(accuracy));
        Ok(Some((row, reports)))
    }

    /// One word of every rank, in the order of ranks; none if it is to stop.
    fn round(&self, ranks: &[Rank]) -> Result<Option<Vec<Said>>> {
        ranks.iter().map(|rank| hear(self.joint, rank)).collect()
    }

    /// One step on a batch of every rank, and feedback to each about its own; gives back the loss and how many were right.
    fn learn(&mut self, parts: &[Box<Batch>], rate: f32) -> Result<(f64, u64)> {
        let (mut numbers, mut labels, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        let mut inputs = Inputs::default();
        for part in parts {
            numbers.extend_from_slice(inputs.of(part, self.model.inputs(), self.model.classes())?);
            labels.extend_from_slice(&part.labels);
            weights.extend_from_slice(&part.weights);
        }
        let mut facts = Facts::default();
        let loss = self.model.learn(&numbers, &labels, &weights, &mut facts);
        if !loss.is_finite() {
            return Err(Error::new(Kind::Config, format!("the loss of a step of all ranks is {loss}"))
                .hint("the learning rate is too high for this model, or the samples are not normalised"));
        }
        self.joint.options.sgd.step(&mut self.model, rate);
        let mut from = 0;
        for (part, choice) in parts.iter().zip(&self.choices) {
            let rows = from..from + part.len();
            from = rows.end;
            if let Some(choice) = choice {
                choice.feedback(&said(part, &facts, rows))?;
            }
        }
        Ok((loss, facts.correct()))
    }

    /// Lets all ranks know what each of them heard, so that they select alike.
    fn share(&self) -> Result<()> {
        let choices: Vec<&Arc<Choice>> = self.choices.iter().flatten().collect();
        if choices.first().is_none_or(|choice| !choice.shares()) {
            return Ok(());
        }
        let packs: Vec<Vec<u8>> = choices.iter().map(|choice| choice.pending()).collect();
        choices.iter().try_for_each(|choice| choice.merge(&packs))
    }
}

/// Tells every rank the same.
fn tell(ranks: &[Rank], told: impl Fn() -> Told) {
    // A rank that is gone has said why, and is heard next.
    ranks.iter().for_each(|rank| drop(rank.tell.send(told())));
}

/// The next word of a rank; none if it is to stop.
fn hear(joint: &Joint<'_>, rank: &Rank) -> Result<Option<Said>> {
    loop {
        if (joint.stop)() {
            return Ok(None);
        }
        match rank.said.recv_timeout(SLICE) {
            Ok(Said::Failed(error)) => return Err(error),
            Ok(said) => return Ok(Some(said)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new(Kind::Unavailable, "a rank ended without a word"));
            }
        }
    }
}

fn said<'a>(batch: &'a Batch, facts: &'a Facts, rows: Range<usize>) -> Feedback<'a> {
    let Facts { p_true, p_rival, loss, entropy } = facts;
    Feedback {
        ids: &batch.ids,
        p_true: &p_true[rows.clone()],
        p_rival: &p_rival[rows.clone()],
        loss: &loss[rows.clone()],
        entropy: Some(&entropy[rows]),
    }
}

fn out_of_step(epoch: u64) -> Error {
    Error::corrupt(format!("the ranks have not equally many batches in epoch {epoch}"))
        .hint("this must never happen: please report it")
}
