//! Nodes that die, hang, restart, change or shut down: bounded time, clear words, and the client comes back.

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn eager() -> ClientOptions {
    ClientOptions {
        request_ms_max: 300,
        connect_ms_max: 1_000,
        backoff_ms: 20,
        backoff_ms_max: 60,
        ..with_token()
    }
}

/// Waits until `fine`, at most a few seconds.
#[track_caller]
fn wait(what: &str, fine: impl Fn() -> bool) {
    let start = Instant::now();
    while !fine() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_node_that_restarts_is_used_again() {
    let sizes = vec![100; 10];
    let server = start(options(), node(&sizes, 0));
    let at = server.tcp().unwrap();
    let client = Client::connect(&url(&server), eager()).unwrap();
    check(&client, &sizes, &[1, 2, 3]);
    drop(server);
    wait("it notices", || !client.is_up());
    let started = Instant::now();
    let error = block_on(client.fetch(&asks([1]))).unwrap_err();
    assert!(error.kind() == Kind::Unavailable && started.elapsed() < Duration::from_millis(100), "{error}");
    block_on(client.announce(7, true, vec![1, 2, 3])).unwrap();
    let again = start(ServeOptions { listen: at.to_string(), ..options() }, node(&sizes, 0));
    wait("it comes back", || client.is_up());
    check(&client, &sizes, &[4, 5]);
    assert_eq!((client.counts().connects, again.report().connections), (2, 1));
}

#[test]
fn a_node_that_comes_up_later_is_found() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = held.local_addr().unwrap();
    drop(held);
    let url = format!("grist://{at}/train");
    let error = Client::connect(&url, eager()).unwrap_err();
    assert!(error.kind() == Kind::Unavailable && error.to_string().contains(&url), "{error}");
    let client = Client::start(&url, eager()).unwrap();
    assert!(!client.is_up() && block_on(client.fetch(&asks([0]))).is_err());
    let _server = start(ServeOptions { listen: at.to_string(), ..options() }, node(&[5], 0));
    wait("it is found", || client.is_up());
    check(&client, &[5], &[0]);
}

#[test]
fn another_data_set_is_refused_for_good() {
    let server = start(options(), node(&[100; 10], 0));
    let at = server.tcp().unwrap();
    let client = Client::connect(&url(&server), eager()).unwrap();
    drop(server);
    wait("it notices", || !client.is_up());
    let other = ServeOptions { listen: at.to_string(), ..options() };
    let server = start(other.clone(), node(&[50; 10], 0));
    wait("it is refused", || block_on(client.fetch(&asks([0]))).unwrap_err().kind() == Kind::Config);
    let error = block_on(client.fetch(&asks([0]))).unwrap_err();
    assert!(error.to_string().contains("another data set") && error.remedy().is_some(), "{error}");
    drop(server);
    let _right = start(other, node(&[100; 10], 0));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!client.is_up(), "for good");
    assert_eq!(block_on(client.announce(1, true, vec![0])).unwrap_err().kind(), Kind::Config);
}

#[test]
fn a_node_that_never_greets_costs_bounded_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let started = Instant::now();
    let error = Client::connect(&format!("grist://{}", silent.local_addr().unwrap()), eager()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

/// Passes bytes both ways until told to hang, and from then on accepts and says nothing.
fn hanging_proxy(to: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<std::sync::atomic::AtomicBool>) {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let hang = Arc::new(AtomicBool::new(false));
    let told = hang.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(to).unwrap();
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                let hang = told.clone();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4_096];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        while hang.load(SeqCst) {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        if to.write_all(&bytes[..read]).is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    (at, hang)
}

#[test]
fn a_node_that_hangs_costs_bounded_time_and_comes_back() {
    use std::sync::atomic::Ordering::SeqCst;
    let sizes = vec![100; 10];
    let server = start(options(), node(&sizes, 0));
    let (at, hang) = hanging_proxy(server.tcp().unwrap());
    let client = Client::connect(&format!("grist://{at}/train"), eager()).unwrap();
    check(&client, &sizes, &[1]);
    hang.store(true, SeqCst);
    let started = Instant::now();
    let error = block_on(client.fetch(&asks([1]))).unwrap_err();
    assert!(error.kind() == Kind::Unavailable && error.to_string().contains("300 ms"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    wait("it is given up", || !client.is_up());
    assert!(block_on(client.fetch(&asks([1]))).is_err());
    hang.store(false, SeqCst);
    wait("it comes back", || block_on(client.fetch(&asks([1]))).is_ok());
    check(&client, &sizes, &[2, 3]);
}

#[test]
fn one_slow_request_fails_alone() {
    let sizes = vec![100; 10];
    let server = start(options(), node(&sizes, 500));
    let client = Client::connect(&url(&server), eager()).unwrap();
    let wanted = asks([1]);
    let (slow, ()) = block_on(async {
        let pings = async {
            for _ in 0..8 {
                client.ping().await.unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        futures::join!(client.fetch(&wanted), pings)
    });
    assert_eq!(slow.unwrap_err().kind(), Kind::Unavailable);
    assert!(client.is_up(), "others were answered, so the connection stays");
}

#[test]
fn a_drain_finishes_what_is_in_flight_and_takes_nothing_new() {
    let sizes = vec![100; 200];
    let server = start(options(), node(&sizes, 400));
    let client = Client::connect(&url(&server), ClientOptions { backoff_ms: 20, ..with_token() }).unwrap();
    let asking = client.clone();
    let fetch = std::thread::spawn(move || block_on(asking.fetch(&asks(0..200))));
    wait("it is under way", || server.report().bytes_in_flight > 0);
    let at = server.tcp().unwrap();
    let started = Instant::now();
    server.drain().unwrap();
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let came = fetch.join().unwrap().unwrap();
    assert!(came.iter().all(Result::is_ok), "all of them came");
    wait("the client knows", || !client.is_up());
    assert!(TcpStream::connect(at).is_err(), "nobody listens");
}

#[test]
fn a_drain_ends_even_if_a_request_does_not() {
    let limits = ServeOptions { drain_ms_max: 100, ..options() };
    let server = start(limits, node(&[100], 60_000));
    let client = connect(&server);
    let asking = client.clone();
    let fetch = std::thread::spawn(move || block_on(asking.fetch(&asks([0]))));
    wait("it is under way", || server.report().bytes_in_flight > 0);
    let started = Instant::now();
    let error = server.drain().unwrap_err();
    assert!(error.to_string().contains("1 connections were cut off"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(fetch.join().unwrap().unwrap_err().kind(), Kind::Unavailable);
}
