"""Model servers in a thread, for tests of whole commands: OpenAI, Anthropic, Ollama, vLLM and llama.cpp."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.payloads import chat_payload, message_payload

Reply = Callable[[str, str], str]
"""Makes a text of the model's name and the last user turn."""


def vllm_models(*names: str) -> dict[str, Any]:
    """GET /v1/models of vLLM."""
    return {"object": "list", "data": [{"id": n, "owned_by": "vllm", "max_model_len": 8192} for n in names]}


def llamacpp_models(name: str, parameters: int) -> dict[str, Any]:
    """GET /v1/models of llama.cpp's server."""
    return {"object": "list", "data": [{"id": name, "owned_by": "llamacpp", "meta": {"n_params": parameters}}]}


def ollama_pages(sizes: Mapping[str, str]) -> dict[str, Any]:
    """The two lists of models of Ollama; `sizes` are the parameter sizes by name."""
    tags = [{"name": name, "model": name, "details": {"parameter_size": size}} for name, size in sizes.items()]
    data = [{"id": name, "object": "model", "owned_by": "library"} for name in sizes]
    return {"/v1/models": {"object": "list", "data": data}, "/api/tags": {"models": tags}}


class StubServer:
    """Serves pages by GET, and answers OpenAI's and Anthropic's requests by POST."""

    def __init__(self, pages: Mapping[str, Any], reply: Reply) -> None:
        self.requests: list[dict[str, Any]] = []
        """Bodies of the requests for an answer, with the key that was sent."""
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                self._send(200 if page is not None else 404, page or {"error": {"message": "not found"}})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key = self.headers.get("x-api-key") or self.headers.get("authorization", "")
                stub.requests.append({**body, "key": key.removeprefix("Bearer ")})
                text = reply(body["model"], str(body["messages"][-1]["content"]))
                if self.path.endswith("/messages"):
                    self._send(200, message_payload(text))
                else:
                    self._send(200, chat_payload(*[text] * body.get("n", 1)))

            def _send(self, status: int, body: Any) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def run(self) -> None:
        """Serve until `close`."""
        self._server.serve_forever(poll_interval=0.01)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def short_answer(model: str, question: str) -> str:
    """A reply that says who wrote it."""
    return f"{model} says four.\nAnswer: 4"


@contextmanager
def stub_server(pages: Mapping[str, Any] | None = None, reply: Reply = short_answer) -> Iterator[StubServer]:
    """Run a server in a thread."""
    server = StubServer(pages or {}, reply)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
