//! The few calls of MPI that the transport makes. All `unsafe` of this crate is here.
//!
//! MPI is one per process and allows one caller at a time (`MPI_THREAD_SERIALIZED`), from any thread. So there is
//! one lock, [`enter`], and every call below takes its guard as the proof that it is held and that MPI is running.
//!
//! A request owns the memory that MPI reads or writes until it has finished. [`Requests`] gives that memory back only
//! then; dropped before, it leaks it: after an error nobody can say whether MPI still writes into it.
//!
//! Deliberately not here: waiting. Open MPI spins in its blocking calls, which starves training where cores are few,
//! so everything is started and then tested.
#![expect(unsafe_code, reason = "a C library is called; each block says why it may be")]

use bytes::Bytes;
use gristmill_node::{Error, Kind, Result};
use mpi::environment::Universe;
use mpi::ffi;
use mpi::{Threading, initialize_with_threading};
use std::ffi::{c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, mem, ptr};

/// Whether MPI runs in this process.
pub(crate) enum State {
    Off,
    On(Universe),
    Over,
}

static STATE: Mutex<State> = Mutex::new(State::Off);

/// The right to call MPI.
pub(crate) type Calls = MutexGuard<'static, State>;

fn lock() -> Calls {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the right to call MPI; an error when it does not run.
pub(crate) fn enter() -> Result<Calls> {
    let calls = lock();
    match *calls {
        State::On(_) => Ok(calls),
        State::Off | State::Over => Err(Error::new(Kind::Stopped, "MPI does not run in this process")),
    }
}

/// Starts MPI. A process can do this once.
pub(crate) fn start() -> Result<Calls> {
    let mut calls = lock();
    let Some((universe, threading)) = initialize_with_threading(Threading::Serialized) else {
        return Err(Error::config("MPI was started already in this process; it can be started once"));
    };
    if threading < Threading::Serialized {
        return Err(Error::config(format!("this MPI allows only {threading:?} use of threads"))
            .hint("take an MPI library with MPI_THREAD_SERIALIZED, as Debian's Open MPI has it"));
    }
    *calls = State::On(universe);
    Ok(calls)
}

/// Ends MPI: properly, with all ranks, or by leaving it as it is, so that the launcher ends the others.
pub(crate) fn end(mut calls: Calls, properly: bool) {
    if let State::On(universe) = mem::replace(&mut *calls, State::Over)
        && !properly
    {
        mem::forget(universe);
    }
}

/// A group of ranks in which messages match only each other.
#[derive(Clone, Copy)]
pub(crate) struct Group(ffi::MPI_Comm);

// SAFETY: a communicator is a handle that any thread may use, one at a time; `Calls` sees to that.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

impl Group {
    /// All ranks, apart from every other group. All ranks call it together.
    pub(crate) fn of_all(_calls: &Calls) -> Result<Group> {
        // SAFETY: MPI runs, which `Calls` proves; the place for the result is a local of the right type.
        unsafe {
            let mut made = ffi::RSMPI_COMM_NULL;
            done(ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &raw mut made), "make a group")?;
            // Errors come back as values instead of ending the process without a word of ours.
            done(ffi::MPI_Comm_set_errhandler(made, ffi::RSMPI_ERRORS_RETURN), "set up a group")?;
            Ok(Group(made))
        }
    }

    /// This process's rank in it, and how many there are.
    pub(crate) fn place(self, _calls: &Calls) -> Result<(u32, u32)> {
        let (mut rank, mut world): (c_int, c_int) = (0, 0);
        // SAFETY: MPI runs, the communicator lives as long as it, and the results go into locals.
        unsafe {
            done(ffi::MPI_Comm_rank(self.0, &raw mut rank), "ask for the rank")?;
            done(ffi::MPI_Comm_size(self.0, &raw mut world), "ask for the number of ranks")?;
        }
        Ok((rank as u32, world as u32))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Group")
    }
}

/// Requests under way, each with the memory it works on and a word about it.
pub(crate) struct Requests<M, W> {
    handles: Vec<ffi::MPI_Request>,
    held: Vec<(M, W)>,
}

// SAFETY: requests are handles that any thread may use, one at a time; `Calls` sees to that. What they hold is `Send`.
unsafe impl<M: Send, W: Send> Send for Requests<M, W> {}

/// One that has finished: its memory, the word about it, and how many bytes came or what went wrong.
pub(crate) struct Finished<M, W> {
    pub(crate) memory: M,
    pub(crate) word: W,
    pub(crate) bytes: Result<usize>,
}

impl<M, W> Requests<M, W> {
    pub(crate) fn new() -> Requests<M, W> {
        Requests { handles: Vec::new(), held: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    /// The words about those under way.
    pub(crate) fn words(&self) -> impl Iterator<Item = &W> {
        self.held.iter().map(|(_, word)| word)
    }

    fn add(&mut self, handle: ffi::MPI_Request, memory: M, word: W) {
        self.handles.push(handle);
        self.held.push((memory, word));
    }

    /// One that has finished, if there is one; gives MPI the time to move bytes.
    pub(crate) fn finished(&mut self, _calls: &Calls) -> Result<Option<Finished<M, W>>> {
        if self.handles.is_empty() {
            return Ok(None);
        }
        let count = c_int::try_from(self.handles.len()).unwrap_or(c_int::MAX);
        let (mut index, mut is_done, mut bytes): (c_int, c_int, c_int) = (-1, 0, 0);
        // SAFETY: MPI runs; the handles are live requests, at least `count` of them; the results go into locals, and
        // the status, which may be any bytes, is read only when MPI says that a request has finished well.
        let outcome = unsafe {
            let mut status = mem::MaybeUninit::<ffi::MPI_Status>::zeroed();
            let handles = self.handles.as_mut_ptr();
            let code =
                ffi::MPI_Testany(count, handles, &raw mut index, &raw mut is_done, status.as_mut_ptr());
            done(code, "finish a message").and_then(|()| {
                if is_done == 0 {
                    return Ok(());
                }
                let code = ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &raw mut bytes);
                done(code, "count what came")
            })
        };
        let place = usize::try_from(index).ok().filter(|&place| place < self.held.len());
        match (outcome, place) {
            (Ok(()), _) if is_done == 0 => Ok(None),
            (outcome, Some(place)) => {
                self.handles.swap_remove(place);
                let (memory, word) = self.held.swap_remove(place);
                let bytes = outcome.map(|()| usize::try_from(bytes).unwrap_or(0));
                Ok(Some(Finished { memory, word, bytes }))
            }
            (outcome, None) => outcome.map(|()| None),
        }
    }
}

impl<W> Requests<Bytes, W> {
    /// Starts to send a message.
    pub(crate) fn send(
        &mut self,
        _calls: &Calls,
        group: Group,
        (to, tag): (u32, c_int),
        message: Bytes,
        word: W,
    ) -> Result<()> {
        let count = count_of(message.len())?;
        // SAFETY: MPI runs. The bytes are neither moved nor freed until the request has finished: `held` keeps the
        // `Bytes`, whose memory stays where it is when the value moves, and nobody can write to it.
        let handle = unsafe {
            let mut handle = ffi::RSMPI_REQUEST_NULL;
            let from = message.as_ptr().cast();
            let code =
                ffi::MPI_Isend(from, count, ffi::RSMPI_UINT8_T, to as c_int, tag, group.0, &raw mut handle);
            done(code, "send")?;
            handle
        };
        self.add(handle, message, word);
        Ok(())
    }
}

impl<W> Requests<Vec<u8>, W> {
    /// Starts to receive a message of at most `bytes` bytes.
    pub(crate) fn receive(
        &mut self,
        _calls: &Calls,
        group: Group,
        (from, tag): (u32, c_int),
        bytes: usize,
        word: W,
    ) -> Result<()> {
        let count = count_of(bytes)?;
        let mut memory = vec![0; bytes];
        // SAFETY: MPI runs. The memory is neither moved, freed nor looked at until the request has finished: `held`
        // keeps the `Vec`, whose memory stays where it is when the value moves, and lends it to nobody.
        let handle = unsafe {
            let mut handle = ffi::RSMPI_REQUEST_NULL;
            let into = memory.as_mut_ptr().cast();
            let code =
                ffi::MPI_Irecv(into, count, ffi::RSMPI_UINT8_T, from as c_int, tag, group.0, &raw mut handle);
            done(code, "receive")?;
            handle
        };
        self.add(handle, memory, word);
        Ok(())
    }
}

impl<W> Requests<(), W> {
    /// Starts to wait for all ranks to come to the same place.
    pub(crate) fn meet(&mut self, _calls: &Calls, group: Group, word: W) -> Result<()> {
        // SAFETY: MPI runs, and no memory is lent.
        let handle = unsafe {
            let mut handle = ffi::RSMPI_REQUEST_NULL;
            done(ffi::MPI_Ibarrier(group.0, &raw mut handle), "meet the other ranks")?;
            handle
        };
        self.add(handle, (), word);
        Ok(())
    }
}

impl<M, W> Drop for Requests<M, W> {
    fn drop(&mut self) {
        // MPI may still read or write this memory, and only MPI knows for how long.
        mem::forget(mem::take(&mut self.held));
    }
}

impl<M, W: fmt::Debug> fmt::Debug for Requests<M, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.words()).finish()
    }
}

fn count_of(bytes: usize) -> Result<c_int> {
    c_int::try_from(bytes).map_err(|_| {
        Error::config(format!("a message of {bytes} bytes is more than MPI sends at once ({})", c_int::MAX))
            .hint("lower exchange.message_bytes_max")
    })
}

/// An error of MPI as one of ours.
fn done(code: c_int, what: &str) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length: c_int = 0;
    // SAFETY: the text has the room that MPI asks for, and one byte more that stays zero.
    let known =
        unsafe { ffi::MPI_Error_string(code, ptr::from_mut(&mut text).cast::<c_char>(), &raw mut length) };
    let words = if known == ffi::MPI_SUCCESS as c_int {
        String::from_utf8_lossy(&text[..(length as usize).min(text.len())]).trim().to_string()
    } else {
        format!("error {code}")
    };
    Err(Error::new(Kind::Unavailable, format!("MPI could not {what}: {words}")))
}
