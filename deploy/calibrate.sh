#!/bin/sh
# Measures the statistics of a pair of models, as the paper does on its 2,000 calibration problems: μ and σ of the free energy of each
# model and step, and the quantiles and skills beside them. Then the grid of thresholds is compared on the same answers.
#
#   deploy/calibrate.sh OUT                      with ./odar.toml, or ODAR_CONFIG
#   ITEMS=20 SETS=starter deploy/calibrate.sh OUT     a trial: 20 of ODAR's own questions
#
# Writes OUT/recording.jsonl, OUT/statistics.json and OUT/calibration.json. Further arguments go to `odar eval collect` (--data DIR,
# --budget USD). Interrupt it whenever you like: the same command continues, and pays for nothing twice.
set -eu
out=$1
shift
items=${ITEMS:-2000}
odar=${ODAR:-odar}
# The eight benchmarks of the paper's calibration set with their sizes; HLE is gated: SETS without it if you have no access.
sets=${SETS:-math:5000 arc_challenge:1172 boolq:3270 mmlu_pro:12032 bbh:6511 truthfulqa:817 ifeval:541 hle:2500}

mkdir -p "$out"
total=0
for each in $sets; do total=$((total + $(expr "$each" : '.*:\(.*\)' || echo 1))); done
for each in $sets; do
  size=$(expr "$each" : '.*:\(.*\)' || echo 1)
  limit=$(((items * size + total / 2) / total)) # in proportion to the sizes
  [ "$limit" -gt 0 ] || limit=1
  "$odar" eval collect "${each%%:*}" --limit "$limit" --yes --out "$out/recording.jsonl" "$@"
done
"$odar" calibrate "$out/recording.jsonl" --statistics-only --out "$out/statistics.json"
"$odar" calibrate "$out/recording.jsonl" --set policy=paper --out "$out/calibration.json"
