//! Asks for the beginning of a sample to be brought near the processor, some time before it is copied.
//!
//! Samples of a few kilobytes lie all over memory, and the first lines of each would otherwise be waited for one after
//! the other. The rest follows by itself: processors notice that somebody reads on, but only up to the end of a page, so
//! the beginning of the next one is asked for, too.

/// How many bytes are asked for at the beginning, and again where the next page begins.
#[cfg(target_arch = "x86_64")]
const BYTES: usize = 256;
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
#[cfg(target_arch = "x86_64")]
const PAGE: usize = 4_096;

/// Hints that these bytes are wanted soon; nothing where the processor takes no hints.
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a hint to the processor has no safe form"))]
#[inline]
pub(super) fn warm(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let next = PAGE - bytes.as_ptr().addr() % PAGE;
        for part in [bytes, bytes.get(next..).unwrap_or_default()] {
            for line in part[..part.len().min(BYTES)].chunks(LINE) {
                // SAFETY: a hint about memory that is there; it changes and reads nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}
