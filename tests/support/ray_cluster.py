"""A Ray cluster of two nodes on this machine, and helpers that kill its workers.

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

from odar.lab.runs.cluster import on_ray
from odar.lab.runs.executor import OpenWork
from support.upstream import Upstream, until

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'odar[ray]'")
ray_marks = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(400)]
"""Marks for modules that use the cluster: ignore Ray's warnings; allow for slow starts on a busy machine."""
MARK = f"ODAR_TEST_CLUSTER={uuid.uuid4().hex}"
_STARTS = 3


@contextmanager
def two_nodes() -> Iterator[Any]:
    """Two nodes of one CPU each."""
    with marked_environment():
        cluster = _started()
    try:
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def marked_environment() -> Iterator[None]:
    """Mark every process of the nodes started in this context, so that `worker_pids` finds them."""
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
            patch.delenv(key)  # with coverage on, a node does not start within Ray's limit of 30 s
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
    """Return the work for this process, or for two workers of the cluster at `address`."""
    return work if address is None else on_ray(work, address, workers=2)


def worker_pids() -> list[int]:
    """Return the processes of this test's cluster that run a `RayWorker`."""
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


async def kill_a_worker(server: Upstream, running: asyncio.Task[Any], written: Callable[[], bool]) -> int:
    """Kill one of two workers while both have requests in progress; return how many requests were lost with it.

    Wait until the server has sent all the replies it may send and `written` says that all of them are on disk.
    Return when the server has no request of the dead worker left: a reply to one would count as paid.
    """

    def in_progress() -> dict[int, set[int]]:
        held = {pid: ports_of(pid) & server.clients for pid in worker_pids()}
        return {pid: ports for pid, ports in held.items() if ports}

    await until(lambda: server.free == 0 and written() and len(in_progress()) == 2, running)
    paid = sum(server.paid.values())
    victim = max(in_progress().items(), key=lambda each: len(each[1]))[0]
    os.kill(victim, signal.SIGSTOP)  # so that it cannot open another connection meanwhile
    ports = ports_of(victim)
    lost = len(ports & server.clients)
    os.kill(victim, signal.SIGKILL)
    await until(lambda: not ports_of(victim) and not ports & server.clients, running)
    assert sum(server.paid.values()) == paid
    return lost
