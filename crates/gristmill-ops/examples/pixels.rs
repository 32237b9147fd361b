//! Runs recipes over files and writes the resulting bytes, for comparison with another implementation.
//!
//! Reads one job per line from standard input:
//! `{"file": "a.jpg", "recipe": "imagenet-train" or {"op": [...]}, "size": [rows, columns], "sample": 0, "out": "a.raw"}`
//! and answers with one line each: `{"shape": [...], "box": [x, y, width, height]}` or `{"error": "..."}`. `size` is
//! that of the file; `box` is the part of it that the recipe looked at. Seed and epoch are 0 unless given.

use std::io::{BufRead, Write};

use gristmill_core::SampleId;
use gristmill_ops::{Draw, Encoding, Limits, Pipeline, Recipe, Scratch};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut scratch = Scratch::new();
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = run(&line?, &mut scratch).unwrap_or_else(|error| json!({ "error": error.to_string() }));
        writeln!(answers, "{answer}")?;
    }
    Ok(())
}

fn run(line: &str, scratch: &mut Scratch) -> Result<Value, Failure> {
    let job: Value = serde_json::from_str(line)?;
    let text = |key: &str| job[key].as_str().ok_or(format!("{key} is missing"));
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let recipe = match &job["recipe"] {
        Value::String(name) => Recipe::preset(name)?,
        inline => Recipe::parse(&inline.to_string())?,
    };
    let limits = Limits { pixels_max: 1 << 26, scratch_bytes_max: 1 << 30 };
    let pipeline = Pipeline::new(&recipe, Encoding::Sniffed, limits)?;
    let draw = Draw {
        seed: number(&job["seed"]),
        epoch: number(&job["epoch"]),
        sample: SampleId(u32::try_from(number(&job["sample"]))?),
    };
    let bytes = std::fs::read(text("file")?)?;
    let mut out = vec![0_f32; pipeline.output().bytes().div_ceil(4)];
    let out = &mut bytemuck::cast_slice_mut::<f32, u8>(&mut out)[..pipeline.output().bytes()];
    pipeline.run(scratch, draw, &bytes, out)?;
    std::fs::write(text("out")?, out)?;
    let [rows, columns] = [0, 1].map(|i| number(&job["size"][i]));
    let part = pipeline.region(draw, u32::try_from(columns)?, u32::try_from(rows)?)?;
    Ok(json!({
        "shape": pipeline.output().shape(),
        "box": [part.x, part.y, part.width, part.height],
    }))
}
