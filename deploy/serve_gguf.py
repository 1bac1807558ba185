"""Serve a small GGUF model on CPU under the name of a large one, in the place of a vLLM server: llama.cpp's own HTTP server.

    python deploy/serve_gguf.py qwen2.5-coder-0.5b --name meta-llama/Llama-4-Scout-17B-16E-Instruct --host 127.0.0.1

It shows that the files of this folder work together, on any machine; what it answers says nothing about the large model.
"""

from __future__ import annotations

import argparse
import signal
import sys

import xllamacpp

from odar.providers.weights import ensure_weights, find_weights


def main() -> None:
    """Load the model and serve it until a signal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="of `odar models --local`; downloaded if it is missing")
    parser.add_argument("--name", required=True, help="the model that clients ask for")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = str(ensure_weights(find_weights(given.model)))
    params.model_alias = {given.name}
    params.hostnames = [given.host]
    params.port = given.port
    params.n_parallel = 6  # five samples of a question, and one more request
    params.n_ctx = 6 * 4096
    params.cpuparams.n_threads = given.threads
    params.cpuparams_batch.n_threads = given.threads
    params.verbosity = -1
    server = xllamacpp.Server(params)
    print(f"{given.model} as {given.name} on {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    sys.exit(0)


if __name__ == "__main__":
    main()
