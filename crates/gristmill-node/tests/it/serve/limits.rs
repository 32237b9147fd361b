//! Limits hold: many connections, slow readers, silent clients, samples that are too large; and HTTP.

use super::*;
use gristmill_node::wire::{Fetch, Greeting, HEADER_BYTES, Header, Hello, Verb, end_frame, put_frame};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A raw connection that went through the handshake.
fn raw(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.tcp().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut header = [0; HEADER_BYTES];
    let mut next = |stream: &mut TcpStream| {
        stream.read_exact(&mut header).unwrap();
        let header = Header::decode(&header, 1 << 20).unwrap();
        let mut body = vec![0; header.bytes as usize];
        stream.read_exact(&mut body).unwrap();
        (header.verb, body)
    };
    let greeting = Greeting::decode(&next(&mut stream).1).unwrap();
    let proof = Token::new(TOKEN).unwrap().prove(&greeting.nonce);
    let hello = Hello { proof, digest: None, name: String::new(), job: "raw".into(), peer: false };
    let mut out = bytes::BytesMut::new();
    let start = put_frame(&mut out, Verb::Hello, 0);
    hello.encode(&mut out);
    end_frame(&mut out, start, 0);
    stream.write_all(&out).unwrap();
    assert_eq!(next(&mut stream).0, Verb::Welcome);
    stream
}

fn fetch_frame(request: u32, ids: &[u32]) -> Vec<u8> {
    let mut out = bytes::BytesMut::new();
    let start = put_frame(&mut out, Verb::Fetch, request);
    Fetch { epoch: 0, split: 0, peer: false, asks: asks(ids.iter().copied()) }.encode(&mut out);
    end_frame(&mut out, start, 0);
    out.to_vec()
}

#[test]
fn thousands_of_silent_connections_do_not_keep_others_out() {
    let limits = ServeOptions { connections_max: 500, handshake_ms_max: 3_000, ..options() };
    let server = start(limits, node(&[10], 0));
    let at = server.tcp().unwrap();
    let idle: Vec<TcpStream> = (0..2_000).map(|_| TcpStream::connect(at).unwrap()).collect();
    let started = Instant::now();
    let client = connect(&server);
    check(&client, &[10], &[0]);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    // Those that wait to be let in are let in and cut off one after the other.
    while server.report().connections > 510 && started.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let report = server.report();
    assert!(report.connections <= 510, "{} are open", report.connections);
    assert!(report.cut_off >= 1_400, "{} were cut off", report.cut_off);
    drop(idle);
}

#[test]
fn connections_beyond_the_limit_hear_why() {
    let server = start(ServeOptions { connections_max: 2, ..options() }, node(&[10], 0));
    let (one, _two) = (connect(&server), connect(&server));
    let error = Client::connect(&url(&server), with_token()).unwrap_err();
    assert!(error.to_string().contains("2 connections") && error.kind() == Kind::Unavailable, "{error}");
    drop(one);
    let started = Instant::now();
    while Client::connect(&url(&server), with_token()).is_err() {
        assert!(started.elapsed() < Duration::from_secs(5), "a place is free again");
    }
}

#[test]
fn who_leaves_by_itself_was_not_cut_off() {
    let server = start(options(), node(&[10], 0));
    let client = connect(&server);
    check(&client, &[10], &[0]);
    drop((client, raw(&server)));
    let started = Instant::now();
    while server.report().connections > 0 {
        assert!(started.elapsed() < Duration::from_secs(5), "both are gone");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.report().cut_off, 0);
}

#[test]
fn a_client_that_does_not_read_holds_a_bounded_amount_and_is_cut_off() {
    let sizes = vec![200_000; 64];
    let limits = ServeOptions {
        connection_bytes_max: 2 << 20,
        bytes_in_flight_max: 6 << 20,
        write_ms_max: 400,
        ..options()
    };
    let server = start(limits, node(&sizes, 0));
    let mut slow = raw(&server);
    let ids: Vec<u32> = (0..64).collect();
    for request in 1..40 {
        slow.write_all(&fetch_frame(request, &ids)).unwrap();
    }
    let client = connect(&server);
    let started = Instant::now();
    while server.report().connections == 2 {
        let held = server.report().bytes_in_flight;
        assert!(held <= 6 << 20, "{held} bytes are held");
        check(&client, &sizes, &[1, 2, 3]);
        assert!(started.elapsed() < Duration::from_secs(10), "it is cut off");
    }
    assert_eq!(server.report().cut_off, 1);
    check(&client, &sizes, &ids);
}

#[test]
fn silent_and_dawdling_clients_are_closed_and_pings_keep_alive() {
    let limits = ServeOptions { idle_ms_max: 400, write_ms_max: 200, handshake_ms_max: 200, ..options() };
    let server = start(limits, node(&[10], 0));
    let client = connect(&server);
    let (mut silent, mut dawdling) = (raw(&server), raw(&server));
    let mut mute = TcpStream::connect(server.tcp().unwrap()).unwrap();
    dawdling.write_all(&fetch_frame(1, &[0])[..14]).unwrap();
    for stream in [&mut silent, &mut dawdling, &mut mute] {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("it is closed");
    }
    std::thread::sleep(Duration::from_millis(600));
    assert!(client.is_up() && client.counts().connects == 1, "the client that pings is still in");
    check(&client, &[10], &[0]);
}

#[test]
fn a_sample_over_the_limit_is_an_error_of_its_own() {
    let sizes = [10, 3 << 20, 20];
    let server = start(ServeOptions { sample_bytes_max: 2 << 20, ..options() }, node(&sizes, 0));
    let client = connect(&server);
    let came = block_on(client.fetch(&asks([0, 1, 2]))).unwrap();
    let error = came[1].as_ref().unwrap_err();
    assert!(came[0].is_ok() && came[2].is_ok() && error.to_string().contains("over the limit"), "{error}");
    assert!(error.remedy().unwrap().contains("serve.sample_bytes_max"));
}

#[test]
fn one_request_may_be_larger_than_all_that_may_be_in_flight() {
    let sizes = vec![300_000; 100];
    let limits = ServeOptions { connection_bytes_max: 1 << 20, bytes_in_flight_max: 1 << 20, ..options() };
    let server = start(limits, node(&sizes, 1));
    let client = connect(&server);
    check(&client, &sizes, &(0..100).collect::<Vec<_>>());
    let tiny = start(
        ServeOptions { connection_bytes_max: 1, bytes_in_flight_max: 1, requests_max: 1, ..options() },
        node(&sizes, 1),
    );
    check(&connect(&tiny), &sizes, &[0, 1, 2, 3, 4, 5, 6, 7]);
}

fn http(at: SocketAddr, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_and_health_are_there() {
    let server = start(ServeOptions { http: "127.0.0.1:0".into(), ..options() }, node(&[10], 0));
    let client = connect(&server);
    check(&client, &[10], &[0]);
    check(&client, &[10], &[0, 0]);
    let at = server.http().unwrap();
    assert!(http(at, "/healthz", "").ends_with("\r\n\r\nok\n"));
    let page = http(at, "/metrics", "");
    for line in [
        "gristmill_connections 1",
        "gristmill_sent_samples_total 3",
        "gristmill_sent_bytes_total 30",
        "gristmill_samples{set=\"train\"} 1",
        "gristmill_served_samples_total{set=\"train\",tier=\"store\"} 1",
        "# TYPE gristmill_sent_bytes_total counter",
    ] {
        assert!(page.lines().any(|known| known == line), "{line} is missing in {page}");
    }
    assert!(http(at, "/other", "").starts_with("HTTP/1.1 404"));
    let beyond = start(ServeOptions { http: "0.0.0.0:0".into(), ..options() }, node(&[10], 0));
    let at = SocketAddr::from(([127, 0, 0, 1], beyond.http().unwrap().port()));
    assert!(http(at, "/metrics", "").starts_with("HTTP/1.1 401"));
    assert!(http(at, "/metrics", "Authorization: Bearer wrong\r\n").starts_with("HTTP/1.1 401"));
    assert!(http(at, "/metrics", &format!("Authorization: Bearer {TOKEN}\r\n")).starts_with("HTTP/1.1 200"));
    assert!(http(at, "/healthz", "").starts_with("HTTP/1.1 200"));
}
