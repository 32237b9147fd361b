//! JPEGs of every unusual kind: which of them can be cut, and that none of them changes a pixel.
//!
//! Made here, by the compressor and by editing markers. Only the compressor's restart interval has no safe
//! binding, hence the one unsafe function.

#![expect(unsafe_code, reason = "the safe binding of the JPEG library cannot set a restart interval")]

use std::ffi::c_int;

use gristmill_ops::{Encoding, Op, Pipeline, Recipe, Scratch, Size, Stage};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

use crate::making::{LIMITS, SUBSAMPLINGS, draw, jpeg, recipe, run, texture};
use crate::stages::agree;

/// A JPEG of [`texture`] with a restart marker after so many MCUs.
fn with_restarts(width: usize, height: usize, mcus: c_int, progressive: bool) -> Vec<u8> {
    use turbojpeg::raw;
    let pixels = texture(width, height, 9);
    let (mut result, mut length) = (std::ptr::null_mut::<u8>(), 0);
    // SAFETY: `pixels` holds `height` rows of `3 * width` bytes; the library allocates the result, which is copied
    // before it is freed, and the handle is not used after it is destroyed.
    unsafe {
        let handle = raw::tj3Init(raw::TJINIT_TJINIT_COMPRESS as c_int);
        for (parameter, value) in [
            (raw::TJPARAM_TJPARAM_QUALITY, 80),
            (raw::TJPARAM_TJPARAM_SUBSAMP, Subsamp::Sub2x2 as c_int),
            (raw::TJPARAM_TJPARAM_RESTARTBLOCKS, mcus),
            (raw::TJPARAM_TJPARAM_PROGRESSIVE, c_int::from(progressive)),
        ] {
            assert_eq!(raw::tj3Set(handle, parameter as c_int, value), 0);
        }
        let (columns, rows, format) = (width as c_int, height as c_int, raw::TJPF_TJPF_RGB as c_int);
        let status = raw::tj3Compress8(
            handle,
            pixels.as_ptr(),
            columns,
            0,
            rows,
            format,
            &raw mut result,
            &raw mut length,
        );
        assert_eq!(status, 0);
        let data = std::slice::from_raw_parts(result, length as usize).to_vec();
        raw::tj3Free(result.cast());
        raw::tj3Destroy(handle);
        data
    }
}

/// The segment put right after the start of the file, where another comment may follow it.
fn with_segment(data: &[u8], marker: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16 + 2).to_be_bytes();
    [&data[..2], &[0xFF, marker], &length, body, &data[2..]].concat()
}

fn with_orientation(data: &[u8], orientation: u8, big: bool) -> Vec<u8> {
    let exif: Vec<u8> = if big {
        [&b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"[..], &[orientation], &[0; 6]].concat()
    } else {
        [&b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"[..], &[orientation], &[0; 7]].concat()
    };
    with_segment(data, 0xE1, &exif)
}

/// With an Adobe marker in place of the JFIF one: the colours are then what it says.
fn with_adobe(data: &[u8], transform: u8) -> Vec<u8> {
    assert_eq!(data[2..4], [0xFF, 0xE0]);
    let bare = [&data[..2], &data[20..]].concat();
    with_segment(&bare, 0xEE, &[b"Adobe\0d\0\0\0\0", &[transform][..]].concat())
}

fn frame_of(data: &[u8]) -> usize {
    let is_frame = |pair: &[u8]| pair[0] == 0xFF && matches!(pair[1], 0xC0..=0xC2);
    data.windows(2).position(is_frame).unwrap()
}

/// The scans of a progressive picture but the last so many.
fn without_scans(data: &[u8], missing: usize) -> Vec<u8> {
    let scans: Vec<usize> = (0..data.len() - 1).filter(|at| data[*at..*at + 2] == [0xFF, 0xDA]).collect();
    // The tables of a scan come before it: the end marker goes where the first of them is.
    let mut end = scans[scans.len() - missing];
    while let Some(table) =
        (0..end).rev().find(|at| data[*at..*at + 2] == [0xFF, 0xC4]).filter(|at| *at > scans[0])
    {
        let length = usize::from(u16::from_be_bytes([data[table + 2], data[table + 3]]));
        if table + 2 + length != end {
            break;
        }
        end = table;
    }
    [&data[..end], &[0xFF, 0xD9]].concat()
}

fn compressed(format: PixelFormat, set: impl FnOnce(&mut Compressor)) -> Vec<u8> {
    let pixels = texture(200, 200, 5);
    let (width, height) = (150, 120);
    let mut compressor = Compressor::new().unwrap();
    compressor.set_subsamp(Subsamp::None).unwrap();
    set(&mut compressor);
    let pitch = width * format.size();
    compressor
        .compress_to_vec(Image { pixels: &pixels[..pitch * height], width, pitch, height, format })
        .unwrap()
}

/// Small enough that a cut of any of the pictures below is smaller than the picture.
fn crop() -> Pipeline {
    let crop = Op::RandomCrop { size: Size::Exact([20, 24]), padding: 0 };
    Pipeline::new(&recipe([crop, Op::Flip { probability: 0.5 }]), Encoding::Sniffed, LIMITS).unwrap()
}

fn check(what: &str, data: &[u8], can_cut: bool) {
    let (pipeline, mut scratch) = (crop(), Scratch::new());
    let facts = pipeline.facts(data);
    for sample in 0..12 {
        let reached = agree(&pipeline, &mut scratch, draw(sample), data, what);
        assert_eq!(reached.contains(&Stage::Cut), can_cut, "{what}: {reached:?}, {facts:?}");
    }
}

#[test]
fn kinds_of_jpeg() {
    let plain = jpeg(400, 300, Subsamp::Sub2x2, false, 1);
    let progressive = jpeg(400, 300, Subsamp::Sub2x2, true, 1);
    check("baseline", &plain, true);
    check("progressive", &progressive, true);
    for mcus in [1, 12, 25, 40] {
        for progressive in [false, true] {
            check(&format!("restarts every {mcus}"), &with_restarts(400, 300, mcus, progressive), true);
        }
    }
    for orientation in 1..=8 {
        for big in [false, true] {
            let data = with_orientation(&plain, orientation, big);
            check(&format!("orientation {orientation}"), &data, orientation == 1);
        }
    }
    check("EXIF that ends early", &with_segment(&plain, 0xE1, b"Exif\0\0MM\0*\0\0\0\x08\xFF\xFF"), true);
    for transform in 0..=2 {
        // 2 means inks, of which there are four: the library warns.
        check(&format!("Adobe {transform}"), &with_adobe(&plain, transform), transform < 2);
        check(
            &format!("Adobe {transform} beside JFIF"),
            &with_segment(&plain, 0xEE, &[b"Adobe\0d\0\0\0\0", &[transform][..]].concat()),
            true,
        );
    }
    check("comment", &with_segment(&plain, 0xFE, &vec![7; 60_000]), true);
    let arithmetic = compressed(PixelFormat::RGB, |c| c.set_arithmetic(true).unwrap());
    check("arithmetic", &arithmetic, true);
    check(
        "RGB",
        &compressed(PixelFormat::RGB, |c| c.set_colorspace(turbojpeg::Colorspace::RGB).unwrap()),
        true,
    );
    check(
        "CMYK",
        &compressed(PixelFormat::CMYK, |c| c.set_colorspace(turbojpeg::Colorspace::CMYK).unwrap()),
        false,
    );
    check(
        "YCCK",
        &compressed(PixelFormat::CMYK, |c| c.set_colorspace(turbojpeg::Colorspace::YCCK).unwrap()),
        false,
    );
    check("lossless", &compressed(PixelFormat::RGB, |c| c.set_lossless(true).unwrap()), false);
    let mut unusual = jpeg(128, 96, Subsamp::None, false, 2);
    let frame = frame_of(&unusual);
    (0..3).for_each(|component| unusual[frame + 11 + 3 * component] = 0x21);
    check("the same factors for all", &unusual, false);
}

/// What never becomes a picture stays raw at every stage, and whoever finishes it says why.
#[test]
fn what_cannot_be_decoded() {
    let plain = jpeg(400, 300, Subsamp::Sub2x2, false, 1);
    let frame = frame_of(&plain);
    let edited = |at: usize, bytes: &[u8]| {
        let mut data = plain.clone();
        data[frame + at..frame + at + bytes.len()].copy_from_slice(bytes);
        data
    };
    let table = [
        ("12 bits", edited(4, &[12])),
        ("absurd", edited(5, &[0xFE; 4])),
        ("no rows", edited(5, &[0; 2])),
        ("truncated", plain[..plain.len() / 2].to_vec()),
        ("no end", plain[..plain.len() - 2].to_vec()),
        ("only a start", plain[..3].to_vec()),
        ("an end before any scan", [&plain[..20], &[0xFF, 0xD9], &plain[20..]].concat()),
        ("text", b"hello".to_vec()),
        ("nothing", Vec::new()),
    ];
    let (pipeline, mut scratch, mut form) = (crop(), Scratch::new(), vec![1]);
    for (what, data) in table {
        assert!(run(&pipeline, draw(0), &data).is_err(), "{what}");
        for stage in Stage::ALL {
            let advanced = pipeline.advance(&mut scratch, draw(0), &data, stage, &mut form);
            assert_eq!((advanced.stage, form.len()), (Stage::Raw, 0), "{what}: {}", stage.name());
        }
    }
}

/// A file without its own tables must not be read with those of the picture before it.
#[test]
fn pictures_do_not_lend_tables() {
    let plain = compressed(PixelFormat::RGB, |c| c.set_optimize(true).unwrap());
    let (pipeline, mut scratch) = (crop(), Scratch::new());
    let mut out = vec![0; pipeline.output().bytes()];
    for table in [0xDB, 0xC4] {
        let mut bare = plain.clone();
        // Under another name it is a segment that nobody reads.
        for at in 0..400 {
            if bare[at..at + 2] == [0xFF, table] {
                bare[at + 1] = 0xEB;
            }
        }
        let first = pipeline.run(&mut scratch, draw(1), &bare, &mut out).map(|_| out.clone());
        pipeline.run(&mut scratch, draw(1), &plain, &mut out).unwrap();
        assert!(first.as_ref().ok() != Some(&out), "{table:x}");
        let again = pipeline.run(&mut scratch, draw(1), &bare, &mut out).map(|_| out.clone());
        assert!(first == again, "{table:x}");
    }
}

/// Damage that the library only warns about: pixels come out of it, and they must be the same ones everywhere.
#[test]
fn damaged_scans_are_not_cut() {
    for progressive in [false, true] {
        let plain = jpeg(400, 300, Subsamp::Sub2x2, progressive, 1);
        let mut fallen = 0;
        for at in [300, 500, 700, 900] {
            let mut data = plain.clone();
            let at = data.len() * at / 1000;
            data[at..at + 3].copy_from_slice(&[0xFF, 0xD3, 0x55]);
            let reached = agree(&crop(), &mut Scratch::new(), draw(2), &data, &format!("damage at {at}"));
            fallen += usize::from(!reached.contains(&Stage::Cut));
        }
        assert!(fallen > 2, "{fallen} of 4 damaged pictures fell back");
    }
}

/// A decoder makes up for missing scans by smoothing; a cut would not be smoothed.
#[test]
fn missing_scans_are_not_cut() {
    let data = jpeg(400, 300, Subsamp::Sub2x2, true, 1);
    for missing in 1..=7 {
        check(&format!("{missing} scans are missing"), &without_scans(&data, missing), false);
    }
}

#[test]
fn sizes_around_mcu_borders() {
    let train = Recipe::preset("imagenet-train").unwrap();
    let train = Pipeline::new(&train, Encoding::Sniffed, LIMITS).unwrap();
    let one = recipe([Op::RandomCrop { size: Size::Side(1), padding: 0 }]);
    let one = Pipeline::new(&one, Encoding::Sniffed, LIMITS).unwrap();
    let mut scratch = Scratch::new();
    let mut cuts = 0;
    let sizes =
        [(1, 1), (7, 13), (15, 17), (16, 16), (31, 33), (33, 31), (63, 65), (65, 64), (97, 129), (255, 257)];
    for (i, (width, height)) in sizes.into_iter().enumerate() {
        for subsampling in SUBSAMPLINGS {
            let data = jpeg(width, height, subsampling, i % 2 == 1, i as u64);
            let what = format!("{width} x {height}, {subsampling:?}");
            agree(&train, &mut scratch, draw(i as u32), &data, &what);
            for sample in 0..8 {
                let reached = agree(&one, &mut scratch, draw(sample), &data, &what);
                cuts += usize::from(reached.contains(&Stage::Cut));
            }
        }
    }
    assert!(cuts > 100, "{cuts} cuts");
}
