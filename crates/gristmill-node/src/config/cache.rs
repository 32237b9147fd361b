//! What users write about a cache: how large, where, and by which rule.

use super::units::{format_bytes, parse_bytes};
use crate::client::Address;
use gristmill_core::cache::Policy;
use std::path::PathBuf;

/// How large a cache is, or where a shared one is.
#[derive(Debug, Clone, PartialEq)]
pub enum CacheSize {
    /// There is none.
    Off,
    /// This part of the data set's bytes.
    Share(f64),
    /// So many bytes.
    Bytes(u64),
    /// A node that others share, as a URL.
    Shared(String),
}

/// A folder for the disk tier, and how much it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPlace {
    /// The folder.
    pub folder: PathBuf,
    /// The most bytes of files in it.
    pub bytes_max: u64,
}

pub(super) fn size(text: &str) -> Result<CacheSize, String> {
    let expected =
        "off, a share such as 20%, a size such as 4GiB, or the URL of a node (grist://host:7077/name)";
    if text.is_empty() || text == "off" {
        return Ok(CacheSize::Off);
    }
    if Address::is_node(text) {
        return Ok(CacheSize::Shared(text.into()));
    }
    let found = match text.strip_suffix('%') {
        Some(percent) => {
            let percent: Option<f64> = percent.trim().parse().ok();
            percent.filter(|percent| *percent > 0.0 && *percent <= 100.0).map(|p| CacheSize::Share(p / 100.0))
        }
        None => parse_bytes(text).filter(|bytes| *bytes > 0).map(CacheSize::Bytes),
    };
    found.ok_or_else(|| expected.into())
}

pub(super) fn show_size(size: &CacheSize) -> String {
    match size {
        CacheSize::Off => "off".into(),
        CacheSize::Share(share) => format!("{}%", share * 100.0),
        CacheSize::Bytes(bytes) => format_bytes(*bytes),
        CacheSize::Shared(url) => url.clone(),
    }
}

pub(super) fn policy(text: &str) -> Result<Policy, String> {
    let found = Policy::NAMES.iter().find(|(name, _)| *name == text);
    let names = || Policy::NAMES.map(|(name, _)| name).join(", ");
    found.map(|(_, policy)| *policy).ok_or_else(|| format!("one of {}", names()))
}

pub(super) fn show_policy(policy: Policy) -> String {
    Policy::NAMES.iter().find(|(_, known)| *known == policy).map_or("", |(name, _)| name).into()
}

/// FOLDER:SIZE, the size after the last colon.
pub(super) fn disk(text: &str) -> Result<Option<DiskPlace>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let parts = text.rsplit_once(':').filter(|(folder, _)| !folder.is_empty());
    let place = parts.and_then(|(folder, size)| {
        let bytes_max = parse_bytes(size).filter(|bytes| *bytes > 0)?;
        Some(DiskPlace { folder: folder.into(), bytes_max })
    });
    place.map(Some).ok_or_else(|| "a folder and a size, such as /ssd/cache:200GiB".into())
}

pub(super) fn show_disk(disk: Option<&DiskPlace>) -> String {
    disk.map_or(String::new(), |place| {
        format!("{}:{}", place.folder.display(), format_bytes(place.bytes_max))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(size("off"), Ok(CacheSize::Off));
        assert_eq!(size("20%"), Ok(CacheSize::Share(0.2)));
        assert_eq!(size("4GiB"), Ok(CacheSize::Bytes(4 << 30)));
        for url in ["grist://h:7077/x", "grists://h/x", "grist+unix:///s"] {
            assert_eq!(size(url), Ok(CacheSize::Shared(url.into())));
        }
        for wrong in ["0%", "101%", "-1", "some", "NaN%", "0"] {
            assert!(size(wrong).is_err_and(|expected| expected.contains("20%")), "{wrong}");
        }
        for text in ["off", "20%", "4GiB", "grist://h:7077/x"] {
            assert_eq!(show_size(&size(text).unwrap()), text);
        }
        let place = DiskPlace { folder: "/ssd/c:d".into(), bytes_max: 1 << 30 };
        assert_eq!(disk("/ssd/c:d:1GiB"), Ok(Some(place.clone())));
        assert_eq!(show_disk(Some(&place)), "/ssd/c:d:1GiB");
        assert_eq!(disk(""), Ok(None));
        assert!(disk("/ssd").is_err() && disk(":1GiB").is_err() && disk("/ssd:0").is_err());
    }
}
