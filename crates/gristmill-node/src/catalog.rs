//! Which samples a data set has, where each lies, and what the data set is called.
//!
//! A catalog is built once from data as users have it: class folders, a list file, tar shards, idx or CIFAR
//! binaries, on local disk or in an object store. [`build`] gives a [`Draft`] in memory, [`Draft::write`] puts it
//! into one checksummed file, and [`Catalog::open`] maps that file in microseconds whatever its size. Sample ids
//! are dense and depend on names only, never on the order of a listing or on where the data lies, so the same
//! data set has the same ids and the same [`Digest`] on disk and in a bucket.
//!
//! Deliberately not here: reading samples for training (the loader does), decoding them (a damaged picture is
//! found by whoever decodes it), and following a data set as it changes: a catalog is immutable, [`check`] says
//! when it no longer fits, and building it again is the remedy.

mod brace;
mod check;
mod cifar;
mod classes;
mod detect;
mod draft;
mod file;
mod folder;
mod gzip;
mod idx;
mod layout;
mod list;
mod members;
mod scan;
mod tar;
mod write;

pub use check::{CheckOptions, Finding, Findings, Found, check};
pub use draft::{Digest, Draft, SideFile};
pub use file::{Catalog, Location, ObjectFacts};
pub use gzip::inflate;
pub(crate) use layout::MAGIC;
pub use layout::VERSION;
pub use scan::{OnProgress, Progress, Step};
pub(crate) use write::replace;

use crate::Result;
use crate::store::Store;
use scan::Scan;
use std::fmt;
use std::sync::Arc;

/// The ways of laying out a data set that Gristmill understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// Pictures in one folder per class.
    Folder,
    /// A CSV or JSON-lines file of paths and labels.
    List,
    /// `WebDataset` tar shards.
    Tar,
    /// idx files, plain or gzip, as in the MNIST family.
    Idx,
    /// CIFAR-10 or CIFAR-100 binaries.
    Cifar,
}

impl SourceKind {
    /// All kinds, in the order they are documented.
    pub const ALL: [SourceKind; 5] =
        [SourceKind::Folder, SourceKind::List, SourceKind::Tar, SourceKind::Idx, SourceKind::Cifar];

    /// The kind's one word, as in the config and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SourceKind::Folder => "folder",
            SourceKind::List => "list",
            SourceKind::Tar => "tar",
            SourceKind::Idx => "idx",
            SourceKind::Cifar => "cifar",
        }
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for SourceKind {
    type Err = crate::Error;

    fn from_str(word: &str) -> Result<SourceKind> {
        SourceKind::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(|| {
            crate::Error::config(format!("{word:?} is not a kind of source"))
                .hint("use one of folder, list, tar, idx, cifar")
        })
    }
}

/// Where a data set lies.
#[derive(Debug, Clone)]
pub struct Source {
    /// The store whose root is the data set's folder.
    pub store: Arc<dyn Store>,
    /// The root as the user wrote it; it is kept in the catalog and must open the same store again.
    pub root_url: String,
    /// One file below the root, or a brace pattern of tar shards; `None` for the whole folder.
    pub object: Option<String>,
    /// How the data is laid out; `None` to find out.
    pub kind: Option<SourceKind>,
}

/// How a catalog is built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// Read every byte and keep a hash of each object, so that the digest and `check` see changed content.
    pub content: bool,
    /// Accept class folders without a picture; they keep their place among the labels.
    pub allow_empty_classes: bool,
    /// The list column (name, or number from 1) that holds the path.
    pub path_column: Option<String>,
    /// The list column (name, or number from 1) that holds the label.
    pub label_column: Option<String>,
    /// When the catalog is built, in seconds since 1970; only shown, never compared.
    pub built_unix_s: u64,
}

impl BuildOptions {
    /// Columns are a list's: choosing one of anything else would do nothing.
    fn refuse_columns(&self, source: &str) -> Result<()> {
        let chosen = [("--path-column", &self.path_column), ("--label-column", &self.label_column)];
        match chosen.iter().find(|(_, column)| column.is_some()) {
            None => Ok(()),
            Some((option, _)) => {
                Err(crate::Error::config(format!("{source} is not a list and has no columns"))
                    .hint(format!("leave {option} out, or name a .csv or .jsonl list")))
            }
        }
    }
}

/// Finds the samples of `source`. Blocks until done; `progress` may stop it.
pub fn build(source: &Source, options: &BuildOptions, progress: &mut OnProgress<'_>) -> Result<Draft> {
    scan::run(move || async move {
        let scan = Scan::new(source.store.as_ref(), &source.root_url, progress);
        let (found, notes) = detect::detect(&scan, source).await?;
        if !matches!(found, detect::Found::List(_)) {
            options.refuse_columns(&source.root_url)?;
        }
        let mut draft = match found {
            detect::Found::Folder(listing) => folder::build(&scan, listing, options)?,
            detect::Found::List(list) => list::build(&scan, &list, options).await?,
            detect::Found::Tar(shards) => tar::build(&scan, shards).await?,
            detect::Found::Idx(pairs) => idx::build(&scan, pairs).await?,
            detect::Found::Cifar(files) => cifar::build(&scan, files).await?,
        };
        draft.notes.splice(0..0, notes);
        draft.object.clone_from(&source.object);
        draft.built_unix_s = options.built_unix_s;
        if options.content && draft.contents.is_empty() {
            draft.contents = scan.hash_all(&draft.object_list()).await?;
        }
        draft.validate()?;
        Ok(draft)
    })
}
