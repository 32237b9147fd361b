//! `gristmill bench serve`: how many samples a node sends per second and per second of its CPU.
//!
//! Each server is a process of its own, so that its CPU time is counted apart. All of them are asked in the same way by
//! the same blocking client: one connection with --batch samples per message and 2 messages in flight, or 8 connections of
//! which half ask for single samples. Bare TCP (the same numbers of bytes out of as much memory, with nothing to look
//! up) is the ceiling, and Redis is what people use otherwise. `lane` has samples come through shared memory, as Gristmill's
//! own client does on the node's machine; `client-*` asks through that.
//!
//! Rounds are interleaved and medians shown, because a shared machine wobbles; for the same reason each round is held
//! against Redis' own of that round before the median is taken.

mod bare;
mod load;
mod servers;
mod talk;

use crate::args::BenchServeArgs;
use crate::output::{grouped, json, line, say, size};
use crate::stop;
use anyhow::Result;
use gristmill_node::Error;
use load::Figures;
use serde::Serialize;
use servers::Servers;
use std::process::ExitCode;
use std::time::Duration;
use talk::Way;

/// The side of the square grey pictures that stand for samples of about 3 KB and 110 KB, and how many there are.
const SIZES: [(u32, u32); 2] = [(55, 20_000), (332, 1_000)];

/// How a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Load {
    Batched,
    Mixed,
}

/// A way of asking, how, and what each round gave.
type Measured = (Way, Load, Vec<Figures>);

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    transport: &'static str,
    load: Load,
    sample_bytes: u32,
    requests_per_s: f64,
    requests_per_cpu_s: f64,
    /// How many samples per CPU second beside Redis' MGET of the same round: the machine was the same for both.
    times_redis: Option<f64>,
    bytes_per_s: f64,
    p99_ms: f64,
    rounds: usize,
}

pub(super) fn run(args: &BenchServeArgs) -> Result<ExitCode> {
    if args.bare {
        return bare::serve();
    }
    if !(0.1..=60.0).contains(&args.seconds) || !(1..=99).contains(&args.rounds) {
        return Err(Error::config("--seconds must be 0.1 to 60 and --rounds 1 to 99").into());
    }
    // More of the large ones would not fit into what bare TCP sends at once.
    if !(1..=128).contains(&args.batch) {
        return Err(Error::config(format!("--batch is {}; it must be 1 to 128", args.batch)).into());
    }
    let time = Duration::from_secs_f64(args.seconds);
    for (side, samples) in SIZES {
        let sample_bytes = side * side;
        let servers = Servers::start(side, samples, args.redis.as_deref())?;
        if let Some(why) = servers.without_redis() {
            say(format_args!("no figures for Redis: {why}"));
        }
        let mut measured: Vec<Measured> = Vec::new();
        for load in [Load::Batched, Load::Mixed] {
            measured.extend(servers.ways().into_iter().map(|way| (way, load, Vec::new())));
        }
        for _ in 0..args.rounds {
            for (way, load, figures) in &mut measured {
                figures.push(load::measure(&servers, *way, *load, args.batch, time)?);
                stop::check()?;
            }
        }
        let rows: Vec<Row> = measured.iter().map(|one| row(one, &measured, sample_bytes)).collect();
        show(&rows, args.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row((way, load, figures): &Measured, all: &[Measured], sample_bytes: u32) -> Row {
    let of = |of: fn(&Figures) -> f64| median(figures.iter().map(of).collect());
    let redis = all.iter().find(|(way, of, _)| *way == Way::RedisMget && of == load);
    let times = |(_, _, redis): &Measured| {
        let rounds = figures.iter().zip(redis);
        median(rounds.map(|(one, other)| one.samples_per_cpu_s / other.samples_per_cpu_s).collect())
    };
    Row {
        transport: way.name(),
        load: *load,
        sample_bytes,
        requests_per_s: of(|one| one.samples_per_s),
        requests_per_cpu_s: of(|one| one.samples_per_cpu_s),
        times_redis: redis.map(times).filter(|times| times.is_finite()),
        bytes_per_s: of(|one| one.samples_per_s) * f64::from(sample_bytes),
        p99_ms: of(|one| one.p99_ms),
        rounds: figures.len(),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

fn show(rows: &[Row], as_json: bool) -> Result<()> {
    if as_json {
        return rows.iter().try_for_each(json);
    }
    let bytes = rows.first().map_or(0, |row| row.sample_bytes);
    line(format_args!("samples of {} bytes", grouped(bytes.into())))?;
    line(format_args!(
        "  {:<13}{:<9}{:>12}{:>16}{:>10}{:>13}{:>10}",
        "transport", "load", "samples/s", "samples/CPU s", "x Redis", "bytes/s", "p99 ms"
    ))?;
    for row in rows {
        line(format_args!(
            "  {:<13}{:<9}{:>12}{:>16}{:>10}{:>13}{:>10.2}",
            row.transport,
            if row.load == Load::Batched { "batched" } else { "mixed" },
            grouped(row.requests_per_s as u64),
            grouped(row.requests_per_cpu_s as u64),
            row.times_redis.map_or("-".into(), |times| format!("{times:.2}x")),
            size(row.bytes_per_s as u64),
            row.p99_ms
        ))?;
    }
    Ok(())
}
