//! What the allocator keeps of memory that was freed.
//!
//! A node promises to stay within its memory limit, and samples are of any size. The C library's allocator serves large
//! pieces from one heap once it has seen a few come and go; pieces of very different sizes then leave gaps that count as
//! taken (measured: a node at 116 % of its limit). Where large pieces always are mappings of their own, freeing one gives
//! all of it back.
//!
//! Deliberately not here: another allocator. Only a node's process is treated so; a training process is its user's.

/// From this size on a piece of memory is a mapping of its own. Below it, gaps are small beside any limit.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: i32 = 256 << 10;
/// So much may lie free at the end of a heap before it is given back: without it every other free would do that.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE_BYTES: i32 = 4 << 20;

/// The most mappings of its own: a system allows a process 65,530 of all kinds, and what is beyond comes from the heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPINGS_MAX: i32 = 32 << 10;

/// Has large pieces of memory go back to the system when they are freed. To be called before there are any.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the allocator of the C library has no safe face")]
pub(crate) fn give_back() {
    // SAFETY: it takes two numbers, and other threads may allocate meanwhile.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_BYTES);
        libc::mallopt(libc::M_MMAP_MAX, MAPPINGS_MAX);
    }
}

/// Other allocators are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::give_back;

    const PIECES: usize = 256;
    const PIECE_BYTES: usize = 1 << 20;

    #[test]
    fn what_lies_between_small_pieces_goes_back() {
        let resident_bytes = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
        };
        give_back();
        // A large piece that is freed is what moves the allocator's own threshold up.
        drop(std::hint::black_box(vec![1_u8; 24 * PIECE_BYTES]));
        let mut large = Vec::new();
        let mut small = Vec::new();
        for _ in 0..PIECES {
            large.push(std::hint::black_box(vec![1_u8; PIECE_BYTES]));
            small.push(std::hint::black_box(vec![1_u8; 1_000]));
        }
        let full = resident_bytes();
        drop(large);
        let left = full.saturating_sub(resident_bytes());
        // Other tests take and give memory meanwhile.
        assert!(left > PIECES * PIECE_BYTES * 3 / 4, "{left} bytes of {PIECES} MiB went back");
        drop(small);
    }
}
