//! How far a sample has come: the forms in which it can cross a wire, by name and number.
//!
//! A sample may be prepared in one place and finished in another. Between the two it has one of these forms. All
//! of them but [`Stage::Lossy`] lead to the same bytes in the batch as running everything in one place.
//!
//! Deliberately not here: which form is worth it. That needs the sizes and times of both sides.

use serde::{Deserialize, Serialize};

/// The version of the ops and of the JPEG library: two sides that say the same give the same pixels.
///
/// The first number rises when an op, or a form below, changes; a test holds the second against the lock file.
pub const BUILD: &str =
    if cfg!(target_endian = "little") { "1/libjpeg-turbo 3.1.0" } else { "1/libjpeg-turbo 3.1.0/big-endian" };

/// How far a sample has come when it crosses the wire.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The bytes of the store.
    Raw = 0,
    /// A JPEG cut without loss around the region that the first crop needs, in whole MCUs with a margin.
    Cut = 1,
    /// All pixels, as u8.
    Decoded = 2,
    /// The pixels before they become numbers, as u8: all crops, flips and colour changes are done.
    Cropped = 3,
    /// The same, compressed without loss.
    Packed = 4,
    /// The same as a JPEG of high quality, which changes pixels a little: only for those who ask for it.
    Lossy = 5,
    /// The numbers themselves, as they lie in the batch.
    Finished = 6,
}

impl Stage {
    /// Every stage, in the order of their numbers.
    pub const ALL: [Stage; 7] = [
        Stage::Raw,
        Stage::Cut,
        Stage::Decoded,
        Stage::Cropped,
        Stage::Packed,
        Stage::Lossy,
        Stage::Finished,
    ];

    /// The name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Raw => "raw",
            Stage::Cut => "cut",
            Stage::Decoded => "decoded",
            Stage::Cropped => "cropped",
            Stage::Packed => "packed",
            Stage::Lossy => "lossy",
            Stage::Finished => "finished",
        }
    }

    /// The stage of this name.
    pub fn named(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// The stage of this number.
    pub fn from_u8(number: u8) -> Option<Stage> {
        Stage::ALL.get(usize::from(number)).copied()
    }
}

/// What [`Pipeline::advance`](crate::Pipeline::advance) reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advanced {
    /// The stage of what was written; [`Stage::Raw`] when nothing was.
    pub stage: Stage,
    /// The CPU time of this thread that it took.
    pub cpu_ns: u64,
}

/// What a sample's picture is, by its header alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Whether it is of a kind that [`Stage::Cut`] can be made of.
    pub can_cut: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_go_both_ways() {
        for (number, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, number);
            assert_eq!(Stage::from_u8(number as u8), Some(stage));
            assert_eq!(Stage::named(stage.name()), Some(stage));
            let text = serde_json::to_string(&stage).unwrap();
            assert_eq!(text, format!("{:?}", stage.name()));
            assert_eq!(serde_json::from_str::<Stage>(&text).unwrap(), stage);
        }
        assert_eq!(Stage::from_u8(7), None);
        assert_eq!(Stage::named("Cut"), None);
    }

    /// The binding brings the library with it. When it changes, look up the library's version and change [`BUILD`].
    #[test]
    fn the_build_names_the_library_that_is_linked() {
        let lock = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"));
        assert!(lock.contains("name = \"turbojpeg-sys\"\nversion = \"1.2.0\""), "is it still {BUILD}?");
    }
}
