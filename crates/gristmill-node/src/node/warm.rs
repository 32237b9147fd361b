//! Asks for the beginning of a sample to be brought near the processor, some time before it is copied.
//!
//! Samples of a few kilobytes lie all over memory, and the first lines of each would otherwise be waited for one after
//! the other. The rest follows by itself: processors notice that somebody reads on.

/// How many bytes are asked for.
#[cfg(target_arch = "x86_64")]
const BYTES: usize = 1_024;
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Hints that these bytes are wanted soon; nothing where the processor takes no hints.
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a hint to the processor has no safe form"))]
#[inline]
pub(super) fn warm(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes[..bytes.len().min(BYTES)].chunks(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint about memory that is there; it changes and reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}
