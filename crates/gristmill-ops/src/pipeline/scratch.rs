//! The memory that one thread keeps between samples.
//!
//! Ops that make new pixels read one buffer and write the other. Buffers only grow, so a run over pictures of
//! ordinary size allocates nothing here; what a giant picture needed is given back after it.

use super::frame::Place;
use super::resize::Resizer;
use crate::codec::{JpegDecoder, JpegEncoder};

/// How large a buffer may stay after a sample.
const KEEP_BYTES: usize = 8 << 20;

/// Of so many raw samples one is timed.
const TIMED_RAW: u64 = 32;

/// Reusable buffers and decoders; one per thread.
#[derive(Default)]
pub struct Scratch {
    pub(super) jpeg: JpegDecoder,
    pub(super) encoder: JpegEncoder,
    pub(super) resizer: Resizer,
    pub(super) front: Vec<u8>,
    pub(super) back: Vec<u8>,
    /// Pixels on the way to a compressed form.
    pub(super) crop: Vec<u8>,
    raw_samples: u64,
}

impl Scratch {
    /// Empty: memory is taken when a sample needs it.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// How many bytes are held for the next sample.
    pub fn held_bytes(&self) -> usize {
        let buffers = [&self.front, &self.back, &self.crop].map(Vec::capacity);
        buffers.iter().sum::<usize>() + self.resizer.held_bytes() + self.jpeg.held_bytes()
    }

    /// For how many raw samples the time of the next one stands; 0: it is not to be timed.
    pub(super) fn timed_raw(&mut self) -> u64 {
        self.raw_samples += 1;
        if self.raw_samples % TIMED_RAW == 1 { TIMED_RAW } else { 0 }
    }

    pub(super) fn shrink(&mut self) {
        for buffer in [&mut self.front, &mut self.back, &mut self.crop] {
            if buffer.capacity() > KEEP_BYTES {
                *buffer = Vec::new();
            }
        }
        if self.resizer.held_bytes() > KEEP_BYTES {
            self.resizer = Resizer::default();
        }
        self.jpeg.shrink(KEEP_BYTES);
    }

    /// The buffer that `place` does not occupy, with room for `bytes`, beside the pixels in `place` and the resizer.
    pub(super) fn other<'a>(
        &'a mut self,
        place: Place,
        input: &'a [u8],
        bytes: usize,
    ) -> (Place, &'a [u8], &'a mut [u8], &'a mut Resizer) {
        let (free, from, to) = match place {
            Place::Input => (Place::Front, input, &mut self.front),
            Place::Front => (Place::Back, &*self.front, &mut self.back),
            Place::Back => (Place::Front, &*self.back, &mut self.front),
        };
        if to.len() < bytes {
            to.resize(bytes, 0);
        }
        (free, from, &mut to[..bytes], &mut self.resizer)
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("held_bytes", &self.held_bytes()).finish()
    }
}
