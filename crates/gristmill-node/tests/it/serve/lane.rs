//! Samples through memory that a node and a client on its machine share.

use super::*;
use gristmill_node::wire::LANES_SINCE;
use std::time::{Duration, Instant};

/// A server behind a Unix socket, and its URL.
fn beside(folder: &Path, sizes: &[usize], options: ServeOptions) -> (Server, String) {
    let socket = folder.join("s.sock");
    let server = start(ServeOptions { unix: socket.to_str().unwrap().into(), ..options }, node(sizes, 0));
    (server, format!("grist+unix://{}", socket.display()))
}

/// Waits until it is so: connections end a moment after their client.
#[track_caller]
fn until(is: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < give_up, "not in ten seconds");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_beside_the_node_gets_samples_through_shared_memory() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = sizes();
    let (server, unix) = beside(folder.path(), &sizes, options());
    let all: Vec<u32> = (0..sizes.len() as u32).collect();
    let total: u64 = sizes.iter().map(|&bytes| bytes as u64).sum();
    let mut before = 0;
    let mut clients = Vec::new();
    let large = ClientOptions { lane_bytes: 32 << 20, ..with_token() };
    let small = ClientOptions { lane_bytes: 400_000, ..with_token() };
    let none = ClientOptions { lane_bytes: 0, ..with_token() };
    let old = ClientOptions { wire_version: LANES_SINCE - 1, ..with_token() };
    for (url, options, least, most) in [
        (&unix, large, total, total),
        // What finds no room in it comes over the socket, such as one of five mebibytes.
        (&unix, small, 300_000, total - (5 << 20)),
        (&unix, none, 0, 0),
        (&unix, old, 0, 0),
        (&url(&server), with_token(), 0, 0),
    ] {
        let client = Client::connect(url, options.clone()).unwrap();
        // The lane is asked for when the connection begins; what comes with this may come without it.
        check(&client, &sizes, &[0]);
        let start = server.report().lane_bytes;
        check(&client, &sizes, &all);
        clients.push(client);
        let came = server.report().lane_bytes - start;
        assert!((least..=most).contains(&came), "{came} of {total} bytes, {options:?}");
        before += came;
    }
    assert_eq!(server.report().lane_bytes, before);
}

#[test]
fn many_turns_around_a_small_lane() {
    let folder = tempfile::tempdir().unwrap();
    let sizes: Vec<usize> = (0..200).map(|id| 1 + id * 131 % 9_000).collect();
    let (server, unix) = beside(folder.path(), &sizes, options());
    let client = Client::connect(&unix, ClientOptions { lane_bytes: 200_000, ..with_token() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (client, sizes) = (client.clone(), &sizes);
            scope.spawn(move || {
                for turn in 0..100 {
                    let ids: Vec<u32> = (0..12).map(|at| (thread * 50 + turn * 7 + at * 13) % 200).collect();
                    check(&client, sizes, &ids);
                }
            });
        }
    });
    let report = server.report();
    assert!(report.lane_bytes > 20 * 200_000, "{} of {}", report.lane_bytes, report.bytes);
}

#[test]
fn a_node_without_room_for_lanes_sends_over_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = vec![1_000; 50];
    let all: Vec<u32> = (0..50).collect();
    let tight = ServeOptions { lanes_bytes_max: 12 << 20, bytes_in_flight_max: 8 << 20, ..options() };
    let (server, unix) = beside(folder.path(), &sizes, tight);
    // Eight mebibytes are asked for each time, and twelve are all there is; answers have room of their own.
    let clients = [(); 3].map(|()| Client::connect(&unix, with_token()).unwrap());
    for (client, through) in clients.iter().zip([true, false, false]) {
        check(client, &sizes, &[0]);
        let before = server.report().lane_bytes;
        check(client, &sizes, &all);
        assert_eq!(server.report().lane_bytes - before, if through { 50_000 } else { 0 });
    }
    // A client that goes gives its room back.
    drop(clients);
    until(|| {
        let client = Client::connect(&unix, with_token()).unwrap();
        check(&client, &sizes, &[0]);
        let before = server.report().lane_bytes;
        check(&client, &sizes, &all);
        server.report().lane_bytes - before == 50_000
    });
}
