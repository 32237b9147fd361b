//! The settings of `gristmill serve`, of those who ask it, and of the page.

use super::split::{cores, show_auto};
use super::{HOUR_MS, Key, U32_MAX, WEEK_MS, bytes_to, format_bytes, list, shown, text, whole};

/// Every setting of the wire.
pub(super) const SERVE: &[Key] = &[
    key!("serve.listen", "address and port for TCP; empty for none", serve.listen, text, shown),
    key!("serve.unix", "path of a Unix socket; empty for none", serve.unix, text, shown),
    key!("serve.http", "address and port for /metrics and /healthz; empty for none", serve.http, text, shown),
    key!(
        "serve.name",
        "the name of the data set in URLs; empty takes it from the source",
        serve_name,
        text,
        shown
    ),
    key!(
        "serve.token_file",
        "file with the token that lets clients in, on both sides; GRISTMILL_TOKEN holds it where there is no file",
        token_file,
        text,
        shown
    ),
    key!(
        "serve.tls_cert",
        "certificate chain (PEM); with it TCP and HTTP speak TLS",
        serve.tls_cert,
        text,
        shown
    ),
    key!("serve.tls_key", "private key of that certificate (PEM)", serve.tls_key, text, shown),
    key!(
        "serve.connections_max",
        "open connections",
        serve.connections_max,
        whole::<u64, 1, 1_000_000>,
        shown
    ),
    key!(
        "serve.requests_max",
        "requests in flight on one connection",
        serve.requests_max,
        whole::<u64, 1, 65_536>,
        shown
    ),
    key!(
        "serve.connection_bytes_max",
        "bytes of answers in memory for one connection",
        serve.connection_bytes_max,
        bytes_to::<1, U32_MAX>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "serve.bytes_in_flight_max",
        "bytes of answers in memory for all connections",
        serve.bytes_in_flight_max,
        bytes_to::<1, U32_MAX>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "serve.lanes_bytes_max",
        "memory that all clients on this machine together may share with the node; 0 for none",
        serve.lanes_bytes_max,
        bytes_to::<0, U32_MAX>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "serve.sample_bytes_max",
        "the largest sample that is sent",
        serve.sample_bytes_max,
        bytes_to::<1, { 1 << 30 }>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "serve.handshake_ms_max",
        "how long a handshake may take",
        serve.handshake_ms_max,
        whole::<u64, 1, HOUR_MS>,
        shown
    ),
    key!(
        "serve.idle_ms_max",
        "how long a connection may be silent",
        serve.idle_ms_max,
        whole::<u64, 300, WEEK_MS>,
        shown
    ),
    key!(
        "serve.write_ms_max",
        "how long a client may not read, or leave a message unfinished",
        serve.write_ms_max,
        whole::<u64, 1, HOUR_MS>,
        shown
    ),
    key!(
        "serve.drain_ms_max",
        "how long to finish what is in flight when asked to end",
        serve.drain_ms_max,
        whole::<u64, 0, HOUR_MS>,
        shown
    ),
    key!(
        "serve.threads",
        "threads that serve; 0 takes half of the cores, at most 8",
        serve.threads,
        whole::<usize, 0, 1_024>,
        shown
    ),
    key!(
        "serve.cores",
        "cores that run ops for clients, fractions included; 0 runs none, auto takes half of the cores",
        serve.cores,
        cores,
        show_auto
    ),
    key!(
        "serve.op_queue_max",
        "samples that may wait for ops; more are sent raw",
        serve.op_queue_max,
        whole::<u64, 0, 65_536>,
        shown
    ),
    key!(
        "serve.op_queue_bytes_max",
        "bytes of samples that may wait for ops; more are sent raw",
        serve.op_queue_bytes_max,
        bytes_to::<0, U32_MAX>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "serve.op_scratch_bytes_max",
        "working memory of one op thread; a sample that needs more is sent raw",
        serve.op_scratch_bytes_max,
        bytes_to::<1, { 1 << 34 }>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "serve.op_pixels_bytes_max",
        "memory for decoded pictures that stay with the ops, so that the next epoch need not decode them again; 0 keeps none",
        serve.op_pixels_bytes_max,
        bytes_to::<0, { 1 << 44 }>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "serve.peers",
        "all nodes that share one cache, this one included: URLs or dns:host:port/name, separated by commas",
        peers,
        list,
        |peers: &Vec<String>| peers.join(",")
    ),
    key!("serve.advertise", "this node's own URL among serve.peers", advertise, text, shown),
    key!(
        "client.tls_ca",
        "certificate authority (PEM) that signed the node's certificate; with it TLS is used",
        tls_ca,
        text,
        shown
    ),
    key!(
        "client.lane_bytes",
        "memory that a node on this machine, reached through its Unix socket, shares with a client; 0 for none",
        lane_bytes,
        bytes_to::<0, { crate::lane::BYTES_MAX as u64 }>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "page.listen",
        "loopback address and port of the page of a run or a node; empty for none",
        page.listen,
        text,
        shown
    ),
    key!(
        "page.memory_bytes_max",
        "memory for what a page keeps per sample; below 24 bytes per sample only some samples are followed",
        page.memory_bytes_max,
        bytes_to::<1, { 1 << 40 }>,
        |b: &u64| format_bytes(*b)
    ),
];
