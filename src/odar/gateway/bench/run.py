"""The whole measurement: stub upstream, gateway and peers, each in a process of its own, turn about.

A machine is faster at one minute than at the next; in rounds, all targets share that. What is reported of a target
is its median round.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from odar.errors import OdarError
from odar.gateway.bench.load import Load, measure
from odar.gateway.bench.loop import run_fast
from odar.gateway.bench.processes import cpu_s, gateway, memory_mb, stub
from odar.recording.questions import starter_questions

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
    rounds: int = 1,
    models: Sequence[str] = ("odar", "odar-simple"),
    peer_model: str = "stub",
    peer_key: str = "",
    stub_port: int = 0,
    delay_s: float = 0.0,
    note: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Measure the stub, the gateway in front of it, and each peer, in the same run."""
    with stub(stub_port, delay_s) as upstream, gateway(upstream) as (url, pid):
        targets = [_Target("upstream", upstream, bodies(peer_model))]
        targets += [_Target(model, url, bodies(model), pid=pid) for model in models]
        targets += [_Target(name, peer, bodies(peer_model), peer_key) for name, peer in peers.items()]
        measured: dict[str, list[tuple[Load, ...]]] = {target.name: [] for target in targets}
        for number in range(rounds):
            for target in targets:
                note(f"{target.name} at {target.url}" + (f", round {number + 1} of {rounds}" if rounds > 1 else ""))
                measured[target.name].append(run_fast(_measure(target, connections, seconds, cold=number == 0)))
        return [
            Row(
                target.name,
                tuple(map(_median, zip(*measured[target.name], strict=True))),
                memory_mb(target.pid),
            )
            for target in targets
        ]


class _Target(NamedTuple):
    name: str
    url: str
    asked: Iterator[bytes]
    key: str = ""
    pid: int | None = None
    """Of a process that is ours to look at."""


def _median(loads: Sequence[Load]) -> Load:
    """The middle one by requests per second; of two, the slower."""
    return sorted(loads, key=attrgetter("per_second"))[(len(loads) - 1) // 2]


def bodies(model: str) -> Iterator[bytes]:
    """Requests without end, no two alike: a gateway that remembered its estimates would gain nothing.

    >>> first, second = itertools.islice(bodies("odar"), 2)
    >>> json.loads(first)["messages"] == json.loads(second)["messages"]
    False
    """
    questions = [item.query.text for item in starter_questions()]
    for number, question in enumerate(itertools.cycle(questions)):
        content = f"{question} (No. {number})"
        yield json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode()


async def _measure(
    target: _Target, connections: Sequence[int], seconds: float, *, cold: bool = True
) -> tuple[Load, ...]:
    loads: list[Load] = []
    try:
        if cold:
            await measure(target.url, target.asked, max(connections), _WARM_UP_S, target.key)
        for each in connections:
            before = cpu_s(target.pid)
            load = await measure(target.url, target.asked, each, seconds, target.key)
            after = cpu_s(target.pid)
            cpu = None if before is None or after is None else (after - before) / load.requests * 1e3
            loads.append(replace(load, cpu_ms=cpu))
        return tuple(loads)
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError) as error:
        why = error or type(error).__name__
        raise OdarError(f"{target.name} at {target.url} cannot be measured: {why}") from None
