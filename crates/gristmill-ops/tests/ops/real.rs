//! Real photographs: every JPEG at every stage, with a draw of its own.
//!
//! The shipped photos always; larger sets where they are present (`GRISTMILL_DATA`).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use gristmill_core::SampleId;
use gristmill_ops::{Draw, Encoding, Pipeline, Recipe, Scratch, Stage};
use gristmill_testdata::{external, shippable};

use crate::making::LIMITS;
use crate::stages::agree;

fn jpegs(tar: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in tar::Archive::new(File::open(tar).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        if bytes.starts_with(&[0xFF, 0xD8, 0xFF]) {
            files.push((name, bytes));
        }
    }
    files
}

/// Every `step`-th picture of a tar through `imagenet-train`, with so many draws; the share of them that was cut.
fn check(tar: &Path, step: usize, draws: u64) -> f64 {
    let pipeline =
        Pipeline::new(&Recipe::preset("imagenet-train").unwrap(), Encoding::Sniffed, LIMITS).unwrap();
    let mut scratch = Scratch::new();
    let (mut cut, mut all) = (0_usize, 0_usize);
    for (i, (name, bytes)) in jpegs(tar).iter().enumerate().step_by(step) {
        for epoch in 0..draws {
            let draw = Draw { seed: 11, epoch, sample: SampleId(i as u32) };
            let reached = agree(&pipeline, &mut scratch, draw, bytes, name);
            cut += usize::from(reached.contains(&Stage::Cut));
            all += 1;
        }
    }
    assert!(all > 0, "{} has no JPEG", tar.display());
    cut as f64 / all as f64
}

#[test]
fn shipped_photos() {
    let share = check(&shippable().join("cc0-photos.tar"), 1, 6);
    assert!(share > 0.9, "{share}");
}

#[test]
fn imagenet() {
    if let Some(tar) = external("imagenet-sample/images.tar") {
        let share = check(&tar, 1, 2);
        assert!(share > 0.9, "{share}");
    }
}

#[test]
fn imagenette() {
    if let Some(tar) = external("imagenette-224/images.tar") {
        check(&tar, 4, 1);
    }
}

#[test]
fn large_photos() {
    if let Some(tar) = external("large-photos/images.tar") {
        let share = check(&tar, 1, 1);
        assert!(share > 0.8, "{share}");
    }
}
