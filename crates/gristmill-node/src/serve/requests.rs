//! Takes requests from a connection and has them answered.
//!
//! A fetch is cut into groups of at most [`ENTRIES_MAX`] samples or [`GROUP_BYTES`], each of which becomes one answer.
//! A group books its bytes before it is read; its sizes are known from the catalog. It is tried on the spot, and only
//! if the node has to wait for something does it get a task of its own.

use super::connection::MESSAGE_BYTES_MAX;
use super::outgoing::{Answer, Booked, BookedLane};
use super::{Hosted, State};
use crate::error::plain;
use crate::lane::{self, LaneWriter};
use crate::node::{Ask, JobId, Looked, Node, Served};
use crate::split::Staged;
use crate::wire::{
    Announce, CATALOG_PART_BYTES, CatalogPart, ENTRIES_MAX, Fetch, FetchStaged, HEADER_BYTES, Header, Lane,
    Prepare, Rows, Stand, Verb,
};
use crate::{Error, Kind, Result};
use bytes::{Buf, BytesMut};
use futures::future::join_all;
use gristmill_ops::Pipeline;
use ring::rand::SecureRandom;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A group is full when its samples have this many bytes together.
pub(super) const GROUP_BYTES: u64 = 1 << 20;
/// How much is read at once.
const READ_BYTES: usize = 4 << 10;
/// What a request costs beside its samples.
pub(super) const REQUEST_BYTES: u64 = 4 << 10;
/// Messages from this size on are booked like answers.
const BOOKED_BYTES: usize = 64 << 10;
/// How much longer than the data set a plan may be: samples may come twice.
const PLAN_EXTRA: usize = 1 << 16;

/// The requests of one connection.
pub(super) struct Requests<'a> {
    pub(super) state: &'a Arc<State>,
    pub(super) hosted: &'a Hosted,
    pub(super) job: Option<JobId>,
    answers: Option<mpsc::Sender<Answer>>,
    tasks: JoinSet<()>,
    /// The recipes that were handed over, by handle.
    pub(super) recipes: Vec<Arc<Pipeline>>,
    /// How many requests and how many bytes may be in flight here.
    slots: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    draining: watch::Receiver<bool>,
    plan: Option<Plan>,
    /// Whether the other side may have a lane: it is on this machine, and has none yet.
    may_have_lane: bool,
}

/// A plan of which not all parts came yet.
struct Plan {
    epoch: u64,
    full: bool,
    parts: u32,
    came: u32,
    order: Vec<u32>,
}

impl<'a> Requests<'a> {
    pub(super) fn new(
        state: &'a Arc<State>,
        hosted: &'a Hosted,
        job: Option<JobId>,
        answers: mpsc::Sender<Answer>,
        may_have_lane: bool,
    ) -> Requests<'a> {
        let options = &state.options;
        Requests {
            state,
            hosted,
            job,
            answers: Some(answers),
            tasks: JoinSet::new(),
            recipes: Vec::new(),
            slots: Arc::new(Semaphore::new(options.requests_max as usize)),
            bytes: Arc::new(Semaphore::new(options.connection_bytes_max as usize)),
            draining: state.draining.subscribe(),
            plan: None,
            may_have_lane,
        }
    }

    /// No more will come: what is under way goes on until it is answered.
    pub(super) fn finish(&mut self) {
        self.answers = None;
        std::mem::take(&mut self.tasks).detach_all();
    }

    /// Takes requests until the other side says goodbye or the server drains (`Ok`), or something is wrong.
    pub(super) async fn take<R: AsyncRead + Unpin>(&mut self, from: &mut R) -> Result<()> {
        let idle = Duration::from_millis(self.state.options.idle_ms_max);
        let slow = Duration::from_millis(self.state.options.write_ms_max);
        let mut buffer = BytesMut::new();
        loop {
            let wanted = loop {
                let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else { break HEADER_BYTES };
                let header = Header::decode(header, MESSAGE_BYTES_MAX)?;
                let whole = HEADER_BYTES + header.bytes as usize;
                if buffer.len() < whole {
                    break whole;
                }
                buffer.advance(HEADER_BYTES);
                let body = buffer.split_to(header.bytes as usize);
                if !self.answer(header, &body).await? {
                    return Ok(());
                }
            };
            // A message that has begun must end soon; between messages there may be a rest.
            let limit = if buffer.is_empty() { idle } else { slow };
            let booked = match wanted {
                BOOKED_BYTES.. => Some(self.book(wanted as u64).await?),
                _ => None,
            };
            buffer.reserve((wanted - buffer.len()).max(READ_BYTES));
            loop {
                let read = tokio::select! {
                    biased;
                    read = timeout(limit, from.read_buf(&mut buffer)) => read,
                    _ = self.draining.wait_for(|draining| *draining) => return Ok(()),
                };
                match read {
                    Ok(Ok(1..)) => {}
                    Ok(Ok(0) | Err(_)) => return Err(Error::new(Kind::Stopped, "the other side is gone")),
                    Err(_) => {
                        let ms = limit.as_millis();
                        return Err(Error::new(Kind::Unavailable, format!("nothing came for {ms} ms")));
                    }
                }
                if buffer.len() >= wanted {
                    break;
                }
            }
            drop(booked);
        }
    }

    /// Has one request answered; false when it is the last.
    async fn answer(&mut self, header: Header, body: &[u8]) -> Result<bool> {
        let request = header.request;
        if header.verb.since() > self.state.options.wire_version {
            return Err(Error::corrupt(format!(
                "{:?} is not of the version that this node speaks",
                header.verb
            )));
        }
        match header.verb {
            Verb::Fetch => self.fetch(request, Fetch::decode(body)?).await?,
            Verb::Announce => {
                if let Some(outcome) = self.announce(Announce::decode(body)?) {
                    self.say(Answer::of(request, &outcome)).await?;
                }
            }
            Verb::Stand => {
                let outcome = self.stand(&Stand::decode(body)?);
                self.say(Answer::of(request, &outcome)).await?;
            }
            Verb::Catalog => {
                let from = CatalogPart::decode_from(body)?;
                let booked = self.book(CATALOG_PART_BYTES as u64).await?;
                let answer = self.catalog(request, from).holding(booked);
                self.say(answer).await?;
            }
            Verb::Report => {
                let text = serde_json::to_vec(&self.state.report()).unwrap_or_default();
                self.say(Answer::new(Verb::ReportText, request, |out| out.extend_from_slice(&text))).await?;
            }
            Verb::Prepare => {
                let answer = match self.prepare(&Prepare::decode(body)?) {
                    Ok(prepared) => Answer::new(Verb::Prepared, request, |out| prepared.encode(out)),
                    Err(error) => Answer::of(request, &Err(error)),
                };
                self.say(answer).await?;
            }
            Verb::FetchStaged => self.fetch_staged(request, FetchStaged::decode(body)?).await?,
            Verb::WantLane => {
                let answer = match self.lane(Lane::decode_wish(body)?) {
                    Ok(lane) => Answer::lane(request, lane),
                    Err(error) => Answer::of(request, &Err(error)),
                };
                self.say(answer).await?;
            }
            Verb::Ping => self.say(Answer::of(request, &Ok(()))).await?,
            Verb::Bye => return Ok(false),
            other => return Err(Error::corrupt(format!("{other:?} is not said by clients"))),
        }
        Ok(true)
    }

    /// Queues an answer, and waits if too many are queued.
    pub(super) async fn say(&self, answer: Answer) -> Result<()> {
        let gone = || Error::new(Kind::Stopped, "the other side is gone");
        let Some(answers) = &self.answers else { return Err(gone()) };
        answers.send(answer).await.map_err(|_| gone())
    }

    /// Books memory, here and in all; waits until there is some. Nothing can book more than all of it.
    pub(super) async fn book(&self, bytes: u64) -> Result<Booked> {
        let gone = |_| Error::new(Kind::Stopped, "the server has ended");
        let here = bytes.min(self.state.options.connection_bytes_max) as u32;
        let all = bytes.min(self.state.options.bytes_in_flight_max) as u32;
        Ok(Booked::new([
            take(&self.slots, 1).await.map_err(gone)?,
            take(&self.bytes, here).await.map_err(gone)?,
            take(&self.state.budget, all).await.map_err(gone)?,
        ]))
    }

    async fn fetch(&mut self, request: u32, fetch: Fetch) -> Result<()> {
        self.state.counts.messages.fetch_add(1, Relaxed);
        if fetch.split != 0 {
            let error = Error::config(format!(
                "split {} was asked for, but this node runs no ops: it has raw bytes only",
                fetch.split
            ));
            return self.say(Answer::of(request, &Err(error))).await;
        }
        if fetch.asks.is_empty() {
            let error = Error::config("a fetch that asks for nothing");
            return self.say(Answer::of(request, &Err(error))).await;
        }
        let (mut first, mut bytes) = (0, 0);
        for (at, ask) in fetch.asks.iter().enumerate() {
            // One that is unknown takes no room; the node says what is wrong with it.
            let size = u64::from(self.hosted.node.set().catalog().size(ask.id).unwrap_or(0));
            if at > first && (at - first == ENTRIES_MAX || bytes + size > GROUP_BYTES) {
                self.group(request, first, &fetch.asks[first..at], bytes, fetch.peer).await?;
                (first, bytes) = (at, 0);
            }
            bytes += size;
        }
        self.group(request, first, &fetch.asks[first..], bytes, fetch.peer).await
    }

    /// Fetches one group now, or on a task of its own if that takes time.
    async fn group(
        &mut self,
        request: u32,
        first: usize,
        asks: &[Ask],
        bytes: u64,
        peer: bool,
    ) -> Result<()> {
        let most = self.state.options.sample_bytes_max;
        if bytes > most.max(GROUP_BYTES) {
            let error = || {
                Error::config(format!("a sample of {bytes} bytes is over the limit of {most} that is sent"))
                    .hint("raise serve.sample_bytes_max")
            };
            let results = asks.iter().map(|ask| (ask.id, Err(error())));
            let answer = Answer::samples(request, first as u32, results, Rows::Plain, Booked::default());
            return self.say(answer).await;
        }
        let booked = self.book(bytes + REQUEST_BYTES).await?;
        let answer = move |state: &State, asks: &[Ask], results: Vec<Result<Served>>| {
            let asked = asks.iter().map(|ask| ask.id);
            let results = results.into_iter().map(|result| result.map(Staged::raw));
            let answer = Answer::samples(request, first as u32, asked.zip(results), Rows::Plain, booked);
            state.counts.samples.fetch_add(asks.len() as u64, Relaxed);
            state.counts.bytes.fetch_add(answer.sample_bytes(), Relaxed);
            answer
        };
        let looked = match self.job.filter(|_| !peer).map(|job| (job, self.hosted.node.look(job, asks))) {
            // With nothing to wait for there is no need of anything that outlives this call.
            Some((_, Looked { answers, missing })) if missing.is_empty() => {
                return self.say(answer(self.state, asks, answers)).await;
            }
            looked => looked,
        };
        let (state, node, asks) = (self.state.clone(), self.hosted.node.clone(), asks.to_vec());
        self.answer_with(async move {
            let results = match looked {
                Some((job, looked)) => node.fetch_rest(job, &asks, looked).await,
                None => serve(&node, None, &asks).await,
            };
            answer(&state, &asks, results)
        })
        .await
    }

    /// Queues the answer that this gives: at once, or from a task of its own if it takes time.
    pub(super) async fn answer_with(
        &mut self,
        work: impl Future<Output = Answer> + Send + 'static,
    ) -> Result<()> {
        let mut work = Box::pin(work);
        if let Poll::Ready(answer) = futures::poll!(&mut work) {
            return self.say(answer).await;
        }
        while self.tasks.try_join_next().is_some() {}
        if let Some(answers) = self.answers.clone() {
            self.tasks.spawn(async move {
                // A connection that ended meanwhile does not want it any more.
                let _ = answers.send(work.await).await;
            });
        }
        Ok(())
    }

    /// Puts a part of a plan to the others; the outcome when it was the last one.
    fn announce(&mut self, part: Announce) -> Option<Result<()>> {
        let samples = self.hosted.node.set().catalog().len() as usize;
        let Announce { epoch, full, part, parts, order } = part;
        if part == 0 {
            self.plan = Some(Plan { epoch, full, parts, came: 0, order: Vec::new() });
        }
        let fits = |plan: &&mut Plan| {
            (plan.epoch, plan.full, plan.parts, plan.came) == (epoch, full, parts, part)
                && plan.order.len() + order.len() <= 2 * samples + PLAN_EXTRA
        };
        let Some(plan) = self.plan.as_mut().filter(fits) else {
            self.plan = None;
            return Some(Err(Error::config("a plan came out of order, or is far longer than the data set")));
        };
        plan.came += 1;
        plan.order.extend(order);
        if plan.came < plan.parts {
            return None;
        }
        let Plan { epoch, full, order, .. } = self.plan.take()?;
        if let Some(id) = order.iter().find(|id| **id as usize >= samples) {
            return Some(Err(Error::config(format!("there is no sample {id}: the data set has {samples}"))));
        }
        // The node orders its cache anew, which takes a while with millions of samples: others are served meanwhile.
        Some(self.job().and_then(|job| {
            tokio::task::block_in_place(|| self.hosted.node.announce(job, epoch, full, order))
        }))
    }

    /// Makes a lane, if there is room for one more.
    fn lane(&mut self, bytes: u32) -> Result<BookedLane> {
        let no = |why: &str| Error::new(Kind::Unavailable, format!("there is no lane: {why}"));
        if !std::mem::take(&mut self.may_have_lane) {
            return Err(no("it is for one that comes through the Unix socket, once"));
        }
        let bytes = bytes.clamp(lane::BYTES_MIN, lane::BYTES_MAX);
        let booked = Arc::clone(&self.state.lanes).try_acquire_many_owned(bytes);
        let booked = booked.map_err(|_| no("serve.lanes_bytes_max leaves no room for it"))?;
        let mut mark = [0; lane::MARK_BYTES];
        ring::rand::SystemRandom::new().fill(&mut mark).map_err(|_| no("no random numbers"))?;
        let writer = LaneWriter::new(bytes, mark).map_err(|e| no(&plain(&e)))?;
        Ok(BookedLane::new(writer, Arc::clone(self.state), booked))
    }

    fn stand(&self, stand: &Stand) -> Result<()> {
        self.job().and_then(|job| self.hosted.node.stand(job, &stand.standings))
    }

    fn job(&self) -> Result<JobId> {
        self.job.ok_or_else(|| Error::config("only a job announces and says how samples stand"))
    }

    fn catalog(&self, request: u32, from: u64) -> Answer {
        let file = self.hosted.node.set().catalog().file();
        let total = file.len() as u64;
        if from > total {
            let error = Error::config(format!("the catalog has {total} bytes, so there is no byte {from}"));
            return Answer::of(request, &Err(error));
        }
        let rest = &file[from as usize..];
        let bytes = &rest[..rest.len().min(CATALOG_PART_BYTES)];
        Answer::new(Verb::CatalogPart, request, |out| CatalogPart { total, from, bytes }.encode(out))
    }
}

/// What the node has for these asks; without a job it is asked as by a peer.
pub(super) async fn serve(node: &Node, job: Option<JobId>, asks: &[Ask]) -> Vec<Result<Served>> {
    let Some(job) = job else {
        let samples = node.set().catalog().len();
        return join_all(asks.iter().map(async |ask| {
            if ask.id.0 >= samples {
                return Err(Error::config(format!(
                    "there is no sample {}: the data set has {samples}",
                    ask.id
                )));
            }
            node.fetch_for_peer(ask.id).await
        }))
        .await;
    };
    node.fetch(job, asks).await
}

/// Permits, at best without waiting.
async fn take(
    semaphore: &Arc<Semaphore>,
    many: u32,
) -> std::result::Result<OwnedSemaphorePermit, tokio::sync::AcquireError> {
    match semaphore.clone().try_acquire_many_owned(many) {
        Ok(permit) => Ok(permit),
        Err(_) => semaphore.clone().acquire_many_owned(many).await,
    }
}
