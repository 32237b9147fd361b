//! The servers that are measured: started with the same samples, and stopped however the benchmark ends.

use super::talk::{Conn, Way, redis_fill};
use anyhow::{Context, Result, anyhow};
use gristmill_node::{Error, Kind};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How much memory a client shares with the node.
const LANE_BYTES: u32 = 8 << 20;
/// The name of the socket of a Redis that is started here.
const REDIS_SOCKET: &str = "redis.sock";
/// How many samples the node is asked for at once until it has all of them.
const FILL_BATCH: usize = 32;
/// How long a server may take to be ready.
const READY: Duration = Duration::from_secs(20);

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All servers of one sample size.
pub(super) struct Servers {
    node: Running,
    bare: Running,
    /// Ours to end; a Redis that was given is not.
    _redis: Option<Running>,
    redis_pid: Option<u32>,
    redis_at: Result<SocketAddr, String>,
    /// Where a Redis that was started here listens, too.
    redis_unix: PathBuf,
    node_at: SocketAddr,
    bare_at: SocketAddr,
    unix: PathBuf,
    pub(super) samples: u32,
    pub(super) sample_bytes: u32,
    _folder: TempDir,
}

impl Servers {
    /// Starts them, each with `samples` samples of `side` times `side` bytes.
    pub(super) fn start(side: u32, samples: u32, redis: Option<&str>) -> Result<Servers> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let images = write_images(folder.path(), side, samples)?;
        let unix = folder.path().join("node.sock");
        let mut serve = this()?;
        serve.arg("serve").arg(&images).args(["--listen", "127.0.0.1:0", "--json", "--unix"]).arg(&unix);
        // Room for all of them and for what each takes beside its bytes, as Redis has.
        let room = u64::from(samples) * (u64::from(side * side) + 256);
        serve.args(["--memory", &room.to_string()]);
        serve.env("GRISTMILL_CATALOG_FOLDER", folder.path().join("catalogs")).env_remove("GRISTMILL_TOKEN");
        let (node, ready) = start(serve)?;
        let node_at = address(ready["tcp"].as_str().unwrap_or("").trim_start_matches("grist://"))?;
        node_fill(node_at, samples, side * side)?;
        let mut serve = this()?;
        serve.args(["bench", "serve", "--bare"]);
        let (bare, ready) = start(serve)?;
        let bare_at = address(ready["tcp"].as_str().unwrap_or(""))?;
        let sample_bytes = side * side;
        let (running, redis_at) = match redis {
            Some(given) => (None, address(given).map_err(|e| e.to_string())),
            None => match start_redis(folder.path()) {
                Ok((running, at)) => (Some(running), Ok(at)),
                Err(why) => (None, Err(why)),
            },
        };
        let redis_at = redis_at
            .and_then(|at| redis_fill(at, samples, sample_bytes).map(|()| at).map_err(|e| format!("{e:#}")));
        let redis_pid = match (&running, &redis_at) {
            (Some(running), _) => Some(running.0.id()),
            (None, Ok(at)) => super::talk::redis_pid(*at).ok(),
            _ => None,
        };
        Ok(Servers {
            node,
            bare,
            _redis: running,
            redis_pid,
            redis_at,
            redis_unix: folder.path().join(REDIS_SOCKET),
            node_at,
            bare_at,
            unix,
            samples,
            sample_bytes,
            _folder: folder,
        })
    }

    /// Why Redis is not measured, if it is not.
    pub(super) fn without_redis(&self) -> Option<&str> {
        self.redis_at.as_ref().err().map(String::as_str)
    }

    /// What can be measured.
    pub(super) fn ways(&self) -> Vec<Way> {
        let all = Way::ALL.into_iter();
        let reached = |way: &Way| match way {
            Way::RedisUnix => self.redis_at.is_ok() && self.redis_unix.exists(),
            way => !way.is_redis() || self.redis_at.is_ok(),
        };
        all.filter(reached).collect()
    }

    /// The URL for Gristmill's own client.
    pub(super) fn url(&self, way: Way) -> String {
        match way {
            Way::ClientUnix => format!("grist+unix://{}", self.unix.display()),
            _ => format!("grist://{}", self.node_at),
        }
    }

    /// A new connection.
    pub(super) fn connect(&self, way: Way) -> Result<Conn> {
        match way {
            Way::Tcp | Way::ClientTcp => Conn::node(Box::new(tcp(self.node_at)?)),
            Way::Unix | Way::ClientUnix => {
                let stream = UnixStream::connect(&self.unix)?;
                Conn::node(Box::new(stream))
            }
            Way::Lane => {
                let stream = UnixStream::connect(&self.unix)?;
                Conn::lane(Box::new(stream), self.node.0.id(), LANE_BYTES)
            }
            Way::Loopback => Ok(Conn::bare(Box::new(tcp(self.bare_at)?))),
            Way::RedisMget | Way::RedisGet => {
                let at = self.redis_at.as_ref().map_err(|why| anyhow!("{why}"))?;
                Ok(Conn::redis(Box::new(tcp(*at)?), way == Way::RedisMget))
            }
            Way::RedisUnix => Ok(Conn::redis(Box::new(UnixStream::connect(&self.redis_unix)?), true)),
        }
    }

    /// The CPU time that the server of this way took so far.
    pub(super) fn cpu(&self, way: Way) -> Option<Duration> {
        let pid = match way {
            Way::Loopback => self.bare.0.id(),
            way if way.is_redis() => self.redis_pid?,
            _ => self.node.0.id(),
        };
        cpu_of(pid)
    }
}

/// The CPU time of a process, threads that ended included; the system counts it in hundredths of a second.
fn cpu_of(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the bracket may hold spaces; user and system time are the 12th and 13th field after it.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

fn tcp(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(at).with_context(|| format!("cannot connect to {at}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn this() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
    Ok(command)
}

/// Starts a process and waits for the line that says where it listens.
fn start(mut command: Command) -> Result<(Running, serde_json::Value)> {
    let mut child = Running(command.spawn().context("cannot start a server")?);
    let out = child.0.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    let said = serde_json::from_str(&line).map_err(|_| {
        Error::new(Kind::Io, "a server that was to be measured did not start")
            .hint("see what `gristmill serve` says by itself")
    })?;
    Ok((child, said))
}

fn address(text: &str) -> Result<SocketAddr> {
    let text = text.split('/').next().unwrap_or("");
    let mut found = text.to_socket_addrs().map_err(|e| {
        Error::config(format!("{text:?} is not an address and a port: {e}")).hint("write 127.0.0.1:6379")
    })?;
    found.next().ok_or_else(|| anyhow!("{text:?} is the address of nothing"))
}

/// Has the node read every sample once: everything is in memory before it is measured, as with Redis.
fn node_fill(at: SocketAddr, samples: u32, sample_bytes: u32) -> Result<()> {
    let mut conn = Conn::node(Box::new(tcp(at)?))?;
    let ids: Vec<u32> = (0..samples).collect();
    ids.chunks(FILL_BATCH).try_for_each(|ids| {
        conn.send(ids, sample_bytes)?;
        conn.receive(ids.len(), sample_bytes)
    })
}

/// A Redis without persistence on a free port.
fn start_redis(folder: &Path) -> Result<(Running, SocketAddr), String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let at = free.map_err(|e| e.to_string())?;
    let port = at.port().to_string();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
    command.arg(folder).arg("--unixsocket").arg(folder.join(REDIS_SOCKET));
    command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    let child = command.spawn().map_err(|_| "redis-server is not installed".to_string())?;
    let mut running = Running(child);
    let give_up = Instant::now() + READY;
    while TcpStream::connect(at).is_err() {
        let ended = running.0.try_wait().map_or(true, |ended| ended.is_some());
        if ended || Instant::now() > give_up {
            return Err("redis-server did not start".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((running, at))
}

/// An idx file of grey squares and its labels: a data set that a node holds in memory.
fn write_images(folder: &Path, side: u32, samples: u32) -> Result<PathBuf> {
    let images = folder.join("train-images-idx3-ubyte");
    let mut out = BufWriter::new(File::create(&images)?);
    for number in [0x0803, samples, side, side] {
        out.write_all(&number.to_be_bytes())?;
    }
    let mut picture = vec![0; (side * side) as usize];
    for id in 0..samples {
        picture.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at as u32 * 7 + id) as u8);
        out.write_all(&picture)?;
    }
    out.flush()?;
    let mut out = BufWriter::new(File::create(folder.join("train-labels-idx1-ubyte"))?);
    for number in [0x0801, samples] {
        out.write_all(&number.to_be_bytes())?;
    }
    for id in 0..samples {
        out.write_all(&[(id % 10) as u8])?;
    }
    out.flush()?;
    Ok(images)
}
