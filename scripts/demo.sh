#!/usr/bin/env bash
# The main job on the shipped data: catalog it, read epochs from a store made slow, and see where the time goes.
# Needs no server, no accelerator and no Python. Each command is one you can type yourself.
set -euo pipefail
cd "$(dirname "$0")/.."
grist=target/release/gristmill
out=data/demo
export GRISTMILL_CATALOG_FOLDER="$out/catalogs"
mkdir -p "$out"
bold() { if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi; }
run() { printf '$ gristmill %s\n' "$*"; "$grist" "$@"; }

bold "1. A folder of JPEGs, cut from ten free photos at many sizes and qualities"
[ -d "$out/photos" ] || target/release/cut-photos "$out/photos" 600
echo "$(find "$out/photos" -name '*.jpg' | wc -l) pictures, $(du -sh "$out/photos" | cut -f1)"

bold "2. Catalog it once"
run catalog build "$out/photos" -o "$out/photos.catalog"

bold "3. Read it as ImageNet is read, from this disk"
run bench load "$out/photos.catalog" --recipe imagenet-train --epochs 2

bold "4. The same from a slow remote: 20 ms to the first byte, 8 MB/s, while a step takes 60 ms"
run bench load "$out/photos.catalog" --recipe imagenet-train --epochs 2 --latency-ms 20 --bytes-per-s 8MB --step-ms 60

bold "5. Small samples: 4,000 Fashion-MNIST images from a gzipped idx file"
run catalog build data/shippable/fashion-mnist-4000-train-images-idx3-ubyte.gz -o "$out/fashion.catalog"
run bench load "$out/fashion.catalog" --recipe mnist --batch 256 --threads 1 --epochs 3

bold "Done. The order is the same whatever the number of threads:"
for threads in 1 2 7; do
  "$grist" bench load "$out/photos.catalog" --recipe imagenet-train --epochs 1 --batches 3 --threads "$threads" \
    --json --batches-out "$out/trace.jsonl" >/dev/null
  printf '  %s threads: ' "$threads"
  sed -E 's/.*"batch":([0-9]+).*"fingerprint":"([0-9a-f]+)".*/batch \1 \2/' "$out/trace.jsonl" | paste -sd' '
done
