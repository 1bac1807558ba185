"""Batches on a Ray cluster of two nodes on this machine, with worker processes that are killed.

Ray takes 240 MB and is not part of the `dev` extra: where it is not installed these tests are skipped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from functools import partial

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import OdarError, SettingsError
from odar.lab.recording.questions import load_questions
from odar.lab.runs.batch import make_items, open_batch_work
from odar.lab.runs.cluster import on_ray
from odar.lab.runs.executor import run
from odar.lab.runs.journal import Journal, WorkItem
from odar.lab.runs.limits import rates_of
from support.cluster_work import KeepsLargePart, KillsItsWorker, KillsItsWorkerAtStart, lacks_a_key
from support.ray_cluster import (
    engine,
    kill_a_worker,
    marked_environment,
    needs_ray,
    ports_of,
    ray_marks,
    worker_pids,
)
from support.upstream import Upstream, read_jsonl, sums, until, write_jsonl

pytestmark = ray_marks


class Batch:
    """A batch of questions, run in this process or on the cluster."""

    def __init__(self, folder, server, count, limits=""):
        server.configure(folder, limits)
        self.folder = folder
        self.settings = load_settings(config=folder / "odar.toml", store__enabled=False)
        questions = load_questions(write_jsonl(folder / "in.jsonl", sums(count)), lambda body: None)
        self.items = make_items(Odar(self.settings), questions, seed=7)

    async def run(self, out, address=None, **options):
        work = partial(open_batch_work, self.settings, seed=7)
        with Journal(self.folder / out) as journal:
            return await run(self.items, engine(work, address), journal, rates=rates_of(self.settings), **options)


def comparable(path):
    return [{k: v for k, v in row.items() if k not in ("trace_id", "seconds")} for row in read_jsonl(path)]


@needs_ray
async def test_ray_and_local_engine_write_the_same_rows(cluster, tmp_path):
    async with Upstream() as server:
        batch = Batch(tmp_path, server, 9)
        await batch.run("local.jsonl")
        assert set(server.paid.values()) == {1}
        done = await batch.run("ray.jsonl", cluster.address)
        assert (done.done, done.failed) == (9, 0)
        assert set(server.paid.values()) == {2}  # the same requests, seeds and all, once by each engine
        assert comparable(tmp_path / "ray.jsonl") == comparable(tmp_path / "local.jsonl")


@needs_ray
async def test_items_of_a_killed_worker_are_repeated_without_paying_twice(cluster, tmp_path):
    """12 questions are 36 calls. After 13 replies one of two workers is killed while both have calls in progress."""
    async with Upstream() as server:
        batch = Batch(tmp_path, server, 12)
        server.free = 13
        running = asyncio.create_task(batch.run("out.jsonl", cluster.address, concurrency=6))
        parts = tmp_path / "out.jsonl.parts"
        lost = await kill_a_worker(
            server, running, lambda: parts.exists() and len(parts.read_text().splitlines()) == 13
        )
        assert lost >= 1
        server.free = None
        done = await running
        assert (done.done, done.failed, done.asked) == (12, 0, 12)
        rows = read_jsonl(tmp_path / "out.jsonl")
        assert [(row["id"], row["final"]) for row in rows] == [(f"q{i}", str(i + 1)) for i in range(12)]
        assert sum(row["calls"] for row in rows) == 36
        assert (len(server.paid), set(server.paid.values())) == (36, {1})
        assert not parts.exists()
        await batch.run("local.jsonl")
        expected = comparable(tmp_path / "local.jsonl")
        # The lost worker may have paid for calls whose replies were lost with it: the cost of its items is unknown.
        unknown = [row["id"] for row in rows if row["cost_usd"] is None]
        assert 1 <= len(unknown) <= lost
        for row in expected:
            assert row["cost_usd"] is not None
            if row["id"] in unknown:
                row["cost_usd"] = None
        assert comparable(tmp_path / "out.jsonl") == expected


@needs_ray
async def test_killing_a_worker_repeats_only_calls_in_progress(cluster, tmp_path):
    """Only replies that had not reached the driver when the worker died are paid for again."""
    async with Upstream(delay_s=0.05) as server:
        batch = Batch(tmp_path, server, 24)
        running = asyncio.create_task(batch.run("out.jsonl", cluster.address, concurrency=6))
        await until(lambda: sum(server.paid.values()) >= 20, running)
        busiest = max(worker_pids(), key=lambda pid: len(ports_of(pid) & server.clients))
        os.kill(busiest, signal.SIGKILL)
        done = await running
        assert (done.done, done.failed) == (24, 0)
        rows = read_jsonl(tmp_path / "out.jsonl")
        assert [(row["id"], row["final"]) for row in rows] == [(f"q{i}", str(i + 1)) for i in range(24)]
        assert len(server.paid) == sum(row["calls"] for row in rows) == 72
        assert sum(server.paid.values()) - 72 <= 36  # six items were in progress, with at most six calls each


@needs_ray
async def test_items_of_a_lost_node_are_repeated(cluster, tmp_path):
    """A part too large for a message stays on its node until it is fetched, so it is lost with the node."""
    head, machine = cluster.head_node, next(iter(cluster.worker_nodes))
    opened = on_ray(KeepsLargePart(tmp_path), cluster.address, 2)
    with Journal(tmp_path / "out.jsonl") as journal:
        running = asyncio.create_task(run([WorkItem(name, None) for name in "abcd"], opened, journal))
        try:
            await until(
                lambda: all((tmp_path / f"at-{node.node_id}").exists() for node in (head, machine)), running
            )
            (tmp_path / "keep").touch()
            while not (tmp_path / f"kept-{machine.node_id}").exists():
                time.sleep(0.02)
        finally:
            cluster.remove_node(machine, allow_graceful=False)
            with marked_environment():
                cluster.add_node(num_cpus=1)
        (tmp_path / "end").touch()
        done = await running
        assert (done.done, done.failed) == (4, 0)
        assert machine.node_id not in {row["node"] for row in journal.rows(journal.entries)}


@needs_ray
async def test_an_item_that_keeps_killing_its_workers_is_named_in_the_error(cluster, tmp_path):
    opened = on_ray(KillsItsWorker("b"), cluster.address, 1)
    with (
        Journal(tmp_path / "out.jsonl") as journal,
        pytest.raises(OdarError, match="item 'b': its worker was lost 4 times"),
    ):
        await run([WorkItem("a", None), WorkItem("b", None)], opened, journal, concurrency=1)
    with Journal(tmp_path / "out.jsonl") as journal:
        assert set(journal.entries) == {"a"}


@needs_ray
async def test_workers_that_die_before_they_are_ready_are_replaced(cluster, tmp_path):
    """No item is blamed for the first three deaths, because none had been started."""
    opened = on_ray(KillsItsWorkerAtStart(tmp_path, 3), cluster.address, 1)
    with Journal(tmp_path / "out.jsonl") as journal:
        done = await run([WorkItem(name, None) for name in "abc"], opened, journal)
    assert (done.done, done.failed) == (3, 0)


@needs_ray
async def test_workers_that_never_start_are_an_error(cluster, tmp_path):
    opened = on_ray(KillsItsWorkerAtStart(tmp_path, 100), cluster.address, 1)
    with Journal(tmp_path / "out.jsonl") as journal, pytest.raises(OdarError, match="its worker was lost 4 times"):
        await run([WorkItem("a", None)], opened, journal)


@needs_ray
async def test_the_rate_limit_applies_to_all_workers_together(cluster, tmp_path):
    async with Upstream() as server:
        batch = Batch(tmp_path, server, 9, "requests_per_min = 12")
        running = asyncio.create_task(batch.run("out.jsonl", cluster.address))
        await until(lambda: len(server.requests) >= 3, running)
        await asyncio.sleep(3.0)
        assert len(server.requests) <= 12
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@needs_ray
async def test_a_settings_error_on_a_worker_keeps_its_message(cluster, tmp_path):
    engine = on_ray(lacks_a_key, cluster.address, 1)
    with Journal(tmp_path / "out.jsonl") as journal, pytest.raises(SettingsError) as caught:
        await run([WorkItem("a", None)], engine, journal)
    assert str(caught.value) == "provider up needs a key: set UP_KEY"


@needs_ray
@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1:1", "Connection refused"), ("ray://x:1", "Ray Client"), ("x:y", "invalid literal")],
)
async def test_an_address_without_a_cluster_is_an_error(address, why):
    with pytest.raises(SettingsError, match=rf"no Ray cluster at {address} .*{why}.*--ray-address local"):
        await on_ray(None, address)().__aenter__()


async def test_a_missing_ray_package_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"pip install .*\[ray\]'"):
        await on_ray(None)().__aenter__()
