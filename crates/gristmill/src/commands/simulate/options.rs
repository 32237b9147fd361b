//! What was typed, what was measured, and what is left to defaults, as one setup.

use super::measured::Measured;
use crate::args::SimulateArgs;
use crate::commands::rate;
use anyhow::Result;
use gristmill_core::exchange::{Choose, ExchangeOptions, Form};
use gristmill_core::nearest::nearest;
use gristmill_node::Error;
use gristmill_node::config::parse_bytes;
use gristmill_sim::{Disk, Fault, Hold, Knobs, Labels, Link, Load, Machine, Setup, Shuffle, Store};

/// Reads in flight from a store that answers after a while, as in the loader.
const STORE_READS: u32 = 64;
const SHUFFLES: [&str; 3] = ["global", "local", "partial"];

/// One setup per way to shuffle.
pub(super) fn setups(args: &SimulateArgs, measured: Option<&Measured>) -> Result<Vec<Setup>> {
    let (load, machine) = (load(args, measured)?, machine(args, measured)?);
    let faults = args.faults.iter().map(|text| text.parse::<Fault>()).collect::<Result<Vec<_>, _>>();
    let faults = faults.map_err(|e| Error::config(format!("--fault: {e}")))?;
    for fault in &faults {
        if matches!(fault, Fault::LostNode { epoch, .. } if *epoch >= args.epochs) {
            let error =
                Error::config(format!("--fault {fault}: there are only {} epochs, from 0", args.epochs));
            return Err(error.hint("name an earlier one, or simulate more with --epochs").into());
        }
    }
    let setup =
        |knobs| Setup { machine, load, knobs, faults: faults.clone(), seed: args.seed, follow: args.follow };
    let setups: Vec<Setup> = knobs(args, measured)?.into_iter().map(setup).collect();
    for setup in &setups {
        setup.check().map_err(|e| Error::config(e.to_string()))?;
    }
    Ok(setups)
}

fn load(args: &SimulateArgs, measured: Option<&Measured>) -> Result<Load> {
    let (data, plain) = (&args.data, Load::default());
    let bytes = data.bytes.as_ref().map(|text| {
        parse_bytes(text).map(|bytes| bytes as f64).ok_or_else(|| {
            Error::config(format!("--bytes {text:?} is not a size")).hint("write e.g. 110kB or 1MiB")
        })
    });
    let samples = data.samples.or(measured.map(|m| m.samples)).unwrap_or(plain.samples);
    let classes = measured.map_or(plain.classes, |m| m.data.classes.max(1)).min(samples);
    Ok(Load {
        samples,
        bytes: bytes.transpose()?.or(measured.map(|m| m.data.bytes_mean)).unwrap_or(plain.bytes),
        spread: data.spread.or(measured.map(|m| m.data.bytes_spread)).unwrap_or(plain.spread),
        classes: data.classes.unwrap_or(classes),
        labels: named("--labels", &data.labels, &Labels::NAMES)?,
        batch: data.batch.or(measured.map(|m| m.batch)).unwrap_or(plain.batch),
        cpu_s: data
            .cpu_ms
            .or(measured.map(|m| m.prep.as_ref().map_or(0.0, |prep| prep.cpu_ms_per_sample)))
            .map_or(plain.cpu_s, |ms| ms / 1e3),
        step_s: data.step_ms.or(measured.and_then(Measured::step_ms)).map_or(plain.step_s, |ms| ms / 1e3),
    })
}

fn machine(args: &SimulateArgs, measured: Option<&Measured>) -> Result<Machine> {
    let (hardware, plain) = (&args.hardware, Machine::default());
    let typed = |option: &str, text: &Option<String>| {
        text.as_ref().map(|text| rate::bytes_per_s(option, text).map(|rate| rate as f64)).transpose()
    };
    let (store, disk) = (measured, measured.filter(|measured| measured.is_local()));
    let seconds = |typed: Option<f64>, measured: Option<&Measured>, plain: f64| {
        typed.or(measured.map(Measured::latency_ms)).map_or(plain, |ms| ms / 1e3)
    };
    let threads = threads(args, measured);
    Ok(Machine {
        ranks: args.ranks,
        ranks_per_node: hardware.ranks_per_node,
        cores: hardware
            .cores
            .or(measured.map(|measured| measured.cores))
            .unwrap_or(threads.saturating_mul(hardware.ranks_per_node).max(1)),
        disk: Disk {
            bytes_per_s: typed("--disk", &hardware.disk)?
                .or(disk.map(Measured::bytes_per_s))
                .unwrap_or(plain.disk.bytes_per_s),
            latency_s: seconds(hardware.disk_latency_ms, disk, plain.disk.latency_s),
            sync_s: seconds(hardware.disk_sync_ms, None, plain.disk.sync_s),
        },
        link: Link {
            bytes_per_s: typed("--link", &hardware.link)?.unwrap_or(plain.link.bytes_per_s),
            latency_s: seconds(hardware.link_latency_ms, None, plain.link.latency_s),
        },
        store: Store {
            bytes_per_s: typed("--store", &hardware.store)?
                .or(store.map(Measured::bytes_per_s))
                .unwrap_or(plain.store.bytes_per_s),
            requests_per_s: hardware.store_requests_per_s.unwrap_or(plain.store.requests_per_s),
            latency_s: seconds(hardware.store_latency_ms, store, plain.store.latency_s),
        },
        timeout_s: args.timeout_s,
        restart_s: args.restart_s,
    })
}

fn threads(args: &SimulateArgs, measured: Option<&Measured>) -> u32 {
    args.knobs.threads.or(measured.map(|m| m.threads)).unwrap_or(Knobs::default().threads)
}

/// The knobs of each way to shuffle that was typed.
fn knobs(args: &SimulateArgs, measured: Option<&Measured>) -> Result<Vec<Knobs>> {
    let typed = &args.knobs;
    let options = ExchangeOptions {
        fraction: typed.fraction,
        form: named("--form", &typed.form, &Form::NAMES)?,
        choose: named("--choose", &typed.choose, &Choose::NAMES)?,
    };
    options.check().map_err(|e| Error::config(format!("--fraction: {e}")))?;
    if options.choose.by_score() {
        let choose = &typed.choose;
        let error = Error::config(format!("--choose {choose} needs the scores of a real training"));
        return Err(error.hint("simulate uniform or class").into());
    }
    let mut ways: Vec<Shuffle> = Vec::new();
    for name in typed.shuffle.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let way = match name {
            "global" => Shuffle::Global,
            "local" => Shuffle::Held(ExchangeOptions { fraction: 0.0, ..options }),
            "partial" => Shuffle::Held(options),
            _ => return Err(unknown("--shuffle", name, SHUFFLES.into_iter())),
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    if ways.is_empty() {
        return Err(unknown("--shuffle", &typed.shuffle, SHUFFLES.into_iter()));
    }
    let plain = Knobs::default();
    let one = |shuffle| {
        let usual = if shuffle == Shuffle::Global { STORE_READS } else { plain.reads_in_flight };
        let measured_reads = measured.map(|m| m.fetch.reads_in_flight);
        Ok(Knobs {
            shuffle,
            hold: named("--hold", &typed.hold, &Hold::NAMES)?,
            kept: typed.kept,
            cached: typed.cached,
            threads: threads(args, measured),
            reads_in_flight: typed.reads.or(measured_reads).unwrap_or(usual),
            prefetch_batches: typed
                .prefetch
                .or(measured.map(|m| m.prefetch_batches))
                .unwrap_or(plain.prefetch_batches),
        })
    };
    ways.into_iter().map(one).collect()
}

/// What a name stands for.
fn named<T: Copy>(option: &str, typed: &str, names: &[(&'static str, T)]) -> Result<T> {
    let found = names.iter().find(|(name, _)| *name == typed.trim());
    found.map(|(_, value)| *value).ok_or_else(|| unknown(option, typed, names.iter().map(|(name, _)| *name)))
}

fn unknown(option: &str, typed: &str, names: impl Iterator<Item = &'static str> + Clone) -> anyhow::Error {
    let all = names.clone().collect::<Vec<_>>().join(", ");
    let error = Error::config(format!("{option} {typed:?} is none of {all}"));
    match nearest(typed, names) {
        Some(near) => error.hint(format!("did you mean {near}?")).into(),
        None => error.into(),
    }
}
