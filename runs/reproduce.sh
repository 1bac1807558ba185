#!/bin/sh
# From nothing to the report, on the local model, in one command: under 20 minutes on two cores, no key, no cost.
#
#   runs/reproduce.sh                 writes runs/starter/report.html from runs/starter/recording.jsonl
#   ITEMS=236 runs/reproduce.sh       every starter question
#   runs/reproduce.sh --samples 9     further options go to `odar eval collect`
#
# Interrupt it whenever you like; the same command goes on from there.
set -eu
cd "$(dirname "$0")/.."
items=${ITEMS:-48} # six of each of the eight domains
out=${OUT:-runs/starter}
started=$(date +%s)

if [ ! -x .venv/bin/odar ] || ! .venv/bin/python -c 'import jinja2, matplotlib, pyarrow' 2>/dev/null; then
  echo "installing odar[evals] into .venv"
  [ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[evals]'
fi
.venv/bin/odar pull tiny
collect() { .venv/bin/odar eval collect starter --profile tiny --limit "$items" --out "$out/recording.jsonl" "$@"; }
collect "$@" || collect "$@" # a busy machine may run into a timeout; the second run asks for nothing else
.venv/bin/odar eval replay "$out/recording.jsonl"
.venv/bin/odar eval report "$out/recording.jsonl" --out "$out/report.html"
echo "done in $(( $(date +%s) - started )) s: $out/report.html"
