"""A gateway with a store in its own thread, for browsers and blocking clients."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from odar.config import load_settings
from odar.serving.app import create_app
from odar.serving.dashboard_api import API
from odar.serving.keys import create_key
from odar.serving.service import Service
from odar.serving.store import Store
from odar.traces.database import Database
from odar.traces.record import Record
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


class Reply(NamedTuple):
    """Status, headers and body of a response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Board:
    """A running gateway with its store."""

    url: str
    store: Store
    service: Service

    def get(self, address: str, secret: str | None = None, /, **params: Any) -> Reply:
        """GET /dashboard/api/… with these parameters."""
        query = urllib.parse.urlencode(params)
        return self._send(f"{API}{address}" + (f"?{query}" if query else ""), None, secret, None)

    def post(self, path: str, body: Any, key: str | None = None) -> Reply:
        """POST JSON to any address."""
        return self._send(path, json.dumps(body).encode(), key, {"content-type": "application/json"})

    def ask(self, question: str, key: str | None = None, **extras: Any) -> Reply:
        """Ask as the playground does."""
        turn = {"role": "user", "content": question}
        return self.post("/v1/chat/completions", {"model": "odar", "messages": [turn], "odar": extras}, key)

    def file(self, path: str, **headers: str) -> Reply:
        """GET any address; header names are written with underscores."""
        return self._send(path, None, None, {name.replace("_", "-"): value for name, value in headers.items()})

    def _send(self, path: str, body: bytes | None, key: str | None, headers: dict[str, str] | None) -> Reply:
        given = dict(headers or {}) | ({"authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(self.url + path, body, given)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return Reply(response.status, dict(response.headers), response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, dict(error.headers), error.read())


@contextmanager
def board(
    folder: Path,
    records: Iterable[Record] = (),
    *,
    keys: Iterable[tuple[str, bool]] = (),
    provider: Any = None,
    local: bool = False,
    secrets: dict[str, str] | None = None,
    **overrides: Any,
) -> Iterator[Board]:
    """Serve the dashboard over these records. `keys` are (name, admin); their secrets go into `secrets`."""
    mine: dict[str, Any] = {"store__url": str(folder / "store.db")}
    options: dict[str, Any] = {}
    if not local:
        mine |= {
            "providers": {"p": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}},
            "models": MODELS,
            "fast__model": "quick",
            "slow__model": "deep",
        }
        said = ScriptedProvider(lambda request, index: [completion("It is four.")] * request.n, "p")
        options["providers"] = {"p": provider or said}
    settings = load_settings("tiny", config="/dev/null", environ={}, **(mine | overrides))
    for name, admin in keys:
        database = Database(settings.store)
        _, secret = create_key(database, name, admin=admin)
        database.close()
        if secrets is not None:
            secrets[name] = secret
    store = Store(settings)
    for record in records:
        store.put(record)
    store._writer.flush().result(30)
    app = create_app(settings, store=store, **options)
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
