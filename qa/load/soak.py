"""Load the gateway for minutes on every path: no error, constant memory after warm-up, every trace stored.

    python qa/load/soak.py [SECONDS] [CLIENTS] [DELAY_S]        # 600 200 0.5

The upstream is a stub with a delay, and the gateway is started by `odar serve` with its store enabled. At the end the
store is opened and the traces are counted.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from load_generator import bodies, gateway, measure, memory_mb, stub

EVERY_S = 30.0
MODELS = ("odar", "odar-simple", "odar-economy", "odar-medium", "odar-quality", "odar-hard")


async def watch(pid: int, until: float, started: float) -> list[float]:
    """Record the resident megabytes of the gateway at intervals."""
    seen = []
    while time.monotonic() < until:
        await asyncio.sleep(min(EVERY_S, max(0.0, until - time.monotonic())))
        seen.append(memory_mb(pid) or 0.0)
        print(f"{time.monotonic() - started:6.0f} s  {seen[-1]:.0f} MB", flush=True)
    return seen


async def soak(url: str, pid: int, seconds: float, clients: int) -> tuple[int, int]:
    """Send requests for `seconds`; return the number of requests and of errors."""
    started = time.monotonic()
    watching = asyncio.create_task(watch(pid, started + seconds, started))
    load = await measure(url, bodies(*MODELS), clients, seconds)
    seen = await watching
    print(
        f"{load.requests} requests, {load.errors} errors, {load.per_second:.0f} req/s, "
        f"p50 {load.p50_ms:.0f} ms, p99 {load.p99_ms:.0f} ms"
    )
    settled = seen[min(len(seen) - 1, 1) :]
    print(f"memory after warm-up: {min(settled):.0f} to {max(settled):.0f} MB")
    return load.requests, load.errors


def main() -> int:
    """Run the load test; return 1 if a check failed."""
    seconds, clients, delay = (*map(float, sys.argv[1:]), *(600.0, 200.0, 0.5)[len(sys.argv) - 1 :])
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "soak.db"
        with stub(delay_s=delay) as upstream, gateway(upstream, {"ODAR_STORE_URL": str(store)}) as (url, pid):
            requests, errors = asyncio.run(soak(url, pid, seconds, int(clients)))
            kept = -1
            for _ in range(10):
                time.sleep(1.0)  # longer than traces wait: where nothing was added, all are there
                with sqlite3.connect(store) as connection:
                    kept, before = connection.execute("SELECT count(*) FROM traces").fetchone()[0], kept
                connection.close()
                if kept == before:
                    break
    print(f"{kept} traces in the store, {requests} answers")
    return 0 if errors == 0 and kept >= requests else 1


if __name__ == "__main__":
    sys.exit(main())
