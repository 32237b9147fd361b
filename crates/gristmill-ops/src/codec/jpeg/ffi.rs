//! The door to libjpeg-turbo: the only `unsafe` of the crate.
//!
//! The safe binding knows no cropping region, so the few calls that need one are made here on the raw interface.
//! One [`Handle`] is one decompressor of the library. Every slice is measured
//! before its pointer leaves Rust; no pointer is kept by the library after a call returns.
//!
//! Deliberately not here: what the numbers mean. `jpeg` decides regions, formats and which warnings matter.

#![expect(unsafe_code, reason = "libjpeg-turbo is C, and its safe binding cannot decode a region")]

use std::ffi::{CStr, c_int};

use turbojpeg::raw;

use crate::Rect;

/// Each scan of a progressive picture is a pass over all of it: a small file must not ask for thousands. Real ones
/// have about ten.
const SCANS_MAX: c_int = 1_000;

/// One decompressor of the library, which may also be able to transform.
pub(super) struct Handle(raw::tjhandle);

// SAFETY: the library keeps everything about a decompressor behind its handle and has no thread affinity; `&mut`
// on every call keeps two threads from using one handle at a time.
unsafe impl Send for Handle {}

/// How a cut is written: nothing but the part's blocks, with the Huffman tables that suit them best.
const CUT_OPTIONS: u32 = raw::TJXOPT_CROP | raw::TJXOPT_COPYNONE | raw::TJXOPT_OPTIMIZE;

/// What the header of a picture says, as the library's own numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub width: u32,
    pub height: u32,
    pub subsampling: c_int,
    pub colourspace: c_int,
    pub precision: c_int,
    pub progressive: bool,
    pub lossless: bool,
}

/// What the library complains about.
#[derive(Debug, Clone)]
pub(super) struct Complaint {
    /// Whether the call did its work nevertheless.
    pub warning: bool,
    pub message: String,
}

/// The layout of decoded pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pixels {
    Grey,
    Rgb,
    Cmyk,
}

impl Pixels {
    pub(super) fn bytes(self) -> usize {
        match self {
            Pixels::Grey => 1,
            Pixels::Rgb => 3,
            Pixels::Cmyk => 4,
        }
    }

    fn format(self) -> raw::TJPF {
        match self {
            Pixels::Grey => raw::TJPF_TJPF_GRAY,
            Pixels::Rgb => raw::TJPF_TJPF_RGB,
            Pixels::Cmyk => raw::TJPF_TJPF_CMYK,
        }
    }
}

impl Handle {
    pub(super) fn new() -> Result<Handle, Complaint> {
        Handle::of_kind(raw::TJINIT_TJINIT_DECOMPRESS)
    }

    /// One that can also [`cut`](Handle::cut).
    pub(super) fn transformer() -> Result<Handle, Complaint> {
        Handle::of_kind(raw::TJINIT_TJINIT_TRANSFORM)
    }

    fn of_kind(kind: raw::TJINIT) -> Result<Handle, Complaint> {
        // SAFETY: takes a plain number and returns a new handle, or null.
        let handle = unsafe { raw::tj3Init(kind as c_int) };
        if handle.is_null() {
            return Err(Complaint { warning: false, message: "no memory for a decoder".to_owned() });
        }
        let mut handle = Handle(handle);
        // Colour profiles are not used: without this the library copies them out of every file.
        handle.set(raw::TJPARAM_TJPARAM_SAVEMARKERS, 0)?;
        handle.set(raw::TJPARAM_TJPARAM_SCANLIMIT, SCANS_MAX)?;
        Ok(handle)
    }

    fn set(&mut self, parameter: raw::TJPARAM, value: c_int) -> Result<(), Complaint> {
        // SAFETY: the handle is alive, the other arguments are plain numbers.
        let status = unsafe { raw::tj3Set(self.0, parameter as c_int, value) };
        self.outcome(status)
    }

    fn get(&mut self, parameter: raw::TJPARAM) -> c_int {
        // SAFETY: the handle is alive, the other argument is a plain number.
        unsafe { raw::tj3Get(self.0, parameter as c_int) }
    }

    /// Bounds what the library may hold of a picture that comes in several scans, in mebibytes begun.
    pub(super) fn limit_memory(&mut self, bytes_max: usize) -> Result<(), Complaint> {
        let memory = c_int::try_from((bytes_max >> 20) + 1).unwrap_or(c_int::MAX);
        self.set(raw::TJPARAM_TJPARAM_MAXMEMORY, memory)
    }

    /// Reads the header; a warning about it is no failure.
    pub(super) fn header(&mut self, data: &[u8]) -> Result<Header, Complaint> {
        // SAFETY: pointer and length are those of one live slice, which the library only reads during the call.
        let status = unsafe { raw::tj3DecompressHeader(self.0, data.as_ptr(), data.len() as _) };
        match self.outcome(status) {
            Err(complaint) if !complaint.warning => return Err(complaint),
            _ => {}
        }
        Ok(Header {
            width: u32::try_from(self.get(raw::TJPARAM_TJPARAM_JPEGWIDTH)).unwrap_or(0),
            height: u32::try_from(self.get(raw::TJPARAM_TJPARAM_JPEGHEIGHT)).unwrap_or(0),
            subsampling: self.get(raw::TJPARAM_TJPARAM_SUBSAMP),
            colourspace: self.get(raw::TJPARAM_TJPARAM_COLORSPACE),
            precision: self.get(raw::TJPARAM_TJPARAM_PRECISION),
            progressive: self.get(raw::TJPARAM_TJPARAM_PROGRESSIVE) == 1,
            lossless: self.get(raw::TJPARAM_TJPARAM_LOSSLESS) == 1,
        })
    }

    /// Decodes `region` of the picture whose header was read last into rows that follow each other in `out`.
    ///
    /// `region` must be the whole picture, or start at a whole MCU; the library refuses others.
    pub(super) fn decode(
        &mut self,
        data: &[u8],
        header: &Header,
        region: Rect,
        pixels: Pixels,
        out: &mut [u8],
    ) -> Result<(), Complaint> {
        let needed = region.width as usize * region.height as usize * pixels.bytes();
        assert!(out.len() >= needed, "a region of {needed} bytes for a buffer of {}", out.len());
        let whole = region == Rect::whole(header.width, header.height);
        let crop = if whole { Rect { x: 0, y: 0, width: 0, height: 0 } } else { region };
        let crop = raw::tjregion {
            x: crop.x as c_int,
            y: crop.y as c_int,
            w: crop.width as c_int,
            h: crop.height as c_int,
        };
        self.set_place(crop, 1)?;
        let (format, pitch) = (pixels.format(), region.width * pixels.bytes() as u32);
        // SAFETY: pointer and length of `data` are those of one live slice. The library reads the header again
        // from the same bytes, so the picture has the size from which `needed` was computed, and writes
        // `region.height` rows of `pitch` bytes, which `out` was just asserted to hold.
        let status = unsafe {
            raw::tj3Decompress8(
                self.0,
                data.as_ptr(),
                data.len() as _,
                out.as_mut_ptr(),
                pitch as c_int,
                format as c_int,
            )
        };
        self.outcome(status)
    }

    /// Decodes the whole picture whose header was read last as grey, each side divided by `divisor` (1, 2, 4 or 8)
    /// and rounded up, into rows that follow each other in `out`.
    pub(super) fn decode_grey(
        &mut self,
        data: &[u8],
        header: &Header,
        divisor: u32,
        out: &mut [u8],
    ) -> Result<(), Complaint> {
        let (width, height) = (header.width.div_ceil(divisor), header.height.div_ceil(divisor));
        let needed = width as usize * height as usize;
        assert!(out.len() >= needed, "a picture of {needed} bytes for a buffer of {}", out.len());
        self.set_place(raw::tjregion { x: 0, y: 0, w: 0, h: 0 }, divisor)?;
        // SAFETY: pointer and length of `data` are those of one live slice. The library reads the header again
        // from the same bytes, so the picture has the size from which `needed` was computed, and writes `height`
        // rows of `width` bytes, which `out` was just asserted to hold: its rule for a scaled side is the same.
        let status = unsafe {
            raw::tj3Decompress8(
                self.0,
                data.as_ptr(),
                data.len() as _,
                out.as_mut_ptr(),
                width as c_int,
                Pixels::Grey.format() as c_int,
            )
        };
        self.outcome(status)
    }

    /// Appends a JPEG of `region`, which must start at a whole MCU, to `out`; its blocks are those of the picture.
    ///
    /// A warning is a failure: the library then made up what it could not read.
    pub(super) fn cut(&mut self, data: &[u8], region: Rect, out: &mut Vec<u8>) -> Result<(), Complaint> {
        let transform = raw::tjtransform {
            r: raw::tjregion {
                x: region.x as c_int,
                y: region.y as c_int,
                w: region.width as c_int,
                h: region.height as c_int,
            },
            op: raw::TJXOP_TJXOP_NONE as c_int,
            options: CUT_OPTIONS as c_int,
            data: std::ptr::null_mut(),
            customFilter: None,
        };
        let (mut result, mut length) = (std::ptr::null_mut::<u8>(), 0);
        // SAFETY: pointer and length of `data` are those of one live slice, which the library only reads during the
        // call. There is one transform, and one place each for the buffer, which the library allocates because it is
        // null, and for its length.
        let status = unsafe {
            raw::tj3Transform(
                self.0,
                data.as_ptr(),
                data.len() as _,
                1,
                &raw mut result,
                &raw mut length,
                &raw const transform,
            )
        };
        let outcome = self.outcome(status);
        if !result.is_null() {
            if outcome.is_ok() {
                // SAFETY: on success the library wrote `length` bytes into the buffer that it allocated.
                out.extend_from_slice(unsafe { std::slice::from_raw_parts(result, length as usize) });
            }
            // SAFETY: the buffer is the library's and is not used again.
            unsafe { raw::tj3Free(result.cast()) };
        }
        outcome
    }

    /// Says which region of the picture the next call decodes, at which part of its size.
    fn set_place(&mut self, region: raw::tjregion, divisor: u32) -> Result<(), Complaint> {
        let scale = raw::tjscalingfactor { num: 1, denom: divisor as c_int };
        let everything = raw::tjregion { x: 0, y: 0, w: 0, h: 0 };
        // SAFETY: the handle is alive, region and scale are passed by value and checked by the library. The region of
        // the picture before is lifted first: it could be refused at another scale.
        let statuses = unsafe {
            [
                raw::tj3SetCroppingRegion(self.0, everything),
                raw::tj3SetScalingFactor(self.0, scale),
                raw::tj3SetCroppingRegion(self.0, region),
            ]
        };
        statuses.into_iter().try_for_each(|status| self.outcome(status))
    }

    fn outcome(&mut self, status: c_int) -> Result<(), Complaint> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the handle is alive; the library returns a string of its own that lives until the next call.
        let (code, message) =
            unsafe { (raw::tj3GetErrorCode(self.0), CStr::from_ptr(raw::tj3GetErrorStr(self.0))) };
        let message = message.to_string_lossy().replace('\n', " ");
        Err(Complaint { warning: code == raw::TJERR_TJERR_WARNING as c_int, message })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is alive and is never used again.
        unsafe { raw::tj3Destroy(self.0) };
    }
}
