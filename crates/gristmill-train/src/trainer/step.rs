//! What is done with one batch: train on it, or judge it first and train on what is kept; and tell the loader.

use super::Trainer;
use crate::loss::Facts;
use crate::model::Mode;
use gristmill_core::score::Feedback;
use gristmill_node::loader::{Batch, Loader};
use gristmill_node::selection::Choice;
use gristmill_node::{Error, Kind, Result};

/// Samples that were kept after they were judged, until there are enough for a batch.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) numbers: Vec<f32>,
    pub(super) labels: Vec<u32>,
    pub(super) weights: Vec<f32>,
}

impl Pending {
    fn push(&mut self, numbers: &[f32], label: u32, weight: f32) {
        self.numbers.extend_from_slice(numbers);
        self.labels.push(label);
        self.weights.push(weight);
    }

    /// Takes the first `count` out.
    fn take(&mut self, count: usize, width: usize) -> Pending {
        Pending {
            numbers: self.numbers.drain(..count * width).collect(),
            labels: self.labels.drain(..count).collect(),
            weights: self.weights.drain(..count).collect(),
        }
    }
}

impl Trainer {
    /// Learns from a batch and gives feedback about it. An epoch has about `steps` steps.
    pub(super) fn learn(&mut self, batch: &Batch, train: &Loader, steps: u32) -> Result<()> {
        let choice = train.choice();
        if let Some(choice) = choice.filter(|choice| choice.judges()) {
            return self.judge(batch, choice, train.options().shape.batch as usize, steps);
        }
        let x = self.inputs.of(batch, self.model.inputs(), self.model.classes())?;
        let loss = self.model.learn(x, &batch.labels, &batch.weights, &mut self.facts);
        self.note(loss, batch)?;
        self.step(batch.len(), steps);
        choice.map_or(Ok(()), |choice| choice.feedback(&said(batch, &self.facts)))
    }

    fn judge(&mut self, batch: &Batch, choice: &Choice, size: usize, steps: u32) -> Result<()> {
        let x = self.inputs.of(batch, self.model.inputs(), self.model.classes())?;
        self.model.forward(x, Mode::Evaluate);
        let loss = self.model.judge(&batch.labels, &batch.weights, &mut self.facts);
        choice.feedback(&said(batch, &self.facts))?;
        let kept = choice.keep(&batch.ids, &self.facts.loss)?;
        let width = self.model.inputs();
        for (i, row) in x.chunks_exact(width).enumerate().filter(|(i, _)| kept[*i]) {
            self.pending.push(row, batch.labels[i], batch.weights[i]);
        }
        self.note(loss, batch)?;
        while self.pending.labels.len() >= size {
            self.learn_pending(size, steps)?;
        }
        Ok(())
    }

    /// Trains on what is still pending at the end of an epoch.
    pub(super) fn flush(&mut self, steps: u32) -> Result<()> {
        match self.pending.labels.len() {
            0 => Ok(()),
            count => self.learn_pending(count, steps),
        }
    }

    fn learn_pending(&mut self, count: usize, steps: u32) -> Result<()> {
        let Pending { numbers, labels, weights } = self.pending.take(count, self.model.inputs());
        let loss = self.model.learn(&numbers, &labels, &weights, &mut self.facts);
        self.check(loss)?;
        self.step(count, steps);
        Ok(())
    }

    /// Adds what a batch came to.
    fn note(&mut self, loss: f64, batch: &Batch) -> Result<()> {
        self.check(loss)?;
        let count = batch.len() as u64;
        self.sums.loss += loss * count as f64;
        self.sums.correct += self.facts.correct();
        self.sums.served += count;
        self.losses.clone_from(&self.facts.loss);
        Ok(())
    }

    fn check(&self, loss: f64) -> Result<()> {
        if loss.is_finite() {
            return Ok(());
        }
        let (epoch, batch) = (self.epoch, self.batch);
        Err(Error::new(Kind::Config, format!("the loss of batch {batch} in epoch {epoch} is {loss}"))
            .hint("the learning rate is too high for this model, or the samples are not normalised"))
    }

    /// Makes a step with `count` samples.
    fn step(&mut self, count: usize, steps: u32) {
        let (epoch, epochs) = (self.epoch - self.phase.begun, self.options.epochs - self.phase.begun);
        let factor = self.options.schedule.factor(epoch, epochs, self.sums.steps, steps.into());
        self.options.sgd.step(&mut self.model, self.options.rate * factor);
        self.sums.trained += count as u64;
        self.sums.steps += 1;
    }
}

fn said<'a>(batch: &'a Batch, facts: &'a Facts) -> Feedback<'a> {
    let Facts { p_true, p_rival, loss, entropy } = facts;
    Feedback { ids: &batch.ids, p_true, p_rival, loss, entropy: Some(entropy) }
}
