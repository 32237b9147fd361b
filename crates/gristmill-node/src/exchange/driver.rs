//! A thread that drives a rank's exchange over a transport.
//!
//! While an epoch runs it posts what the loader's progress makes due, takes what has arrived and sleeps a little; it never
//! spins, since training needs the cores. At the end of the epoch it waits until everything has come and lets the
//! ranks commit together. A rank that stays away longer than the patience is an error that names it.

use super::{ExchangeReport, Exchanger, Transport, named};
use crate::{Error, Kind, Result};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread sleeps while an epoch's exchange is under way.
const PAUSE: Duration = Duration::from_millis(1);
/// Of the patience with others, what is kept for telling all ranks that somebody is late: an eighth, at most this.
const TELLING_MAX: Duration = Duration::from_secs(2);

/// What the thread is asked to do.
enum Order {
    /// Speak with all ranks.
    Gather(Vec<u8>, Sender<Result<Vec<Vec<u8>>>>),
    /// Finish the exchange that is under way.
    Finish(Sender<Result<ExchangeReport>>),
}

/// The thread, as the loader sees it. Dropping it gives up what is under way.
#[derive(Debug)]
pub struct Driver {
    exchanger: Arc<Exchanger>,
    orders: Mutex<Option<Sender<Order>>>,
    failed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The end of an exchange, which may take a while.
#[derive(Debug)]
pub struct Finishing {
    done: Receiver<Result<ExchangeReport>>,
    exchanger: Arc<Exchanger>,
}

impl Driver {
    /// Shakes hands with all ranks, and starts the thread.
    pub fn start(exchanger: Arc<Exchanger>, mut transport: Box<dyn Transport>) -> Result<Driver> {
        let (own, theirs) = ((exchanger.rank(), exchanger.world()), (transport.rank(), transport.world()));
        if own != theirs {
            return Err(Error::config(format!(
                "the loader is rank {} of {}, but {} says that this is rank {} of {}",
                own.0,
                own.1,
                transport.name(),
                theirs.0,
                theirs.1
            ))
            .hint("leave loader.rank and loader.world to the launcher"));
        }
        let said = transport.gather(&exchanger.pledge(), exchanger.patience())?;
        exchanger.agree(&said)?;
        let (orders, asked) = channel();
        let failed = Arc::new(AtomicBool::new(false));
        let work = Work {
            exchanger: Arc::clone(&exchanger),
            transport,
            failed: Arc::clone(&failed),
            broken: None,
            moved: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("grist-exchange".into());
        let thread = thread.spawn(move || work.run(&asked));
        let thread = thread.map_err(|e| Error::io("start", "thread grist-exchange", e))?;
        Ok(Driver { exchanger, orders: Mutex::new(Some(orders)), failed, thread: Some(thread) })
    }

    /// Everybody's words in the order of ranks; all ranks call it together.
    pub fn gather(&self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let (tell, told) = channel();
        self.order(Order::Gather(mine, tell))?;
        told.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Begins to finish the exchange that is under way.
    pub fn finish(&self) -> Result<Finishing> {
        let (tell, done) = channel();
        self.order(Order::Finish(tell))?;
        Ok(Finishing { done, exchanger: Arc::clone(&self.exchanger) })
    }

    /// Whether something went wrong that finishing will tell.
    pub fn failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    fn order(&self, order: Order) -> Result<()> {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.as_ref().and_then(|orders| orders.send(order).ok()).ok_or_else(gone)
    }
}

impl Finishing {
    /// How it ended, or nothing if it has not within `wait`. The time is counted as waited for the exchange.
    pub fn poll(&mut self, wait: Duration) -> Option<Result<ExchangeReport>> {
        let start = Instant::now();
        let done = match self.done.recv_timeout(wait) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(gone())),
        };
        self.exchanger.waited(start.elapsed());
        done
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> Result<ExchangeReport> {
        loop {
            if let Some(outcome) = self.poll(Duration::from_secs(1)) {
                return outcome;
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.orders.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.take() {
            // It ends when nobody can ask it any more; that it panicked was said by those who asked.
            let _ = thread.join();
        }
    }
}

/// What the thread works with.
struct Work {
    exchanger: Arc<Exchanger>,
    transport: Box<dyn Transport>,
    failed: Arc<AtomicBool>,
    /// What the transport failed with.
    broken: Option<Error>,
    /// When something arrived or left last.
    moved: Instant,
}

impl Work {
    fn run(mut self, asked: &Receiver<Order>) {
        loop {
            // Nothing to look after between epochs: then only an order can wake it.
            let next = match self.exchanger.running() {
                Some(_) => asked.recv_timeout(PAUSE),
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(Order::Gather(mine, tell)) => {
                    let said = self.transport.gather(&mine, self.exchanger.patience());
                    // Whoever asked may have given up.
                    let _ = tell.send(said);
                    self.moved = Instant::now();
                }
                Ok(Order::Finish(tell)) => {
                    let outcome = self.finish();
                    let _ = tell.send(outcome);
                    self.exchanger.sweep_later();
                }
                Err(RecvTimeoutError::Timeout) => {
                    let due = self.exchanger.due_now();
                    self.step(due);
                    self.exchanger.ease();
                }
                Err(RecvTimeoutError::Disconnected) => return self.exchanger.rest(),
            }
        }
    }

    /// Hands over what is due, and takes what came. Says whether more is due at once.
    fn step(&mut self, due: Result<super::Due>) -> bool {
        if self.broken.is_some() {
            return false;
        }
        match due.and_then(|due| self.move_on(due)) {
            Ok(more) => more,
            Err(error) => {
                self.exchanger.fail(&error.to_string());
                self.failed.store(true, Relaxed);
                self.broken = Some(error);
                false
            }
        }
    }

    fn move_on(&mut self, due: super::Due) -> Result<bool> {
        // Receives first: a message that finds its place waiting need not be kept.
        for one in &due.receives {
            self.transport.expect(one.peer, one.tag, one.bytes)?;
        }
        for one in due.sends {
            self.transport.send(one.peer, one.tag, one.bytes)?;
            self.moved = Instant::now();
        }
        self.take_arrived()?;
        // What is made next takes memory, so this must have left first. But not for ever: ranks that all have much to send
        // must not wait for each other until they are out of patience.
        let until = Instant::now() + self.exchanger.patience() / 2;
        while due.more && self.transport.sending()? > 0 && Instant::now() < until {
            std::thread::sleep(PAUSE);
            self.take_arrived()?;
        }
        Ok(due.more)
    }

    fn take_arrived(&mut self) -> Result<()> {
        while let Some((peer, tag, message)) = self.transport.arrived()? {
            self.exchanger.take(peer, tag, &message);
            self.moved = Instant::now();
        }
        Ok(())
    }

    /// Moves all that is left, and commits with all ranks.
    fn finish(&mut self) -> Result<ExchangeReport> {
        let patience = self.exchanger.patience();
        let telling = (patience / 8).min(TELLING_MAX);
        let waiting = patience.saturating_sub(telling);
        self.moved = Instant::now();
        let (mut sending, mut lost) = (usize::MAX, None);
        while self.broken.is_none() {
            let due = self.exchanger.due(u32::MAX);
            let more = self.step(due);
            let left = match self.transport.sending() {
                Ok(left) => left,
                Err(error) => {
                    self.step(Err(error));
                    break;
                }
            };
            if left < sending {
                self.moved = Instant::now();
            }
            sending = left;
            let late = self.exchanger.outstanding();
            if !more && self.exchanger.unissued() == 0 && late.is_empty() && left == 0 {
                break;
            }
            if self.moved.elapsed() > waiting {
                let words = late_words(&late, left, waiting);
                self.exchanger.fail(&words);
                lost = Some(words);
                break;
            }
            if !more {
                std::thread::sleep(PAUSE);
            }
        }
        let words = self.exchanger.settle();
        let said = self.transport.gather(&words, if lost.is_some() { telling } else { patience });
        let said = said.map_err(|error| {
            // The first thing that went wrong says more than that nobody came to hear of it.
            let lost = lost.map(|words| {
                Error::new(Kind::Unavailable, words)
                    .hint("look at why it ended or hangs; exchange.patience_ms is how long the others wait")
            });
            self.broken.take().or(lost).unwrap_or(error).at("the exchange could not be finished")
        })?;
        self.exchanger.conclude(&said)
    }
}

/// Who is waited for, and for what.
fn late_words(late: &[(u32, u32)], sending: usize, patience: Duration) -> String {
    let mut ranks: Vec<u32> = late.iter().map(|(rank, _)| *rank).collect();
    ranks.dedup();
    let waited = patience.as_secs_f64();
    if ranks.is_empty() {
        format!("{sending} messages could not be sent within {waited:.1} s")
    } else {
        format!("{} messages of {} did not arrive within {waited:.1} s", late.len(), named(&ranks))
    }
}

fn gone() -> Error {
    Error::new(Kind::Io, "the thread of the exchange has ended")
        .hint("this is a defect; please report it with what was running")
}
