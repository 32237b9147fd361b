//! Rates as people type them.

use anyhow::Result;
use gristmill_node::Error;
use gristmill_node::config::parse_bytes;

const BITS: [(&str, f64); 4] = [("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];

/// `500Mbit` or `60MB`, in bytes per second.
pub(super) fn bytes_per_s(option: &str, text: &str) -> Result<u64> {
    let trimmed = text.trim().trim_end_matches("/s");
    let bits = BITS.iter().find_map(|(unit, scale)| {
        let number = trimmed.strip_suffix(unit)?.trim().parse::<f64>().ok()?;
        Some((number * scale / 8.0).round())
    });
    let bytes = match bits {
        Some(bytes) => (1.0..1e15).contains(&bytes).then_some(bytes as u64),
        None => parse_bytes(trimmed).filter(|bytes| *bytes > 0),
    };
    bytes.ok_or_else(|| {
        let error = Error::config(format!("{option} {text:?} is not a rate above 0"));
        error.hint("give bits or bytes per second, e.g. 500Mbit or 60MB").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_in_bits_and_bytes() {
        for (text, bytes) in [
            ("500Mbit", 62_500_000),
            ("1Gbit/s", 125_000_000),
            ("8 bit", 1),
            ("60MB", 60_000_000),
            ("1KiB/s", 1_024),
        ] {
            assert_eq!(bytes_per_s("--link", text).unwrap(), bytes, "{text}");
        }
        for text in ["0", "0Mbit", "-1Mbit", "fast", "", "1e99Gbit", "NaNMbit"] {
            assert!(bytes_per_s("--link", text).unwrap_err().to_string().contains("--link"), "{text}");
        }
    }
}
