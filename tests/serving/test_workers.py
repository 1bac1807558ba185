"""`odar serve --workers`: several processes that behave like one."""

from __future__ import annotations

import asyncio
import copy
import errno
import os
import re
import signal
import socket
import sqlite3
from collections import Counter
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from odar.config import load_settings
from odar.errors import SettingsError
from odar.serving.access import AccessPolicy
from odar.serving.concurrency import ConcurrencyLimit
from odar.serving.connections import ConnectionLimits
from odar.serving.errors import ApiError
from odar.serving.keys import NO_KEY, KeyCache, create_key
from odar.serving.metrics import Metrics
from odar.serving.workers import MAX_DEFAULT_WORKERS, Workers, _Supervisor, worker_count
from odar.settings import GatewaySettings, StoreSettings
from odar.traces.database import Database
from support.entries import entry, part_of_a_service
from support.fault_server import FaultServer, ok
from support.gateway import turn
from support.gateway_process import Process
from support.live_gateway import api_key
from support.waiting import until

CHAT = "/v1/chat/completions"
CENTS = 0.01
"""What a request costs in the tests with processes: ten tokens for 1,000 dollars a million."""
PRICED = ("--set", "models.m.price.input=0", "--set", "models.m.price.output=1000")
BODY = {"model": "odar-simple", "messages": turn(), "max_tokens": 10}


def pair(count: int = 2) -> list[Workers]:
    """The workers of one gateway, as each of them sees them."""
    first = Workers(count)
    others = [copy.copy(first) for _ in range(count - 1)]
    for number, each in enumerate(others, 1):
        each.number = number
    return [first, *others]


# ── what they share in memory ───────────────────────────────────────────────────────────────────────────────


def test_the_default_is_one_per_core_but_one_with_local_models(monkeypatch):
    remote = {"providers__up": {"kind": "openai", "base_url": "http://127.0.0.1:1/v1"}, "models__m__provider": "up"}
    remote |= {"fast__model": "m", "slow__model": "m"}
    for cores, workers in ((1, 1), (2, 2), (64, MAX_DEFAULT_WORKERS)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: range(cores))
        assert worker_count(load_settings("tiny", environ={}, **remote)) == workers
    assert worker_count(load_settings("tiny", environ={})) == 1
    assert worker_count(load_settings("tiny", environ={}, **remote, gateway__workers=7)) == 7
    with pytest.raises(SettingsError, match=r"gateway.workers = 2, but every worker would load '.+'; set it to 1"):
        worker_count(load_settings("tiny", environ={}, gateway__workers=2))


def test_max_in_flight_holds_over_all_workers():
    limits = [ConcurrencyLimit(3, workers=each) for each in pair()]
    limits[0].acquire()
    limits[0].acquire()
    limits[1].acquire()
    for limit in limits:
        with pytest.raises(ApiError, match=r"gateway\.max_in_flight = 3 are in flight"):
            limit.acquire()
    limits[0].release()
    limits[1].acquire()


def test_a_key_leaves_half_of_the_places_of_all_workers():
    limits, key = [ConcurrencyLimit(8, workers=each) for each in pair()], api_key("k", "k")
    for limit in [*limits, *limits]:
        limit.acquire(key)
    for limit in limits:
        with pytest.raises(ApiError, match="4 more must stay free"):
            limit.acquire(key)


def test_workers_share_large_requests_and_connections_evenly(monkeypatch):
    monkeypatch.setattr("odar.serving.connections.MAX_CONNECTIONS_PER_PEER", 6)
    for worker in pair():
        limit = ConcurrencyLimit(8, max_bytes=100, workers=worker)
        limit.hold_memory(NO_KEY, 50)
        with pytest.raises(ApiError, match="too many large requests"):
            limit.hold_memory(NO_KEY, 1)
        connections = ConnectionLimits(worker)
        assert [connections.acquire("a") for _ in range(4)] == [True] * 3 + [False]


def test_keys_stay_required_for_workers_that_start_later():
    keys, workers = KeyCache(), pair()
    keys.load([api_key("k", "k")])
    assert AccessPolicy(keys, GatewaySettings(), workers[0]).keys_required
    assert AccessPolicy(KeyCache(), GatewaySettings(), workers[1]).keys_required, "the last key was revoked"


def values(metrics: Metrics) -> dict[str, str]:
    lines = metrics.text().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_metrics_are_those_of_all_workers_and_survive_a_replacement():
    workers = pair()
    services = [part_of_a_service(workers=each) for each in workers]
    metrics = [Metrics(service) for service in services]
    alone = Metrics(part_of_a_service())
    for each in (*metrics, alone, alone):
        each.count(entry())
    services[1].concurrency_limit.acquire()
    metrics[1].publish()
    total, expected = values(metrics[0]), values(alone)
    assert total["odar_in_flight"] == "1.0"
    for name in set(expected) - {"odar_in_flight"}:
        if "_created" not in name and "_sum" not in name:
            assert total[name] == expected[name], name
    workers[1].in_flight[1] = 0  # as the parent does
    replacement = Metrics(part_of_a_service(workers=workers[1]))
    assert values(replacement)["odar_in_flight"] == "0.0", "gauges are not inherited"
    replacement.count(entry())
    replacement.publish()
    seen = [name for name in total if name.startswith("odar_requests_total")]
    assert [values(metrics[0])[name] for name in seen] == ["3.0"]


def test_a_snapshot_that_is_not_whole_is_left_out():
    one, other = pair()
    other.publish(b"x" * 100)
    assert one.snapshot(1) == b"x" * 100
    other._snapshots[1][50] = 0
    assert one.snapshot(1) is None
    other.publish(b"y" * (1 << 21))
    assert one.snapshot(1) is None, "too large"


def test_a_worker_is_replaced_when_the_system_can_fork_again(monkeypatch):
    said, outcomes = [], iter([OSError(errno.ENOMEM, "Cannot allocate memory"), 4711])

    def fork():
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr("odar.serving.workers._RESTART_PAUSE_S", 0)
    supervisor = _Supervisor(Workers(2), said.append)
    assert not supervisor._fork(1, replacement=True)
    assert supervisor._pids == {4711: 1}
    assert said == ["worker 1 cannot be replaced yet: Cannot allocate memory"]


# ── real processes ──────────────────────────────────────────────────────────────────────────────────────────


def workers_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children")
    return [int(pid) for pid in children.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def read_log(gateway: Process) -> None:
    while line := (await gateway.process.stderr.readline()).decode():
        gateway.said += line


@asynccontextmanager
async def serving(folder: Path, up: FaultServer, count: int, *arguments: str, **options: Any):
    """A gateway whose workers are all ready; SIGTERM ends it."""
    store = ("--set", f"store.url={folder / 'odar.db'}")
    gateway = await Process.start(folder, up, "--workers", str(count), *store, *PRICED, *arguments, **options)
    log = asyncio.create_task(read_log(gateway))
    try:
        await until(lambda: "ready after" in gateway.said)
        assert len(workers_of(gateway.process.pid)) == count
        yield gateway
        if gateway.process.returncode is None:
            gateway.process.terminate()
            assert await gateway.process.wait() == 128 + signal.SIGTERM
        await log
    finally:
        with suppress(ProcessLookupError):
            gateway.process.kill()
        await gateway.process.wait()
        log.cancel()


def limited_key(folder: Path, **limits: Any) -> dict[str, str]:
    with closing(Database(StoreSettings(url=str(folder / "odar.db")))) as database:
        _, secret = create_key(database, "k", **limits)
    return {"authorization": f"Bearer {secret}"}


def rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "odar.db", timeout=60)) as connection:
        return connection.execute(query).fetchall()


def priced(delay_s: float = 0.0) -> Any:
    return ok("four", delay_s=delay_s, usage={"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 15})


async def test_a_budget_is_exact_under_four_workers_and_200_parallel_requests(tmp_path):
    headers = limited_key(tmp_path, budget_day_usd=50 * CENTS)
    async with FaultServer() as up, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        up.behave(priced())
        async with serving(tmp_path, up, 4, until="listening") as gateway:

            async def ask() -> int:
                async with http.post(gateway.url + CHAT, json=BODY, headers=headers) as response:
                    return response.status

            statuses = Counter(await asyncio.gather(*(ask() for _ in range(200))))
            assert statuses == {200: 50, 429: 150}
            assert sum(each.method == "POST" for each in up.requests) == 50
            assert rows(tmp_path, "SELECT round(cost_usd, 9) FROM spending") == [(0.5,)]
            assert rows(tmp_path, "SELECT * FROM reservations") == []
    assert gateway.said.count("listening on") == gateway.said.count("ready after") == 1


async def test_a_worker_that_is_killed_under_load_loses_no_charge_and_charges_none_twice(tmp_path):
    headers = limited_key(tmp_path, budget_day_usd=1000.0)
    async with FaultServer() as up, aiohttp.ClientSession() as http:
        up.behave(priced(0.02))
        async with serving(tmp_path, up, 2, until="listening") as gateway:
            answered, broken = 0, 0
            stopping = False

            async def client() -> None:
                nonlocal answered, broken
                while not stopping:
                    try:
                        async with http.post(gateway.url + CHAT, json=BODY, headers=headers) as response:
                            await response.read()
                            assert response.status == 200
                            answered += 1
                    except aiohttp.ClientError:
                        broken += 1

            clients = [asyncio.create_task(client()) for _ in range(16)]
            await until(lambda: answered > 40)
            victim = workers_of(gateway.process.pid)[0]
            os.kill(victim, signal.SIGKILL)
            await until(lambda: f"(process {victim}) was killed by signal 9, and is replaced" in gateway.said)
            before = answered
            await until(lambda: answered > before + 40)
            stopping = True
            await asyncio.gather(*clients)
            assert len(workers_of(gateway.process.pid)) == 2
            # The replacement frees what the victim had reserved; a charge whose reply broke off was for a real call.
            await until(lambda: rows(tmp_path, "SELECT * FROM reservations") == [])
            [(usd,)] = rows(tmp_path, "SELECT cost_usd FROM spending")
            charged = round(usd / CENTS)
            assert usd == pytest.approx(charged * CENTS)
            assert answered <= charged <= answered + broken
            assert charged <= sum(each.method == "POST" for each in up.requests)


async def test_a_worker_restarts_without_losing_a_request(tmp_path):
    async with FaultServer() as up, aiohttp.ClientSession() as http:
        up.behave(priced(0.02))
        async with serving(tmp_path, up, 2, constants={"odar.serving.server": "NOTICE_S = 5.0"}) as gateway:
            statuses: Counter[int] = Counter()
            stopping = False

            async def client() -> None:
                while not stopping:
                    async with http.post(gateway.url + CHAT, json=BODY) as response:
                        await response.read()
                        statuses[response.status] += 1

            clients = [asyncio.create_task(client()) for _ in range(8)]
            await until(lambda: statuses[200] > 20)
            for old in workers_of(gateway.process.pid):
                os.kill(old, signal.SIGTERM)
                await until(lambda old=old: not is_running(old))
                before = statuses[200]
                await until(lambda before=before: statuses[200] > before + 20)
            stopping = True
            await asyncio.gather(*clients)
            assert set(statuses) == {200}

            async def counted() -> float:
                async with http.get(gateway.url + "/metrics") as response:
                    found = re.findall(r'odar_requests_total\{.*status="200"\} (\S+)', await response.text())
                return sum(map(float, found))

            async with asyncio.timeout(60):
                while await counted() < statuses[200]:
                    await asyncio.sleep(0.1)
            assert await counted() == statuses[200], "counters go on where the old workers ended"


async def test_workers_end_with_a_killed_parent_charge_its_requests_and_free_its_port(tmp_path):
    headers = limited_key(tmp_path, budget_day_usd=1.0)
    async with (
        FaultServer() as up,
        aiohttp.ClientSession() as http,
        serving(tmp_path, up, 2, drain=1, until="listening") as gateway,
    ):
        up.behave(priced(60))
        asking = asyncio.create_task(http.post(gateway.url + CHAT, json=BODY, headers=headers))
        await until(lambda: rows(tmp_path, "SELECT * FROM reservations"))
        await until(lambda: any(each.method == "POST" for each in up.requests))
        workers = workers_of(gateway.process.pid)
        gateway.process.kill()
        await gateway.process.wait()
        await until(lambda: not any(map(is_running, workers)))
        await asyncio.wait([asking])
        # The model server may still charge for the call, so its reserved cost is spent.
        assert rows(tmp_path, "SELECT * FROM reservations") == []
        assert rows(tmp_path, "SELECT round(cost_usd, 9) FROM spending") == [(CENTS,)]
        host, port = gateway.url.removeprefix("http://").split(":")
        socket.create_server((host, int(port))).close()


async def test_settings_that_cannot_work_are_reported_once(tmp_path):
    async with FaultServer() as up:
        with pytest.raises(AssertionError) as raised:
            await Process.start(
                tmp_path, up, "--workers", "3", "--set", "observe.share=1", "--set", "store.enabled=false"
            )
    assert str(raised.value).count("need a store") == 1
