//! Pictures of samples: read, made small, and kept for a while.
//!
//! They compete with training for the store and the cores, so few are made at a time and not too many per second; who
//! asks for more waits. A sample that cannot be read, decoded or shown becomes a drawing that says why.

use super::lock;
use super::markup::escaped;
use crate::dataset::DataSet;
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_ops::{Limits, thumbnail};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The longer side of a picture that is made small.
const SIDE_MAX: u32 = 128;
/// Files up to this size are shown as they are.
const FILE_BYTES_MAX: usize = 12_000;
/// Larger samples are not read for a page.
const SAMPLE_BYTES_MAX: u32 = 64 << 20;
/// Working memory for one picture.
const SCRATCH_BYTES_MAX: usize = 256 << 20;
/// Pictures that are made at once.
const AT_ONCE: usize = 2;
/// The least time from one to the next.
const APART: Duration = Duration::from_millis(5);
/// How long a sample may take to come.
const READ_LIMIT: Duration = Duration::from_secs(20);
/// Bytes of pictures that are kept.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// The longest reason that is drawn.
const REASON_MAX: usize = 160;

/// A picture for a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) media_type: &'static str,
    pub(super) bytes: Bytes,
}

/// Makes and keeps pictures.
#[derive(Debug)]
pub(super) struct Pictures {
    kept: Mutex<Kept>,
    slots: Semaphore,
    next: Mutex<Option<Instant>>,
    limits: Limits,
}

/// First in, first out.
#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<u32, Picture>,
    order: VecDeque<u32>,
    bytes: usize,
}

impl Pictures {
    pub(super) fn new(pixels_max: u64) -> Pictures {
        let limits = Limits { pixels_max, scratch_bytes_max: SCRATCH_BYTES_MAX };
        Pictures { kept: Mutex::default(), slots: Semaphore::new(AT_ONCE), next: Mutex::default(), limits }
    }

    /// The picture of a sample, or the drawing of why there is none.
    pub(super) async fn of(&self, set: &Arc<DataSet>, id: u32) -> Picture {
        if let Some(kept) = lock(&self.kept).by_id.get(&id) {
            return kept.clone();
        }
        let Ok(_slot) = self.slots.acquire().await else { return drawn("the page is closing") };
        tokio::time::sleep_until(self.turn()).await;
        match self.make(set, id).await {
            Ok(picture) => {
                lock(&self.kept).keep(id, &picture);
                picture
            }
            // Not kept: what failed may work the next time.
            Err(why) => drawn(&why),
        }
    }

    /// When the next picture may be made.
    fn turn(&self) -> Instant {
        let mut next = lock(&self.next);
        let turn = next.map_or_else(Instant::now, |next| next.max(Instant::now()));
        *next = Some(turn + APART);
        turn
    }

    async fn make(&self, set: &Arc<DataSet>, id: u32) -> Result<Picture, String> {
        let bytes = set.catalog().size(SampleId(id)).map_err(|e| e.to_string())?;
        if bytes > SAMPLE_BYTES_MAX {
            return Err(format!("{bytes} bytes are too many to be shown"));
        }
        let read = tokio::time::timeout(READ_LIMIT, set.load(SampleId(id))).await;
        let bytes = read.map_err(|_| "it did not come in time")?.map_err(|e| e.to_string())?;
        let (encoding, limits) = (set.catalog().encoding(), self.limits);
        let made = tokio::task::spawn_blocking(move || {
            thumbnail(encoding, &bytes, limits, SIDE_MAX, FILE_BYTES_MAX)
        });
        let made = made.await.map_err(|_| "it could not be drawn")?.map_err(|e| e.to_string())?;
        Ok(Picture { media_type: made.media_type, bytes: made.bytes.into() })
    }
}

impl Kept {
    fn keep(&mut self, id: u32, picture: &Picture) {
        if self.by_id.insert(id, picture.clone()).is_none() {
            self.order.push_back(id);
            self.bytes += picture.bytes.len();
        }
        while self.bytes > KEPT_BYTES_MAX {
            let Some(first) = self.order.pop_front() else { return };
            self.bytes -= self.by_id.remove(&first).map_or(0, |gone| gone.bytes.len());
        }
    }
}

/// A drawing that says why there is no picture.
pub(super) fn drawn(why: &str) -> Picture {
    let mut lines: Vec<String> = vec![String::new()];
    let words: String = why.chars().take(REASON_MAX).collect();
    for word in words.split_whitespace() {
        let full = lines.last().is_some_and(|line| !line.is_empty() && line.len() + word.len() > 20);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            *line += if line.is_empty() { "" } else { " " };
            line.extend(word.chars().take(24));
        }
    }
    let mut out = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 128 128\" role=\"img\">\
         <rect width=\"128\" height=\"128\" fill=\"#8884\"/>\
         <path d=\"M50 14h28v20H50zM50 30l9-8 6 5 5-4 8 7M46 38l36-28\" fill=\"none\" stroke=\"#b4552d\" stroke-width=\"2\"/>\
         <g font-family=\"system-ui,sans-serif\" font-size=\"10\" text-anchor=\"middle\" fill=\"#888\">",
    );
    for (i, line) in lines.iter().take(7).enumerate() {
        let y = 54 + 11 * i;
        // Writing to a string cannot fail.
        let _ = write!(out, "<text x=\"64\" y=\"{y}\">{}</text>", escaped(line));
    }
    out.push_str("</g></svg>");
    Picture { media_type: "image/svg+xml", bytes: out.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_drawn_and_cannot_do_anything() {
        let picture = drawn("<script>alert(1)</script> & \u{7} \"quoted\"");
        let text = std::str::from_utf8(&picture.bytes).unwrap();
        assert!(
            !text.contains("<script") && text.contains("&lt;script&gt;") && text.contains("&quot;"),
            "{text}"
        );
        assert!(drawn(&"x".repeat(1_000_000)).bytes.len() < 2_000);
        assert!(drawn("").bytes.starts_with(b"<svg"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept::default();
        let picture = |len: usize| Picture { media_type: "image/png", bytes: vec![0; len].into() };
        for id in 0..100 {
            kept.keep(id, &picture(1 << 20));
            kept.keep(id, &picture(1 << 20));
        }
        assert_eq!((kept.by_id.len(), kept.order.len(), kept.bytes), (8, 8, 8 << 20));
        assert!(kept.by_id.contains_key(&99) && !kept.by_id.contains_key(&0));
    }
}
