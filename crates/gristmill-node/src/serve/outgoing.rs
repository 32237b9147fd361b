//! Answers on their way out: many small ones in one system call, samples from where they lie, or through a lane.

use super::State;
use crate::lane::LaneWriter;
use crate::split::Staged;
use crate::wire::{Failure, Lane, Rows, SamplesHead, Verb, end_frame, put_frame};
use crate::{Error, Result};
use bytes::{Bytes, BytesMut};
use gristmill_core::SampleId;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};

/// What a client must take per second at the least.
const BYTES_PER_S_LEAST: u64 = 256 << 10;
/// How many answers are written together.
const TOGETHER: usize = 64;
/// So many answers are written before it is clear that a client does not open its lane: it does before it reads them.
const UNOPENED_MAX: u32 = 256;
/// How many pieces go into one system call; the system itself takes 1,024.
const PIECES: usize = 256;

/// What an answer holds until it is written: a place among the requests, and bytes here and in all.
#[derive(Debug, Default)]
pub(super) struct Booked {
    _permits: Option<[OwnedSemaphorePermit; 3]>,
}

impl Booked {
    pub(super) fn new(permits: [OwnedSemaphorePermit; 3]) -> Booked {
        Booked { _permits: Some(permits) }
    }
}

/// One frame: its head, and bytes that follow it.
#[derive(Debug)]
pub(super) struct Answer {
    head: Bytes,
    pieces: Vec<Bytes>,
    /// With this answer the lane begins.
    lane: Option<Box<BookedLane>>,
    _booked: Booked,
}

/// A lane and what it has booked.
#[derive(Debug)]
pub(super) struct BookedLane {
    writer: LaneWriter,
    /// Answers with samples that went over the socket because the client had not opened it.
    unopened: u32,
    state: Arc<State>,
    _booked: OwnedSemaphorePermit,
}

impl BookedLane {
    pub(super) fn new(writer: LaneWriter, state: Arc<State>, booked: OwnedSemaphorePermit) -> BookedLane {
        BookedLane { writer, unopened: 0, state, _booked: booked }
    }
}

impl Answer {
    /// A frame whose body `fill` writes.
    pub(super) fn new(verb: Verb, request: u32, fill: impl FnOnce(&mut BytesMut)) -> Answer {
        let mut out = BytesMut::new();
        let start = put_frame(&mut out, verb, request);
        fill(&mut out);
        end_frame(&mut out, start, 0);
        Answer { head: out.freeze(), pieces: Vec::new(), lane: None, _booked: Booked::default() }
    }

    /// The word of a lane, which is used from then on.
    pub(super) fn lane(request: u32, lane: BookedLane) -> Answer {
        let writer = &lane.writer;
        let said = Lane { fd: writer.fd(), bytes: writer.bytes(), mark: writer.mark() };
        let answer = Answer::new(Verb::LaneIs, request, |out| said.encode(out));
        Answer { lane: Some(Box::new(lane)), ..answer }
    }

    /// Puts its samples into the lane, if there is room now.
    fn take_lane(&mut self, lane: &mut BookedLane) {
        if self.pieces.is_empty() {
            return;
        }
        let Some(position) = lane.writer.put(&self.pieces) else {
            lane.unopened += u32::from(!lane.writer.opened());
            return;
        };
        lane.state.counts.lane_bytes.fetch_add(self.sample_bytes(), Relaxed);
        let mut head = BytesMut::with_capacity(crate::wire::HEADER_BYTES + 8 + self.head.len());
        let start = put_frame(&mut head, Verb::InLane, 0);
        Lane::encode_place(position, &mut head);
        end_frame(&mut head, start, 0);
        head.extend_from_slice(&self.head);
        self.head = head.freeze();
        self.pieces.clear();
    }

    /// The word that a request is done, or why it is not.
    pub(super) fn of(request: u32, outcome: &Result<()>) -> Answer {
        match outcome {
            Ok(()) => Answer::new(Verb::Done, request, |_| {}),
            Err(error) => Answer::new(Verb::Failed, request, |out| Failure::encode(error, out)),
        }
    }

    /// A sentence after which the connection ends.
    pub(super) fn refusal(error: &Error) -> Answer {
        Answer::new(Verb::Refused, 0, |out| Failure::encode(error, out))
    }

    /// Samples, from the place `first` of their request on; those that were asked for at a stage with wider rows.
    pub(super) fn samples(
        request: u32,
        first: u32,
        results: impl ExactSizeIterator<Item = (SampleId, Result<Staged>)>,
        rows: Rows,
        booked: Booked,
    ) -> Answer {
        let verb = match rows {
            Rows::Plain => Verb::Samples,
            Rows::Staged => Verb::StagedSamples,
        };
        let size = crate::wire::HEADER_BYTES + SamplesHead::bytes(results.len(), rows);
        let mut head = BytesMut::with_capacity(size);
        let start = put_frame(&mut head, verb, request);
        SamplesHead::put_front(first, results.len(), &mut head);
        let mut pieces = Vec::with_capacity(results.len());
        let mut more = 0;
        for (asked, result) in results {
            let (entry, sentence) = SamplesHead::entry(asked, &result);
            entry.put(&mut head, rows);
            more += entry.bytes as usize;
            match (result, sentence) {
                (Ok(staged), _) => pieces.push(staged.served.bytes),
                (Err(_), Some(sentence)) => pieces.push(sentence.into()),
                (Err(_), None) => {}
            }
        }
        end_frame(&mut head, start, more);
        Answer { head: head.freeze(), pieces, lane: None, _booked: booked }
    }

    /// The same answer, which holds what was booked for it.
    pub(super) fn holding(self, booked: Booked) -> Answer {
        Answer { _booked: booked, ..self }
    }

    /// The bytes of samples in it.
    pub(super) fn sample_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// Writes answers until there will be no more. A client that reads nothing for `limit` ends it with an error.
pub(super) async fn write<W: AsyncWrite + Unpin>(
    to: &mut W,
    answers: &mut mpsc::Receiver<Answer>,
    limit: Duration,
) -> io::Result<()> {
    let mut batch: Vec<Answer> = Vec::with_capacity(TOGETHER);
    let mut lane: Option<Box<BookedLane>> = None;
    loop {
        if answers.recv_many(&mut batch, TOGETHER).await == 0 {
            return Ok(());
        }
        for answer in &mut batch {
            if let Some(lane) = &mut lane {
                answer.take_lane(lane);
            }
            lane = answer.lane.take().or(lane);
        }
        // From inside another container, say, a client cannot open it, and then its room is better given to another.
        lane = lane.filter(|lane| lane.writer.opened() || lane.unopened < UNOPENED_MAX);
        write_batch(to, &batch, limit).await?;
        // What the answers had booked is free again.
        batch.clear();
    }
}

async fn write_batch<W: AsyncWrite + Unpin>(to: &mut W, batch: &[Answer], limit: Duration) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    // One deadline for all of it: a client that takes a byte now and then must not hold what it has booked.
    let bytes: usize = batch
        .iter()
        .map(|answer| answer.head.len() + answer.pieces.iter().map(Bytes::len).sum::<usize>())
        .sum();
    let deadline = Instant::now() + limit + Duration::from_millis(bytes as u64 * 1_000 / BYTES_PER_S_LEAST);
    let mut pieces = Vec::with_capacity(batch.iter().map(|answer| 1 + answer.pieces.len()).sum());
    for answer in batch {
        pieces.push(IoSlice::new(&answer.head));
        pieces.extend(answer.pieces.iter().map(|piece| IoSlice::new(piece)));
    }
    let mut left = &mut pieces[..];
    // Empty ones in front are passed over, since a write of nothing would look like a connection that is gone.
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let now = &left[..left.len().min(PIECES)];
        match timeout_at(deadline, to.write_vectored(now)).await.map_err(late)?? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => IoSlice::advance_slices(&mut left, written),
        }
    }
    timeout_at(deadline, to.flush()).await.map_err(late)?
}
