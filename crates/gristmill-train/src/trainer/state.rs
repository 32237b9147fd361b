//! A training as a checkpoint holds it, and back.

use super::row::{Cost, Sums};
use super::step::Pending;
use super::{Checkpoint, EpochRow, Phase, TrainOptions, Trainer};
use crate::checkpoint::{self, Reader, Writer};
use gristmill_node::loader::Loader;
use gristmill_node::report::Wait;
use gristmill_node::{Error, Result};

impl Trainer {
    /// Writes the checkpoint.
    pub(super) fn save(&mut self, checkpoint: &Checkpoint, train: &Loader) -> Result<()> {
        let mut out = Writer::default();
        out.number(checkpoint.identity.len() as u64);
        for (name, value) in &checkpoint.identity {
            out.bytes(name.as_bytes());
            out.bytes(value.as_bytes());
        }
        out.number(self.epoch);
        out.number(self.batch.into());
        put_sums(&mut out, &self.sums);
        out.number(self.history.len() as u64);
        self.history.iter().for_each(|row| put_row(&mut out, row));
        out.number(self.phase.begun);
        out.number(self.phase.proxy.into());
        for part in self.model.state() {
            out.floats(part);
        }
        out.floats(&self.pending.numbers);
        out.whole(&self.pending.labels);
        out.floats(&self.pending.weights);
        out.bytes(&train.choice().map_or_else(Vec::new, |choice| choice.state()));
        checkpoint::write(&checkpoint.path, &out.content)
    }

    /// Continues what a checkpoint holds, if it belongs to the same training.
    pub fn resume(options: TrainOptions, train: &Loader, checkpoint: &Checkpoint) -> Result<Trainer> {
        let content = checkpoint::read(&checkpoint.path)?;
        let mut trainer = Trainer::new(options, train)?;
        trainer
            .restore(&mut Reader::new(&content), checkpoint, train)
            .map_err(|error| error.at(checkpoint.path.display()))?;
        Ok(trainer)
    }

    fn restore(&mut self, from: &mut Reader<'_>, checkpoint: &Checkpoint, train: &Loader) -> Result<()> {
        let mut saved = Vec::new();
        for _ in 0..from.number()? {
            saved.push((from.text()?, from.text()?));
        }
        compare(&saved, &checkpoint.identity)?;
        self.epoch = from.number()?;
        self.batch = u32::try_from(from.number()?).map_err(|_| strange())?;
        self.sums = take_sums(from)?;
        for _ in 0..from.number()? {
            self.history.push(take_row(from)?);
        }
        if self.history.len() as u64 != self.epoch || self.epoch > self.options.epochs {
            return Err(strange());
        }
        let phase = Phase { begun: from.number()?, proxy: from.number()? != 0 };
        if phase.begun > self.epoch {
            return Err(strange());
        }
        self.enter(phase);
        for part in self.model.state() {
            let values = from.floats()?;
            if values.len() != part.len() {
                return Err(strange());
            }
            *part = values;
        }
        self.pending = Pending { numbers: from.floats()?, labels: from.whole()?, weights: from.floats()? };
        let Pending { numbers, labels, weights } = &self.pending;
        let classes = self.model.classes();
        if numbers.len() != labels.len() * self.model.inputs()
            || weights.len() != labels.len()
            || labels.iter().any(|label| *label as usize >= classes)
        {
            return Err(strange());
        }
        let selection = from.bytes()?;
        if !from.is_empty() || train.choice().is_none() != selection.is_empty() {
            return Err(strange());
        }
        train.choice().map_or(Ok(()), |choice| choice.restore(selection))
    }
}

fn strange() -> Error {
    Error::corrupt("the checkpoint is of another training").hint("train again without --resume")
}

/// An error that names the first thing that is not as it was.
fn compare(saved: &[(String, String)], now: &[(String, String)]) -> Result<()> {
    for (name, value) in now {
        let was = saved.iter().find(|(saved, _)| saved == name).map_or("not set", |(_, value)| value);
        if was != value {
            return Err(Error::config(format!(
                "the checkpoint was made with {name} = {was}; now it is {value}"
            ))
            .hint("resume with what it was made with, or train again without --resume"));
        }
    }
    if saved.len() == now.len() { Ok(()) } else { Err(strange()) }
}

fn put_sums(out: &mut Writer, sums: &Sums) {
    let Sums { loss, correct, served, trained, steps, cost } = sums;
    let Cost { wall_ms, begin_ms, cpu_ms, wait, bytes, skipped, retries } = cost;
    out.real(*loss);
    [correct, served, trained, steps].into_iter().for_each(|value| out.number(*value));
    [wall_ms, begin_ms, cpu_ms].into_iter().for_each(|value| out.real(*value));
    put_wait(out, wait);
    [bytes, skipped, retries].into_iter().for_each(|value| out.number(*value));
}

fn take_sums(from: &mut Reader<'_>) -> Result<Sums> {
    Ok(Sums {
        loss: from.real()?,
        correct: from.number()?,
        served: from.number()?,
        trained: from.number()?,
        steps: from.number()?,
        cost: Cost {
            wall_ms: from.real()?,
            begin_ms: from.real()?,
            cpu_ms: from.real()?,
            wait: take_wait(from)?,
            bytes: from.number()?,
            skipped: from.number()?,
            retries: from.number()?,
        },
    })
}

fn put_wait(out: &mut Writer, wait: &Wait) {
    let Wait { total_ms, fetch_ms, decode_ms, ops_ms, hand_over_ms } = *wait;
    [total_ms, fetch_ms, decode_ms, ops_ms, hand_over_ms].into_iter().for_each(|value| out.real(value));
}

fn take_wait(from: &mut Reader<'_>) -> Result<Wait> {
    Ok(Wait {
        total_ms: from.real()?,
        fetch_ms: from.real()?,
        decode_ms: from.real()?,
        ops_ms: from.real()?,
        hand_over_ms: from.real()?,
    })
}

fn put_row(out: &mut Writer, row: &EpochRow) {
    out.number(row.epoch);
    [row.rate, row.loss, row.accuracy].into_iter().for_each(|value| out.real(value));
    // No loss and no accuracy is negative.
    [row.test_loss, row.test_accuracy].into_iter().for_each(|value| out.real(value.unwrap_or(-1.0)));
    [row.samples, row.kept, row.served, row.trained, row.steps, row.bytes]
        .into_iter()
        .for_each(|value| out.number(value));
    [row.wall_ms, row.begin_ms, row.elapsed_ms, row.cpu_ms].into_iter().for_each(|value| out.real(value));
    put_wait(out, &row.wait);
    [row.skipped, row.retries, row.proxy.into()].into_iter().for_each(|value| out.number(value));
    out.bytes(row.reason.as_bytes());
}

fn take_row(from: &mut Reader<'_>) -> Result<EpochRow> {
    let there = |value: f64| (value >= 0.0).then_some(value);
    Ok(EpochRow {
        epoch: from.number()?,
        rate: from.real()?,
        loss: from.real()?,
        accuracy: from.real()?,
        test_loss: there(from.real()?),
        test_accuracy: there(from.real()?),
        samples: from.number()?,
        kept: from.number()?,
        served: from.number()?,
        trained: from.number()?,
        steps: from.number()?,
        bytes: from.number()?,
        wall_ms: from.real()?,
        begin_ms: from.real()?,
        elapsed_ms: from.real()?,
        cpu_ms: from.real()?,
        wait: take_wait(from)?,
        skipped: from.number()?,
        retries: from.number()?,
        proxy: from.number()? != 0,
        reason: from.text()?,
    })
}
