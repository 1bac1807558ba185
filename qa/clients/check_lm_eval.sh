#!/usr/bin/env bash
# lm-evaluation-harness against `odar serve`: a local task, no network. Needs lm_eval somewhere:
#
#   python3 -m venv lmeval && lmeval/bin/pip install 'lm_eval[api]'
#   LM_EVAL=lmeval/bin/lm_eval qa/clients/check_lm_eval.sh              a stub upstream, which knows one answer
#   LM_EVAL=lmeval/bin/lm_eval qa/clients/check_lm_eval.sh tiny     the local model
#
# With the stub the score is known, and checked: it says "four" to everything, and two of four answers are four.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
python=$root/.venv/bin/python
lm_eval=$(command -v "${LM_EVAL:-lm_eval}") || { echo "lm_eval is not there: see the head of $0" >&2; exit 2; }
lm_eval=$(realpath -s "$lm_eval")
work=$(mktemp -d)
started=()
finish() {
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
cd "$work"

cat > questions.jsonl <<'QUESTIONS'
{"question": "What is 2 + 2?", "answer": "four"}
{"question": "What is 3 + 4?", "answer": "seven"}
{"question": "How many wheels does a car have?", "answer": "four"}
{"question": "How many legs does a spider have?", "answer": "eight"}
QUESTIONS
cat > odar_local.yaml <<'TASK'
task: odar_local
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}} Answer with one word."
doc_to_target: answer
generation_kwargs: {until: [], max_gen_toks: 64, do_sample: false}
filter_list:
  - name: first-number
    filter:
      - {function: regex, regex_pattern: "(?i)\\b(four|seven|eight)\\b"}
      - {function: take_first}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true}
TASK

if [ "${1:-stub}" = stub ]; then
  mkfifo stub.in && exec 9<>stub.in   # the stub lives as long as its standard input
  "$python" "$root/qa/load/stub_upstream.py" 0 0 < stub.in > stub.port &
  started+=($!)
  until [ -s stub.port ]; do sleep 0.1; done
  cat > odar.toml <<TOML
[providers.stub]
kind = "openai"
base_url = "http://127.0.0.1:$(cat stub.port)/v1"
[fast]
model = "stub/stub"
[slow]
model = "stub/stub"
TOML
  expected=0.5
else
  echo 'profile = "tiny"' > odar.toml
  expected=
fi

"$root/.venv/bin/odar" serve --port 0 --set store.enabled=false 2> serve.log &
started+=($!)
until grep -q listening serve.log; do sleep 0.2; kill -0 "${started[-1]}" || { cat serve.log >&2; exit 1; }; done
address=$(sed -n 's/.*listening on \([^ ]*\).*/\1/p' serve.log)

HF_HUB_OFFLINE=1 HF_DATASETS_CACHE=$work/cache OPENAI_API_KEY=unused "$lm_eval" run \
  --model local-chat-completions \
  --model_args "model=odar,base_url=$address/v1/chat/completions,num_concurrent=2,max_retries=1" \
  --tasks odar_local --include_path . --apply_chat_template \
  --output_path results --log_samples

"$python" - "$expected" <<'PYTHON'
import json, pathlib, sys

(file,) = pathlib.Path("results").rglob("results_*.json")
score = json.loads(file.read_text())["results"]["odar_local"]["exact_match,first-number"]
print(f"exact match over 4 questions: {score}")
if sys.argv[1] and score != float(sys.argv[1]):
    sys.exit(f"expected {sys.argv[1]}")
PYTHON
