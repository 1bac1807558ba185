"""`kill -9` under load: flushed traces survive and the store opens (SPEC: an acknowledged trace survives)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import aiohttp

from support.fault_server import FaultServer, ok
from support.gateway import turn
from support.gateway_process import Process
from support.waiting import until


def traces_in(store: Path) -> set[str]:
    with closing(sqlite3.connect(store, timeout=60)) as connection:
        return {row[0] for row in connection.execute("SELECT id FROM traces")}


async def test_flushed_traces_survive_a_killed_gateway(tmp_path):
    store = tmp_path / "traces.db"
    acknowledged: set[str] = set()
    async with FaultServer() as up, aiohttp.ClientSession() as http:
        up.behave(ok("It is four."))
        constants = {"odar.traces.writer": "FLUSH_INTERVAL_S = 0.2"}
        gateway = await Process.start(tmp_path, up, "--set", f"store.url={store}", constants=constants)

        async def client() -> None:
            body = {"model": "odar-simple", "messages": turn()}
            while True:
                try:
                    async with http.post(gateway.url + "/v1/chat/completions", json=body) as response:
                        assert response.status == 200
                        acknowledged.add(response.headers["x-odar-trace"])
                except aiohttp.ClientError:
                    return  # killed

        clients = [asyncio.create_task(client()) for _ in range(16)]
        await until(lambda: len(acknowledged) >= 20)  # the first one loads the parser
        due = frozenset(acknowledged)
        await until(lambda: due <= traces_in(store))  # flushed, while more requests come in
        gateway.process.kill()
        await gateway.process.communicate()  # its log fills the pipe
        async with asyncio.timeout(60):
            await asyncio.gather(*clients)

    kept = traces_in(store)
    assert due <= kept
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        documents = connection.execute("SELECT count(*) FROM documents").fetchone()[0]
    assert documents == len(kept), "a trace and its document are written together or not at all"
