//! A lane: memory that a node shares with a client on the same machine, so that samples need not go through a socket.
//!
//! The node makes it and writes the bytes of samples into it, round and round; the socket carries the tables that say
//! where they are. The client copies them out and writes how far it has come into the lane's first page. The node
//! never waits for that: what finds no room goes over the socket. So neither side can hold the other up, and all that
//! a client can do with what it writes is harm itself.
//!
//! The memory is a file without a name whose size is sealed, so nobody can pull it away from under the other. The
//! client opens it through /proc, and only if the node's process is of its own user. A mark in it, which the node has said over the socket, tells that it is the right one.
#![expect(unsafe_code, reason = "memory that two processes share has no safe face")]

use crate::{Error, Result};
use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first page: how far the client has read (8 bytes), and the mark.
const FRONT_BYTES: usize = 4_096;
/// What stands there until a client has opened it.
const UNOPENED: u64 = u64::MAX;
/// The size of a mark.
pub const MARK_BYTES: usize = 16;
/// The smallest lane.
pub const BYTES_MIN: u32 = 64 << 10;
/// The largest.
pub const BYTES_MAX: u32 = 64 << 20;

/// Where the mark stands.
const MARK_AT: usize = 64;

/// The memory of both ends.
#[derive(Debug)]
struct Memory {
    map: MmapRaw,
    bytes: u64,
}

impl Memory {
    fn new(file: &File, bytes: u32) -> io::Result<Memory> {
        let map = MmapOptions::new().len(FRONT_BYTES + bytes as usize).map_raw(file)?;
        Ok(Memory { map, bytes: bytes.into() })
    }

    fn read_to(&self) -> &AtomicU64 {
        // SAFETY: the first page is mapped as long as `map` lives, aligned to a page, and only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().cast()) }
    }

    /// The place of a position, which with `bytes` behind it must lie inside.
    fn place(&self, position: u64, bytes: usize) -> Option<*mut u8> {
        let at = position % self.bytes;
        if at + bytes as u64 > self.bytes {
            return None;
        }
        // SAFETY: within the map, by the line above.
        Some(unsafe { self.map.as_mut_ptr().add(FRONT_BYTES + at as usize) })
    }
}

/// The node's end.
#[derive(Debug)]
pub struct LaneWriter {
    memory: Memory,
    /// Open until the client has opened it: the memory stays without it, and files are few.
    file: Option<File>,
    /// Where the next bytes go. Positions only grow; the place is what is left over when divided by the lane's size.
    at: u64,
    /// Before this nothing is unread, whatever the client has said so far: where the last run from the front began.
    front: u64,
    mark: [u8; MARK_BYTES],
}

impl LaneWriter {
    /// Makes a lane of so many bytes.
    pub fn new(bytes: u32, mark: [u8; MARK_BYTES]) -> io::Result<LaneWriter> {
        let file = memfd_create("gristmill-lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, FRONT_BYTES as u64 + u64::from(bytes))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let file = File::from(file);
        let memory = Memory::new(&file, bytes)?;
        memory.read_to().store(UNOPENED, Ordering::Release);
        // SAFETY: the mark lies inside the first page, and nobody else knows of the lane yet.
        unsafe { memory.map.as_mut_ptr().add(MARK_AT).copy_from_nonoverlapping(mark.as_ptr(), MARK_BYTES) };
        Ok(LaneWriter { memory, file: Some(file), at: 0, front: 0, mark })
    }

    /// The number under which this process has it open; 0 once it has been opened by the client.
    pub fn fd(&self) -> u32 {
        self.file.as_ref().map_or(0, |file| file.as_raw_fd().unsigned_abs())
    }

    /// Whether the client has opened it.
    pub fn opened(&self) -> bool {
        self.memory.read_to().load(Ordering::Acquire) != UNOPENED
    }

    /// How large it is.
    pub fn bytes(&self) -> u32 {
        self.memory.bytes as u32
    }

    /// What stands in it.
    pub fn mark(&self) -> [u8; MARK_BYTES] {
        self.mark
    }

    /// Writes these one behind the other and says where; nothing if there is no room now.
    pub fn put(&mut self, pieces: &[Bytes]) -> Option<u64> {
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        let read_to = self.memory.read_to().load(Ordering::Acquire);
        // A client that has read what was never written has no lane.
        if read_to > self.at {
            return None;
        }
        self.file = None;
        let (at, size) = (self.at % self.memory.bytes, self.memory.bytes);
        let all_read = read_to == self.at;
        // From the front where it would run over the end; and where all was read, since that memory was used last.
        let begin =
            if all_read || at + bytes as u64 > size { self.at.next_multiple_of(size) } else { self.at };
        // Where all was read, what is skipped on the way to the front is free as well.
        let free_to = if all_read { begin } else { read_to.max(self.front) } + size;
        if begin + bytes as u64 > free_to {
            return None;
        }
        if all_read {
            self.front = begin;
        }
        let mut to = self.memory.place(begin, bytes)?;
        for piece in pieces {
            // SAFETY: `place` has checked that all of it lies inside; the client reads nothing that it was not told of.
            unsafe {
                to.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                to = to.add(piece.len());
            }
        }
        self.at = begin + bytes as u64;
        Some(begin)
    }
}

/// The client's end.
#[derive(Debug)]
pub struct LaneReader {
    memory: Memory,
}

impl LaneReader {
    /// Opens the lane that the process `pid` has under `fd`.
    pub fn open(pid: i32, fd: u32, bytes: u32, mark: &[u8; MARK_BYTES]) -> Result<LaneReader> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let failed = |e: io::Error| Error::io("open", &path, e);
        if !(BYTES_MIN..=BYTES_MAX).contains(&bytes) {
            return Err(Error::corrupt(format!("a lane of {bytes} bytes was offered")));
        }
        // Whatever the number stands for, opening it must not wait for anything.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let file = File::options().read(true).write(true).custom_flags(flags).open(&path).map_err(failed)?;
        let sealed = fcntl_get_seals(&file).map_err(|e| failed(e.into()))?;
        let size = file.metadata().map_err(failed)?.len();
        let wrong = || Error::corrupt(format!("{path} is not the lane that the node speaks of"));
        if !sealed.contains(SealFlags::SHRINK) || size != FRONT_BYTES as u64 + u64::from(bytes) {
            return Err(wrong());
        }
        let memory = Memory::new(&file, bytes).map_err(failed)?;
        let mut found = [0; MARK_BYTES];
        // SAFETY: the mark lies inside the first page.
        unsafe { memory.map.as_ptr().add(MARK_AT).copy_to_nonoverlapping(found.as_mut_ptr(), MARK_BYTES) };
        if found != *mark {
            return Err(wrong());
        }
        memory.read_to().store(0, Ordering::Release);
        Ok(LaneReader { memory })
    }

    /// A copy of so many bytes from a position on; what the lane does not have is an error.
    pub fn read(&self, position: u64, bytes: usize) -> Result<Bytes> {
        let from = self.memory.place(position, bytes).ok_or_else(beyond)?;
        let mut own: Vec<u8> = Vec::with_capacity(bytes);
        // SAFETY: `place` has checked that all of it lies inside; the capacity was just made.
        unsafe {
            from.copy_to_nonoverlapping(own.as_mut_ptr(), bytes);
            own.set_len(bytes);
        }
        Ok(own.into())
    }

    /// The same into memory that is there already.
    pub fn read_into(&self, position: u64, to: &mut [u8]) -> Result<()> {
        let from = self.memory.place(position, to.len()).ok_or_else(beyond)?;
        // SAFETY: `place` has checked that all of it lies inside.
        unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Everything before this position was read, and its room is the node's again.
    pub fn done(&self, position: u64) {
        self.memory.read_to().store(position, Ordering::Release);
    }
}

/// The node speaks of bytes that its lane does not have.
pub(crate) fn beyond() -> Error {
    Error::corrupt("the node says that samples lie where its lane has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::rng::Stream;
    use std::collections::VecDeque;

    fn both(bytes: u32) -> (LaneWriter, LaneReader) {
        let writer = LaneWriter::new(bytes, [7; MARK_BYTES]).unwrap();
        let pid = std::process::id().cast_signed();
        let reader = LaneReader::open(pid, writer.fd(), bytes, &[7; MARK_BYTES]).unwrap();
        (writer, reader)
    }

    #[test]
    fn what_goes_in_comes_out_however_far_behind_the_reader_is() {
        let (mut writer, reader) = both(BYTES_MIN);
        let mut stream = Stream::from_key(1);
        let mut sent: VecDeque<(u64, Vec<Bytes>)> = VecDeque::new();
        let (mut full, mut total) = (0, 0_u64);
        for turn in 0..20_000_u64 {
            let pieces: Vec<Bytes> = (0..=stream.below(4))
                .map(|piece| {
                    let bytes = stream.below(u64::from(BYTES_MIN) / 6) as usize;
                    Bytes::from(vec![(turn * 5 + piece) as u8; bytes])
                })
                .collect();
            match writer.put(&pieces) {
                Some(at) => sent.push_back((at, pieces)),
                None => full += 1,
            }
            while sent.len() > stream.below(6) as usize {
                let (mut at, pieces) = sent.pop_front().unwrap();
                for piece in pieces {
                    assert_eq!(reader.read(at, piece.len()).unwrap(), piece);
                    at += piece.len() as u64;
                    total += piece.len() as u64;
                }
                reader.done(at);
            }
        }
        assert!(full > 100 && total > 100 * u64::from(BYTES_MIN), "{full} found no room, {total} bytes came");
    }

    #[test]
    fn nothing_is_written_for_who_has_not_opened_it_or_lies_about_it() {
        let mut writer = LaneWriter::new(BYTES_MIN, [1; MARK_BYTES]).unwrap();
        let piece = [Bytes::from_static(b"abc")];
        assert_eq!(writer.put(&piece), None);
        let pid = std::process::id().cast_signed();
        let fd = writer.fd();
        for (bytes, mark) in [(BYTES_MIN, 2), (BYTES_MIN * 2, 1), (1, 1)] {
            assert!(LaneReader::open(pid, fd, bytes, &[mark; MARK_BYTES]).is_err());
        }
        let reader = LaneReader::open(pid, fd, BYTES_MIN, &[1; MARK_BYTES]).unwrap();
        assert_eq!(writer.put(&piece), Some(0));
        assert_eq!(&reader.read(0, 3).unwrap()[..], b"abc");
        assert!(reader.read(u64::from(BYTES_MIN) - 1, 2).is_err(), "over the end");
        assert_eq!(writer.put(&[Bytes::from(vec![0; BYTES_MIN as usize + 1])]), None);
        reader.done(3);
        let again = u64::from(BYTES_MIN);
        assert_eq!(writer.put(&piece), Some(again), "from the front, since all was read");
        assert_eq!(writer.put(&piece), Some(again + 3), "what was skipped is not in the way");
        reader.done(1 << 40);
        assert_eq!(writer.put(&piece), None, "it has read what was never written");
    }
}
