#!/usr/bin/env bash
# Installs what building needs and the machine lacks: a C compiler, cmake and nasm (for libjpeg-turbo), and
# Python's venv (for the parity tests). With the word `mpi` also Open MPI and libclang (which reads its header), for
# the exchange over MPI. Does nothing when all is there.
set -euo pipefail
missing=()
if [ "${1:-}" = mpi ]; then
  command -v mpirun >/dev/null || missing+=(openmpi-bin)
  command -v mpicc >/dev/null || missing+=(libopenmpi-dev)
  { compgen -G '/usr/lib/llvm-*/lib/libclang.so*' && compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h'; } >/dev/null ||
    missing+=(libclang-dev)
fi
command -v cc >/dev/null || missing+=(build-essential)
command -v cmake >/dev/null || missing+=(cmake)
command -v nasm >/dev/null || missing+=(nasm)
command -v python3 >/dev/null || missing+=(python3)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ "${#missing[@]}" -gt 0 ]; then
  echo "setup: installing ${missing[*]}"
  run=()
  [ "$(id -u)" -eq 0 ] || run=(sudo)
  command -v apt-get >/dev/null || { echo "setup: please install ${missing[*]} (no apt-get here)" >&2; exit 1; }
  "${run[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${run[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
command -v cargo >/dev/null || { echo "setup: please install Rust (cargo is not here)" >&2; exit 1; }
