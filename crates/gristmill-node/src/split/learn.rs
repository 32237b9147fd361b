//! What a splitter takes down: samples that were finished, and how fast link, accelerator and cores were.

use super::beside::Beside;
use super::facts::Pictures;
use super::link::Rate;
use super::splitter::Splitter;
use gristmill_core::SampleId;
use gristmill_core::split::profile::{Measured, Shape};
use gristmill_ops::{Draw, Pipeline, Stage};

/// The most samples among which the calibration picks.
const SEEN_MAX: usize = 8_192;
/// Raw samples after which the profile takes no more of them.
const PROFILED_MAX: u64 = 50_000;

/// Whether the node has to decode a picture for this stage, and may keep it.
pub(super) fn is_decoded(stage: Stage) -> bool {
    !matches!(stage, Stage::Raw | Stage::Cut)
}

impl Splitter {
    /// What is known of a sample under a draw.
    pub(super) fn shape(pictures: &Pictures, pipeline: &Pipeline, draw: Draw, raw_bytes: u32) -> Shape {
        let facts = pictures.of(draw.sample, raw_bytes);
        let cut_share = pipeline.cut_share(draw, facts.width, facts.height);
        Shape { raw_bytes, width: facts.width, height: facts.height, cut_share }
    }

    pub(super) fn raw_bytes(&self, id: SampleId) -> u32 {
        self.set.catalog().size(id).unwrap_or(0)
    }

    /// Notes a raw sample that was finished here: its picture, and how long that took.
    pub(super) fn finished_raw(&self, draw: Draw, bytes: &[u8], local_s: f64) {
        let Some(pipeline) = &self.pipeline else { return };
        let known = self.lock().pictures.knows(draw.sample);
        // The header is read without the lock.
        let facts = if known { None } else { pipeline.facts(bytes) };
        let raw_bytes = self.raw_bytes(draw.sample);
        let mut state = self.lock();
        if let Some(facts) = facts {
            state.pictures.note(draw.sample, facts, raw_bytes, self.set.catalog().len());
            if state.seen.len() < SEEN_MAX {
                state.seen.push(draw.sample.0);
            }
        }
        if state.profile.count(Stage::Raw as u8) < PROFILED_MAX {
            let shape = Splitter::shape(&state.pictures, pipeline, draw, raw_bytes);
            let measured = Measured {
                stage: Stage::Raw as u8,
                bytes: Some(raw_bytes.into()),
                left_s: Some(local_s),
                ..Measured::default()
            };
            state.profile.measured(&shape, &measured);
            state.strata.note(raw_bytes);
        }
    }

    /// Notes a sample that came at a stage and was finished here.
    pub(super) fn finished_staged(
        &self,
        draw: Draw,
        stage: Stage,
        bytes: usize,
        upstream_s: f64,
        local_s: f64,
    ) {
        let Some(pipeline) = &self.pipeline else { return };
        let raw_bytes = self.raw_bytes(draw.sample);
        let mut known = self.lock();
        // Many that come prepared were never seen raw.
        let again = is_decoded(stage) && known.pictures.was_decoded(draw.sample);
        if is_decoded(stage) && !again {
            let facts = known.pictures.of(draw.sample, raw_bytes);
            let size = pipeline.stage_bytes(Stage::Decoded, facts.width, facts.height);
            if size.is_some_and(|size| known.pixels.take(size)) {
                known.pictures.decoded(draw.sample);
            }
        }
        if !known.pictures.knows(draw.sample) {
            return;
        }
        // What does not change is known well enough at some time; how fast the node is may change in any epoch.
        let more = known.profile.count(stage as u8) < PROFILED_MAX;
        let shape = Splitter::shape(&known.pictures, pipeline, draw, raw_bytes);
        // The node's own time takes the place of ours: then nothing has to be run twice here.
        let measured = Measured {
            stage: stage as u8,
            bytes: more.then_some(bytes as f64),
            ahead_s: Some(upstream_s),
            left_s: more.then_some(local_s),
            again,
        };
        known.profile.measured(&shape, &measured);
    }

    /// Takes what the machine did beside ops; what was seen before counts as much.
    pub(super) fn learn_beside(&self, now: Option<Beside>) {
        let mut state = self.lock();
        state.beside = match (state.beside, now) {
            (Some(before), Some(now)) => Some(before.mean(now)),
            (before, now) => now.or(before),
        };
    }

    /// Takes what an epoch measured. How fast the link is shows only when it was the bottleneck; otherwise it is at
    /// least that fast, unless it was busy in bursts only, which say nothing of how fast it is for long.
    pub(super) fn learn(&self, link: Option<Rate>, link_was_tight: bool, accelerator: Option<f64>) {
        let mut state = self.lock();
        state.link_rate = now_known(state.link_rate, link, link_was_tight);
        state.accelerator_samples_per_s = accelerator.or(state.accelerator_samples_per_s);
    }
}

/// What is known of a link, after another epoch.
fn now_known(before: Option<Rate>, now: Option<Rate>, tight: bool) -> Option<Rate> {
    let (Some(was), Some(is)) = (before, now) else { return now.or(before) };
    let slower = is.bytes_per_s < was.bytes_per_s;
    let believed = match (was.steady, is.steady) {
        (false, true) => true,
        // Bursts can only say that it is slower.
        (true, false) => tight && slower,
        _ => tight || !slower,
    };
    Some(if believed { is } else { was })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_gives_for_long_counts_for_more_than_bursts() {
        let rate = |bytes_per_s, steady| Some(Rate { bytes_per_s, steady });
        for (before, now, tight, known) in [
            (None, rate(1.0, false), true, rate(1.0, false)),
            (rate(2.0, true), None, true, rate(2.0, true)),
            // It was the limit, or it was not and is at least as fast as before.
            (rate(2.0, true), rate(1.0, true), true, rate(1.0, true)),
            (rate(2.0, true), rate(1.0, true), false, rate(2.0, true)),
            (rate(2.0, true), rate(3.0, true), false, rate(3.0, true)),
            // Bursts after rests look like a faster link.
            (rate(2.0, true), rate(3.0, false), false, rate(2.0, true)),
            (rate(2.0, true), rate(3.0, false), true, rate(2.0, true)),
            (rate(2.0, true), rate(1.0, false), true, rate(1.0, false)),
            (rate(2.0, false), rate(1.0, true), false, rate(1.0, true)),
        ] {
            assert_eq!(now_known(before, now, tight), known, "{before:?} {now:?} {tight}");
        }
    }
}
