//! The page of families: one HTML file with the pictures in it, for a person to judge.
//!
//! Self-contained (no script, nothing fetched), so it can be mailed and opened years later. Names come from the data
//! and are escaped; pictures were decoded before they are passed on.

use crate::output::grouped;
use crate::progress::{Progress, Unit};
use crate::stop;
use anyhow::Result;
use gristmill_core::SampleId;
use gristmill_node::Error;
use gristmill_node::catalog::Catalog;
use gristmill_node::config::Config;
use gristmill_node::families::FamilySet;
use gristmill_node::loader::Data;
use gristmill_node::page::markup::{base64, escaped};
use gristmill_node::reader::Reader;
use gristmill_ops::{Limits, thumbnail};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// The most families on a page.
const FAMILIES_MAX: usize = 10_000;
/// The most members of a family that are shown.
const MEMBERS_SHOWN_MAX: usize = 24;
/// The longer side of a picture that is made smaller.
const SIDE_MAX: u32 = 192;
/// Files up to this size are shown as they are.
const FILE_BYTES_MAX: usize = 12_000;
/// Pictures up to this side are shown with hard pixels.
const PIXELATED_SIDE_MAX: u32 = 64;

/// Writes the page of the `limit` largest families.
pub(super) fn write(
    path: &Path,
    limit: usize,
    found: &FamilySet,
    catalog: &Arc<Catalog>,
    config: &Config,
    quiet: bool,
) -> Result<()> {
    let mut families: Vec<&[u32]> = found.families.iter().collect();
    families.sort_by_key(|family| (std::cmp::Reverse(family.len()), family[0]));
    families.truncate(limit.min(FAMILIES_MAX));
    let mut out = head(found, catalog, families.len());
    let mut bar = Progress::new("page", quiet);
    let pictures = Pictures::new(catalog, config)?;
    for (done, family) in families.iter().enumerate() {
        stop::check()?;
        bar.at(
            done as u64,
            Some(families.len() as u64),
            Unit::Things("family", "families", "drawn"),
            String::new,
        );
        pictures.family(&mut out, family, found)?;
    }
    bar.done();
    out.push_str("</main>\n");
    std::fs::write(path, out).map_err(|e| Error::io("write the page", path.display(), e))?;
    Ok(())
}

fn head(found: &FamilySet, catalog: &Catalog, shown: usize) -> String {
    let families = &found.families;
    let title = match catalog.source_object() {
        Some(object) => escaped(&format!("{}/{object}", catalog.source().trim_end_matches('/'))),
        None => escaped(catalog.source()),
    };
    let mut out = format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>Families of {title}</title>\n<style>{STYLE}</style>\n<main>\n<h1>Families</h1>\n<p class=source>{title}</p>\n"
    );
    let label = if families.cross_label() {
        "of any label (coloured: another than the first's)"
    } else {
        "of one label"
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<p>{} of {} samples are in {} families of near-duplicates {label}, at most {} of 64 bits away from the \
         first one.{} Under each picture: its number, its class, and its distance in bits from the first.</p>",
        grouped(families.grouped() as u64),
        grouped(families.samples().into()),
        grouped(families.len() as u64),
        families.radius(),
        if shown < families.len() {
            format!(" Shown: the {} largest.", grouped(shown as u64))
        } else {
            String::new()
        }
    );
    out
}

/// Reads and draws samples.
struct Pictures {
    reader: Reader,
    limits: Limits,
}

impl Pictures {
    fn new(catalog: &Arc<Catalog>, config: &Config) -> Result<Pictures> {
        let loader = config.settings().loader();
        let limits = Limits {
            pixels_max: loader.pixels_max,
            scratch_bytes_max: (loader.memory_bytes_max / 4) as usize,
        };
        let reader = Reader::new(catalog.clone(), None, config.settings().clone())?;
        Ok(Pictures { reader, limits })
    }

    fn family(&self, out: &mut String, members: &[u32], found: &FamilySet) -> Result<()> {
        let shown = &members[..members.len().min(MEMBERS_SHOWN_MAX)];
        let Data::Raw(samples) = self.reader.read(0, shown)?.data else {
            return Err(Error::corrupt("raw samples came as a tensor").into());
        };
        let _ = writeln!(out, "<section><h2>{} samples</h2><div class=row>", grouped(members.len() as u64));
        for (&id, bytes) in shown.iter().zip(&samples) {
            let catalog = self.reader.catalog();
            let at = catalog.locate(SampleId(id))?;
            let label = catalog.label(SampleId(id))?;
            let class = catalog.classes().get(label as usize).map_or("", String::as_str);
            // A bare number would be taken for another sample's.
            let bare = class.bytes().all(|byte| byte.is_ascii_digit());
            let class = if bare { format!("class {class}") } else { escaped(class) };
            let other = if label == catalog.label(SampleId(members[0]))? { "" } else { " class=other" };
            let picture = match thumbnail(catalog.encoding(), bytes, self.limits, SIDE_MAX, FILE_BYTES_MAX) {
                Ok(made) => {
                    let small = made.width.max(made.height) <= PIXELATED_SIDE_MAX;
                    let hard = if small { " class=hard" } else { "" };
                    let (kind, data) = (made.media_type, base64(&made.bytes));
                    let (width, height) = (made.width, made.height);
                    format!(
                        "<img{hard} alt=\"sample {id}\" title=\"{width} x {height} pixels\" src=\"data:{kind};base64,{data}\">"
                    )
                }
                Err(error) => format!("<span class=broken>{}</span>", escaped(&error.to_string())),
            };
            let distance = match found.distance(id) {
                _ if id == members[0] => "first".to_string(),
                1 => "1 bit".to_string(),
                bits => format!("{bits} bits"),
            };
            let _ = writeln!(
                out,
                "<figure{other}>{picture}<figcaption title=\"{}\"><b>{id}</b> {}<br><small>{distance}</small></figcaption></figure>",
                escaped(at.name),
                class
            );
        }
        if members.len() > shown.len() {
            let more = grouped((members.len() - shown.len()) as u64);
            let _ = writeln!(out, "<p class=more>and {more} more</p>");
        }
        out.push_str("</div></section>\n");
        Ok(())
    }
}

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#0002;--soft:#0008;--card:#fff;--page:#f5f4f1}\
@media(prefers-color-scheme:dark){:root{--line:#fff3;--soft:#fff9;--card:#1e1f22;--page:#141517}}\
*{box-sizing:border-box}body{margin:0;background:var(--page);font:15px/1.45 system-ui,sans-serif}\
main{max-width:76rem;margin:0 auto;padding:1.5rem 1rem 3rem}h1{margin:0;font-size:1.6rem}\
.source{margin:0;color:var(--soft);overflow-wrap:anywhere}\
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.8rem 1rem;margin:1rem 0}\
h2{margin:0 0 .6rem;font-size:1rem}.row{display:flex;flex-wrap:wrap;gap:.8rem}\
figure{margin:0;max-width:min(100%,192px);min-width:96px}\
img{display:block;max-width:100%;max-height:192px;border-radius:4px;background:var(--page)}\
img.hard{width:96px;image-rendering:pixelated}\
.other figcaption{color:#d2691e}figcaption{font-size:.85rem;overflow-wrap:anywhere}small,.more{color:var(--soft)}.more{align-self:center}\
.broken{display:block;width:96px;color:#c33;font-size:.8rem}";
