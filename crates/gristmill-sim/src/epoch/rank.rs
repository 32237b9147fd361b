//! One rank: reads in flight, threads that decode, batches that are filled and taken.
//!
//! There are two kinds of loaders, as in the real one. With reads in flight, samples are asked for in the order of the plan,
//! as many at once as the limit allows, and what has arrived goes to the first thread that is free. Without, each thread
//! reads and decodes one sample after the other. Either way a batch is opened only when the one so many before it was taken.
//!
//! A rank does one thing at a time ([`Rank::act`]), always the earliest it can do next: ask for a sample, or let a thread that
//! is free begin with one that arrived, as soon as a core of its node is free, too.

use super::{Course, Shared};
use crate::clock::{Ns, Server, ns};
use std::collections::VecDeque;

/// A sample on its way.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: Ns,
    asked: Ns,
    batch: u32,
    /// Of its batch among those that are open.
    place: u32,
    relative: f64,
    /// Which thread reads it, where threads read for themselves.
    thread: u32,
}

/// A batch that is being filled: what is missing, and the story of the sample that was last.
#[derive(Debug, Clone, Copy, Default)]
struct Filling {
    missing: u32,
    asked: Ns,
    arrived: Ns,
    ready: Ns,
    reading: Ns,
    decoding: Ns,
}

/// What a rank waited for before a step, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wait {
    pub(super) read: Ns,
    pub(super) cpu: Ns,
    pub(super) late: Ns,
}

#[derive(Debug)]
pub(super) struct Rank {
    number: u32,
    node: usize,
    begin: Ns,
    server: Server,
    /// Whether threads read for themselves.
    direct: bool,
    /// The sample that is asked for next, and the place of its batch among those that are open.
    batch: u32,
    slot: u32,
    place: u32,
    /// Samples in a batch, and in the last one.
    full_len: u32,
    last_len: u32,
    batches: u32,
    /// How many batches were taken.
    taken: u32,
    /// By batch, round and round: when it may be opened, and how full it is.
    opens: Vec<Ns>,
    filling: Vec<Filling>,
    /// By read, round and round: when the read ends that makes room for it; and the place of the next read.
    ends: Vec<Ns>,
    next_end: usize,
    reads: u64,
    asked: Ns,
    arrivals: VecDeque<Arrival>,
    /// When each thread is free.
    threads: Vec<Ns>,
}

impl Rank {
    pub(super) fn new(number: u32, course: &Course<'_>) -> Rank {
        let (knobs, plan) = (course.knobs, course.plan);
        let begin = course.late(number);
        let open = (knobs.prefetch_batches + 1).min(plan.batches().max(1)) as usize;
        let samples = plan.samples().max(1) as usize;
        let len = |batch: usize| plan.batch_len(batch as u32) as u32;
        let filling = |batch| Filling { missing: len(batch), ..Filling::default() };
        Rank {
            number,
            node: (number / course.machine.ranks_per_node) as usize,
            begin,
            server: course.server(number),
            direct: knobs.reads_in_flight == 0,
            batch: 0,
            slot: 0,
            place: 0,
            full_len: len(0),
            last_len: len((plan.batches() as usize).saturating_sub(1)),
            batches: plan.batches(),
            taken: 0,
            opens: vec![begin; open],
            filling: (0..open).map(filling).collect(),
            ends: vec![0; (knobs.reads_in_flight as usize).min(samples)],
            next_end: 0,
            reads: 0,
            asked: 0,
            arrivals: VecDeque::new(),
            threads: vec![0; (knobs.threads as usize).min(samples)],
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// How many samples it asked for so far.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// How many samples a batch has.
    fn len(&self, batch: u32) -> u32 {
        if batch + 1 < self.batches { self.full_len } else { self.last_len }
    }

    /// How many batches were taken.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// Whether a batch that is not taken yet is full.
    pub(super) fn is_ready(&self, batch: u32) -> bool {
        let open = self.filling.len() as u32;
        batch < self.batches
            && (self.taken..self.taken + open).contains(&batch)
            && self.filling[(batch % open) as usize].missing == 0
    }

    /// When it next does something; never if all is done or a batch must be taken first.
    pub(super) fn next(&self) -> Option<Ns> {
        match (self.next_decode(), self.next_request()) {
            (Some((decode, _)), Some((request, _))) => Some(decode.min(request)),
            (decode, request) => decode.or(request).map(|(at, _)| at),
        }
    }

    /// When the next sample that arrived finds a thread, and which.
    fn next_decode(&self) -> Option<(Ns, u32)> {
        let arrival = self.arrivals.front()?;
        if self.direct {
            return Some((arrival.at, arrival.thread));
        }
        let thread = earliest(&self.threads);
        Some((arrival.at.max(self.threads[thread]), thread as u32))
    }

    /// When the next sample can be asked for, and by which thread.
    fn next_request(&self) -> Option<(Ns, u32)> {
        let open = self.opens.len() as u32;
        if self.batch == self.batches || self.batch >= self.taken + open {
            return None;
        }
        let (room, thread) = if self.direct {
            let thread = earliest(&self.threads);
            (self.threads[thread], thread as u32)
        } else {
            (self.ends[self.next_end], 0)
        };
        let opened = self.opens[self.place as usize];
        (room < Ns::MAX).then(|| (room.max(opened).max(self.asked), thread))
    }

    /// Does the next thing. The batch that this filled, if it did.
    pub(super) fn act(&mut self, course: &Course<'_>, shared: &mut Shared) -> Option<u32> {
        match (self.next_decode(), self.next_request()) {
            (Some((at, thread)), request) if request.is_none_or(|(asked, _)| at <= asked) => {
                self.decode(at, thread, course, shared)
            }
            (_, Some((at, thread))) => {
                self.ask(at, thread, course, shared);
                None
            }
            _ => None,
        }
    }

    fn ask(&mut self, now: Ns, thread: u32, course: &Course<'_>, shared: &mut Shared) {
        let relative = course.relative(self.number, self.batch, self.slot);
        let bytes = course.load.bytes * relative;
        // What the cache has takes neither time nor a place among the reads.
        let cached = course.cached(self.reads);
        let mut at = now;
        if !cached {
            let sent = shared.store.as_mut().map_or(now, |store| store.reserve(now, bytes));
            at = self.server.reserve(sent, bytes);
        }
        if self.direct {
            self.threads[thread as usize] = Ns::MAX;
        } else if !cached {
            self.ends[self.next_end] = at;
            self.next_end = if self.next_end + 1 == self.ends.len() { 0 } else { self.next_end + 1 };
        }
        self.asked = now;
        self.reads += 1;
        let (batch, place) = (self.batch, self.place);
        // Reads arrive in the order in which they are asked for; only the cache overtakes them.
        let arrival = Arrival { at, asked: now, batch, place, relative, thread };
        match self.arrivals.back() {
            Some(last) if last.at > at => {
                let place = self.arrivals.partition_point(|arrival| arrival.at <= at);
                self.arrivals.insert(place, arrival);
            }
            _ => self.arrivals.push_back(arrival),
        }
        self.slot += 1;
        if self.slot == self.len(self.batch) {
            self.batch += 1;
            self.slot = 0;
            self.place = if self.place + 1 == self.opens.len() as u32 { 0 } else { self.place + 1 };
        }
    }

    fn decode(&mut self, now: Ns, thread: u32, course: &Course<'_>, shared: &mut Shared) -> Option<u32> {
        let Arrival { at, asked, batch, place, relative, .. } = self.arrivals.pop_front()?;
        let mut start = now;
        let work = ns(course.load.cpu_s * relative);
        if let Some(cores) = shared.cores.get_mut(self.node) {
            let core = earliest(cores);
            start = start.max(cores[core]);
            cores[core] = start + work;
        }
        let done = start + work;
        self.threads[thread as usize] = done;
        let filling = &mut self.filling[place as usize];
        filling.missing -= 1;
        filling.reading += at - asked;
        filling.decoding += work;
        if done >= filling.ready {
            (filling.asked, filling.arrived, filling.ready) = (asked, at, done);
        }
        (filling.missing == 0).then_some(batch)
    }

    /// Takes the next batch, which is ready, for a step that cannot begin before `ended`; when, and what was waited for.
    pub(super) fn take(&mut self, ended: Ns) -> (Ns, Wait) {
        let place = self.taken as usize % self.filling.len();
        let filling = self.filling[place];
        let taken = filling.ready.max(ended);
        let wait = self.wait(&filling, ended);
        self.taken += 1;
        self.opens[place] = taken;
        let missing = self.len(self.taken - 1 + self.filling.len() as u32);
        self.filling[place] = Filling { missing, ..Filling::default() };
        (taken, wait)
    }

    /// What the last sample of a batch did while its rank waited, from the end back to the beginning of the wait.
    fn wait(&self, filling: &Filling, ended: Ns) -> Wait {
        if filling.ready <= ended {
            return Wait::default();
        }
        let late = self.begin.saturating_sub(ended).min(filling.ready - ended);
        let from = ended + late;
        let cpu = filling.ready - filling.arrived.max(from).min(filling.ready);
        let read = filling.arrived.max(from) - filling.asked.max(from).min(filling.arrived.max(from));
        let before = filling.ready - from - cpu - read;
        // Before it was asked for there was no room for it. Reads in flight make room when they arrive; a thread that
        // reads for itself when it has read and decoded.
        let waited_for_cpu = if self.direct {
            let all = filling.reading + filling.decoding;
            (u128::from(before) * u128::from(filling.decoding)).checked_div(u128::from(all)).unwrap_or(0)
                as Ns
        } else {
            0
        };
        Wait { read: read + before - waited_for_cpu, cpu: cpu + waited_for_cpu, late }
    }

    /// Disk time for what is sent and received beside the training.
    pub(super) fn burden(&mut self, bytes: f64) {
        // From the last request on, since those that come later may be made before the next step.
        self.server.burden(self.asked, bytes);
    }
}

/// The one that is free first, the lowest of equals.
fn earliest(times: &[Ns]) -> usize {
    let mut best = 0;
    for (place, at) in times.iter().enumerate().skip(1) {
        if *at < times[best] {
            best = place;
        }
    }
    best
}
