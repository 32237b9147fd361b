//! `gristmill config`: every setting, where its value comes from, and whether a file is sound.

use crate::args::ConfigCommand;
use crate::output::{json, line};
use anyhow::Result;
use gristmill_node::config::{Config, KEYS};
use serde_json::json;
use std::process::ExitCode;

pub(super) fn run(command: ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Show { common } => {
            let config = common.config(&[])?;
            show(&config, common.json)?;
        }
        ConfigCommand::Check { file, common } => {
            let config = Config::load(Some(&file), &[])?;
            let set =
                config.rows().filter(|(.., origin)| origin.to_string() == file.display().to_string()).count();
            if common.json {
                json(&json!({ "file": file, "ok": true, "settings": set }))?;
            } else {
                line(format_args!("{}: sound, {set} settings", file.display()))?;
            }
        }
        ConfigCommand::Reference => reference()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(config: &Config, as_json: bool) -> Result<()> {
    let mut section = "";
    for (key, value, origin) in config.rows() {
        if as_json {
            json(
                &json!({ "key": key.name, "value": value, "origin": origin.to_string(), "meaning": key.meaning }),
            )?;
            continue;
        }
        let (of, name) = key.name.split_once('.').unwrap_or(("", key.name));
        if of != section {
            line(format_args!("{}[{of}]", if section.is_empty() { "" } else { "\n" }))?;
            section = of;
        }
        let quoted = if value.parse::<f64>().is_ok() || value.parse::<bool>().is_ok() {
            value
        } else {
            format!("{value:?}")
        };
        line(format_args!("{:<34} # {}; {}", format!("{name} = {quoted}"), origin, key.meaning))?;
    }
    Ok(())
}

fn reference() -> Result<()> {
    line("# Settings\n")?;
    line(
        "Printed by `gristmill config reference`. A setting may stand in a TOML file (`[section]`, then `name = value`),",
    )?;
    line("in the environment, or behind `--set`. Later ones win: file, environment, argument.\n")?;
    line("| setting | default | environment | meaning |")?;
    line("|---|---|---|---|")?;
    for key in KEYS {
        let environment = key.environment();
        line(format_args!("| `{}` | {} | `{environment}` | {} |", key.name, key.default(), key.meaning))?;
    }
    Ok(())
}
