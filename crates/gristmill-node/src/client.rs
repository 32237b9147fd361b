//! A node somewhere else, asked by sample id.
//!
//! A [`Client`] is a handle that is cheap to clone and may be used from any thread and any runtime: a background thread
//! with its own small runtime drives the one connection. Requests go in by a bounded queue, answers come back one by
//! one. Asks that are queued when the connection is free go out in one message, so single asks cost little.
//!
//! A node that dies, hangs or restarts costs time and nothing else: requests fail soon with [`Kind::Unavailable`], the
//! client connects again by itself with growing pauses, joins again and repeats the last announcement.
//! [`Client::is_up`] says whether asking is worth it. A node that comes back with another data set is refused for good.
//!
//! Deliberately not here: going to the store instead (the loader does), and choosing among several nodes.

mod address;
mod beside;
mod catalog;
mod driver;
mod pace;
mod pending;
mod session;
mod socket;

pub use address::Address;
pub(crate) use socket::PEM_BYTES_MAX;

use crate::catalog::Digest;
use crate::node::{Ask, Served, Standing};
use crate::split::{Shortfall, Staged, StagedAsk, Wish};
use crate::token::Token;
use crate::wire::{self, ASKS_MAX, CatalogPart, Prepare, RECIPE_BYTES_MAX, STANDINGS_MAX, Verb, Welcome};
use crate::{Error, Kind, Result};
use driver::{Command, Shared};
use futures::future::join_all;
use gristmill_core::SampleId;
use gristmill_ops::{BUILD, Limits, Recipe, Stage};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How a node is reached.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// What lets the client in.
    pub token: Option<Token>,
    /// The certificate authority (PEM) that signed the node's certificate; with it, or with `grists://`, TLS is used.
    pub tls_ca: Option<PathBuf>,
    /// The data set that is expected; `None` takes what the node has.
    pub digest: Option<Digest>,
    /// The name of the job, for reports.
    pub job: String,
    /// A node beside that one, or somebody who only looks: does not count as a job.
    pub peer: bool,
    /// How long connecting and the handshake may take.
    pub connect_ms_max: u64,
    /// How long one request may take.
    pub request_ms_max: u64,
    /// The pause before the first new attempt to connect; it doubles.
    pub backoff_ms: u64,
    /// The longest pause between attempts.
    pub backoff_ms_max: u64,
    /// The longest answer that is taken.
    pub answer_bytes_max: u32,
    /// How many requests may wait to be sent.
    pub queue_max: usize,
    /// The link's speed, if it is to be slower than it is.
    pub throttle_bytes_per_s: Option<u64>,
    /// What a request is to take there and back beside what it takes anyway.
    pub throttle_latency_ms: u64,
    /// The version of the ops; only tests say another one.
    pub build: &'static str,
    /// The version of the wire; only tests speak an older one.
    pub wire_version: u8,
    /// How much memory a node on this machine, reached through its Unix socket, may share with this client; 0 for none.
    pub lane_bytes: u32,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            token: None,
            tls_ca: None,
            digest: None,
            job: "job".into(),
            peer: false,
            connect_ms_max: 5_000,
            request_ms_max: 10_000,
            backoff_ms: 100,
            backoff_ms_max: 5_000,
            answer_bytes_max: 1 << 30,
            queue_max: 1_024,
            throttle_bytes_per_s: None,
            throttle_latency_ms: 0,
            build: BUILD,
            wire_version: wire::VERSION,
            lane_bytes: 8 << 20,
        }
    }
}

/// What a client did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ClientCounts {
    /// Times a node let it in.
    pub connects: u64,
    /// Connections that ended in an error, and attempts that failed.
    pub failures: u64,
    /// Fetch messages sent.
    pub messages: u64,
    /// Samples that came.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A node's word that it runs the first ops of a recipe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ready {
    /// The cores that it gives to ops.
    pub cores: f64,
}

/// A handle to a node; clones share its connection.
#[derive(Debug, Clone)]
pub struct Client {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

impl Client {
    /// Connects to `grist://host:port/name` or `grist+unix:///path`, and waits until the node lets it in or does not.
    pub fn connect(url: &str, options: ClientOptions) -> Result<Client> {
        let wait = Duration::from_millis(options.connect_ms_max.saturating_add(1_000));
        let (client, first) = Client::begin(url, options)?;
        match first.recv_timeout(wait) {
            Ok(Ok(())) => Ok(client),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(client.shared.down()),
        }
    }

    /// As [`Client::connect`] without waiting: only what can never work is an error, and the node may come up later.
    pub fn start(url: &str, options: ClientOptions) -> Result<Client> {
        Ok(Client::begin(url, options)?.0)
    }

    fn begin(url: &str, options: ClientOptions) -> Result<(Client, std::sync::mpsc::Receiver<Result<()>>)> {
        let address = Address::parse(url)?;
        let (commands, queue) = mpsc::channel(options.queue_max.max(1));
        let (tell, first) = std::sync::mpsc::sync_channel(1);
        let shared = Arc::new(Shared::new(url, options.build));
        driver::start(address, options, shared.clone(), queue, tell)?;
        Ok((Client { commands, shared }, first))
    }

    /// Whether the node is there: if not, asking fails at once.
    pub fn is_up(&self) -> bool {
        self.shared.up.load(Relaxed)
    }

    /// What the node said about itself and its data set when it was last reached.
    pub fn welcome(&self) -> Option<Welcome> {
        self.shared.welcome()
    }

    /// The URL it was made with.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// What it did so far.
    pub fn counts(&self) -> ClientCounts {
        self.shared.counts()
    }

    /// Hands a recipe to the node, which from then on runs its first ops for those who ask with a wish. It is remembered
    /// and handed to a node that comes back. The error says why the node does not: it is away, of an older version, has
    /// other ops, or no cores for them; or another recipe was handed over before.
    pub async fn prepare(&self, recipe: &Recipe, limits: Limits) -> Result<Ready> {
        let recipe = serde_json::to_string(recipe)
            .map_err(|e| Error::config("a recipe cannot be written as JSON").because(e))?;
        if recipe.len() > RECIPE_BYTES_MAX {
            let bytes = recipe.len();
            return Err(Error::config(format!(
                "the recipe has {bytes} bytes as JSON, and a node takes {RECIPE_BYTES_MAX}"
            )));
        }
        let prepare = Arc::new(Prepare {
            build: self.shared.build.to_string(),
            pixels_max: limits.pixels_max,
            scratch_bytes_max: limits.scratch_bytes_max as u64,
            recipe,
        });
        if !self.shared.runs(&prepare) {
            return Err(Error::config("another loader runs another recipe over this connection")
                .hint("open the data set once for each recipe"));
        }
        if let Ok(ready) = self.shared.ready() {
            return Ok(ready);
        }
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Prepare { prepare, reply }).await.is_err() {
            return Err(self.shared.down());
        }
        answer.await.unwrap_or_else(|_| Err(self.shared.down()))
    }

    /// Whether the node runs ops now, and if not, why.
    pub fn ready(&self) -> std::result::Result<Ready, String> {
        self.shared.ready()
    }

    /// The samples that are wanted now, each served or with its own error, in the order of the asks. The outer error is
    /// about the node and not about a sample: it is not there, or did not answer in time.
    pub async fn fetch(&self, asks: &[Ask]) -> Result<Vec<Result<Served>>> {
        let asks = asks.iter().map(|&ask| StagedAsk { ask, wish: None }).collect();
        self.fetch_as(asks, false).await.map(plain)
    }

    /// As [`Client::fetch`] for a node beside that one: it looks into its own tiers and its store only.
    pub async fn fetch_for_peer(&self, ids: &[SampleId]) -> Result<Vec<Result<Served>>> {
        let ask = |&id: &SampleId| StagedAsk { ask: Ask { id, cold: false }, wish: None };
        self.fetch_as(ids.iter().map(ask).collect(), true).await.map(plain)
    }

    /// As [`Client::fetch`], each sample at the stage that is wished for, or raw when the node does less.
    pub async fn fetch_staged(&self, asks: &[StagedAsk]) -> Result<Vec<Result<Staged>>> {
        let mut came = self.fetch_as(asks.to_vec(), false).await?;
        for (ask, came) in asks.iter().zip(&mut came) {
            let wanted = ask.wish.is_some_and(|wish| wish.stage != Stage::Raw);
            match came {
                // It was asked for raw because the node is not ready.
                Ok(staged) if wanted && (staged.stage, staged.shortfall) == (Stage::Raw, Shortfall::None) => {
                    staged.shortfall = Shortfall::Unprepared;
                }
                Ok(staged) if staged.stage != Stage::Raw && !suits(ask.wish, staged) => {
                    *came = Err(Error::corrupt("the node sent a stage that was not asked for"));
                }
                _ => {}
            }
        }
        Ok(came)
    }

    async fn fetch_as(&self, asks: Vec<StagedAsk>, peer: bool) -> Result<Vec<Result<Staged>>> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        if asks.len() <= ASKS_MAX {
            return self.ask(|reply| Command::Fetch { asks, peer, reply }).await;
        }
        let parts = asks.chunks(ASKS_MAX).map(|part| {
            let asks = part.to_vec();
            self.ask(move |reply| Command::Fetch { asks, peer, reply })
        });
        let mut all = Vec::with_capacity(asks.len());
        for part in join_all(parts).await {
            all.extend(part?);
        }
        Ok(all)
    }

    /// The plan of an epoch: the ids in the order in which they will be asked for. It is remembered and repeated to a
    /// node that comes back; if the node is away now, that is no error.
    pub async fn announce(&self, epoch: u64, full: bool, order: impl Into<Arc<[u32]>>) -> Result<()> {
        let order = order.into();
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Announce { epoch, full, order, reply }).await.is_err() {
            return Err(self.shared.down());
        }
        answer.await.unwrap_or_else(|_| Err(self.shared.down()))
    }

    /// How some samples stand now.
    pub async fn stand(&self, standings: &[Standing]) -> Result<()> {
        for part in standings.chunks(STANDINGS_MAX) {
            let standings = part.to_vec();
            self.ask(|reply| Command::Stand { standings, reply }).await?;
        }
        Ok(())
    }

    /// What the node did so far: the JSON of [`crate::serve::ServerReport`].
    pub async fn report(&self) -> Result<serde_json::Value> {
        let text = self.call(Verb::Report, Vec::new()).await?;
        serde_json::from_slice(&text)
            .map_err(|e| Error::corrupt("the node's report is not valid JSON").because(e))
    }

    /// Waits until the node answers.
    pub async fn ping(&self) -> Result<()> {
        self.call(Verb::Ping, Vec::new()).await.map(|_| ())
    }

    /// A part of the catalog's file and the size of the file.
    async fn catalog_part(&self, from: u64) -> Result<(u64, Vec<u8>)> {
        let body = self.call(Verb::Catalog, from.to_le_bytes().to_vec()).await?;
        let part = CatalogPart::decode(&body)?;
        if part.from != from {
            return Err(Error::corrupt("the node sent another part of its catalog than was asked for"));
        }
        Ok((part.total, part.bytes.to_vec()))
    }

    async fn call(&self, verb: Verb, body: Vec<u8>) -> Result<Vec<u8>> {
        self.ask(|reply| Command::Call { verb, body, reply }).await
    }

    /// Queues a request and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<Result<T>>) -> Command) -> Result<T> {
        if !self.is_up() {
            return Err(self.shared.down());
        }
        let (reply, answer) = oneshot::channel();
        if self.commands.send(command(reply)).await.is_err() {
            return Err(self.shared.down());
        }
        answer.await.unwrap_or_else(|_| Err(self.shared.down()))
    }
}

/// Whether what came at a stage is what was wished for.
fn suits(wish: Option<Wish>, staged: &Staged) -> bool {
    let bytes = staged.served.bytes.len() as u64;
    wish.is_some_and(|wish| wish.stage == staged.stage && bytes <= wish.bytes_max.into())
}

/// What came, as those want it who asked for raw bytes.
fn plain(came: Vec<Result<Staged>>) -> Vec<Result<Served>> {
    came.into_iter().map(|one| one.map(|staged| staged.served)).collect()
}

/// The error of a node that is not there.
pub(crate) fn unavailable(url: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Unavailable, format!("the node at {url} is not available: {why}"))
}
