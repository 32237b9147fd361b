//! The reference pages, as Markdown, from what the program itself knows: settings, commands, figures.

use crate::args::{Args, Page};
use crate::output::line;
use anyhow::Result;
use clap::{Command, CommandFactory};
use gristmill_node::config::KEYS;
use gristmill_node::metrics::{Figure, of_a_node, of_a_run};

/// Columns of the help in the page, whatever the terminal has.
const COLUMNS: usize = 100;

/// Prints one page.
pub(super) fn print(page: Page) -> Result<()> {
    match page {
        Page::Settings => settings(),
        Page::Commands => commands(),
        Page::Metrics => metrics(),
    }
}

fn settings() -> Result<()> {
    line("# Settings\n")?;
    line(
        "Printed by `gristmill config reference`. A setting may stand in a TOML file (`[section]`, then `name = value`),",
    )?;
    line("in the environment, or behind `--set`. Later ones win: file, environment, argument.\n")?;
    line("| setting | default | values | environment | meaning |")?;
    line("|---|---|---|---|---|")?;
    for key in KEYS {
        let environment = key.environment();
        let (default, values) = (key.default(), key.values());
        line(format_args!("| `{}` | {default} | {values} | `{environment}` | {} |", key.name, key.meaning))?;
    }
    Ok(())
}

fn commands() -> Result<()> {
    line("# Commands\n")?;
    line("Printed by `gristmill config reference commands`: what `--help` says of each.")?;
    let mut root = Args::command();
    root.build();
    command(&root, "gristmill")
}

/// A command's help, then that of those below it.
fn command(of: &Command, path: &str) -> Result<()> {
    // Versions and colours would make the page another one on every machine.
    let mut plain = of.clone().bin_name(path).term_width(COLUMNS).color(clap::ColorChoice::Never);
    let help = plain.render_help().to_string();
    line(format_args!("\n## {path}\n\n```text"))?;
    help.trim_end().lines().try_for_each(|text| line(text.trim_end()))?;
    line("```")?;
    for below in of.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        command(below, &format!("{path} {}", below.get_name()))?;
    }
    Ok(())
}

fn metrics() -> Result<()> {
    line("# Metrics\n")?;
    line(
        "Printed by `gristmill config reference metrics`. In the text format of Prometheus; a dashboard for Grafana is in",
    )?;
    line("[docs/grafana](../grafana/gristmill.json).\n")?;
    line("## Of a node (`gristmill serve --http`)\n")?;
    table(&of_a_node())?;
    line("\n## Of a run (`/metrics` of its page)\n")?;
    table(&of_a_run())
}

fn table(figures: &[Figure]) -> Result<()> {
    line("| figure | kind | labels | meaning |")?;
    line("|---|---|---|---|")?;
    for Figure { name, kind, labels, meaning } in figures {
        line(format_args!("| `{name}` | {kind} | {labels} | {meaning} |"))?;
    }
    Ok(())
}
