//! Asking a node over its wire, or a run by the address of its page.

use gristmill_node::client::Client;
use gristmill_node::config::Config;
use gristmill_node::{Error, Kind, Result};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long a page may take to answer.
const LIMIT: Duration = Duration::from_secs(5);
/// The largest answer of a page: a thousand epochs and more.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What came.
pub(super) enum Answer {
    /// The report of a node.
    Node(Value),
    /// What is new of a run.
    Run(Value),
    /// Nothing is new.
    Same,
}

impl Answer {
    /// As it came.
    pub(super) fn value(&self) -> Option<&Value> {
        match self {
            Answer::Node(value) | Answer::Run(value) => Some(value),
            Answer::Same => None,
        }
    }
}

/// Whom to ask.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    /// A node.
    Node(Client),
    /// A page, and what of it was seen.
    Page(Page),
}

impl Asked {
    /// A node (`grist://`) that lets this in, or a page (`http://`).
    pub(super) fn open(url: &str, config: &Config) -> anyhow::Result<Asked> {
        if url.starts_with("http://") || url.starts_with("https://") {
            return Ok(Asked::Page(Page::at(url)?));
        }
        let mut options = config.settings().client()?;
        options.peer = true;
        options.job = "status".into();
        Ok(Asked::Node(Client::connect(url, options)?))
    }

    pub(super) fn ask(&mut self) -> Result<Answer> {
        match self {
            Asked::Node(client) => futures::executor::block_on(client.report()).map(Answer::Node),
            Asked::Page(page) => page.ask(),
        }
    }

    /// As [`Asked::ask`]; none as soon as `stop` says so.
    pub(super) fn ask_until(&mut self, stop: fn() -> bool) -> Option<Result<Answer>> {
        let (sender, receiver) = channel();
        let mut asking = self.clone();
        let work = move || {
            let answer = asking.ask();
            // Nobody listens any more after Ctrl-C.
            let _ = sender.send((asking, answer));
        };
        if std::thread::Builder::new().name("grist-status".into()).spawn(work).is_err() {
            return Some(self.ask());
        }
        loop {
            match receiver.recv_timeout(crate::stop::SLICE) {
                Ok((asked, answer)) => {
                    *self = asked;
                    return Some(answer);
                }
                Err(RecvTimeoutError::Timeout) if !stop() => {}
                Err(_) => return None,
            }
        }
    }
}

/// A page, and what of it was seen.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// Name and port.
    host: String,
    change: u64,
    boot: String,
}

impl Page {
    fn at(url: &str) -> Result<Page> {
        let wrong = |why: &str| {
            Error::config(format!("{url:?} is not the address of a page: {why}"))
                .hint("write it as `gristmill train --page` prints it, e.g. http://127.0.0.1:7078/")
        };
        let rest = url.strip_prefix("http://").ok_or_else(|| wrong("pages speak plain http"))?;
        let host = rest.split(['/', '?', '#']).next().unwrap_or("");
        let port = host.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
        let named = port.map_or(host, |(host, _)| host);
        if named.is_empty() || port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(wrong("it has no host, or a port that is no number"));
        }
        if host.contains(|c: char| c.is_control() || c.is_whitespace() || c == '@') {
            return Err(wrong("a host is a name or a number"));
        }
        let host = if port.is_some() { host.to_string() } else { format!("{host}:80") };
        Ok(Page { host, change: 0, boot: String::new() })
    }

    fn ask(&mut self) -> Result<Answer> {
        let plain = self.boot.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let path = if self.change > 0 && plain {
            format!("/api/state?after={}&boot={}", self.change, self.boot)
        } else {
            "/api/state".into()
        };
        let failed = |e| Error::io("reach the page at", format_args!("http://{}/", self.host), e);
        let answer = get(&self.host, &path).map_err(failed)?;
        let (status, body) =
            parted(&answer).ok_or_else(|| self.strange("what it sent is no answer of a page"))?;
        match status {
            204 => return Ok(Answer::Same),
            200 => {}
            other => return Err(self.strange(&format!("it answered {other}"))),
        }
        let state: Value =
            serde_json::from_slice(body).map_err(|e| self.strange("its answer is not JSON").because(e))?;
        let (Some(change), Some(boot)) = (state["change"].as_u64(), state["facts"]["boot"].as_str()) else {
            return Err(self.strange("its answer is not that of a page"));
        };
        (self.change, self.boot) = (change, boot.to_string());
        if state["node"].is_object() {
            return Ok(Answer::Node(state["node"].clone()));
        }
        Ok(Answer::Run(state))
    }

    fn strange(&self, why: &str) -> Error {
        Error::new(Kind::Unavailable, format!("there is no page at http://{}/: {why}", self.host))
            .hint("give the address that `gristmill train --page` or `gristmill serve --page` printed")
    }
}

/// The whole answer to a request for `path`.
fn get(host: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "nothing has that name");
    for address in host.to_socket_addrs()? {
        let mut stream = match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(stream) => stream,
            Err(e) => {
                last = e;
                continue;
            }
        };
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        // In one piece: one who answers before the end of it and goes is heard all the same.
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        return Ok(answer);
    }
    Err(last)
}

/// The status and the body of an answer; none if it makes no sense or was cut off.
fn parted(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let body = &answer[end + 4..];
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let length = headers.find(|(key, _)| key.eq_ignore_ascii_case("content-length"));
    match length {
        Some((_, length)) => (length.trim().parse::<usize>().ok()? == body.len()).then_some((status, body)),
        None => (status == 204).then_some((status, body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_pages() {
        for (url, host) in [
            ("http://127.0.0.1:7078/", Some("127.0.0.1:7078")),
            ("http://localhost:7078/#overview", Some("localhost:7078")),
            ("http://localhost", Some("localhost:80")),
            ("http://[::1]:80", Some("[::1]:80")),
            ("http://[::1]", Some("[::1]:80")),
            ("https://localhost:7078", None),
            ("http://:7078", None),
            ("http://", None),
            ("http://a:b", None),
            ("http://a b:1", None),
            ("http://me@host:1", None),
        ] {
            assert_eq!(Page::at(url).ok().map(|page| page.host), host.map(str::to_string), "{url}");
        }
    }

    #[test]
    fn answers_are_read_without_trust() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parted(whole), Some((200, &b"{}"[..])));
        assert_eq!(parted(b"HTTP/1.1 204 No Content\r\n\r\n"), Some((204, &b""[..])));
        for odd in [
            &b""[..],
            b"\r\n\r\n",
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}",
            b"HTTP/1.1 200 \xff\r\n\r\n",
        ] {
            assert_eq!(parted(odd), None, "{odd:?}");
        }
    }
}
