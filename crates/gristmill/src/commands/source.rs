//! From what was typed to data that can be trained on: a data set, its near-duplicates, the test data beside it.

use super::catalogued;
use crate::args::Kind;
use crate::output::{counted, say};
use crate::progress::{Progress, Unit};
use crate::stop;
use anyhow::Result;
use gristmill_core::family::Families;
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::families::{self, FamilyOptions};
use gristmill_node::open::{self, Provenance};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a source is to be opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    /// What it is, if that was said.
    pub(super) kind: Option<Kind>,
    /// Whether its catalog is built anew.
    pub(super) rebuild: bool,
    /// Whether to say nothing.
    pub(super) quiet: bool,
}

/// An open data set, and where its catalog lies.
pub(super) struct Source {
    pub(super) set: Arc<DataSet>,
    catalog: PathBuf,
}

impl Source {
    /// The data set of what was typed; its catalog is built if there is none.
    pub(super) fn open(typed: &str, asked: Asked, config: &Config) -> Result<Source> {
        let opened = catalogued(typed, asked.kind, config, Some(asked.rebuild), asked.quiet)?;
        let catalog = match &opened.provenance {
            Provenance::Given => PathBuf::from(typed),
            Provenance::Kept(path) | Provenance::Built(path) => path.clone(),
        };
        let set = Arc::new(open::data_set(opened.catalog, config.settings(), &stop::asked)?);
        Ok(Source { set, catalog })
    }

    /// Its near-duplicates, if they were found before.
    pub(super) fn known_families(&self) -> Option<Arc<Families>> {
        let path = families::kept_path(&self.catalog);
        let found = families::open(&path, self.set.catalog(), FamilyOptions::default());
        found.ok().flatten().map(|found| Arc::new(found.families))
    }

    /// Its near-duplicates; every sample is hashed if that was not done before.
    pub(super) fn families(&self, config: &Config, quiet: bool) -> Result<Arc<Families>> {
        let (path, loader) = (families::kept_path(&self.catalog), config.settings().loader());
        let mut bar = Progress::new("families", quiet);
        let unit = Unit::Things("sample", "samples", "hashed");
        let found = families::open_or_build(&path, &self.set, FamilyOptions::default(), &loader, &mut |at| {
            bar.at(at.done, Some(at.total), unit, String::new);
            !stop::asked()
        });
        bar.done();
        stop::check()?;
        let families = found?.families;
        if !quiet {
            let groups = counted(families.len() as u64, "family", "families");
            say(format_args!(
                "{groups} of near-duplicates, {} in all",
                counted(families.grouped() as u64, "sample", "samples")
            ));
        }
        Ok(Arc::new(families))
    }
}

/// Test data that lies beside local training data under a usual name: the same name with `t10k`, `test` or `val` for
/// `train`, or inside of a folder the test files of MNIST and CIFAR.
pub(super) fn test_beside(source: &str) -> Option<PathBuf> {
    let path = Path::new(source.strip_prefix("file://").unwrap_or(source));
    if path.is_dir() {
        let inside = [
            "t10k-images-idx3-ubyte.gz",
            "t10k-images-idx3-ubyte",
            "test-images-idx3-ubyte.gz",
            "test-images-idx3-ubyte",
            "test_batch.bin",
            "test.bin",
        ];
        if let Some(found) = inside.iter().map(|file| path.join(file)).find(|file| file.is_file()) {
            return Some(found);
        }
    }
    let last = path.file_name()?.to_str().filter(|last| last.contains("train"))?;
    let names = ["t10k", "test", "val"].map(|other| last.replace("train", other));
    names.iter().map(|other| path.with_file_name(other)).find(|other| other.exists())
}

/// The training and test pictures that are shipped: under `data/shippable` here, beside the program, or above either.
pub(super) fn shipped() -> Option<(PathBuf, PathBuf)> {
    let places = [std::env::current_dir().ok(), std::env::current_exe().ok()];
    places.iter().flatten().flat_map(|place| place.ancestors()).find_map(|folder| {
        let file = |part: &str| {
            folder.join("data/shippable").join(format!("fashion-mnist-{part}-images-idx3-ubyte.gz"))
        };
        let (train, test) = (file("4000-train"), file("1000-test"));
        (train.is_file() && test.is_file()).then_some((train, test))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn test_data_is_found_under_usual_names_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for file in [
            "mnist/t10k-images-idx3-ubyte.gz",
            "mnist/train-images-idx3-ubyte.gz",
            "photos/train/a",
            "photos/val/a",
        ] {
            fs::create_dir_all(path(file).parent().unwrap()).unwrap();
            fs::write(path(file), "").unwrap();
        }
        let found = |name: &str| test_beside(path(name).to_str().unwrap());
        let t10k = Some(path("mnist/t10k-images-idx3-ubyte.gz"));
        assert_eq!(found("mnist"), t10k);
        assert_eq!(found("mnist/train-images-idx3-ubyte.gz"), t10k);
        assert_eq!(found("photos/train"), Some(path("photos/val")));
        assert_eq!((found("photos"), found("mnist/t10k-images-idx3-ubyte.gz")), (None, None));
        assert_eq!(test_beside("s3://bucket/train"), None);
    }
}
