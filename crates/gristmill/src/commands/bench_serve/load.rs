//! Asks a server for a while and counts.

use super::Load;
use super::servers::Servers;
use super::talk::Way;
use anyhow::{Result, anyhow};
use futures::executor::block_on;
use gristmill_core::SampleId;
use gristmill_core::rng::{Stream, key};
use gristmill_node::client::{Client, ClientOptions};
use gristmill_node::node::Ask;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Messages in flight on one connection.
const IN_FLIGHT: usize = 2;
/// Connections of the mixed load.
const CLIENTS: usize = 8;

/// What one measurement found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) samples_per_s: f64,
    pub(super) samples_per_cpu_s: f64,
    pub(super) p99_ms: f64,
}

/// Asks one server for `time`, by messages of `most` samples.
pub(super) fn measure(
    servers: &Servers,
    way: Way,
    load: Load,
    most: usize,
    time: Duration,
) -> Result<Figures> {
    let clients = if load == Load::Batched { 1 } else { CLIENTS };
    // Everybody connects before anybody asks, so that connecting is not measured.
    let start = std::sync::Barrier::new(clients + 1);
    let start = &start;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                let batch = if client % 2 == 0 { most } else { 1 };
                scope.spawn(move || match way {
                    Way::ClientTcp | Way::ClientUnix => {
                        through_client(servers, way, batch, client, start, time)
                    }
                    _ => through_socket(servers, way, batch, client, start, time),
                })
            })
            .collect();
        start.wait();
        let (began, cpu_before) = (Instant::now(), servers.cpu(way));
        let mut samples = 0;
        let mut waits = Vec::new();
        for thread in threads {
            let (many, times) = thread.join().map_err(|_| anyhow!("a client panicked"))??;
            samples += many;
            waits.extend(times);
        }
        let wall = began.elapsed().as_secs_f64();
        let cpu = match (cpu_before, servers.cpu(way)) {
            (Some(before), Some(after)) => after.saturating_sub(before).as_secs_f64(),
            _ => f64::NAN,
        };
        waits.sort();
        let p99 = waits.get(waits.len() * 99 / 100).copied().unwrap_or_default();
        Ok(Figures {
            samples_per_s: samples as f64 / wall,
            samples_per_cpu_s: samples as f64 / cpu,
            p99_ms: p99.as_secs_f64() * 1e3,
        })
    })
}

/// Ids in no order, as a shuffled epoch asks for them.
fn draw(rng: &mut Stream, ids: &mut [u32], samples: u32) {
    ids.iter_mut().for_each(|id| *id = rng.below(u64::from(samples)) as u32);
}

fn through_socket(
    servers: &Servers,
    way: Way,
    batch: usize,
    client: usize,
    start: &std::sync::Barrier,
    time: Duration,
) -> Result<(usize, Vec<Duration>)> {
    let conn = servers.connect(way);
    start.wait();
    let mut conn = conn?;
    let mut rng = Stream::from_key(key(&[client as u64]));
    let mut ids = vec![0; batch];
    let (mut sent, mut waits, mut samples) = (VecDeque::new(), Vec::new(), 0);
    let end = Instant::now() + time;
    loop {
        let now = Instant::now();
        while now < end && sent.len() < IN_FLIGHT {
            draw(&mut rng, &mut ids, servers.samples);
            conn.send(&ids, servers.sample_bytes)?;
            sent.push_back(now);
        }
        let Some(asked) = sent.pop_front() else { return Ok((samples, waits)) };
        conn.receive(batch, servers.sample_bytes)?;
        waits.push(asked.elapsed());
        samples += batch;
    }
}

fn through_client(
    servers: &Servers,
    way: Way,
    batch: usize,
    client: usize,
    start: &std::sync::Barrier,
    time: Duration,
) -> Result<(usize, Vec<Duration>)> {
    let node = Client::connect(&servers.url(way), ClientOptions::default());
    start.wait();
    let node = node?;
    let mut rng = Stream::from_key(key(&[client as u64]));
    let mut ids = vec![0; batch];
    let (mut waits, mut samples) = (Vec::new(), 0);
    let end = Instant::now() + time;
    let mut asks = || -> Vec<Ask> {
        draw(&mut rng, &mut ids, servers.samples);
        ids.iter().map(|&id| Ask { id: SampleId(id), cold: false }).collect()
    };
    while Instant::now() < end {
        let began = Instant::now();
        let messages: Vec<Vec<Ask>> = (0..IN_FLIGHT).map(|_| asks()).collect();
        let answers = block_on(futures::future::join_all(messages.iter().map(|asks| node.fetch(asks))));
        for answer in answers {
            for served in answer? {
                samples += usize::from(served?.bytes.len() == servers.sample_bytes as usize);
            }
            waits.push(began.elapsed());
        }
    }
    Ok((samples, waits))
}
