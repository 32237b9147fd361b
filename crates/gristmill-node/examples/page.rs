//! The page of an imagined run of 1.28 million samples and 1,000 epochs: how long it takes to answer, and to look at.
//!
//! `cargo run --release -p gristmill-node --example page -- [SAMPLES] [SECONDS]` says what the answers cost, prints the
//! address, and stays for so many seconds while another epoch ends every second.

#![expect(clippy::print_stdout, reason = "a program that measures prints what it found")]

use gristmill_node::Result;
use gristmill_node::catalog::{self, BuildOptions, Source};
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::Loader;
use gristmill_node::node::Tier;
use gristmill_node::page::{Decision, Outcome, Page, PageOptions};
use gristmill_node::report::{EpochReport, TierUse, Wait};
use gristmill_node::store::{LocalStore, Store};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EPOCHS: u64 = 1_000;
/// Epochs in which every sample is told.
const WHOLE: u64 = 24;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let samples: u32 = args.next().map_or(Ok(1_281_167), |text| text.parse())?;
    let stay: u64 = args.next().map_or(Ok(0), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let set = data(folder.path(), samples)?;
    let page = Page::new(set.clone(), &PageOptions::default(), 1 << 26, Vec::new())?;
    let loader = Loader::new(set, None, Config::load(None, &[])?.settings().loader())?;
    let (mut begin, mut learn) = (Duration::ZERO, Duration::ZERO);
    let ids: Vec<u32> = (0..samples).collect();
    let losses: Vec<f32> = ids.iter().map(|id| (id.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6).collect();
    for epoch in 0..WHOLE {
        let running = loader.epoch(epoch, 0)?;
        let at = Instant::now();
        page.began(&running);
        begin += at.elapsed();
        let at = Instant::now();
        page.learned(&ids, &losses);
        learn += at.elapsed();
    }
    (0..EPOCHS).for_each(|epoch| tell(&page, epoch, samples));
    let at = page.serve("127.0.0.1:0")?;
    println!("{samples} samples, {EPOCHS} epochs");
    println!(
        "the run pays {:.1} ms per epoch to note who is in it, and {:.0} ns per sample to note its loss",
        begin.as_secs_f64() * 1e3 / WHOLE as f64,
        learn.as_secs_f64() * 1e9 / WHOLE as f64 / f64::from(samples)
    );
    let hardest = "/api/samples?kind=hardest&n=48";
    for path in ["/", "/api/state", hardest, hardest, "/thumb/7"] {
        let asked = Instant::now();
        let bytes = get(at.address(), path)?;
        println!("{path}: {bytes} bytes in {:.1} ms", asked.elapsed().as_secs_f64() * 1e3);
    }
    println!("{}", at.url());
    std::io::stdout().flush()?;
    for second in 0..stay {
        std::thread::sleep(Duration::from_secs(1));
        tell(&page, EPOCHS + second, samples);
    }
    Ok(())
}

/// So many pictures of one pixel, as an idx file.
fn data(folder: &Path, samples: u32) -> Result<Arc<DataSet>> {
    let write = |name: &str, head: &[u32], bytes: Vec<u8>| {
        let mut file: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
        file.extend(bytes);
        std::fs::write(folder.join(name), file).map_err(|e| gristmill_node::Error::io("write", name, e))
    };
    let pixels = (0..samples).map(|id| id as u8).collect();
    write("train-images-idx3-ubyte", &[0x803, samples, 1, 1], pixels)?;
    write("train-labels-idx1-ubyte", &[0x801, samples], (0..samples).map(|id| (id % 10) as u8).collect())?;
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder)?);
    let object = Some("train-images-idx3-ubyte".into());
    let source = Source { root_url: store.url(), store: store.clone(), object, kind: None };
    let draft = catalog::build(&source, &BuildOptions::default(), &mut |_| ControlFlow::Continue(()))?;
    Ok(Arc::new(DataSet::new(Arc::new(draft.into_catalog()?), store, 1 << 30, &|| false)?))
}

/// An epoch that never was.
fn tell(page: &Page, epoch: u64, samples: u32) {
    let wave = |length: f64| 0.5 + 0.5 * (epoch as f64 / length).sin();
    let fetch_ms = 40_000.0 * wave(30.0);
    let wait = Wait {
        total_ms: fetch_ms + 5_000.0,
        fetch_ms,
        decode_ms: 4_000.0,
        ops_ms: 900.0,
        hand_over_ms: 100.0,
    };
    let tiers =
        Tier::ALL.map(|tier| TierUse { tier, samples: 100_000 * (1 + tier as u64), bytes: 11_000_000_000 });
    let report = EpochReport {
        epoch,
        samples: samples.into(),
        bytes: 140_000_000_000,
        wall_ms: 100_000.0 + 20_000.0 * wave(7.0),
        samples_per_s: 11_000.0,
        wait,
        threads: 8,
        tiers: tiers.to_vec(),
        ..EpochReport::default()
    };
    let outcome = Outcome { accuracy: Some(wave(200.0)), loss: Some(1.0), ..Outcome::default() };
    page.epoch(&report, &outcome);
    if epoch.is_multiple_of(10) {
        let (knob, reason) = ("split".to_string(), "71 % of the time waiting for the link".to_string());
        page.decided(&Decision { epoch, knob, reason, predicted: Some(1.9), ..Decision::default() });
    }
}

/// The bytes of an answer.
fn get(at: SocketAddr, path: &str) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(at)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)
}
