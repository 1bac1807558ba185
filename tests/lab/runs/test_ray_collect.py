"""`odar eval collect --engine ray` on a local Ray cluster, with a worker that is killed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from odar.config import load_settings
from odar.engine import Odar
from odar.lab.recording.files import open_recording
from odar.lab.recording.header import header_of
from odar.lab.runs.collect import Job, make_items, open_collect_work
from odar.lab.runs.executor import run
from odar.lab.runs.journal import Journal
from odar.lab.selection import select_tasks
from support.benchmarks import sums
from support.ray_cluster import engine, needs_ray, ray_marks
from support.upstream import Upstream

pytestmark = ray_marks
CALLS = 7
"""An item is answered, verified, and solved five times."""


class Panel:
    """A collection of sums, run in this process or on the cluster."""

    def __init__(self, folder, server, items, limits=""):
        server.configure(folder, limits)
        self.folder = folder
        self.settings = load_settings(config=folder / "odar.toml", store__enabled=False)
        source = sums(items)
        drawn = select_tasks(list(source.load()))
        self.jobs = [Job(source, task, fold, 42) for task, fold in drawn]

    async def collect(self, out, address=None, **options):
        opened = engine(partial(open_collect_work, self.settings), address)
        odar = Odar(self.settings)
        with Journal(self.folder / f"{out}.jsonl", header_of(odar).to_row()) as journal:
            return await run(make_items(odar, self.jobs), opened, journal, **options)

    def entries(self, out):
        return sorted(open_recording(self.folder / f"{out}.jsonl").items(), key=lambda entry: entry.key)


def comparable(entries):
    """Return the entries without their durations."""
    return [
        replace(each, attempts=tuple(replace(attempt, seconds=0.0) for attempt in each.attempts))
        for each in entries
    ]


@needs_ray
async def test_ray_and_local_engine_collect_the_same_panel(cluster, tmp_path):
    async with Upstream() as server:
        panel = Panel(tmp_path, server, 6)
        await panel.collect("local")
        assert set(server.paid.values()) == {1}
        done = await panel.collect("ray", cluster.address)
        assert (done.done, done.failed) == (6, 0)
        assert (len(server.paid), set(server.paid.values())) == (6 * CALLS, {2})  # once by each engine
        assert comparable(panel.entries("ray")) == comparable(panel.entries("local"))
