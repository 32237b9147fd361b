//! Where a server listens and what its limits are.

use super::Hosted;
use crate::wire::{ENTRIES_MAX, NAME_BYTES_MAX, Rows, SamplesHead};
use crate::{Error, Result};

/// The most cores that anybody means.
pub(crate) const CORES_MAX: f64 = 1_024.0;
/// The fewest, if there are any: with less a thread would rest for minutes after one sample.
pub(crate) const CORES_LEAST: f64 = 0.01;

/// Where a server listens, and how much it bears.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeOptions {
    /// Address and port for TCP; "" for none.
    pub listen: String,
    /// Path of a Unix socket; "" for none.
    pub unix: String,
    /// Address and port for `/metrics` and `/healthz`; "" for none.
    pub http: String,
    /// The certificate chain (PEM); with it TCP and HTTP speak TLS.
    pub tls_cert: String,
    /// Its private key (PEM).
    pub tls_key: String,
    /// Open connections.
    pub connections_max: u64,
    /// Requests in flight on one connection.
    pub requests_max: u64,
    /// Bytes of answers in memory for one connection.
    pub connection_bytes_max: u64,
    /// Bytes of answers in memory for all connections.
    pub bytes_in_flight_max: u64,
    /// Memory that all clients on this machine together may share with the node; 0 for none.
    pub lanes_bytes_max: u64,
    /// The largest sample that is sent.
    pub sample_bytes_max: u64,
    /// How long a handshake may take.
    pub handshake_ms_max: u64,
    /// How long a connection may be silent.
    pub idle_ms_max: u64,
    /// How long a client may not read, or leave a message unfinished.
    pub write_ms_max: u64,
    /// How long to finish what is in flight when asked to end.
    pub drain_ms_max: u64,
    /// Threads that serve; 0 takes half of the cores, at most 8. Handing a request to another thread costs more than
    /// answering a small one, so more threads than the load needs make every request dearer.
    pub threads: usize,
    /// Cores that run ops for clients, fractions included; none takes half of the cores, 0 runs no ops.
    pub cores: Option<f64>,
    /// Samples that may wait for ops; more are sent raw.
    pub op_queue_max: u64,
    /// Their bytes.
    pub op_queue_bytes_max: u64,
    /// Working memory of one op thread; a sample that needs more is sent raw.
    pub op_scratch_bytes_max: u64,
    /// Memory for decoded pictures that stay, so that the next epoch need not decode them; 0 for none.
    pub op_pixels_bytes_max: u64,
    /// The version of the ops; only tests say another one.
    pub build: &'static str,
    /// The version of the wire; only tests speak an older one.
    pub wire_version: u8,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            listen: "127.0.0.1:7077".into(),
            unix: String::new(),
            http: String::new(),
            tls_cert: String::new(),
            tls_key: String::new(),
            connections_max: 4_096,
            requests_max: 256,
            connection_bytes_max: 32 << 20,
            bytes_in_flight_max: 256 << 20,
            lanes_bytes_max: 64 << 20,
            sample_bytes_max: 256 << 20,
            handshake_ms_max: 5_000,
            idle_ms_max: 600_000,
            write_ms_max: 30_000,
            drain_ms_max: 10_000,
            threads: 0,
            cores: None,
            op_queue_max: 256,
            op_queue_bytes_max: 64 << 20,
            op_scratch_bytes_max: 128 << 20,
            op_pixels_bytes_max: 512 << 20,
            build: gristmill_ops::BUILD,
            wire_version: crate::wire::VERSION,
        }
    }
}

impl ServeOptions {
    /// The cores that ops may use.
    pub(super) fn op_cores(&self) -> f64 {
        let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.cores.unwrap_or_else(|| (all / 2).max(1) as f64)
    }

    /// Bytes that may wait for ops.
    pub(super) fn staged_bytes_max(&self) -> u64 {
        self.bytes_in_flight_max / 4
    }

    /// The longest answer.
    pub(super) fn answer_bytes_max(&self) -> u32 {
        // The sample, or what a group of small ones may take, and the table in front.
        let most = self.sample_bytes_max.max(4 << 20) + SamplesHead::bytes(ENTRIES_MAX, Rows::Staged) as u64;
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// What cannot work, said before anything is opened.
    pub(super) fn check(&self, hosted: &[Hosted]) -> Result<()> {
        if self.listen.is_empty() && self.unix.is_empty() {
            return Err(Error::config("there is nothing to listen on: neither an address nor a Unix socket")
                .hint("set serve.listen (--listen) or serve.unix (--unix)"));
        }
        if self.tls_cert.is_empty() != self.tls_key.is_empty() {
            return Err(Error::config("TLS needs both a certificate and its key; one of them is missing")
                .hint("set serve.tls_cert (--tls-cert) and serve.tls_key (--tls-key)"));
        }
        let fits = |cores: &f64| *cores == 0.0 || (CORES_LEAST..=CORES_MAX).contains(cores);
        if let Some(cores) = self.cores.filter(|cores| !fits(cores)) {
            return Err(Error::config(format!(
                "serve.cores = {cores} is neither 0 nor from {CORES_LEAST} to {CORES_MAX}"
            )));
        }
        if hosted.is_empty() {
            return Err(Error::config("there is no data set to serve"));
        }
        for (at, one) in hosted.iter().enumerate() {
            let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if one.name.is_empty() || one.name.len() > NAME_BYTES_MAX || !one.name.chars().all(fine) {
                return Err(Error::config(format!("{:?} is not a name for a data set", one.name)).hint(
                    "names have letters, digits, - _ and ., since they stand in URLs; set it with --name",
                ));
            }
            if hosted[..at].iter().any(|other| other.name == one.name) {
                return Err(Error::config(format!("two data sets have the name {:?}", one.name)));
            }
        }
        Ok(())
    }
}
