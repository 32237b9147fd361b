//! Samples that are wanted at a stage: recipes are taken in, samples are read as always and then brought there.
//!
//! A group holds few samples, since all of them wait for the slowest one's ops, and samples that are wanted raw never
//! share a group with those. What is booked for a group is the raw bytes and what may come out. Only a part of the memory
//! may wait for ops: when that is taken the group is answered raw at once.

use super::ops::{Done, Job};
use super::outgoing::{Answer, Booked};
use super::requests::{GROUP_BYTES, REQUEST_BYTES, Requests, serve};
use crate::node::{Ask, Served};
use crate::split::{Shortfall, Staged, Wish};
use crate::wire::{ENTRIES_MAX, FetchStaged, Prepare, Prepared, Rows, WireAsk};
use crate::{Error, Result};
use futures::future::join_all;
use gristmill_ops::{Limits, Pipeline, Recipe, Stage};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most recipes of one connection.
const RECIPES_MAX: usize = 4;
/// The most ops of a recipe.
const OPS_MAX: usize = 64;
/// How much longer than its pixels a JPEG of them may be; one that is longer still is not sent.
const LOSSY_EXTRA_BYTES: u64 = 1 << 10;
/// The most samples of a group that wait for ops.
const STAGED_MAX: usize = 4;

impl Requests<'_> {
    /// Takes a recipe in; the error says why its ops are not run here.
    pub(super) fn prepare(&mut self, prepare: &Prepare) -> Result<Prepared> {
        let (options, cores) = (&self.state.options, self.state.ops.cores());
        // What a recipe takes is not booked: few connections are jobs, and each may have few of a bounded length.
        if self.job.is_none() {
            return Err(Error::config("only a job hands over recipes, and this connection is a peer's"));
        }
        if cores <= 0.0 {
            return Err(Error::config("the node gives no cores to ops").hint("start it with --cores"));
        }
        if prepare.build != options.build {
            return Err(Error::config(format!(
                "the node runs ops of build {}, the client of build {}",
                options.build, prepare.build
            ))
            .hint("run the same version of gristmill on both sides"));
        }
        if self.recipes.len() >= RECIPES_MAX {
            return Err(Error::config(format!(
                "{RECIPES_MAX} recipes were handed over on this connection, its limit"
            )));
        }
        let recipe = Recipe::parse(&prepare.recipe).map_err(|e| Error::config(e.to_string()))?;
        if recipe.ops.len() > OPS_MAX {
            return Err(Error::config(format!(
                "the recipe has {} ops, and a node takes {OPS_MAX}",
                recipe.ops.len()
            )));
        }
        // What fails under the client's limits must fail here too: it goes out raw, and the client says what is wrong.
        let scratch_bytes_max = options.op_scratch_bytes_max.min(prepare.scratch_bytes_max);
        let limits = Limits {
            pixels_max: prepare.pixels_max,
            scratch_bytes_max: usize::try_from(scratch_bytes_max).unwrap_or(usize::MAX),
        };
        let encoding = self.hosted.node.set().catalog().encoding();
        let pipeline = Pipeline::new(&recipe, encoding, limits).map_err(|e| Error::config(e.to_string()))?;
        let (bytes, most) =
            (pipeline.output().bytes() as u64, options.op_scratch_bytes_max.min(options.sample_bytes_max));
        if bytes > most {
            return Err(Error::config(format!(
                "a sample of this recipe has {bytes} bytes, and the node makes {most} at most"
            ))
            .hint("raise serve.op_scratch_bytes_max and serve.sample_bytes_max"));
        }
        self.recipes.push(Arc::new(pipeline));
        Ok(Prepared { handle: self.recipes.len() as u32 - 1, cores: cores as f32 })
    }

    /// Has samples brought to their stages and sent.
    pub(super) async fn fetch_staged(&mut self, request: u32, fetch: FetchStaged) -> Result<()> {
        self.state.counts.messages.fetch_add(1, Relaxed);
        let asks = &fetch.asks;
        if asks.is_empty() {
            let error = Error::config("a fetch that asks for nothing");
            return self.say(Answer::of(request, &Err(error))).await;
        }
        let (mut first, mut raw, mut made) = (0, 0, 0);
        for (at, ask) in asks.iter().enumerate() {
            let catalog = self.hosted.node.set().catalog();
            let size = u64::from(catalog.size(ask.ask.id).unwrap_or(0));
            let more = ask.wish.map_or(0, |(handle, wish)| self.made_max(handle, wish, size));
            let most = if ask.wish.is_some() { STAGED_MAX } else { ENTRIES_MAX };
            let other = at > first && asks[first].wish.is_some() != ask.wish.is_some();
            if at > first && (other || at - first >= most || raw.max(made) + size.max(more) > GROUP_BYTES) {
                self.staged_group(request, first, &asks[first..at], raw, made).await?;
                (first, raw, made) = (at, 0, 0);
            }
            raw += size;
            made += more;
        }
        self.staged_group(request, first, &asks[first..], raw, made).await
    }

    /// What may come out of ops for one sample of `raw` bytes.
    fn made_max(&self, handle: u32, wish: Wish, raw: u64) -> u64 {
        let Some(pipeline) = self.recipes.get(handle as usize) else { return 0 };
        let bytes = |stage| pipeline.stage_bytes(stage, 0, 0).unwrap_or(u64::MAX);
        let most = match wish.stage {
            Stage::Raw => 0,
            // Otherwise they are not made.
            Stage::Cut | Stage::Packed => raw,
            Stage::Lossy => bytes(Stage::Cropped).saturating_add(LOSSY_EXTRA_BYTES),
            Stage::Cropped | Stage::Finished => bytes(wish.stage),
            // The size of the picture is not known yet; its pixels were in the working memory.
            Stage::Decoded => pipeline.limits().scratch_bytes_max as u64,
        };
        most.min(wish.bytes_max.into()).min(self.state.options.sample_bytes_max)
    }

    async fn staged_group(
        &mut self,
        request: u32,
        first: usize,
        asks: &[WireAsk],
        raw: u64,
        made: u64,
    ) -> Result<()> {
        let most = self.state.options.sample_bytes_max;
        if raw > most.max(GROUP_BYTES) {
            let error = || {
                Error::config(format!("a sample of {raw} bytes is over the limit of {most} that is sent"))
                    .hint("raise serve.sample_bytes_max")
            };
            let results = asks.iter().map(|ask| (ask.ask.id, Err(error())));
            let answer = Answer::samples(request, first as u32, results, Rows::Staged, Booked::default());
            return self.say(answer).await;
        }
        let staged = asks.iter().any(|ask| ask.wish.is_some_and(|(_, wish)| wish.stage != Stage::Raw));
        let waits = (raw + made).min(self.state.options.staged_bytes_max()) as u32;
        let room = if staged { self.state.staged.clone().try_acquire_many_owned(waits).ok() } else { None };
        let (busy, made) = (room.is_none(), if room.is_some() { made } else { 0 });
        let booked = self.book(raw + made + REQUEST_BYTES).await?;
        let (node, job, state) = (self.hosted.node.clone(), self.job, self.state.clone());
        let set = node.set().catalog().digest();
        let plain: Vec<Ask> = asks.iter().map(|ask| ask.ask).collect();
        let wishes: Vec<_> = asks
            .iter()
            .map(|ask| {
                ask.wish.map(|(handle, mut wish)| {
                    // Another sample may stand in, of another size.
                    wish.bytes_max = self.made_max(handle, wish, u64::MAX) as u32;
                    (self.recipes.get(handle as usize).cloned(), wish)
                })
            })
            .collect();
        self.answer_with(async move {
            let served = serve(&node, job, &plain).await;
            let staged = join_all(served.into_iter().zip(wishes).map(async |(served, wish)| {
                let served = served?;
                let Some((pipeline, wish)) = wish.filter(|(_, wish)| wish.stage != Stage::Raw) else {
                    return Ok(Staged::raw(served));
                };
                let done = match pipeline {
                    None => Done::short(Shortfall::Unprepared),
                    Some(_) if busy => Done::short(Shortfall::Busy),
                    Some(pipeline) => {
                        let (id, bytes) = (served.id, served.bytes.clone());
                        let job = Job { pipeline, set, id, wish, bytes };
                        match state.ops.submit(job) {
                            // A pool that ends sends nothing more.
                            Some(done) => done.await.unwrap_or_else(|_| Done::short(Shortfall::Busy)),
                            None => Done::short(Shortfall::Busy),
                        }
                    }
                };
                let Done { bytes, stage, shortfall, cpu_ns } = done;
                let served = Served { bytes: bytes.unwrap_or(served.bytes), ..served };
                state.ops.sent(stage, shortfall, served.bytes.len());
                Ok(Staged { served, stage, shortfall, cpu_ns })
            }))
            .await;
            // From here on it is an answer like any other.
            drop(room);
            let asked = plain.iter().map(|ask| ask.id);
            let answer = Answer::samples(request, first as u32, asked.zip(staged), Rows::Staged, booked);
            state.counts.samples.fetch_add(plain.len() as u64, Relaxed);
            state.counts.bytes.fetch_add(answer.sample_bytes(), Relaxed);
            answer
        })
        .await
    }
}
