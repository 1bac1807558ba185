"""The whole measurement: stub upstream, gateway and peers, one after the other."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from odar.calibration.items import starter_items
from odar.errors import OdarError
from odar.gateway.bench.load import Load, measure
from odar.gateway.bench.processes import cpu_s, gateway, memory_mb, stub

_WARM_UP_S = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """One target: the upstream itself, the gateway, or a peer."""

    name: str
    loads: tuple[Load, ...]
    memory_mb: float | None
    """Resident after the last load; None where the process is not ours to look at."""


def run(
    peers: Mapping[str, str],
    *,
    connections: Sequence[int] = (1, 32),
    seconds: float = 5.0,
    models: Sequence[str] = ("odar", "odar-simple"),
    peer_model: str = "stub",
    peer_key: str = "",
    stub_port: int = 0,
    delay_s: float = 0.0,
    note: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Measure the stub, the gateway in front of it, and each peer, in the same run."""
    rows: list[Row] = []
    with stub(stub_port, delay_s) as upstream, gateway(upstream) as (url, pid):
        targets: list[tuple[str, str, str, str, int | None]] = [("upstream", upstream, peer_model, "", None)]
        targets += [(model, url, model, "", pid) for model in models]
        targets += [(name, peer, peer_model, peer_key, None) for name, peer in peers.items()]
        for name, address, asked, key, process in targets:
            note(f"{name} at {address}")
            loads = asyncio.run(_measure(name, address, bodies(asked), connections, seconds, key, process))
            rows.append(Row(name, loads, memory_mb(process)))
    return rows


def bodies(model: str) -> Iterator[bytes]:
    """Requests without end, no two alike: a gateway that remembered its estimates would gain nothing.

    >>> first, second = itertools.islice(bodies("odar"), 2)
    >>> json.loads(first)["messages"] == json.loads(second)["messages"]
    False
    """
    questions = [item.query.text for item in starter_items()]
    for number, question in enumerate(itertools.cycle(questions)):
        content = f"{question} (No. {number})"
        yield json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode()


async def _measure(
    name: str,
    url: str,
    asked: Iterator[bytes],
    connections: Sequence[int],
    seconds: float,
    key: str,
    pid: int | None,
) -> tuple[Load, ...]:
    loads: list[Load] = []
    try:
        await measure(url, asked, max(connections), _WARM_UP_S, key)
        for each in connections:
            before = cpu_s(pid)
            load = await measure(url, asked, each, seconds, key)
            after = cpu_s(pid)
            cpu = None if before is None or after is None else (after - before) / load.requests * 1e3
            loads.append(replace(load, cpu_ms=cpu))
        return tuple(loads)
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError) as error:
        raise OdarError(f"{name} at {url} cannot be measured: {error or type(error).__name__}") from None
