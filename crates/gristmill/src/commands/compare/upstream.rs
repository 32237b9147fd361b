//! A node in a process of its own, with a slow link in front of it.
//!
//! As root the node runs in a network namespace whose only way out is a pair of virtual interfaces with a token bucket:
//! real packets over a real rate limit. Elsewhere the client paces what it takes from the socket. Either way everything
//! is taken down when the value is dropped; what a killed run left behind, the next one removes.

use crate::output::name;
use anyhow::Result;
use gristmill_node::Error;
use gristmill_node::config::Settings;
use serde::Deserialize;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Where the tools of the network may be that are not on everybody's path.
const SYSTEM_PATHS: &str = "/usr/sbin:/sbin";
/// Names of namespaces begin so, then comes the process that made them.
const PREFIX: &str = "gristmill-";

/// How the link is slowed down.
#[derive(Debug)]
pub(super) enum Link {
    /// A network namespace with a rate limit.
    Namespace(Namespace),
    /// The client paces itself; why not a namespace.
    Throttle { bytes_per_s: u64, why: String },
}

/// A network namespace behind a rate limit.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
    address: String,
    bytes_per_s: u64,
}

impl Link {
    pub(super) fn new(by: &str, bytes_per_s: u64) -> Result<Link> {
        match by {
            "namespace" => Ok(Link::Namespace(Namespace::new(bytes_per_s)?)),
            "throttle" => Ok(Link::Throttle { bytes_per_s, why: "as asked for".into() }),
            "auto" => Ok(match Namespace::new(bytes_per_s) {
                Ok(namespace) => Link::Namespace(namespace),
                Err(error) => Link::Throttle { bytes_per_s, why: error.to_string() },
            }),
            other => {
                let error = Error::config(format!("--by {other:?} is not one of auto, namespace, throttle"));
                Err(error.into())
            }
        }
    }

    /// Its name in figures.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Link::Namespace(_) => "namespace",
            Link::Throttle { .. } => "throttle",
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Namespace(space) => {
                write!(
                    f,
                    "{:.0} Mbit/s, a network namespace with a rate limit",
                    space.bytes_per_s as f64 * 8e-6
                )
            }
            Link::Throttle { bytes_per_s, why } => {
                write!(f, "{:.0} Mbit/s, paced by the client ({why})", *bytes_per_s as f64 * 8e-6)
            }
        }
    }
}

impl Namespace {
    fn new(bytes_per_s: u64) -> Result<Namespace> {
        remove_stale();
        let own = std::process::id();
        // A network of four addresses, which other runs on this machine do not have.
        let (third, fourth) = ((own >> 6) & 255, (own & 63) * 4);
        let address = |last: u32| format!("10.231.{third}.{}", fourth + last);
        // Dropped, and with it everything taken down, if something below fails.
        let space = Namespace { name: format!("{PREFIX}{own}"), address: address(2), bytes_per_s };
        let (here, there) = (format!("gmh{own}"), format!("gmn{own}"));
        let rate = format!("{}bit", bytes_per_s.saturating_mul(8));
        run("ip", &["netns", "add", &space.name])?;
        run("ip", &["link", "add", &here, "type", "veth", "peer", "name", &there, "netns", &space.name])?;
        run("ip", &["addr", "add", &format!("{}/30", address(1)), "dev", &here])?;
        run("ip", &["link", "set", &here, "up"])?;
        space.inside("ip", &["addr", "add", &format!("{}/30", space.address), "dev", &there])?;
        space.inside("ip", &["link", "set", &there, "up"])?;
        space.inside("ip", &["link", "set", "lo", "up"])?;
        let limit =
            ["qdisc", "add", "dev", &there, "root", "tbf", "rate", &rate, "burst", "64kb", "latency", "50ms"];
        space.inside("tc", &limit)?;
        Ok(space)
    }

    fn inside(&self, program: &str, args: &[&str]) -> Result<()> {
        run("ip", &[&["netns", "exec", self.name.as_str(), program], args].concat())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The interfaces go with it.
        let _ = run("ip", &["netns", "del", &self.name]);
    }
}

/// Removes what runs that are gone left behind.
fn remove_stale() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        let space = entry.file_name().to_string_lossy().into_owned();
        let owner = space.strip_prefix(PREFIX).and_then(|id| id.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            if let Ok(output) = tool("ip").args(["netns", "pids", &space]).output() {
                for id in String::from_utf8_lossy(&output.stdout).split_whitespace() {
                    let _ = run("kill", &["-9", id]);
                }
            }
            let _ = run("ip", &["netns", "del", &space]);
        }
    }
}

fn tool(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:{SYSTEM_PATHS}"));
    command
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = tool(program).args(args).output().map_err(|e| Error::io("run", program, e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("it said nothing");
    let error = Error::config(format!("{program} {} failed: {}", args.join(" "), name(said)));
    Err(error.hint("a network namespace needs root and iproute2; --by throttle does without").into())
}

/// What a node says when it listens.
#[derive(Deserialize)]
struct Said {
    tcp: Option<String>,
}

/// A node in a process of its own.
#[derive(Debug)]
pub(super) struct Upstream {
    command: Command,
    child: Child,
    url: String,
    throttle_bytes_per_s: Option<u64>,
    token_file: String,
    _folder: TempDir,
}

impl Upstream {
    /// Starts a node in front of `source` whose ops may use so many cores, and keep so many bytes of decoded pictures.
    pub(super) fn start(
        source: &str,
        cores: f64,
        pixels_bytes_max: u64,
        link: &Link,
        settings: &Settings,
    ) -> Result<Upstream> {
        let own = std::env::current_exe().map_err(|e| Error::io("find", "this program", e))?;
        let folder = tempfile::tempdir().map_err(|e| Error::io("make", "a temporary folder", e))?;
        let token_file = folder.path().join("token").display().to_string();
        let secret = format!("{:016x}{:016x}", rand_bits(), rand_bits());
        std::fs::write(&token_file, secret).map_err(|e| Error::io("write", &token_file, e))?;
        let (mut command, listen, throttle_bytes_per_s) = match link {
            Link::Namespace(space) => {
                let mut command = tool("ip");
                command.args(["netns", "exec", &space.name]).arg(own);
                (command, format!("{}:7077", space.address), None)
            }
            Link::Throttle { bytes_per_s, .. } => {
                (Command::new(own), "127.0.0.1:0".into(), Some(*bytes_per_s))
            }
        };
        let catalogs = format!("catalog.folder={}", settings.catalog_folder()?.display());
        command.args(["serve", source, "--json", "--name", "data", "--memory", "100%", "--listen", &listen]);
        command.args(["--cores", &cores.to_string(), "--token-file", &token_file, "--set", &catalogs]);
        command.args(["--set", &format!("serve.op_pixels_bytes_max={pixels_bytes_max}"), "--while-stdin"]);
        // Held open as long as this process lives, however it ends: the node ends with it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (child, url) = spawn(&mut command)?;
        Ok(Upstream { command, child, url, throttle_bytes_per_s, token_file, _folder: folder })
    }

    /// Ends the node and starts another, which knows nothing of what the first one did. Its address may be another one.
    pub(super) fn restart(&mut self) -> Result<()> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        (self.child, self.url) = spawn(&mut self.command)?;
        Ok(())
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// What the client paces itself to, as a setting.
    pub(super) fn throttle(&self) -> Option<String> {
        self.throttle_bytes_per_s.map(|rate| rate.to_string())
    }

    pub(super) fn token_file(&self) -> &String {
        &self.token_file
    }
}

/// Starts the program and waits for its address.
fn spawn(command: &mut Command) -> Result<(Child, String)> {
    let mut child = command.spawn().map_err(|e| Error::io("start", "a node", e))?;
    let mut first = String::new();
    if let Some(stdout) = child.stdout.take() {
        let _ = BufReader::new(stdout).read_line(&mut first);
    }
    let url = serde_json::from_str::<Said>(&first).ok().and_then(|said| said.tcp);
    let Some(url) = url else {
        let _ = child.kill();
        let mut said = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        let _ = child.wait();
        let said = said.trim();
        return Err(Error::config(format!("the node did not start: {}", name(said))).into());
    };
    // Nobody reads what it says from here on: it must not wait for that.
    let mut stderr = child.stderr.take();
    let _ = std::thread::Builder::new()
        .name("grist-node-words".into())
        .spawn(move || stderr.as_mut().map(|words| std::io::copy(words, &mut std::io::sink())));
    Ok((child, url))
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bits that nobody else knows: the hasher of the standard library is keyed by the system's randomness.
fn rand_bits() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
