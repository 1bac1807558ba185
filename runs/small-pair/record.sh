#!/bin/sh
# Records the small pair again, and its ablations: 20 minutes of one idle core, no key, no cost. Stop it at any time; the same command continues.
#
#   runs/small-pair/record.sh [DIR]                    writes DIR/*.jsonl; the default is runs/small-pair
#   ITEMS=236 VARIANTS=236 runs/small-pair/record.sh   all starter questions, for every variant
set -eu
cd "$(dirname "$0")/../.."
out=${1:-runs/small-pair}
odar=${ODAR:-.venv/bin/odar}
collect() {
  name=$1
  shift
  "$odar" eval collect "$@" --config runs/small-pair/odar.toml --concurrency 1 --yes --quiet --out "$out/$name.jsonl"
}

"$odar" pull tiny qwen2.5-coder-0.5b
collect recording starter --limit "${ITEMS:-48}" --samples 9
# homogeneous agents (SPEC 7.7): the fast model twice, the slow model twice
collect fast-fast starter --limit "${VARIANTS:-48}" --samples 5 --set slow.model=smollm2-135m
collect slow-slow starter --limit "${VARIANTS:-48}" --samples 5 --set fast.model=qwen2.5-coder-0.5b
# prompts without one of their parts, as in the paper's table of prompts
for part in self-check structure protocol step-limit self-correction; do
  collect "without-$part" starter --limit "${VARIANTS:-48}" --samples 5 --set "prompts=paper without $part"
done
