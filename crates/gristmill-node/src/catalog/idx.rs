//! idx files: the MNIST family's pictures and labels, plain or gzip.
//!
//! A picture file has a header (magic, count, rows, columns) and then bare grey pixels; its label file has the
//! labels in the same order. Counts are compared with each other and with the real lengths before anything is
//! believed. Samples are ranges of the picture file; in a gzip file, ranges of what is inside.
//!
//! Deliberately not here: idx files of other than unsigned bytes or of other dimensions.

use super::draft::Draft;
use super::scan::{Scan, Step, content_hash, folder};
use super::{SourceKind, classes, gzip};
use crate::store::ObjectInfo;
use crate::{Error, Result};
use bytes::Bytes;
use gristmill_ops::{Encoding, RawImage};

/// Most bytes of an idx file, stored or inflated.
const BYTES_MAX: u64 = 4 << 30;
/// Largest side of a picture.
const SIDE_MAX: u32 = 65_535;
const PICTURES_MAGIC: u32 = 0x0803;
const LABELS_MAGIC: u32 = 0x0801;
const PICTURES_HEADER: u64 = 16;
const LABELS_HEADER: u64 = 8;

/// A picture file and the label file that goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) images: ObjectInfo,
    pub(super) labels: ObjectInfo,
}

/// Whether a file name looks like that of idx pictures.
pub(super) fn is_images(name: &str) -> bool {
    name.contains("images") && name.contains("idx3") && is_idx(name)
}

/// Whether a file name looks like that of idx labels.
pub(super) fn is_labels(name: &str) -> bool {
    name.contains("labels") && name.contains("idx1") && is_idx(name)
}

fn is_idx(name: &str) -> bool {
    name.ends_with("-ubyte") || name.ends_with("-ubyte.gz")
}

/// The names that the label file of a picture file may have.
pub(super) fn labels_of(images: &str) -> [String; 2] {
    let plain = images.trim_end_matches(".gz").replace("images", "labels").replace("idx3", "idx1");
    let zipped = format!("{plain}.gz");
    if is_gzip(images) { [zipped, plain] } else { [plain, zipped] }
}

/// The names that the picture file of a label file may have.
pub(super) fn images_of(labels: &str) -> [String; 2] {
    let plain = labels.trim_end_matches(".gz").replace("labels", "images").replace("idx1", "idx3");
    let zipped = format!("{plain}.gz");
    if is_gzip(labels) { [zipped, plain] } else { [plain, zipped] }
}

fn is_gzip(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".gz")
}

pub(super) async fn build(scan: &Scan<'_>, pairs: Vec<Pair>) -> Result<Draft> {
    let place = folder(&pairs[0].images.path).to_string();
    let zipped = is_gzip(&pairs[0].images.path);
    let mut draft: Option<Draft> = None;
    for (done, Pair { images, labels }) in pairs.iter().enumerate() {
        let (shown, shown_labels) = (scan.shown(&images.path), scan.shown(&labels.path));
        if is_gzip(&images.path) != zipped {
            return Err(Error::config(format!("{shown}: some picture files are gzip and some are not"))
                .hint("make them all the same"));
        }
        let (numbers, stored) = read_labels(scan, labels).await.map_err(|error| error.at(&shown_labels))?;
        let facts = read_pictures(scan, images).await.map_err(|error| error.at(&shown))?;
        if u64::from(facts.count) != numbers.len() as u64 {
            return Err(Error::corrupt(format!(
                "{shown} has {} pictures, but {shown_labels} has {} labels",
                facts.count,
                numbers.len()
            ))
            .hint("take both from the same data set"));
        }
        let encoding = Encoding::Raw(facts.shape);
        let draft = draft.get_or_insert_with(|| Draft::of_ranges(scan.url, SourceKind::Idx, encoding));
        if draft.encoding != encoding {
            return Err(Error::config(format!(
                "{shown} has pictures of another size than the files before it"
            ))
            .hint("name one of them"));
        }
        let object = draft.push_object(images)?;
        draft.contents.push(facts.content);
        if zipped {
            draft.inflated.push(facts.inflated_bytes);
        }
        draft.push_side(labels, &stored);
        for (at, label) in numbers.iter().enumerate() {
            let bytes = facts.shape.bytes();
            draft.push_range(object, PICTURES_HEADER + at as u64 * bytes, bytes, u32::from(*label))?;
        }
        scan.tell(Step::Read, done as u64 + 1, Some(pairs.len() as u64))?;
    }
    let mut draft = draft.ok_or_else(|| Error::config(format!("{} has no idx files", scan.url)))?;
    classes::name(scan, &mut draft, &place, &["classes.txt"], 0).await?;
    Ok(draft)
}

/// What a picture file says about itself, found to be true.
struct Pictures {
    count: u32,
    shape: RawImage,
    content: u64,
    inflated_bytes: u64,
}

async fn read_pictures(scan: &Scan<'_>, object: &ObjectInfo) -> Result<Pictures> {
    if is_gzip(&object.path) {
        let stored = scan.read_whole(object, BYTES_MAX).await?;
        let (count, shape, bytes) = pictures_header(&gzip::front(&stored, PICTURES_HEADER)?)?;
        let inside = gzip::through(&stored, bytes, |_| {})?;
        check_length(bytes, inside, "pictures")?;
        return Ok(Pictures { count, shape, content: content_hash(&stored), inflated_bytes: inside });
    }
    let front = scan.store.read(&object.path, 0..object.bytes.min(PICTURES_HEADER)).await?;
    let (count, shape, bytes) = pictures_header(&front)?;
    check_length(bytes, object.bytes, "pictures")?;
    let mut read = 0;
    let tell = |chunk: &[u8]| {
        read += chunk.len() as u64;
        scan.tell(Step::Hash, read, Some(object.bytes))
    };
    let content = scan.read_through(&object.path, object.bytes, tell).await?;
    Ok(Pictures { count, shape, content, inflated_bytes: object.bytes })
}

/// Count, shape and the length that the whole must have.
fn pictures_header(front: &[u8]) -> Result<(u32, RawImage, u64)> {
    let [magic, count, height, width] = numbers(front)?;
    check_magic(magic, PICTURES_MAGIC, "pictures")?;
    if !(1..=SIDE_MAX).contains(&height) || !(1..=SIDE_MAX).contains(&width) {
        return Err(Error::corrupt(format!("its header gives the pictures {width} x {height} pixels")));
    }
    let shape = RawImage { width, height, channels: 1, planar: false };
    let bytes = PICTURES_HEADER + u64::from(count) * shape.bytes();
    if count == 0 || bytes > BYTES_MAX {
        return Err(Error::corrupt(format!(
            "its header gives {count} pictures of {width} x {height} pixels, {bytes} bytes; between 1 picture \
             and {BYTES_MAX} bytes are possible"
        )));
    }
    Ok((count, shape, bytes))
}

/// The labels, and the bytes of the file as stored.
async fn read_labels(scan: &Scan<'_>, object: &ObjectInfo) -> Result<(Vec<u8>, Bytes)> {
    let stored = scan.read_whole(object, BYTES_MAX).await?;
    let zipped = is_gzip(&object.path);
    let front = if zipped { gzip::front(&stored, LABELS_HEADER)? } else { stored.to_vec() };
    let [magic, count] = numbers(&front)?;
    check_magic(magic, LABELS_MAGIC, "labels")?;
    let bytes = LABELS_HEADER + u64::from(count);
    let mut all = front;
    if zipped {
        all.clear();
        gzip::through(&stored, bytes, |chunk| all.extend_from_slice(chunk))?;
    }
    check_length(bytes, all.len() as u64, "labels")?;
    Ok((all.split_off(LABELS_HEADER as usize), stored))
}

/// The big-endian numbers a header begins with.
fn numbers<const N: usize>(front: &[u8]) -> Result<[u32; N]> {
    if front.len() < N * 4 {
        return Err(Error::corrupt(format!("it has {} bytes and not even a whole idx header", front.len())));
    }
    Ok(std::array::from_fn(|at| {
        front[at * 4..at * 4 + 4].iter().fold(0, |n, &byte| n << 8 | u32::from(byte))
    }))
}

fn check_magic(magic: u32, right: u32, what: &str) -> Result<()> {
    if magic == right {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "it begins with {magic:#010x}, but idx {what} of bytes begin with {right:#010x}"
    ))
    .hint("it is another kind of file, or damaged"))
}

fn check_length(said: u64, is: u64, what: &str) -> Result<()> {
    if said == is {
        return Ok(());
    }
    Err(Error::corrupt(format!("its header counts {what} for {said} bytes, but there are {is}"))
        .hint("it was cut off or has a wrong count; fetch it again"))
}
