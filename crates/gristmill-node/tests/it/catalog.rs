//! Catalogs end to end: generated data sets on disk and in memory, the file, and what goes wrong.

mod bad_input;
mod builders;
mod checks;
mod format;
mod real;
mod remote;

use gristmill_core::SampleId;
use gristmill_node::catalog::{self, BuildOptions, Catalog, Draft, Source, SourceKind};
use gristmill_node::store::{LocalStore, MemoryStore};
use gristmill_node::{Error, Result};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The files of a data set: name and content.
type Files = Vec<(String, Vec<u8>)>;

fn files(pairs: &[(&str, &[u8])]) -> Files {
    pairs.iter().map(|(name, bytes)| ((*name).to_string(), bytes.to_vec())).collect()
}

fn on_disk(files: &Files) -> TempDir {
    let folder = tempfile::Builder::new().prefix("data").tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn local(folder: &Path, object: Option<&str>) -> Source {
    Source {
        store: Arc::new(LocalStore::new(folder).unwrap()),
        root_url: folder.display().to_string(),
        object: object.map(Into::into),
        kind: None,
    }
}

fn memory(files: &Files, object: Option<&str>) -> Source {
    Source {
        store: Arc::new(MemoryStore::new(files.clone())),
        root_url: "memory://set".into(),
        object: object.map(Into::into),
        kind: None,
    }
}

fn build(source: &Source, options: &BuildOptions) -> Result<Draft> {
    catalog::build(source, options, &mut |_| ControlFlow::Continue(()))
}

/// Builds from disk and from memory, sees that both are the same data set, and opens the written file.
fn both(files: &Files, object: Option<&str>, options: &BuildOptions) -> Catalog {
    let folder = on_disk(files);
    let from_disk = build(&local(folder.path(), object), options).unwrap();
    let from_memory = build(&memory(files, object), options).unwrap();
    assert_eq!(from_disk.digest(), from_memory.digest(), "where the data lies is no part of its name");
    let path = folder.path().join("set.grist");
    from_disk.write(&path).unwrap();
    let opened = Catalog::open(&path).unwrap();
    let in_memory = from_memory.into_catalog().unwrap();
    assert_eq!(opened.digest(), in_memory.digest());
    assert_eq!(opened.labels().unwrap(), in_memory.labels().unwrap());
    assert_eq!(opened.sizes().unwrap(), in_memory.sizes().unwrap());
    opened
}

/// The sentence a build fails with, on disk; with its hint.
fn refusal(source: &Source) -> String {
    told(&build(source, &BuildOptions::default()).unwrap_err())
}

fn told(error: &Error) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.ends_with('.'), "one sentence: {text}");
    error.remedy().map_or(text.clone(), |hint| format!("{text}; {hint}"))
}

/// The bytes of every sample, read through the catalog.
fn contents(catalog: &Catalog, files: &Files) -> Vec<Vec<u8>> {
    (0..catalog.len())
        .map(|id| {
            let place = catalog.locate(SampleId(id)).unwrap();
            let (_, stored) = files.iter().find(|(name, _)| name == place.name).unwrap();
            let facts = catalog.object(place.object).unwrap();
            let inside = if catalog.gzip() {
                catalog::inflate(stored, facts.inflated_bytes).unwrap()
            } else {
                stored.clone()
            };
            inside[place.range.start as usize..place.range.end as usize].to_vec()
        })
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A tar file of members, closed with its end mark.
fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

/// idx pictures of 2 x 3 pixels, numbered through.
fn idx_images(count: u32) -> Vec<u8> {
    let header = [0x0803, count, 3, 2].into_iter().flat_map(u32::to_be_bytes);
    header.chain((0..count * 6).map(|at| at as u8)).collect()
}

fn idx_labels(labels: &[u8]) -> Vec<u8> {
    let header = [0x0801, labels.len() as u32].into_iter().flat_map(u32::to_be_bytes);
    header.chain(labels.iter().copied()).collect()
}

/// CIFAR records with `label_bytes` labels each, the last of which is given.
fn cifar(label_bytes: usize, labels: &[u8]) -> Vec<u8> {
    let record = |label: &u8| {
        let mut record = vec![9; label_bytes - 1];
        record.push(*label);
        record.resize(label_bytes + 3_072, *label);
        record
    };
    labels.iter().flat_map(record).collect()
}

fn kind_of(files: &Files, object: Option<&str>) -> SourceKind {
    build(&memory(files, object), &BuildOptions::default()).unwrap().kind()
}
