//! From what a user types to a data set: a catalog and the store its samples lie in.
//!
//! A source is a catalog file, or data that is catalogued on first use. That catalog is kept in the catalog folder
//! under a name made from the source, and used again until it is rebuilt: reading then finds data that changed by
//! its size, and `gristmill catalog check` finds all of it.

use crate::access::{Access, Embedded};
use crate::catalog::{self, BuildOptions, Catalog, Draft, OnProgress, Source, SourceKind};
use crate::client::{Address, Client, ClientOptions};
use crate::config::{CacheSize, Settings, text};
use crate::dataset::DataSet;
use crate::families::{self, FamilyOptions, Hashing};
use crate::loader::{Loader, LoaderOptions};
use crate::node::Node;
use crate::selection::FamilyUse;
use crate::shared::{Shared, Upstream};
use crate::store;
use crate::{Error, Kind, Result};
use gristmill_core::family::Families;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// Endings by which a URL names one file instead of a folder.
const FILE_ENDINGS: [&str; 9] =
    [".tar", ".csv", ".tsv", ".jsonl", ".ndjson", ".bin", "-ubyte", "-ubyte.gz", ".idx"];

/// The largest recipe file that is read.
const RECIPE_BYTES_MAX: u64 = 1 << 20;

/// Where the catalog of a data set came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provenance {
    /// The user gave a catalog file.
    Given,
    /// It was built before and lies here.
    Kept(PathBuf),
    /// It was built now and lies here.
    Built(PathBuf),
}

/// A catalog, and where it came from.
#[derive(Debug)]
pub struct Opened {
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// Where it came from.
    pub provenance: Provenance,
}

impl Opened {
    /// Where the families of this data set are kept: beside its catalog.
    pub fn families_path(&self, source: &str) -> PathBuf {
        families::kept_path(match &self.provenance {
            Provenance::Given => Path::new(source),
            Provenance::Kept(path) | Provenance::Built(path) => path,
        })
    }
}

/// A loader as the settings say, with the families kept at `path` (or found now) if they ask for them.
pub fn loader(
    set: Arc<DataSet>,
    recipe: Option<&gristmill_ops::Recipe>,
    options: LoaderOptions,
    path: &Path,
    progress: &mut dyn FnMut(Hashing) -> bool,
) -> Result<Loader> {
    let found = relatives(&set, &options, path, progress)?;
    let loader = Loader::new(set, recipe, options)?;
    match found {
        Some(families) => loader.with_families(families),
        None => Ok(loader),
    }
}

/// The node that the settings ask for, as a job of this name sees it; none without a cache.
pub fn access(set: &Arc<DataSet>, settings: &Settings, job: &str) -> Result<Option<Arc<dyn Access>>> {
    settings.check_cache()?;
    if let CacheSize::Shared(url) = settings.cache_size() {
        let options = ClientOptions { job: job.to_string(), ..settings.client()? };
        return Ok(Some(Arc::new(Shared::join(url, options, Arc::clone(set))?)));
    }
    let Some(options) = settings.node(set.catalog().total_bytes()?) else { return Ok(None) };
    let node = Arc::new(Node::new(Arc::clone(set), options)?);
    Ok(Some(Arc::new(Embedded::join(node, job)?)))
}

/// The families of a data set, if the options ask for them.
pub fn relatives(
    set: &Arc<DataSet>,
    options: &LoaderOptions,
    path: &Path,
    progress: &mut dyn FnMut(Hashing) -> bool,
) -> Result<Option<Arc<Families>>> {
    if options.selection.families == FamilyUse::Off {
        return Ok(None);
    }
    let found = families::open_or_build(path, set, FamilyOptions::default(), options, progress)?;
    Ok(Some(Arc::new(found.families)))
}

/// What there is before anything is built.
#[derive(Debug)]
pub enum Looked {
    /// A catalog.
    There(Opened),
    /// Data without a catalog; one is kept at `path` once it is built.
    Missing {
        /// The data.
        source: Source,
        /// The place for its catalog.
        path: PathBuf,
    },
}

/// The catalog of `source`: the file itself if it is one, the one kept from before, or a new one.
pub fn catalog(
    source: &str,
    settings: &Settings,
    rebuild: bool,
    progress: &mut OnProgress<'_>,
) -> Result<Opened> {
    match look(source, None, settings, rebuild)? {
        Looked::There(opened) => Ok(opened),
        Looked::Missing { source, path } => {
            let options = BuildOptions { built_unix_s: now_unix_s(), ..BuildOptions::default() };
            keep(&catalog::build(&source, &options, progress)?, path)
        }
    }
}

/// The catalog of `source` if there is one, without building it; a kept one must be of the `kind`, if one is given.
pub fn look(source: &str, kind: Option<SourceKind>, settings: &Settings, rebuild: bool) -> Result<Looked> {
    if Address::is_node(source) {
        return from_node(source, settings).map(Looked::There);
    }
    if is_catalog(Path::new(source)) {
        if rebuild {
            return Err(Error::config(format!("{source} is a catalog and cannot be built from itself"))
                .hint("leave --rebuild out, or name the data set it was built from"));
        }
        let catalog = Arc::new(Catalog::open(Path::new(source))?);
        if let Some(kind) = kind.filter(|kind| *kind != catalog.kind()) {
            let is = catalog.kind();
            return Err(Error::config(format!("{source} is the catalog of a {is}, not of a {kind}"))
                .hint("leave --kind out"));
        }
        return Ok(Looked::There(Opened { catalog, provenance: Provenance::Given }));
    }
    let mut source = find(source, settings)?;
    source.kind = kind;
    let path = kept_path(&source, settings)?;
    if !rebuild && path.is_file() {
        // One that cannot be used any more (another version, a damaged disk) is simply built again.
        if let Ok(catalog) = Catalog::open(&path)
            && kind.is_none_or(|kind| kind == catalog.kind())
        {
            let opened = Opened { catalog: Arc::new(catalog), provenance: Provenance::Kept(path) };
            return Ok(Looked::There(opened));
        }
    }
    Ok(Looked::Missing { source, path })
}

/// The catalog of a node's data set: fetched once, then kept.
fn from_node(url: &str, settings: &Settings) -> Result<Opened> {
    let options = ClientOptions { job: "catalog".into(), peer: true, ..settings.client()? };
    let client = Client::connect(url, options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::io("start", "an I/O runtime", e))?;
    let path = runtime.block_on(client.catalog(&settings.catalog_folder()?))?;
    let catalog = Arc::new(Catalog::open(&path)?.served_by(url));
    Ok(Opened { catalog, provenance: Provenance::Kept(path) })
}

/// Writes a new catalog to its place and opens it.
pub fn keep(draft: &Draft, path: PathBuf) -> Result<Opened> {
    make_folder(&path)?;
    draft.write(&path)?;
    Ok(Opened { catalog: Arc::new(Catalog::open(&path)?), provenance: Provenance::Built(path) })
}

/// The data set of a catalog, reached as the settings say.
pub fn data_set(catalog: Arc<Catalog>, settings: &Settings, stop: &dyn Fn() -> bool) -> Result<DataSet> {
    if Address::is_node(catalog.source()) {
        let options = ClientOptions { digest: Some(catalog.digest()), ..settings.client()? };
        // The link to the node is what a throttled store would be.
        let throttle = settings.store().throttle.unwrap_or_default();
        if let Some(rate) = throttle.requests_per_s {
            return Err(Error::config(format!(
                "store.throttle_requests_per_s is {rate}, but {} is a node and no store",
                catalog.source()
            ))
            .hint("slow down the store behind the node: start the node with that setting"));
        }
        let options = ClientOptions {
            job: "data set".into(),
            throttle_bytes_per_s: throttle.bytes_per_s,
            throttle_latency_ms: throttle.latency_ms,
            ..options
        };
        let client = Client::connect(catalog.source(), options)?;
        let deadline = Duration::from_millis(settings.store().retry.deadline_ms);
        return Ok(DataSet::behind(catalog, Arc::new(Upstream::new(client, deadline))));
    }
    let store = store::open(catalog.source(), &settings.store())?;
    DataSet::new(catalog, store, settings.resident_bytes_max(), stop)
}

/// Takes apart what the user typed: which store, and which file in it if it names one.
pub fn find(source: &str, settings: &Settings) -> Result<Source> {
    let remote = source.contains("://") && !source.starts_with("file://");
    let braces = source.contains('{');
    let one_file = if remote {
        braces || FILE_ENDINGS.iter().any(|ending| source.to_ascii_lowercase().ends_with(ending))
    } else {
        let path = source.strip_prefix("file://").unwrap_or(source);
        match fs::metadata(path) {
            Ok(meta) => meta.is_file(),
            Err(_) if braces => true,
            Err(e) => return Err(Error::io("open", path, e).hint("check the spelling of the path")),
        }
    };
    let (root_url, object) = if one_file {
        let (root, object) = store::split(source)?;
        (root, Some(object))
    } else {
        (source.to_string(), None)
    };
    let store = store::open(&root_url, &settings.store())?;
    // A local root is kept in full, so that the catalog serves from any folder.
    let root_url = if remote { root_url } else { store.url() };
    Ok(Source { store, root_url, object, kind: None })
}

/// Where the catalog of a source is kept that was not given a place.
pub fn kept_path(source: &Source, settings: &Settings) -> Result<PathBuf> {
    let object = source.object.as_deref().unwrap_or("");
    let whole = format!("{}\n{object}", source.root_url.trim_end_matches('/'));
    let last = if object.is_empty() { &source.root_url } else { object };
    let last = last.trim_end_matches('/').rsplit('/').next().unwrap_or("data");
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = last.chars().take(40).map(plain).collect();
    Ok(settings.catalog_folder()?.join(format!("{name}-{:016x}.catalog", xxh3_64(whole.as_bytes()))))
}

/// Makes the folder a file is to be written into.
pub fn make_folder(path: &Path) -> Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|e| {
        Error::io("make the folder", folder.display(), e)
            .hint("choose another place with -o or catalog.folder")
    })
}

/// The time, for the one field of a catalog that says when it was built.
pub fn now_unix_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether a path is a file that begins like a catalog. Only a regular file is opened: a pipe may never answer.
fn is_catalog(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut magic = [0; catalog::MAGIC.len()];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    let named = path.extension().is_some_and(|ending| ending == "catalog");
    named || (read.is_ok() && magic == catalog::MAGIC)
}

/// Reads a recipe by its preset's name or from a file; `none` or nothing is no recipe.
pub fn recipe(name: &str) -> Result<Option<gristmill_ops::Recipe>> {
    use gristmill_ops::Recipe;
    if name.is_empty() || name == "none" {
        return Ok(None);
    }
    let path = Path::new(name);
    let is_file = name.contains('/') || path.extension().is_some_and(|e| e == "toml" || e == "json");
    if !is_file {
        return Recipe::preset(name).map(Some).map_err(|e| Error::config(e.to_string()));
    }
    let text = text::read(path, "recipe", RECIPE_BYTES_MAX)?;
    Recipe::parse(&text).map(Some).map_err(|e| Error::new(Kind::Config, e.to_string()).at(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_neither_a_catalog_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe.catalog");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert!(!is_catalog(&path) && !is_catalog(Path::new("/dev/zero")));
        assert!(recipe(path.to_str().unwrap()).is_err());
        fs::write(folder.path().join("file.catalog"), "").unwrap();
        assert!(is_catalog(&folder.path().join("file.catalog")));
    }
}
