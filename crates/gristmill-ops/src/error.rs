//! Why a sample could not be turned into a tensor, by cause.
//!
//! Each cause reads as one sentence about the bytes alone. Whoever knows the sample's id and path puts them in
//! front; nothing here knows either.

use std::fmt;

/// Why one sample failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpError {
    /// There are no bytes at all.
    Empty,
    /// The first bytes are those of neither a JPEG nor a PNG.
    NotAnImage {
        /// The first bytes, printable.
        begins: String,
    },
    /// The data stop before the picture is complete.
    Truncated {
        /// `JPEG` or `PNG`.
        format: &'static str,
    },
    /// The data contradict their format.
    Corrupt {
        /// `JPEG` or `PNG`.
        format: &'static str,
        /// What the decoder says.
        reason: String,
    },
    /// A valid picture of a kind that is not read here.
    Unsupported {
        /// `JPEG` or `PNG`.
        format: &'static str,
        /// Which kind.
        reason: String,
    },
    /// The header announces more pixels than allowed.
    TooManyPixels {
        /// `JPEG` or `PNG`.
        format: &'static str,
        /// Pixels per row.
        width: u32,
        /// Rows.
        height: u32,
        /// The limit.
        pixels_max: u64,
    },
    /// The sample would need more working memory than allowed.
    TooMuchScratch {
        /// What it would need.
        needed_bytes: u64,
        /// The limit.
        scratch_bytes_max: usize,
    },
    /// The picture is smaller than the crop that the recipe takes from it.
    TooSmall {
        /// Pixels per row, padding included.
        width: u32,
        /// Rows, padding included.
        height: u32,
        /// Rows and columns of the crop.
        crop: [u32; 2],
    },
    /// A raw sample does not have the length that its shape says.
    WrongLength {
        /// What the shape says.
        expected_bytes: u64,
        /// What is there.
        found_bytes: u64,
    },
    /// A sample that was prepared elsewhere does not fit the recipe, or contradicts itself.
    WrongForm {
        /// Which form it is said to have.
        stage: crate::Stage,
        /// What is wrong.
        reason: String,
    },
    /// The place for the output does not fit.
    WrongOutput {
        /// Why not.
        reason: String,
    },
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpError::Empty => write!(f, "no data (0 bytes)"),
            OpError::NotAnImage { begins } => write!(f, "not a JPEG or PNG: begins with \"{begins}\""),
            OpError::Truncated { format } => write!(f, "{format} data ends early"),
            OpError::Corrupt { format, reason } => write!(f, "damaged {format}: {reason}"),
            OpError::Unsupported { format, reason } => {
                write!(f, "this kind of {format} is not supported: {reason}")
            }
            OpError::TooManyPixels { format, width, height, pixels_max } => write!(
                f,
                "{format} of {width} x {height} pixels is over the limit of {} pixels (raise recipe.pixels_max)",
                Grouped(*pixels_max)
            ),
            OpError::TooMuchScratch { needed_bytes, scratch_bytes_max } => write!(
                f,
                "needs {} bytes of working memory, over the limit of {} bytes (raise scratch_bytes_max)",
                Grouped(*needed_bytes),
                Grouped(*scratch_bytes_max as u64)
            ),
            OpError::TooSmall { width, height, crop: [rows, columns] } => write!(
                f,
                "picture of {width} x {height} pixels is smaller than the random crop of {columns} x {rows} \
                 (add a resize before it, or padding)"
            ),
            OpError::WrongLength { expected_bytes, found_bytes } => write!(
                f,
                "raw sample has {} bytes where its shape says {}",
                Grouped(*found_bytes),
                Grouped(*expected_bytes)
            ),
            OpError::WrongForm { stage, reason } => write!(
                f,
                "the {} form of the sample is not usable: {reason} (both sides need the same recipe and build)",
                stage.name()
            ),
            OpError::WrongOutput { reason } => write!(f, "no place for the output: {reason}"),
        }
    }
}

impl std::error::Error for OpError {}

/// A number with a comma between thousands.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (i, digit) in digits.bytes().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{}", char::from(digit))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        let table = [
            (
                OpError::NotAnImage { begins: "hello wo".into() },
                "not a JPEG or PNG: begins with \"hello wo\"",
            ),
            (OpError::Truncated { format: "JPEG" }, "JPEG data ends early"),
            (
                OpError::TooManyPixels { format: "PNG", width: 60_000, height: 60_000, pixels_max: 1 << 26 },
                "PNG of 60000 x 60000 pixels is over the limit of 67,108,864 pixels (raise recipe.pixels_max)",
            ),
            (
                OpError::WrongLength { expected_bytes: 784, found_bytes: 1_000_000 },
                "raw sample has 1,000,000 bytes where its shape says 784",
            ),
        ];
        for (error, sentence) in table {
            assert_eq!(error.to_string(), sentence);
        }
    }
}
