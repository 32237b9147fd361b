//! List files: CSV or JSON lines that name a path and a label per sample.
//!
//! Ids follow the lines. Paths are relative to the list's own folder and may not leave it. When all labels are
//! whole numbers they are the labels; otherwise they are class names and the sorted names are numbered. Numbers
//! are named after a further column of names when it agrees with them, or after `classes.txt`.
//!
//! Deliberately not here: tab or semicolon separation, and absolute paths: a list that moves must still work.

use super::draft::Draft;
use super::layout::CLASSES_MAX;
use super::scan::{Scan, extension, folder, join};
use super::{BuildOptions, SourceKind, classes};
use crate::store::ObjectInfo;
use crate::{Error, Result};
use gristmill_ops::Encoding;
use std::collections::{BTreeMap, HashMap};

/// Most bytes of a list file.
const LIST_BYTES_MAX: u64 = 4 << 30;
/// Most bytes of one line.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Columns that may hold the path and the label, the most telling first.
const PATH_COLUMNS: [&str; 5] = ["path", "file", "filename", "file_name", "image"];
const LABEL_COLUMNS: [&str; 5] = ["label", "class_index", "class", "class_name", "wnid"];
const NAME_COLUMNS: [&str; 3] = ["class_name", "class", "wnid"];

/// One line of a list.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: u64,
    path: String,
    label: String,
    /// What another column calls the class.
    called: Option<String>,
}

pub(super) async fn build(scan: &Scan<'_>, list: &ObjectInfo, options: &BuildOptions) -> Result<Draft> {
    let bytes = scan.read_whole(list, LIST_BYTES_MAX).await?;
    let shown = scan.shown(&list.path);
    let rows = parse(&list.path, &bytes, options).map_err(|error| error.at(&shown))?;
    if rows.is_empty() {
        return Err(Error::config(format!("{shown} lists no samples")));
    }
    let names = object_names(&rows, folder(&list.path)).map_err(|error| error.at(&shown))?;
    let (labels, given) = labels(&rows).map_err(|error| error.at(&shown))?;
    let mut draft = Draft::of_files(scan.url, SourceKind::List, Encoding::Sniffed);
    draft.push_side(list, &bytes);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let objects = scan.stat_all(folder(&list.path), &names).await?;
    let missing = objects.iter().filter(|object| object.is_none()).count();
    for ((object, row), label) in objects.iter().zip(&rows).zip(labels) {
        let Some(object) = object else {
            let (line, path) = (row.line, &row.path);
            let others =
                if missing > 1 { format!(" ({missing} files are missing in all)") } else { String::new() };
            return Err(Error::new(
                crate::Kind::NotFound,
                format!("{shown} line {line}: there is no file {path}{others}"),
            )
            .hint("paths are relative to the folder of the list"));
        };
        draft.push_file(object, label)?;
    }
    match given {
        Some(names) => draft.classes = names,
        None => classes::name(scan, &mut draft, folder(&list.path), &["classes.txt"], 0).await?,
    }
    Ok(draft)
}

fn parse(name: &str, bytes: &[u8], options: &BuildOptions) -> Result<Vec<Row>> {
    // Before anything parses it: no line may be endless.
    let mut start = 0;
    for (line, end) in line_ends(bytes).enumerate() {
        if end - start > LINE_BYTES_MAX {
            return Err(Error::config(format!("line {} has more than {LINE_BYTES_MAX} bytes", line + 1)));
        }
        start = end + 1;
    }
    if matches!(extension(name).as_str(), "jsonl" | "ndjson" | "json") {
        json_lines(bytes, options)
    } else {
        csv(bytes, options)
    }
}

/// Where each line ends.
fn line_ends(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    ends.chain(std::iter::once(bytes.len()))
}

fn csv(bytes: &[u8], options: &BuildOptions) -> Result<Vec<Row>> {
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(::csv::Trim::All)
        .from_reader(bytes);
    let mut record = ::csv::StringRecord::new();
    let mut columns: Option<Columns> = None;
    let mut rows = Vec::new();
    loop {
        let line = reader.position().line();
        let more = reader.read_record(&mut record).map_err(|e| {
            let line = e.position().map_or(line, ::csv::Position::line);
            Error::config(format!("line {line}: not readable as CSV in UTF-8")).because(e)
        })?;
        if !more {
            return Ok(rows);
        }
        let line = record.position().map_or(line, ::csv::Position::line);
        let Some(columns) = &columns else {
            let (found, header) = Columns::find(&record, options)?;
            if !header {
                rows.push(found.row(&record, line)?);
            }
            columns = Some(found);
            continue;
        };
        rows.push(columns.row(&record, line)?);
    }
}

/// Which columns of a CSV file are used.
struct Columns {
    path: usize,
    label: usize,
    called: Option<usize>,
}

impl Columns {
    /// Finds the columns by the first record, and whether that is a header.
    fn find(first: &::csv::StringRecord, options: &BuildOptions) -> Result<(Columns, bool)> {
        let at = |name: &str| first.iter().position(|field| field.eq_ignore_ascii_case(name));
        let chosen = |option: &Option<String>| option.as_deref().and_then(at);
        let path = chosen(&options.path_column).or_else(|| PATH_COLUMNS.iter().find_map(|name| at(name)));
        let header = path.is_some();
        let there = || first.iter().collect::<Vec<_>>().join(", ");
        let column = |option: &Option<String>, what: &str| match option {
            None => Ok(None),
            Some(wanted) => {
                let number = wanted.parse().ok().filter(|number| (1..=first.len()).contains(number));
                at(wanted).or(number.map(|number| number - 1)).map(Some).ok_or_else(|| {
                    Error::config(format!("there is no {what} column {wanted:?} among: {}", there()))
                        .hint(format!("give --{what}-column a name of the header, or a number from 1"))
                })
            }
        };
        let path = column(&options.path_column, "path")?.or(path).unwrap_or(0);
        let known = || if header { LABEL_COLUMNS.iter().find_map(|name| at(name)) } else { Some(1) };
        let label =
            column(&options.label_column, "label")?.or_else(known).filter(|&label| label < first.len());
        let label = label.ok_or_else(|| {
            Error::config(format!("no column holds the label; there are: {}", there())).hint(
                "call one label, class_index, class, class_name or wnid, or choose one with --label-column",
            )
        })?;
        let called =
            NAME_COLUMNS.iter().find_map(|name| at(name)).filter(|&called| header && called != label);
        Ok((Columns { path, label, called }, header))
    }

    fn row(&self, record: &::csv::StringRecord, line: u64) -> Result<Row> {
        let field = |at: usize, what: &str| match record.get(at) {
            Some(field) if !field.is_empty() => Ok(field.to_string()),
            _ => Err(Error::config(format!("line {line}: there is no {what}"))),
        };
        Ok(Row {
            line,
            path: field(self.path, "path")?,
            label: field(self.label, "label")?,
            called: self.called.and_then(|at| record.get(at)).map(Into::into),
        })
    }
}

fn json_lines(bytes: &[u8], options: &BuildOptions) -> Result<Vec<Row>> {
    let path_keys: Vec<&str> = options.path_column.as_deref().map_or(PATH_COLUMNS.to_vec(), |key| vec![key]);
    let label_keys: Vec<&str> =
        options.label_column.as_deref().map_or(LABEL_COLUMNS.to_vec(), |key| vec![key]);
    let mut rows = Vec::new();
    for (at, text) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if text.trim_ascii().is_empty() {
            continue;
        }
        let line = at as u64 + 1;
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(text).map_err(|e| {
                Error::config(format!("line {line}: not a JSON object"))
                    .hint(r#"each line looks like {"path": "a/b.jpg", "label": 3}"#)
                    .because(e)
            })?;
        let field = |keys: &[&str]| {
            let value = keys.iter().find_map(|key| object.get(*key))?;
            match value {
                serde_json::Value::String(text) if !text.is_empty() => Some(text.clone()),
                serde_json::Value::Number(number) => Some(number.to_string()),
                _ => None,
            }
        };
        let missing = |what: &str, keys: &[&str]| {
            Error::config(format!("line {line}: there is no {what} (looked for {})", keys.join(", ")))
                .hint(format!("choose another key with --{what}-column"))
        };
        let path = field(&path_keys).ok_or_else(|| missing("path", &path_keys))?;
        let label = field(&label_keys).ok_or_else(|| missing("label", &label_keys))?;
        rows.push(Row { line, path, label, called: field(&NAME_COLUMNS) });
    }
    Ok(rows)
}

/// The objects that the rows name, each once.
fn object_names(rows: &[Row], folder: &str) -> Result<Vec<String>> {
    let mut seen: HashMap<String, u64> = HashMap::with_capacity(rows.len());
    let mut names = Vec::with_capacity(rows.len());
    for Row { line, path, .. } in rows {
        let parts: Vec<&str> = path.split('/').filter(|part| *part != ".").collect();
        if path.starts_with('/') || path.contains("://") {
            return Err(Error::config(format!("line {line}: {path} is not relative"))
                .hint("write paths relative to the folder of the list"));
        }
        if parts.iter().any(|part| part.is_empty() || *part == "..") {
            return Err(Error::config(format!("line {line}: {path:?} leads out of the folder of the list"))
                .hint("paths have no empty part and no .."));
        }
        let name = join(folder, &parts.join("/"));
        if let Some(before) = seen.insert(name.clone(), *line) {
            return Err(Error::config(format!("line {line}: {path} was already listed in line {before}"))
                .hint("a sample has one line"));
        }
        names.push(name);
    }
    Ok(names)
}

/// The labels, and the class names when the list itself gives them.
fn labels(rows: &[Row]) -> Result<(Vec<u32>, Option<Vec<String>>)> {
    if rows.iter().any(|row| row.label.parse::<i64>().is_err()) {
        let mut names: BTreeMap<&str, u32> = rows.iter().map(|row| (row.label.as_str(), 0)).collect();
        names.values_mut().enumerate().for_each(|(at, label)| *label = at as u32);
        let labels = rows.iter().map(|row| names[row.label.as_str()]).collect();
        return Ok((labels, Some(names.into_keys().map(Into::into).collect())));
    }
    let label = |row: &Row| {
        let label = row.label.parse().ok().filter(|&label: &u32| (label as usize) < CLASSES_MAX);
        let (line, text) = (row.line, &row.label);
        label.ok_or_else(|| {
            Error::config(format!("line {line}: the label {text} is not between 0 and {}", CLASSES_MAX - 1))
        })
    };
    let labels: Vec<u32> = rows.iter().map(label).collect::<Result<_>>()?;
    Ok((labels.clone(), called(rows, &labels)))
}

/// What another column calls the numbered classes, when it calls every class by one name. `ImageNet` has two kinds
/// of crane, so a name that several classes share gets its number behind it.
fn called(rows: &[Row], labels: &[u32]) -> Option<Vec<String>> {
    let mut names: BTreeMap<u32, &str> = BTreeMap::new();
    for (row, &label) in rows.iter().zip(labels) {
        let name = row.called.as_deref().filter(|name| !name.is_empty())?;
        if *names.entry(label).or_insert(name) != name {
            return None;
        }
    }
    let mut times: HashMap<&str, u32> = HashMap::new();
    for name in names.values() {
        *times.entry(name).or_default() += 1;
    }
    let count = *names.keys().next_back()? + 1;
    let name = |label: u32| match names.get(&label) {
        None => label.to_string(),
        Some(name) if times[name] > 1 => format!("{name} ({label})"),
        Some(name) => (*name).to_string(),
    };
    Some((0..count).map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, labels and class names.
    type Read = (Vec<String>, Vec<u32>, Option<Vec<String>>);

    fn read(name: &str, text: &str) -> Result<Read> {
        let rows = parse(name, text.as_bytes(), &BuildOptions::default())?;
        let (labels, classes) = labels(&rows)?;
        Ok((object_names(&rows, "d")?, labels, classes))
    }

    #[test]
    fn lists_of_all_shapes() {
        let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        for (name, text, labels, classes) in [
            ("a.csv", "path,label\nb.jpg,1\n./a.jpg,0\n", vec![1, 0], None),
            ("a.csv", "b.jpg,1\r\na.jpg,0", vec![1, 0], None),
            ("a.csv", "Label,Path\nowl,b.jpg\nbee,a.jpg\n", vec![1, 0], names(&["bee", "owl"])),
            (
                "a.csv",
                "path,class_index,wnid,class_name\nb.jpg,2,n2,owl\na.jpg,0,n0,bee\n",
                vec![2, 0],
                names(&["bee", "1", "owl"]),
            ),
            (
                "a.csv",
                "path,label,class\nb.jpg,2,crane\na.jpg,0,crane\n",
                vec![2, 0],
                names(&["crane (0)", "1", "crane (2)"]),
            ),
            ("a.csv", "path,label\n\"b.jpg\", 7\na.jpg,x\n", vec![0, 1], names(&["7", "x"])),
            (
                "a.jsonl",
                "{\"path\":\"b.jpg\",\"label\":1}\n\n{\"label\":0,\"path\":\"a.jpg\"}\n",
                vec![1, 0],
                None,
            ),
            (
                "a.jsonl",
                "{\"path\":\"b.jpg\",\"label\":\"x\"}\n{\"label\":\"w\",\"path\":\"a.jpg\"}",
                vec![1, 0],
                names(&["w", "x"]),
            ),
        ] {
            assert_eq!(
                read(name, text).unwrap(),
                (vec!["d/b.jpg".into(), "d/a.jpg".into()], labels, classes),
                "{text}"
            );
        }
    }

    #[test]
    fn columns_can_be_chosen() {
        let options = BuildOptions {
            path_column: Some("where".into()),
            label_column: Some("3".into()),
            ..BuildOptions::default()
        };
        let rows = csv(b"id,where,what\n1,a.jpg,x\n", &options).unwrap();
        assert_eq!((rows[0].path.as_str(), rows[0].label.as_str(), rows.len()), ("a.jpg", "x", 1));
        let options = BuildOptions { label_column: Some("nope".into()), ..BuildOptions::default() };
        let error = csv(b"path,what\na.jpg,x\n", &options).err().unwrap().to_string();
        assert!(error.contains("no label column \"nope\" among: path, what"), "{error}");
    }

    #[test]
    fn wrong_lines_are_named() {
        let long = format!("a.jpg,0\n{},0\n", "x".repeat(LINE_BYTES_MAX));
        for (name, text, words) in [
            ("a.csv", "path,label\na.jpg,0\na.jpg,1\n", "line 3: a.jpg was already listed in line 2"),
            ("a.csv", "a.jpg,0\nb/../a.jpg,1\n", "line 2: \"b/../a.jpg\" leads out"),
            ("a.csv", "/a.jpg,0\n", "line 1: /a.jpg is not relative"),
            ("a.csv", "path,label\na.jpg\n", "line 2: there is no label"),
            ("a.csv", "path,size\na.jpg,4\n", "no column holds the label; there are: path, size"),
            ("a.csv", "a.jpg\n", "no column holds the label"),
            ("a.csv", "a.jpg,-1\n", "line 1: the label -1 is not between"),
            ("a.csv", "a.jpg,99999999\n", "line 1: the label 99999999"),
            ("a.csv", &long, "line 2 has more than"),
            ("a.jsonl", "{\"path\":\"a.jpg\",\"label\":1}\nnope\n", "line 2: not a JSON object"),
            ("a.jsonl", "{\"path\":\"a.jpg\"}\n", "line 1: there is no label"),
        ] {
            let error = read(name, text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let error =
            parse("a.csv", b"a.jpg,0\n\xff.jpg,1\n", &BuildOptions::default()).unwrap_err().to_string();
        assert!(error.contains("line 2: not readable as CSV in UTF-8"), "{error}");
    }
}
