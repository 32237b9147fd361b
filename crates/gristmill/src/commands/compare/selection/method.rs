//! The methods of a comparison, from what was typed.

use gristmill_core::select::Selection;
use gristmill_node::selection::FamilyUse;
use gristmill_node::{Error, Result};

/// The option that is not the selection's own.
const FAMILIES: &str = "families";
/// The most methods that are compared at once.
const METHODS_MAX: usize = 64;

/// A way to select, under the name that the table shows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Method {
    pub(super) name: String,
    pub(super) selection: Selection,
    pub(super) families: FamilyUse,
}

/// Reads `name:option=value:…,name…`. Uniform, which all are compared with, comes first whether it was typed or not.
pub(super) fn parse(text: &str) -> Result<Vec<Method>> {
    let mut methods =
        vec![Method { name: "uniform".into(), selection: Selection::Uniform, families: FamilyUse::Off }];
    for typed in text.split(',').map(str::trim).filter(|typed| !typed.is_empty()) {
        if methods.iter().any(|method| method.name == typed) {
            continue;
        }
        let mut parts = typed.split(':');
        let kind = parts.next().unwrap_or_default();
        // The published variants of buckets by the names of its paper's table.
        let (kind, variant) = match kind {
            "bucket-norecall" => ("bucket", Some(("recall", "off"))),
            "bucket-remove" => ("bucket", Some((FAMILIES, "remove"))),
            "bucket-repeat" => ("bucket", Some((FAMILIES, "repeat"))),
            other => (other, None),
        };
        let mut families = FamilyUse::Off;
        let mut selection = Selection::named(kind)?;
        let pairs = parts.map(|part| {
            part.split_once('=').ok_or_else(|| {
                Error::config(format!("--methods: {part:?} in {typed:?} has no ="))
                    .hint("write name:option=value, e.g. bucket:relax=0.2")
            })
        });
        for pair in variant.into_iter().map(Ok).chain(pairs) {
            let (option, value) = pair?;
            match option.trim() {
                FAMILIES => families = family_use(value.trim())?,
                option => selection.set(option, value.trim())?,
            }
        }
        methods.push(Method { name: typed.into(), selection, families });
    }
    if text.trim().is_empty() {
        let hint = format!("name some of {}", Selection::NAMES.join(", "));
        return Err(Error::config("--methods names no method").hint(hint));
    }
    if methods.len() > METHODS_MAX {
        return Err(Error::config(format!("--methods names more than {METHODS_MAX} methods")));
    }
    Ok(methods)
}

fn family_use(text: &str) -> Result<FamilyUse> {
    let found = FamilyUse::NAMES.iter().find(|(name, _)| *name == text);
    found.map(|(_, how)| *how).ok_or_else(|| {
        let names = FamilyUse::NAMES.map(|(name, _)| name).join(", ");
        Error::config(format!("--methods: families={text} is not one of {names}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_with_and_without_options() {
        let names = |text: &str| parse(text).unwrap().into_iter().map(|m| m.name).collect::<Vec<_>>();
        assert_eq!(names("uniform"), ["uniform"]);
        assert_eq!(names("bucket, uniform,bucket"), ["uniform", "bucket"]);
        let methods = parse("bucket-norecall:relax=0.3").unwrap();
        let Selection::Bucket(bucket) = &methods[1].selection else { panic!("{methods:?}") };
        assert!(!bucket.recall && (bucket.relax - 0.3).abs() < 1e-9);
        let methods = parse("bucket-remove,weighted:families=repeat").unwrap();
        assert_eq!([1, 2].map(|i| methods[i].families), [FamilyUse::Remove, FamilyUse::Repeat]);
        for (text, word) in [
            ("", "no method"),
            ("buckat", "bucket"),
            ("bucket:relax", "no ="),
            ("bucket:families=some", "repeat"),
            ("bucket:relux=1", "relax"),
            ("online:share=2", "share"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
