//! The page as a user meets it: beside a real training, in a real browser, and as a file.
//!
//! The browser is a headless Chromium; where there is none (`CHROMIUM` names one) those tests say so and are passed over.

use crate::train::shipped;
use crate::watch::{BAD_START, unpacked};
use crate::{Place, text};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program of a browser, if there is one.
fn browser() -> Option<String> {
    let named = std::env::var("CHROMIUM").ok();
    let found = named.into_iter().chain(["chromium", "chromium-browser", "google-chrome"].map(String::from));
    let works = |name: &String| {
        let version =
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let found = found.into_iter().find(works);
    if found.is_none() {
        // The test harness shows it with --nocapture; the name of the test says what was not tried.
        let _ = writeln!(std::io::stderr(), "no Chromium here: the page was not opened in a browser");
    }
    found
}

/// What a page looks like to a script after it was loaded and has settled.
fn dom(browser: &str, place: &Place, url: &str) -> String {
    let profile = place.path("profile");
    let ran = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1280,1600",
            "--virtual-time-budget=8000",
        ])
        .arg(format!("--user-data-dir={}", text(&profile)))
        .args(["--dump-dom", url])
        .output()
        .unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

fn trained(place: &Place) {
    let (train, test) = (shipped("4000-train"), shipped("1000-test"));
    let args = ["--epochs", "6", "--selection", "bucket", "--families", "repeat", "--report", "r.html"];
    let ran = place.run(&[&["train", &train, "--test", &test][..], &args].concat()).good();
    assert!(ran.err.contains("report written to r.html"), "{}", ran.err);
}

/// Clicks and types its way through a saved page, and writes down what it met.
const CLICKS: &str = r"<script>
(async () => {
  const met = [];
  addEventListener('error', (e) => met.push(`fault ${e.message}: false`));
  addEventListener('unhandledrejection', (e) => met.push(`fault ${e.reason}: false`));
  const all = (what) => [...document.querySelectorAll(what)], one = (what) => document.querySelector(what);
  const press = (el, key) => el.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  // Waits until something is so, and notes whether it came to be.
  const until = async (what, so) => {
    for (let i = 0; i < 400 && !so(); i += 1) await new Promise((done) => setTimeout(done, 50));
    met.push(`${what}: ${Boolean(so())}`);
  };
  const says = (words) => one('main').textContent.includes(words);
  try {
    await until('drawn', () => one('.plot svg path') && says('Where the time goes') && says('Kept share'));
    for (const [name, words] of [['Data', 'highest last loss'], ['Epochs', 'went to rest'], ['Settings', 'selection.kind'], ['Overview', 'Training is']]) {
      all('nav a').find((a) => a.textContent === name).click();
      await until(name, () => one('nav a[aria-selected=true]').textContent === name && says(words));
    }
    const plot = one('.plot'), legend = plot.parentElement.querySelector('.legend');
    plot.focus();
    press(plot, 'Home');
    press(plot, 'Home');
    await until('the first epoch', () => legend.querySelector('.at').textContent === 'epoch 1');
    all('.switch button').find((b) => b.textContent === 'share').click();
    await until('shares', () => all('.plot .tick').some((tick) => tick.textContent === '100 %'));
    for (const [kind, what] of [['families', '.family .sample'], ['stand-ins', '.pair .sample'], ['hardest', '.grid .sample']]) {
      location.hash = `#data/${kind}`;
      await until(kind, () => one('.sub a[aria-selected=true]')?.getAttribute('href') === location.hash && one(what));
    }
    one('.sub a[aria-selected=true]').focus();
    press(one('.sub a[aria-selected=true]'), 'ArrowRight');
    await until('arrow', () => one('.sub a[aria-selected=true]').textContent === 'Most often skipped' && one('.sample') && says('skipped'));
    one('.sample').click();
    await until('dialog', () => one('dialog').open && one('dialog').textContent.includes('Score history'));
    all('dialog button')[0].click();
    await until('closed', () => !one('dialog').open);
    await until('pictures', () => all('.sample img').slice(0, 6).every((img) => img.naturalWidth === 28 && img.classList.contains('hard')));
    const was = getComputedStyle(document.body).backgroundColor;
    one('#theme').click();
    await until('theme', () => was !== getComputedStyle(document.body).backgroundColor);
    await until('fits', () => document.documentElement.scrollWidth <= innerWidth);
  } catch (e) {
    met.push(`fault ${e}: false`);
  }
  fetch(`/met?${encodeURIComponent(met.join(', '))}`);
})();
</script></body>";

/// Serves one page to a browser that is open until the page says what it met.
fn meet(browser: &str, place: &Place, html: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let open = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1280,1600",
            "--remote-debugging-port=0",
        ])
        .arg(format!("--user-data-dir={}", text(&place.path("profile"))))
        .arg(format!("http://{}/", listener.local_addr().unwrap()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let give_up = Instant::now() + Duration::from_mins(3);
    let mut met = "nothing within three minutes".to_string();
    while Instant::now() < give_up {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut line = String::new();
        // A connection that is opened in advance and never used is no reason to fail.
        if BufReader::new(&stream).read_line(&mut line).is_err() {
            continue;
        }
        let path = line.split(' ').nth(1).unwrap_or("");
        let body = if path == "/" { html } else { "" };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
        let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if let Some(said) = path.strip_prefix("/met?") {
            met = said.replace("%20", " ").replace("%2C", ",").replace("%3A", ":");
            break;
        }
    }
    end(open);
    met
}

#[test]
fn a_browser_shows_every_part_of_a_saved_page_and_clicks_work() {
    let Some(browser) = browser() else { return };
    let place = Place::new();
    trained(&place);
    let html = fs::read_to_string(place.path("r.html")).unwrap();
    let met = meet(&browser, &place, &html.replace("</body>", CLICKS));
    assert!(met.matches(": true").count() == 16 && !met.contains(": false"), "{met}");
}

#[test]
fn decisions_and_regions_are_seen() {
    let place = Place::new();
    let data = unpacked(&place);
    let more = [
        "--set",
        "cache.policy=score",
        "--set",
        "cache.stand_ins=true",
        "--selection",
        "bucket",
        "--report",
        "r.html",
    ];
    place.run(&[&["train", &data][..], &BAD_START, &more].concat()).good();
    let html = fs::read_to_string(place.path("r.html")).unwrap();
    assert!(html.contains("\"regions\":{\"cold\":"), "the report tells the regions");
    let Some(browser) = browser() else { return };
    let page = dom(&browser, &place, &format!("file://{}", text(&place.path("r.html"))));
    for words in
        ["What was decided, and why", "class=\"tag kept\"", "predicted", "Hit ratio by region", "hot region"]
    {
        assert!(page.contains(words), "{words} is missing");
    }
}

/// A training that shows its page, and where.
fn shown_beside(place: &Place, more: &[&str]) -> (Child, Option<String>, String) {
    let (train, test) = (shipped("4000-train"), shipped("1000-test"));
    let args =
        [&["train", &train, "--test", &test, "--epochs", "2000", "--selection", "bucket"][..], more].concat();
    let mut child = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while let Some(Ok(line)) = lines.next() {
        said += &line;
        if let Some(url) = line.strip_prefix("page: ") {
            return (child, Some(url.to_string()), said);
        }
        if line.contains("without it") {
            break;
        }
    }
    (child, None, said)
}

fn end(mut child: Child) {
    // One that ended by itself need not be killed.
    let _ = child.kill();
    child.wait().unwrap();
}

fn get(url: &str, path: &str) -> String {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_running_training_is_shown() {
    let place = Place::new();
    let (child, url, said) = shown_beside(&place, &["--page=127.0.0.1:0"]);
    let url = url.unwrap_or_else(|| panic!("no page: {said}"));
    let shown = std::panic::catch_unwind(|| {
        let state = get(&url, "/api/state");
        assert!(state.starts_with("HTTP/1.1 200") && state.contains("\"samples\":4000"), "{state}");
        assert!(get(&url, "/metrics").contains("gristmill_run_"));
        if let Some(browser) = browser() {
            let page = dom(&browser, &place, &url);
            for words in ["status live", "Where the time goes", "of 2000", "Samples per second"] {
                assert!(page.contains(words), "{words} is missing");
            }
            assert!(dom(&browser, &place, &format!("{url}#data/hardest")).contains("thumb/"));
        }
    });
    end(child);
    shown.unwrap_or_else(|fault| std::panic::resume_unwind(fault));
}

#[test]
fn what_cannot_be_shown_or_written_is_said_and_training_goes_on() {
    let place = Place::new();
    let (train, test) = (shipped("4000-train"), shipped("1000-test"));
    let run =
        |more: &[&str]| place.run(&[&["train", &train, "--test", &test, "--epochs", "1"][..], more].concat());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let page = format!("--page={}", taken.local_addr().unwrap());
    let ran = run(&[&page]).good();
    assert!(ran.err.contains("show the page on") && ran.err.contains("goes on without it"), "{}", ran.err);
    assert!(ran.out.contains("of the test data right"));
    for wrong in ["--page=0.0.0.0:7078", "--page=nowhere", "--page="] {
        let ran = run(&[wrong]);
        let off = wrong == "--page=";
        assert_eq!(ran.code, Some(if off { 0 } else { 2 }), "{wrong}: {}", ran.err);
    }
    let ran = run(&["--report", "nowhere/r.html"]);
    assert!(ran.out.contains("of the test data right"), "{}", ran.err);
    assert!(ran.code == Some(1) && ran.err.matches("nowhere/r.html").count() == 2, "{}", ran.err);
    let ran = run(&["--report", "r.html"]).good();
    assert!(ran.err.contains("report written to r.html") && Path::new(&place.path("r.html")).is_file());
}
