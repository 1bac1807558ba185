"""Attacks on who may ask, what reaches an upstream, and whose money is spent (items 1 to 6)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from attack.scene import Scene, attack

CHAT = "/v1/chat/completions"
TURNS = [{"role": "user", "content": "Question 1: what is 2 + 2?"}]
PRIVATE = ("/v1/models", "/dashboard/api/session", "/dashboard/api/traces", "/dashboard/api/export")
LOCAL = ({}, {"host": "localhost"}, {"host": "127.0.0.1:1"}, {"host": "localhost", "origin": "http://localhost"})
PROXIED = (
    {"x-forwarded-for": "127.0.0.1"},
    {"x-forwarded-host": "localhost"},
    {"forwarded": "for=127.0.0.1;host=localhost"},
    {"via": "1.1 proxy"},
    {"x-real-ip": "127.0.0.1"},
)
PATIENCE_S = 30.0


@attack(1, "the last key is revoked", keys={"only": ()}, healthy=False, brief=True, arguments=("--host", "0.0.0.0"))
async def last_key_revoked(scene: Scene) -> None:
    """The only key is revoked while the gateway runs; nobody may be let in without a key."""
    await _ask_with_key(scene, "only", 200)
    await scene.odar("keys", "revoke", "only")
    await _until(lambda: _refused(scene, "only"), "the revoked key still works")
    await _check_closed(scene)


@attack(1, "the database of keys is emptied", keys={"only": ()}, healthy=False, brief=True)
async def keys_emptied(scene: Scene) -> None:
    """The rows of the key table vanish, then the table; nobody may be let in, with the old key or without."""
    await _ask_with_key(scene, "only", 200)
    for statement in ("DELETE FROM keys", "DROP TABLE keys"):
        with contextlib.closing(sqlite3.connect(scene.folder / "traces.db", timeout=30)) as database, database:
            database.execute(statement)
        await _until(lambda: _refused(scene, "only"), f"the key still works after {statement}")
        await _check_closed(scene)


@attack(1, "the database is replaced", keys={"only": ()}, healthy=False, brief=True)
async def database_replaced(scene: Scene) -> None:
    """Another database takes the file's name, then no file has it; the old key is refused, and so is no key."""
    await _ask_with_key(scene, "only", 200)
    file = scene.folder / "traces.db"
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    await _until(lambda: _refused(scene, "only"), "the key of a deleted database still works")
    await _check_closed(scene)
    await scene.odar("keys", "create", "only")  # makes a new database, with a key of the same name
    await asyncio.sleep(2)
    await _ask_with_key(scene, "only", 401)
    await _check_closed(scene)


@attack(1, "requests through a proxy, without keys", brief=True)
async def proxied(scene: Scene) -> None:
    """No key exists, and a proxy on this machine forwards strangers with `Host: localhost`; they are not local."""
    for headers in PROXIED:
        status, _ = await scene.post(CHAT, {"model": "odar-simple", "messages": TURNS}, headers=headers)
        scene.check(status == 403, f"{headers} was answered with {status}")
        for path in (*PRIVATE, "/metrics"):
            status = await _get(scene, path, headers)
            scene.check(status in (401, 403), f"GET {path} with {headers} was answered with {status}")


async def _check_closed(scene: Scene) -> None:
    for headers in (*LOCAL, *PROXIED):
        for model in ("odar", "quick"):
            status, _ = await scene.post(CHAT, {"model": model, "messages": TURNS}, headers=headers)
            scene.check(status == 401, f"POST {CHAT} with {headers} and no key was answered with {status}")
        for path in PRIVATE:
            status = await _get(scene, path, headers)
            scene.check(status == 401, f"GET {path} with {headers} and no key was answered with {status}")
    scene.say("nobody is let in")


async def _refused(scene: Scene, name: str) -> bool:
    return await _get(scene, "/v1/models", scene.auth(name)) == 401


async def _ask_with_key(scene: Scene, name: str, expected: int) -> None:
    status, text = await scene.post(CHAT, {"model": "odar-simple", "messages": TURNS}, headers=scene.auth(name))
    scene.check(status == expected, f"with key {name}: status {status}, not {expected}: {text[:200]}")


async def _get(scene: Scene, path: str, headers: dict[str, str] | None = None) -> int:
    async with scene.http.get(scene.url + path, headers=headers) as response:
        await response.read()
        return response.status


async def _until(happened: Callable[[], Awaitable[Any]], problem: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await happened():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(problem) from None
