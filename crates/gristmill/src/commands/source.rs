//! From what was typed to a data set, with a bar while its catalog is built.

use super::with_bar;
use crate::args::Kind;
use crate::output::{name, say};
use crate::stop;
use anyhow::Result;
use gristmill_node::catalog::{self, BuildOptions};
use gristmill_node::config::Settings;
use gristmill_node::dataset::DataSet;
use gristmill_node::open::{self, Looked, Provenance};
use std::path::{Path, PathBuf};

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

/// The data set of a source; its catalog is built if there is none.
pub(super) fn open(source: &str, asked: Asked, settings: &Settings) -> Result<DataSet> {
    let kind = asked.kind.map(Kind::source_kind);
    let opened = match open::look(source, kind, settings, asked.rebuild)? {
        Looked::There(opened) => opened,
        Looked::Missing { source, path } => {
            let options = BuildOptions { built_unix_s: open::now_unix_s(), ..BuildOptions::default() };
            let build =
                move |progress: &mut catalog::OnProgress<'_>| catalog::build(&source, &options, progress);
            open::keep(&with_bar("catalog", asked.quiet, build)?, path)?
        }
    };
    let catalog = opened.catalog;
    if !asked.quiet {
        match &opened.provenance {
            Provenance::Given => {}
            Provenance::Built(path) => say(format_args!("catalog written to {}", name(path.display()))),
            Provenance::Kept(path) => {
                say(format_args!(
                    "catalog from before: {} (--rebuild makes a new one)",
                    name(path.display())
                ));
            }
        }
        catalog.notes().iter().for_each(|note| say(format_args!("note: {}", name(note))));
    }
    Ok(open::data_set(catalog, settings, &stop::asked)?)
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
