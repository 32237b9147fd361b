//! What can be typed for `serve`, `status` and `bench serve`.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are the help text, where backticks would be printed"
)]

use super::Common;
use clap::Args as ClapArgs;
use gristmill_node::page;

#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    /// A data set (path or URL) or a catalog file
    pub(crate) source: String,
    /// Keep samples in this much memory: a size, or a share of the data set [default: 20%]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Keep more on disk; warm after a restart, e.g. /ssd/cache:200GiB
    #[arg(long, value_name = "FOLDER:SIZE")]
    pub(crate) disk: Option<String>,
    /// What is kept: foresight, score, lru, lfu, static or quiver [default: foresight]
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,
    /// Cores that run ops for clients near the data, e.g. 2 or 0.5; 0 runs none [default: half of the cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cores: Option<String>,
    /// Listen for TCP on this address and port [default: 127.0.0.1:7077]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Listen on this Unix socket
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Option<String>,
    /// Show /metrics and /healthz on this address and port
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Show a page with live charts of the node in a browser, on this machine [default: 127.0.0.1:7078]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = page::LISTEN)]
    pub(crate) page: Option<String>,
    /// All nodes that share one cache, this one included: URLs separated by commas, or dns:host:port/name
    #[arg(long, value_name = "URLS", requires = "advertise")]
    pub(crate) peers: Option<String>,
    /// This node's own URL among the peers
    #[arg(long, value_name = "URL")]
    pub(crate) advertise: Option<String>,
    /// The name of the data set in URLs [default: the last part of the source]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Read the token that lets clients in from FILE [default: $GRISTMILL_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<String>,
    /// The certificate chain (PEM); TCP and HTTP then speak TLS
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<String>,
    /// End when standard input ends: for a program that starts a node and may be killed
    #[arg(long)]
    pub(crate) while_stdin: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatusArgs {
    /// A node: grist://host:port, grists:// for TLS, or grist+unix:///path; or the page of a training run or a node, as
    /// --page prints it: http://127.0.0.1:7078/
    pub(crate) url: String,
    /// Show it again and again, in its place in a terminal, else as plain lines; Ctrl-C ends it
    #[arg(long)]
    pub(crate) watch: bool,
    /// Read the token from FILE [default: $GRISTMILL_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<String>,
    /// The certificate authority (PEM) that signed the node's certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchServeArgs {
    /// Measure against the Redis server at this address [default: start redis-server if it is installed]
    #[arg(long, value_name = "ADDR")]
    pub(crate) redis: Option<String>,
    /// How long each measurement takes, 0.1 to 60
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    pub(crate) seconds: f64,
    /// How often everything is measured, 1 to 99; medians are shown
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) rounds: usize,
    /// Samples per message, 1 to 128
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub(crate) batch: usize,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Be the server that sends bare bytes (for the benchmark itself)
    #[arg(long, hide = true)]
    pub(crate) bare: bool,
}
