//! A selector as bytes, so that a run goes on exactly where it stopped.
//!
//! Little-endian columns behind a header that names the way, its options, the number of samples and the seed: a state
//! of another run is refused, and so is a damaged one. Nothing is changed before all of it was read and checked.

use super::{Chosen, Memory, Norm, Selector, Summary};
use crate::Invalid;
use crate::rng::{key, mix};
use crate::score::Threshold;
use crate::steer::guard::Guard;

const MAGIC: &[u8; 8] = b"GRISTSEL";
const VERSION: u32 = 5;

impl Selector {
    /// Everything that decides the epochs to come, and the one under way.
    pub fn state(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, VERSION);
        put_u64(&mut out, self.fingerprint());
        put_u32(&mut out, self.norm as u32);
        put_u64(&mut out, self.scores.unknown);
        for column in [&self.scores.entropy, &self.scores.margin, &self.scores.p_true, &self.scores.loss] {
            put_f32s(&mut out, column);
        }
        put_u32s(&mut out, &self.scores.seen);
        match &self.memory {
            Memory::Nothing => {}
            Memory::Bucket(memory) => {
                put_u32s(&mut out, &memory.resting.iter().map(|&r| u32::from(r)).collect::<Vec<_>>());
                memory.thresholds.iter().for_each(|threshold| put_option(&mut out, threshold.value));
                put_u64(&mut out, memory.best.to_bits());
                put_u32(&mut out, memory.stagnating);
            }
            Memory::History(history) => {
                put_u32s(&mut out, &history.visits);
                put_f32s(&mut out, &history.mean);
                put_f32s(&mut out, &history.squares);
            }
            Memory::Losses(losses, judged) => {
                put_f32s(&mut out, &losses.queue());
                let counts = judged.of_class.iter().flat_map(|&(judged, trained)| [judged, trained]);
                put_u32s(&mut out, &counts.collect::<Vec<_>>());
            }
            Memory::Fixed(ids) => put_u32s(&mut out, ids),
            Memory::Weighted(memory) => {
                put_f32s(&mut out, &memory.saved);
                put_option(&mut out, memory.threshold.value);
                memory
                    .drift
                    .visits
                    .iter()
                    .chain(&memory.drift.squares)
                    .for_each(|&sum| put_u64(&mut out, sum));
            }
        }
        out.extend_from_slice(&self.probe.guard.to_bytes());
        put_u32(&mut out, u32::from(self.probe.alarmed) | u32::from(self.probe.unjudged) << 1);
        match &self.chosen {
            None => put_u32(&mut out, 0),
            Some(chosen) => {
                put_u32(&mut out, 1);
                put_u64(&mut out, chosen.epoch);
                put_u32s(&mut out, &chosen.ids);
                put_f32s(&mut out, &chosen.weights);
                put_u32(&mut out, chosen.batch_share.to_bits());
                put_u32(&mut out, chosen.summary.recalled);
                put_u32(&mut out, chosen.summary.for_classes);
                put_option(&mut out, chosen.summary.threshold);
                put_u32(&mut out, u32::from(chosen.summary.proxy));
                put_u32(&mut out, chosen.summary.for_probe);
                put_option(&mut out, chosen.summary.probe);
                put_text(&mut out, &chosen.summary.reason);
                put_text(&mut out, &chosen.summary.guard);
            }
        }
        let sum = checksum(&out);
        put_u64(&mut out, sum);
        out
    }

    /// Goes on from a saved state of the same data, seed and selection.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), Invalid> {
        let damaged = || Invalid("the saved selection state is damaged or incomplete".into());
        let (body, sum) = state.split_last_chunk::<8>().ok_or_else(damaged)?;
        if checksum(body) != u64::from_le_bytes(*sum) || !body.starts_with(MAGIC) {
            return Err(damaged());
        }
        let mut input = Input { rest: &body[MAGIC.len()..] };
        let version = input.u32().ok_or_else(damaged)?;
        if version != VERSION {
            return Err(Invalid(format!(
                "the selection state has format {version}; this version reads format {VERSION}"
            )));
        }
        if input.u64().ok_or_else(damaged)? != self.fingerprint() {
            return Err(Invalid(format!(
                "the selection state was saved with another data set, seed, number of epochs, probe or options of selection than this ({})",
                self.selection.name()
            )));
        }
        let restored = self.read(&mut input).ok_or_else(damaged)?;
        *self = restored;
        Ok(())
    }

    fn read(&self, input: &mut Input<'_>) -> Option<Selector> {
        let samples = self.scores.len();
        let mut new = self.clone();
        new.norm = *Norm::ALL.get(input.u32()? as usize)?;
        new.scores.unknown = input.u64()?;
        new.scores.entropy = input.f32s(samples)?;
        new.scores.margin = input.f32s(samples)?;
        new.scores.p_true = input.f32s(samples)?;
        new.scores.loss = input.f32s(samples)?;
        new.scores.seen = input.u32s(samples)?;
        match &mut new.memory {
            Memory::Nothing => {}
            Memory::Bucket(memory) => {
                memory.resting = input.u32s(samples)?.into_iter().map(|r| r != 0).collect();
                for threshold in &mut memory.thresholds {
                    *threshold = input.threshold()?;
                }
                memory.best = f64::from_bits(input.u64()?);
                memory.stagnating = input.u32()?;
            }
            Memory::History(history) => {
                history.visits = input.u32s(samples)?;
                history.mean = input.f32s(samples)?;
                history.squares = input.f32s(samples)?;
            }
            Memory::Losses(losses, judged) => {
                *losses = losses.with(&input.f32s(usize::MAX)?);
                let counts = input.u32s(2 * judged.of_class.len())?;
                judged.of_class =
                    counts.as_chunks::<2>().0.iter().map(|&[all, trained]| (all, trained)).collect();
            }
            Memory::Fixed(ids) => *ids = input.ids(samples)?,
            Memory::Weighted(memory) => {
                memory.saved = input.f32s(samples)?;
                memory.threshold = input.threshold()?;
                for sum in memory.drift.visits.iter_mut().chain(&mut memory.drift.squares) {
                    *sum = input.u64()?;
                }
            }
        }
        new.probe.guard = Guard::from_bytes(input.take(16)?.try_into().ok()?)?;
        let told = input.u32()?;
        (new.probe.alarmed, new.probe.unjudged) = (told & 1 != 0, told & 2 != 0);
        new.chosen = None;
        if input.u32()? == 1 {
            let epoch = input.u64()?;
            let ids = input.ids(samples)?;
            let weights = input.f32s(usize::MAX)?;
            let batch_share = f32::from_bits(input.u32()?);
            if (!weights.is_empty() && weights.len() != ids.len()) || !(0.0..=1.0).contains(&batch_share) {
                return None;
            }
            let (recalled, for_classes, threshold) = (input.u32()?, input.u32()?, input.threshold()?.value);
            let proxy = input.u32()? != 0;
            let (for_probe, probe) = (input.u32()?, input.threshold()?.value);
            let (reason, guard) = (input.text()?, input.text()?);
            let kept = new.mark_served(&ids);
            let summary = Summary {
                samples: samples as u32,
                kept,
                recalled,
                for_classes,
                unknown: new.scores.unknown,
                threshold,
                proxy,
                for_probe,
                probe,
                guard,
                reason,
            };
            new.chosen = Some(Chosen { epoch, ids, weights, batch_share, summary });
        }
        input.rest.is_empty().then_some(new)
    }

    /// What a state must have been saved with to be of use here.
    fn fingerprint(&self) -> u64 {
        let text = format!("{:?}", self.selection.options());
        let options = checksum(format!("{}:{text}", self.selection.name()).as_bytes());
        let labels = self.facts.labels.iter().fold(0, |sum, &label| mix(sum ^ u64::from(label)));
        let epochs = self.facts.epochs.map_or(0, u64::from);
        let probe = self.probe.ids.iter().fold(0, |sum, &id| mix(sum ^ u64::from(id)));
        key(&[
            options,
            labels,
            self.scores.len() as u64,
            self.facts.seed,
            epochs,
            self.facts.class_floor.to_bits(),
            probe,
        ])
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum ^ u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, &byte| mix(sum ^ u64::from(byte)))
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_option(out: &mut Vec<u8>, value: Option<f64>) {
    // NaN stands for none; a threshold is never NaN.
    put_u64(out, value.unwrap_or(f64::NAN).to_bits());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_u32(out, text.len() as u32);
    out.extend_from_slice(text.as_bytes());
}

fn put_u32s(out: &mut Vec<u8>, values: &[u32]) {
    put_u64(out, values.len() as u64);
    values.iter().for_each(|&value| put_u32(out, value));
}

fn put_f32s(out: &mut Vec<u8>, values: &[f32]) {
    put_u64(out, values.len() as u64);
    values.iter().for_each(|&value| put_u32(out, value.to_bits()));
}

/// What is left to read.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn threshold(&mut self) -> Option<Threshold> {
        let value = f64::from_bits(self.u64()?);
        Some(Threshold { value: (!value.is_nan()).then_some(value) })
    }

    fn text(&mut self) -> Option<String> {
        let len = self.u32()? as usize;
        String::from_utf8(self.take(len)?.to_vec()).ok()
    }

    /// A column of exactly `len` values, or of any length that is there for `usize::MAX`.
    fn u32s(&mut self, len: usize) -> Option<Vec<u32>> {
        let told = usize::try_from(self.u64()?).ok()?;
        if len != usize::MAX && told != len {
            return None;
        }
        let (words, _) = self.take(told.checked_mul(4)?)?.as_chunks::<4>();
        Some(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    fn f32s(&mut self, len: usize) -> Option<Vec<f32>> {
        let values: Vec<f32> = self.u32s(len)?.into_iter().map(f32::from_bits).collect();
        values.iter().all(|value| !value.is_nan()).then_some(values)
    }

    /// Ascending ids of the data set.
    fn ids(&mut self, samples: usize) -> Option<Vec<u32>> {
        let ids = self.u32s(usize::MAX)?;
        (ids.is_sorted() && ids.last().is_none_or(|&id| (id as usize) < samples)).then_some(ids)
    }
}
