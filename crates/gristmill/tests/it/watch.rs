//! A training and a node in a terminal as a user meets them: live in a real pseudo-terminal, plain lines elsewhere.
//!
//! The pseudo-terminal is that of `script` (util-linux); where there is none those tests say so and are passed over.

use crate::train::shipped;
use crate::{Place, Ran, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A process whose lines are read as they come; killed if a test fails before it ends.
struct Watching {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Watching {
    fn start(mut command: Command) -> Watching {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Watching { child, lines, seen: Vec::new() }
    }

    /// The next line with these words in it, within a minute.
    #[track_caller]
    fn until(&mut self, words: &str) -> String {
        let end = Instant::now() + Duration::from_mins(1);
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.seen.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
        panic!("{words:?} never came: {:#?}", self.seen);
    }

    fn end(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// 1,000 pictures that are read one by one, in a file that is not packed.
pub(crate) fn unpacked(place: &Place) -> String {
    for part in ["images-idx3", "labels-idx1"] {
        let packed = fs::File::open(shipped("1000-test").replace("images-idx3", part)).unwrap();
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        fs::write(place.path(&format!("few-{part}-ubyte")), bytes).unwrap();
    }
    text(&place.path("few-images-idx3-ubyte")).to_string()
}

/// A training from a slow store with every knob wrong. Beside other tests an epoch may not explain itself, and what is to be
/// moved is then seen in one of the next: there are more than three for that.
pub(crate) const BAD_START: [&str; 16] = [
    "--epochs",
    "6",
    "--batch",
    "25",
    "--latency-ms",
    "3",
    "--threads",
    "1",
    "--set",
    "store.reads_in_flight=1",
    "--set",
    "loader.prefetch_batches=1",
    "--set",
    "steer.pin=none",
    "--set",
    "cache.size=20%",
];

#[test]
fn decisions_are_lines_where_they_are_taken_and_a_table_at_the_end() {
    let place = Place::new();
    let data = unpacked(&place);
    let ran = place.run(&[&["train", &data][..], &BAD_START].concat()).good();
    let lines: Vec<&str> = ran.out.lines().collect();
    let at = |words: &str| {
        let found = lines.iter().position(|line| line.starts_with(words));
        found.unwrap_or_else(|| panic!("{words:?} is missing in\n{}", ran.out))
    };
    let told = |words: &str| {
        let found = lines.iter().position(|line| line.starts_with("epoch ") && line.contains(words));
        found.unwrap_or_else(|| panic!("{words:?} is missing in\n{}", ran.out))
    };
    let moved = told("waiting for the store; reads 1 -> ");
    let epoch: u32 = lines[moved][6..].split(':').next().unwrap().parse().unwrap();
    assert!(epoch > 1, "{}", lines[moved]);
    let row = |epoch: u32| at(&format!("{epoch:>5}  "));
    assert!(row(epoch - 1) < moved && moved < row(epoch), "{}", ran.out);
    let verdict = told(&format!("{}: reads 1 -> ", epoch + 1));
    assert!(
        lines[verdict].contains("kept: predicted ") && lines[verdict].contains("measured "),
        "{}",
        lines[verdict]
    );
    let table = &lines[at("steering: ")..];
    assert!(table[0].contains("move") && table[1].contains("predicted  measured"), "{table:?}");
    assert!(table[2].contains("reads    1 -> ") && table[2].ends_with("kept"), "{table:?}");
    let rows = place.run(&[&["train", &data, "--json"][..], &BAD_START].concat()).good().json();
    assert!(rows[0]["decisions"].as_array().unwrap().is_empty(), "nothing is known before the first epoch");
    let first = rows[1..6].iter().find_map(|row| row["decisions"].as_array().unwrap().first());
    assert_eq!(first.unwrap()["knob"], "reads");
    assert_eq!(rows[6]["decisions"][0]["action"], "moved");
}

#[test]
fn it_is_said_that_nothing_was_moved() {
    let place = Place::new();
    let run = |more: &[&str]| {
        let (train, test) = (shipped("4000-train"), shipped("1000-test"));
        place.run(&[&["train", &train, "--test", &test, "--epochs", "1"][..], more].concat()).good().out
    };
    assert!(run(&[]).contains("\nsteering: nothing was moved\n"));
    assert!(
        run(&["--set", "steer.pin=all"]).contains("\nsteering: nothing was moved: every knob is pinned\n")
    );
    assert!(run(&["--set", "steer.mode=off"]).contains("\nsteering: off\n"));
}

/// What a command writes to a terminal of 100 columns; none where there is no `script`.
fn in_terminal(place: &Place, args: &[&str], keys: Option<Duration>) -> Option<Ran> {
    if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
        let _ = writeln!(std::io::stderr(), "no `script` here: not tried in a terminal");
        return None;
    }
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let line =
        format!("stty cols 100 rows 30; exec '{}' {}", env!("CARGO_BIN_EXE_gristmill"), quoted.join(" "));
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(place.folder.path())
        .env("GRISTMILL_CATALOG_FOLDER", place.path("catalogs"))
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    if let Some(after) = keys {
        std::thread::sleep(after);
        stdin.write_all(b"\x03").unwrap();
    }
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    Some(Ran::of(&output))
}

#[test]
fn a_training_is_live_in_a_terminal() {
    let place = Place::new();
    let data = unpacked(&place);
    let Some(ran) = in_terminal(&place, &[&["train", &data][..], &BAD_START].concat(), None) else { return };
    let ran = ran.good();
    for words in [
        "epoch 1 of 6 [",
        "time     [",
        "▓ fetch",
        "data     hits",
        "knobs    1 thread  1 read in flight  1 batch ahead",
        "reads 1 -> ",
        "steering: ",
    ] {
        assert!(ran.out.contains(words), "{words:?} is missing in\n{}", ran.out);
    }
}

/// A node at an address that it can be started at again.
fn node(place: &Place, listen: &str) -> (Watching, String) {
    let photos = text(&place.path("photos")).to_string();
    let mut serving = Watching::start(place.command(&["serve", &photos, "--json", "--listen", listen]));
    let said: serde_json::Value = serde_json::from_str(&serving.until("tcp")).unwrap();
    (serving, said["tcp"].as_str().unwrap().to_string())
}

#[test]
fn a_watched_node_may_go_away_and_come_back() {
    let place = Place::new();
    place.photos(20);
    let (serving, url) = node(&place, "127.0.0.1:0");
    let mut watching = Watching::start(place.command(&["status", &url, "--watch"]));
    let line = watching.until("samples/s");
    assert!(line.contains("hits -") && line.contains("memory ") && line.ends_with("0 jobs"), "{line}");
    assert_eq!(serving.end(), Some(0));
    assert!(watching.until("away: ").contains("asking again until Ctrl-C"));
    let listen = url.trim_start_matches("grist://").split('/').next().unwrap().to_string();
    let (serving, _) = node(&place, &listen);
    watching.until("is back after");
    watching.until("samples/s");
    assert_eq!(watching.end(), Some(0), "Ctrl-C ends it cleanly");
    let args = ["status", &url, "--watch"];
    if let Some(ran) = in_terminal(&place, &args, Some(Duration::from_secs(4))) {
        assert_eq!(ran.code, Some(0), "{}", ran.out);
        for words in ["requests      ▁", "samples/s now", "data set      photos", "\x1b[K", "F"] {
            assert!(ran.out.contains(words), "{words:?} is missing in\n{}", ran.out);
        }
    }
    drop(serving);
}

#[test]
fn a_run_is_watched_by_its_page() {
    let place = Place::new();
    let data = unpacked(&place);
    let more = [&["train", &data, "--page=127.0.0.1:0"][..], &BAD_START].concat();
    let mut command = place.command(&more);
    let mut training = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(training.stderr.take().unwrap()).lines().map_while(Result::ok);
    let url = said.find_map(|line| Some(line.strip_prefix("page: ")?.to_string())).unwrap();
    let once = place.run(&["status", &url]).good().out;
    assert!(once.contains("1,000 samples") && once.contains("few-images-idx3-ubyte"), "{once}");
    let state = &place.run(&["status", &url, "--json"]).good().json()[0];
    assert_eq!(state["facts"]["samples"], 1_000);
    let mut watching = Watching::start(place.command(&["status", &url, "--watch"]));
    watching.until("epoch 1: ");
    assert!(watching.until("reads 1 -> ").starts_with("epoch "));
    watching.until("the run is over");
    assert!(watching.child.wait().unwrap().success(), "it ends with the run");
    assert!(training.wait().unwrap().success());
}

#[test]
fn what_is_no_page_is_said() {
    let place = Place::new();
    place.run(&["status", "http://127.0.0.1:1/"]).bad(1, &["http://127.0.0.1:1/", "refused"]);
    place.run(&["status", "http://127.0.0.1:1/", "--watch"]).bad(1, &["http://127.0.0.1:1/", "refused"]);
    place.run(&["status", "https://127.0.0.1:1/"]).bad(2, &["plain http"]);
    place.run(&["status", "http://:x/"]).bad(2, &["not the address of a page"]);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", other.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let _ = stream.read(&mut [0; 1_024]);
        stream.write_all(b"SSH-2.0-OpenSSH\r\n").unwrap();
    });
    place.run(&["status", &url]).bad(1, &["there is no page at", &url]);
    answering.join().unwrap();
}
