"""A real Ray cluster of two nodes on this machine, and what tests need to kill its workers.

Ray takes 240 MB and is not part of the `dev` extra: where it is not installed, tests that need it are skipped. The
fixture `cluster` is in conftest.py: one cluster serves all tests of a process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from odar.recording.cluster import on_ray
from odar.recording.executor import OpenWork
from support.upstream import Upstream, until

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'odar[ray]'")
of_ray = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(400)]
"""Marks of modules with such tests: Ray's own warnings, and the time that a cluster takes on a busy machine."""
MARK = f"ODAR_TEST_CLUSTER={uuid.uuid4().hex}"
_STARTS = 3


@contextmanager
def two_nodes() -> Iterator[Any]:
    """Two nodes of one CPU each."""
    with our_environment():
        cluster = _started()
    try:
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def our_environment() -> Iterator[None]:
    """Every process of a node that is started in here carries our mark."""
    name, value = MARK.split("=")
    tests = str(Path(__file__).parents[1])  # where workers find the benchmark for tests, as if it were installed
    ours = {
        name: value,
        "RAY_USAGE_STATS_ENABLED": "0",
        "ODAR_STORE_ENABLED": "false",
        "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]),
    }
    with pytest.MonkeyPatch.context() as patch:
        for key, its in ours.items():
            patch.setenv(key, its)
        for key in [key for key in os.environ if key.startswith("COVERAGE_")]:
            patch.delenv(key)  # measured, Ray's own processes miss the 30 s that a node has to come up
        yield


def _started() -> Any:
    from ray.cluster_utils import Cluster

    for left in reversed(range(_STARTS)):
        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False)
            cluster.add_node(num_cpus=1)
        except Exception:  # Ray raises nothing narrower for a node that a busy machine did not bring up in 30 s
            cluster.shutdown()
            if not left:
                raise
        else:
            return cluster
    raise AssertionError


def engine(work: OpenWork, address: str | None) -> OpenWork:
    """The work in this process, or by two workers on the cluster at an address."""
    return work if address is None else on_ray(work, address, workers=2)


def worker_pids() -> list[int]:
    """Processes of our own cluster that run a worker of ours."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            title = (process / "cmdline").read_bytes() if process.name.isdigit() else b""
            if title.startswith(b"ray::RayWorker") and MARK.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue  # it has ended
    return found


def ports_of(pid: int) -> set[int]:
    """The TCP ports on this machine that a process holds."""
    inodes = set()
    try:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            inodes.add(str(handle.readlink()).removeprefix("socket:[").removesuffix("]"))
    except OSError:
        return set()  # it has ended
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {int(fields[1].rpartition(":")[2], 16) for fields in lines if fields[9] in inodes}


async def lose_a_worker(server: Upstream, running: asyncio.Task[Any], written: Callable[[], bool]) -> int:
    """Kill one of two workers while both have requests under way; returns how many requests went down with it.

    By then the server has answered as much as it was allowed to, and `written` says that all of it is on the disk.
    When this returns, no request of the dead worker is left at the server: a reply to one would count as paid.
    """

    def under_way() -> dict[int, set[int]]:
        held = {pid: ports_of(pid) & server.clients for pid in worker_pids()}
        return {pid: ports for pid, ports in held.items() if ports}

    await until(lambda: server.free == 0 and written() and len(under_way()) == 2, running)
    paid = sum(server.paid.values())
    victim = max(under_way().items(), key=lambda each: len(each[1]))[0]
    os.kill(victim, signal.SIGSTOP)  # or it might open another connection while we look
    ports = ports_of(victim)
    lost = len(ports & server.clients)
    os.kill(victim, signal.SIGKILL)
    await until(lambda: not ports_of(victim) and not ports & server.clients, running)
    assert sum(server.paid.values()) == paid
    return lost
