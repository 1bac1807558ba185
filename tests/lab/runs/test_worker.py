"""A `RayWorker` in this process: which messages it sends, and in which order; and workers that are lost."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from odar.lab.runs.cluster import RayWorker, _Workers
from odar.lab.runs.executor import WorkResult
from odar.lab.runs.journal import WorkItem

ITEM = WorkItem("a", 1)
DONE = WorkResult({"id": "a", "error": None})


def opens(work):
    """Return work in the form that is sent to a worker; its attribute `closed` says whether it was closed."""

    @asynccontextmanager
    async def opened():
        yield work
        opened.closed = True

    opened.closed = False
    return opened


async def sent_by(work, known=None):
    worker = RayWorker(opens(work))
    return [message async for message in worker.do(ITEM, known or {})]


async def test_parts_kept_while_a_message_is_being_sent_are_not_lost():
    """Ray suspends the generator until a message is sent; the item continues meanwhile and can end."""
    taken, ended = asyncio.Event(), asyncio.Event()

    async def work(item, memo):
        memo.keep("x", 1)
        await taken.wait()
        memo.keep("y", 2)
        memo.keep("z", 3)
        ended.set()
        return DONE

    worker = RayWorker(opens(work))
    messages = []
    async for message in worker.do(ITEM, {}):
        messages.append(message)
        taken.set()
        await ended.wait()
    assert messages == [("x", 1), ("y", 2), ("z", 3), DONE]


async def test_parts_known_to_the_driver_can_be_recalled():
    async def work(item, memo):
        return WorkResult({"id": item.key, "error": None, "found": memo.recall("x")})

    assert (await sent_by(work, {"x": 7}))[0].row["found"] == 7


async def test_kept_parts_are_sent_before_an_exception():
    async def work(item, memo):
        memo.keep("x", 1)
        raise RuntimeError("a bug")

    worker, messages = RayWorker(opens(work)), []
    with pytest.raises(RuntimeError, match="a bug"):
        async for message in worker.do(ITEM, {}):
            messages.append(message)
    assert messages == [("x", 1)]


async def test_an_abandoned_item_is_cancelled():
    ended = asyncio.Event()

    async def work(item, memo):
        memo.keep("x", 1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    worker = RayWorker(opens(work))
    stream = worker.do(ITEM, {})
    assert await anext(stream) == ("x", 1)
    await stream.aclose()
    assert ended.is_set()


async def test_items_run_concurrently():
    both = asyncio.Barrier(2)

    async def work(item, memo):
        await both.wait()
        return DONE

    worker = RayWorker(opens(work))

    async def one():
        return [message async for message in worker.do(ITEM, {})]

    assert await asyncio.wait_for(asyncio.gather(one(), one()), 60) == [[DONE], [DONE]]


async def test_closing_the_worker_closes_its_work():
    async def work(item, memo):
        return DONE

    opened = opens(work)
    worker = RayWorker(opened)
    assert [message async for message in worker.do(ITEM, {})] == [DONE]
    assert not opened.closed
    await worker.close()
    assert opened.closed


LOSSES = (
    *("RayActorError", "ActorUnschedulableError", "ObjectLostError", "WorkerCrashedError", "NodeDiedError"),
    "OutOfMemoryError",
)


class LostOnce(_Workers):
    """Workers of which the first one is lost."""

    def _start(self):
        return object()

    async def _do_on(self, worker, item, memo):
        if worker is self.first:
            raise self.loss
        return DONE


@pytest.mark.parametrize("loss", LOSSES)
async def test_an_item_of_a_lost_worker_is_done_by_another(loss):
    errors = {name: type(name, (Exception,), {}) for name in (*LOSSES, "RayTaskError")}
    killed = []
    workers = LostOnce(SimpleNamespace(exceptions=SimpleNamespace(**errors), kill=killed.append), None, 1)
    workers.first, workers.loss = workers.workers[0], errors[loss]("lost")
    outcome = await workers.do(ITEM, None)
    assert (outcome.row, outcome.lost) == (DONE.row, 1)
    assert killed == [workers.first] and workers.workers != killed
