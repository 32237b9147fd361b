//! Rates and cores as people type them.

use anyhow::Result;
use gristmill_node::Error;
use gristmill_node::config::parse_bytes;

/// The most cores that may be typed.
const CORES_MAX: f64 = 1_024.0;
/// The most values of one list.
const VALUES_MAX: usize = 64;
const BITS: [(&str, f64); 4] = [("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];

/// `500Mbit` or `60MB`, in bytes per second.
pub(super) fn bytes_per_s(text: &str) -> Result<u64> {
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
        let error = Error::config(format!("--link {text:?} is not a rate above 0"));
        error.hint("give bits or bytes per second, e.g. 500Mbit or 60MB").into()
    })
}

/// `0,0.5,max`, in cores.
pub(super) fn cores(text: &str) -> Result<Vec<f64>> {
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    let mut cores: Vec<f64> = Vec::new();
    for typed in text.split(',').map(str::trim).filter(|typed| !typed.is_empty()) {
        let number = if typed == "max" { Some(all) } else { typed.parse().ok() };
        let Some(number) = number.filter(|number| (0.0..=CORES_MAX).contains(number)) else {
            let error = Error::config(format!("--cores: {typed:?} is not a number from 0 to {CORES_MAX}"));
            return Err(error.hint("e.g. 0,0.5,1,max").into());
        };
        if !cores.contains(&number) {
            cores.push(number);
        }
    }
    if cores.is_empty() || cores.len() > VALUES_MAX {
        let error = Error::config(format!("--cores {text:?} names {} values", cores.len()));
        return Err(error.hint(format!("name 1 to {VALUES_MAX}, e.g. 0,0.5,1,max")).into());
    }
    Ok(cores)
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
            assert_eq!(bytes_per_s(text).unwrap(), bytes, "{text}");
        }
        for text in ["0", "0Mbit", "-1Mbit", "fast", "", "1e99Gbit", "NaNMbit"] {
            assert!(bytes_per_s(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cores_once_each() {
        assert_eq!(cores("0,0.5, 0.5").unwrap(), [0.0, 0.5]);
        assert!(cores("max").unwrap()[0] >= 1.0);
        for text in ["", "-1", "NaN", "many", "1e9"] {
            assert!(cores(text).is_err(), "{text}");
        }
    }
}
