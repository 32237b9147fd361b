#!/usr/bin/env bash
# What no compiler checks: file sizes and headers, leftovers, paths of one machine, stale reference pages,
# and which crate may depend on which.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
fail() { echo "tidy: $*" >&2; bad=1; }

while read -r file; do
  lines=$(wc -l <"$file")
  [ "$lines" -le 500 ] || fail "$file has $lines lines; cut it at 500 or less"
  head -n 1 "$file" | grep -qE '^//!|^#!\[doc' || fail "$file does not open by saying what it is (//!)"
done < <(git ls-files 'crates/*.rs')

leftovers=$(git grep -nE 'todo!\(|unimplemented!\(|FIX''ME|dbg!\(|#\[ignore' -- '*.rs' '*.py' || true)
[ -z "$leftovers" ] || fail "left behind: $leftovers"
paths=$(git grep -nE '(^|[^a-z])/(home|root)/' -- ':!*.lock' ':!scripts/tidy.sh' || true)
[ -z "$paths" ] || fail "paths of one machine: $paths"

# Arrows point down: core <- ops <- node <- train <- gristmill; core <- sim <- gristmill.
depends() { grep -qE "^$2(\.workspace)? *=" <(sed -n '/^\[dependencies\]/,/^\[/p' "crates/$1/Cargo.toml"); }
[ -z "$(sed -n '/^\[dependencies\]/,/^\[/p' crates/gristmill-core/Cargo.toml | grep -E '^[a-z]')" ] ||
  fail "gristmill-core has dependencies; it has none by design"
[ "$(sed -n '/^\[dependencies\]/,/^\[/p' crates/gristmill-sim/Cargo.toml | grep -E '^[a-z]')" = "gristmill-core.workspace = true" ] ||
  fail "gristmill-sim depends on more than gristmill-core; it simulates the decisions and nothing else"
! depends gristmill-ops gristmill-node || fail "gristmill-ops depends on gristmill-node"
! depends gristmill-node gristmill-train || fail "gristmill-node depends on the trainer"
! depends gristmill-train gristmill || fail "gristmill-train depends on the command line"
! depends gristmill-node gristmill || fail "gristmill-node depends on the command line"
! depends gristmill-node gristmill-mpi || fail "gristmill-node depends on MPI; only the feature mpi of gristmill may"
! depends gristmill-mpi gristmill || fail "gristmill-mpi depends on the command line"
# A plain build has no MPI: it is outside of the default members, and optional where it is used.
! sed -n '/^default-members/,/^]/p' Cargo.toml | grep -q gristmill-mpi || fail "gristmill-mpi is a default member"
! grep -E '^gristmill-mpi' crates/gristmill/Cargo.toml | grep -qv 'optional = true' || fail "gristmill needs MPI always"

exit "$bad"
