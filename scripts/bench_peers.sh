#!/usr/bin/env bash
# The gateway beside LiteLLM's proxy, in the same run, in front of the same stub upstream: one worker each, no delay.
#
#   bash scripts/bench_peers.sh [SECONDS [ROUNDS]]
#
# LiteLLM goes into an environment of its own below ${PEERS:-build/peers}; it is no dependency of ODAR.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-5}
rounds=${2:-3}
peers=${PEERS:-build/peers}
stub_port=9555
litellm_port=9556

if [ ! -x "$peers/litellm/bin/litellm" ]; then
  python3 -m venv "$peers/litellm"
  "$peers/litellm/bin/pip" install --quiet "litellm[proxy]"
fi
cat > "$peers/litellm.yaml" <<YAML
model_list:
  - model_name: stub
    litellm_params: { model: openai/stub, api_base: "http://127.0.0.1:$stub_port/v1", api_key: none }
YAML

# Without a database, its logging off: the fastest it runs. It insists on a master key, or on being told that none is meant.
export LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true LITELLM_LOG=ERROR
"$peers/litellm/bin/litellm" --config "$peers/litellm.yaml" --host 127.0.0.1 --port $litellm_port --num_workers 1 \
  > "$peers/litellm.log" 2>&1 &
trap 'kill %1 2>/dev/null || true' EXIT
for _ in $(seq 120); do
  (exec 3<>/dev/tcp/127.0.0.1/$litellm_port) 2>/dev/null && break
  sleep 1
done

"$peers/litellm/bin/pip" list 2>/dev/null | grep '^litellm '
.venv/bin/python scripts/bench.py gateway --seconds "$seconds" --rounds "$rounds" --stub-port $stub_port \
  --peer "litellm=http://127.0.0.1:$litellm_port/v1"
