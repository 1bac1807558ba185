from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from odar.serving.exchange import CancelOnDisconnect, Exchange


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_request_that_took_long_leaves_no_reference_cycle(monkeypatch, no_collector):
    monkeypatch.setattr(CancelOnDisconnect, "DELAY_S", 0.0)
    watched = asyncio.Event()

    async def receive():
        watched.set()
        return await asyncio.Future()

    async def send(message):
        raise AssertionError(message)

    listening = CancelOnDisconnect(Exchange({"headers": []}, receive, send))
    left = weakref.ref(listening)
    with listening:
        await watched.wait()
    del listening
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
    assert left() is None
