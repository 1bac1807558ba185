"""A gateway in its own process, and what can be observed of that process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from chaos.upstream import CountingUpstream

from support.constants import odar_code

DEADLINE_S = 3.0
FLUSH_S = 0.2
PAIR_TOML = """
profile = "tiny"
[providers.f]
kind = "openai"
base_url = "{fast}"
[providers.s]
kind = "openai"
base_url = "{slow}"
[models.quick]
provider = "f"
logprobs = true
price = {{ input = 1, output = 2 }}
[models.deep]
provider = "s"
logprobs = true
n = true
price = {{ input = 3, output = 15 }}
"""
"""Settings of a fast and a slow model behind two upstreams."""
_TOML = """
[fast]
model = "quick"
timeout_s = 1.0
[slow]
model = "deep"
timeout_s = 1.5
[limits]
deadline_s = {deadline}
[gateway]
metrics_allow = ["127.0.0.1"]
drain_s = 5
[store]
url = "{store}"
content = true
"""
_COMPLAINT = re.compile(r"unexpected error|never retrieved|never awaited|Traceback|Unclosed|was destroyed but")
"""Log messages of asyncio, aiohttp and odar about leaks and unexpected errors."""
CONSTANTS = {
    "odar.providers.http": "FIRST_PAUSE_S = 0.05; MAX_PAUSE_S = 0.2",
    "odar.providers.breaker": "COOLDOWN_S = 0.5",
    "odar.serving.protocols.reply": "KEEPALIVE_S = 0.5",
    "odar.serving.server": "NOTICE_S = 0.0",
    "odar.traces.writer": f"FLUSH_INTERVAL_S = {FLUSH_S}",
}


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources of a process."""

    tasks: int
    sockets: int
    files: int

    def more_than(self, before: Footprint) -> list[str]:
        pairs = ((name, getattr(before, name), getattr(self, name)) for name in ("tasks", "sockets", "files"))
        return [f"{name} {then} → {now}" for name, then, now in pairs if now > then]


class Gateway:
    """One `odar serve`. Start it with `Gateway.start`."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, log: Path, start: int = 0) -> None:
        self.process, self.url, self.log = process, url, log
        self._start = start
        """Where its lines begin in the log, which an earlier gateway of the folder may have written too."""
        self._read = 0

    @classmethod
    async def start(
        cls,
        folder: Path,
        fast: CountingUpstream,
        slow: CountingUpstream,
        store: str,
        *,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> Gateway:
        """Start one and wait until it answers.

        Args:
            folder: for its settings and its log.
            fast: the fast agent's upstream.
            slow: the slow agent's.
            store: where traces go.
            environ: further variables of its environment.
            prefix: a command to start it under.
        """
        toml = (PAIR_TOML + _TOML).format(fast=fast.url, slow=slow.url, store=store, deadline=DEADLINE_S)
        return await cls.launch(folder, toml, environ=environ, prefix=prefix, constants=CONSTANTS)

    @classmethod
    async def launch(
        cls,
        folder: Path,
        toml: str,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        constants: Mapping[str, str] | None = None,
    ) -> Gateway:
        """Start one with these settings and further arguments of `odar serve`; wait until it answers."""
        folder.mkdir(exist_ok=True)
        config = folder / "odar.toml"
        config.write_text(toml)
        port, log = _free_port(), folder / "log"
        own = {
            "ODAR_CONFIG": str(config),
            "XDG_DATA_HOME": str(folder),
            "ODAR_GATEWAY_WORKERS": str(worker_count()),
        }
        own |= environ or {}
        with log.open("ab") as said:
            start = said.tell()
            process = await asyncio.create_subprocess_exec(
                *prefix, sys.executable, "-c", odar_code(constants), "serve", "--port", str(port), *arguments,
                stdin=asyncio.subprocess.DEVNULL, stderr=said, cwd=folder, env=os.environ | own,
            )  # fmt: skip
        gateway = cls(process, f"http://127.0.0.1:{port}", log, start)
        try:
            async with asyncio.timeout(60):
                while not await gateway.is_up():
                    assert process.returncode is None, log.read_text()
                    await asyncio.sleep(0.05)
        except BaseException:
            await gateway.kill()
            raise
        return gateway

    async def is_up(self) -> bool:
        try:
            return bool(await self._get("/healthz"))
        except (aiohttp.ClientError, ConnectionError):
            return False

    async def loading(self) -> float:
        """Return 1 while a worker loads, otherwise 0."""
        return float(b"ready after" not in self.log.read_bytes()[self._start :])

    async def metric(self, name: str) -> float:
        """Return a metric, summed over its labels."""
        lines = re.findall(rf"^{name}(?:\{{.*?\}})? (\S+)$", await self._get("/metrics"), re.MULTILINE)
        assert lines, f"/metrics has no {name}"
        return sum(map(float, lines))

    async def footprint(self) -> Footprint:
        """Return its current resources; connections to the store, whose pool is bounded, do not count.

        PostgreSQL is on the same machine, behind a Unix socket, so that only TCP sockets are counted.
        """
        tasks = int(await self.metric("odar_tasks"))
        links = []
        for entry in (entry for pid in self.pids() for entry in Path(f"/proc/{pid}/fd").iterdir()):
            try:
                links.append(entry.readlink().name)
            except FileNotFoundError:  # closed meanwhile
                continue
        tables = [Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
        tcp = {f"socket:[{line.split()[9]}]" for table in tables for line in table}
        files = [link for link in links if not link.startswith("socket:")]
        files = [link for link in files if not link.endswith((".db", ".db-wal", ".db-shm"))]
        return Footprint(tasks, sum(link in tcp for link in links), len(files))

    async def at_rest(self, looks: int = 6) -> Footprint:
        """Return its resources at rest: the minimum of several measurements."""
        seen = []
        for _ in range(looks):
            seen.append(await self.footprint())
            await asyncio.sleep(0.2)
        return Footprint(*(min(getattr(each, name) for each in seen) for name in Footprint.__slots__))

    async def settled(self, before: Footprint, timeout_s: float = 5.0) -> Footprint:
        """Return its resources when they are back at the earlier level, or after a timeout."""
        until, now = time.monotonic() + timeout_s, await self.footprint()
        while now.more_than(before) and time.monotonic() < until:
            await asyncio.sleep(0.2)
            now = await self.footprint()
        return now

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Return the resident memory of its workers in megabytes; `VmHWM` is the maximum since `forget_peak`."""
        statuses = "".join(Path(f"/proc/{pid}/status").read_text() for pid in self.pids())
        return sum(map(int, re.findall(rf"^{field}:\s+(\d+) kB", statuses, re.MULTILINE))) / 1024

    def forget_peak(self) -> None:
        """Measure `VmHWM` from now on."""
        for pid in self.pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def pids(self) -> list[int]:
        """Return the processes that answer: its workers, or itself if it has none."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if worker_count() > 1 else []
        return [int(child) for child in children] or [pid]

    def complaints(self) -> list[str]:
        """Return new log lines that no fault explains."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            lines = file.read().decode("utf-8", "replace").splitlines()
            self._read = file.tell()
        return [line[:300] for line in lines if _COMPLAINT.search(line)]

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """Send SIGKILL to all its processes, the one that would replace the others first."""
        workers = self.pids() if self.process.returncode is None else []
        await self._end(signal.SIGKILL)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _end(self, number: int) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)
            async with asyncio.timeout(30):
                await self.process.wait()

    async def _get(self, path: str) -> str:
        connector = aiohttp.TCPConnector(force_close=True)
        timeout = aiohttp.ClientTimeout(total=10)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(self.url + path) as response,
        ):
            return await response.text()


def worker_count() -> int:
    """Return how many workers a gateway has: ODAR_GATEWAY_WORKERS, or one."""
    return int(os.environ.get("ODAR_GATEWAY_WORKERS", "1"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
