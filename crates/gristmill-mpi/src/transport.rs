//! [`MpiTransport`]: the exchange's way to the other ranks.
//!
//! A round's number is the message's tag. MPI promises tags up to 32,767 only, so they wrap; messages between two
//! ranks with the same tag keep their order, and both sides go through the rounds in order, so that is harmless.
//!
//! What is gathered goes from everybody to everybody, first its length and then itself. A collective call of MPI would
//! need fewer messages, but could not say who did not come.

use crate::calls::{Calls, Group, Requests, enter};
use crate::poll;
use bytes::Bytes;
use gristmill_node::exchange::Transport;
use gristmill_node::{Error, Kind, Result};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The highest tag that every MPI has.
const TAG_MAX: u32 = 32_767;
/// The most that one rank may say when all gather what each says.
const WORDS_BYTES_MAX: u64 = 1 << 30;
/// How long a transport that is dropped waits for what is under way.
const DRAIN: Duration = Duration::from_secs(2);

/// How many transports were dropped with messages under way.
static UNFINISHED: AtomicUsize = AtomicUsize::new(0);

/// Whether messages were left under way, which MPI must not be ended over.
pub(crate) fn any_unfinished() -> bool {
    UNFINISHED.load(Ordering::Relaxed) > 0
}

/// Where a message comes from and which round it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Awaited {
    from: u32,
    round: u32,
}

/// Messages to and from the other ranks over MPI.
#[derive(Debug)]
pub struct MpiTransport {
    rank: u32,
    world: u32,
    data: Group,
    words: Group,
    sends: Requests<Bytes, ()>,
    receives: Requests<Vec<u8>, Awaited>,
    /// Set when a gathering failed: who then still speaks would be taken for an answer to the next question.
    lost: Option<String>,
}

impl MpiTransport {
    pub(crate) fn new(rank: u32, world: u32, data: Group, words: Group) -> MpiTransport {
        let (sends, receives) = (Requests::new(), Requests::new());
        MpiTransport { rank, world, data, words, sends, receives, lost: None }
    }

    fn peer(&self, rank: u32) -> Result<u32> {
        if rank < self.world && rank != self.rank {
            return Ok(rank);
        }
        let (own, world) = (self.rank, self.world);
        Err(Error::config(format!("rank {own} of {world} has no peer {rank}")))
    }

    fn calls(&self) -> Result<Calls> {
        match &self.lost {
            Some(why) => Err(Error::new(Kind::Unavailable, why.clone())),
            None => enter(),
        }
    }

    fn collect(&mut self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        let length = Bytes::copy_from_slice(&(mine.len() as u64).to_le_bytes());
        let body = Bytes::copy_from_slice(mine);
        let mut gathering = Gathering {
            words: self.words,
            sends: Requests::new(),
            receives: Requests::new(),
            said: vec![None; self.world as usize],
            missing: self.world as usize - 1,
        };
        gathering.said[self.rank as usize] = Some(mine.to_vec());
        let calls = enter()?;
        for peer in (0..self.world).filter(|&peer| peer != self.rank) {
            gathering.receives.receive(&calls, self.words, (peer, 0), 8, (peer, true))?;
            gathering.sends.send(&calls, self.words, (peer, 0), length.clone(), ())?;
            gathering.sends.send(&calls, self.words, (peer, 0), body.clone(), ())?;
        }
        drop(calls);
        let came = poll(patience, || gathering.look())?;
        if came.is_none() {
            let late: Vec<String> = (0..self.world)
                .filter(|&rank| gathering.said[rank as usize].is_none())
                .map(|rank| rank.to_string())
                .collect();
            let seconds = patience.as_secs_f64();
            let who = if late.is_empty() {
                "a rank did not take what was said".to_string()
            } else {
                format!("rank {} did not come", late.join(", "))
            };
            return Err(Error::new(Kind::Unavailable, format!("{who} within {seconds:.1} s"))
                .hint("it died, hangs, or is much slower than the others (exchange.patience_ms)"));
        }
        Ok(gathering.said.into_iter().flatten().collect())
    }
}

/// What all ranks say, as it comes in.
struct Gathering {
    words: Group,
    sends: Requests<Bytes, ()>,
    /// From whom, and whether it is the length.
    receives: Requests<Vec<u8>, (u32, bool)>,
    said: Vec<Option<Vec<u8>>>,
    missing: usize,
}

impl Gathering {
    fn look(&mut self) -> Result<Option<()>> {
        let calls = enter()?;
        while let Some(done) = self.receives.finished(&calls)? {
            let (from, is_length) = done.word;
            let bytes = done.bytes?;
            if !is_length {
                self.said[from as usize] = Some(done.memory);
                self.missing -= 1;
                continue;
            }
            let length = done.memory.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if bytes != 8 || length > WORDS_BYTES_MAX {
                return Err(Error::corrupt(format!(
                    "rank {from} says {length} bytes at once; {WORDS_BYTES_MAX} are the most"
                )));
            }
            self.receives.receive(&calls, self.words, (from, 0), length as usize, (from, false))?;
        }
        drain(&mut self.sends, &calls)?;
        Ok((self.missing == 0 && self.sends.len() == 0).then_some(()))
    }
}

/// Lets go of the messages that have left.
fn drain(sends: &mut Requests<Bytes, ()>, calls: &Calls) -> Result<()> {
    while let Some(left) = sends.finished(calls)? {
        left.bytes?;
    }
    Ok(())
}

fn tag_of(round: u32) -> c_int {
    (round % (TAG_MAX + 1)) as c_int
}

impl Transport for MpiTransport {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> u32 {
        self.world
    }

    fn name(&self) -> &'static str {
        "mpi"
    }

    fn gather(&mut self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        drop(self.calls()?);
        let gathered = self.collect(mine, patience);
        if let Err(error) = &gathered {
            self.lost = Some(error.to_string());
            UNFINISHED.fetch_add(1, Ordering::Relaxed);
        }
        gathered
    }

    fn send(&mut self, to: u32, tag: u32, message: Bytes) -> Result<()> {
        let (calls, to) = (self.calls()?, self.peer(to)?);
        self.sends.send(&calls, self.data, (to, tag_of(tag)), message, ())
    }

    fn expect(&mut self, from: u32, tag: u32, bytes: usize) -> Result<()> {
        let (calls, from) = (self.calls()?, self.peer(from)?);
        self.receives.receive(&calls, self.data, (from, tag_of(tag)), bytes, Awaited { from, round: tag })
    }

    fn arrived(&mut self) -> Result<Option<(u32, u32, Bytes)>> {
        let calls = self.calls()?;
        let Some(done) = self.receives.finished(&calls)? else { return Ok(None) };
        let (Awaited { from, round }, expected, own) = (done.word, done.memory.len(), self.rank);
        let wrong = |how: String| {
            Error::corrupt(format!(
                "message {round} of rank {from} to rank {own}, which expected {expected} bytes, {how}"
            ))
            .hint("the ranks do not work on the same plan")
        };
        match done.bytes {
            Ok(bytes) if bytes == expected => Ok(Some((from, round, Bytes::from(done.memory)))),
            Ok(bytes) => Err(wrong(format!("has {bytes}"))),
            Err(error) => Err(wrong(format!("did not come: {error}"))),
        }
    }

    fn sending(&mut self) -> Result<usize> {
        let calls = self.calls()?;
        drain(&mut self.sends, &calls)?;
        Ok(self.sends.len())
    }

    fn outstanding(&self) -> Vec<(u32, u32)> {
        let mut waiting: Vec<(u32, u32)> =
            self.receives.words().map(|awaited| (awaited.from, awaited.round)).collect();
        waiting.sort_unstable();
        waiting
    }
}

impl Drop for MpiTransport {
    fn drop(&mut self) {
        let drained = poll(DRAIN, || {
            while self.arrived()?.is_some() {}
            Ok((self.sending()? == 0 && self.receives.len() == 0).then_some(()))
        });
        if !matches!(drained, Ok(Some(()))) {
            UNFINISHED.fetch_add(1, Ordering::Relaxed);
        }
    }
}
