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
    /// Who has left, the first one first: those after it left because of it.
    gone: Vec<u32>,
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
            gone: Vec::new(),
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
            if missing.iter().any(|rank| state.gone.contains(rank)) {
                return Err(left_first(&state.gone));
            }
            if left.is_zero() {
                let ranks = super::named(&missing);
                return Err(lost(format!("{ranks} did not come within {:.0} s", patience.as_secs_f64())));
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
        if state.gone.contains(&to) {
            return Err(left_first(&state.gone));
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
        // What was sent before a rank left still arrives.
        let mail = &state.mail[self.rank as usize];
        let lost = |from: &u32| state.gone.contains(from) && !mail.iter().any(|l| l.from == *from);
        let any = self.expected.iter().any(|(from, ..)| lost(from));
        if any { Err(left_first(&state.gone)) } else { Ok(None) }
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
        self.hub.lock().gone.push(self.rank);
        self.hub.spoken.notify_all();
    }
}

/// The error of those who wait for somebody who left.
fn left_first(gone: &[u32]) -> Error {
    lost(format!("{} left", super::named(&gone[..gone.len().min(1)])))
}

fn lost(message: String) -> Error {
    Error::new(Kind::Unavailable, message)
        .hint("look at why it ended or hangs; exchange.patience_ms is how long the others wait")
}

#[cfg(test)]
mod tests {
    use super::super::testing::conform;
    use super::*;

    fn all<T: Send>(ranks: Vec<Local>, run: impl Fn(Local) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(|| run(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn threads_conform() {
        for world in [2, 5] {
            for speed in [None, Some(400_000_000)] {
                for outcome in all(Local::ranks(world, speed), |mut rank| conform(&mut rank)) {
                    outcome.unwrap();
                }
            }
        }
    }

    #[test]
    fn a_link_carries_what_it_can() {
        let start = Instant::now();
        all(Local::ranks(3, Some(1_000_000)), |mut rank| {
            // Everybody sends 60 KB to rank 0, whose link has to carry 120 KB.
            if rank.rank() > 0 {
                rank.send(0, 0, vec![1; 60_000].into()).unwrap();
                return;
            }
            (1..3).for_each(|from| rank.expect(from, 0, 60_000).unwrap());
            while !rank.outstanding().is_empty() {
                rank.arrived().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(start.elapsed() >= Duration::from_millis(119), "{:?}", start.elapsed());
        });
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn who_is_missing_is_named() {
        let mut ranks = Local::ranks(3, None);
        let error = ranks[0].gather(b"x", Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("ranks 1 and 2 did not come within 0 s"), "{error}");
        let mut ranks = Local::ranks(2, None);
        ranks[0].expect(1, 0, 1).unwrap();
        drop(ranks.pop());
        let start = Instant::now();
        let error = ranks[0].gather(b"x", Duration::from_mins(1)).unwrap_err().to_string();
        assert!(error.contains("rank 1 left") && start.elapsed() < Duration::from_secs(1), "{error}");
        assert!(ranks[0].arrived().is_err() && ranks[0].send(1, 0, Bytes::new()).is_err());
        let mut ranks = Local::ranks(2, None);
        ranks[1].send(0, 3, Bytes::from_static(b"four")).unwrap();
        ranks[0].expect(1, 3, 5).unwrap();
        assert!(ranks[0].arrived().unwrap_err().to_string().contains("sent 4 bytes"));
    }
}
