//! `WebDataset` shards: tar files whose members with the same key are one sample.
//!
//! A key is a member's path up to the first dot of its last part. A sample is a picture; its label is the number in
//! its `.cls` member or in its `.json` member, else the folder that holds it inside of the tar. Samples are ranges
//! of shards, so they are read at random without unpacking anything; ids follow the shards in the order they were
//! named (or sorted, for a folder) and the places within them.
//!
//! Deliberately not here: several pictures per sample.

use super::draft::Draft;
use super::layout::CLASSES_MAX;
use super::members::{Member, Members};
use super::scan::{Scan, Step, base, extension, folder, is_picture};
use super::{SourceKind, classes};
use crate::store::ObjectInfo;
use crate::{Error, Result};
use futures::{StreamExt, TryStreamExt, stream};
use gristmill_ops::Encoding;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

/// Shards looked at together, each with a window of a megabyte.
const SHARDS_IN_FLIGHT: usize = 32;
/// A shard can be huge, so the work can be stopped within one: after this many members.
const TELL_EVERY: u32 = 256;
/// Most bytes of a `.cls` and of a `.json` member.
const CLS_BYTES_MAX: u64 = 64;
const JSON_BYTES_MAX: u64 = 1 << 20;

/// What one shard holds.
#[derive(Default)]
struct Shard {
    samples: Vec<Sample>,
    /// The folders that hold pictures inside of the tar.
    folders: Vec<String>,
    /// Members that are neither picture nor label.
    others: u64,
}

struct Sample {
    member: Member,
    folder: u32,
    cls: Option<u32>,
    json: Option<u32>,
}

pub(super) async fn build(scan: &Scan<'_>, shards: Vec<ObjectInfo>) -> Result<Draft> {
    let total = shards.len() as u64;
    let done = Cell::new(0);
    let tell = || scan.tell(Step::Read, done.get(), Some(total));
    let found: Vec<Shard> = stream::iter(&shards)
        .map(async |shard| {
            let found = read(scan, shard, &tell).await?;
            done.set(done.get() + 1);
            tell()?;
            Ok::<_, Error>(found)
        })
        .buffered(scan.in_flight(SHARDS_IN_FLIGHT))
        .try_collect()
        .await?;
    if found.iter().all(|shard| shard.samples.is_empty()) {
        return Err(Error::config(format!("{} has no picture in its {total} tar shards", scan.url))
            .hint("looked for members that end in .jpg, .jpeg or .png"));
    }
    let mut draft = Draft::of_ranges(scan.url, SourceKind::Tar, Encoding::Sniffed);
    let others: u64 = found.iter().map(|shard| shard.others).sum();
    if others > 0 {
        draft.note(format!("{others} members are neither pictures nor labels and were left out"));
    }
    let hollow = found.iter().filter(|shard| shard.samples.is_empty()).count();
    if hollow > 0 {
        draft.note(format!("{hollow} shards have no picture"));
    }
    label(scan, &mut draft, &shards, &found).await?;
    Ok(draft)
}

/// Fills the draft with samples, labelled in the first way that fits all of them.
async fn label(scan: &Scan<'_>, draft: &mut Draft, shards: &[ObjectInfo], found: &[Shard]) -> Result<()> {
    let numbered = found.iter().flat_map(|shard| &shard.samples).any(|s| s.cls.or(s.json).is_some());
    let filed = found.iter().all(|shard| shard.folders.iter().all(|folder| !folder.is_empty()));
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    if !numbered && filed {
        names.extend(found.iter().flat_map(|shard| &shard.folders).map(|folder| (base(folder), 0)));
        names.values_mut().enumerate().for_each(|(at, label)| *label = at as u32);
    }
    for (info, shard) in shards.iter().zip(found) {
        let object = draft.push_object(info)?;
        for sample in &shard.samples {
            let label = match sample.cls.or(sample.json) {
                Some(label) => label,
                None if numbered => {
                    let (shard, name) = (scan.shown(&info.path), &sample.member.name);
                    return Err(Error::config(format!(
                        "{shard}: the sample {name} has no label, but others have"
                    ))
                    .hint("add its .cls member"));
                }
                None if filed => names[base(&shard.folders[sample.folder as usize])],
                None => 0,
            };
            draft.push_range(object, sample.member.offset, sample.member.bytes, label)?;
        }
    }
    if numbered {
        classes::name(scan, draft, folder(&shards[0].path), &["classes.txt"], 0).await
    } else if filed {
        if names.len() == 1 {
            draft.note("all pictures lie in one folder of the tar and no label members exist: one class");
        } else {
            draft.note("there are no label members, so the folders inside of the tar are the classes");
        }
        draft.set_classes(names.into_keys().map(Into::into).collect());
        Ok(())
    } else {
        draft.note("there are no label members and not every picture lies in a folder, so all are one class");
        draft.set_classes(vec!["all".into()]);
        Ok(())
    }
}

async fn read(scan: &Scan<'_>, info: &ObjectInfo, tell: &dyn Fn() -> Result<()>) -> Result<Shard> {
    let mut shard = Shard::default();
    let mut keys: HashMap<String, usize> = HashMap::new();
    let mut folders: HashMap<String, u32> = HashMap::new();
    let mut labels: Vec<(String, bool, u32, String)> = Vec::new();
    let mut members = Members::new(scan, info);
    let mut seen = 0_u32;
    while let Some(mut member) = members.next().await? {
        seen = seen.wrapping_add(1);
        if seen.is_multiple_of(TELL_EVERY) {
            tell()?;
        }
        member.name = member.name.trim_start_matches("./").to_string();
        if base(&member.name).starts_with('.') {
            continue;
        }
        let key = key(&member.name).to_string();
        let wrong = |why: String| Error::config(format!("{}: {} {why}", scan.shown(&info.path), member.name));
        if is_picture(&member.name) {
            if let Some(&before) = keys.get(&key) {
                let other = &shard.samples[before].member.name;
                return Err(wrong(format!("belongs to the same sample as {other}"))
                    .hint("a sample has one picture; its key ends at the first dot of the name"));
            }
            let name = folder(&member.name);
            let folder = folders.get(name).copied().unwrap_or_else(|| {
                shard.folders.push(name.to_string());
                folders.insert(name.to_string(), shard.folders.len() as u32 - 1);
                shard.folders.len() as u32 - 1
            });
            keys.insert(key, shard.samples.len());
            shard.samples.push(Sample { member, folder, cls: None, json: None });
            continue;
        }
        match extension(&member.name).as_str() {
            "cls" => {
                let content = members.content(&member, CLS_BYTES_MAX).await?;
                let text = String::from_utf8_lossy(&content);
                let label = text.trim().parse().ok().filter(|&label: &u32| (label as usize) < CLASSES_MAX);
                let label = label.ok_or_else(|| {
                    wrong(format!(
                        "holds {:?}, which is not a label from 0 to {}",
                        text.trim(),
                        CLASSES_MAX - 1
                    ))
                })?;
                labels.push((key, true, label, member.name));
            }
            "json" => {
                let content = members.content(&member, JSON_BYTES_MAX).await?;
                let label = json_label(&content).map_err(|why| wrong(why.to_string()))?;
                labels.extend(label.map(|label| (key, false, label, member.name)));
            }
            _ => shard.others += 1,
        }
    }
    for (key, cls, label, name) in labels {
        let Some(sample) = keys.get(&key).map(|&at| &mut shard.samples[at]) else {
            shard.others += 1;
            continue;
        };
        let place = if cls { &mut sample.cls } else { &mut sample.json };
        if place.replace(label).is_some() {
            let shown = scan.shown(&info.path);
            return Err(Error::config(format!("{shown}: {name} labels its sample a second time")));
        }
    }
    Ok(shard)
}

/// A member's path up to the first dot of its last part.
fn key(name: &str) -> &str {
    let start = name.rfind('/').map_or(0, |at| at + 1);
    name[start..].find('.').map_or(name, |dot| &name[..start + dot])
}

/// The whole number called label, cls or class in a JSON object, when there is one.
fn json_label(content: &[u8]) -> Result<Option<u32>, &'static str> {
    let object: serde_json::Value = serde_json::from_slice(content).map_err(|_| "is not readable as JSON")?;
    let label = ["label", "cls", "class"].iter().find_map(|key| object.get(*key)?.as_i64());
    match label {
        None => Ok(None),
        Some(label) => match u32::try_from(label) {
            Ok(label) if (label as usize) < CLASSES_MAX => Ok(Some(label)),
            _ => Err("holds a label that is negative or too large"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_at_the_first_dot_of_the_last_part() {
        for (name, expect) in
            [("a/b.jpg", "a/b"), ("v1.0/b.seg.png", "v1.0/b"), ("b", "b"), ("a.b/c", "a.b/c")]
        {
            assert_eq!(key(name), expect);
        }
    }

    #[test]
    fn json_labels() {
        assert_eq!(json_label(br#"{"cls": 3}"#), Ok(Some(3)));
        assert_eq!(json_label(br#"{"label": "dog", "class": 2}"#), Ok(Some(2)));
        assert_eq!(json_label(br#"{"caption": "a dog"}"#), Ok(None));
        assert!(json_label(br#"{"label": -1}"#).is_err());
        assert!(json_label(b"nope").is_err());
    }
}
