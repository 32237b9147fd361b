//! What the segments before and between the scans of a JPEG say, read without the library and without decoding.
//!
//! Enough to know a picture's size and whether it is of a kind that can be cut without loss. Everything is
//! bounded by the length of the data; whatever does not read as a chain of segments is `None`.
//!
//! Deliberately not here: judging damage. The library does that when it decodes.

/// What the header of a JPEG says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(super) precision: u8,
    /// The kind of frame: the marker's low byte, 0xC0 to 0xCF.
    pub(super) frame: u8,
    pub(super) components: Vec<Component>,
    /// How EXIF says that the picture is to be shown; 1 is as it is stored.
    pub(super) orientation: u16,
    /// Where the first scan header lies.
    pub(super) scan: usize,
}

/// One colour plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Component {
    pub(super) id: u8,
    pub(super) across: u8,
    pub(super) down: u8,
}

impl Outline {
    /// Reads everything up to the first scan.
    pub(crate) fn of(data: &[u8]) -> Option<Outline> {
        let (mut frame, mut orientation) = (None, 1);
        let mut segments = Segments { data, at: 2 };
        loop {
            let (marker, at, body) = segments.step()?;
            match marker {
                0xDA => {
                    let (kind, frame) = frame?;
                    return Outline::new(kind, frame, orientation, at);
                }
                0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => frame = Some((marker, body)),
                0xE1 => orientation = orientation_of(body).unwrap_or(orientation),
                _ => {}
            }
        }
    }

    fn new(kind: u8, frame: &[u8], orientation: u16, scan: usize) -> Option<Outline> {
        let (&[precision, h0, h1, w0, w1, count], rest) = frame.split_first_chunk()?;
        let of = |c: &[u8; 3]| Component { id: c[0], across: c[1] >> 4, down: c[1] & 15 };
        let components: Vec<Component> = rest.as_chunks().0.iter().take(usize::from(count)).map(of).collect();
        (components.len() == usize::from(count)).then_some(Outline {
            width: u16::from_be_bytes([w0, w1]).into(),
            height: u16::from_be_bytes([h0, h1]).into(),
            precision,
            frame: kind,
            components,
            orientation,
            scan,
        })
    }

    pub(super) fn is_progressive(&self) -> bool {
        matches!(self.frame, 0xC2 | 0xCA)
    }

    /// Whether a cut is possible: 8 bits, Huffman or arithmetic coding of transformed blocks, grey or three
    /// planes sampled in a usual way.
    ///
    /// Not for a picture that EXIF says is to be turned. Its pixels would come out the same, since rotation is not
    /// applied here; but a cut carries no EXIF, so whoever keeps or shows it would no longer know. Such files travel
    /// as they are.
    pub(crate) fn can_cut(&self) -> bool {
        let usual = match &*self.components {
            [_] => true,
            [first, second, third] => {
                let once = |component: &Component| [component.across, component.down] == [1, 1];
                let factors = [first.across, first.down];
                let known = [[1, 1], [2, 1], [2, 2], [1, 2], [4, 1], [1, 4]];
                once(second) && once(third) && known.contains(&factors)
            }
            _ => false,
        };
        let known = matches!(self.frame, 0xC0..=0xC2 | 0xC9 | 0xCA);
        usual && known && self.precision == 8 && self.orientation == 1 && self.width > 0 && self.height > 0
    }

    /// Whether the scans of a progressive picture bring every coefficient to its last bit.
    ///
    /// A decoder smooths over what is missing; a cut, whose coefficients all seem complete, would not be smoothed.
    pub(super) fn is_complete(&self, data: &[u8]) -> bool {
        // The lowest bit that is still missing, by component and coefficient; 255: nothing has come yet.
        let mut missing = vec![[u8::MAX; 64]; self.components.len()];
        let mut segments = Segments { data, at: self.scan };
        while let Some((marker, _, body)) = segments.step() {
            match marker {
                0xDA => {
                    if self.note_scan(body, &mut missing).is_none() {
                        return false;
                    }
                    segments.skip_entropy();
                }
                0xD9 => break,
                _ => {}
            }
        }
        missing.iter().flatten().all(|bit| *bit == 0)
    }

    /// Takes down what a scan brings; `None` when its header makes no sense.
    fn note_scan(&self, body: &[u8], missing: &mut [[u8; 64]]) -> Option<()> {
        let (&count, rest) = body.split_first()?;
        let (components, rest) = rest.split_at_checked(usize::from(count) * 2)?;
        let [first, last, bits] = *rest.first_chunk()?;
        for component in components.chunks_exact(2) {
            let index = self.components.iter().position(|known| known.id == component[0])?;
            missing[index].get_mut(usize::from(first)..=usize::from(last))?.fill(bits & 15);
        }
        Some(())
    }
}

/// A walk over the segments of a JPEG.
struct Segments<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Segments<'a> {
    /// The next marker, where it lies, and what its segment holds.
    fn step(&mut self) -> Option<(u8, usize, &'a [u8])> {
        loop {
            if *self.data.get(self.at)? != 0xFF {
                return None;
            }
            let (marker, at) = (*self.data.get(self.at + 1)?, self.at);
            match marker {
                0xFF => self.at += 1,
                0x01 | 0xD0..=0xD8 => self.at += 2,
                // Nothing follows the end.
                0xD9 => {
                    self.at = self.data.len();
                    return Some((marker, at, &[]));
                }
                _ => {
                    let length =
                        self.data.get(at + 2..)?.first_chunk().map(|two| u16::from_be_bytes(*two))?;
                    let end = at + 2 + usize::from(length);
                    self.at = end;
                    return Some((marker, at, self.data.get(at + 4..end)?));
                }
            }
        }
    }

    /// To the next marker after the entropy-coded data of a scan, in which 0xFF is followed by 0 or a restart.
    fn skip_entropy(&mut self) {
        while let Some(found) = self.data.get(self.at..).and_then(|rest| memchr::memchr(0xFF, rest)) {
            self.at += found;
            match self.data.get(self.at + 1) {
                Some(0 | 0xD0..=0xD7) => self.at += 2,
                _ => return,
            }
        }
        self.at = self.data.len();
    }
}

/// The orientation in an EXIF segment, if it has one.
fn orientation_of(body: &[u8]) -> Option<u16> {
    let tiff = body.strip_prefix(b"Exif\0\0")?;
    let big = match tiff.get(..4)? {
        b"MM\0*" => true,
        b"II*\0" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let two = *tiff.get(at..)?.first_chunk()?;
        Some(if big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
    };
    let four = *tiff.get(4..)?.first_chunk()?;
    let directory = if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) } as usize;
    let entries = usize::from(short(directory)?);
    let at = (0..entries).map(|i| directory + 2 + 12 * i).find(|at| short(*at) == Some(0x0112))?;
    short(at + 8)
}
