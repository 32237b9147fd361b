//! One connection's life after the handshake: three tasks of one thread that share the table of what is pending.
//!
//! The writer takes everything that is queued and sends it in as few messages as it fits; the reader hands out answers;
//! the watch fails what takes too long, and ends a connection on which nothing comes although something is due.
//!
//! Samples of at least [`OWN_BYTES`] are read straight into memory of their own. Smaller ones are read together and
//! then copied apart: a cache that keeps one of 64 must not keep the memory of all, and the copy costs less than the
//! system call that it saves.

use super::beside::Beside;
use super::driver::{Command, Said};
use super::pace::Pace;
use super::pending::Pending;
use super::socket::Socket;
use super::{ClientOptions, unavailable};
use crate::error::plain;
use crate::node::{Served, Standing};
use crate::split::{Staged, StagedAsk};
use crate::wire::{
    self, ANNOUNCE_IDS_MAX, ASKS_MAX, Announce, Entry, Failure, Fetch, FetchStaged, HEADER_BYTES,
    LANES_SINCE, Lane, STAGES_SINCE,
};
use crate::wire::{Header, Prepare, Rows, SamplesHead, Stand, Verb, Welcome, WireAsk, end_frame, put_frame};
use crate::{Error, Result};
use bytes::{Bytes, BytesMut};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// From this size on a sample is read into memory of its own.
const OWN_BYTES: u32 = 16 << 10;
/// How much is read at once where it is not known what comes.
const READ_BYTES: usize = 16 << 10;
/// How many commands are taken from the queue at once.
const TAKE_MAX: usize = 256;
/// How many requests may be in flight.
const IN_FLIGHT_MAX: usize = 1_024;

/// The longest answer that holds no samples: a part of a catalog, or a report.
const OTHER_BYTES_MAX: u32 = 4 << 20;

/// The last announcement, kept so that a node that comes back hears it.
#[derive(Debug, Clone)]
pub(super) struct Announced {
    pub(super) epoch: u64,
    pub(super) full: bool,
    pub(super) order: Arc<[u32]>,
}

/// What the three tasks share.
struct Session<'a> {
    pending: RefCell<&'a mut Pending>,
    options: &'a ClientOptions,
    answer_bytes_max: u32,
    url: &'a str,
    /// Whether the node knows stages.
    stages: bool,
    beside: Beside,
    pace: RefCell<Pace>,
    heard: Cell<Instant>,
    room: tokio::sync::Notify,
}

/// Serves the queue over one connection. `Ok` when all handles are gone; otherwise why the connection ended.
pub(super) async fn run(
    socket: Socket,
    welcome: &Welcome,
    version: u8,
    options: &ClientOptions,
    said: &mut Said,
    queue: &mut mpsc::Receiver<Command>,
    pending: &mut Pending,
) -> Result<()> {
    let url = pending.shared().url.clone();
    let session = Session {
        pending: RefCell::new(pending),
        options,
        answer_bytes_max: options.answer_bytes_max.min(welcome.answer_bytes_max),
        url: &url,
        stages: version >= STAGES_SINCE,
        beside: Beside::new(
            socket.beside().filter(|_| version >= LANES_SINCE && options.lane_bytes > 0 && !options.peer),
        ),
        pace: RefCell::new(Pace::new(options.throttle_bytes_per_s)),
        heard: Cell::new(Instant::now()),
        room: tokio::sync::Notify::new(),
    };
    let idle = Duration::from_millis((welcome.idle_ms_max / 3).max(100));
    match socket {
        Socket::Tcp(stream) => {
            let (from, to) = stream.into_split();
            session.drive(from, to, idle, said, queue).await
        }
        Socket::Unix(stream) => {
            let (from, to) = stream.into_split();
            session.drive(from, to, idle, said, queue).await
        }
        Socket::Tls(stream) => {
            let (from, to) = tokio::io::split(stream);
            session.drive(from, to, idle, said, queue).await
        }
    }
}

impl Session<'_> {
    async fn drive<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        from: R,
        to: W,
        idle: Duration,
        said: &mut Said,
        queue: &mut mpsc::Receiver<Command>,
    ) -> Result<()> {
        tokio::select! {
            biased;
            ended = self.read(BufReader::with_capacity(READ_BYTES, from)) => ended,
            ended = self.write(to, idle, said, queue) => ended,
            error = self.watch() => Err(error),
        }
    }

    fn lost(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => unavailable(self.url, "it closed the connection"),
            _ => unavailable(self.url, plain(error)),
        }
    }

    /// Fails what takes too long; ends when nothing comes at all although something is due.
    async fn watch(&self) -> Error {
        let limit = Duration::from_millis(self.options.request_ms_max.max(1));
        let late = || {
            unavailable(self.url, format_args!("it did not answer within {} ms", self.options.request_ms_max))
        };
        loop {
            tokio::time::sleep((limit / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))).await;
            let expired = self.pending.borrow_mut().expire(limit, late);
            if expired > 0 {
                self.room.notify_one();
                if self.heard.get().elapsed() >= limit {
                    return late();
                }
            }
        }
    }

    async fn write<W: AsyncWrite + Unpin>(
        &self,
        mut to: W,
        idle: Duration,
        said: &mut Said,
        queue: &mut mpsc::Receiver<Command>,
    ) -> Result<()> {
        let mut out = BytesMut::new();
        if self.beside.wants_lane() {
            let (reply, _) = tokio::sync::oneshot::channel();
            let start = put_frame(&mut out, Verb::WantLane, self.pending.borrow_mut().done(reply));
            Lane::encode_wish(self.options.lane_bytes, &mut out);
            end_frame(&mut out, start, 0);
        }
        if let Some(prepare) = &said.prepare {
            let (reply, _) = tokio::sync::oneshot::channel();
            self.prepare(&mut out, prepare, reply);
        }
        if let Some(announced) = &said.announced {
            let (reply, _) = tokio::sync::oneshot::channel();
            let request = self.pending.borrow_mut().done(reply);
            self.announce(&mut to, &mut out, announced, request).await?;
        }
        self.flush(&mut to, &mut out).await?;
        let mut taken = Vec::with_capacity(TAKE_MAX);
        loop {
            while self.pending.borrow().len() >= IN_FLIGHT_MAX {
                self.room.notified().await;
            }
            match tokio::time::timeout(idle, queue.recv_many(&mut taken, TAKE_MAX)).await {
                Ok(0) => {
                    put_empty(&mut out, Verb::Bye, 0);
                    // Nobody waits for anything any more, so it does not matter whether it arrives.
                    let _ = to.write_all(&out).await;
                    return Ok(());
                }
                Ok(_) => {}
                Err(_) => {
                    let (reply, _) = tokio::sync::oneshot::channel();
                    put_empty(&mut out, Verb::Ping, self.pending.borrow_mut().done(reply));
                }
            }
            let mut commands = taken.drain(..).peekable();
            let epoch = said.announced.as_ref().map_or(0, |announced| announced.epoch);
            while let Some(command) = commands.next() {
                match command {
                    Command::Fetch { mut asks, peer, reply } => {
                        let mut callers = vec![(asks.len(), reply)];
                        // What is queued behind it goes along, as long as it fits.
                        let fits = |asks: &Vec<_>, next: &Command| matches!(next, Command::Fetch { asks: more, peer: other, .. } if *other == peer && asks.len() + more.len() <= ASKS_MAX);
                        while let Some(Command::Fetch { asks: more, reply, .. }) =
                            commands.next_if(|next| fits(&asks, next))
                        {
                            callers.push((more.len(), reply));
                            asks.extend(more);
                        }
                        let request = self.pending.borrow_mut().fetch(callers);
                        self.fetch(&mut out, request, epoch, peer, &asks);
                    }
                    Command::Prepare { prepare, reply } => {
                        self.prepare(&mut out, &prepare, reply);
                        said.prepare = Some(prepare);
                    }
                    Command::Stand { standings, reply } => self.stand(&mut out, &standings, reply),
                    Command::Call { verb, body, reply } => {
                        let start = put_frame(&mut out, verb, self.pending.borrow_mut().call(reply));
                        out.extend_from_slice(&body);
                        end_frame(&mut out, start, 0);
                    }
                    Command::Announce { epoch, full, order, reply } => {
                        let new = Announced { epoch, full, order };
                        let request = self.pending.borrow_mut().done(reply);
                        // Kept first: if the connection ends now, the next one repeats it.
                        said.announced = Some(new.clone());
                        self.announce(&mut to, &mut out, &new, request).await?;
                    }
                }
            }
            self.flush(&mut to, &mut out).await?;
        }
    }

    /// Asks for samples: with their stages if the node has the recipe, otherwise for raw bytes.
    fn fetch(&self, out: &mut BytesMut, request: u32, epoch: u64, peer: bool, asks: &[StagedAsk]) {
        let pending = self.pending.borrow();
        let handle = pending.shared().handle().filter(|_| !peer && asks.iter().any(|ask| ask.wish.is_some()));
        if let Some(handle) = handle {
            let asks =
                asks.iter().map(|one| WireAsk { ask: one.ask, wish: one.wish.map(|wish| (handle, wish)) });
            let start = put_frame(out, Verb::FetchStaged, request);
            FetchStaged { asks: asks.collect() }.encode(out);
            end_frame(out, start, 0);
        } else {
            let start = put_frame(out, Verb::Fetch, request);
            Fetch { epoch, split: 0, peer, asks: asks.iter().map(|one| one.ask).collect() }.encode(out);
            end_frame(out, start, 0);
        }
        pending.shared().messages.fetch_add(1, Relaxed);
    }

    /// Hands the recipe over; a node of an older version would end the connection over it.
    fn prepare(&self, out: &mut BytesMut, prepare: &Prepare, reply: super::driver::Reply<super::Ready>) {
        if !self.stages {
            let old = || {
                Error::config(format!("the node at {} is of an older version and runs no ops", self.url))
                    .hint("run the same version of gristmill on both sides")
            };
            self.pending.borrow().shared().set_prepared(&Err(old()));
            let _ = reply.send(Err(old()));
            return;
        }
        let start = put_frame(out, Verb::Prepare, self.pending.borrow_mut().prepare(reply));
        prepare.encode(out);
        end_frame(out, start, 0);
    }

    fn stand(&self, out: &mut BytesMut, standings: &[Standing], reply: super::driver::Reply<()>) {
        let start = put_frame(out, Verb::Stand, self.pending.borrow_mut().done(reply));
        Stand::encode(standings, out);
        end_frame(out, start, 0);
    }

    /// Sends a plan part by part, so that no more than a part is ever copied.
    async fn announce<W: AsyncWrite + Unpin>(
        &self,
        to: &mut W,
        out: &mut BytesMut,
        announced: &Announced,
        request: u32,
    ) -> Result<()> {
        let parts = announced.order.len().div_ceil(ANNOUNCE_IDS_MAX).max(1);
        for part in 0..parts {
            let ids = announced.order.iter().skip(part * ANNOUNCE_IDS_MAX).take(ANNOUNCE_IDS_MAX);
            let start = put_frame(out, Verb::Announce, request);
            Announce {
                epoch: announced.epoch,
                full: announced.full,
                part: part as u32,
                parts: parts as u32,
                order: ids.copied().collect(),
            }
            .encode(out);
            end_frame(out, start, 0);
            self.flush(to, out).await?;
        }
        Ok(())
    }

    async fn flush<W: AsyncWrite + Unpin>(&self, to: &mut W, out: &mut BytesMut) -> Result<()> {
        to.write_all(out).await.map_err(|e| self.lost(&e))?;
        to.flush().await.map_err(|e| self.lost(&e))?;
        out.clear();
        Ok(())
    }

    async fn read<R: AsyncRead + Unpin>(&self, mut from: BufReader<R>) -> Result<()> {
        let mut header = [0; HEADER_BYTES];
        let mut body = Vec::new();
        loop {
            from.read_exact(&mut header).await.map_err(|e| self.lost(&e))?;
            let header = Header::decode(&header, self.answer_bytes_max)?;
            self.heard.set(Instant::now());
            match header.verb {
                Verb::Samples => self.samples(&mut from, header, &mut body, Rows::Plain).await?,
                Verb::StagedSamples => self.samples(&mut from, header, &mut body, Rows::Staged).await?,
                Verb::Done
                | Verb::Failed
                | Verb::CatalogPart
                | Verb::ReportText
                | Verb::Refused
                | Verb::LaneIs
                | Verb::InLane
                | Verb::Prepared => {
                    if header.bytes > OTHER_BYTES_MAX {
                        let bytes = header.bytes;
                        return Err(Error::corrupt(format!(
                            "the node sent {bytes} bytes that are no samples"
                        )));
                    }
                    read_into(&mut from, &mut body, header.bytes as usize)
                        .await
                        .map_err(|e| self.lost(&e))?;
                    if header.verb == Verb::InLane {
                        self.beside.announced(Lane::decode_place(&body)?);
                        continue;
                    }
                    let answer = match header.verb {
                        Verb::Refused => return Err(Failure::decode(&body)?),
                        Verb::Failed => Err(Failure::decode(&body)?),
                        _ => Ok(std::mem::take(&mut body)),
                    };
                    match answer {
                        Ok(body) if header.verb == Verb::LaneIs => {
                            self.beside.open(Lane::decode(&body)?);
                            self.pending.borrow_mut().forget(header.request);
                        }
                        answer => self.pending.borrow_mut().answer(header.request, answer),
                    }
                }
                Verb::Bye => return Err(unavailable(self.url, "it is shutting down")),
                other => {
                    return Err(Error::corrupt(format!("the node said {other:?}, which only clients say")));
                }
            }
            self.room.notify_one();
        }
    }

    /// So many bytes have come: waits as long as a slower link would have taken for them.
    async fn keep_pace(&self, bytes: usize) {
        let pause = self.pace.borrow_mut().took(bytes);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
            self.pace.borrow_mut().paused();
        }
        self.heard.set(Instant::now());
    }

    /// Reads the samples of one frame and hands them out.
    async fn samples<R: AsyncRead + Unpin>(
        &self,
        from: &mut BufReader<R>,
        header: Header,
        table: &mut Vec<u8>,
        rows: Rows,
    ) -> Result<()> {
        let lost = |e: std::io::Error| self.lost(&e);
        let front = SamplesHead::bytes(0, rows);
        if (header.bytes as usize) < front {
            return Err(Error::corrupt("a samples message is not valid: it is too short"));
        }
        read_into(from, table, front).await.map_err(lost)?;
        let whole = SamplesHead::bytes(SamplesHead::count(table)?, rows);
        if (header.bytes as usize) < whole {
            return Err(Error::corrupt("a samples message is not valid: it is too short"));
        }
        read_more(from, table, whole).await.map_err(lost)?;
        let head = SamplesHead::decode(table, header.bytes, rows)?;
        if let Some(bytes) = self.beside.take(&head.entries)? {
            self.keep_pace(header.bytes as usize - whole).await;
            if self.pending.borrow().wants(header.request, &head)? {
                let came: Result<_> = head.entries.iter().zip(bytes).map(|(e, b)| served(e, b)).collect();
                self.pending.borrow_mut().samples(header.request, head.first as usize, came?);
            }
            return Ok(());
        }
        if !self.pending.borrow().wants(header.request, &head)? {
            // Asked for and given up since.
            let rest = u64::from(header.bytes) - whole as u64;
            let skipped =
                tokio::io::copy(&mut from.take(rest), &mut tokio::io::sink()).await.map_err(lost)?;
            return if skipped == rest {
                Ok(())
            } else {
                Err(unavailable(self.url, "it closed the connection"))
            };
        }
        let mut came = Vec::with_capacity(head.entries.len());
        let mut entries = &head.entries[..];
        while let Some(first) = entries.first() {
            let small = entries.iter().take_while(|entry| entry.bytes < OWN_BYTES).count();
            let together = small.max(1);
            let (run, rest) = entries.split_at(together);
            let bytes = run.iter().map(|entry| entry.bytes as usize).sum();
            let mut memory = BytesMut::with_capacity(bytes);
            read_buffer(from, &mut memory, bytes).await.map_err(lost)?;
            self.keep_pace(bytes).await;
            let mut memory = memory.freeze();
            if first.bytes >= OWN_BYTES || together == 1 {
                came.push(served(first, memory)?);
            } else {
                for entry in run {
                    let own = memory.split_to(entry.bytes as usize);
                    came.push(served(entry, Bytes::copy_from_slice(&own))?);
                }
            }
            entries = rest;
        }
        self.pending.borrow_mut().samples(header.request, head.first as usize, came);
        Ok(())
    }
}

fn served(entry: &Entry, bytes: Bytes) -> Result<Result<Staged>> {
    if entry.code == 0 {
        let served = Served { id: entry.id, bytes, tier: entry.tier };
        let cpu_ns = u64::from(entry.cpu_us) * 1_000;
        return Ok(Ok(Staged { served, stage: entry.stage, shortfall: entry.shortfall, cpu_ns }));
    }
    wire::Failure::error(entry.code, &bytes).map(Err)
}

fn put_empty(out: &mut BytesMut, verb: Verb, request: u32) {
    let start = put_frame(out, verb, request);
    end_frame(out, start, 0);
}

async fn read_into<R: AsyncRead + Unpin>(
    from: &mut R,
    to: &mut Vec<u8>,
    bytes: usize,
) -> std::io::Result<()> {
    to.clear();
    read_more(from, to, bytes).await
}

/// Reads until `to` has `bytes` bytes.
async fn read_more<R: AsyncRead + Unpin>(
    from: &mut R,
    to: &mut Vec<u8>,
    bytes: usize,
) -> std::io::Result<()> {
    let had = to.len();
    to.resize(bytes, 0);
    from.read_exact(&mut to[had..]).await.map(|_| ())
}

/// Fills memory that was never written to, without writing zeros first.
async fn read_buffer<R: AsyncRead + Unpin>(
    from: &mut R,
    to: &mut BytesMut,
    bytes: usize,
) -> std::io::Result<()> {
    let mut from = from.take(bytes as u64);
    while to.len() < bytes {
        if from.read_buf(to).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
