//! A few samples asked for at every stage: how many bytes they come to, what they cost the node, what is left here.
//!
//! These are fetched beside the epoch, of samples whose pictures are known already, and used for nothing else. The node
//! says its CPU time with each; the rest of the ops runs on this thread under the CPU clock. Small and large samples
//! are taken in proportion. A node may keep pictures that it decoded, so each is asked for once only in a form that needs
//! that; some are asked for again in the end, to see what it takes then.

use super::learn::is_decoded;
use super::splitter::Splitter;
use super::{Shortfall, Staged, StagedAsk, Wish};
use crate::client::Client;
use crate::node::Ask;
use futures::StreamExt;
use futures::executor::block_on;
use gristmill_core::SampleId;
use gristmill_core::split::profile::MEASURED_MIN;
use gristmill_ops::{Draw, Scratch, Stage};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

/// How many are under way at once: each waits behind what the epoch has under way, and the epoch for what is learnt.
const UNDER_WAY: usize = 16;
/// The stages in turn; the more there is to learn about one, the more often it comes.
const TURN: [Stage; 10] = [
    Stage::Cut,
    Stage::Packed,
    Stage::Cropped,
    Stage::Cut,
    Stage::Packed,
    Stage::Finished,
    Stage::Cut,
    Stage::Packed,
    Stage::Cropped,
    Stage::Cut,
];

/// Stages of which it is seen what they take for a picture that was decoded before.
const AGAIN: [Stage; 2] = [Stage::Cropped, Stage::Packed];
/// And how often: one or two may not suit the stage.
const AGAIN_EACH: usize = MEASURED_MIN as usize + 4;

/// CPU time of this thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How many times the usual a measurement may be; what is above it was interrupted.
const USUAL_MAX: f64 = 1.3;
const CUT_MAX: f64 = 2.5;

/// What one sample came to.
#[derive(Debug)]
struct Learnt {
    draw: Draw,
    stage: Stage,
    /// Whether the node had its picture.
    again: bool,
    /// What its time may go by: nothing, raw bytes, pixels. None is zero.
    sizes: [f64; 3],
    bytes: usize,
    /// CPU seconds of the node and of what was left here.
    seconds: [f64; 2],
}

/// Cuts what stands out to what is usual: for any file, for one of so many bytes, or for one of so many pixels, whichever is
/// most. The kernel's work for a busy link counts as the time of whichever thread it interrupts, and of so few measurements
/// some that were hit would decide.
fn calm(learnt: &mut [Learnt]) {
    for stage in Stage::ALL {
        for (again, side) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
            let alike = |one: &&Learnt| one.stage == stage && one.again == again;
            let middle = |of: usize| {
                let mut usual: Vec<f64> =
                    learnt.iter().filter(alike).map(|one| one.seconds[side] / one.sizes[of]).collect();
                usual.sort_unstable_by(f64::total_cmp);
                usual.get(usual.len() / 2).copied().unwrap_or(0.0)
            };
            let middles = [middle(0), middle(1), middle(2)];
            // How much of a file is cut goes by the crop.
            let most = if stage == Stage::Cut { CUT_MAX } else { USUAL_MAX };
            for one in learnt.iter_mut().filter(|one| alike(&&**one)) {
                let usual = one.sizes.iter().zip(middles).map(|(size, middle)| size * middle);
                one.seconds[side] = one.seconds[side].min(most * usual.fold(0.0, f64::max));
            }
        }
    }
}

impl Splitter {
    /// Asks for some samples at every stage and notes what comes.
    pub(super) fn ask_for_some(
        &self,
        client: &Client,
        epoch: u64,
        gone: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let Some(pipeline) = &self.pipeline else { return Err("there is no recipe".into()) };
        let asks = self.asks(epoch);
        if asks.is_empty() {
            return Err("no picture was seen yet".into());
        }
        let fetch =
            |(stage, ask): (Stage, StagedAsk)| async move { (stage, ask, client.fetch_staged(&[ask]).await) };
        let (mut scratch, mut out) = (Scratch::new(), vec![0; pipeline.output().bytes()]);
        let mut decoded = BTreeSet::new();
        let (mut learnt, mut busy, mut bytes, mut trouble) = (Vec::new(), 0_u64, 0_u64, None);
        block_on(async {
            let mut came = futures::stream::iter(asks).map(fetch).buffer_unordered(UNDER_WAY);
            while let Some((stage, ask, answer)) = came.next().await {
                if gone() {
                    trouble = Some("nobody waits for it any more".into());
                    break;
                }
                let staged = match answer.map(|mut all| all.pop()) {
                    Ok(Some(Ok(staged))) => staged,
                    Ok(Some(Err(error))) | Err(error) => {
                        trouble = Some(error.to_string());
                        continue;
                    }
                    Ok(None) => continue,
                };
                bytes += staged.served.bytes.len() as u64;
                self.beside_bytes.fetch_add(staged.served.bytes.len() as u64, Relaxed);
                busy += u64::from(matches!(staged.shortfall, Shortfall::Busy | Shortfall::Unprepared));
                let Staged { served, cpu_ns, .. } = &staged;
                let (Some(wish), true) = (ask.wish, staged.stage == stage) else { continue };
                let draw = Draw { seed: wish.seed, epoch: wish.epoch, sample: served.id };
                let begin = thread_cpu_ns();
                if pipeline.run_from(&mut scratch, draw, stage, &served.bytes, &mut out).is_ok() {
                    let took_ns = thread_cpu_ns() - begin;
                    self.calibration_ns.fetch_add(took_ns + cpu_ns, Relaxed);
                    let seconds = [*cpu_ns, took_ns].map(|ns| ns as f64 / 1e9);
                    let again = is_decoded(stage) && !decoded.insert(served.id);
                    let raw_bytes = self.raw_bytes(served.id).max(1);
                    let facts = self.lock().pictures.of(served.id, raw_bytes);
                    let pixels = (f64::from(facts.width) * f64::from(facts.height)).max(1.0);
                    let sizes = [1.0, raw_bytes.into(), pixels];
                    learnt.push(Learnt { draw, stage, again, sizes, bytes: served.bytes.len(), seconds });
                }
            }
        });
        self.lock().calibration_bytes += bytes;
        calm(&mut learnt);
        for Learnt { draw, stage, bytes, seconds: [upstream_s, local_s], .. } in &learnt {
            self.finished_staged(*draw, *stage, *bytes, *upstream_s, *local_s);
        }
        match trouble {
            _ if learnt.len() as u64 >= MEASURED_MIN => Ok(()),
            Some(trouble) => Err(format!("the node could not be measured: {trouble}")),
            None if busy > 0 => Err("the node was too busy to be measured".into()),
            None => Err("no sample could be brought to any stage".into()),
        }
    }

    /// Which samples at which stages.
    fn asks(&self, epoch: u64) -> Vec<(Stage, StagedAsk)> {
        let guard = self.lock();
        let mut by_size: Vec<u32> = guard.seen.clone();
        by_size.sort_unstable_by_key(|&id| (self.raw_bytes(SampleId(id)), id));
        let lossy = self.options.lossy.then_some(Stage::Lossy);
        let turn: Vec<Stage> = TURN.into_iter().chain(lossy).collect();
        // So many that even the rarest stage is measured often enough.
        let known = by_size.len();
        // Each may come again, with another draw: from too few the cheapest stage is the one that was measured too low.
        let wanted = (self.options.calibrate_samples as usize).min(known * 2);
        let wanted = wanted.max(turn.len() * MEASURED_MIN as usize);
        let mut asks: Vec<(Stage, StagedAsk)> = Vec::with_capacity(wanted);
        let mut decoded = vec![false; known];
        for at in 0..wanted {
            // One further in every turn and round, so that every stage walks through all sizes.
            let (round, turned) = (at / known.max(1), at / turn.len());
            let (place, stage) = ((at + turned + round) % known.max(1), turn[at % turn.len()]);
            let asked = asks.iter().filter(|(of, _)| *of == stage).count() as u64;
            // The next one that was not decoded yet; from few pictures all come again, rather than that a stage is unknown.
            let fresh = (place..known).chain(0..place).find(|&place| stage == Stage::Cut || !decoded[place]);
            let Some(place) = fresh.or((asked < MEASURED_MIN).then_some(place)) else { continue };
            let Some(&id) = by_size.get(place) else { break };
            let id = SampleId(id);
            let (raw, bytes_max) = (self.raw_bytes(id), self.bytes_max(stage, id));
            // What is larger than the file costs the link dearly, and is seldom chosen: of that only as many as it needs.
            let dear = bytes_max > raw && asked >= MEASURED_MIN;
            if dear || (stage == Stage::Cut && !guard.pictures.of(id, raw).can_cut) {
                continue;
            }
            decoded[place] |= stage != Stage::Cut;
            let wish = Wish { stage, epoch: epoch + turned as u64, seed: self.seed, bytes_max };
            asks.push((stage, StagedAsk { ask: Ask { id, cold: false }, wish: Some(wish) }));
        }
        let decoded: Vec<u32> =
            by_size.iter().zip(decoded).filter(|(_, was)| *was).map(|(id, _)| *id).collect();
        for stage in AGAIN {
            let some = AGAIN_EACH.min(decoded.len());
            asks.extend((0..some).map(|at| {
                let (id, epoch) = (SampleId(decoded[at * decoded.len() / some]), epoch + wanted as u64);
                let wish = Wish { stage, epoch, seed: self.seed, bytes_max: self.bytes_max(stage, id) };
                (stage, StagedAsk { ask: Ask { id, cold: false }, wish: Some(wish) })
            }));
        }
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_interrupted_is_cut_to_what_is_usual() {
        let one = |stage, again, size: f64, micros: [f64; 2]| Learnt {
            draw: Draw { seed: 0, epoch: 0, sample: SampleId(0) },
            stage,
            again,
            sizes: [1.0, size, size],
            bytes: 1,
            seconds: micros.map(|micros| micros / 1e6),
        };
        // As measured beside a busy link: most take half a millisecond, some were hit by the kernel's work.
        let mut learnt: Vec<Learnt> = [472.0, 4_053.0, 465.0, 480.0, 2_793.0, 466.0, 463.0]
            .map(|micros| one(Stage::Cropped, false, 68e3, [micros, 1.0]))
            .into();
        // Files of other sizes; what is left of them is the same for all. And other work, of which these say nothing.
        learnt.push(one(Stage::Cropped, false, 136e3, [960.0, 1.0]));
        learnt.push(one(Stage::Cropped, false, 6.8e3, [80.0, 1.0]));
        learnt.push(one(Stage::Cropped, true, 68e3, [35.0, 1.0]));
        learnt.extend([500.0, 900.0, 9_000.0].map(|micros| one(Stage::Cut, false, 68e3, [micros, 340.0])));
        calm(&mut learnt);
        let micros: Vec<f64> = learnt.iter().map(|one| (one.seconds[0] * 1e6).round()).collect();
        let cropped = [472.0, 624.0, 465.0, 480.0, 624.0, 466.0, 463.0, 960.0, 80.0, 35.0];
        assert_eq!(micros, [&cropped[..], &[500.0, 900.0, 2_250.0]].concat());
        assert!(learnt[..10].iter().all(|one| (one.seconds[1] - 1e-6).abs() < 1e-12), "{learnt:?}");
        calm(&mut []);
    }
}
