//! Cores as people type them.

use anyhow::Result;
use gristmill_node::Error;

/// The most cores that may be typed.
const CORES_MAX: f64 = 1_024.0;
/// The most values of one list.
const VALUES_MAX: usize = 64;

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
    fn cores_once_each() {
        assert_eq!(cores("0,0.5, 0.5").unwrap(), [0.0, 0.5]);
        assert!(cores("max").unwrap()[0] >= 1.0);
        for text in ["", "-1", "NaN", "many", "1e9"] {
            assert!(cores(text).is_err(), "{text}");
        }
    }
}
