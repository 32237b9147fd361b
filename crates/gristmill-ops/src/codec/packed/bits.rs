//! Numbers as Rice codes: the high part in as many zeros, then a one, then the low bits as they are.
//!
//! Writing and reading are the same calls in the same order, so whoever models the numbers is written once, for
//! both: the writer takes each number and returns it, the reader ignores what it is given and returns what was
//! written. Reading beyond the end gives zeros, and is told afterwards.

/// So many zeros or more mean that the number follows as it is: a bad guess costs 3 bytes at most.
const ZEROS_MAX: u32 = 15;

/// Writes or reads numbers of 8 bits.
pub(super) trait Coder {
    /// Codes one number, of which `low_bits` (at most 7) are expected to be as good as random.
    fn code(&mut self, low_bits: u32, number: u32) -> u32;
}

pub(super) struct Writer<'a> {
    /// Bits that are not a whole word yet, the first ones highest, and how many.
    bits: u64,
    count: u32,
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Writer<'a> {
        Writer { bits: 0, count: 0, out }
    }

    /// Writes what is not a whole word; the last byte is filled with zeros.
    pub(super) fn finish(self) {
        let bytes = self.count.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.bits.to_be_bytes()[..bytes]);
    }
}

impl Coder for Writer<'_> {
    #[inline]
    fn code(&mut self, low_bits: u32, number: u32) -> u32 {
        let zeros = number >> low_bits;
        let (code, length) = if zeros < ZEROS_MAX {
            let low = number & ((1 << low_bits) - 1);
            (1 << low_bits | low, zeros + 1 + low_bits)
        } else {
            (1 << 8 | number, ZEROS_MAX + 1 + 8)
        };
        // At most 31 bits wait and at most 24 come.
        self.count += length;
        self.bits |= u64::from(code) << (64 - self.count);
        if self.count >= 32 {
            self.out.extend_from_slice(&((self.bits >> 32) as u32).to_be_bytes());
            self.bits <<= 32;
            self.count -= 32;
        }
        number
    }
}

pub(super) struct Reader<'a> {
    /// Bits that were taken from the bytes already, the next ones highest, and how many.
    bits: u64,
    count: u32,
    rest: &'a [u8],
    /// How many bytes were made up after the end.
    beyond: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bits: 0, count: 0, rest: bytes, beyond: 0 }
    }

    /// At least 32 bits.
    #[inline]
    fn fill(&mut self) {
        if self.count >= 32 {
            return;
        }
        let word = match self.rest.split_first_chunk() {
            Some((word, rest)) => {
                self.rest = rest;
                u32::from_be_bytes(*word)
            }
            None => self.last_word(),
        };
        self.bits |= u64::from(word) << (32 - self.count);
        self.count += 32;
    }

    #[cold]
    fn last_word(&mut self) -> u32 {
        let mut word = [0; 4];
        word[..self.rest.len()].copy_from_slice(self.rest);
        self.beyond += 4 - self.rest.len();
        self.rest = &[];
        u32::from_be_bytes(word)
    }

    /// Whether exactly all bytes were needed, and nothing but zeros fills the last one.
    pub(super) fn is_used_up(&self) -> bool {
        let left = self.count as usize;
        self.rest.is_empty() && (self.beyond * 8..self.beyond * 8 + 8).contains(&left) && self.bits == 0
    }
}

impl Coder for Reader<'_> {
    #[inline]
    fn code(&mut self, low_bits: u32, _: u32) -> u32 {
        self.fill();
        let zeros = self.bits.leading_zeros();
        let (length, low_bits, high) = if zeros < ZEROS_MAX {
            (zeros + 1 + low_bits, low_bits, zeros)
        } else {
            (ZEROS_MAX + 1 + 8, 8, 0)
        };
        let low = (self.bits >> (64 - length)) as u32 & ((1 << low_bits) - 1);
        self.bits <<= length;
        self.count -= length;
        // More than 8 bits were never written.
        (high << low_bits | low).min(255)
    }
}
