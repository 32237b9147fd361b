//! What each form of a sample costs: bytes on the wire, CPU to make it, CPU to finish it.
//!
//! `forms TAR [EPOCHS]` takes every JPEG of a tar through `imagenet-train` at every stage, with another draw in every
//! epoch, and prints one JSON line per stage: the mean bytes, the share of samples that reached it, the CPU time on
//! either side; then the traffic of choosing the smallest form for each sample.

use std::io::Read;

use gristmill_core::SampleId;
use gristmill_ops::{Draw, Encoding, Limits, Pipeline, Recipe, Scratch, Stage};
use serde_json::json;

const LIMITS: Limits = Limits { pixels_max: 1 << 26, scratch_bytes_max: 1 << 30 };

type Failure = Box<dyn std::error::Error>;

#[derive(Default)]
struct Sums {
    reached: u64,
    bytes: u64,
    advance_ms: f64,
    finish_ms: f64,
}

#[expect(clippy::print_stdout, reason = "the result is what the program is for")]
fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: forms TAR [EPOCHS]")?;
    let epochs: u64 = arguments.next().map_or(Ok(3), |epochs| epochs.parse())?;
    let files = jpegs(&path)?;
    let pipeline = Pipeline::new(&Recipe::preset("imagenet-train")?, Encoding::Sniffed, LIMITS)?;
    let mut scratch = Scratch::new();
    let mut out = vec![0_f32; pipeline.output().bytes() / 4];
    let mut expected = out.clone();
    let mut sums: [Sums; 7] = Default::default();
    let (mut raw, mut form) = (0_u64, Vec::new());
    // The smallest of the forms up to: raw or cropped; raw or cut; all without packed; all.
    let mut smallest = [0_u64; 4];
    for epoch in 0..epochs {
        for (i, bytes) in files.iter().enumerate() {
            let draw = Draw { seed: 1, epoch, sample: SampleId(u32::try_from(i)?) };
            raw += bytes.len() as u64;
            pipeline.run(&mut scratch, draw, bytes, bytemuck::cast_slice_mut(&mut expected))?;
            let mut sizes = [bytes.len() as u64; 7];
            for stage in Stage::ALL {
                let sum = &mut sums[stage as usize];
                let advanced = pipeline.advance(&mut scratch, draw, bytes, stage, &mut form);
                let form = if advanced.stage == Stage::Raw { bytes } else { &form };
                sizes[stage as usize] = form.len() as u64;
                sum.reached += u64::from(advanced.stage == stage);
                sum.bytes += form.len() as u64;
                sum.advance_ms += advanced.cpu_ns as f64 / 1e6;
                let begin = cpu_ms();
                pipeline.run_from(
                    &mut scratch,
                    draw,
                    advanced.stage,
                    form,
                    bytemuck::cast_slice_mut(&mut out),
                )?;
                sum.finish_ms += cpu_ms() - begin;
                if stage != Stage::Lossy && out != expected {
                    return Err(format!("other pixels from {} in picture {i}", stage.name()).into());
                }
            }
            let size = |stage: Stage| sizes[stage as usize];
            let cropped = size(Stage::Raw).min(size(Stage::Cropped));
            let cut = size(Stage::Raw).min(size(Stage::Cut));
            for (sum, bytes) in smallest.iter_mut().zip([
                cropped,
                cut,
                cropped.min(cut),
                cropped.min(cut).min(size(Stage::Packed)),
            ]) {
                *sum += bytes;
            }
        }
    }
    let samples = files.len() as f64 * epochs as f64;
    for (stage, sum) in Stage::ALL.into_iter().zip(&sums) {
        println!(
            "{}",
            json!({
                "stage": stage.name(),
                "reached": sum.reached as f64 / samples,
                "bytes": (sum.bytes as f64 / samples).round(),
                "advance_cpu_ms": sum.advance_ms / samples,
                "finish_cpu_ms": sum.finish_ms / samples,
            })
        );
    }
    let [cropped, cut, unpacked, all] = smallest.map(|bytes| raw as f64 / bytes as f64);
    println!(
        "{}",
        json!({
            "samples": samples,
            "raw_over_smallest": {
                "raw, cropped": cropped, "raw, cut": cut, "raw, cut, cropped": unpacked, "raw, cut, cropped, packed": all,
            },
        })
    );
    Ok(())
}

fn jpegs(path: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let mut files = Vec::new();
    for entry in tar::Archive::new(std::fs::File::open(path)?).entries()? {
        let mut bytes = Vec::new();
        entry?.read_to_end(&mut bytes)?;
        if bytes.starts_with(&[0xFF, 0xD8]) {
            files.push(bytes);
        }
    }
    if files.is_empty() { Err(format!("{path} has no JPEG").into()) } else { Ok(files) }
}

fn cpu_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
