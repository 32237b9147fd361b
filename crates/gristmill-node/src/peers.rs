//! Nodes beside this one: together they keep one copy of every sample.
//!
//! Rendezvous hashing over the nodes that are up says whose a sample is; that node is asked, looks into its own tiers
//! and its store, and keeps it. Nobody else does. A peer that is lost is a miss: its samples fall to the others until it
//! is back. There is no consensus and no replication, since the store behind all of them is the truth.
//!
//! The list is the same for all nodes and names this one, too. It is read once: a node that is to join needs a restart
//! of the others, which keeps every node's idea of the list in step with its config.

use crate::client::{Address, Client, ClientOptions};
use crate::shared::BYTES_PER_S_LEAST;
use crate::{Error, Result};
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_core::cache::owner::Owners;
use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a peer may take before the store is asked instead.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a peer that did not answer in time is left alone.
const REST_MS: u64 = 5_000;

/// The nodes beside this one.
#[derive(Debug)]
pub struct Peers {
    owners: Owners,
    own: usize,
    /// In the order of the list; none at this node's own place.
    others: Vec<Option<Peer>>,
    started: Instant,
}

#[derive(Debug)]
struct Peer {
    client: Client,
    /// In milliseconds since the start.
    rests_until: AtomicU64,
}

impl Peers {
    /// The nodes of this list, of which `own` is this one. A node that is away now may come later.
    pub fn new(list: &[String], own: &str, options: &ClientOptions) -> Result<Option<Peers>> {
        if list.is_empty() {
            return Ok(None);
        }
        let list = resolved(list)?;
        let parsed = |url: &str| Address::parse(url);
        let own_address = parsed(own).map_err(|error| {
            if own.is_empty() {
                Error::config("there are peers, but it is not said which of them this node is")
                    .hint("set serve.advertise to this node's own URL in the list")
            } else {
                error
            }
        })?;
        let addresses = list.iter().map(|url| parsed(url)).collect::<Result<Vec<_>>>()?;
        let Some(own) = addresses.iter().position(|address| *address == own_address) else {
            return Err(Error::config(format!("serve.peers does not name this node, {own}"))
                .hint("the list is the same for all nodes and names each of them once"));
        };
        let owners = Owners::new(&list)?;
        let connect = |(place, url): (usize, &String)| {
            if place == own {
                return Ok(None);
            }
            let options = ClientOptions { job: "peer".into(), peer: true, ..options.clone() };
            Ok(Some(Peer { client: Client::start(url, options)?, rests_until: AtomicU64::new(0) }))
        };
        let others = list.iter().enumerate().map(connect).collect::<Result<Vec<_>>>()?;
        Ok(Some(Peers { owners, own, others, started: Instant::now() }))
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn is_up(&self, place: usize) -> bool {
        match &self.others[place] {
            None => true,
            Some(peer) => peer.client.is_up() && peer.rests_until.load(Relaxed) <= self.now_ms(),
        }
    }

    /// Whether a sample is another node's.
    pub fn is_elsewhere(&self, id: SampleId) -> bool {
        self.owners.owner(id, |place| self.is_up(place)).is_some_and(|owner| owner != self.own)
    }

    /// The bytes of a sample that is another node's, if that node gives them in time.
    pub async fn fetch(&self, id: SampleId, size: u32) -> Option<Bytes> {
        let owner = self.owners.owner(id, |place| self.is_up(place))?;
        let peer = self.others[owner].as_ref()?;
        let patience = PATIENCE + Duration::from_millis(u64::from(size) * 1_000 / BYTES_PER_S_LEAST);
        let answer = tokio::time::timeout(patience, peer.client.fetch_for_peer(&[id])).await;
        if answer.is_err() {
            peer.rests_until.store(self.now_ms() + REST_MS, Relaxed);
        }
        let served = answer.ok()?.ok()?.pop()?.ok()?;
        (served.id == id && served.bytes.len() as u64 == u64::from(size)).then_some(served.bytes)
    }

    /// How many nodes there are, this one included, and how many of them are up.
    pub fn count(&self) -> (usize, usize) {
        let up = (0..self.others.len()).filter(|place| self.is_up(*place)).count();
        (self.others.len(), up)
    }
}

/// The list with `dns:host:port/name` replaced by all addresses that the host has.
fn resolved(list: &[String]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in list {
        let Some(rest) = entry.strip_prefix("dns:") else {
            all.push(entry.clone());
            continue;
        };
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        let found = host.to_socket_addrs().map_err(|e| {
            Error::io("look up", host, e).hint("peers are grist://host:port/name or dns:host:port/name")
        })?;
        let mut found: Vec<String> = found.map(|address| format!("grist://{address}/{name}")).collect();
        found.sort_unstable();
        found.dedup();
        all.append(&mut found);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_must_name_this_node_once() {
        let options = ClientOptions::default();
        let list = |urls: &[&str]| urls.iter().map(|url| (*url).to_string()).collect::<Vec<_>>();
        assert!(Peers::new(&[], "", &options).unwrap().is_none());
        let both = list(&["grist://127.0.0.1:1/x", "grist://127.0.0.1:2/x"]);
        let peers = Peers::new(&both, "grist://127.0.0.1:2/x", &options).unwrap().unwrap();
        assert_eq!(peers.count(), (2, 1), "nobody is there but this one");
        assert!(
            (0..100).all(|id| !peers.is_elsewhere(SampleId(id))),
            "a lost peer's samples fall to the others"
        );
        for (urls, own, word) in [
            (&both, "", "serve.advertise"),
            (&both, "grist://127.0.0.1:3/x", "does not name this node"),
            (&list(&["grist://127.0.0.1:1/x", "grist://127.0.0.1:1/x"]), "grist://127.0.0.1:1/x", "twice"),
            (&list(&["http://127.0.0.1:1/x"]), "grist://127.0.0.1:1/x", "not the URL of a node"),
        ] {
            let error = Peers::new(urls, own, &options).unwrap_err();
            let said = format!("{error} {}", error.remedy().unwrap_or_default());
            assert!(said.contains(word), "{said}");
        }
        let own = "grist://127.0.0.1:7077/x";
        let found = Peers::new(&list(&["dns:127.0.0.1:7077/x"]), own, &options).unwrap().unwrap();
        assert_eq!(found.count(), (1, 1));
    }
}
