//! Who has no business here is turned away with a sentence, and does not disturb the others.

use super::*;
use gristmill_node::catalog::Digest;
use gristmill_node::wire::{Failure, HEADER_BYTES, Header, Verb};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// One frame from a raw connection.
fn frame(stream: &mut TcpStream) -> Option<(Header, Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).ok()?;
    let header = Header::decode(&header, 1 << 20).unwrap();
    let mut body = vec![0; header.bytes as usize];
    stream.read_exact(&mut body).ok()?;
    Some((header, body))
}

/// A raw connection that was greeted.
fn greeted(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.tcp().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(frame(&mut stream).unwrap().0.verb, Verb::Greeting);
    stream
}

#[test]
fn tokens_digests_and_names_must_be_right() {
    let node = node(&[10], 0);
    let server = start(options(), node.clone());
    let digest = node.set().catalog().digest();
    let good = ClientOptions { digest: Some(digest), ..with_token() };
    check(&Client::connect(&url(&server), good.clone()).unwrap(), &[10], &[0]);
    let bare = ClientOptions { token: None, ..good.clone() };
    let wrong = ClientOptions { token: Some(Token::new("another token for tests").unwrap()), ..good.clone() };
    let other = ClientOptions { digest: Some(Digest(digest.0 ^ 1)), ..good.clone() };
    let (at, train) = (server.tcp().unwrap(), url(&server));
    for (url, options, words) in [
        (train.clone(), bare, "token is missing or wrong"),
        (train.clone(), wrong, "token is missing or wrong"),
        (train, other, "serves another data set"),
        (format!("grist://{at}/test"), good, "no data set \"test\""),
    ] {
        let error = Client::connect(&url, options).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.kind() == Kind::Config && error.remedy().is_some(), "{error}");
    }
    assert_eq!(server.report().refused, 4);
}

#[test]
fn nothing_listens_beyond_this_machine_without_a_token() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        for (listen, http) in [(listen, ""), ("127.0.0.1:0", listen)] {
            let beyond = ServeOptions { listen: listen.into(), http: http.into(), ..options() };
            let hosted = vec![Hosted { name: "train".into(), node: node(&[1], 0) }];
            let error = Server::start(beyond, None, hosted).unwrap_err();
            assert!(error.to_string().contains("without a token"), "{error}");
            assert!(error.remedy().unwrap().contains("--token-file"));
        }
    }
    let beyond = ServeOptions { listen: "0.0.0.0:0".into(), ..options() };
    let server = start(beyond, node(&[1], 0));
    let port = server.tcp().unwrap().port();
    check(&Client::connect(&format!("grist://127.0.0.1:{port}"), with_token()).unwrap(), &[1], &[0]);
}

#[test]
fn what_cannot_be_opened_is_said() {
    let node = node(&[1], 0);
    let first = start(options(), node.clone());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    std::fs::write(path("file"), "").unwrap();
    let _live = std::os::unix::net::UnixListener::bind(path("live")).unwrap();
    let base = options();
    for (options, words) in [
        (ServeOptions { listen: first.tcp().unwrap().to_string(), ..base.clone() }, "address already in use"),
        (ServeOptions { listen: "nonsense".into(), ..base.clone() }, "not an address and a port"),
        (ServeOptions { listen: String::new(), ..base.clone() }, "nothing to listen on"),
        (ServeOptions { unix: path("file"), ..base.clone() }, "not a socket"),
        (ServeOptions { unix: path("live"), ..base.clone() }, "in use by another program"),
        (ServeOptions { unix: path("no/socket"), ..base.clone() }, "no such file"),
        (ServeOptions { tls_cert: path("file"), ..base.clone() }, "one of them is missing"),
        (ServeOptions { tls_cert: path("file"), tls_key: path("file"), ..base.clone() }, "file for TLS"),
        (ServeOptions { connections_max: u64::MAX, ..base.clone() }, "open files"),
    ] {
        let hosted = vec![Hosted { name: "train".into(), node: node.clone() }];
        let error = Server::start(options, None, hosted).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    for name in ["", "a/b", "a b"] {
        let hosted = vec![Hosted { name: name.into(), node: node.clone() }];
        assert!(Server::start(base.clone(), None, hosted).unwrap_err().to_string().contains("not a name"));
    }
    drop(std::os::unix::net::UnixListener::bind(path("dead")).unwrap());
    start(ServeOptions { unix: path("dead"), ..base }, node);
}

#[test]
fn messages_that_make_no_sense_are_refused_with_a_sentence() {
    let server = start(options(), node(&[1], 0));
    let header = |bytes: u32, version: u8, verb: u8| {
        let mut out = Header { bytes, verb: Verb::Hello, request: 0 }.encode();
        (out[4], out[5]) = (version, verb);
        out.to_vec()
    };
    for (bytes, words) in [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "version"),
        (header(10, 2, 2), "version 2"),
        (header(10, 1, 99), "unknown kind 99"),
        (header(10, 1, Verb::Ping as u8), "first message must be a hello"),
        (header(1 << 31, 1, 2), "the limit is 1024"),
        ([header(3, 1, 2), b"abc".to_vec()].concat(), "too short"),
    ] {
        let mut stream = greeted(&server);
        stream.write_all(&bytes).unwrap();
        let (answer, body) = frame(&mut stream).unwrap();
        let error = Failure::decode(&body).unwrap();
        assert!(answer.verb == Verb::Refused && error.to_string().contains(words), "{error}");
        assert!(frame(&mut stream).is_none(), "and then it is closed");
    }
}

#[test]
fn random_bytes_for_some_seconds_disturb_nobody() {
    let sizes = vec![1_000; 50];
    let server = start(options(), node(&sizes, 0));
    let client = connect(&server);
    let at = server.tcp().unwrap();
    let end = Instant::now() + Duration::from_millis(1_500);
    let noise: Vec<_> = (0..3_u64)
        .map(|thread| {
            std::thread::spawn(move || {
                let mut state = 0x9e37_79b9_97f4_a7c1_u64.wrapping_mul(thread + 1);
                let mut sent = 0;
                while Instant::now() < end {
                    let mut stream = TcpStream::connect(at).unwrap();
                    let mut bytes = vec![0; 1 + (state % 3_000) as usize];
                    for byte in &mut bytes {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        *byte = (state >> 32) as u8;
                    }
                    if !state.is_multiple_of(3) {
                        // A header that looks right, with a body that is not.
                        let header = Header {
                            bytes: bytes.len() as u32,
                            verb: Verb::ALL[(state % 16) as usize],
                            request: 1,
                        };
                        bytes.splice(..0, header.encode());
                    }
                    let _ = stream.write_all(&bytes);
                    if state.is_multiple_of(2) {
                        let _ = stream.shutdown(Shutdown::Write);
                        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
                        let _ = stream.read(&mut [0; 100]);
                    }
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    let mut slowest = Duration::ZERO;
    while Instant::now() < end {
        let started = Instant::now();
        check(&client, &sizes, &(0..50).collect::<Vec<_>>());
        slowest = slowest.max(started.elapsed());
    }
    let sent: u32 = noise.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(sent > 100 && slowest < Duration::from_secs(1), "{sent} sent, slowest answer {slowest:?}");
    check(&connect(&server), &sizes, &[0]);
}
