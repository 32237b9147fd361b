//! The blocking client that asks every server alike: a message that asks for some samples, and reading the answer.

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use gristmill_core::SampleId;
use gristmill_node::lane::LaneReader;
use gristmill_node::node::Ask;
use gristmill_node::wire::{
    Fetch, HEADER_BYTES, Header, Hello, Lane, Rows, SamplesHead, Verb, end_frame, put_frame,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Tcp,
    Unix,
    Lane,
    ClientTcp,
    ClientUnix,
    Loopback,
    RedisMget,
    RedisGet,
    RedisUnix,
}

impl Way {
    pub(super) const ALL: [Way; 9] = [
        Way::Tcp,
        Way::Unix,
        Way::Lane,
        Way::ClientTcp,
        Way::ClientUnix,
        Way::Loopback,
        Way::RedisMget,
        Way::RedisGet,
        Way::RedisUnix,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Tcp => "tcp",
            Way::Unix => "unix",
            Way::Lane => "lane",
            Way::ClientTcp => "client-tcp",
            Way::ClientUnix => "client-unix",
            Way::Loopback => "loopback",
            Way::RedisMget => "redis-mget",
            Way::RedisGet => "redis-get",
            Way::RedisUnix => "redis-unix",
        }
    }

    pub(super) fn is_redis(self) -> bool {
        matches!(self, Way::RedisMget | Way::RedisGet | Way::RedisUnix)
    }
}

/// A stream of either kind.
pub(super) trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

enum Speech {
    Node,
    Bare,
    RedisMget,
    RedisGet,
}

/// One connection and the memory that answers are read into.
pub(super) struct Conn {
    stream: BufReader<Box<dyn Stream>>,
    speech: Speech,
    out: BytesMut,
    into: Vec<u8>,
    /// Samples that came already of messages that are not received yet: a node answers in parts, in any order.
    ahead: usize,
    lane: Option<LaneReader>,
}

impl Conn {
    fn new(stream: Box<dyn Stream>, speech: Speech) -> Conn {
        let stream = BufReader::with_capacity(16 << 10, stream);
        Conn { stream, speech, out: BytesMut::new(), into: Vec::new(), ahead: 0, lane: None }
    }

    pub(super) fn bare(stream: Box<dyn Stream>) -> Conn {
        Conn::new(stream, Speech::Bare)
    }

    pub(super) fn redis(stream: Box<dyn Stream>, mget: bool) -> Conn {
        Conn::new(stream, if mget { Speech::RedisMget } else { Speech::RedisGet })
    }

    /// A connection to a node that lets anybody in.
    pub(super) fn node(stream: Box<dyn Stream>) -> Result<Conn> {
        let mut conn = Conn::new(stream, Speech::Node);
        conn.frame(Verb::Greeting)?;
        let start = put_frame(&mut conn.out, Verb::Hello, 0);
        Hello { proof: [0; 32], digest: None, name: String::new(), job: "bench".into(), peer: false }
            .encode(&mut conn.out);
        end_frame(&mut conn.out, start, 0);
        conn.stream.get_mut().write_all(&conn.out)?;
        conn.frame(Verb::Welcome)?;
        Ok(conn)
    }

    /// The same with a lane, which the node in this process makes.
    pub(super) fn lane(stream: Box<dyn Stream>, pid: u32, bytes: u32) -> Result<Conn> {
        let mut conn = Conn::node(stream)?;
        conn.out.clear();
        let start = put_frame(&mut conn.out, Verb::WantLane, 1);
        Lane::encode_wish(bytes, &mut conn.out);
        end_frame(&mut conn.out, start, 0);
        conn.stream.get_mut().write_all(&conn.out)?;
        let length = conn.frame(Verb::LaneIs)?;
        let said = Lane::decode(&conn.into[..length])?;
        conn.lane = Some(LaneReader::open(pid.cast_signed(), said.fd, said.bytes, &said.mark)?);
        Ok(conn)
    }

    fn header(&mut self) -> Result<Header> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).context("the node is gone")?;
        Ok(Header::decode(&header, 64 << 20)?)
    }

    /// Reads one frame of a node into memory and gives its length.
    fn frame(&mut self, verb: Verb) -> Result<usize> {
        let header = self.header()?;
        self.body(header, verb)
    }

    fn body(&mut self, header: Header, verb: Verb) -> Result<usize> {
        if header.verb != verb {
            bail!("the node said {:?} instead of {verb:?}", header.verb);
        }
        self.read(header.bytes as usize)?;
        Ok(header.bytes as usize)
    }

    /// Reads one frame with samples, whose bytes may be in the lane.
    fn samples(&mut self) -> Result<usize> {
        let header = self.header()?;
        let Some(lane) = self.lane.as_ref().filter(|_| header.verb == Verb::InLane) else {
            return self.body(header, Verb::Samples);
        };
        let mut position = [0; 8];
        self.stream.read_exact(&mut position).context("the node is gone")?;
        let position = Lane::decode_place(&position)?;
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).context("the node is gone")?;
        let length = Header::decode(&header, 64 << 20)?.bytes as usize;
        if self.into.len() < length {
            self.into.resize(length, 0);
        }
        let front = SamplesHead::bytes(0, Rows::Plain);
        self.stream.read_exact(&mut self.into[..front])?;
        let table = SamplesHead::bytes(SamplesHead::count(&self.into[..front])?, Rows::Plain);
        self.stream.read_exact(&mut self.into[front..table])?;
        lane.read_into(position, &mut self.into[table..length])?;
        lane.done(position + (length - table) as u64);
        Ok(length)
    }

    fn read(&mut self, bytes: usize) -> Result<()> {
        if self.into.len() < bytes {
            self.into.resize(bytes, 0);
        }
        self.stream.read_exact(&mut self.into[..bytes]).context("the server is gone")
    }

    /// Asks for samples.
    pub(super) fn send(&mut self, ids: &[u32], sample_bytes: u32) -> Result<()> {
        self.out.clear();
        match self.speech {
            Speech::Node => {
                let start = put_frame(&mut self.out, Verb::Fetch, 1);
                let asks = ids.iter().map(|&id| Ask { id: SampleId(id), cold: false }).collect();
                Fetch { epoch: 0, split: 0, peer: false, asks }.encode(&mut self.out);
                end_frame(&mut self.out, start, 0);
            }
            Speech::Bare => self.out.extend_from_slice(&(ids.len() as u32 * sample_bytes).to_le_bytes()),
            Speech::RedisMget => {
                self.out.extend_from_slice(format!("*{}\r\n$4\r\nMGET\r\n", ids.len() + 1).as_bytes());
                ids.iter().for_each(|&id| redis_text(&mut self.out, &id.to_string()));
            }
            Speech::RedisGet => {
                for &id in ids {
                    self.out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
                    redis_text(&mut self.out, &id.to_string());
                }
            }
        }
        Ok(self.stream.get_mut().write_all(&self.out)?)
    }

    /// Reads the answer to one `send`.
    pub(super) fn receive(&mut self, samples: usize, sample_bytes: u32) -> Result<()> {
        match self.speech {
            Speech::Node => {
                while self.ahead < samples {
                    let length = self.samples()?;
                    let count = SamplesHead::count(&self.into[..length])?;
                    if length != SamplesHead::bytes(count, Rows::Plain) + count * sample_bytes as usize {
                        bail!("the node sent an error, or samples of other sizes");
                    }
                    self.ahead += count;
                }
                self.ahead -= samples;
                Ok(())
            }
            Speech::Bare => self.read(samples * sample_bytes as usize),
            Speech::RedisMget => {
                if self.line()? != format!("*{samples}") {
                    bail!("Redis answered MGET with something else");
                }
                (0..samples).try_for_each(|_| self.bulk(sample_bytes))
            }
            Speech::RedisGet => (0..samples).try_for_each(|_| self.bulk(sample_bytes)),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(1_024).read_line(&mut line).context("Redis is gone")?;
        Ok(line.trim_end().to_string())
    }

    fn bulk(&mut self, bytes: u32) -> Result<()> {
        let line = self.line()?;
        if line != format!("${bytes}") {
            bail!("Redis answered {line:?} instead of a sample");
        }
        self.read(bytes as usize + 2)
    }
}

fn redis_text(out: &mut BytesMut, text: &str) {
    out.extend_from_slice(format!("${}\r\n{text}\r\n", text.len()).as_bytes());
}

/// Puts the samples into Redis.
pub(super) fn redis_fill(at: SocketAddr, samples: u32, sample_bytes: u32) -> Result<()> {
    let stream = TcpStream::connect(at).with_context(|| format!("cannot connect to Redis at {at}"))?;
    let mut conn = Conn::redis(Box::new(stream), true);
    let value = vec![0x5a; sample_bytes as usize];
    for id in 0..samples {
        conn.out.clear();
        conn.out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        redis_text(&mut conn.out, &id.to_string());
        conn.out.extend_from_slice(format!("${sample_bytes}\r\n").as_bytes());
        conn.out.extend_from_slice(&value);
        conn.out.extend_from_slice(b"\r\n");
        conn.stream.get_mut().write_all(&conn.out)?;
        let answer = conn.line()?;
        if answer != "+OK" {
            bail!("Redis answered SET with {answer:?}");
        }
    }
    Ok(())
}

/// The process of a Redis that was given, if it runs on this machine.
pub(super) fn redis_pid(at: SocketAddr) -> Result<u32> {
    let mut conn = Conn::redis(Box::new(TcpStream::connect(at)?), true);
    conn.stream.get_mut().write_all(b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n")?;
    let length = conn.line()?;
    let bytes: usize =
        length.trim_start_matches('$').parse().context("Redis answered INFO with something else")?;
    conn.read(bytes.min(1 << 20))?;
    let text = String::from_utf8_lossy(&conn.into[..bytes.min(1 << 20)]).into_owned();
    let pid = text.lines().find_map(|line| line.strip_prefix("process_id:"));
    pid.and_then(|pid| pid.trim().parse().ok()).context("Redis does not say which process it is")
}
