//! The background thread of a client: connects, serves the queue while connected, and connects again.
//!
//! The pause between attempts doubles up to its limit, with jitter, and starts over only after an answer came: a node
//! that lets clients in and then hangs is asked less and less often.

use super::pace;
use super::pending::Pending;
use super::session::{self, Announced};
use super::socket;
use super::{Address, ClientCounts, ClientOptions, Ready, unavailable};
use crate::node::Standing;
use crate::split::{Staged, StagedAsk};
use crate::wire::{Prepare, Prepared, Verb, Welcome};
use crate::{Error, Kind, Result};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

/// What handles ask of the driver.
#[derive(Debug)]
pub(super) enum Command {
    Fetch { asks: Vec<StagedAsk>, peer: bool, reply: Reply<Vec<Result<Staged>>> },
    Prepare { prepare: Arc<Prepare>, reply: Reply<Ready> },
    Announce { epoch: u64, full: bool, order: Arc<[u32]>, reply: Reply<()> },
    Stand { standings: Vec<Standing>, reply: Reply<()> },
    Call { verb: Verb, body: Vec<u8>, reply: Reply<Vec<u8>> },
}

/// What handles and driver both see.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) url: String,
    /// The version of the ops.
    pub(super) build: &'static str,
    pub(super) up: AtomicBool,
    words: Mutex<Words>,
    /// The recipe that was handed over first: a handle to a node runs one and no other.
    recipe: OnceLock<Arc<Prepare>>,
    pub(super) connects: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) messages: AtomicU64,
    pub(super) samples: AtomicU64,
    pub(super) bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Words {
    welcome: Option<Welcome>,
    /// What the node of this connection said to the recipe: its handle and cores, or why not.
    prepared: Option<std::result::Result<Prepared, String>>,
    /// Why it is not up: kind, sentence, hint.
    why: Option<(Kind, String, Option<String>)>,
}

impl Shared {
    pub(super) fn new(url: &str, build: &'static str) -> Shared {
        Shared {
            url: url.to_string(),
            build,
            up: AtomicBool::new(false),
            words: Mutex::default(),
            recipe: OnceLock::new(),
            connects: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn words(&self) -> std::sync::MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn welcome(&self) -> Option<Welcome> {
        self.words().welcome.clone()
    }

    /// The recipe's handle on this connection, if the node runs its ops.
    pub(super) fn handle(&self) -> Option<u32> {
        self.words().prepared.as_ref()?.as_ref().ok().map(|prepared| prepared.handle)
    }

    /// Whether this is the recipe of this handle, which the first one becomes.
    pub(super) fn runs(&self, prepare: &Arc<Prepare>) -> bool {
        self.recipe.get_or_init(|| Arc::clone(prepare)) == prepare
    }

    pub(super) fn ready(&self) -> std::result::Result<Ready, String> {
        match &self.words().prepared {
            Some(Ok(prepared)) => Ok(Ready { cores: prepared.cores.into() }),
            Some(Err(why)) => Err(why.clone()),
            None => Err("the node was not asked to run ops yet".into()),
        }
    }

    /// What the node said to the recipe.
    pub(super) fn set_prepared(&self, said: &Result<Prepared>) {
        self.words().prepared = Some(match said {
            Ok(prepared) => Ok(*prepared),
            Err(error) => Err(error.to_string()),
        });
    }

    /// Why asking fails now.
    pub(super) fn down(&self) -> Error {
        match &self.words().why {
            Some((kind, sentence, hint)) => {
                let error = Error::new(*kind, sentence.clone());
                if let Some(hint) = hint { error.hint(hint.clone()) } else { error }
            }
            None => unavailable(&self.url, "it was not reached yet"),
        }
    }

    pub(super) fn counts(&self) -> ClientCounts {
        ClientCounts {
            connects: self.connects.load(Relaxed),
            failures: self.failures.load(Relaxed),
            messages: self.messages.load(Relaxed),
            samples: self.samples.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }

    fn set_down(&self, error: &Error) {
        self.failures.fetch_add(1, Relaxed);
        let mut words = self.words();
        words.why = Some((error.kind(), error.to_string(), error.remedy().map(str::to_string)));
        words.prepared = None;
        drop(words);
        self.up.store(false, Relaxed);
    }

    fn set_up(&self, welcome: &Welcome) {
        self.connects.fetch_add(1, Relaxed);
        self.words().welcome = Some(welcome.clone());
        self.up.store(true, Relaxed);
    }
}

/// Starts the thread. `first` hears how the first attempt went.
pub(super) fn start(
    address: Address,
    options: ClientOptions,
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Command>,
    first: SyncSender<Result<()>>,
) -> Result<()> {
    let tls = socket::tls(&address, options.tls_ca.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::io("start", "an I/O runtime", e))?;
    let driver = Driver { address, options, shared, tls, said: Said::default() };
    let thread = std::thread::Builder::new().name("grist-client".into());
    thread
        .spawn(move || runtime.block_on(driver.run(queue, first)))
        .map_err(|e| Error::io("start", "a thread", e))?;
    Ok(())
}

struct Driver {
    address: Address,
    options: ClientOptions,
    shared: Arc<Shared>,
    tls: Option<socket::Tls>,
    said: Said,
}

/// What a node that comes back hears again.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) announced: Option<Announced>,
    pub(super) prepare: Option<Arc<Prepare>>,
}

impl Driver {
    async fn run(mut self, queue: mpsc::Receiver<Command>, first: SyncSender<Result<()>>) {
        let latency = Duration::from_millis(self.options.throttle_latency_ms);
        let mut queue =
            if latency.is_zero() { queue } else { pace::delayed(queue, latency, self.options.queue_max) };
        let mut first = Some(first);
        let mut failures = 0_u32;
        let random = RandomState::new();
        loop {
            let limit = Duration::from_millis(self.options.connect_ms_max);
            let entered = timeout(limit, self.enter()).await.unwrap_or_else(|_| {
                let waited = self.options.connect_ms_max;
                Err(unavailable(&self.shared.url, format_args!("it did not answer for {waited} ms")))
            });
            let error = match entered {
                Ok((socket, welcome, version)) => {
                    self.shared.set_up(&welcome);
                    if let Some(first) = first.take() {
                        let _ = first.send(Ok(()));
                    }
                    let mut pending = Pending::new(self.shared.clone());
                    let ended = session::run(
                        socket,
                        &welcome,
                        version,
                        &self.options,
                        &mut self.said,
                        &mut queue,
                        &mut pending,
                    );
                    let Err(error) = ended.await else { return };
                    if pending.answered() {
                        failures = 0;
                    }
                    let error = match error.kind() {
                        Kind::Unavailable => error,
                        _ => unavailable(&self.shared.url, &error),
                    };
                    self.shared.set_down(&error);
                    pending.fail(|| self.shared.down());
                    error
                }
                Err(error) => {
                    self.shared.set_down(&error);
                    if let Some(first) = first.take() {
                        let _ = first.send(Err(self.shared.down()));
                    }
                    error
                }
            };
            failures = failures.saturating_add(1);
            // What cannot become right by waiting is refused for good; the handles hear why until they are gone.
            let until = (error.kind() == Kind::Unavailable).then(|| {
                let pause = pause(self.options.backoff_ms, self.options.backoff_ms_max, failures);
                let jitter = random.hash_one(failures) % 512;
                Instant::now() + pause.mul_f64(0.75 + jitter as f64 / 1_024.0)
            });
            if !self.wait(until, &mut queue).await {
                return;
            }
        }
    }

    /// Connects and shakes hands.
    async fn enter(&self) -> Result<(socket::Socket, Welcome, u8)> {
        let (socket, welcome, version) =
            socket::connect(&self.address, &self.options, self.tls.as_ref(), &self.shared.url).await?;
        if let Some(before) = self.shared.welcome().filter(|before| before.digest != welcome.digest) {
            return Err(Error::config(format!(
                "the node at {} now serves another data set: {} instead of {}",
                self.shared.url, welcome.digest, before.digest
            ))
            .hint("end this run, or let the node serve the data set it began with"));
        }
        Ok((socket, welcome, version))
    }

    /// Waits until it is time for the next attempt; what is asked meanwhile fails at once. False when nobody is left.
    async fn wait(&mut self, until: Option<Instant>, queue: &mut mpsc::Receiver<Command>) -> bool {
        loop {
            let pause = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let command = tokio::select! {
                () = pause => return true,
                command = queue.recv() => command,
            };
            // Whoever asks is gone when the send fails.
            match command {
                None => return false,
                Some(Command::Announce { epoch, full, order, reply }) => {
                    self.said.announced = Some(Announced { epoch, full, order });
                    let _ = reply.send(if until.is_some() { Ok(()) } else { Err(self.shared.down()) });
                }
                Some(Command::Prepare { prepare, reply }) => {
                    self.said.prepare = Some(prepare);
                    let _ = reply.send(Err(self.shared.down()));
                }
                Some(Command::Fetch { reply, .. }) => drop(reply.send(Err(self.shared.down()))),
                Some(Command::Stand { reply, .. }) => drop(reply.send(Err(self.shared.down()))),
                Some(Command::Call { reply, .. }) => drop(reply.send(Err(self.shared.down()))),
            }
        }
    }
}

/// The pause after so many failures in a row, before jitter.
fn pause(first_ms: u64, ms_max: u64, failures: u32) -> Duration {
    let doubled = first_ms.saturating_mul(1 << failures.saturating_sub(1).min(20));
    Duration::from_millis(doubled.min(ms_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let ms = [1, 2, 3, 7, 1_000].map(|failures| pause(100, 5_000, failures).as_millis());
        assert_eq!(ms, [100, 200, 400, 5_000, 5_000]);
        assert_eq!(pause(u64::MAX, 9, 64).as_millis(), 9);
    }
}
