//! Where crops lie and how large resized pictures are: plain arithmetic, the same on every machine.
//!
//! The rules and their rounding are torchvision's, so that a model trained there sees the same distribution here.
//! `libm` takes the place of the platform's mathematics library, whose last bits differ between machines.
//!
//! Deliberately not here: pixels.

use gristmill_core::rng::Stream;

/// A rectangle of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// Columns left of it.
    pub x: u32,
    /// Rows above it.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Rect {
    /// The whole of a picture.
    pub(crate) fn whole(width: u32, height: u32) -> Rect {
        Rect { x: 0, y: 0, width, height }
    }

    /// Whether all of `other` lies in it.
    pub(crate) fn contains(self, other: Rect) -> bool {
        let along = |start: u32, size: u32, from: u32, length: u32| {
            from >= start && u64::from(from) + u64::from(length) <= u64::from(start) + u64::from(size)
        };
        along(self.x, self.width, other.x, other.width) && along(self.y, self.height, other.y, other.height)
    }

    /// The same place after the picture of `width` columns was flipped.
    pub(crate) fn mirrored(self, width: u32) -> Rect {
        Rect { x: width - self.x - self.width, ..self }
    }
}

/// How often a random area and shape is tried before the largest fitting middle is taken.
const TRIES: u32 = 10;

/// The part of the picture that a random-resized crop takes.
pub(crate) fn random_resized(stream: &mut Stream, image: [u32; 2], scale: [f64; 2], ratio: [f64; 2]) -> Rect {
    let [height, width] = image;
    let area = f64::from(height) * f64::from(width);
    let logs = ratio.map(libm::log);
    for _ in 0..TRIES {
        let target = area * between(stream, scale);
        let shape = libm::exp(between(stream, logs));
        let w = libm::sqrt(target * shape).round_ties_even();
        let h = libm::sqrt(target / shape).round_ties_even();
        if 0.0 < w && w <= f64::from(width) && 0.0 < h && h <= f64::from(height) {
            let (w, h) = (w as u32, h as u32);
            let y = stream.below(u64::from(height - h) + 1) as u32;
            let x = stream.below(u64::from(width - w) + 1) as u32;
            return Rect { x, y, width: w, height: h };
        }
    }
    let shape = f64::from(width) / f64::from(height);
    let (w, h) = if shape < ratio[0] {
        (width, (f64::from(width) / ratio[0]).round_ties_even() as u32)
    } else if shape > ratio[1] {
        ((f64::from(height) * ratio[1]).round_ties_even() as u32, height)
    } else {
        (width, height)
    };
    let (w, h) = (w.clamp(1, width), h.clamp(1, height));
    Rect { x: (width - w) / 2, y: (height - h) / 2, width: w, height: h }
}

fn between(stream: &mut Stream, [low, high]: [f64; 2]) -> f64 {
    low + (high - low) * stream.unit()
}

/// Where a crop of `size` rows and columns starts in a picture of at least that size: row and column.
pub(crate) fn random_place(stream: &mut Stream, image: [u32; 2], size: [u32; 2]) -> [u32; 2] {
    if image == size {
        return [0, 0];
    }
    [0, 1].map(|side| stream.below(u64::from(image[side] - size[side]) + 1) as u32)
}

/// Where the middle `size` of a side of `length` pixels starts; negative where the side is too short.
pub(crate) fn middle(length: u32, size: u32) -> i64 {
    if size > length {
        -i64::from((size - length) / 2)
    } else {
        (f64::from(length - size) / 2.0).round_ties_even() as i64
    }
}

/// Rows and columns after the shorter side became `side`.
pub(crate) fn resized(side: u32, rows: u32, columns: u32) -> [u32; 2] {
    let (short, long) = (rows.min(columns), rows.max(columns));
    let longer = (f64::from(side) * f64::from(long) / f64::from(short.max(1))) as u32;
    if rows <= columns { [side, longer] } else { [longer, side] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shorter_side_rule() {
        for (side, before, after) in [
            (256, [375, 500], [256, 341]),
            (256, [500, 375], [341, 256]),
            (256, [256, 256], [256, 256]),
            (7, [3, 1000], [7, 2333]),
        ] {
            assert_eq!(resized(side, before[0], before[1]), after);
        }
    }

    #[test]
    fn middles_round_half_to_even() {
        for (length, size, start) in [
            (341, 224, 58),
            (256, 224, 16),
            (227, 224, 2),
            (225, 224, 0),
            (224, 224, 0),
            (31, 32, 0),
            (29, 32, -1),
            (28, 32, -2),
        ] {
            assert_eq!(middle(length, size), start, "{size} of {length}");
        }
    }

    #[test]
    fn a_shape_that_never_fits_takes_the_middle() {
        let mut stream = Stream::from_key(1);
        let rect = random_resized(&mut stream, [10, 1000], [0.9, 1.0], [0.75, 4.0 / 3.0]);
        assert_eq!(rect, Rect { x: 493, y: 0, width: 13, height: 10 });
        let rect = random_resized(&mut stream, [1000, 10], [0.9, 1.0], [0.75, 4.0 / 3.0]);
        assert_eq!(rect, Rect { x: 0, y: 493, width: 10, height: 13 });
    }

    proptest! {
        #[test]
        fn crops_lie_inside(key: u64, rows in 1_u32..700, columns in 1_u32..700) {
            let rect = random_resized(&mut Stream::from_key(key), [rows, columns], [0.08, 1.0], [0.75, 4.0 / 3.0]);
            prop_assert!(rect.width > 0 && rect.x + rect.width <= columns);
            prop_assert!(rect.height > 0 && rect.y + rect.height <= rows);
            let mirrored = rect.mirrored(columns);
            prop_assert_eq!(mirrored.mirrored(columns), rect);
        }

        #[test]
        fn areas_and_shapes_are_as_asked(key: u64) {
            let rect = random_resized(&mut Stream::from_key(key), [600, 600], [0.2, 0.4], [0.8, 1.25]);
            let share = f64::from(rect.width * rect.height) / 360_000.0;
            let shape = f64::from(rect.width) / f64::from(rect.height);
            prop_assert!((0.198..0.402).contains(&share), "{}", share);
            prop_assert!((0.795..1.256).contains(&shape), "{}", shape);
        }
    }
}
