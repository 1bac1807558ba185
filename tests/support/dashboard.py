"""A gateway with a store, in a thread of its own: what a browser, or any client that blocks, can talk to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from odar.config import load_settings
from odar.gateway.app import create_app
from odar.gateway.records import StoredKeys, StoredRecord
from odar.gateway.service import Service
from odar.store.database import Database
from odar.store.keytable import create_key
from odar.store.record import Record
from odar.store.store import Store, open_store
from support.scripted import ScriptedProvider, completion

MODELS = {
    "quick": {
        "provider": "p",
        "logprobs": True,
        "n": True,
        "context": 128000,
        "price": {"input": 0.1, "output": 0.4},
    },
    "deep": {"provider": "p", "logprobs": True, "images": True, "price": {"input": 3, "output": 15}},
}


@dataclass
class Board:
    """A running gateway with its store."""

    url: str
    store: Store
    service: Service


@contextmanager
def board(
    folder: Path,
    records: Iterable[Record] = (),
    *,
    keys: Iterable[tuple[str, bool]] = (),
    provider: Any = None,
    embedded: bool = False,
    secrets: dict[str, str] | None = None,
    **overrides: Any,
) -> Iterator[Board]:
    """Serve the dashboard over these records. `keys` are (name, admin); their secrets go into `secrets`."""
    mine: dict[str, Any] = {"store__url": str(folder / "store.db"), "store__flush_interval_s": 0.05}
    options: dict[str, Any] = {}
    if not embedded:
        mine |= {
            "providers": {"p": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}},
            "models": MODELS,
            "fast__model": "quick",
            "slow__model": "deep",
        }
        said = ScriptedProvider(lambda request, index: [completion("It is four.")] * request.n, "p")
        options["providers"] = {"p": provider or said}
    settings = load_settings("embedded", config="/dev/null", environ={}, **(mine | overrides))
    for name, admin in keys:
        database = Database(settings.store)
        _, secret = create_key(database, name, admin=admin)
        database.close()
        if secrets is not None:
            secrets[name] = secret
    store = open_store(settings)
    for record in records:
        store.put(record)
    store._writer.flush().result(30)
    app = create_app(
        settings, keys=StoredKeys(store), recorder=StoredRecord(store, settings.profile), traces=store, **options
    )
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    try:
        yield Board(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", store, app.state.service)
    finally:
        server.should_exit = True
        thread.join()
