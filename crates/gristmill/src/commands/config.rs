//! `gristmill config`: every setting, where its value comes from, and whether a file is sound.

mod reference;

use crate::args::ConfigCommand;
use crate::output::{counted, json, line, name};
use anyhow::Result;
use gristmill_node::config::{Config, Origin};
use gristmill_node::open;
use serde_json::json;
use std::process::ExitCode;

pub(super) fn run(command: ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Show { common } => {
            let config = common.config(&[])?;
            open::recipe(config.settings().recipe())?;
            show(&config, common.json)?;
        }
        ConfigCommand::Check { file, json: as_json } => {
            let config = Config::from_file(&file)?;
            open::recipe(config.settings().recipe())?;
            let set = config.rows().filter(|(.., origin)| **origin != Origin::Default).count();
            if as_json {
                json(&json!({ "file": file, "ok": true, "settings": set }))?;
            } else {
                let set = counted(set as u64, "setting", "settings");
                line(format_args!("{}: sound, {set}", name(file.display())))?;
            }
        }
        ConfigCommand::Reference { page } => reference::print(page)?,
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
