//! Pixels as a JPEG of high quality, for users who accept that they change a little.
//!
//! Quality 95 without subsampling: what is seen in a crop of 224 pixels should survive. Deliberately not here:
//! choosing this form. Nothing chooses it but the user.

use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

use crate::RawImage;

const QUALITY: i32 = 95;

/// A compressor that is reused from picture to picture; made by the first.
#[derive(Default)]
pub(crate) struct JpegEncoder {
    compressor: Option<Compressor>,
}

impl JpegEncoder {
    /// Writes interleaved pixels of this shape to `out`; `false` when the library cannot.
    pub(crate) fn encode(&mut self, pixels: &[u8], shape: RawImage, out: &mut Vec<u8>) -> bool {
        self.try_encode(pixels, shape).map(|jpeg| out.extend_from_slice(&jpeg)).is_ok()
    }

    fn try_encode(&mut self, pixels: &[u8], shape: RawImage) -> turbojpeg::Result<turbojpeg::OwnedBuf> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new()?),
        };
        let (format, subsampling) = match shape.channels {
            1 => (PixelFormat::GRAY, Subsamp::Gray),
            _ => (PixelFormat::RGB, Subsamp::None),
        };
        compressor.set_quality(QUALITY)?;
        compressor.set_subsamp(subsampling)?;
        compressor.set_optimize(true)?;
        let (width, height) = (shape.width as usize, shape.height as usize);
        let pitch = width * shape.channels as usize;
        compressor.compress_to_owned(Image { pixels, width, pitch, height, format })
    }
}
