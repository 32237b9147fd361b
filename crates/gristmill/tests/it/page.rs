//! The page as a user meets it: beside a real training, in a real browser, and as a file.
//!
//! The browser is a headless Chromium; where there is none (`CHROMIUM` names one) those tests say so and are passed over.

use crate::train::shipped;
use crate::{Place, text};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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
const CLICKS: &str = r#"<script>
(async () => {
  const met = [], faults = [];
  addEventListener('error', (e) => faults.push(e.message));
  addEventListener('unhandledrejection', (e) => faults.push(String(e.reason)));
  const settle = () => new Promise((done) => setTimeout(done, 120));
  const all = (what) => [...document.querySelectorAll(what)];
  const press = (el, key) => el.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  await settle();
  for (const name of ['Data', 'Epochs', 'Settings', 'Overview']) {
    all('nav a').find((a) => a.textContent === name).click();
    await settle();
    met.push(`${document.querySelector('nav a[aria-selected=true]').textContent} has ${document.querySelector('main').textContent.length > 200}`);
  }
  const plot = document.querySelector('.plot'), legend = plot.parentElement.querySelector('.legend');
  plot.focus();
  press(plot, 'Home');
  press(plot, 'Home');
  met.push(`legend: ${legend.querySelector('.at').textContent}`);
  all('.switch button').find((b) => b.textContent === 'share').click();
  await settle();
  met.push(`axis: ${plot.querySelector('.tick:last-of-type') ? all('.tick')[2].textContent : ''}`);
  location.hash = '#data/hardest';
  await settle();
  const tab = document.querySelector('.sub a[aria-selected=true]');
  tab.focus();
  press(tab, 'ArrowRight');
  await settle();
  met.push(`arrow to: ${document.querySelector('.sub a[aria-selected=true]').textContent}`);
  location.hash = '#data/hardest';
  await settle();
  const first = document.querySelector('.sample');
  first.click();
  await settle();
  met.push(`dialog: ${document.querySelector('dialog').open} ${document.querySelector('dialog').textContent.includes('Score history')}`);
  all('dialog button')[0].click();
  met.push(`closed: ${!document.querySelector('dialog').open}`);
  met.push(`loaded: ${all('.sample img').slice(0, 6).every((img) => img.naturalWidth === 28)}`);
  const was = getComputedStyle(document.body).backgroundColor;
  document.querySelector('#theme').click();
  met.push(`theme: ${was !== getComputedStyle(document.body).backgroundColor}`);
  met.push(`wide: ${document.documentElement.scrollWidth <= innerWidth}`);
  document.body.dataset.met = met.join('; ');
  document.body.dataset.faults = faults.join('; ') || 'none';
})();
</script></body>"#;

#[test]
fn a_browser_shows_every_part_of_a_saved_page_and_clicks_work() {
    let Some(browser) = browser() else { return };
    let place = Place::new();
    trained(&place);
    let url = |hash: &str| format!("file://{}#{hash}", text(&place.path("r.html")));
    for (hash, words) in [
        ("overview", &["Where the time goes", "Kept share", "Training is", "waiting for fetch"][..]),
        ("data/hardest", &["The samples with the highest last loss", "class=\"sample\"", "data:image/png"]),
        ("data/skipped", &["left out of most epochs", "skipped"]),
        ("data/families", &["families", "class=\"card family\""]),
        ("data/stand-ins", &["trained instead", "class=\"card pair\""]),
        ("epochs", &["why these samples", "went to rest"]),
        ("settings", &["selection.kind", "bucket"]),
    ] {
        let shown = dom(&browser, &place, &url(hash));
        for word in words {
            assert!(shown.contains(word), "{hash}: {word} is missing");
        }
    }
    let html = fs::read_to_string(place.path("r.html")).unwrap();
    fs::write(place.path("r.html"), html.replace("</body>", CLICKS)).unwrap();
    let shown = dom(&browser, &place, &url("overview"));
    for met in [
        "Data has true; Epochs has true; Settings has true; Overview has true",
        "legend: epoch 1",
        "axis: 100 %",
        "arrow to: Most often skipped",
        "dialog: true true; closed: true; loaded: true; theme: true; wide: true",
        "data-faults=\"none\"",
    ] {
        assert!(
            shown.contains(met),
            "{met:?} is not in {:?}",
            shown.split("data-met=").nth(1).map(|rest| &rest[..600.min(rest.len())])
        );
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
    child.kill().unwrap();
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
