"""The engine on a real Ray cluster of two nodes on this machine, with real processes that are really killed.

Ray takes 240 MB and is not part of the `dev` extra: where it is not installed these tests are skipped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import OdarError, SettingsError
from odar.recording.batch import Answering, make_items
from odar.recording.cluster import on_ray
from odar.recording.executor import Item, run
from odar.recording.journal import Journal
from odar.recording.limits import rates_of
from odar.recording.questions import load_questions
from support.cluster_work import Deadly, KeepsMuch, Stillborn, keyless
from support.ray_cluster import (
    engine,
    lose_a_worker,
    needs_ray,
    of_ray,
    our_environment,
    ports_of,
    worker_pids,
)
from support.upstream import Upstream, read_jsonl, sums, until, write_jsonl

pytestmark = of_ray


class Batch:
    """A batch in this process, on any engine."""

    def __init__(self, folder, server, count, limits=""):
        server.configure(folder, limits)
        self.folder = folder
        self.settings = load_settings(config=folder / "odar.toml", store__enabled=False)
        questions = load_questions(write_jsonl(folder / "in.jsonl", sums(count)), lambda messages: None)
        self.items = make_items(Odar(self.settings), questions, seed=7)

    async def run(self, out, address=None, **options):
        work = Answering(self.settings, seed=7)
        with Journal(self.folder / out) as journal:
            return await run(self.items, engine(work, address), journal, rates=rates_of(self.settings), **options)


def comparable(path):
    return [{k: v for k, v in row.items() if k not in ("trace_id", "seconds")} for row in read_jsonl(path)]


@needs_ray
async def test_rows_are_those_of_the_local_engine(cluster, tmp_path):
    async with Upstream() as server:
        batch = Batch(tmp_path, server, 9)
        await batch.run("local.jsonl")
        assert set(server.paid.values()) == {1}
        done = await batch.run("ray.jsonl", cluster.address)
        assert (done.done, done.failed) == (9, 0)
        assert set(server.paid.values()) == {2}  # the same requests, seeds and all, once by each engine
        assert comparable(tmp_path / "ray.jsonl") == comparable(tmp_path / "local.jsonl")


@needs_ray
async def test_the_items_of_a_killed_worker_are_done_again_once(cluster, tmp_path):
    """12 questions are 36 calls. Half way one of two workers is killed while both have calls under way."""
    async with Upstream() as server:
        batch = Batch(tmp_path, server, 12)
        server.free = 13
        running = asyncio.create_task(batch.run("out.jsonl", cluster.address, concurrency=6))
        parts = tmp_path / "out.jsonl.parts"
        lost = await lose_a_worker(
            server, running, lambda: parts.exists() and len(parts.read_text().splitlines()) == 13
        )
        assert lost >= 1
        server.free = None
        done = await running
        assert (done.done, done.failed, done.asked) == (12, 0, 12)
        rows = read_jsonl(tmp_path / "out.jsonl")
        assert [(row["id"], row["answer"]) for row in rows] == [(f"q{i}", str(i + 1)) for i in range(12)]
        assert sum(row["calls"] for row in rows) == 36
        assert (len(server.paid), set(server.paid.values())) == (36, {1})
        assert not parts.exists()
        await batch.run("local.jsonl")
        assert comparable(tmp_path / "out.jsonl") == comparable(tmp_path / "local.jsonl")


@needs_ray
async def test_a_kill_at_any_moment_costs_no_more_than_was_under_way(cluster, tmp_path):
    """Replies are on their way all the time: those that had not reached the driver are paid for again, no others."""
    async with Upstream(delay_s=0.05) as server:
        batch = Batch(tmp_path, server, 24)
        running = asyncio.create_task(batch.run("out.jsonl", cluster.address, concurrency=6))
        await until(lambda: sum(server.paid.values()) >= 20, running)
        busiest = max(worker_pids(), key=lambda pid: len(ports_of(pid) & server.clients))
        os.kill(busiest, signal.SIGKILL)
        done = await running
        assert (done.done, done.failed) == (24, 0)
        rows = read_jsonl(tmp_path / "out.jsonl")
        assert [(row["id"], row["answer"]) for row in rows] == [(f"q{i}", str(i + 1)) for i in range(24)]
        assert len(server.paid) == sum(row["calls"] for row in rows) == 72
        assert sum(server.paid.values()) - 72 <= 36  # an item has six calls at the most, and six were under way


@needs_ray
async def test_what_goes_down_with_a_machine_is_done_again(cluster, tmp_path):
    """A part too large to be sent along stays on the worker's machine until it is fetched; that is gone by then."""
    head, machine = cluster.head_node, next(iter(cluster.worker_nodes))
    opened = on_ray(KeepsMuch(tmp_path), cluster.address, 2)
    with Journal(tmp_path / "out.jsonl") as journal:
        running = asyncio.create_task(run([Item(name, None) for name in "abcd"], opened, journal))
        try:
            await until(
                lambda: all((tmp_path / f"at-{node.node_id}").exists() for node in (head, machine)), running
            )
            (tmp_path / "keep").touch()
            while not (tmp_path / f"kept-{machine.node_id}").exists():
                time.sleep(0.02)
        finally:
            cluster.remove_node(machine, allow_graceful=False)
            with our_environment():
                cluster.add_node(num_cpus=1)
        (tmp_path / "end").touch()
        done = await running
        assert (done.done, done.failed) == (4, 0)
        assert machine.node_id not in {row["node"] for row in journal.rows()}


@needs_ray
async def test_an_item_that_kills_its_workers_is_named(cluster, tmp_path):
    opened = on_ray(Deadly("b"), cluster.address, 1)
    with (
        Journal(tmp_path / "out.jsonl") as journal,
        pytest.raises(OdarError, match="item 'b': its worker was lost 4 times"),
    ):
        await run([Item("a", None), Item("b", None)], opened, journal, concurrency=1)
    with Journal(tmp_path / "out.jsonl") as journal:
        assert set(journal.entries) == {"a"}


@needs_ray
async def test_workers_that_die_before_they_are_ready_are_replaced(cluster, tmp_path):
    """The first three of them, whichever items wait for them: none of these has been asked, so none is to blame."""
    opened = on_ray(Stillborn(tmp_path, 3), cluster.address, 1)
    with Journal(tmp_path / "out.jsonl") as journal:
        done = await run([Item(name, None) for name in "abc"], opened, journal)
    assert (done.done, done.failed) == (3, 0)


@needs_ray
async def test_where_no_worker_can_be_started_it_says_so(cluster, tmp_path):
    opened = on_ray(Stillborn(tmp_path, 100), cluster.address, 1)
    with Journal(tmp_path / "out.jsonl") as journal, pytest.raises(OdarError, match="its worker was lost 4 times"):
        await run([Item("a", None)], opened, journal)


@needs_ray
async def test_a_rate_holds_over_all_workers(cluster, tmp_path):
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
async def test_what_a_worker_lacks_is_said_in_its_own_words(cluster, tmp_path):
    engine = on_ray(keyless, cluster.address, 1)
    with Journal(tmp_path / "out.jsonl") as journal, pytest.raises(SettingsError) as caught:
        await run([Item("a", None)], engine, journal)
    assert str(caught.value) == "provider up needs a key: set UP_KEY"


@needs_ray
@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1:1", "Connection refused"), ("ray://x:1", "Ray Client"), ("x:y", "invalid literal")],
)
async def test_an_address_without_a_cluster_is_named(address, why):
    with pytest.raises(SettingsError, match=rf"no Ray cluster at {address} .*{why}.*--ray-address local"):
        await on_ray(None, address)().__aenter__()


async def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"pip install 'odar\[ray\]'"):
        await on_ray(None)().__aenter__()
