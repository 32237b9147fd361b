//! What was asked and not answered yet, by request number.
//!
//! Numbers only grow and all requests may take equally long, so the first in the map is always the next to run out of
//! time.

use super::Ready;
use super::driver::{Reply, Shared};
use crate::split::Staged;
use crate::wire::{Prepared, SamplesHead};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// Requests in flight.
#[derive(Debug)]
pub(super) struct Pending {
    next: u32,
    waiting: BTreeMap<u32, (Instant, Waiting)>,
    shared: Arc<Shared>,
    answered: bool,
}

#[derive(Debug)]
enum Waiting {
    Fetch(Fetching),
    Call(Reply<Vec<u8>>),
    Prepare(Reply<Ready>),
    Done(Reply<()>),
}

/// One `Fetch` message, made of the asks of one or several callers.
#[derive(Debug)]
struct Fetching {
    answers: Vec<Option<Result<Staged>>>,
    /// Which places were answered: what was handed out is no longer in `answers`.
    seen: Vec<bool>,
    left: usize,
    callers: Vec<Caller>,
}

#[derive(Debug)]
struct Caller {
    start: usize,
    count: usize,
    reply: Reply<Vec<Result<Staged>>>,
}

impl Pending {
    pub(super) fn new(shared: Arc<Shared>) -> Pending {
        Pending { next: 1, waiting: BTreeMap::new(), shared, answered: false }
    }

    /// Whether any answer came at all.
    pub(super) fn answered(&self) -> bool {
        self.answered
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn add(&mut self, waiting: Waiting) -> u32 {
        let request = self.next;
        self.next = self.next.checked_add(1).unwrap_or(1);
        self.waiting.insert(request, (Instant::now(), waiting));
        request
    }

    /// Notes a fetch of several callers, each with its number of asks; gives its number.
    pub(super) fn fetch(&mut self, callers: Vec<(usize, Reply<Vec<Result<Staged>>>)>) -> u32 {
        let mut start = 0;
        let callers: Vec<Caller> = callers
            .into_iter()
            .map(|(count, reply)| {
                start += count;
                Caller { start: start - count, count, reply }
            })
            .collect();
        let answers = (0..start).map(|_| None).collect();
        self.add(Waiting::Fetch(Fetching { answers, seen: vec![false; start], left: start, callers }))
    }

    pub(super) fn call(&mut self, reply: Reply<Vec<u8>>) -> u32 {
        self.add(Waiting::Call(reply))
    }

    pub(super) fn prepare(&mut self, reply: Reply<Ready>) -> u32 {
        self.add(Waiting::Prepare(reply))
    }

    pub(super) fn done(&mut self, reply: Reply<()>) -> u32 {
        self.add(Waiting::Done(reply))
    }

    /// Whether samples of this request are still wanted; places that it does not have are an error.
    pub(super) fn wants(&self, request: u32, head: &SamplesHead) -> Result<bool> {
        match self.waiting.get(&request) {
            Some((_, Waiting::Fetch(fetching))) => {
                let end = head.first as usize + head.entries.len();
                let places = fetching.seen.get(head.first as usize..end);
                if places.is_none_or(|places| places.contains(&true)) {
                    return Err(Error::corrupt("the node sent samples that were not asked for"));
                }
                Ok(true)
            }
            Some(_) => Err(Error::corrupt("the node answered a request with something else")),
            None => Ok(false),
        }
    }

    /// Samples came; a caller hears as soon as it has all of its own.
    pub(super) fn samples(&mut self, request: u32, first: usize, came: Vec<Result<Staged>>) {
        let Some((_, Waiting::Fetch(fetching))) = self.waiting.get_mut(&request) else { return };
        self.answered = true;
        let served: u64 = came.iter().flatten().map(|one| one.served.bytes.len() as u64).sum();
        self.shared.bytes.fetch_add(served, Relaxed);
        self.shared.samples.fetch_add(came.len() as u64, Relaxed);
        fetching.left -= came.len();
        fetching.seen[first..first + came.len()].fill(true);
        for (place, result) in fetching.answers[first..].iter_mut().zip(came) {
            *place = Some(result);
        }
        let answers = &mut fetching.answers;
        let mut at = 0;
        while let Some(caller) = fetching.callers.get(at) {
            let own = &mut answers[caller.start..caller.start + caller.count];
            if own.iter().any(Option::is_none) {
                at += 1;
                continue;
            }
            let all = own.iter_mut().filter_map(Option::take).collect();
            // A caller that went away does not want it any more.
            let _ = fetching.callers.swap_remove(at).reply.send(Ok(all));
        }
        if fetching.left == 0 {
            self.waiting.remove(&request);
        }
    }

    /// What was asked for in passing came: that alone does not show that the node answers requests.
    pub(super) fn forget(&mut self, request: u32) {
        self.waiting.remove(&request);
    }

    /// A body came for a call, or the word that something is done.
    pub(super) fn answer(&mut self, request: u32, answer: Result<Vec<u8>>) {
        self.answered |= answer.is_ok();
        match self.waiting.remove(&request) {
            Some((_, Waiting::Call(reply))) => drop(reply.send(answer)),
            Some((_, Waiting::Done(reply))) => drop(reply.send(answer.map(|_| ()))),
            Some((_, Waiting::Prepare(reply))) => {
                let said = answer.and_then(|body| Prepared::decode(&body));
                self.shared.set_prepared(&said);
                drop(reply.send(said.map(|prepared| Ready { cores: prepared.cores.into() })));
            }
            Some((_, Waiting::Fetch(fetching))) => {
                let error = answer.err().unwrap_or_else(|| {
                    Error::corrupt("the node answered a request for samples with something else")
                });
                fetching.fail(|| repeat(&error));
            }
            None => {}
        }
    }

    /// Fails what has waited longer than `limit`, and says how many those were.
    pub(super) fn expire(&mut self, limit: Duration, error: impl Fn() -> Error) -> usize {
        let mut expired = 0;
        while let Some(entry) = self.waiting.first_entry().filter(|entry| entry.get().0.elapsed() >= limit) {
            entry.remove().1.fail(&error);
            expired += 1;
        }
        expired
    }

    /// Fails everything.
    pub(super) fn fail(&mut self, error: impl Fn() -> Error) {
        std::mem::take(&mut self.waiting).into_values().for_each(|(_, waiting)| waiting.fail(&error));
    }
}

impl Waiting {
    fn fail(self, error: impl Fn() -> Error) {
        match self {
            Waiting::Fetch(fetching) => fetching.fail(error),
            Waiting::Call(reply) => drop(reply.send(Err(error()))),
            Waiting::Done(reply) => drop(reply.send(Err(error()))),
            Waiting::Prepare(reply) => drop(reply.send(Err(error()))),
        }
    }
}

impl Fetching {
    fn fail(self, error: impl Fn() -> Error) {
        self.callers.into_iter().for_each(|caller| drop(caller.reply.send(Err(error()))));
    }
}

/// The same error for another caller.
fn repeat(error: &Error) -> Error {
    let same = Error::new(error.kind(), error.to_string());
    error.remedy().map(ToString::to_string).into_iter().fold(same, Error::hint)
}
