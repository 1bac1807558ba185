"""Measure gateways: a stub upstream, `odar serve` and peers, each in its own process, in alternating rounds.

The speed of a machine varies from minute to minute, so targets are measured in alternation, and the median round of each
is reported. The client is hand-written HTTP over asyncio, because on two cores a client library would be the slowest
part.
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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from stub_upstream import run_fast

from odar.errors import OdarError
from odar.lab.recording.questions import starter_questions

_WARM_UP_S = 2.0
_CONFIG = """
profile = "tiny"
[providers.stub]
kind = "openai"
base_url = {upstream}
[models.stub]
provider = "stub"
logprobs = true
[fast]
model = "stub"
[slow]
model = "stub"
[gateway]
log_requests = false # nobody would read them
workers = 1 # unless ODAR_GATEWAY_WORKERS says otherwise
[store]
url = {store} # not the user's: their keys would lock us out, and our traces are no news to them
"""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Load:
    """The result of one load with a number of connections."""

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
    peer_headers: Sequence[str] = (),
    stub_port: int = 0,
    delay_s: float = 0.0,
    workers: Sequence[int] = (1,),
    note: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Measure the stub, gateways with these numbers of workers in front of it, and each peer, in the same run.

    `#PID` after the address of a peer is its process, whose CPU and memory are measured too.
    """
    with ExitStack() as stack:
        upstream = stack.enter_context(stub(stub_port, delay_s))
        targets = [_Target("upstream", upstream, bodies(peer_model))]
        for count in workers:
            url, pid = stack.enter_context(gateway(upstream, {"ODAR_GATEWAY_WORKERS": str(count)}))
            label = f", {count} workers" if count > 1 else ""
            targets += [_Target(model + label, url, bodies(model), pid=pid) for model in models]
        for name, peer in peers.items():
            url, _, process = peer.partition("#")
            targets.append(_Target(name, url, bodies(peer_model), peer_headers, int(process) if process else None))
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
    headers: Sequence[str] = ()
    pid: int | None = None
    """Of a process that is ours to look at."""


def _median(loads: Sequence[Load]) -> Load:
    """The middle one by requests per second; of two, the slower."""
    return sorted(loads, key=attrgetter("per_second"))[(len(loads) - 1) // 2]


def bodies(*models: str) -> Iterator[bytes]:
    """Endless requests to these models in turn, all different, so that a cache of estimates gains nothing.

    >>> first, second = itertools.islice(bodies("odar"), 2)
    >>> json.loads(first)["messages"] == json.loads(second)["messages"]
    False
    """
    questions = [item.query.text for item in starter_questions()]
    turns = itertools.cycle(models)
    for number, question in enumerate(itertools.cycle(questions)):
        content = f"{question} (No. {number})"
        yield json.dumps({"model": next(turns), "messages": [{"role": "user", "content": content}]}).encode()


async def _measure(
    target: _Target, connections: Sequence[int], seconds: float, *, cold: bool = True
) -> tuple[Load, ...]:
    loads: list[Load] = []
    try:
        if cold:
            await measure(target.url, target.asked, max(connections), _WARM_UP_S, target.headers)
        for each in connections:
            before = cpu_s(target.pid)
            load = await measure(target.url, target.asked, each, seconds, target.headers)
            after = cpu_s(target.pid)
            cpu = None if before is None or after is None else (after - before) / load.requests * 1e3
            loads.append(replace(load, cpu_ms=cpu))
        return tuple(loads)
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError) as error:
        why = error or type(error).__name__
        raise OdarError(f"{target.name} at {target.url} cannot be measured: {why}") from None


async def measure(
    url: str, bodies: Iterator[bytes], connections: int, seconds: float, headers: Sequence[str] = ()
) -> Load:
    """Send requests for `seconds` and return the result."""
    parts = urlsplit(url)
    more = "".join(f"{header}\r\n" for header in headers)
    head = (
        f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n{more}"
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


@contextmanager
def stub(port: int = 0, delay_s: float = 0.0) -> Iterator[str]:
    """Start the stub upstream; yields its address."""
    command = [sys.executable, str(Path(__file__).parent / "stub_upstream.py"), str(port), str(delay_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
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
def gateway(upstream: str, environ: Mapping[str, str] | None = None) -> Iterator[tuple[str, int]]:
    """Run `odar serve` in front of this upstream, with additional environment variables; yields its address and process id.

    It has a store of its own, unless ODAR_STORE_URL names one.
    """
    with tempfile.TemporaryDirectory() as folder:
        config, log = Path(folder) / "odar.toml", Path(folder) / "log"
        store = json.dumps(str(Path(folder) / "odar.db"))
        config.write_text(_CONFIG.format(upstream=json.dumps(upstream), store=store), encoding="utf-8")
        code = "from odar.cli.main import main; main()"
        command = [sys.executable, "-c", code, "serve", "--port", "0", "--config", str(config)]
        # A file, because nobody reads a pipe while the load runs, and it would fill up.
        with (
            log.open("wb") as stream,
            subprocess.Popen(command, stderr=stream, env={**os.environ, **(environ or {})}) as process,
        ):
            try:
                yield f"{_address(process, log)}/v1", process.pid
            finally:
                process.kill()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the gateway listens; return its address."""
    while True:
        ended = process.poll() is not None
        said = log.read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"http://\S+(?=\s)", said):
            return found.group()
        if ended:
            raise OdarError(f"the gateway did not start: {' '.join(said.split())}")
        time.sleep(_POLL_S)


def cpu_s(pid: int | None) -> float | None:
    """CPU seconds of a process and its children; None if unknown."""
    ticks = [int(user) + int(system) for *_, user, system in (fields[:13] for _, fields in _family(pid))]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def memory_mb(pid: int | None) -> float | None:
    """Resident megabytes of a process and its children; None if unknown."""
    pages = [int(fields[21]) for _, fields in _family(pid)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20 if pages else None


def _family(pid: int | None) -> Iterator[tuple[int, list[str]]]:
    """The ids of a process and its children, each with the fields of /proc/PID/stat from the state on."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            number, _, rest = stat.read_text(encoding="utf-8", errors="replace").partition(" ")
            fields = rest.rpartition(")")[2].split()
            if pid in (int(number), int(fields[1])):
                yield int(number), fields
