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
    calls: float | None = None
    """Upstream calls per request, where the target says how many it made."""
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
    calls: list[int] = []
    errors = 0
    deadline = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        try:
            while (started := time.perf_counter()) < deadline:
                body = next(bodies)
                writer.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
                status, made = await _answer(reader)
                times.append(time.perf_counter() - started)
                errors += status != 200
                if made is not None:
                    calls.append(made)
        finally:
            writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    wall = time.perf_counter() - started
    times.sort()
    p50, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
    mean = sum(calls) / len(calls) if calls else None
    return Load(connections, len(times), errors, len(times) / wall, p50 * 1e3, p99 * 1e3, mean)


async def _answer(reader: asyncio.StreamReader) -> tuple[int, int | None]:
    """Read one answer to its end; its status, and how many calls were made for it."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status, calls = int(head[9:12]), _number(head, b"x-odar-calls:")
    length = _number(head, b"content-length:")
    if length is not None:
        await reader.readexactly(length)
        return status, calls
    while (size := int((await reader.readline()).split(b";")[0], 16)) > 0:
        await reader.readexactly(size + 2)
    await reader.readline()
    return status, calls


def _number(head: bytes, name: bytes) -> int | None:
    at = head.find(name)
    return None if at < 0 else int(head[at + len(name) :].split(b"\r\n", 1)[0])
