"""Start a model server only if its weights fit the GPUs: one clear line before hundreds of gigabytes are fetched, not an
out-of-memory error after.

    python3 check_gpus.py --weights-gb 690 --gpus 8 -- vllm serve …

The standard library alone, since it runs in vLLM's image. A tenth of the memory is left to CUDA and activations, as vLLM does
(--gpu-memory-utilization), and 5% of the weights to the KV cache.
"""

import argparse
import os
import subprocess
import sys

USABLE = 0.9
CACHE = 0.05


def gpu_memory_gb() -> list[float]:
    """Memory of each GPU in GB (10⁹ bytes); empty without a driver."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [float(line) * 2**20 / 1e9 for line in found.split()]


def problem(memory_gb: list[float], weights_gb: float, gpus: int) -> str:
    """Why these weights do not fit; empty if they do."""
    need = weights_gb * (1 + CACHE)
    advice = f"{weights_gb:g} GB of weights need {gpus} GPUs of {need / USABLE / gpus:.0f} GB or more"
    if len(memory_gb) < gpus:
        return f"{len(memory_gb)} GPUs found, {gpus} wanted: {advice}"
    usable = USABLE * gpus * min(memory_gb[:gpus])
    if usable < need:
        return f"{gpus} × {min(memory_gb[:gpus]):.0f} GB leave {usable:.0f} GB: {advice}"
    return ""


def main() -> None:
    """Check, then become the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights-gb", type=float, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    command = [part for part in given.command if part != "--"]
    found = problem(gpu_memory_gb(), given.weights_gb, given.gpus)
    if found:
        sys.exit(f"check_gpus: {found}; see docs/guides/deploy.md")
    if command:
        os.execvp(command[0], command)


if __name__ == "__main__":
    main()
