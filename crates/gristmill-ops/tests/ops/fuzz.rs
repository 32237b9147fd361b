//! Thousands of damaged JPEGs, and damaged forms of sound ones: no panic, no other pixels, bounded memory.
//!
//! A few thousand cases by default; `GRISTMILL_FUZZ_CASES=100000` (with `--release`) makes it a long run. The same
//! number gives the same cases.

use gristmill_core::rng::{Stream, key};
use gristmill_ops::{Encoding, Limits, Op, Pipeline, Recipe, Scratch, Size, Stage};
use turbojpeg::Subsamp;

use crate::making::{SUBSAMPLINGS, draw, jpeg, recipe};

/// Small, so that a header that asks for too much is refused by them.
const LIMITS: Limits = Limits { pixels_max: 1 << 20, scratch_bytes_max: 1 << 24 };

fn cases(default: u64) -> u64 {
    std::env::var("GRISTMILL_FUZZ_CASES").map_or(default, |cases| cases.parse().unwrap())
}

fn below(stream: &mut Stream, end: usize) -> usize {
    stream.below(end as u64) as usize
}

/// Damages a few bytes, or a part, or what a header says.
fn mutate(data: &mut Vec<u8>, stream: &mut Stream) {
    for _ in 0..=below(stream, 3) {
        if data.len() < 4 {
            return;
        }
        let at = below(stream, data.len());
        match below(stream, 9) {
            0 | 1 => data[at] = stream.below(256) as u8,
            2 => data[at] ^= 1 << stream.below(8),
            // In the headers, where a byte means more.
            3 | 4 => {
                let at = below(stream, data.len().min(620));
                data[at] = stream.below(256) as u8;
            }
            5 => data.truncate(at),
            6 => {
                let end = (at + below(stream, 40)).min(data.len());
                data.drain(at..end);
            }
            7 => {
                let end = (at + below(stream, 200)).min(data.len());
                let part = data[at..end].to_vec();
                let to = below(stream, data.len());
                data.splice(to..to, part);
            }
            _ => {
                let marker = [0xD9, 0xDA, 0xD0, 0xC4, 0xDB, 0xC0, 0xC2, 0xDD, 0xFF][below(stream, 9)];
                data.splice(at..at, [0xFF, marker]);
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (i, subsampling) in SUBSAMPLINGS.into_iter().enumerate() {
        seeds.push(jpeg(90 + i, 70, subsampling, false, i as u64));
        seeds.push(jpeg(90, 70 + i, subsampling, true, i as u64));
    }
    seeds.push(jpeg(200, 160, Subsamp::Sub2x2, false, 1));
    seeds.push(jpeg(200, 160, Subsamp::Sub2x2, true, 1));
    seeds
}

fn pipelines() -> [Pipeline; 2] {
    let small = recipe([Op::RandomCrop { size: Size::Side(20), padding: 2 }, Op::Flip { probability: 0.5 }]);
    let resized = Recipe {
        ops: vec![
            Op::Decode,
            Op::RandomResizedCrop { size: Size::Side(16), scale: [0.08, 1.0], ratio: [0.75, 1.33] },
            Op::Flip { probability: 0.5 },
            Op::ToTensor { dtype: gristmill_ops::Dtype::F32, layout: gristmill_ops::Layout::Nchw },
        ],
    };
    [small, resized].map(|recipe| Pipeline::new(&recipe, Encoding::Sniffed, LIMITS).unwrap())
}

#[test]
fn damaged_jpegs_at_every_stage() {
    let (seeds, pipelines, mut scratch, mut form) = (seeds(), pipelines(), Scratch::new(), Vec::new());
    let mut cut = 0;
    let cases = cases(3_000);
    for case in 0..cases {
        let mut stream = Stream::from_key(key(&[1, case]));
        let mut data = seeds[below(&mut stream, seeds.len())].clone();
        mutate(&mut data, &mut stream);
        let (pipeline, draw) = (&pipelines[case as usize % 2], draw(case as u32));
        let length = pipeline.output().bytes();
        let mut numbers = vec![0_f32; length.div_ceil(4) * 2];
        let (expected, out) =
            bytemuck::cast_slice_mut::<f32, u8>(&mut numbers).split_at_mut(length.next_multiple_of(4));
        let (expected, out) = (&mut expected[..length], &mut out[..length]);
        let ran = pipeline.run(&mut scratch, draw, &data, expected);
        for stage in Stage::ALL {
            let advanced = pipeline.advance(&mut scratch, draw, &data, stage, &mut form);
            assert!(form.len() <= LIMITS.scratch_bytes_max, "case {case}: {} bytes", form.len());
            if advanced.stage == Stage::Raw {
                continue;
            }
            cut += u64::from(stage == Stage::Cut);
            let finished = pipeline.run_from(&mut scratch, draw, stage, &form, out);
            assert_eq!(finished.is_ok(), ran.is_ok(), "case {case}: {} {finished:?}", stage.name());
            assert!(
                ran.is_err() || stage == Stage::Lossy || out == expected,
                "case {case}: {}",
                stage.name()
            );
            // The form itself, damaged on its way: any pixels or an error.
            mutate(&mut form, &mut stream);
            let _ = pipeline.run_from(&mut scratch, draw, stage, &form, out);
        }
        assert!(scratch.held_bytes() < LIMITS.scratch_bytes_max * 2, "case {case}");
    }
    assert!(cut > cases / 50, "{cut} of {cases} were still cut");
}

/// Forms that were never made by the other half.
#[test]
fn arbitrary_forms() {
    let (pipelines, mut scratch) = (pipelines(), Scratch::new());
    for case in 0..cases(3_000) {
        let mut stream = Stream::from_key(key(&[2, case]));
        let pipeline = &pipelines[case as usize % 2];
        let mut form: Vec<u8> = (0..below(&mut stream, 600)).map(|_| stream.below(256) as u8).collect();
        if form.len() > 12 && case % 3 == 0 {
            form[8..11].copy_from_slice(&[0xFF, 0xD8, 0xFF]);
        }
        let mut numbers = vec![0_f32; pipeline.output().bytes().div_ceil(4)];
        let out = &mut bytemuck::cast_slice_mut::<f32, u8>(&mut numbers)[..pipeline.output().bytes()];
        for stage in Stage::ALL {
            let _ = pipeline.run_from(&mut scratch, draw(case as u32), stage, &form, out);
        }
    }
}
