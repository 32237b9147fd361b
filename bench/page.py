"""How long the page of a run of 1.28 million samples takes to answer, to load and to draw again, in a real browser.

The example `page` of gristmill-node shows an imagined run in which another epoch ends every second. A proxy in front
of it adds a script that watches the page for some seconds and says when it was first drawn, how long each update took,
and how long the browser was ever busy at a stretch.

    python bench/page.py [--out FILE] [--example PATH] [--browser chromium]
"""

import argparse
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

WATCH = """<script>
(() => {
  const draws = [];
  let longest = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((one) => { longest = Math.max(longest, one.duration); }))
    .observe({ type: 'longtask', buffered: true });
  new MutationObserver(() => draws.push(Number(document.body.dataset.drawMs)))
    .observe(document.body, { attributeFilter: ['data-draw-ms'] });
  setTimeout(() => {
    const nodes = document.querySelectorAll('*').length;
    const said = { ready_ms: Number(document.body.dataset.readyMs), draws, longest, nodes };
    fetch('/said?' + encodeURIComponent(JSON.stringify(said)));
  }, 8000);
})();
</script></body>"""


# What the browser itself needs on this machine, at this moment.
EMPTY = """<!doctype html><body><script>
requestAnimationFrame(() => { document.body.dataset.readyMs = Math.round(performance.now()); });
</script></body>"""


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on, adds the script to the page, and keeps what it says."""

    behind = ""
    said: dict[str, Any] | None = None
    heard = threading.Event()

    def do_GET(self) -> None:
        if self.path.startswith("/said?"):
            Proxy.said = json.loads(urllib.parse.unquote(self.path[6:]))
            Proxy.heard.set()
            self.give(204, "text/plain", b"")
            return
        if self.path == "/empty":
            self.give(200, "text/html", EMPTY.replace("</body>", WATCH).encode())
            return
        try:
            with urllib.request.urlopen(Proxy.behind + self.path) as answer:
                body, status, kind = answer.read(), answer.status, answer.headers["content-type"]
        except urllib.error.HTTPError as error:
            body, status, kind = error.read(), error.code, error.headers["content-type"]
        if self.path == "/":
            body = body.replace(b"</body>", WATCH.encode())
        self.give(status, kind, body)

    def give(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def look(browser: str, address: str) -> dict[str, Any]:
    """Opens a page in the browser until it has said what it met."""
    Proxy.heard.clear()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1280,1600",
            "--remote-debugging-port=0",
        ]
        program = subprocess.Popen(
            [browser, *options, f"--user-data-dir={profile}", address], stderr=subprocess.DEVNULL
        )
        try:
            if not Proxy.heard.wait(120) or Proxy.said is None:
                raise SystemExit(f"{address} said nothing within two minutes")
            return Proxy.said
        finally:
            program.kill()
            program.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--example", default="target/release/examples/page")
    parser.add_argument("--browser", default="chromium")
    args = parser.parse_args()
    run = subprocess.Popen([args.example, "1281167", "300"], stdout=subprocess.PIPE, text=True)
    lines = [
        f"command: python bench/page.py --example {args.example}",
        f"machine: {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} when it began",
    ]
    try:
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("http"):
                Proxy.behind = line.strip().rstrip("/")
                break
            lines.append(line.rstrip())
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for part in ["empty", "#overview", "#data/hardest", "#epochs"]:
            said = look(args.browser, f"http://127.0.0.1:{server.server_port}/{part}")
            draws = said["draws"] or [float("nan")]
            lines.append(
                f"browser, /{part}: drawn {said['ready_ms']} ms after it was asked for; "
                f"{len(said['draws'])} drawings in 8 s, the longest {max(draws):.0f} ms; "
                f"never busy for longer than {said['longest']:.0f} ms; {said['nodes']} elements"
            )
    finally:
        run.kill()
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as out:
            out.write(text)


if __name__ == "__main__":
    main()
