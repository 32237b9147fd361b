//! From a recipe to steps: every check that needs no sample.
//!
//! The result has a fixed shape, so a batch can be laid out before any sample is read. A resize of the shorter
//! side followed by a centre crop becomes one step that computes only the pixels which stay.

use super::tensor::Writer;
use super::{Dtype, Layout, Limits, Output};
use crate::{Encoding, Op, Recipe, RecipeError, Size, geometry};

/// One op that does something when a sample runs.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// The op's place in the recipe, from which its randomness comes.
    pub(super) op: u64,
    pub(super) kind: Kind,
}

/// What a step does; sizes are rows and columns.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    RandomResizedCrop { size: [u32; 2], scale: [f64; 2], ratio: [f64; 2] },
    Resize { size: Size },
    ResizeCrop { side: u32, crop: [u32; 2] },
    CenterCrop { size: [u32; 2] },
    RandomCrop { size: [u32; 2], padding: u32 },
    Flip { probability: f64 },
    Grey,
    Rgb,
}

impl Size {
    /// Rows and columns after a resize of a picture of `image` rows and columns.
    pub(super) fn resized(self, image: [u32; 2]) -> [u32; 2] {
        match self {
            Size::Side(side) => geometry::resized(side, image[0], image[1]),
            Size::Exact(size) => size,
        }
    }
}

/// The longest side that a recipe may ask for; far above any use, far below overflow.
const SIDE_MAX: u32 = 65_535;

/// What is known while walking over the ops.
struct Walk {
    size: Option<[u32; 2]>,
    channels: u32,
    tensor: Option<(Dtype, Layout)>,
    normalise: Option<Vec<(f64, f64)>>,
}

/// Checks the recipe and turns it into steps and the last pass.
pub(super) fn compile(
    recipe: &Recipe,
    encoding: Encoding,
    limits: Limits,
) -> Result<(Vec<Step>, Writer), RecipeError> {
    let (size, channels) = match encoding {
        Encoding::Sniffed => (None, 3),
        Encoding::Raw(raw) => {
            if !matches!(raw.channels, 1 | 3) || raw.width == 0 || raw.height == 0 {
                return whole(format!(
                    "raw samples of {} x {} pixels with {} channels cannot be used (1 or 3 channels)",
                    raw.width, raw.height, raw.channels
                ));
            }
            if u64::from(raw.width) * u64::from(raw.height) > limits.pixels_max {
                return whole(format!(
                    "raw samples of {} x {} pixels are over the limit of {} pixels (raise recipe.pixels_max)",
                    raw.width, raw.height, limits.pixels_max
                ));
            }
            (Some([raw.height, raw.width]), raw.channels)
        }
    };
    let mut walk = Walk { size, channels, tensor: None, normalise: None };
    let mut steps: Vec<Step> = Vec::new();
    for (index, op) in recipe.ops.iter().enumerate() {
        let kind = walk.op(index, op).map_err(|reason| RecipeError::Op { index, name: op.name(), reason })?;
        walk.size = op.size_after(walk.size);
        walk.channels = op.channels_after(walk.channels);
        match (steps.last_mut(), kind) {
            (
                Some(Step { kind: last @ Kind::Resize { size: Size::Side(_) }, .. }),
                Some(Kind::CenterCrop { size: crop }),
            ) => {
                if let Kind::Resize { size: Size::Side(side) } = *last {
                    *last = Kind::ResizeCrop { side, crop };
                }
            }
            (_, Some(kind)) => steps.push(Step { op: index as u64, kind }),
            (_, None) => {}
        }
    }
    if recipe.ops.is_empty() {
        return whole("there is no op; begin with decode and end with to-tensor");
    }
    let Some((dtype, layout)) = walk.tensor else {
        return whole("the last op must be to-tensor, or normalise after it");
    };
    let Some([height, width]) = walk.size else {
        return whole(
            "samples would differ in size and fit no batch; add a crop, or a resize to exact [rows, columns]",
        );
    };
    let output = Output { dtype, layout, channels: walk.channels, height, width };
    Ok((steps, Writer::new(output, walk.normalise.as_deref())))
}

fn whole<T>(reason: impl Into<String>) -> Result<T, RecipeError> {
    Err(RecipeError::Whole { reason: reason.into() })
}

impl Walk {
    /// Checks one op against what came before it; the step it becomes, if it becomes one.
    fn op(&mut self, index: usize, op: &Op) -> Result<Option<Kind>, String> {
        if (index == 0) != matches!(op, Op::Decode) {
            return Err(if index == 0 {
                "the first op must be decode"
            } else {
                "only the first op can be decode"
            }
            .to_owned());
        }
        if self.tensor.is_some() && !matches!(op, Op::Normalise { .. }) {
            return Err("only normalise can follow to-tensor".to_owned());
        }
        Ok(Some(match op {
            Op::Decode => return Ok(None),
            Op::RandomResizedCrop { size, scale, ratio } => {
                range("scale", *scale, 1.0)?;
                range("ratio", *ratio, 1_000.0)?;
                Kind::RandomResizedCrop { size: checked(*size)?, scale: *scale, ratio: *ratio }
            }
            Op::Resize { size } => {
                checked(*size)?;
                Kind::Resize { size: *size }
            }
            Op::CenterCrop { size } => Kind::CenterCrop { size: checked(*size)? },
            Op::RandomCrop { size, padding } => {
                let size = checked(*size)?;
                if *padding > SIDE_MAX {
                    return Err(format!("padding {padding} is over {SIDE_MAX}"));
                }
                if let Some([rows, columns]) = self.size
                    && (rows + 2 * padding < size[0] || columns + 2 * padding < size[1])
                {
                    return Err(format!(
                        "samples of {rows} x {columns} with padding {padding} are smaller than the crop of {} x {}",
                        size[0], size[1]
                    ));
                }
                Kind::RandomCrop { size, padding: *padding }
            }
            Op::Flip { probability } => {
                if !(0.0..=1.0).contains(probability) {
                    return Err(format!("probability {probability} is not between 0 and 1"));
                }
                Kind::Flip { probability: *probability }
            }
            Op::Grey => Kind::Grey,
            Op::Rgb => Kind::Rgb,
            Op::ToTensor { dtype, layout } => {
                self.tensor = Some((*dtype, *layout));
                return Ok(None);
            }
            Op::Normalise { mean, std } => {
                self.normalise(mean, std)?;
                return Ok(None);
            }
        }))
    }

    fn normalise(&mut self, mean: &[f64], std: &[f64]) -> Result<(), String> {
        match self.tensor {
            None => return Err("it must follow to-tensor".to_owned()),
            Some((Dtype::U8, _)) => {
                return Err("u8 cannot be normalised; use to-tensor with dtype f32".to_owned());
            }
            Some((Dtype::F32, _)) => {}
        }
        if self.normalise.is_some() {
            return Err("the recipe normalises twice".to_owned());
        }
        let channels = self.channels as usize;
        if mean.len() != channels || std.len() != channels {
            return Err(format!(
                "mean has {} and std {} numbers, but there are {channels} channels",
                mean.len(),
                std.len()
            ));
        }
        if let Some(bad) = std.iter().find(|std| !(std.is_finite() && **std > 0.0)) {
            return Err(format!("std {bad} is not above 0"));
        }
        if let Some(bad) = mean.iter().find(|mean| !mean.is_finite()) {
            return Err(format!("mean {bad} is not a number"));
        }
        self.normalise = Some(mean.iter().copied().zip(std.iter().copied()).collect());
        Ok(())
    }
}

fn checked(size: Size) -> Result<[u32; 2], String> {
    let [rows, columns] = size.rows_columns();
    if rows == 0 || columns == 0 || rows > SIDE_MAX || columns > SIDE_MAX {
        return Err(format!("size {rows} x {columns} is not between 1 and {SIDE_MAX}"));
    }
    Ok([rows, columns])
}

fn range(name: &str, [low, high]: [f64; 2], max: f64) -> Result<(), String> {
    if low > 0.0 && low <= high && high <= max {
        Ok(())
    } else {
        Err(format!("{name} [{low}, {high}] is not an ascending pair above 0 and at most {max}"))
    }
}
