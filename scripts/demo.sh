#!/usr/bin/env bash
# The main jobs on the shipped data: read it from a store made slow and see where the time goes, then train on it from
# such a store, plainly and with selection, side by side. Needs no server, no accelerator and no Python. Each command
# is one you can type yourself.
set -euo pipefail
cd "$(dirname "$0")/.."
grist=target/release/gristmill
out=data/demo
export GRISTMILL_CATALOG_FOLDER="$out/catalogs"
mkdir -p "$out"
bold() { if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi; }
run() { printf '$ gristmill %s\n' "$*"; "$grist" "$@"; }

bold "1. A folder of JPEGs, cut from ten free photos at many sizes and qualities, catalogued once"
[ -d "$out/photos" ] || target/release/cut-photos "$out/photos" 600
echo "$(find "$out/photos" -name '*.jpg' | wc -l) pictures, $(du -sh "$out/photos" | cut -f1)"
run catalog build "$out/photos" -o "$out/photos.catalog"

bold "2. Read as ImageNet is read, from this disk"
run bench load "$out/photos.catalog" --recipe imagenet-train --epochs 1

bold "3. The same from a slow remote: 20 ms to the first byte, 8 MB/s, while a step takes 60 ms"
run bench load "$out/photos.catalog" --recipe imagenet-train --epochs 1 --latency-ms 20 --bytes-per-s 8MB --step-ms 60

bold "4. The order is the same whatever the number of threads:"
for threads in 1 2 7; do
  "$grist" bench load "$out/photos.catalog" --recipe imagenet-train --epochs 1 --batches 3 --threads "$threads" \
    --json --batches-out "$out/trace.jsonl" >/dev/null
  printf '  %s threads: ' "$threads"
  sed -E 's/.*"batch":([0-9]+).*"fingerprint":"([0-9a-f]+)".*/batch \1 \2/' "$out/trace.jsonl" | paste -sd' '
done

# Unpacked, so that every picture is a read of its own; and too little memory to hold them all.
test=data/shippable/fashion-mnist-1000-test-images-idx3-ubyte.gz
for part in images-idx3 labels-idx1; do
  gunzip -c "data/shippable/fashion-mnist-4000-train-$part-ubyte.gz" >"$out/train-$part-ubyte"
done
slow=(--latency-ms 10 --requests-per-s 1500 --set loader.memory_bytes_max=6MB)
train() { # name, selection
  rm -f "$out/$1.json"
  run train "$out/train-images-idx3-ubyte" --test "$test" --epochs 15 --selection "$2" "${slow[@]}" \
    --report "$out/$1.json" --report "$out/$1.svg"
}
bold "5. Train on 4,000 Fashion-MNIST pictures from a remote that answers 1,500 reads a second, after 10 ms each: plainly"
train plain uniform
bold "6. The same with selection: what is learned already is skipped, and the survivors carry its weight"
train weighted weighted

bold "Side by side"
figure() { sed -nE "s/^    \"$2\": ([0-9.]+),?$/\1/p" "$out/$1.json"; }
printf '%-10s %18s %12s %14s %14s\n' '' 'right on test data' 'time' 'samples loaded' 'read'
for name in plain weighted; do
  printf '%-10s %16.1f %% %10.1f s %12.0f %% %11.1f MB\n' "$name" \
    "$(awk "BEGIN{print 100*$(figure $name accuracy)}")" "$(awk "BEGIN{print $(figure $name wall_ms)/1000}")" \
    "$(awk "BEGIN{print 100*$(figure $name kept_share)}")" "$(awk "BEGIN{print $(figure $name bytes)/1000000}")"
done
awk "BEGIN{printf \"%.2f times as fast, %.0f %% of the reading saved\n\", $(figure plain wall_ms)/$(figure weighted wall_ms), \
  100*(1-$(figure weighted bytes)/$(figure plain bytes))}"
echo "pictures of accuracy over time: $out/plain.svg, $out/weighted.svg"
