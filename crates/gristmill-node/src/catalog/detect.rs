//! Finding out how a source is laid out, and which of its files count.
//!
//! A named file says it by its name, a folder by what lies in it. Where a folder could be two things the user is
//! asked, because a guess would silently train on the wrong half.

use super::idx::{self, Pair};
use super::scan::{Scan, base, extension, find, folder, is_picture, join};
use super::{Source, SourceKind, brace, cifar};
use crate::store::ObjectInfo;
use crate::{Error, Kind, Result};

/// The objects that a source consists of.
pub(super) enum Found {
    Folder(Vec<ObjectInfo>),
    List(ObjectInfo),
    Tar(Vec<ObjectInfo>),
    Idx(Vec<Pair>),
    Cifar(Vec<ObjectInfo>),
}

const LOOKED_FOR: &str = "looked for class folders with .jpg, .jpeg or .png files, *.tar, \
                          *images-idx3-ubyte(.gz), data_batch_*.bin and train.bin; a .csv or .jsonl list must be named";

/// What `source` is, and what to tell the user about it.
pub(super) async fn detect(scan: &Scan<'_>, source: &Source) -> Result<(Found, Vec<String>)> {
    match &source.object {
        Some(pattern) => Ok((named(scan, pattern, source.kind).await?, Vec::new())),
        None => choose(scan, scan.list("").await?, source.kind),
    }
}

/// A file or a pattern of files.
async fn named(scan: &Scan<'_>, pattern: &str, kind: Option<SourceKind>) -> Result<Found> {
    let names = brace::expand(pattern)?;
    let kind = match kind {
        Some(kind) => kind,
        None => kind_of(pattern).ok_or_else(|| {
            Error::config(format!("cannot tell what {} is by its name", scan.shown(pattern)))
                .hint("name a folder, a .csv or .jsonl list, .tar shards, an idx file or a CIFAR .bin file, or say its kind with --kind on the command line")
        })?,
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let facts = scan.stat_all(folder(names[0]), &names).await?;
    let missing: Vec<&str> =
        names.iter().zip(&facts).filter(|(_, info)| info.is_none()).map(|(name, _)| *name).collect();
    if let Some(first) = missing.first() {
        let of = if names.len() > 1 {
            format!(" ({} of {} are missing)", missing.len(), names.len())
        } else {
            String::new()
        };
        return Err(Error::new(Kind::NotFound, format!("there is no file {}{of}", scan.shown(first))));
    }
    let objects: Vec<ObjectInfo> = facts.into_iter().flatten().collect();
    let single = || match objects.as_slice() {
        [object] => Ok(object.clone()),
        _ => Err(Error::config(format!("{pattern:?} names {} files; a {kind} has one", objects.len()))),
    };
    match kind {
        SourceKind::Folder => Err(Error::config(format!("{} is a file, not a folder", scan.shown(pattern)))),
        SourceKind::List => Ok(Found::List(single()?)),
        SourceKind::Tar => Ok(Found::Tar(objects)),
        SourceKind::Cifar => Ok(Found::Cifar(objects)),
        SourceKind::Idx => Ok(Found::Idx(vec![partner(scan, single()?).await?])),
    }
}

fn kind_of(name: &str) -> Option<SourceKind> {
    match extension(name).as_str() {
        "csv" | "jsonl" | "ndjson" => Some(SourceKind::List),
        "tar" => Some(SourceKind::Tar),
        "bin" => Some(SourceKind::Cifar),
        _ if idx::is_images(base(name)) || idx::is_labels(base(name)) => Some(SourceKind::Idx),
        _ => None,
    }
}

/// An idx file with the one that goes with it.
async fn partner(scan: &Scan<'_>, given: ObjectInfo) -> Result<Pair> {
    let name = base(&given.path);
    let names = if idx::is_labels(name) { idx::images_of(name) } else { idx::labels_of(name) };
    let paths = names.map(|name| join(folder(&given.path), &name));
    for path in &paths {
        match scan.store.stat(path).await {
            Ok(other) if idx::is_labels(name) => return Ok(Pair { images: other, labels: given }),
            Ok(other) => return Ok(Pair { images: given, labels: other }),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(alone(scan, &given.path, &paths))
}

fn alone(scan: &Scan<'_>, name: &str, others: &[String; 2]) -> Error {
    let shown = scan.shown(name);
    Error::new(Kind::NotFound, format!("{shown} is alone: there is neither {} nor {}", others[0], others[1]))
        .hint("idx pictures and labels are two files side by side")
}

/// What a folder is.
pub(super) fn choose(
    scan: &Scan<'_>,
    listing: Vec<ObjectInfo>,
    kind: Option<SourceKind>,
) -> Result<(Found, Vec<String>)> {
    if listing.is_empty() {
        return Err(Error::new(Kind::NotFound, format!("there is nothing in {}", scan.url)).hint(LOOKED_FOR));
    }
    let top: Vec<ObjectInfo> = listing.iter().filter(|object| !object.path.contains('/')).cloned().collect();
    let lists: Vec<&str> = top
        .iter()
        .map(|object| object.path.as_str())
        .filter(|n| kind_of(n) == Some(SourceKind::List))
        .collect();
    let tars: Vec<ObjectInfo> =
        top.iter().filter(|object| extension(&object.path) == "tar").cloned().collect();
    let images: Vec<&ObjectInfo> = top.iter().filter(|object| idx::is_images(&object.path)).collect();
    let cifars = cifar::training_files(&top);
    let pictures = listing.iter().any(|object| is_picture(&object.path));
    let candidates: Vec<SourceKind> = [
        (SourceKind::Tar, !tars.is_empty()),
        (SourceKind::Idx, !images.is_empty()),
        (SourceKind::Cifar, !cifars.is_empty()),
        (SourceKind::Folder, pictures),
    ]
    .into_iter()
    .filter_map(|(kind, there)| there.then_some(kind))
    .collect();
    let kind = match (kind, candidates.as_slice()) {
        (Some(kind), _) => kind,
        (None, [kind]) => *kind,
        (None, []) => return Err(nothing(scan, &top, &lists)),
        (None, several) => {
            let several: Vec<&str> = several.iter().map(|kind| kind.name()).collect();
            return Err(Error::config(format!(
                "{} could be several things: {}",
                scan.url,
                several.join(", ")
            ))
            .hint(format!(
                "name the files of one kind, or say which with --kind {} on the command line",
                several[0]
            )));
        }
    };
    let mut notes = Vec::new();
    if let Some(list) = lists.first().filter(|_| matches!(kind, SourceKind::Folder | SourceKind::Tar)) {
        notes.push(format!("{list} was not used; to use a list, name it as the source"));
    }
    let found = match kind {
        SourceKind::Folder => Found::Folder(listing),
        SourceKind::List => match lists.as_slice() {
            [list] => {
                find(&listing, list).cloned().map(Found::List).ok_or_else(|| nothing(scan, &top, &lists))?
            }
            [] => return Err(nothing(scan, &top, &lists)),
            lists => {
                let lists = lists.join(", ");
                return Err(
                    Error::config(format!("{} has several lists: {lists}", scan.url)).hint("name one")
                );
            }
        },
        SourceKind::Tar if tars.is_empty() => return Err(nothing(scan, &top, &lists)),
        SourceKind::Tar => Found::Tar(training(tars, |object| &object.path, &mut notes)),
        SourceKind::Idx if images.is_empty() => return Err(nothing(scan, &top, &lists)),
        SourceKind::Idx => Found::Idx(pairs(scan, &images, &listing, &mut notes)?),
        SourceKind::Cifar if cifars.is_empty() => return Err(nothing(scan, &top, &lists)),
        SourceKind::Cifar => Found::Cifar(cifars),
    };
    Ok((found, notes))
}

fn pairs(
    scan: &Scan<'_>,
    images: &[&ObjectInfo],
    listing: &[ObjectInfo],
    notes: &mut Vec<String>,
) -> Result<Vec<Pair>> {
    let images = training(images.to_vec(), |object| &object.path, notes);
    let pair = |images: &ObjectInfo| {
        let names = idx::labels_of(&images.path);
        let labels = names.iter().find_map(|name| find(listing, name));
        let labels = labels.ok_or_else(|| alone(scan, &images.path, &names))?.clone();
        Ok(Pair { images: images.clone(), labels })
    };
    images.into_iter().map(pair).collect()
}

/// Of files of several parts of a data set, those for training.
fn training<T>(files: Vec<T>, name: impl Fn(&T) -> &str, notes: &mut Vec<String>) -> Vec<T> {
    let all = files.len();
    let (train, other): (Vec<T>, Vec<T>) = files.into_iter().partition(|file| name(file).contains("train"));
    if train.is_empty() {
        return other;
    }
    if let Some(first) = other.first() {
        let (used, first) = (train.len(), name(first));
        notes.push(format!(
            "of {all} files the {used} with \"train\" in their names were used; name {first} to use that instead"
        ));
    }
    train
}

/// The error of a folder in which nothing was recognised, with the most likely reason.
fn nothing(scan: &Scan<'_>, top: &[ObjectInfo], lists: &[&str]) -> Error {
    let packed = ["gz", "tgz", "xz", "zst", "bz2", "zip"];
    let message = format!("nothing in {} is a data set that Gristmill knows", scan.url);
    if let Some(object) = top.iter().find(|object| packed.contains(&extension(&object.path).as_str())) {
        return Error::config(message).hint(format!("{} is packed; unpack it first", object.path));
    }
    match lists.first() {
        Some(list) => Error::config(message).hint(format!("to use the list {list}, name it")),
        None => Error::config(message).hint(LOOKED_FOR),
    }
}
