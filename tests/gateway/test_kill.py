"""`kill -9` under load: what was flushed is there, and the store opens (SPEC: a trace once acknowledged survives)."""

from __future__ import annotations

import asyncio
import sqlite3
import time

import aiohttp

from support.fault_server import FaultServer, ok
from support.gateway import turn
from support.gateway_process import Process

FLUSH_S = 0.2
ROOM_S = 2.0
"""What a busy machine may add to the flush interval."""


async def test_a_killed_gateway_keeps_what_it_had_flushed(tmp_path):
    store = tmp_path / "traces.db"
    acknowledged: dict[str, float] = {}
    async with FaultServer() as up, aiohttp.ClientSession() as http:
        up.behave(ok("It is four."))
        gateway = await Process.start(
            tmp_path, up, "--set", f"store.url={store}", "--set", f"store.flush_interval_s={FLUSH_S}"
        )

        async def client() -> None:
            body = {"model": "odar-simple", "messages": turn()}
            while True:
                try:
                    async with http.post(gateway.url + "/v1/chat/completions", json=body) as response:
                        assert response.status == 200
                        acknowledged[response.headers["x-odar-trace"]] = time.monotonic()
                except aiohttp.ClientError:
                    return  # killed

        clients = [asyncio.create_task(client()) for _ in range(16)]
        async with asyncio.timeout(60):
            while len(acknowledged) < 20:  # the first one loads the parser
                await asyncio.sleep(0.05)
        await asyncio.sleep(FLUSH_S + ROOM_S)
        killed_at = time.monotonic()
        gateway.process.kill()
        await gateway.process.communicate()  # its log fills the pipe
        async with asyncio.timeout(60):
            await asyncio.gather(*clients)

    with sqlite3.connect(store) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        kept = {row[0] for row in connection.execute("SELECT id FROM traces")}
        documents = connection.execute("SELECT count(*) FROM documents").fetchone()[0]
    connection.close()
    due = {trace for trace, at in acknowledged.items() if at < killed_at - FLUSH_S - ROOM_S}
    assert due, "the load was too short to say anything"
    assert due <= kept
    assert documents == len(kept), "a trace and its document are written together or not at all"
