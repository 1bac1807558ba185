"""An attack, the gateway that it is made against, and the promises that must hold while it runs.

    @attack(8, "half-open connections", constants={"odar.serving.connections": "HEADER_TIMEOUT_S = 1.0"})
    async def half_open(scene: Scene) -> None:
        ...                                          # attack for about scene.seconds
        scene.check(left == 0, f"{left} connections stay open")
        scene.say(f"{count} connections")

The function gets a running `odar serve` with two model servers behind it, and speaks to it over HTTP alone. It reports
with `scene.check` where the attack succeeded. Around it `run` lets healthy clients ask from another address, and looks at
the gateway's memory, tasks, sockets and log.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from chaos.environment import until
from chaos.gateway import PAIR_TOML, Footprint, Gateway, worker_count
from chaos.promises import short
from chaos.upstream import CountingUpstream

from odar.serving.workers import PUBLISH_S
from support.constants import odar_code

ROOT = Path(__file__).parents[2]
HEALTHY = "healthy"
"""The name of the healthy clients' key, where keys are in use."""
HEALTH_P99_MS = 250.0
MEMORY_MB = 64.0
"""How much more memory a worker may hold once an attack is over."""
RECOVERY_S = 20.0
DEADLINE_S = 5.0
_TOML = """
[fast]
model = "quick"
[slow]
model = "deep"
[limits]
deadline_s = {deadline}
[gateway]
metrics_allow = ["127.0.0.1"]
drain_s = 1
[store]
url = "{store}"
"""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack; make it with the decorator `attack`."""

    item: float
    """Of issue 14; 36.04 is the fourth of issue 36."""
    name: str
    run: Callable[[Scene], Awaitable[None]]
    settings: Mapping[str, Any]
    keys: Mapping[str, tuple[str, ...]]
    healthy: bool
    brief: bool
    arguments: tuple[str, ...]
    prefix: tuple[str, ...]
    constants: Mapping[str, str]

    @property
    def number(self) -> str:
        """The item as it is written in the table, such as 36.4."""
        whole, part = divmod(round(100 * self.item), 100)
        return f"{whole}.{part}" if part else str(whole)

    @property
    def what(self) -> str:
        """What is done, in one sentence."""
        return (self.run.__doc__ or "").split("\n")[0]


CONSTANTS = {"odar.serving.server": "NOTICE_S = 0.0", "odar.traces.writer": "FLUSH_INTERVAL_S = 0.2"}
ATTACKS: dict[str, Attack] = {}
"""By name."""


def attack(
    item: float,
    name: str,
    *,
    settings: Mapping[str, Any] | None = None,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    healthy: bool = True,
    brief: bool = False,
    arguments: tuple[str, ...] = (),
    prefix: tuple[str, ...] = (),
    constants: Mapping[str, str] | None = None,
) -> Callable[[Callable[[Scene], Awaitable[None]]], Callable[[Scene], Awaitable[None]]]:
    """Register an attack.

    Args:
        item: the number in the list of threats of issue 14; 36.04 is the fourth of issue 36.
        name: unique, a few words.
        settings: as for `--set`, such as {"gateway.max_in_flight": 64}.
        keys: API keys to create before the gateway starts: name → further arguments of `odar keys create`. Their secrets
            are in `scene.keys`. Where there is at least one, the healthy clients get a key of their own.
        healthy: whether healthy clients ask questions meanwhile; /healthz is always asked for.
        brief: also run by `make test`, for a moment and without a stopwatch.
        arguments: further arguments of `odar serve`.
        prefix: a command to start it under.
        constants: assignments in modules of the gateway, besides `CONSTANTS`.
    """

    def register(function: Callable[[Scene], Awaitable[None]]) -> Callable[[Scene], Awaitable[None]]:
        others = CONSTANTS | dict(constants or {})
        ATTACKS[name] = Attack(
            item, name, function, settings or {}, keys or {}, healthy, brief, arguments, prefix, others
        )
        return function

    return register


@dataclass(slots=True)
class Scene:
    """What an attack has to work with."""

    folder: Path
    gateway: Gateway
    fast: CountingUpstream
    """The model server behind `quick`; `fast.misbehave` makes it hostile."""
    slow: CountingUpstream
    """The model server behind `deep`."""
    http: aiohttp.ClientSession
    """A session of the attacker's; timeouts are the caller's."""
    seconds: float
    """About how long to attack."""
    keys: dict[str, str] = field(default_factory=dict)
    """Secrets by the name of the key."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """http://127.0.0.1:port"""
        return self.gateway.url

    @property
    def port(self) -> int:
        """The gateway's."""
        return int(self.url.rpartition(":")[2])

    def check(self, held: object, problem: str) -> None:
        """Note that the attack succeeded, unless `held`."""
        if not held:
            self.problems.append(problem)

    def say(self, note: str) -> None:
        self.notes.append(note)

    def auth(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[name]}"}

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, str]:
        async with self.http.post(self.url + path, json=body, **options) as response:
            return response.status, await response.text()

    async def odar(self, *arguments: str) -> str:
        """Run an `odar` command with the gateway's own settings; its standard output."""
        return await run_odar(self.folder, *arguments)


@dataclass(slots=True)
class Result:
    """What came of one attack."""

    attack: Attack
    seconds: float = 0.0
    health_ms: list[float] = field(default_factory=list)
    answers: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    memory_mb: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Before, at most, after."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return not self.problems

    def health(self, share: float) -> float:
        """A quantile of the times of /healthz, in milliseconds."""
        ordered = sorted(self.health_ms)
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


async def run(attack: Attack, folder: Path, seconds: float, *, clients: int = 4, timed: bool = True) -> Result:
    """Make one attack against a gateway of its own, with healthy clients around it, and judge it.

    Args:
        attack: which.
        folder: for settings, store and log.
        seconds: about how long.
        clients: healthy ones.
        timed: whether slow answers of /healthz count; not on a machine that does other work.
    """
    result, began = Result(attack), time.monotonic()
    async with _scene(attack, folder, seconds) as scene:
        gateway = scene.gateway
        await _settle(scene, scene.keys.get(HEALTHY, ""), attack.healthy)
        before = await gateway.at_rest(3)
        held_mb = gateway.memory_mb()
        gateway.forget_peak()
        async with _healthy(scene, clients if attack.healthy else 0) as seen:
            await attack.run(scene)
        result.health_ms, result.answers, result.failures = seen["health_ms"], seen["answers"], seen["failures"]
        peak_mb = gateway.memory_mb("VmHWM")
        scene.problems += await _left_behind(scene, before, held_mb)
        result.memory_mb = (held_mb, peak_mb, gateway.memory_mb())
        scene.problems += short(gateway.complaints())
    scene.problems += [f"healthy clients: {count} × {what}" for what, count in result.failures.items()]
    scene.check(result.answers or not attack.healthy, "no healthy client got an answer")
    scene.check(result.health_ms, "/healthz was never asked for")
    if timed and (p99 := result.health(0.99)) > HEALTH_P99_MS:
        scene.problems.append(f"p99 of /healthz is {p99:.0f} ms, more than {HEALTH_P99_MS:.0f} ms")
    result.problems, result.notes = scene.problems, scene.notes
    result.seconds = time.monotonic() - began
    return result


async def run_odar(folder: Path, *arguments: str) -> str:
    """Run an `odar` command in this folder, as the gateway's operator would; its standard output."""
    own = {"ODAR_CONFIG": str(folder / "odar.toml"), "XDG_DATA_HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", odar_code(), *arguments,
        cwd=folder, env=os.environ | own, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, f"odar {' '.join(arguments)}: {err.decode()}"
    return out.decode()


@asynccontextmanager
async def _scene(attack: Attack, folder: Path, seconds: float) -> AsyncIterator[Scene]:
    folder.mkdir(exist_ok=True)
    async with CountingUpstream(seed=1) as fast, CountingUpstream(seed=2) as slow:
        toml = (PAIR_TOML + _TOML).format(
            fast=fast.url, slow=slow.url, store=folder / "traces.db", deadline=DEADLINE_S
        )
        (folder / "odar.toml").write_text(toml)
        names = {**attack.keys, **({HEALTHY: ()} if attack.keys and attack.healthy else {})}
        made = await asyncio.gather(
            *(run_odar(folder, "keys", "create", name, "--json", *more) for name, more in names.items())
        )
        keys = {name: json.loads(text)["secret"] for name, text in zip(names, made, strict=True)}
        sets = [part for key, value in attack.settings.items() for part in ("--set", f"{key}={value}")]
        gateway = await Gateway.launch(
            folder, toml, *attack.arguments, *sets, prefix=attack.prefix, constants=attack.constants
        )
        try:
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as http:
                yield Scene(folder, gateway, fast, slow, http, seconds, keys, settings=attack.settings)
        finally:
            try:
                await gateway.stop()
            finally:
                await gateway.kill()


async def _settle(scene: Scene, key: str, ask: bool) -> None:
    """Load what the first questions need, so that memory before and after can be compared."""
    await until(scene.gateway.loading, "gateways are still loading", timeout_s=60)
    workers = worker_count()
    if ask:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        for model in ("odar", "odar-simple", "odar-medium", "odar-hard"):
            body = {"model": model, "messages": [{"role": "user", "content": "Question 0: what is 2 + 2?"}]}
            # connections at the same time are shared out evenly among the workers
            asked = (scene.post("/v1/chat/completions", body, headers=headers) for _ in range(workers))
            for status, text in await asyncio.gather(*asked):
                assert status == 200, text
    if workers > 1:
        # a worker opens a file with its first connection
        await asyncio.gather(*(scene.gateway.is_up() for _ in range(4 * workers)))
        await asyncio.sleep(2 * PUBLISH_S)  # until /metrics has the tasks of all


@asynccontextmanager
async def _healthy(scene: Scene, clients: int) -> AsyncIterator[dict[str, Any]]:
    """Healthy clients in a process of their own; what they saw is there when the block is left."""
    key = scene.keys.get(HEALTHY, "")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "attack.healthy", scene.url, "--key", key, "--clients", str(clients),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in ("tests", "qa"))},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**24,
    )  # fmt: skip
    assert process.stdout is not None
    seen: dict[str, Any] = {}
    try:
        ready = await process.stdout.readline()
        assert ready == b"ready\n", ready
        yield seen
        out, _ = await process.communicate(b"")
        seen.update(json.loads(out))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _left_behind(scene: Scene, before: Footprint, held_mb: float) -> list[str]:
    """What the gateway still holds of an attack that is over."""
    gateway = scene.gateway
    for upstream in (scene.fast, scene.slow):
        upstream.misbehave(None)
    await scene.http.close()
    try:
        await until(lambda: gateway.metric("odar_in_flight"), "requests are still in flight", RECOVERY_S)
    except TimeoutError as stuck:
        return [str(stuck) or "the gateway did not answer within 10 s"]
    for upstream in (scene.fast, scene.slow):
        upstream.close_connections()
    after = await gateway.settled(before, RECOVERY_S)
    problems = [f"left behind: {more}" for more in after.more_than(before)]
    deadline, allowed_mb = time.monotonic() + RECOVERY_S, MEMORY_MB * worker_count()
    while gateway.memory_mb() > held_mb + allowed_mb and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    if (now := gateway.memory_mb()) > held_mb + allowed_mb:
        problems.append(f"memory does not return: {held_mb:.0f} MB before, {now:.0f} MB {RECOVERY_S:g} s after")
    return problems
