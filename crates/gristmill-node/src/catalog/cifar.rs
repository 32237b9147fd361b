//! CIFAR binaries: records of label bytes and 3,072 bytes of planar 32 x 32 pixels.
//!
//! CIFAR-10 has one label byte per record and CIFAR-100 two, of which the second, finer one is used. Nothing in
//! the files says which they are, so the name decides and the length and every label must agree.

use super::draft::Draft;
use super::scan::{Scan, Step, base, extension, folder};
use super::{SourceKind, classes};
use crate::store::ObjectInfo;
use crate::{Error, Result};
use gristmill_ops::{Encoding, RawImage};

const SHAPE: RawImage = RawImage { width: 32, height: 32, channels: 3, planar: true };
const PIXEL_BYTES: u64 = 3_072;

/// One of the two data sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Variant {
    name: &'static str,
    label_bytes: u64,
    classes: u32,
    names: &'static [&'static str],
}

const CIFAR_10: Variant =
    Variant { name: "CIFAR-10", label_bytes: 1, classes: 10, names: &["classes.txt", "batches.meta.txt"] };
const CIFAR_100: Variant = Variant {
    name: "CIFAR-100",
    label_bytes: 2,
    classes: 100,
    names: &["classes.txt", "fine_label_names.txt"],
};

impl Variant {
    fn of(name: &str) -> Variant {
        if matches!(base(name), "train.bin" | "test.bin") { CIFAR_100 } else { CIFAR_10 }
    }

    fn record_bytes(self) -> u64 {
        self.label_bytes + PIXEL_BYTES
    }
}

/// The training files among `names`: the batches of CIFAR-10, else the one file of CIFAR-100.
pub(super) fn training_files(listing: &[ObjectInfo]) -> Vec<ObjectInfo> {
    let named = |is: fn(&str) -> bool| -> Vec<ObjectInfo> {
        listing.iter().filter(|object| is(&object.path)).cloned().collect()
    };
    let mut files = named(|name| name.starts_with("data_batch_") && extension(name) == "bin");
    // By number: 10 comes after 9.
    files.sort_by(|a, b| (a.path.len(), &a.path).cmp(&(b.path.len(), &b.path)));
    if files.is_empty() { named(|name| name == "train.bin") } else { files }
}

pub(super) async fn build(scan: &Scan<'_>, files: Vec<ObjectInfo>) -> Result<Draft> {
    let variant = Variant::of(&files[0].path);
    let mut draft = Draft::of_ranges(scan.url, SourceKind::Cifar, Encoding::Raw(SHAPE));
    for (done, file) in files.iter().enumerate() {
        let shown = scan.shown(&file.path);
        if Variant::of(&file.path) != variant {
            return Err(Error::config(format!("{shown} is not of {} as the files before it", variant.name)));
        }
        read(scan, &mut draft, file, variant).await.map_err(|error| error.at(&shown))?;
        scan.tell(Step::Read, done as u64 + 1, Some(files.len() as u64))?;
    }
    classes::name(scan, &mut draft, folder(&files[0].path), variant.names, variant.classes as usize).await?;
    Ok(draft)
}

async fn read(scan: &Scan<'_>, draft: &mut Draft, file: &ObjectInfo, variant: Variant) -> Result<()> {
    let record_bytes = variant.record_bytes();
    if file.bytes == 0 || !file.bytes.is_multiple_of(record_bytes) {
        let (name, bytes) = (variant.name, file.bytes);
        let other = if variant == CIFAR_10 { CIFAR_100 } else { CIFAR_10 };
        let hint = if bytes > 0 && bytes.is_multiple_of(other.record_bytes()) {
            format!("its length fits {}, whose files are called {}", other.name, files_of(other))
        } else {
            "it was cut off or is another kind of file".to_string()
        };
        return Err(Error::corrupt(format!(
            "{bytes} bytes are not a whole number of {name} records of {record_bytes} bytes"
        ))
        .hint(hint));
    }
    let object = draft.push_object(file)?;
    let label_at = variant.label_bytes - 1;
    let mut at = 0;
    let content = scan
        .read_through(&file.path, file.bytes, |chunk| {
            let end = at + chunk.len() as u64;
            // The first label in this chunk, then one per record.
            let mut label_byte = (at.saturating_sub(label_at)).next_multiple_of(record_bytes) + label_at;
            while label_byte < end {
                let label = u32::from(chunk[(label_byte - at) as usize]);
                let start = label_byte - label_at;
                if label >= variant.classes {
                    return Err(Error::corrupt(format!(
                        "record {} has label {label}, but {} has {} classes",
                        start / record_bytes,
                        variant.name,
                        variant.classes
                    ))
                    .hint("it is damaged or another kind of file"));
                }
                draft.push_range(object, start + variant.label_bytes, PIXEL_BYTES, label)?;
                label_byte += record_bytes;
            }
            at = end;
            scan.tell(Step::Hash, at, Some(file.bytes))
        })
        .await?;
    draft.contents.push(content);
    Ok(())
}

fn files_of(variant: Variant) -> &'static str {
    if variant == CIFAR_10 { "data_batch_*.bin and test_batch.bin" } else { "train.bin and test.bin" }
}
