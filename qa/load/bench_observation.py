"""Figures of observation (SPEC 10.3, 10.4): its effect on clients, and how fast the confidence sequence notices.

    python qa/load/bench_observation.py sequence
    python qa/load/bench_observation.py load --seconds 60

`sequence` simulates 1,000 streams of 3,000 questions and looks after every question. `load` starts a stub of three
models and two gateways, one that only passes requests through and one that observes a fifth of them; 20 clients ask the
two in turn. The cheap models answer, hang, fail and are slow, each for a quarter of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import numpy as np
from aiohttp import web

from odar.traces.confidence_sequence import Differences

CLIENTS = 20
SLOW_S = 0.05
FAULTS = ("answers", "hangs", "fails", "is slow")


def sequence(streams: int = 1000, questions: int = 3000, limit: float = 0.05) -> None:
    """Print false fallbacks without an excess above the limit, and questions until an excess is noticed."""
    print(f"{streams} streams of {questions} questions, a look after every one, at_most_differ = {limit}")
    print("cascade differs  slow differs  fell back  median questions  90%")
    for cascade, slow in ((0.10, 0.10), (0.15, 0.10), (0.05, 0.0), (0.20, 0.10), (0.10, 0.0), (0.25, 0.10)):
        rng = np.random.default_rng(1)
        draws = rng.random((streams, questions, 2)) < (cascade, slow)
        noticed = [first_crossing(each, limit) for each in draws]
        found = sorted(number for number in noticed if number is not None)
        middle = found[streams // 2] if len(found) > streams // 2 else "-"
        most = found[int(0.9 * streams)] if len(found) > 0.9 * streams else "-"
        print(f"{cascade:15.2f} {slow:13.2f} {len(found) / streams:10.1%} {middle:>17} {most:>4}")


def first_crossing(draws: np.ndarray, limit: float) -> int | None:
    """Return after how many questions a stream falls back; None if it does not."""
    counts = [0, 0, 0]
    for number, (cascade, slow) in enumerate(draws.tolist(), start=1):
        counts[0 if cascade and not slow else 1 if slow and not cascade else 2] += 1
        if counts[0] > limit * number and Differences(*counts).exceeds(limit):  # cheap test first: it cannot exceed
            return number
    return None


def stub(port: int) -> None:
    """Serve three models; the cheap ones break by turns, as /fault says."""
    state = {"fault": "answers"}
    used = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}

    async def chat(request: web.Request) -> web.Response:
        body = await request.json()
        cheap = body["model"] != "deep"
        await asyncio.sleep(SLOW_S if not cheap else {"hangs": 3600, "is slow": 2.0}.get(state["fault"], 0.01))
        if cheap and state["fault"] == "fails":
            return web.json_response({"error": {"message": "down"}}, status=500)
        text = "Answer: 395" if cheap else "17 * 23 is 391, and 391 + 4 makes 395."
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        choices = [{**choice, "index": i} for i in range(body.get("n") or 1)]
        return web.json_response({"id": "x", "model": body["model"], "choices": choices, "usage": used})

    async def fault(request: web.Request) -> web.Response:
        state["fault"] = await request.text()
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/fault", fault)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


def settings(folder: Path, port: int, upstream: int, *, observe: bool) -> Path:
    """Write the settings of a gateway."""
    file = folder / f"odar-{port}.toml"
    models = "".join(
        f'[models.{name}]\nprovider = "stub"\nfamily = "{name}"\nprice = {{ input = {price}, output = {4 * price} }}\n'
        for name, price in (("quick", 0.1), ("other", 0.1), ("deep", 3.0))
    )
    file.write_text(
        f'policy = "cascade"\n[fast]\nmodel = "quick"\n[second]\nmodel = "other"\n[slow]\nmodel = "deep"\n'
        f'[providers.stub]\nkind = "openai"\nbase_url = "http://127.0.0.1:{upstream}/v1"\n{models}'
        f'[store]\nurl = "{folder}/{port}.db"\n[gateway]\nport = {port}\nlog_requests = false\n'
        f"[observe]\nenabled = {str(observe).lower()}\nshare = {0.2 if observe else 0}\nbudget_usd_day = 1\n"
    )
    return file


def comparable(body: bytes) -> bytes:
    """Return a reply without what differs between any two requests."""
    return re.sub(rb'[0-9a-f]{32}|"created":\d+|"seconds":[\d.e-]+', b"", body)


async def load(seconds: float, ports: dict[str, int], upstream: int) -> None:
    """Ask both gateways in turn, and print latencies, failures and whether the bytes are the same."""
    latencies: dict[tuple[str, str], list[float]] = {}
    bodies: dict[str, set[bytes]] = {name: set() for name in ports}
    failures = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        for port in ports.values():
            await ready(http, port)
            await http.get(f"http://127.0.0.1:{port}/v1/models")
        for fault in FAULTS:
            await http.post(f"http://127.0.0.1:{upstream}/fault", data=fault)
            until = time.monotonic() + seconds / len(FAULTS)

            async def client(number: int, fault: str = fault, until: float = until) -> None:
                nonlocal failures
                order = itertools.cycle(list(ports)[:: 1 if number % 2 else -1])
                while time.monotonic() < until:
                    name = next(order)
                    model = "odar" if name == "observing" else "deep"
                    body = {"model": model, "messages": [{"role": "user", "content": "What is 17 * 23 + 4?"}]}
                    started = time.perf_counter()
                    async with http.post(f"http://127.0.0.1:{ports[name]}/v1/chat/completions", json=body) as reply:
                        data = await reply.read()
                    latencies.setdefault((name, fault), []).append(time.perf_counter() - started)
                    failures += reply.status != 200
                    bodies[name].add(comparable(data))

            await asyncio.gather(*map(client, range(CLIENTS)))
        async with http.get(f"http://127.0.0.1:{ports['observing']}/metrics") as reply:
            metrics = [line for line in (await reply.text()).splitlines() if line.startswith("odar_observe")]
    print(f"{CLIENTS} clients, ms: cheap models      pass-through            observing")
    for fault in FAULTS:
        row = [figures(latencies[name, fault]) for name in ports]
        print(f"{fault:>33}  {row[0]}  {row[1]}")
    same = "the same" if bodies["pass-through"] == bodies["observing"] else "DIFFERENT"
    print(f"bytes of the replies: {same}; {failures} failures of {sum(map(len, latencies.values()))}")
    print("\n".join(metrics))


def figures(values: list[float]) -> str:
    """Return median and 95th percentile in milliseconds, and the number of requests."""
    cuts = statistics.quantiles(values, n=20)
    return f"p50 {1e3 * cuts[9]:5.1f} p95 {1e3 * cuts[18]:6.1f} n {len(values):5}"


async def ready(http: aiohttp.ClientSession, port: int) -> None:
    """Wait until a gateway is ready."""
    for _ in range(600):
        try:
            async with http.get(f"http://127.0.0.1:{port}/readyz") as reply:
                if reply.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit(f"no gateway on port {port}")


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sequence", "load", "stub"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--port", type=int, default=18640, help="the first of three")
    given = parser.parse_args()
    if given.what == "sequence":
        return sequence()
    if given.what == "stub":
        return stub(given.port)
    ports = {"pass-through": given.port + 1, "observing": given.port + 2}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HOME": folder}
        commands = [[sys.executable, __file__, "stub", "--port", str(given.port)]]
        for name, port in ports.items():
            file = settings(Path(folder), port, given.port, observe=name == "observing")
            commands.append([str(Path(sys.executable).with_name("odar")), "serve", "--config", str(file)])
        processes = [subprocess.Popen(command, env=environment) for command in commands]
        try:
            asyncio.run(load(given.seconds, ports, given.port))
        finally:
            processes[0].kill()  # the stub hangs on purpose
            for process in processes[1:]:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait(60)


if __name__ == "__main__":
    main()
