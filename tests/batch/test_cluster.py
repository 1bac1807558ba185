"""The engine on a real Ray cluster of two nodes on this machine, with real processes that are really killed.

Ray takes 240 MB and is not part of the `dev` extra: where it is not installed these tests are skipped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from odar.batch.answering import Answering, make_items
from odar.batch.cluster import RayExecutor
from odar.batch.executor import Item, LocalExecutor, run
from odar.batch.journal import Journal
from odar.batch.limits import rates_of
from odar.batch.questions import load_questions
from odar.config import load_settings
from odar.engine import Odar
from odar.errors import SettingsError
from support.ray_cluster import keyless, needs_ray, two_nodes, worker_pids
from support.upstream import Upstream, read_jsonl, sums, write_jsonl

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as address:
        yield address


class Batch:
    """A batch in this process, on any engine."""

    def __init__(self, folder, server, count, limits=""):
        server.configure(folder, limits)
        self.folder = folder
        self.settings = load_settings(config=folder / "odar.toml", store__enabled=False)
        questions = load_questions(write_jsonl(folder / "in.jsonl", sums(count)), lambda messages: None)
        self.items = make_items(Odar(self.settings), questions, seed=7)

    async def run(self, out, address=None, **options):
        work, rates = Answering(self.settings, seed=7), rates_of(self.settings)
        if address is None:
            engine = lambda: LocalExecutor(work, rates)  # noqa: E731
        else:
            engine = lambda: RayExecutor(work, rates, address=address, workers=2)  # noqa: E731
        with Journal(self.folder / out) as journal:
            return await run(self.items, engine, journal, **options)


def comparable(path):
    return [{k: v for k, v in row.items() if k not in ("trace_id", "seconds")} for row in read_jsonl(path)]


@needs_ray
async def test_rows_are_those_of_the_local_engine(cluster, tmp_path):
    async with Upstream() as server:
        batch = Batch(tmp_path, server, 9)
        await batch.run("local.jsonl")
        assert set(server.paid.values()) == {1}
        done = await batch.run("ray.jsonl", cluster)
        assert (done.done, done.failed) == (9, 0)
        assert set(server.paid.values()) == {2}  # the same requests, seeds and all, once by each engine
        assert comparable(tmp_path / "ray.jsonl") == comparable(tmp_path / "local.jsonl")


@needs_ray
async def test_the_items_of_a_killed_worker_are_done_again_once(cluster, tmp_path):
    """12 questions are 36 calls. Half way one of two workers is killed while calls are under way."""
    async with Upstream() as server:
        batch = Batch(tmp_path, server, 12)
        server.free = 13
        running = asyncio.create_task(batch.run("out.jsonl", cluster, concurrency=6))
        parts = tmp_path / "out.jsonl.parts"
        async with asyncio.timeout(60):
            while not (parts.exists() and server.free == 0 and len(parts.read_text().splitlines()) == 13):
                await asyncio.sleep(0.02)
        workers = worker_pids()
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        while server.busy == server.most_busy:  # its connections go down with it
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # all of them: a reply into a closed one would count as paid
        assert sum(server.paid.values()) == 13
        server.free = None
        done = await running
        assert (done.done, done.failed, done.asked) == (12, 0, 12)
        rows = read_jsonl(tmp_path / "out.jsonl")
        assert [(row["id"], row["answer"]) for row in rows] == [(f"q{i}", str(i + 1)) for i in range(12)]
        assert sum(row["calls"] for row in rows) == 36
        assert (len(server.paid), set(server.paid.values())) == (36, {1})
        assert not parts.exists()


@needs_ray
async def test_a_rate_holds_over_all_workers_and_batches(cluster, tmp_path):
    """Two batches on one cluster, two workers each: together they are one client to the provider."""
    async with Upstream() as server:
        server.configure(tmp_path, "requests_per_min = 6")
        write_jsonl(tmp_path / "in.jsonl", sums(9, ("simple",)))
        environ = {**os.environ, "ODAR_STORE_ENABLED": "false", "RAY_ADDRESS": cluster}
        code = "from odar.cli.main import main; main()"
        command = [sys.executable, "-c", code, "batch", "in.jsonl", "OUT", "--yes", "--engine", "ray"]
        batches = [
            await asyncio.create_subprocess_exec(
                *command[:5], f"{out}.jsonl", *command[6:], cwd=tmp_path, env=environ
            )
            for out in "ab"
        ]
        try:
            async with asyncio.timeout(90):
                while len(server.requests) < 5 or not all((tmp_path / f"{out}.jsonl").exists() for out in "ab"):
                    await asyncio.sleep(0.05)
            await asyncio.sleep(3.0)
            # Each question may take two: after five, another could be the seventh.
            assert len(server.requests) == 5
        finally:
            for batch in batches:
                batch.send_signal(signal.SIGINT)
            assert [await batch.wait() for batch in batches] == [130, 130]
        assert sum(len(read_jsonl(tmp_path / f"{out}.jsonl")) for out in "ab") == 5


@needs_ray
async def test_what_a_worker_lacks_is_said_in_its_own_words(cluster, tmp_path):
    engine = lambda: RayExecutor(keyless, address=cluster, workers=1)  # noqa: E731
    with Journal(tmp_path / "out.jsonl") as journal, pytest.raises(SettingsError) as caught:
        await run([Item("a", None)], engine, journal)
    assert str(caught.value) == "provider up needs a key: set UP_KEY"


@needs_ray
@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1:1", "Connection refused"), ("ray://x:1", "Ray Client"), ("x:y", "invalid literal")],
)
def test_an_address_without_a_cluster_is_named(address, why):
    with pytest.raises(SettingsError, match=rf"no Ray cluster at {address} .*{why}.*--ray-address local"):
        RayExecutor(lambda: None, address=address)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"pip install 'odar\[ray\]'"):
        RayExecutor(lambda: None)
