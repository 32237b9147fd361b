#!/usr/bin/env bash
# A Python environment of the project's own, made anew when its list of packages changes.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/requirements.txt
cmp -s requirements-dev.txt "$stamp" && exit 0
rm -rf .venv
python3 -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
cp requirements-dev.txt "$stamp"
