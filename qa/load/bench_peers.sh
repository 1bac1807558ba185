#!/usr/bin/env bash
# The gateway beside others, in the same run, in front of the same stub upstream, without delay: LiteLLM's proxy (Python) with as
# many workers, Portkey's gateway (Node.js, one process) and SGLang's router (Rust, a thread per core).
#
#   bash qa/load/bench_peers.sh [SECONDS [ROUNDS [WORKERS]]]
#
# They go into environments of their own below ${PEERS:-build/peers}; they are no dependencies of ODAR. Without npm, Portkey is left out.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-5}
rounds=${2:-3}
workers=${3:-2}
peers=${PEERS:-build/peers}
stub_port=23555 # of the benchmark's own stub; SGLang's router wants one before it starts
router_stub_port=23554
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

if [ ! -x "$peers/litellm/bin/litellm" ]; then
  python3 -m venv "$peers/litellm"
  "$peers/litellm/bin/pip" install --quiet "litellm[proxy]"
fi
if [ ! -x "$peers/sglang/bin/sglang-router" ]; then
  python3 -m venv "$peers/sglang"
  "$peers/sglang/bin/pip" install --quiet sglang-router
fi
portkey=node_modules/@portkey-ai/gateway
if [ ! -d "$peers/portkey/$portkey" ] && command -v npm > /dev/null; then
  mkdir -p "$peers/portkey"
  npm install --prefix "$peers/portkey" --no-audit --no-fund --silent @portkey-ai/gateway
fi

cat > "$peers/litellm.yaml" <<YAML
model_list:
  - model_name: stub
    litellm_params: { model: openai/stub, api_base: "http://127.0.0.1:$stub_port/v1", api_key: none }
YAML
# Without a database, its logging off: the fastest it runs. It insists on a master key, or on being told that none is meant.
export LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true LITELLM_LOG=ERROR
arguments=()
for count in 1 "$workers"; do
  port=$((23560 + count))
  "$peers/litellm/bin/litellm" --config "$peers/litellm.yaml" --host 127.0.0.1 --port $port --num_workers "$count" \
    > "$peers/litellm-$count.log" 2>&1 &
  arguments+=(--peer "litellm, $count workers=http://127.0.0.1:$port/v1#$!")
done
if [ -d "$peers/portkey/$portkey" ]; then
  node "$peers/portkey/$portkey/build/start-server.js" --port=23557 --headless > "$peers/portkey.log" 2>&1 &
  arguments+=(--peer "portkey=http://127.0.0.1:23557/v1#$!" --peer-header "x-portkey-provider: openai")
  arguments+=(--peer-header "x-portkey-custom-host: http://127.0.0.1:$stub_port/v1" --peer-header "authorization: Bearer none")
fi
sleep infinity | .venv/bin/python qa/load/stub_upstream.py $router_stub_port 0 > /dev/null &
sleep 1
"$peers/sglang/bin/python" -m sglang_router.launch_router --worker-urls http://127.0.0.1:$router_stub_port \
  --host 127.0.0.1 --port 23558 --log-level warn > "$peers/sglang.log" 2>&1 &
arguments+=(--peer "sglang-router=http://127.0.0.1:23558/v1#$!")
for url in 23561/health/liveliness $((23560 + workers))/health/liveliness 23558/health; do
  curl --silent --output /dev/null --retry 600 --retry-delay 1 --retry-all-errors "http://127.0.0.1:$url"
done
sleep 10 # the other workers of LiteLLM

"$peers/litellm/bin/pip" list 2>/dev/null | grep '^litellm '
"$peers/sglang/bin/pip" list 2>/dev/null | grep '^sglang'
grep '"version"' "$peers/portkey/$portkey/package.json" 2>/dev/null || true
.venv/bin/python qa/load/bench_gateway.py --seconds "$seconds" --rounds "$rounds" --stub-port $stub_port \
  --workers "1,$workers" --connections 32 "${arguments[@]}"
