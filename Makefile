# Every target does its own set-up: on a fresh Debian-like machine with a Rust toolchain nothing else is needed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
PYTHON := $(VENV)/bin/python
BIN := target/release/gristmill

.PHONY: help demo test lint unit parity python page-test bench-page setup setup-mpi build mpi venv bench-load bench-scale bench-peers bench-selection bench-cache bench-soak bench-abuse bench-split bench-exchange bench-exchange-link bench-simulator bench-all reference clean

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

demo: build ## Read and train on the shipped data from a slow store, plainly and with selection
	@scripts/demo.sh

test: setup-mpi lint unit parity python ## Everything a change must pass
	@echo "make test: all green"

setup: ## Install the system packages that building needs
	@scripts/setup.sh

setup-mpi: ## Install those that the exchange over MPI needs too
	@scripts/setup.sh mpi

build: setup ## Build the gristmill binary
	@cargo build --release --locked -p gristmill -p gristmill-testdata

mpi: setup-mpi ## Build the gristmill binary for mpirun
	@cargo build --release --locked -p gristmill --features mpi

lint: setup-mpi ## Format, lints, the core's purity, sizes, words, fresh reference pages
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked --features gristmill/mpi -- -D warnings
	@scripts/tidy.sh
	@scripts/purity.sh

unit: setup-mpi ## Unit, property and integration tests
	@cargo test --workspace --locked --features gristmill/mpi
	@cargo build --locked -p gristmill
	@! ldd target/debug/gristmill | grep libmpi || { echo "the plain binary needs MPI" >&2; exit 1; }

parity: setup venv ## Pixels against Pillow
	@cargo build --locked -p gristmill-ops --examples
	@$(PYTHON) tests/parity/pillow.py target/debug/examples/pixels

python: setup-mpi venv ## The Python package: format, types, stubs, tests
	@cargo build --locked -p gristmill
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --locked --quiet
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy && $(VENV)/bin/mypy examples
	@MYPYPATH=python $(PYTHON) -m mypy.stubtest gristmill._gristmill
	@$(PYTHON) -m pytest

page-test: setup ## The page in a real browser; needs Chromium (CHROMIUM names it)
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || { echo "there is no chromium: install it, or set CHROMIUM" >&2; exit 1; }
	@cargo test --locked -p gristmill-node --test it page
	@cargo test --locked -p gristmill --test it page

bench-page: setup ## The page of a run of 1.28 million samples, in a real browser, into bench/results
	@cargo build --release --locked -p gristmill-node --example page
	@python3 bench/page.py --browser "$${CHROMIUM:-chromium}" --out bench/results/page.txt

venv: setup
	@scripts/venv.sh

bench-load: build venv ## CPU per image against Pillow and the bare libraries, into bench/results
	@cargo build --release --locked -p gristmill-ops --examples
	@$(PYTHON) bench/load.py

bench-peers: build venv ## The same pipeline through other loaders, side by side, into bench/results
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --release --locked --quiet
	@$(PYTHON) bench/peers.py

bench-selection: build venv ## Every way of selecting on real models, into bench/results/*-run.txt (hours; goes on where it was stopped)
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --release --locked --quiet
	@run() { $(PYTHON) bench/selection.py --data $$1 --model $$2 --out bench/results/selection-$$1-$$2-run.txt \
	  --svg bench/results/selection-$$1-$$2-run.svg "$${@:3}"; }; \
	run mnist convnet; run fashion-mnist convnet; run mnist mlpnet; run fashion-mnist mlpnet; \
	$(PYTHON) bench/fetch_cifar10.py bench/work/cifar10; run cifar10 resnet24 --plain --epochs 60 --seeds 2; run cifar10 resnet --epochs 40 --seeds 2; \
	$(PYTHON) bench/selection.py --data fashion-mnist --model mlpnet --epochs 12 --sweep --seeds 1 --out bench/results/selection-sweep-run.txt; \
	$(PYTHON) bench/selection.py --data fashion-mnist --model mlpnet --throttle 3000000 --seeds 1 --methods uniform,weighted,bucket,infobatch --out bench/results/selection-throttled-run.txt; \
	{ $(PYTHON) bench/selection_overhead.py --data fashion-mnist --models mlpnet,convnet; $(PYTHON) bench/selection_overhead.py --data cifar10 --models resnet24 --epochs 8; } | tee bench/results/selection-overhead-run.txt; \
	$(PYTHON) bench/selection.py --data fashion-mnist --model mlpnet --mislabel 0.05 --seeds 3 --methods uniform,weighted --out bench/results/selection-mislabelled-run.txt

bench-cache: build venv ## Caches from a slow store, on the small model and on ConvNet, into bench/results (an hour)
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --release --locked --quiet
	@$(PYTHON) bench/cache.py --data fashion-mnist --model convnet --out bench/results/cache-fashion-mnist-convnet.txt
	@run="compare cache bench/work/selection-data/fashion-mnist/train-images-idx3-ubyte --epochs 30"; \
	{ echo "command: gristmill $$run"; $(BIN) $$run; } | tee bench/results/cache-small-model.txt

bench-all: build venv ## All of it, steered, against a plain loop, on the small model and on PyTorch, into bench/results (an hour; goes on where it was stopped)
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --release --locked --quiet
	@mkdir -p bench/work; run="compare all --keep bench/work/all-small-model.jsonl --svg bench/results/all.svg"; \
	{ echo "command: gristmill $$run"; $(BIN) $$run; } | tee bench/results/all-small-model.txt; \
	run="compare all --bad-start --scenario a,b,c"; \
	{ echo "command: gristmill $$run"; $(BIN) $$run; } | tee bench/results/all-bad-start.txt
	@$(PYTHON) bench/all.py --out bench/results/all-torch-run.txt

bench-simulator: build ## Simulated epochs against measured ones of four ranks, into bench/results (some minutes)
	@python3 bench/simulator.py --binary $(BIN) --out bench/results/simulator.txt

bench-split: build ## Where samples are cut: every policy over a slow link, into bench/results (some minutes)
	@data="$${GRISTMILL_DATA:-../shared/data}"; out=bench/results/split-run.txt; : > $$out; \
	for set in imagenet-sample large-photos imagenette-224; do \
	  if [ ! -f "$$data/$$set/images.tar" ]; then echo "$$set: not under $$data (set GRISTMILL_DATA)" | tee -a $$out; continue; fi; \
	  run="compare split $$data/$$set/images.tar --link 50Mbit --cores 0,0.5,1,2 --batch 16"; \
	  { echo "command: gristmill compare split $$set/images.tar --link 50Mbit --cores 0,0.5,1,2 --batch 16"; $(BIN) $$run; echo; } | tee -a $$out; \
	done

bench-exchange: build venv ## Local, partial and global shuffling at up to 2,048 ranks, into bench/results (an hour or two; goes on where it was stopped)
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --release --locked --quiet
	@data="$${GRISTMILL_DATA:-../shared/data}/fashion-mnist"; mkdir -p bench/work; \
	run="--ranks 8,64,512,2048 --fractions 0,0.1,0.2,0.3,0.9,global --seeds 3 --keep bench/work/exchange-small-model.jsonl --svg bench/results/exchange.svg"; \
	{ echo "command: gristmill compare exchange fashion-mnist/train-images-idx3-ubyte.gz $$run"; \
	  $(BIN) compare exchange "$$data/train-images-idx3-ubyte.gz" $$run; } | tee bench/results/exchange-small-model.txt
	@$(PYTHON) bench/exchange.py --data fashion-mnist --out bench/results/exchange-normnet.txt --svg bench/results/exchange-normnet.svg

bench-exchange-link: mpi venv ## What ranks wait for the exchange over one link of 1 Gbit/s, under mpirun and torchrun; as root, into bench/results
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --release --locked --quiet
	@$(PYTHON) bench/exchange_link.py --binary $(BIN) --torch

bench-scale: build ## Ten million samples: open time, memory, order
	@{ echo "command: make bench-scale"; $(BIN) bench scale --samples 10000000; } | tee bench/results/scale.txt

bench-soak: build venv ## An hour at full load: does a node keep to its memory limit? Into bench/results
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --release --locked --quiet
	@$(PYTHON) bench/soak.py --out bench/results/soak.txt

bench-abuse: build ## A node among 10,000 silent connections and a minute of random bytes, into bench/results
	@{ echo "command: make bench-abuse"; python3 bench/abuse.py --binary $(BIN); } | tee bench/results/abuse.txt

reference: build ## Print the reference pages anew
	@for page in settings commands metrics; do $(BIN) config reference $$page > docs/reference/$$page.md; done

clean: ## Remove what was built and made
	@rm -rf target $(VENV) data/demo bench/work
