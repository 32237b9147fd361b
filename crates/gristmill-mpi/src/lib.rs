//! The exchange over MPI: one process is one rank, started by `mpirun` or what a cluster has instead.
//!
//! A [`Session`] is MPI running in this process, from its start to its end; [`Session::transport`] is what the
//! exchange talks through. Messages go from a known rank to a known rank with a known length (`MPI_Isend` and
//! `MPI_Irecv`); nobody ever waits inside of MPI, since that would burn the cores that training needs.
//!
//! A rank that dies takes all others with it: that is what `mpirun` does. What the ranks hold is on their disks, and
//! the next start goes on from the last epoch that all of them finished.
//!
//! Deliberately not here: what is sent and when (`gristmill_node::exchange`). The plain command line does not need
//! this crate, and so no MPI library: it comes with the feature `mpi`.

mod calls;
mod transport;

pub use transport::MpiTransport;

use calls::{Group, Requests};
use gristmill_node::Result;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a rank that is done waits for the others to be done too, before it leaves them.
const LEAVE_TOGETHER: Duration = Duration::from_secs(5);
/// How long nobody looks for news at most.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// MPI in this process. Dropping it ends MPI, if all ranks come to that; a rank that is left alone ends without it,
/// and then the launcher ends the others.
#[derive(Debug)]
pub struct Session {
    rank: u32,
    world: u32,
    steps: Group,
    end: Group,
}

impl Session {
    /// Starts MPI. All ranks do this together, once, on the thread that will drop it.
    pub fn start() -> Result<Session> {
        let calls = calls::start()?;
        let (steps, end) = (Group::of_all(&calls)?, Group::of_all(&calls)?);
        let (rank, world) = steps.place(&calls)?;
        Ok(Session { rank, world, steps, end })
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// A way to the other ranks, apart from every other one. All ranks make theirs together.
    pub fn transport(&self) -> Result<MpiTransport> {
        let calls = calls::enter()?;
        // Two groups: what is gathered must never match a message.
        let (data, words) = (Group::of_all(&calls)?, Group::of_all(&calls)?);
        Ok(MpiTransport::new(self.rank, self.world, data, words))
    }

    /// Waits until all ranks are here, as after every step of a training; says whether they came within `patience`.
    pub fn step(&self, patience: Duration) -> Result<bool> {
        meet(self.steps, patience)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let properly = !transport::any_unfinished() && matches!(meet(self.end, LEAVE_TOGETHER), Ok(true));
        if let Ok(calls) = calls::enter() {
            calls::end(calls, properly);
        }
    }
}

fn meet(group: Group, patience: Duration) -> Result<bool> {
    let mut requests = Requests::new();
    requests.meet(&calls::enter()?, group, ())?;
    Ok(poll(patience, || Ok(requests.finished(&calls::enter()?)?.map(|_| ())))?.is_some())
}

/// Looks again and again, ever more seldom, until there is an answer or the time is over.
fn poll<T>(patience: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let began = Instant::now();
    let mut pause = Duration::from_micros(20);
    loop {
        if let Some(answer) = look()? {
            return Ok(Some(answer));
        }
        if began.elapsed() > patience {
            return Ok(None);
        }
        sleep(pause);
        pause = (pause * 2).min(LOOK_EVERY);
    }
}
