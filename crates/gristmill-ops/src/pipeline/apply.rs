//! Each op on one sample: draw what is random, then move the view or make new pixels.
//!
//! The same drawing serves twice: to find the part of a JPEG worth decoding, and to crop it. Both start the op's
//! own stream anew, so they cannot disagree.

use gristmill_core::rng::{Purpose, Stream};

use super::compile::{Kind, Step};
use super::frame::Frame;
use super::resize::Axis;
use super::{Draw, Limits, Pipeline, Scratch};
use crate::{OpError, Rect, geometry};

impl Pipeline {
    /// The part of a picture of this size that the ops will look at.
    pub fn region(&self, draw: Draw, width: u32, height: u32) -> Result<Rect, OpError> {
        let whole = Rect::whole(width, height);
        let mut flipped = false;
        for step in &self.steps {
            let rect = match step.kind {
                Kind::Flip { probability } => {
                    flipped ^= step.stream(draw).unit() < probability;
                    continue;
                }
                Kind::Grey | Kind::Rgb => continue,
                _ => step.window(draw, [height, width])?.unwrap_or(whole),
            };
            return Ok(if flipped { rect.mirrored(width) } else { rect });
        }
        Ok(whole)
    }
}

impl Step {
    /// The random numbers of this op for this sample.
    fn stream(&self, draw: Draw) -> Stream {
        let sample = u64::from(draw.sample.0);
        Stream::new(draw.seed, draw.epoch, Purpose::Augmentation, &[sample, self.op])
    }

    /// The part of a picture of `image` rows and columns that this op looks at; `None`: all of it.
    fn window(&self, draw: Draw, image: [u32; 2]) -> Result<Option<Rect>, OpError> {
        let [height, width] = image;
        Ok(match self.kind {
            Kind::RandomResizedCrop { scale, ratio, .. } => {
                Some(geometry::random_resized(&mut self.stream(draw), image, scale, ratio))
            }
            Kind::CenterCrop { size } => {
                let [y, x] = [geometry::middle(height, size[0]), geometry::middle(width, size[1])];
                inside([y, x], size, image)
            }
            Kind::RandomCrop { size, padding } => {
                inside(self.random_place(draw, image, size, padding)?, size, image)
            }
            Kind::ResizeCrop { side, crop } => resized_middle(image, side, crop).map(in_reach),
            Kind::Resize { .. } | Kind::Flip { .. } | Kind::Grey | Kind::Rgb => None,
        })
    }

    /// Where a random crop starts, counted from the unpadded picture.
    fn random_place(
        &self,
        draw: Draw,
        image: [u32; 2],
        size: [u32; 2],
        padding: u32,
    ) -> Result<[i64; 2], OpError> {
        let padded = image.map(|side| side + 2 * padding);
        if padded[0] < size[0] || padded[1] < size[1] {
            return Err(OpError::TooSmall { width: padded[1], height: padded[0], crop: size });
        }
        let place = geometry::random_place(&mut self.stream(draw), padded, size);
        Ok(place.map(|start| i64::from(start) - i64::from(padding)))
    }

    pub(super) fn apply(
        &self,
        frame: &mut Frame,
        scratch: &mut Scratch,
        limits: Limits,
        draw: Draw,
        input: &[u8],
    ) -> Result<(), OpError> {
        let [height, width] = frame.size();
        let whole = Rect::whole(width, height);
        match self.kind {
            Kind::RandomResizedCrop { size, scale, ratio } => {
                let rect = geometry::random_resized(&mut self.stream(draw), frame.size(), scale, ratio);
                let axes = [Axis::whole(rect.height, size[0]), Axis::whole(rect.width, size[1])];
                frame.resize(scratch, limits, input, rect, axes)
            }
            Kind::Resize { size } => {
                let size = size.resized([height, width]);
                if size == frame.size() {
                    return Ok(());
                }
                let axes = [Axis::whole(height, size[0]), Axis::whole(width, size[1])];
                frame.resize(scratch, limits, input, whole, axes)
            }
            Kind::ResizeCrop { side, crop } => {
                let size = geometry::resized(side, height, width);
                if size != frame.size() {
                    if let Some(axes) = resized_middle([height, width], side, crop) {
                        return frame.resize(scratch, limits, input, whole, axes);
                    }
                    let axes = [Axis::whole(height, size[0]), Axis::whole(width, size[1])];
                    frame.resize(scratch, limits, input, whole, axes)?;
                }
                let place = [geometry::middle(size[0], crop[0]), geometry::middle(size[1], crop[1])];
                frame.crop_padded(scratch, limits, input, place, crop)
            }
            Kind::CenterCrop { size } => {
                let place = [geometry::middle(height, size[0]), geometry::middle(width, size[1])];
                frame.crop_padded(scratch, limits, input, place, size)
            }
            Kind::RandomCrop { size, padding } => {
                let place = self.random_place(draw, [height, width], size, padding)?;
                frame.crop_padded(scratch, limits, input, place, size)
            }
            Kind::Flip { probability } => {
                frame.flipped ^= self.stream(draw).unit() < probability;
                Ok(())
            }
            Kind::Grey => frame.grey(scratch, limits, input),
            Kind::Rgb => frame.rgb(scratch, limits, input),
        }
    }
}

/// The crop as a rectangle, unless a part of it is outside the picture.
fn inside([y, x]: [i64; 2], [height, width]: [u32; 2], image: [u32; 2]) -> Option<Rect> {
    let fits =
        |start: i64, size: u32, length: u32| start >= 0 && start + i64::from(size) <= i64::from(length);
    (fits(y, height, image[0]) && fits(x, width, image[1])).then_some(Rect {
        x: x as u32,
        y: y as u32,
        width,
        height,
    })
}

/// Resizing the shorter side and then cropping the middle, as a resize to a span. `None` when the resized picture is
/// smaller than the crop in a direction.
fn resized_middle(image: [u32; 2], side: u32, crop: [u32; 2]) -> Option<[Axis; 2]> {
    let [height, width] = image;
    let after = geometry::resized(side, height, width);
    let along = |from: u32, to: u32, count: u32| {
        let first = u32::try_from(geometry::middle(to, count)).ok()?;
        (count <= to).then_some(Axis { from, to, first, count })
    };
    Some([along(height, after[0], crop[0])?, along(width, after[1], crop[1])?])
}

/// The pixels that a resize looks at. One more on each side: counted from the other end, rounding may add it.
fn in_reach([down, across]: [Axis; 2]) -> Rect {
    let along = |axis: Axis| {
        let reach = axis.reach();
        let first = reach.start.saturating_sub(1);
        (first, (reach.end + 1).min(axis.from) - first)
    };
    let ((y, height), (x, width)) = (along(down), along(across));
    Rect { x, y, width, height }
}
