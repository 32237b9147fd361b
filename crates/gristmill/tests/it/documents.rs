//! Documents that must follow the code: printed pages are fresh, what they name exists, links lead somewhere.

use crate::Place;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below a folder whose name ends so; what is built or fetched is left out.
fn files(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            if !["target", "work", "node_modules"].contains(&&*name) && !name.starts_with('.') {
                files(&path, ends, found);
            }
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

#[test]
fn the_reference_pages_are_fresh() {
    let pages = [
        ("settings", include_str!("../../../../docs/reference/settings.md")),
        ("commands", include_str!("../../../../docs/reference/commands.md")),
        ("metrics", include_str!("../../../../docs/reference/metrics.md")),
    ];
    for (name, page) in pages {
        let printed = Place::new().run(&["config", "reference", name]).good().out;
        assert!(printed == page, "docs/reference/{name}.md is stale: run `make reference`");
    }
    let settings = Place::new().run(&["config", "reference"]).good().out;
    assert_eq!(settings, pages[0].1);
}

/// Whatever is declared in the sources by this name: functions, types, tests, variants, modules.
struct Declared {
    names: BTreeSet<String>,
    paths: Vec<String>,
}

impl Declared {
    fn new() -> Declared {
        let mut sources = Vec::new();
        for folder in ["crates", "python", "bench"] {
            files(&root().join(folder), &[".rs", ".py"], &mut sources);
        }
        let mut names = BTreeSet::new();
        for source in &sources {
            for line in std::fs::read_to_string(source).unwrap().lines() {
                let words: Vec<&str> = line
                    .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .filter(|word| !word.is_empty())
                    .collect();
                let keyword = |word: &str| {
                    ["fn", "def", "struct", "enum", "trait", "const", "mod", "type", "class"].contains(&word)
                };
                names
                    .extend(words.windows(2).filter(|pair| keyword(pair[0])).map(|pair| pair[1].to_string()));
                let variant = line.trim_start().starts_with(|c: char| c.is_ascii_uppercase());
                names.extend(words.first().filter(|_| variant).map(ToString::to_string));
            }
        }
        let paths = sources.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        Declared { names, paths }
    }

    /// Whether what a document names is there: a path, a path and a name in it, or names with `::` between.
    fn has(&self, named: &str) -> bool {
        let mut parts = named.split("::");
        if named.contains('/') || named.contains(".rs") {
            let path = parts.next().unwrap_or_default();
            let path = format!("/{path}");
            // Crates are named without their first word.
            let short = |known: &String| known.replace("/gristmill-", "/").replace("/src/", "/");
            if !self.paths.iter().any(|known| short(known).contains(&path)) {
                return false;
            }
        }
        parts.all(|part| self.names.contains(part) || ["core", "node", "ops", "train", "sim"].contains(&part))
    }
}

/// What stands between backticks, but for what is no name: settings, commands, formulas, and names that are cut short.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.split('`').skip(1).step_by(2);
    let plain = |c: char| c.is_ascii_alphanumeric() || "_:/.-".contains(c);
    spans.filter(move |span| span.chars().all(plain) && !span.starts_with('-'))
}

#[test]
fn every_function_and_test_that_the_papers_page_names_exists() {
    let declared = Declared::new();
    let page = include_str!("../../../../docs/internals/papers.md");
    let mut count = 0;
    let mut missing = Vec::new();
    for row in page.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 3, "{row}");
        for name in cells[1..].iter().flat_map(|cell| named(cell)) {
            count += 1;
            if !declared.has(name) {
                missing.push(name.to_string());
            }
        }
    }
    assert!(missing.is_empty() && count > 120, "{count} are named; these are nowhere: {missing:?}");
    assert!(!declared.has("no_such_function") && !declared.has("select/no_such_file.rs"));
    assert!(!declared.has("select/bucket.rs::no_such_function"));
}

#[test]
fn every_promise_between_the_techniques_has_its_test() {
    let declared = Declared::new();
    let table = include_str!("../../../gristmill-node/tests/it/conflicts.rs");
    let rows: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("//! | ")).collect();
    let rows = &rows[1..]; // below the head
    let letters: String = rows.iter().map(|row| &row[..1]).collect();
    assert_eq!(letters, "ABCDEFGHIJKL");
    for row in rows {
        let held = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<&str> = named(held).collect();
        assert!(!names.is_empty(), "{row}");
        assert!(names.iter().all(|name| declared.has(name)), "{row}");
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut pages = vec!["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .into_iter()
        .map(|name| root().join(name))
        .collect::<Vec<_>>();
    files(&root().join("docs"), &[".md"], &mut pages);
    let mut links = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            links += 1;
            assert!(page.parent().unwrap().join(path).exists(), "{}: {target}", page.display());
        }
    }
    assert!(links > 20, "{links}");
}
