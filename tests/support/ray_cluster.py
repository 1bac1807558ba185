"""A real Ray cluster of two nodes on this machine, for tests that kill its workers.

Ray takes 240 MB and is not part of the `dev` extra: where it is not installed, tests that need it are skipped.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from odar.errors import SettingsError

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'odar[ray]'")
MARK = f"ODAR_TEST_CLUSTER={uuid.uuid4().hex}"


@contextmanager
def two_nodes() -> Iterator[str]:
    """Two nodes of one CPU each; every process of theirs carries our mark."""
    from ray.cluster_utils import Cluster

    name, value = MARK.split("=")
    tests = str(Path(__file__).parents[1])  # where workers find the benchmark for tests, as if it were installed
    ours = {name: value, "RAY_USAGE_STATS_ENABLED": "0", "ODAR_STORE_ENABLED": "false", "PYTHONPATH": tests}
    before = {key: os.environ.get(key) for key in ours}
    os.environ |= ours
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    for key, was in before.items():
        os.environ.pop(key) if was is None else os.environ.update({key: was})
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def worker_pids() -> list[int]:
    """Processes of our own cluster that run a worker of ours."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            title = (process / "cmdline").read_bytes() if process.name.isdigit() else b""
            if title.startswith(b"ray::_Worker") and MARK.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue  # it has ended
    return found


@asynccontextmanager
async def keyless() -> AsyncIterator[None]:
    """Work that cannot begin on a worker's machine."""
    raise SettingsError("provider up needs a key: set UP_KEY")
    yield
