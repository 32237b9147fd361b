//! Class folders: the pictures below each top-level folder are one class.
//!
//! Classes and samples have the order of torchvision's `ImageFolder`: class names sorted, and within a class
//! sorted by folder and then by file name, so ids mean the same in both as long as every picture is a JPEG or PNG.
//!
//! Deliberately not here: opening the pictures. A text file named .jpg is found when it is decoded.

use super::draft::Draft;
use super::scan::{Scan, base, extension, folder, is_picture};
use super::{BuildOptions, SourceKind};
use crate::store::ObjectInfo;
use crate::{Error, Result};
use gristmill_ops::Encoding;
use std::collections::{BTreeMap, BTreeSet};

/// Pictures that other loaders take and that cannot be decoded here.
const UNSUPPORTED: [&str; 8] = ["webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "avif"];

/// What a listing holds.
#[derive(Debug, Default)]
pub(super) struct Picked {
    /// Class names, sorted.
    pub(super) classes: Vec<String>,
    /// Pictures in the order of their ids, with their labels.
    pub(super) files: Vec<(u32, ObjectInfo)>,
    /// Whether the pictures lie in the root itself.
    flat: bool,
    /// Pictures that lie beside the class folders.
    beside: u64,
    /// How many pictures there are of each kind that is not supported.
    unsupported: BTreeMap<String, u64>,
}

/// Sorts a listing into classes. `root` names the only class of a flat folder.
pub(super) fn pick(listing: Vec<ObjectInfo>, root: &str, more_folders: BTreeSet<String>) -> Picked {
    let top = |name: &str| name.split_once('/').map(|parts| parts.0.to_string());
    let mut picked = Picked {
        flat: !listing.iter().any(|o| is_picture(&o.path) && o.path.contains('/')),
        ..Picked::default()
    };
    let mut classes = more_folders;
    for object in &listing {
        if UNSUPPORTED.contains(&extension(&object.path).as_str()) {
            *picked.unsupported.entry(extension(&object.path)).or_default() += 1;
        }
        classes.extend(top(&object.path));
    }
    if picked.flat {
        let name = base(root.trim_end_matches('/'));
        picked.classes = vec![if name.is_empty() { "all".to_string() } else { name.to_string() }];
    } else {
        picked.classes = classes.into_iter().collect();
    }
    for object in listing.into_iter().filter(|object| is_picture(&object.path)) {
        let label = match top(&object.path) {
            _ if picked.flat => 0,
            None => {
                picked.beside += 1;
                continue;
            }
            // Every folder of the listing is a class, so it is found.
            Some(class) => picked.classes.binary_search(&class).unwrap_or_default() as u32,
        };
        picked.files.push((label, object));
    }
    picked.files.sort_unstable_by(|(a_label, a), (b_label, b)| {
        let key = |path| (folder(path), base(path));
        a_label.cmp(b_label).then_with(|| key(&a.path).cmp(&key(&b.path)))
    });
    picked
}

pub(super) fn build(scan: &Scan<'_>, listing: Vec<ObjectInfo>, options: &BuildOptions) -> Result<Draft> {
    let picked = pick(listing, scan.url, local_folders(scan.url));
    if picked.files.is_empty() {
        let seen: Vec<String> = picked.unsupported.keys().map(|kind| format!(".{kind}")).collect();
        let but = if seen.is_empty() { String::new() } else { format!(" (only {})", seen.join(", ")) };
        return Err(Error::config(format!("{} has no picture that can be read{but}", scan.url))
            .hint("looked for files that end in .jpg, .jpeg or .png, in one folder per class"));
    }
    let mut used = vec![false; picked.classes.len()];
    picked.files.iter().for_each(|(label, _)| used[*label as usize] = true);
    let empty: Vec<&str> = picked
        .classes
        .iter()
        .zip(&used)
        .filter(|(_, used)| !**used)
        .map(|(class, _)| class.as_str())
        .collect();
    if let Some(first) = empty.first().filter(|_| !options.allow_empty_classes) {
        let others = if empty.len() > 1 { format!(" and {} more", empty.len() - 1) } else { String::new() };
        return Err(Error::config(format!("the class folder {}{others} has no picture", scan.shown(first)))
            .hint(
                "remove it, fill it with .jpg, .jpeg or .png files, or accept it with --allow-empty-classes",
            ));
    }
    let mut draft = Draft::of_files(scan.url, SourceKind::Folder, Encoding::Sniffed);
    for (label, object) in &picked.files {
        draft.push_file(object, *label)?;
    }
    let hollow = draft.sizes.iter().filter(|&&bytes| bytes == 0).count();
    if picked.flat {
        draft.note("there are no class folders, so all pictures are one class");
    }
    if !empty.is_empty() {
        draft.note(format!("{} classes have no picture", empty.len()));
    }
    if picked.beside > 0 {
        draft.note(format!("{} pictures beside the class folders were left out", picked.beside));
    }
    for (kind, many) in &picked.unsupported {
        draft.note(format!("{many} .{kind} files were left out: only JPEG and PNG can be read"));
    }
    if hollow > 0 {
        draft.note(format!("{hollow} pictures have 0 bytes"));
    }
    let splits = ["train", "training", "val", "valid", "validation", "test"];
    if picked.classes.len() > 1 && picked.classes.iter().all(|class| splits.contains(&class.as_str())) {
        draft.note("the classes look like parts of a data set; name one of these folders to use only it");
    }
    draft.classes = picked.classes;
    Ok(draft)
}

/// The folders directly in a local root: a listing of objects does not show the empty ones.
pub(super) fn local_folders(root_url: &str) -> BTreeSet<String> {
    let path = root_url.strip_prefix("file://").unwrap_or(root_url);
    if path.contains("://") || path.starts_with("memory:") {
        return BTreeSet::new();
    }
    // Whatever cannot be read here was already refused when the store listed it.
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(path: &str) -> ObjectInfo {
        ObjectInfo { path: path.into(), bytes: 1, version: 0 }
    }

    fn picked(paths: &[&str]) -> Picked {
        pick(paths.iter().map(|path| object(path)).collect(), "s3://b/birds/", BTreeSet::new())
    }

    fn names(picked: &Picked) -> Vec<(u32, &str)> {
        picked.files.iter().map(|(label, object)| (*label, object.path.as_str())).collect()
    }

    #[test]
    fn ids_follow_image_folder() {
        // What torchvision gives for these paths: a folder's own files come before those of its folders.
        let sorted = [
            (0, "A/z.jpg"),
            (0, "A/b/a.jpg"),
            (0, "A/b-c/a.jpg"),
            (0, "A/b/d/a.jpg"),
            (1, "B/a.jpeg"),
            (2, "B-2/a.PNG"),
            (3, "a/a.jpg"),
        ];
        let mut paths: Vec<&str> = sorted.iter().map(|pair| pair.1).collect();
        for _ in 0..paths.len() {
            paths.rotate_left(1);
            let picked = picked(&paths);
            assert_eq!(picked.classes, ["A", "B", "B-2", "a"]);
            assert_eq!(names(&picked), sorted);
        }
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let picked = picked(&["top.jpg", "a/x.jpg", "a/y.webp", "b/y.WEBP", "b/z.txt", "readme.md"]);
        assert_eq!(names(&picked), [(0, "a/x.jpg")]);
        assert_eq!((picked.beside, picked.unsupported["webp"]), (1, 2));
        assert_eq!(picked.classes, ["a", "b"]);
    }

    #[test]
    fn a_flat_folder_is_one_class_named_after_it() {
        let picked = picked(&["b.jpg", "a.jpg", "docs/readme.txt"]);
        assert_eq!(names(&picked), [(0, "a.jpg"), (0, "b.jpg")]);
        assert_eq!(picked.classes, ["birds"]);
    }
}
