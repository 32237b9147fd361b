//! `gristmill bench load` under `mpirun`: every process is one rank, over MPI.
//!
//! Ranks step together, as synchronous training does; the first prints for all of them. What they read and hand out is
//! what ranks as threads of one process do. A binary that was built without the feature `mpi` says so.

use crate::args::LoadArgs;
use anyhow::Result;
use gristmill_node::Error;
use gristmill_node::config::Config;
use std::ops::Range;
use std::process::ExitCode;

/// Where launchers write how many ranks there are: Open MPI, and MPICH and others.
const WORLDS: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Whether this process is a rank of a job that `mpirun` started. One that is alone is none, unless it was told to
/// exchange with others.
pub(super) fn launched(exchanges: bool) -> bool {
    let world = WORLDS.iter().find_map(|name| std::env::var(name).ok()?.parse::<u32>().ok());
    world.is_some_and(|world| world > 1 || exchanges)
}

/// Reads a data set as one rank of the job.
pub(super) fn load(args: &LoadArgs, config: &Config, epochs: Range<u64>) -> Result<ExitCode> {
    let threads_only = [("--ranks", args.ranks.is_some()), ("--link", args.link.is_some())];
    if let Some((flag, _)) = threads_only.iter().find(|(_, given)| *given) {
        return Err(Error::config(format!(
            "{flag} is for ranks that are threads, but mpirun has started processes"
        ))
        .hint("leave it out, or run without mpirun")
        .into());
    }
    over_mpi(args, config, epochs)
}

#[cfg(not(feature = "mpi"))]
fn over_mpi(_: &LoadArgs, _: &Config, _: Range<u64>) -> Result<ExitCode> {
    Err(Error::config("mpirun has started this program, which was built without MPI")
        .hint("build it with `make mpi`, or run ranks as threads with --ranks and without mpirun")
        .into())
}

#[cfg(feature = "mpi")]
use over_mpi::over_mpi;

#[cfg(feature = "mpi")]
mod over_mpi {
    use super::super::bench_ranks::{Done, Job, Printing, summary};
    use super::super::catalogued;
    use crate::args::LoadArgs;
    use crate::stop;
    use anyhow::{Result, anyhow};
    use gristmill_mpi::{MpiTransport, Session};
    use gristmill_node::config::Config;
    use gristmill_node::exchange::Transport;
    use gristmill_node::{Error, Kind, open};
    use std::ops::Range;
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    /// How long a rank waits for the others at a step, or to hear their figures.
    const PATIENCE: Duration = Duration::from_mins(10);

    pub(super) fn over_mpi(args: &LoadArgs, config: &Config, epochs: Range<u64>) -> Result<ExitCode> {
        let session = Session::start()?;
        // Said before MPI ends: afterwards the launcher ends all ranks as soon as one has failed, heard or not.
        Ok(run(&session, args, config, epochs).unwrap_or_else(|error| crate::fail(&error)))
    }

    fn run(session: &Session, args: &LoadArgs, config: &Config, epochs: Range<u64>) -> Result<ExitCode> {
        let (rank, world) = (session.rank(), session.world());
        let quiet = args.common.json || rank > 0;
        let job = Job::new(args, config, (world, ranks_here(world)), epochs)?;
        // All ranks make these together, so before anything that may fail on one of them.
        let mut figures = session.transport()?;
        let exchange = job.exchanges().then(|| session.transport()).transpose()?;
        let exchange = exchange.map(|transport| Box::new(transport) as Box<dyn Transport>);
        let opened = catalogued(&args.source, args.kind, config, Some(args.rebuild), quiet)
            .and_then(|opened| Ok(open::data_set(opened.catalog, config.settings(), &stop::asked)?));
        let set = match opened {
            Ok(set) => Arc::new(set),
            Err(error) => return Err(job.refuse(rank, exchange, error)),
        };
        std::thread::scope(|scope| {
            let (tell, told) = channel();
            let job = &job;
            let worker = scope.spawn(move || {
                let late = std::cell::Cell::new(false);
                let step = || {
                    late.set(!matches!(session.step(PATIENCE), Ok(true)));
                    !late.get()
                };
                job.rank(rank, set, exchange, &step, &tell)?;
                if late.get() {
                    let seconds = PATIENCE.as_secs();
                    let text = format!("a rank did not come to the next step within {seconds} s");
                    return Err(Error::new(Kind::Unavailable, text).into());
                }
                Ok(())
            });
            let printed = print(&told, &mut figures, Printing::of(args));
            let outcome = worker.join().unwrap_or_else(|_| Err(anyhow!("a rank panicked")));
            outcome.and(printed)
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// Tells all ranks what this one did in every epoch; the first prints it.
    fn print(told: &Receiver<Done>, figures: &mut MpiTransport, how: Printing) -> Result<()> {
        while let Ok(done) = told.recv() {
            let said = figures.gather(&serde_json::to_vec(&done)?, PATIENCE)?;
            if figures.rank() == 0 {
                let read = |words: &Vec<u8>| serde_json::from_slice(words);
                let all = said.iter().map(read).collect::<Result<Vec<Done>, _>>()?;
                summary(&all, how)?;
            }
        }
        Ok(())
    }

    /// How many ranks share this machine.
    fn ranks_here(world: u32) -> u32 {
        let local = std::env::var("OMPI_COMM_WORLD_LOCAL_SIZE").or_else(|_| std::env::var("MPI_LOCALNRANKS"));
        local
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|here| (1..=world).contains(here))
            .unwrap_or(world)
    }
}
