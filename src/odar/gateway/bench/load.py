"""A client that asks one question after another, over so many connections, and notes how long each answer took.

Hand-written HTTP over asyncio: on two cores a client library would be the slowest part of what it measures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Load:
    """What so many connections got."""

    connections: int
    requests: int
    errors: int
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float | None = None
    """CPU time per request, of the target and its helpers; on a busy machine it says more than the wall."""


async def measure(url: str, bodies: Iterator[bytes], connections: int, seconds: float, key: str = "") -> Load:
    """Ask for so many seconds, and say how it went."""
    parts = urlsplit(url)
    auth = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n{auth}"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()
    times: list[float] = []
    errors = 0
    deadline = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        try:
            while (started := time.perf_counter()) < deadline:
                body = next(bodies)
                writer.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
                status = await _answer(reader)
                times.append(time.perf_counter() - started)
                errors += status != 200
        finally:
            writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    wall = time.perf_counter() - started
    times.sort()
    p50, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
    return Load(connections, len(times), errors, len(times) / wall, p50 * 1e3, p99 * 1e3)


async def _answer(reader: asyncio.StreamReader) -> int:
    """Read one answer to its end; its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head[9:12])
    at = head.find(b"content-length:")
    if at >= 0:
        await reader.readexactly(int(head[at + 15 :].split(b"\r\n", 1)[0]))
        return status
    while (size := int((await reader.readline()).split(b";")[0], 16)) > 0:
        await reader.readexactly(size + 2)
    await reader.readline()
    return status
