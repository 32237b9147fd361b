//! Batches, and the memory they are written into.
//!
//! A batch is one run of bytes. While it is being filled it is split into pieces that several threads own and
//! write at the same time; when all pieces are back they are joined again, without a copy and without `unsafe`.
//! The memory of a batch that the consumer drops is used for the next one.
//!
//! Deliberately not here: the order of samples (the plan) and who fills which piece (`work`).

use bytes::{Buf, Bytes, BytesMut};
use gristmill_core::SampleId;
use gristmill_ops::Output;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tensors start on a cache line, which is also what every consumer's vector unit likes.
const ALIGN: usize = 64;

/// A sample that could not be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSample {
    /// Which one.
    pub id: SampleId,
    /// One sentence with its name and the reason.
    pub reason: String,
}

/// What a batch holds.
#[derive(Debug)]
pub enum Data {
    /// All samples as one tensor.
    Tensor(Tensor),
    /// The raw bytes of each sample, when there is no recipe.
    Raw(Vec<Bytes>),
}

/// One batch, ready to train on.
#[derive(Debug)]
pub struct Batch {
    /// Its epoch.
    pub epoch: u64,
    /// Its place in the epoch of this rank.
    pub index: u32,
    /// The samples in it, in order.
    pub ids: Vec<u32>,
    /// Their labels.
    pub labels: Vec<u32>,
    /// What each one's loss is to be multiplied by; 1 unless selection says otherwise.
    pub weights: Vec<f32>,
    /// The samples that were left out because they are bad.
    pub skipped: Vec<BadSample>,
    /// The samples' content.
    pub data: Data,
}

impl Batch {
    /// How many samples it has.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Bytes of content: the tensor's, or the sum of the raw samples'.
    pub fn content_bytes(&self) -> usize {
        match &self.data {
            Data::Tensor(tensor) => tensor.bytes().len(),
            Data::Raw(samples) => samples.iter().map(Bytes::len).sum(),
        }
    }

    /// A fingerprint of the content, for comparing runs.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        match &self.data {
            Data::Tensor(tensor) => hash.update(tensor.bytes()),
            Data::Raw(samples) => samples.iter().for_each(|sample| hash.update(sample)),
        }
        hash.digest()
    }
}

/// The samples of a batch as one dense tensor, N x C x H x W or N x H x W x C.
#[derive(Debug)]
pub struct Tensor {
    memory: BytesMut,
    output: Output,
    pool: Arc<Pool>,
}

impl Tensor {
    pub(super) fn new(memory: BytesMut, output: Output, pool: Arc<Pool>) -> Tensor {
        Tensor { memory, output, pool }
    }

    /// All zeros, outside of any pool.
    pub(crate) fn zeroed(bytes: usize, output: Output) -> Tensor {
        let pool = Arc::new(Pool::new(bytes, 0));
        Tensor { memory: pool.take(bytes), output, pool }
    }

    /// The bytes, to write to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Type, layout and size of one sample.
    pub fn output(&self) -> Output {
        self.output
    }

    /// The bytes, aligned to 64.
    pub fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// Leaves out the samples whose places are listed, in ascending order, by moving the later ones up.
    pub(super) fn remove(&mut self, slots: &[usize]) {
        let size = self.output.bytes();
        let samples = self.memory.len() / size;
        let mut to = 0;
        for from in (0..samples).filter(|slot| slots.binary_search(slot).is_err()) {
            if to != from {
                self.memory.copy_within(from * size..(from + 1) * size, to * size);
            }
            to += 1;
        }
        self.memory.truncate(to * size);
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.memory));
    }
}

/// Memory of past batches, kept for the next ones.
///
/// Batches being filled and memory waiting here together are never more than `most` buffers.
#[derive(Debug)]
pub(super) struct Pool {
    bytes: usize,
    most: usize,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    free: Vec<BytesMut>,
    /// Buffers that batches are being filled in.
    filling: usize,
}

impl Pool {
    /// Buffers of `bytes`, at most `most` of them.
    pub(super) fn new(bytes: usize, most: usize) -> Pool {
        Pool { bytes, most, state: Mutex::default() }
    }

    /// What one buffer takes, however much of it a batch uses.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.bytes
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of `bytes` to fill a batch in, aligned; used before if there is some.
    pub(super) fn take(&self, bytes: usize) -> BytesMut {
        assert!(bytes <= self.bytes, "a batch of {bytes} bytes does not fit buffers of {}", self.bytes);
        let mut state = self.lock();
        state.filling += 1;
        let kept = state.free.pop();
        drop(state);
        let mut memory = kept.unwrap_or_else(|| {
            let mut memory = BytesMut::zeroed(self.bytes + ALIGN);
            memory.advance(memory.as_ptr().align_offset(ALIGN).min(ALIGN));
            memory.truncate(self.bytes);
            memory
        });
        memory.truncate(bytes); // the last batch of an epoch may be shorter; its capacity stays
        memory
    }

    /// Says that `batches` are no longer being filled: they were handed over or given up.
    pub(super) fn filled(&self, batches: usize) {
        self.lock().filling -= batches;
    }

    fn give(&self, mut memory: BytesMut) {
        let mut state = self.lock();
        if memory.capacity() >= self.bytes && state.free.len() + state.filling < self.most {
            memory.resize(self.bytes, 0);
            state.free.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_ops::{Dtype, Layout};

    fn output() -> Output {
        Output { dtype: Dtype::U8, layout: Layout::Nchw, channels: 1, height: 2, width: 2 }
    }

    #[test]
    fn pieces_join_without_a_copy_and_memory_comes_back() {
        let pool = Arc::new(Pool::new(16, 1));
        let mut rest = pool.take(16);
        let start = rest.as_ptr();
        assert_eq!(start.align_offset(ALIGN), 0);
        let mut pieces: Vec<BytesMut> = (0..4).map(|_| rest.split_to(4)).collect();
        for (i, piece) in pieces.iter_mut().enumerate().rev() {
            piece.fill(i as u8);
        }
        let whole = pieces.into_iter().reduce(|mut a, b| {
            a.unsplit(b);
            a
        });
        let tensor = Tensor::new(whole.unwrap(), output(), pool.clone());
        assert_eq!(tensor.bytes(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
        assert_eq!(tensor.bytes().as_ptr(), start);
        pool.filled(1);
        drop(tensor);
        // A short batch first, whose unused rest must not be lost.
        let mut short = pool.take(8);
        assert_eq!(short.as_ptr(), start, "the same memory again");
        let mut piece = short.split_to(8);
        piece.unsplit(short);
        pool.filled(1);
        drop(Tensor::new(piece, output(), pool.clone()));
        assert_eq!(pool.take(16).as_ptr(), start, "and again, in full");
    }

    #[test]
    fn memory_that_waits_and_memory_being_filled_stay_under_the_limit() {
        let pool = Arc::new(Pool::new(16, 2));
        let tensors: Vec<Tensor> =
            (0..5).map(|_| Tensor::new(pool.take(16), output(), pool.clone())).collect();
        pool.filled(5);
        let _filling = pool.take(16);
        drop(tensors); // a consumer kept five and lets them go at once
        assert_eq!(pool.lock().free.len(), 1);
    }

    #[test]
    fn bad_samples_are_closed_up() {
        let pool = Arc::new(Pool::new(16, 1));
        let mut memory = pool.take(16);
        memory.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8 / 4);
        let mut tensor = Tensor::new(memory, output(), pool);
        tensor.remove(&[0, 2]);
        assert_eq!(tensor.bytes(), [1, 1, 1, 1, 3, 3, 3, 3]);
    }
}
