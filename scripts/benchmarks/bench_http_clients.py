"""Measure the CPU time per chat completion of ours and six other HTTP clients, in the same run.

python -m pip install pyqwest pyreqwest aiohttp httpx2 niquests openai && python scripts/benchmarks/bench_http_clients.py

The CPU time is that of the whole process: pyqwest and pyreqwest have threads of their own for sockets.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import time
from collections.abc import Awaitable, Callable

TOKEN = {"token": "t", "logprob": -0.1, "bytes": [65], "top_logprobs": []}
CHOICE = {
    "index": 0,
    "message": {"role": "assistant", "content": "Answer: 4"},
    "finish_reason": "stop",
    "logprobs": {"content": [TOKEN] * 20},
}
USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
REPLY = json.dumps(
    {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE], "usage": USAGE}
).encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(REPLY)
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi" * 50}], "logprobs": True, "temperature": 0.2}


def serve(port: int) -> None:
    """A server that answers at once, in a process of its own."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)
                writer.write(HEAD + REPLY)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(run())


async def measure(name: str, call: Callable[[], Awaitable[object]], connections: int, total: int) -> None:
    """Print requests per second, p50 and CPU time per request."""
    for _ in range(20):
        await call()
    left = iter(range(total))
    times: list[float] = []

    async def worker() -> None:
        for _ in left:
            started = time.perf_counter()
            await call()
            times.append(time.perf_counter() - started)

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(connections)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    median = sorted(times)[len(times) // 2]
    speed, p50, each = total / wall, median * 1e3, cpu / total * 1e3
    print(f"{name:9} {connections:3} {speed:7.0f} req/s  p50 {p50:6.2f} ms  CPU {each:.2f} ms")


async def main(port: int) -> None:
    """Measure each client at 1 and 32 connections."""
    import aiohttp
    import httpx2
    import niquests
    import openai
    import pyqwest
    from pyreqwest.client import ClientBuilder

    from odar.providers.connection import Address, Connections
    from odar.providers.errors import ErrorFactory

    base = f"http://127.0.0.1:{port}/v1"
    data = json.dumps(BODY).encode()
    headers = {"content-type": "application/json"}
    limits = httpx2.Limits(max_connections=100, max_keepalive_connections=100)
    connections = Connections(Address.parse(base), ErrorFactory("server"))
    sdk = openai.AsyncOpenAI(base_url=base, api_key="none")
    pyqwest_client = pyqwest.Client(pyqwest.HTTPTransport(pool_max_idle_per_host=100, enable_otel=False))
    rust_client = ClientBuilder().follow_redirects(False).no_proxy().build()
    niquests_session = niquests.AsyncSession(pool_maxsize=100, disable_http2=True, disable_http3=True)
    async with (
        aiohttp.ClientSession() as session,
        httpx2.AsyncClient(limits=limits) as client,
        rust_client,
        niquests_session,
    ):

        async def by_ours() -> object:
            async with connections.request("POST", "/chat/completions", headers, data) as answer:
                return json.loads(await answer.read_all())

        async def by_pyqwest() -> object:
            async with pyqwest_client.stream("POST", f"{base}/chat/completions", headers, data) as response:
                return json.loads(b"".join([bytes(piece) async for piece in response.content]))

        async def by_pyreqwest() -> object:
            request = rust_client.post(f"{base}/chat/completions").headers(headers).body_bytes(data)
            # The default limit of 64 KiB holds back the head of a response until that much of its body is here.
            async with request.streamed_read_buffer_limit(1).build_streamed() as response:
                return json.loads((await response.bytes()).to_bytes())

        async def by_niquests() -> object:
            response = await niquests_session.post(f"{base}/chat/completions", data=data, headers=headers)
            return json.loads(response.content)

        async def by_aiohttp() -> object:
            async with session.post(f"{base}/chat/completions", data=data, headers=headers) as response:
                return json.loads(await response.read())

        async def by_httpx2() -> object:
            return json.loads(
                (await client.post(f"{base}/chat/completions", content=data, headers=headers)).content
            )

        async def by_sdk() -> object:
            return await sdk.chat.completions.create(**BODY)

        for at_once, total in ((1, 1000), (32, 2000)):
            await measure("ours", by_ours, at_once, total)
            await measure("pyqwest", by_pyqwest, at_once, total)
            await measure("pyreqwest", by_pyreqwest, at_once, total)
            await measure("aiohttp", by_aiohttp, at_once, total)
            await measure("httpx2", by_httpx2, at_once, total)
            await measure("niquests", by_niquests, at_once, total // 2)
            await measure("openai", by_sdk, at_once, total // 2)
    connections.close()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    server = multiprocessing.Process(target=serve, args=(free,), daemon=True)
    server.start()
    time.sleep(1)
    try:
        asyncio.run(main(free))
    finally:
        server.terminate()
