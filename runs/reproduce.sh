#!/bin/sh
# From nothing to the report, on the embedded model, in one command: under 20 minutes on two cores, no key, no cost.
#
#   runs/reproduce.sh                 writes runs/starter/report.html
#   ITEMS=236 runs/reproduce.sh       every starter question (about an hour)
#
# Interrupt it whenever you like; the same command goes on from there.
set -eu
cd "$(dirname "$0")/.."
items=${ITEMS:-60}
out=${OUT:-runs/starter}
started=$(date +%s)

if [ ! -x .venv/bin/odar ] || ! .venv/bin/python -c 'import matplotlib, pyarrow, scipy, statsmodels' 2>/dev/null; then
  echo "installing odar[evals] into .venv"
  [ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[evals]'
fi
.venv/bin/odar pull
.venv/bin/odar eval collect starter --profile embedded --limit "$items" --samples 9 --out "$out"
.venv/bin/odar eval replay "$out"
.venv/bin/odar eval report "$out" --out "$out/report.html" --figures "$out/figures"
echo "done in $(( $(date +%s) - started )) s: $out/report.html"
