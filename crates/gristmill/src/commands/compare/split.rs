//! `gristmill compare split`: where samples are cut, each way read over one slow link.
//!
//! For every number of cores a real node is started in front of the data ([`Upstream`]). Each policy has a loader of its
//! own, which first profiles the data and the node, before any is measured; then the policies take turns epoch by epoch,
//! so that whatever else the machine does falls on all of them. The batches of all must be the same to the last byte: that is checked, not believed.

mod cores;
mod table;

use super::upstream::{Link, Upstream};
use crate::args::CompareSplitArgs;
use crate::commands::{catalogued, rate, train};
use crate::output::{json, line, name, say};
use crate::progress::{Progress, Unit};
use crate::stop;
use anyhow::Result;
use gristmill_core::split::SplitPolicy;
use gristmill_node::Error;
use gristmill_node::config::Config;
use gristmill_node::loader::{Data, Loader, LoaderOptions, Polled};
use gristmill_node::open;
use gristmill_node::report::EpochReport;
use gristmill_node::split::{SplitMode, SplitOptions};
use gristmill_node::steer::SteerOptions;
use rustix::time::{ClockId, clock_gettime};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::{Ran, Setting};
use xxhash_rust::xxh3::Xxh3Default;

/// The most epochs that are measured.
const EPOCHS_MAX: u64 = 1_000;
/// Epochs in which data and node are measured: an unsplit one, and the first that is split.
const PROFILING: u64 = 2;
const READ: Unit = Unit::Things("epoch", "epochs", "read");
/// The fastest accelerator that is pretended.
const ACCELERATOR_MAX: f64 = 1e9;

/// One policy at work.
struct Side {
    policy: SplitPolicy,
    loader: Loader,
    ran: Vec<Ran>,
}

pub(in crate::commands) fn split(args: &CompareSplitArgs) -> Result<ExitCode> {
    args.svg.iter().try_for_each(|path| train::check_folder("--svg", path))?;
    let policies = policies(&args.policies)?;
    let all_cores = cores::cores(&args.cores)?;
    let link_bytes_per_s = rate::bytes_per_s("--link", &args.link)?;
    if args.epochs == 0 || args.epochs > EPOCHS_MAX {
        return Err(Error::config(format!("--epochs {} is not from 1 to {EPOCHS_MAX}", args.epochs)).into());
    }
    if !(0.0..=ACCELERATOR_MAX).contains(&args.accelerator) {
        let given = args.accelerator;
        return Err(Error::config(format!("--accelerator {given} is not from 0 to {ACCELERATOR_MAX}")).into());
    }
    let quiet = args.common.json;
    open::recipe(&args.recipe)?;
    let link = Link::new(&args.by, link_bytes_per_s)?;
    // Built once, so that no node has to.
    catalogued(&args.source, None, &args.common.config(&[])?, None, quiet)?;
    if !quiet {
        say(format_args!("the link: {link}"));
    }
    let setting = Setting {
        link_bytes_per_s,
        link: link.kind(),
        accelerator_samples_per_s: (args.accelerator > 0.0).then_some(args.accelerator),
        epochs: args.epochs,
    };
    let total = all_cores.len() as u64 * policies.len() as u64 * (args.epochs + PROFILING);
    let mut bar = Progress::new("compare", quiet);
    let (mut done, mut rows) = (0, Vec::new());
    for &cores in &all_cores {
        // As in the publications: what is run near the data is run anew in every epoch.
        let upstream = Upstream::start(&args.source, cores, 0, &link, args.common.config(&[])?.settings())?;
        let mut sides = policies
            .iter()
            .map(|&policy| Ok(Side { policy, loader: loader(args, &upstream, policy)?, ran: Vec::new() }))
            .collect::<Result<Vec<_>>>()?;
        // What is learnt beside an epoch must not fall into another policy's.
        for (side, epoch) in sides.iter().flat_map(|side| (0..PROFILING).map(move |epoch| (side, epoch))) {
            bar.at(done, Some(total), READ, || {
                format!("{} with {cores} cores, profiling", side.policy.name())
            });
            one(&side.loader, epoch, args.accelerator)?;
            done += 1;
        }
        for epoch in PROFILING..PROFILING + args.epochs {
            let mut digest = None;
            for side in &mut sides {
                bar.at(done, Some(total), READ, || format!("{} with {cores} cores", side.policy.name()));
                let ran = one(&side.loader, epoch, args.accelerator)?;
                if *digest.get_or_insert(ran.digest) != ran.digest {
                    let policy = side.policy.name();
                    let error = Error::corrupt(format!("the batches of {policy} differ in epoch {epoch}"));
                    return Err(error.hint("this must never happen: please report it").into());
                }
                side.ran.push(ran);
                done += 1;
            }
        }
        rows.extend(table::rows(cores, setting, sides.into_iter().map(|side| (side.policy, side.ran))));
    }
    bar.done();
    if quiet {
        rows.iter().try_for_each(json)?;
    } else {
        table::text(&rows, setting).iter().try_for_each(line)?;
    }
    if let Some(path) = &args.svg {
        train::write_file(path, &table::picture(&rows))?;
        if !quiet {
            say(format_args!("picture written to {}", name(path.display())));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The policies that were typed, `none` first.
fn policies(text: &str) -> Result<Vec<SplitPolicy>> {
    let mut policies = vec![SplitPolicy::None];
    for typed in text.split(',').map(str::trim).filter(|typed| !typed.is_empty()) {
        let policy = SplitPolicy::named(typed).map_err(|e| Error::config(format!("--policies: {e}")))?;
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    Ok(policies)
}

/// A loader behind the node that splits by this policy.
fn loader(args: &CompareSplitArgs, upstream: &Upstream, policy: SplitPolicy) -> Result<Loader> {
    let throttle = upstream.throttle();
    let config: Config = args.common.config(&[
        ("recipe.name", Some(&args.recipe)),
        ("loader.batch", args.batch.as_ref()),
        ("loader.threads", args.threads.as_ref()),
        ("loader.seed", args.seed.as_ref()),
        ("serve.token_file", Some(upstream.token_file())),
        ("store.throttle_bytes_per_s", throttle.as_ref()),
    ])?;
    let settings = config.settings();
    let recipe = open::recipe(settings.recipe())?.ok_or_else(|| {
        Error::config("without a recipe there is nothing to split").hint("name one with --recipe")
    })?;
    let opened = catalogued(upstream.url(), None, &config, None, true)?;
    let set = Arc::new(open::data_set(opened.catalog, settings, &stop::asked)?);
    let options = settings.loader();
    // Whatever the link is, the node that was started for this computes on the cores that the loader has, too.
    let same_machine = options.split.same_machine.or(Some(true));
    let split = SplitOptions { mode: SplitMode::Policy(policy), same_machine, ..options.split };
    // Policies are compared at the same knobs.
    let steer = SteerOptions::default();
    Ok(Loader::new(set, Some(&recipe), LoaderOptions { split, steer, ..options })?)
}

/// Reads one epoch as a training with an accelerator of this rate would.
fn one(loader: &Loader, number: u64, accelerator: f64) -> Result<Ran> {
    let (begin, cpu) = (Instant::now(), process_cpu_s());
    let stall = Duration::from_millis(loader.options().stall_ms_max);
    let mut epoch = loader.epoch(number, 0)?;
    let mut digest = Xxh3Default::new();
    let mut since = Instant::now();
    loop {
        match epoch.poll(stop::SLICE)? {
            Polled::Batch(batch) => {
                batch.ids.iter().for_each(|id| digest.update(&id.to_le_bytes()));
                if let Data::Tensor(tensor) = &batch.data {
                    digest.update(tensor.bytes());
                }
                if accelerator > 0.0 {
                    stop::sleep(Duration::from_secs_f64(batch.ids.len() as f64 / accelerator));
                }
                since = Instant::now();
            }
            Polled::Pending if since.elapsed() > stall => return Err(epoch.stalled().into()),
            Polled::Pending => {}
            Polled::Done => break,
        }
        stop::check()?;
    }
    epoch.end();
    let report: EpochReport = epoch.report();
    Ok(Ran {
        epoch_s: begin.elapsed().as_secs_f64(),
        local_cpu_s: process_cpu_s() - cpu,
        samples: report.samples,
        digest: digest.digest(),
        split: report.split.unwrap_or_default(),
    })
}

fn process_cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_by_name_and_none_first() {
        let names = |text| policies(text).unwrap().into_iter().map(SplitPolicy::name).collect::<Vec<_>>();
        assert_eq!(names("best, none,sophon,best"), ["none", "best", "sophon"]);
        assert_eq!(names(""), ["none"]);
        assert!(policies("sofon").unwrap_err().to_string().contains("sophon"));
    }
}
