"""`odar eval collect --engine ray` on a real cluster, with a worker that is really killed."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from dataclasses import replace

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.evals.benchmarks.base import BENCHMARKS, NAMES
from odar.evals.selection import plan
from odar.recording.collect import Job, collect_work, make_items
from odar.recording.executor import run
from odar.recording.files import open_recording
from odar.recording.header import header_of
from odar.recording.journal import Journal
from odar.recording.work import WithEngine
from support.benchmarks import Sums
from support.ray_cluster import engine, lose_a_worker, needs_ray, of_ray
from support.upstream import Upstream

pytestmark = of_ray
CALLS = 7
"""An item is answered, verified, and solved five times."""


class Panel:
    """A collection in this process, on any engine."""

    def __init__(self, folder, server, items, limits=""):
        server.configure(folder, limits)
        self.folder = folder
        self.settings = load_settings(config=folder / "odar.toml", store__enabled=False)
        sums = Sums(items)
        drawn = plan(list(sums.load()))
        self.jobs = [Job(sums, task, fold, 42) for task, fold in zip(drawn.tasks, drawn.folds, strict=True)]

    async def collect(self, out, address=None, **options):
        opened = engine(WithEngine(self.settings, collect_work), address)
        odar = Odar(self.settings)
        with Journal(self.folder / f"{out}.jsonl", header_of(odar).to_row()) as journal:
            return await run(make_items(odar, self.jobs), opened, journal, **options)

    def entries(self, out):
        return sorted(open_recording(self.folder / f"{out}.jsonl").items(), key=lambda entry: entry.key)


def comparable(entries):
    """All but how long it took."""
    return [
        replace(each, attempts=tuple(replace(attempt, seconds=0.0) for attempt in each.attempts))
        for each in entries
    ]


@needs_ray
async def test_a_panel_is_that_of_the_local_engine(cluster, tmp_path):
    async with Upstream() as server:
        panel = Panel(tmp_path, server, 6)
        await panel.collect("local")
        assert set(server.paid.values()) == {1}
        done = await panel.collect("ray", cluster.address)
        assert (done.done, done.failed) == (6, 0)
        assert (len(server.paid), set(server.paid.values())) == (6 * CALLS, {2})  # once by each engine
        assert comparable(panel.entries("ray")) == comparable(panel.entries("local"))


@needs_ray
async def test_the_items_of_a_killed_worker_are_done_again_exactly_once(cluster, tmp_path):
    """8 items are 56 calls. After 19 replies one of two workers is killed while both have calls under way."""
    async with Upstream() as server:
        panel = Panel(tmp_path, server, 8)
        server.free = 19
        running = asyncio.create_task(panel.collect("p", cluster.address, concurrency=4))
        parts = tmp_path / "p.jsonl.parts"
        lost = await lose_a_worker(
            server, running, lambda: parts.exists() and parts.read_text().count('"answer":') == 19
        )
        assert lost >= 1
        server.free = None
        done = await running
        assert (done.done, done.failed, done.asked) == (8, 0, 8)
        entries = panel.entries("p")
        assert Counter(entry.key.id for entry in entries) == {str(i): 1 for i in range(8)}  # none lost, none twice
        assert all(len(entry.attempts) == CALLS for entry in entries)
        assert all(each.score == 1 for entry in entries for each in entry.attempts)
        assert (len(server.paid), set(server.paid.values())) == (8 * CALLS, {1})  # none paid twice
        assert not parts.exists()


@pytest.mark.parametrize("name", [*NAMES, "starter+masking"])
def test_every_benchmark_can_be_sent_to_a_worker(name):
    benchmark = BENCHMARKS[name]
    assert pickle.loads(pickle.dumps(benchmark)).name == name
