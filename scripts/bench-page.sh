#!/usr/bin/env bash
# How long the page of a run of 1.28 million samples and 1,000 epochs takes to answer, to load and to draw again.
set -euo pipefail
cd "$(dirname "$0")/.."
browser="${CHROMIUM:-chromium}"
command -v "$browser" >/dev/null || { echo "there is no $browser: install it, or set CHROMIUM" >&2; exit 1; }
work=$(mktemp -d)
target/release/examples/page 1281167 60 >"$work/said" &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
until url=$(grep -m 1 '^http' "$work/said"); do
  kill -0 $server || { echo "the page did not start" >&2; exit 1; }
  sleep 0.2
done
echo "command: make bench-page"
grep -v '^http' "$work/said"
# Five seconds of real time each, in which five more epochs end: when it was first drawn, and how long the last drawing took.
for part in overview data/hardest epochs; do
  "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --window-size=1280,1600 \
    --timeout=5000 --dump-dom "$url#$part" 2>/dev/null >"$work/dom" || true
  figure() { grep -oE "data-$1=\"[0-9.]+\"" "$work/dom" | head -n 1 | grep -oE '[0-9.]+'; }
  echo "browser, #$part: drawn $(figure ready-ms) ms after it was asked for; the last update took $(figure draw-ms) ms"
done
