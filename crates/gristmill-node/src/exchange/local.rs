//! Ranks as threads of one process: messages are handed over by reference.
//!
//! For tests, for `gristmill bench load --ranks`, and as the yardstick of the other transports. A link can be given a
//! speed: each rank then has its own, which carries so many bytes a second each way, and a message arrives when it would
//! have. A rank that goes away (its end is dropped) is noticed at once.

use super::Transport;
use crate::{Error, Kind, Result};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One rank's end.
#[derive(Debug)]
pub struct Local {
    rank: u32,
    hub: Arc<Hub>,
    /// How many gatherings this rank took part in.
    gathered: u64,
    expected: Vec<(u32, u32, usize)>,
    /// When messages that this rank sent will have left.
    leaving: VecDeque<Instant>,
}

#[derive(Debug)]
struct Hub {
    world: u32,
    bytes_per_s: Option<u64>,
    state: Mutex<State>,
    spoken: Condvar,
}

#[derive(Debug)]
struct State {
    /// For each rank what is on its way to it.
    mail: Vec<Vec<Letter>>,
    /// When each rank's link is free again: out, in.
    free: Vec<(Instant, Instant)>,
    gone: Vec<bool>,
    /// Gatherings that not everybody has read yet; the first has this number.
    first: u64,
    rounds: VecDeque<Round>,
}

#[derive(Debug)]
struct Round {
    words: Vec<Option<Vec<u8>>>,
    read: u32,
}

#[derive(Debug)]
struct Letter {
    from: u32,
    tag: u32,
    message: Bytes,
    arrives: Instant,
}

impl Local {
    /// The ends of `world` ranks. With `bytes_per_s` each has a link of that speed.
    pub fn ranks(world: u32, bytes_per_s: Option<u64>) -> Vec<Local> {
        let now = Instant::now();
        let state = State {
            mail: (0..world).map(|_| Vec::new()).collect(),
            free: vec![(now, now); world as usize],
            gone: vec![false; world as usize],
            first: 0,
            rounds: VecDeque::new(),
        };
        let bytes_per_s = bytes_per_s.filter(|rate| *rate > 0);
        let hub = Arc::new(Hub { world, bytes_per_s, state: Mutex::new(state), spoken: Condvar::new() });
        let end = |rank| Local {
            rank,
            hub: Arc::clone(&hub),
            gathered: 0,
            expected: Vec::new(),
            leaving: VecDeque::new(),
        };
        (0..world).map(end).collect()
    }

    fn check(&self, peer: u32) -> Result<()> {
        if peer < self.hub.world && peer != self.rank {
            return Ok(());
        }
        Err(Error::config(format!("rank {} of {} has no link to rank {peer}", self.rank, self.hub.world)))
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs while the state is half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The gathering of this number, made if nobody spoke in it yet.
    fn round(&mut self, number: u64, world: u32) -> &mut Round {
        let at = (number - self.first) as usize;
        while self.rounds.len() <= at {
            self.rounds.push_back(Round { words: vec![None; world as usize], read: 0 });
        }
        &mut self.rounds[at]
    }
}

impl Transport for Local {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> u32 {
        self.hub.world
    }

    fn name(&self) -> &'static str {
        "local"
    }

    fn gather(&mut self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        let (number, world) = (self.gathered, self.hub.world);
        let until = Instant::now() + patience;
        self.gathered += 1;
        let mut state = self.hub.lock();
        state.round(number, world).words[self.rank as usize] = Some(mine.to_vec());
        self.hub.spoken.notify_all();
        loop {
            let round = state.round(number, world);
            let missing: Vec<u32> = (0..world).filter(|rank| round.words[*rank as usize].is_none()).collect();
            if missing.is_empty() {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            let gone = missing.iter().any(|rank| state.gone[*rank as usize]);
            if left.is_zero() || gone {
                let how = if gone { "left" } else { "did not come" };
                return Err(late(&missing, how, patience));
            }
            state = self.hub.spoken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let round = state.round(number, world);
        let said = round.words.iter().map(|words| words.clone().unwrap_or_default()).collect();
        round.read += 1;
        while state.rounds.front().is_some_and(|round| round.read == world) {
            state.rounds.pop_front();
            state.first += 1;
        }
        Ok(said)
    }

    fn send(&mut self, to: u32, tag: u32, message: Bytes) -> Result<()> {
        self.check(to)?;
        let now = Instant::now();
        let mut state = self.hub.lock();
        if state.gone[to as usize] {
            return Err(late(&[to], "left", Duration::ZERO));
        }
        let mut arrives = now;
        if let Some(rate) = self.hub.bytes_per_s {
            let takes = Duration::from_secs_f64(message.len() as f64 / rate as f64);
            let starts = state.free[self.rank as usize].0.max(now);
            state.free[self.rank as usize].0 = starts + takes;
            self.leaving.push_back(starts + takes);
            arrives = starts.max(state.free[to as usize].1) + takes;
            state.free[to as usize].1 = arrives;
        }
        state.mail[to as usize].push(Letter { from: self.rank, tag, message, arrives });
        Ok(())
    }

    fn expect(&mut self, from: u32, tag: u32, bytes: usize) -> Result<()> {
        self.check(from)?;
        self.expected.push((from, tag, bytes));
        Ok(())
    }

    fn arrived(&mut self) -> Result<Option<(u32, u32, Bytes)>> {
        let now = Instant::now();
        let mut state = self.hub.lock();
        let mail = &mut state.mail[self.rank as usize];
        for (at, (from, tag, bytes)) in self.expected.iter().enumerate() {
            let found = mail.iter().position(|l| (l.from, l.tag) == (*from, *tag) && l.arrives <= now);
            let Some(found) = found else { continue };
            let Letter { from, tag, message, .. } = mail.swap_remove(found);
            if message.len() != *bytes {
                return Err(Error::corrupt(format!(
                    "rank {from} sent {} bytes as message {tag} to rank {}, which expected {bytes}",
                    message.len(),
                    self.rank
                ))
                .hint("the ranks do not work on the same plan"));
            }
            self.expected.swap_remove(at);
            return Ok(Some((from, tag, message)));
        }
        let late_ones: Vec<u32> =
            self.expected.iter().map(|(from, ..)| *from).filter(|from| state.gone[*from as usize]).collect();
        // What was sent before the rank left still arrives.
        let none_left = |rank: &u32| !state.mail[self.rank as usize].iter().any(|l| l.from == *rank);
        match late_ones.iter().find(|rank| none_left(rank)) {
            Some(rank) => Err(late(&[*rank], "left", Duration::ZERO)),
            None => Ok(None),
        }
    }

    fn sending(&mut self) -> Result<usize> {
        let now = Instant::now();
        while self.leaving.front().is_some_and(|leaves| *leaves <= now) {
            self.leaving.pop_front();
        }
        Ok(self.leaving.len())
    }

    fn outstanding(&self) -> Vec<(u32, u32)> {
        self.expected.iter().map(|(from, tag, _)| (*from, *tag)).collect()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.hub.lock().gone[self.rank as usize] = true;
        self.hub.spoken.notify_all();
    }
}

/// The error of those who wait for ranks in vain.
fn late(missing: &[u32], how: &str, patience: Duration) -> Error {
    let ranks = super::named(missing);
    let waited =
        if how == "left" { String::new() } else { format!(" within {:.0} s", patience.as_secs_f64()) };
    Error::new(Kind::Unavailable, format!("{ranks} {how}{waited}"))
        .hint("look at why it ended or hangs; exchange.patience_ms is how long the others wait")
}
