//! `gristmill status`: what a node or a training run does, as a table or as JSON, once or again and again.
//!
//! A node is asked over its own wire, a run by the address of its page. In a terminal a watched view is drawn again in its
//! place; elsewhere it is a plain line now and then. One that goes away is waited for, and that is said.

mod ask;
mod minute;
mod node;
mod run;

use crate::args::StatusArgs;
use crate::output::{json, line, name};
use crate::screen::Screen;
use crate::stop;
use anyhow::Result;
use ask::{Answer, Asked};
use gristmill_node::Error;
use node::NodeView;
use run::RunView;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often `--watch` looks, in a terminal and elsewhere.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_PLAIN: Duration = Duration::from_secs(2);

/// What is shown, once it is known what there is to show.
enum View {
    Node(NodeView),
    Run(Box<RunView>),
}

impl View {
    /// Takes what came; a view of something else begins anew.
    fn take(view: &mut Option<View>, url: &str, answer: Answer) {
        match (view, answer) {
            (_, Answer::Same) => {}
            (Some(View::Node(node)), Answer::Node(report)) => node.take(Instant::now(), report),
            (Some(View::Run(run)), Answer::Run(news)) => run.take(&news),
            (view, Answer::Node(report)) => {
                let mut node = NodeView::new(url);
                node.take(Instant::now(), report);
                *view = Some(View::Node(node));
            }
            (view, Answer::Run(news)) => {
                let mut run = RunView::new(url);
                run.take(&news);
                *view = Some(View::Run(Box::new(run)));
            }
        }
    }

    fn table(&self) -> String {
        match self {
            View::Node(node) => node.table(),
            View::Run(run) => run.table(),
        }
    }

    /// What is new since the last time, as plain lines.
    fn lines(&mut self) -> Vec<String> {
        match self {
            View::Node(node) => node.lines(),
            View::Run(run) => run.lines(),
        }
    }

    /// Whether nothing more will come.
    fn is_over(&self) -> bool {
        matches!(self, View::Run(run) if run.is_over())
    }
}

pub(super) fn status(args: &StatusArgs) -> Result<ExitCode> {
    let config = args
        .common
        .config(&[("serve.token_file", args.token_file.as_ref()), ("client.tls_ca", args.tls_ca.as_ref())])?;
    let mut asked = Asked::open(&args.url, &config)?;
    if args.watch {
        return watch(args, &mut asked);
    }
    let answer = asked.ask()?;
    if args.common.json {
        answer.value().map_or(Ok(()), json)?;
    } else {
        let mut view = None;
        View::take(&mut view, &args.url, answer);
        view.map_or(Ok(()), |view| line(view.table().trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows it again and again until Ctrl-C, or until a run is over.
fn watch(args: &StatusArgs, asked: &mut Asked) -> Result<ExitCode> {
    let mut screen = if args.common.json { None } else { Screen::open() };
    let every = if screen.is_some() { EVERY } else { EVERY_PLAIN };
    let mut view: Option<View> = None;
    let mut away: Option<Instant> = None;
    let mut reached = false;
    while !stop::asked() {
        // What hangs must not hold up Ctrl-C: it is asked on a thread of its own.
        let Some(answer) = asked.ask_until(stop::asked) else { break };
        match answer {
            Ok(answer) => {
                reached = true;
                let back = away.take().map(|since| {
                    format!("{} is back after {:.0} s", name(&args.url), since.elapsed().as_secs_f64())
                });
                if args.common.json {
                    answer.value().map_or(Ok(()), json)?;
                    View::take(&mut view, &args.url, answer);
                } else {
                    View::take(&mut view, &args.url, answer);
                    show(&mut screen, view.as_mut(), back)?;
                }
            }
            // An address where nothing ever was is a wrong one.
            Err(error) if !reached => return Err(error.into()),
            Err(error) => {
                let first = away.is_none();
                let since = *away.get_or_insert_with(Instant::now);
                gone(&mut screen, view.as_ref(), args, &error, first, since)?;
            }
        }
        if view.as_ref().is_some_and(View::is_over) {
            break;
        }
        stop::sleep(every);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(screen: &mut Option<Screen>, view: Option<&mut View>, back: Option<String>) -> Result<()> {
    let Some(view) = view else { return Ok(()) };
    match screen {
        Some(screen) => screen.draw(&view.table()),
        None => back.into_iter().chain(view.lines()).try_for_each(line),
    }
}

/// Says that it is away: above the last view in a terminal, else once.
fn gone(
    screen: &mut Option<Screen>,
    view: Option<&View>,
    args: &StatusArgs,
    error: &Error,
    first: bool,
    since: Instant,
) -> Result<()> {
    let words = format!("away: {}; asking again until Ctrl-C", name(error));
    match screen {
        Some(screen) => {
            let seconds = since.elapsed().as_secs_f64();
            let last = view.map_or(String::new(), View::table);
            screen
                .draw(&format!("{words} (for {seconds:.0} s now; below is the last that was seen)\n\n{last}"))
        }
        None if first && !args.common.json => line(words),
        None => Ok(()),
    }
}
