"""Well-behaved clients, in a process and at an address of their own, that ask while somebody else attacks.

    python -m attack.healthy URL [--key KEY] [--clients N]

Prints `ready` after the first answer, asks until its standard input ends, then prints what it saw as one JSON object.
They run apart from the attackers so that the time an attacker needs for itself is not counted as the gateway's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

import aiohttp

ADDRESS = "127.0.0.2"
"""Limits per peer must not make healthy clients pay for an attacker on 127.0.0.1."""
PROBE_EVERY_S = 0.02
TIMEOUT_S = 20.0


class Healthy:
    """Probes of /healthz, and clients that ask questions, until `stop` is set."""

    def __init__(self, url: str, key: str, http: aiohttp.ClientSession) -> None:
        self.url, self.http = url, http
        self.headers = {"authorization": f"Bearer {key}"} if key else {}
        self.health_ms: list[float] = []
        self.answers = 0
        self.failures: Counter[str] = Counter()
        self.stop = asyncio.Event()

    async def probe(self) -> None:
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                async with self.http.get(self.url + "/healthz") as response:
                    if response.status != 200:
                        self.failures[f"/healthz: status {response.status}"] += 1
                    await response.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self.failures[f"/healthz: {type(error).__name__}"] += 1
            self.health_ms.append(1000 * (time.monotonic() - began))
            await asyncio.sleep(PROBE_EVERY_S)

    async def client(self, number: int) -> None:
        """Ask questions again and again: streamed and whole, adaptive and on one path."""
        while not self.stop.is_set():
            stream, model = bool(number % 2), ("odar", "odar-simple", "odar-medium")[number % 3]
            turns = [{"role": "user", "content": f"Question {number}: what is 2 + 2?"}]
            problem = await self.ask({"model": model, "stream": stream, "messages": turns})
            if problem:
                self.failures[problem] += 1
            else:
                self.answers += 1
            number += 1
            await asyncio.sleep(0.05)

    async def ask(self, body: dict[str, Any]) -> str:
        """Ask one question; what was wrong with the answer, or an empty string."""
        try:
            async with self.http.post(
                self.url + "/v1/chat/completions", json=body, headers=self.headers
            ) as response:
                text = await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return type(error).__name__
        if response.status != 200:
            return f"status {response.status}: {text[:200]}"
        if "4" not in text or (body["stream"] and "[DONE]" not in text):
            return f"not an answer: {text[-200:]}"
        return ""


async def main() -> None:
    """Ask until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m attack.healthy")
    parser.add_argument("url")
    parser.add_argument("--key", default="", help="API key for questions")
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    connector = aiohttp.TCPConnector(limit=0, local_addr=(ADDRESS, 0))
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        healthy = Healthy(options.url, options.key, http)
        tasks = [asyncio.create_task(healthy.probe())]
        tasks += [asyncio.create_task(healthy.client(1000 * each)) for each in range(options.clients)]
        while not (healthy.health_ms and (healthy.answers or healthy.failures or not options.clients)):
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        healthy.stop.set()
        await asyncio.gather(*tasks)
    seen = {"health_ms": healthy.health_ms, "answers": healthy.answers, "failures": healthy.failures}
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
