//! Whether the data still is what the catalog says: what changed, vanished or appeared.
//!
//! Sizes and the store's versions are compared; with `content` every byte is read and compared with the hashes in
//! the catalog, and an object whose content is the same counts as unchanged even if its version differs.
//!
//! Deliberately not here: mending. A catalog that no longer fits is built again.

use super::detect::{self, Found as Source};
use super::scan::{OnProgress, Scan, find, run};
use super::{Catalog, SourceKind, folder};
use crate::store::{ObjectInfo, Store};
use crate::{Error, Kind, Result};
use std::collections::HashSet;

/// Most findings of each sort that are kept; the rest is counted.
const KEPT_MAX: usize = 1_000;

/// How a catalog is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Read every byte and compare it with the hashes in the catalog.
    pub content: bool,
}

/// One object that is not as the catalog says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Name below the root.
    pub name: String,
    /// What is different, in words.
    pub detail: String,
}

/// Findings of one sort.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// How many there are.
    pub count: u64,
    /// The first thousand.
    pub first: Vec<Finding>,
}

impl Found {
    fn push(&mut self, name: &str, detail: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < KEPT_MAX {
            self.first.push(Finding { name: name.to_string(), detail: detail() });
        }
    }
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Objects and side files looked at.
    pub objects: u64,
    /// Objects whose content was read and compared.
    pub contents: u64,
    /// Objects of another size, version or content.
    pub changed: Found,
    /// Objects that are gone.
    pub vanished: Found,
    /// Objects that a catalog built now would have and this one has not.
    pub appeared: Found,
}

impl Findings {
    /// Whether the data is what the catalog says.
    pub fn is_clean(&self) -> bool {
        self.changed.count + self.vanished.count + self.appeared.count == 0
    }
}

/// What the catalog says about one object.
struct Said<'a> {
    name: &'a str,
    bytes: u64,
    version: u64,
    content: Option<u64>,
}

/// Compares `catalog` with the store it was built from. Blocks until done; `progress` may stop it.
pub fn check(
    catalog: &Catalog,
    store: &dyn Store,
    options: &CheckOptions,
    progress: &mut OnProgress<'_>,
) -> Result<Findings> {
    if options.content && !catalog.has_content() {
        return Err(Error::config("this catalog has no content hashes to compare with")
            .hint("build it with content hashes, or check without contents"));
    }
    catalog.verify()?;
    run(move || async move {
        let scan = Scan::new(store, catalog.source(), progress);
        let mut said = Vec::with_capacity(catalog.objects() as usize);
        for i in 0..catalog.objects() {
            let object = catalog.object(i)?;
            said.push(Said {
                name: object.name,
                bytes: object.bytes,
                version: object.version,
                content: object.content,
            });
        }
        said.extend(catalog.side_files().iter().map(|side| Said {
            name: &side.name,
            bytes: side.bytes,
            version: side.version,
            content: Some(side.content),
        }));
        let mut findings = Findings { objects: said.len() as u64, ..Findings::default() };
        // A list says which files count, and so does a pattern; only a folder can gain samples by itself.
        let listing = if catalog.source_object().is_none() { Some(scan.list("").await?) } else { None };
        let now: Vec<Option<ObjectInfo>> = if let Some(listing) = &listing {
            said.iter().map(|said| find(listing, said.name).cloned()).collect()
        } else {
            let names: Vec<&str> = said.iter().map(|said| said.name).collect();
            scan.stat_all("", &names).await?
        };
        compare(&scan, options, &said, &now, &mut findings).await?;
        if let Some(listing) = listing {
            let known: HashSet<&str> = said.iter().map(|said| said.name).collect();
            for object in would_hold(&scan, catalog.kind(), listing)? {
                if !known.contains(object.path.as_str()) {
                    findings.appeared.push(&object.path, || format!("{} bytes", object.bytes));
                }
            }
        }
        Ok(findings)
    })
}

async fn compare(
    scan: &Scan<'_>,
    options: &CheckOptions,
    said: &[Said<'_>],
    now: &[Option<ObjectInfo>],
    findings: &mut Findings,
) -> Result<()> {
    let mut same_size: Vec<(&Said<'_>, &ObjectInfo)> = Vec::new();
    for (said, now) in said.iter().zip(now) {
        match now {
            None => findings.vanished.push(said.name, || format!("{} bytes", said.bytes)),
            Some(now) if now.bytes != said.bytes => {
                findings.changed.push(said.name, || format!("{} bytes, was {}", now.bytes, said.bytes));
            }
            Some(now) if options.content => same_size.push((said, now)),
            Some(now) if now.version != said.version => {
                findings.changed.push(said.name, || "written again with the same size".to_string());
            }
            Some(_) => {}
        }
    }
    let objects: Vec<(&str, u64)> = same_size.iter().map(|(said, now)| (said.name, now.bytes)).collect();
    let hashes = scan.hash_all(&objects).await?;
    findings.contents = hashes.len() as u64;
    for ((said, _), hash) in same_size.iter().zip(hashes) {
        if said.content != Some(hash) {
            findings.changed.push(said.name, || "other content of the same size".to_string());
        }
    }
    Ok(())
}

/// The objects that a catalog built now would hold samples of.
fn would_hold(scan: &Scan<'_>, kind: SourceKind, listing: Vec<ObjectInfo>) -> Result<Vec<ObjectInfo>> {
    if listing.is_empty() {
        return Ok(Vec::new());
    }
    let found = match detect::choose(scan, listing, Some(kind)) {
        Ok((found, _)) => found,
        // Nothing of the kind is there any more: all of it has vanished and was counted as such.
        Err(error) if matches!(error.kind(), Kind::Config | Kind::NotFound) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(match found {
        Source::Folder(listing) => {
            let picked = folder::pick(listing, scan.url, std::collections::BTreeSet::new());
            picked.files.into_iter().map(|(_, object)| object).collect()
        }
        Source::List(list) => vec![list],
        Source::Tar(files) | Source::Cifar(files) => files,
        Source::Idx(pairs) => pairs.into_iter().flat_map(|pair| [pair.images, pair.labels]).collect(),
    })
}
