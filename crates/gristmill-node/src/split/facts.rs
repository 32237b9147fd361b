//! What is known of every sample's picture: its size, whether it can be cut, and whether the node decoded it, in five
//! bytes each.

use gristmill_core::SampleId;
use gristmill_ops::Facts;

/// The sides of a picture that nobody has seen yet.
const UNKNOWN: [u16; 2] = [0, 0];
/// It cannot be cut.
const UNCUT: u8 = 1;
/// The node was asked for more of it than a cut.
const DECODED: u8 = 2;
/// What a picture looks like as long as none was seen: pixels per byte, and width over height.
const USUAL: (f64, f64) = (2.0, 4.0 / 3.0);

/// What the node keeps of decoded pictures, as far as that can be known from here: whoever comes first stays.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pixels {
    bytes: u64,
    bytes_max: u64,
    /// How often the client had connected: another node, or one that began anew, keeps nothing of it.
    connects: u64,
}

impl Pixels {
    /// A node that keeps so much.
    pub(super) fn new(bytes_max: u64) -> Pixels {
        Pixels { bytes: 0, bytes_max, connects: 0 }
    }

    /// What is free.
    pub(super) fn free_bytes(&self) -> u64 {
        self.bytes_max.saturating_sub(self.bytes)
    }

    /// Takes room for a picture, if there is some.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free_bytes();
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Whether the node has to be believed to have begun anew, which it is told of once.
    pub(super) fn began_anew(&mut self, connects: u64) -> bool {
        let anew = self.connects != connects && self.connects > 0;
        self.connects = connects;
        self.bytes = if anew { 0 } else { self.bytes };
        anew
    }
}

/// The pictures of a data set, as far as they were seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Pictures {
    sides: Vec<[u16; 2]>,
    marks: Vec<u8>,
    /// How many were seen, their pixels, raw bytes, and the sum of width over height.
    seen: (u64, f64, f64, f64),
}

impl Pictures {
    /// Room for so many samples, taken when the first is noted.
    fn reserve(&mut self, samples: u32) {
        if self.sides.is_empty() {
            self.sides = vec![UNKNOWN; samples as usize];
            self.marks = vec![0; samples as usize];
        }
    }

    /// Whether a sample was seen.
    pub(super) fn knows(&self, id: SampleId) -> bool {
        self.sides.get(id.0 as usize).is_some_and(|sides| *sides != UNKNOWN)
    }

    /// How many were seen.
    pub(super) fn seen(&self) -> u64 {
        self.seen.0
    }

    /// Notes one, of a data set of so many.
    pub(super) fn note(&mut self, id: SampleId, facts: Facts, raw_bytes: u32, samples: u32) {
        self.reserve(samples);
        let at = id.0 as usize;
        if facts.width == 0 || facts.height == 0 || at >= self.sides.len() || self.knows(id) {
            return;
        }
        self.sides[at] = [facts.width, facts.height].map(|side| side.min(u16::MAX.into()) as u16);
        self.marks[at] |= if facts.can_cut { 0 } else { UNCUT };
        let (width, height) = (f64::from(facts.width), f64::from(facts.height));
        let (count, pixels, bytes, aspects) = self.seen;
        self.seen =
            (count + 1, pixels + width * height, bytes + f64::from(raw_bytes), aspects + width / height);
    }

    /// Whether the node has decoded it, and may have kept it.
    pub(super) fn was_decoded(&self, id: SampleId) -> bool {
        self.marks.get(id.0 as usize).is_some_and(|marks| marks & DECODED != 0)
    }

    /// Nobody has decoded any of them.
    pub(super) fn forget_decoded(&mut self) {
        self.marks.iter_mut().for_each(|marks| *marks &= !DECODED);
    }

    /// The node has decoded it.
    pub(super) fn decoded(&mut self, id: SampleId) {
        if let Some(marks) = self.marks.get_mut(id.0 as usize) {
            *marks |= DECODED;
        }
    }

    /// A sample's picture; one that was not seen is guessed from its size as those that were.
    pub(super) fn of(&self, id: SampleId, raw_bytes: u32) -> Facts {
        if self.knows(id) {
            let [width, height] = self.sides[id.0 as usize].map(u32::from);
            return Facts { width, height, can_cut: self.marks[id.0 as usize] & UNCUT == 0 };
        }
        let (per_byte, aspect) = match self.seen {
            (count @ 1.., pixels, bytes, aspects) => (pixels / bytes.max(1.0), aspects / count as f64),
            _ => USUAL,
        };
        let pixels = f64::from(raw_bytes) * per_byte;
        let width = (pixels * aspect).sqrt().clamp(1.0, 65_535.0);
        let height = (pixels / width).clamp(1.0, 65_535.0);
        Facts { width: width as u32, height: height as u32, can_cut: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_that_were_not_seen_look_like_those_that_were() {
        let mut pictures = Pictures::default();
        assert!(!pictures.knows(SampleId(0)) && pictures.of(SampleId(9), 0).width >= 1);
        for id in 0..10 {
            let facts = Facts { width: 200, height: 100, can_cut: id != 3 };
            pictures.note(SampleId(id), facts, 10_000, 20);
        }
        assert_eq!(pictures.seen(), 10);
        assert_eq!(pictures.of(SampleId(3), 1), Facts { width: 200, height: 100, can_cut: false });
        let guess = pictures.of(SampleId(15), 40_000);
        assert!((390..=410).contains(&guess.width) && (195..=205).contains(&guess.height), "{guess:?}");
        pictures.note(SampleId(99), guess, 5, 20);
        assert_eq!(pictures.seen(), 10, "one that is not there is not noted");
        pictures.decoded(SampleId(15));
        assert!(pictures.was_decoded(SampleId(15)) && !pictures.knows(SampleId(15)), "it was never seen raw");
        pictures.decoded(SampleId(3));
        pictures.decoded(SampleId(99));
        assert!(pictures.was_decoded(SampleId(3)) && !pictures.of(SampleId(3), 1).can_cut);
        assert!(![4, 99].into_iter().any(|id| pictures.was_decoded(SampleId(id))));
        pictures.forget_decoded();
        assert!(!pictures.was_decoded(SampleId(3)) && !pictures.of(SampleId(3), 1).can_cut);
    }

    #[test]
    fn a_node_keeps_what_fits_until_it_begins_anew() {
        let mut pixels = Pixels::new(100);
        assert!(!pixels.began_anew(1), "the first connection is no news");
        assert_eq!([60, 60, 40].map(|bytes| pixels.take(bytes)), [true, false, true]);
        assert!(!pixels.began_anew(1) && pixels.free_bytes() == 0);
        assert!(pixels.began_anew(2) && pixels.free_bytes() == 100);
    }
}
