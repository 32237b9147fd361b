//! Sizes as people write them: `64MiB`, `1.5 GB`, `4096`.

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Reads a size; `None` if it is not one.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = (text[..digits].replace('_', ""), text[digits..].trim());
    let scale = if unit.is_empty() {
        1
    } else {
        UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, scale)| *scale)?
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let bytes = number.parse::<f64>().ok()? * scale as f64;
    (bytes.is_finite() && (0.0..9e18).contains(&bytes)).then_some(bytes as u64)
}

/// Shows a size in the largest binary unit that divides it, else in bytes.
pub fn format_bytes(bytes: u64) -> String {
    let binary = UNITS[..4].iter().rev().find(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale));
    binary.map_or_else(|| bytes.to_string(), |(name, scale)| format!("{}{name}", bytes / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, expect) in [
            ("4096", Some(4_096)),
            ("64MiB", Some(64 << 20)),
            ("64 mib", Some(64 << 20)),
            ("1.5GB", Some(1_500_000_000)),
            ("1_000kB", Some(1_000_000)),
            ("12 parsecs", None),
            ("-1", None),
            ("", None),
            ("1e9", None),
            ("99999999999TiB", None),
        ] {
            assert_eq!(parse_bytes(text), expect, "{text}");
        }
        for bytes in [0, 1, 4_096, 1 << 30, 3 << 20, 1_000_000] {
            assert_eq!(parse_bytes(&format_bytes(bytes)), Some(bytes));
        }
        assert_eq!(format_bytes(3 << 20), "3MiB");
    }
}
