"""A local server with the part of the Hugging Face API that downloads of datasets need."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

SHA = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub_server(datasets: dict[tuple[str, str], dict[str, bytes]], gated: tuple[str, ...] = ()) -> Iterator[str]:
    """Serves the files of (dataset, branch); gives its address. Files of a gated dataset are refused."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            name = "/".join(parts[2:4] if parts[0] == "api" else parts[1:3])
            branches = {branch: files for (known, branch), files in datasets.items() if known == name}
            if parts[:2] == ["api", "datasets"] and branches:
                self._api(name, parts[4], "/".join(parts[5:]), branches)
            elif parts[0] == "datasets" and branches:
                self._file(name, "/".join(parts[5:]), branches)
            else:
                self._refuse(404, "RepoNotFound")

        do_HEAD = do_GET

        def _api(self, name: str, verb: str, rest: str, branches: dict[str, dict[str, bytes]]) -> None:
            if verb == "revision" and rest in branches:
                self._json({"_id": "x", "id": name, "sha": SHA, "siblings": []})
            elif verb == "tree":
                files = next(iter(branches.values()))
                self._json([{"type": "file", "path": p, "size": len(d), "oid": etag(d)} for p, d in files.items()])
            else:
                self._refuse(404, "RevisionNotFound")

        def _file(self, name: str, path: str, branches: dict[str, dict[str, bytes]]) -> None:
            if name in gated:
                self._refuse(403, "GatedRepo")
                return
            data = next(iter(branches.values()))[path]
            self.send_response(200)
            self.send_header("ETag", f'"{etag(data)}"')
            self.send_header("X-Repo-Commit", SHA)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def _json(self, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def etag(data: bytes) -> str:
    """Return the etag of a file."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
