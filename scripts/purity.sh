#!/usr/bin/env bash
# Proves that the core's lint settings refuse the outside world: each line below, put into a copy of the core,
# must be an error there. A ban that was loosened makes this fail.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r crates/gristmill-core/. "$copy"
# The copy stands outside of the workspace, so it needs the values that it took from there.
sed -i -e 's/^\([a-z-]*\)\.workspace = true/\1 = "1"/; s/^edition = .*/edition = "2024"/; s/^version = .*/version = "0.0.0"/' \
  -e '/^rust-version\|^license\|^publish\|^description/d' -e '/^\[dev-dependencies\]/,/^$/d' -e '/^\[lints\]/,$d' "$copy/Cargo.toml"
printf '\n[workspace]\n' >>"$copy/Cargo.toml"
{
  cat <<'RUST'
mod outside {
    pub fn clock() { let _ = std::time::Instant::now(); }
    pub fn wall_clock() { let _ = std::time::SystemTime::now(); }
    pub fn files() { let _ = std::fs::read("x"); }
    pub fn open() { let _ = std::fs::File::open("x"); }
    pub fn threads() { let _ = std::thread::spawn(|| ()); }
    pub fn environment() { let _ = std::env::var("X"); }
    pub fn map() { let _ = std::collections::HashMap::<u8, u8>::new(); }
    pub fn set() { let _ = std::collections::HashSet::<u8>::new(); }
    pub fn network() { let _ = std::net::TcpStream::connect("x"); }
}
RUST
} >>"$copy/src/lib.rs"
log=$(cd "$copy" && CARGO_TARGET_DIR="$copy/target" cargo clippy --offline -- -A dead_code -D clippy::disallowed_types -D clippy::disallowed_methods 2>&1 || true)
bad=0
first=$(grep -n '^mod outside' "$copy/src/lib.rs" | cut -d: -f1)
for line in $(seq $((first + 1)) $((first + 9))); do
  grep -q "src/lib.rs:$line:" <<<"$log" || { echo "purity: not refused: $(sed -n "${line}p" "$copy/src/lib.rs")" >&2; bad=1; }
done
[ "$bad" -eq 0 ] || { tail -20 <<<"$log" >&2; exit 1; }
echo "purity: the core refuses clock, files, threads, environment, network and hash maps"
