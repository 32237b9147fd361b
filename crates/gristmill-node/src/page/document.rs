//! The page as a document: markup, style and script joined into one, and the same with a run's data in it.
//!
//! Nothing is fetched from elsewhere. The live page may run exactly one script, which its hash names; data stands in a
//! block that no browser executes.

use super::markup::base64;
use super::samples::{self, Kind};
use super::{Shared, lock};
use crate::{Error, Result};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

const MARKUP: &str = include_str!("web/page.html");
const STYLE: &str = include_str!("web/page.css");
const SCRIPT: &str = concat!(
    "'use strict';(()=>{\n",
    include_str!("web/words.js"),
    include_str!("web/chart.js"),
    include_str!("web/overview.js"),
    include_str!("web/node.js"),
    include_str!("web/data.js"),
    include_str!("web/main.js"),
    "})();"
);

/// How many samples, families and stand-ins a saved page has of each kind.
const SAVED: usize = 60;
const SAVED_FAMILIES: usize = 24;
/// Bytes of pictures in a saved page, and how long reading them may take: a run is over and somebody waits.
const SAVED_BYTES_MAX: usize = 8 << 20;
const SAVED_LIMIT: Duration = Duration::from_mins(1);

/// The page without data, which asks for them.
pub(super) static LIVE: LazyLock<String> = LazyLock::new(|| document("null"));

/// What browsers may do on the live page.
pub(super) static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = base64(digest(&SHA256, SCRIPT.as_bytes()).as_ref());
    format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; img-src 'self' data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

fn document(data: &str) -> String {
    // The data come last: nothing in them is taken for a place to put something.
    MARKUP.replacen("{{style}}", STYLE, 1).replacen("{{script}}", SCRIPT, 1).replacen("{{data}}", data, 1)
}

/// Everything that a browser asks for first.
pub(super) fn state(shared: &Shared, seen: u64) -> Option<Value> {
    let mut state = lock(&shared.state).after(seen)?;
    state["facts"] = json!(shared.facts);
    Some(state)
}

/// The page with everything in it.
pub(super) fn saved(shared: &Arc<Shared>) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::io("start", "an I/O runtime", e))?;
    let mut answers = Map::new();
    let mut pictures = Map::new();
    let (mut bytes, end) = (0, Instant::now() + SAVED_LIMIT);
    for (name, kind) in Kind::NAMES {
        let count = if kind == Kind::Families { SAVED_FAMILIES } else { SAVED };
        let mut answer = samples::window(shared, kind, 0, count);
        answer["from"] = 0.into();
        for id in samples::ids(&answer) {
            if bytes > SAVED_BYTES_MAX || Instant::now() > end || pictures.contains_key(&id.to_string()) {
                continue;
            }
            let picture = runtime.block_on(shared.pictures.of(&shared.set, id));
            let uri = format!("data:{};base64,{}", picture.media_type, base64(&picture.bytes));
            bytes += uri.len();
            pictures.insert(id.to_string(), uri.into());
        }
        answers.insert(name.to_string(), answer);
    }
    let data = json!({ "state": state(shared, 0), "samples": answers, "pictures": pictures });
    // Inside of a script block only this character could end it.
    Ok(document(&data.to_string().replace('<', "\\u003c")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_whole_and_fetches_nothing() {
        let page = &*LIVE;
        assert!(!page.contains("{{") && page.contains(STYLE) && page.contains(SCRIPT));
        assert_eq!(page.matches("<script>").count(), 1, "one script, so that one hash names it");
        for outside in ["http://", "https://", "@import", "url(", "src=\"/", "innerHTML", "eval("] {
            let svg = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!svg.contains(outside), "{outside}");
        }
        assert!(!SCRIPT.contains("</script"));
        assert!(page.len() < 100_000, "{} bytes", page.len());
    }
}
