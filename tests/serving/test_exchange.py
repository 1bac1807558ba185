from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from odar.serving.exchange import Exchange


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_request_that_took_long_leaves_no_reference_cycle(monkeypatch, no_collector):
    monkeypatch.setattr("odar.serving.exchange.WATCH_AFTER_S", 0.0)
    watched = asyncio.Event()

    async def receive():
        watched.set()
        return await asyncio.Future()

    async def send(message):
        raise AssertionError(message)

    exchange = Exchange({"headers": []}, receive, send, "1")
    left = weakref.ref(exchange)
    with exchange.cancel_on_disconnect():
        await watched.wait()
    del exchange
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
    assert left() is None
