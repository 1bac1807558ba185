"""Measure the speed of the store: writing, and reading with many traces.

    python scripts/benchmarks/bench_store.py [--rows 100000] [--url FILE_OR_POSTGRES_URL]

Writes records with 300 tokens per candidate through the queue, fills the store up to --rows, and measures a list, the
dashboard and a key check.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from odar.config import load_settings
from odar.serving.keys import create_key
from odar.serving.store import Store
from odar.traces import writer
from odar.traces.filter import Filter
from odar.traces.record import Record
from odar.traces.writer import make_row, write_rows
from support.traces import make_answer, make_record

REPEATS = 15


def timed(name: str, work: Callable[[], object]) -> None:
    """Print the median and the worst of some runs."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    print(f"{name:<44} {statistics.median(times) * 1e3:8.2f} ms   worst {max(times) * 1e3:8.2f} ms")


async def writing(store: Store) -> None:
    """Through the queue, as a server does."""
    text = "word " * 299 + "4"
    records = [make_record(text=text) for _ in range(2000)]
    put = []
    wall, cpu = time.perf_counter(), time.process_time()
    for record in records:
        started = time.perf_counter()
        store.put(record)
        put.append(time.perf_counter() - started)
        await asyncio.sleep(0)
    await store.flush()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    put.sort()
    print(f"put: median {put[1000] * 1e6:.1f} µs, p99 {put[1980] * 1e6:.1f} µs; shed {store.health().dropped}")
    print(f"written: {2000 / wall:,.0f} traces/s, {cpu / 2000 * 1e6:.0f} µs CPU each (2 candidates of 300 tokens)")


def fill(store: Store, rows: int, key: str) -> None:
    """Straight into the tables, a month of traces."""
    rng = random.Random(0)
    now = datetime.now(UTC)
    for start in range(0, rows, 1000):
        batch = []
        for i in range(start, min(start + 1000, rows)):
            d = rng.random()
            path = "simple" if d < 0.41 else "medium" if d < 0.76 else "hard"
            answer = make_answer(
                path,
                difficulty=d,
                seconds=rng.lognormvariate(0, 1),
                cost=None if rng.random() < 0.1 else rng.random() / 100,
                started_at=(now - timedelta(days=29 * (1 - i / rows))).isoformat(timespec="milliseconds"),
                models=("rare", "dear") if rng.random() < 1e-4 else ("cheap", "dear"),
                degradations=("slow agent: down",) if rng.random() < 0.01 else (),
            )
            record = Record(make_record().query, answer.trace, key if rng.random() < 0.3 else None)
            batch.append(make_row(record, content=store.settings.content))
        with store._database.write() as connection:
            write_rows(connection, batch)


def size(file: str) -> float:
    """The size of the store in megabytes."""
    return Path(file).stat().st_size / 2**20


async def main() -> None:
    """Write, fill, read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--url")
    parser.add_argument("--content", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"{folder}/odar.db"
        settings = load_settings("tiny", config="/dev/null", environ={})
        settings = replace(settings, store=replace(settings.store, url=url, content=given.content))
        writer.MAX_QUEUED_BYTES = 1 << 30
        store = Store(settings)
        await writing(store)
        key, secret = create_key(
            store._database, f"bench {time.time()}", budget_day_usd=1e9, budget_month_usd=1e9, rate_per_min=1e9
        )
        fill(store, given.rows, key.id)
        if store._database.is_sqlite:
            print(f"{given.rows:,} traces, {size(url):,.0f} MB")
        archive = store.archive
        first = archive.page(limit=1)["traces"][0]
        middle = (datetime.now(UTC) - timedelta(days=15)).isoformat(timespec="milliseconds") + "_0"
        timed("page of 50, newest", lambda: archive.page())
        timed("page of 50, from the middle", lambda: archive.page(after=middle))
        timed("page, path = hard", lambda: archive.page(Filter(path="hard")))
        timed("page, one key", lambda: archive.page(Filter(key=key.id)))
        timed("page, degraded and dear", lambda: archive.page(Filter(degraded=True, min_cost=0.009)))
        timed("page, a model that is rare", lambda: archive.page(Filter(model="rare")))
        timed("page, a text that is nowhere", lambda: archive.page(Filter(text="zanzibar")))
        timed("one trace by prefix", lambda: archive.get(archive.full_id(first["id"][:12])))
        timed("overview of everything", lambda: archive.overview())
        day = (datetime.now(UTC) - timedelta(days=1)).isoformat()
        timed("overview of a day", lambda: archive.overview(Filter(since=day)))
        store._version = None
        store._refresh_keys()
        timed("news of keys and spending", store._refresh_keys)
        timed(
            "1,000 × verify",
            lambda: [store.key_cache.verify(secret) for _ in range(1000)],
        )
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
