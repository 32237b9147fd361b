//! `gristmill serve`: a data set behind sockets, until the process is asked to end.

use super::catalogued;
use crate::allocator;
use crate::args::ServeArgs;
use crate::output::{counted, json, line, name, say, size};
use crate::stop;
use anyhow::Result;
use gristmill_node::config::{CacheSize, Config, Origin};
use gristmill_node::dataset::DataSet;
use gristmill_node::node::Node;
use gristmill_node::open;
use gristmill_node::page::{Listening, Page};
use gristmill_node::serve::{Hosted, Server};
use gristmill_node::{Error, Kind};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often the page is told.
const PAGE_EVERY: Duration = Duration::from_secs(1);

pub(super) fn serve(args: &ServeArgs) -> Result<ExitCode> {
    allocator::give_back();
    let config = args.common.config(&[
        ("serve.listen", args.listen.as_ref()),
        ("serve.cores", args.cores.as_ref()),
        ("serve.unix", args.unix.as_ref()),
        ("serve.http", args.http.as_ref()),
        ("serve.name", args.name.as_ref()),
        ("serve.token_file", args.token_file.as_ref()),
        ("serve.tls_cert", args.tls_cert.as_ref()),
        ("serve.tls_key", args.tls_key.as_ref()),
        ("cache.size", args.memory.as_ref()),
        ("cache.disk", args.disk.as_ref()),
        ("cache.policy", args.policy.as_ref()),
        ("serve.peers", args.peers.as_ref()),
        ("serve.advertise", args.advertise.as_ref()),
        ("page.listen", args.page.as_ref()),
    ])?;
    // A node that keeps nothing would only be in the way.
    let settings = &config.settings().clone().or_cache(CacheSize::Share(0.2));
    let token = settings.token()?;
    let opened = catalogued(&args.source, None, &config, None, args.common.json)?;
    let set = open::data_set(opened.catalog, settings, &stop::asked)?;
    let (samples, bytes) = (set.catalog().len(), set.catalog().total_bytes()?);
    let called = match settings.serve_name() {
        "" => name_of(&args.source),
        given => given.to_string(),
    };
    let Some(options) = settings.node(bytes) else {
        return Err(Error::config("a node cannot keep its samples in another one")
            .hint("to put a node in front of another, serve that one's URL: gristmill serve grist://…")
            .into());
    };
    let (memory, disk) = (options.memory_bytes_max, options.disk.is_some());
    let peers = settings.peers(set.catalog().digest())?;
    let set = Arc::new(set);
    let page = open_page(&config, &set)?;
    let hosted = Hosted { name: called.clone(), node: Arc::new(Node::beside(set, options, peers)?) };
    let server = Server::start(settings.serve(), token, vec![hosted])?;
    let terminated = server.terminated()?;
    let tls = !settings.serve().tls_cert.is_empty();
    let tcp = server.tcp().map(|at| format!("{}://{at}/{called}", if tls { "grists" } else { "grist" }));
    let unix = server.unix().map(|path| format!("grist+unix://{}", path.display()));
    let http = server.http().map(|at| format!("{}://{at}/metrics", if tls { "https" } else { "http" }));
    if args.common.json {
        json(&json!({
            "name": called, "samples": samples, "bytes": bytes, "tcp": tcp, "unix": unix, "http": http,
            "page": page.as_ref().map(|(_, shown)| shown.url()),
        }))?;
    } else {
        let places: Vec<String> = [tcp, unix, http].into_iter().flatten().map(name).collect();
        line(format_args!(
            "serving {} ({}; up to {} kept in memory{}) on {}",
            counted(samples.into(), "sample", "samples"),
            size(bytes),
            size(memory),
            if disk { ", more on disk" } else { "" },
            places.join(" and ")
        ))?;
        page.iter().for_each(|(_, shown)| say(format_args!("page: {}", shown.url())));
        if server.tcp().is_some_and(|at| !at.ip().to_canonical().is_loopback()) && !tls {
            say("note: others can reach it and nothing is encrypted; --tls-cert and --tls-key change that");
        }
    }
    let left_alone = args.while_stdin.then(input_ended).transpose()?;
    let ended = || left_alone.as_ref().is_some_and(|ended| ended.load(Relaxed));
    let mut told: Option<Instant> = None;
    while !stop::asked() && !terminated.load(Relaxed) && !ended() {
        if let Some((page, _)) = &page
            && told.is_none_or(|at| at.elapsed() >= PAGE_EVERY)
        {
            page.node(server.report());
            told = Some(Instant::now());
        }
        std::thread::sleep(stop::SLICE);
    }
    say("ending: finishing what is in flight");
    server.drain()?;
    Ok(ExitCode::SUCCESS)
}

/// Becomes true when standard input ends.
fn input_ended() -> Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ended);
    let wait = move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        told.store(true, Relaxed);
    };
    let thread = std::thread::Builder::new().name("grist-stdin".into()).spawn(wait);
    thread.map_err(|e| Error::io("start", "a thread", e))?;
    Ok(ended)
}

/// The page of the node, if one was asked for. One that cannot be shown is said and keeps nobody from being served.
fn open_page(config: &Config, set: &Arc<DataSet>) -> Result<Option<(Page, Listening)>> {
    let (options, loader) = (config.settings().page(), config.settings().loader());
    if options.listen.is_empty() {
        return Ok(None);
    }
    let set_by_somebody = config.rows().filter(|(.., origin)| **origin != Origin::Default);
    let settings = set_by_somebody.map(|(key, value, _)| (key.name.to_string(), value)).collect();
    let page = Page::new(Arc::clone(set), options, loader.pixels_max, settings)?;
    match page.serve(&options.listen) {
        Ok(shown) => Ok(Some((page, shown))),
        Err(error) if error.kind() == Kind::Config => Err(error.into()),
        Err(error) => {
            let hint = error.remedy().map_or(String::new(), |hint| format!(" ({hint})"));
            say(format_args!("note: {}{}; serving without it", name(&error), name(hint)));
            Ok(None)
        }
    }
}

/// The last part of a source, with what does not belong into a URL left out.
fn name_of(source: &str) -> String {
    let last = source.trim_end_matches('/').rsplit('/').next().unwrap_or("");
    let stem = last.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(last);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    let name: String = stem.chars().take(100).map(plain).collect();
    let name = name.trim_matches('-').to_string();
    if name.is_empty() { "data".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_sources() {
        for (source, name) in [
            ("/data/train/", "train"),
            ("train.catalog", "train"),
            ("s3://bucket/train-{000..099}.tar", "train--000"),
            ("mnist/train-images-idx3-ubyte.gz", "train-images-idx3-ubyte"),
            ("/", "data"),
            (".", "data"),
            ("/data/Größe", "Gr--e"),
        ] {
            assert_eq!(name_of(source), name, "{source}");
        }
    }
}
