"""The whole measurement: stub upstream, gateway and peers, each in a process of its own, turn about.

A machine is faster at one minute than at the next; in rounds, all targets share that. What is reported of a target
is its median round.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from odar.calibration.items import starter_items
from odar.errors import OdarError
from odar.gateway.bench.load import Load, measure
from odar.gateway.bench.loop import run_fast

_CONFIG = """
profile = "embedded"
[providers.stub]
kind = "openai"
base_url = "{url}"
[models.stub]
provider = "stub"
logprobs = true
[fast]
model = "stub"
[slow]
model = "stub"
[gateway]
log_requests = false # nobody would read them
"""
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
    with _stub(stub_port, delay_s) as upstream, _gateway(upstream) as (url, pid):
        targets = [_Target("upstream", upstream, bodies(peer_model))]
        targets += [_Target(model, url, bodies(model), pid=pid) for model in models]
        targets += [_Target(name, peer, bodies(peer_model), peer_key) for name, peer in peers.items()]
        measured: dict[str, list[tuple[Load, ...]]] = {target.name: [] for target in targets}
        for number in range(rounds):
            for target in targets:
                note(f"{target.name} at {target.url}" + (f", round {number + 1} of {rounds}" if rounds > 1 else ""))
                measured[target.name].append(run_fast(_measure(target, connections, seconds)))
        return [
            Row(
                target.name,
                tuple(map(_median, zip(*measured[target.name], strict=True))),
                _memory_mb(target.pid) if target.pid else None,
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
    questions = [item.query.text for item in starter_items()]
    for number, question in enumerate(itertools.cycle(questions)):
        content = f"{question} (No. {number})"
        yield json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode()


async def _measure(target: _Target, connections: Sequence[int], seconds: float) -> tuple[Load, ...]:
    loads: list[Load] = []
    try:
        await measure(target.url, target.asked, max(connections), _WARM_UP_S, target.key)
        for each in connections:
            before = _cpu_s(target.pid)
            load = await measure(target.url, target.asked, each, seconds, target.key)
            after = _cpu_s(target.pid)
            cpu = None if before is None or after is None else (after - before) / load.requests * 1e3
            loads.append(replace(load, cpu_ms=cpu))
        return tuple(loads)
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError) as error:
        why = error or type(error).__name__
        raise OdarError(f"{target.name} at {target.url} cannot be measured: {why}") from None


@contextmanager
def _stub(port: int, delay_s: float) -> Iterator[str]:
    command = [sys.executable, "-m", "odar.gateway.bench.stub", str(port), str(delay_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise OdarError(f"the stub upstream did not start; is port {port} taken?")
            yield f"http://127.0.0.1:{int(line)}/v1"
        finally:
            process.stdin.close()
            process.terminate()


@contextmanager
def _gateway(upstream: str) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "odar.toml"
        config.write_text(_CONFIG.format(url=upstream), encoding="utf-8")
        code = "from odar.cli.main import main; main()"
        command = [sys.executable, "-c", code, "serve", "--port", "0", "--config", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
            assert process.stderr is not None
            try:
                said = ""
                for line in process.stderr:
                    said += line
                    if found := re.search(r"http://\S+", line):
                        yield f"{found.group()}/v1", process.pid
                        return
                raise OdarError(f"the gateway did not start: {' '.join(said.split())}")
            finally:
                process.kill()


def _cpu_s(pid: int | None) -> float | None:
    """CPU seconds so far of a process of ours and those that it started; None where the system does not say."""
    ticks = [int(user) + int(system) for *_, user, system in (fields[:13] for _, fields in _family(pid))]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def _memory_mb(pid: int) -> float | None:
    """Resident megabytes of a process of ours and those that it started; None where the system does not say."""
    pages = [int(fields[21]) for _, fields in _family(pid)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20 if pages else None


def _family(pid: int | None) -> Iterator[tuple[int, list[str]]]:
    """A process and its children, each with what Linux counts of it, from its state on."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            number, _, rest = stat.read_text(encoding="utf-8", errors="replace").partition(" ")
            fields = rest.rpartition(")")[2].split()
            if pid in (int(number), int(fields[1])):
                yield int(number), fields
