"""A local model server for the pages, in place of OpenAI, Anthropic, Ollama and vLLM."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.payloads import chat_events, chat_payload, logprob_entries, message_events, message_payload

MODELS = ("gpt-5.1", "qwen3:4b", "Qwen/Qwen3-4B", "Qwen/Qwen3-32B", "deepseek-v4-flash")
"""Models of the pages that run `odar doctor`, which asks for the list."""
FACTS = {"capital of France": "Paris", "months": "7", "legs": "8"}


class Handler(BaseHTTPRequestHandler):
    """Chat completions and messages, whole or streamed; a list of models; a collector of spans."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": name} for name in MODELS]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.endswith("/chat/completions"):
            self._chat(json.loads(body))
        elif self.path.endswith("/messages"):
            asked = json.loads(body)
            text = answer_to(asked)
            self._events(message_events(text)) if asked.get("stream") else self._send(message_payload(text))
        else:
            self._send({})

    def _chat(self, asked: dict[str, Any]) -> None:
        text, n, logprobs = answer_to(asked), asked.get("n", 1), asked.get("logprobs")
        tokens = logprob_entries(text, -0.05 - 0.01 * (asked.get("seed", 0) % 7)) if logprobs else None
        if asked.get("stream"):
            self._events([*chat_events(text, tokens), "[DONE]"])
        else:
            self._send(chat_payload(*[text] * n, tokens=tokens if logprobs else []))

    def _send(self, payload: Any) -> None:
        data = json.dumps(payload).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _events(self, events: list[Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            self.wfile.write(f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode())
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def answer_to(asked: dict[str, Any]) -> str:
    """An answer in the form that every step's prompt asks for."""
    turns = [message["content"] for message in asked["messages"] if message["role"] == "user"]
    question = json.dumps(turns[-2:])  # a verifier's draft may follow the question
    if found := re.findall(r"(\d+) \+ (\d+)", question):
        answer = str(sum(map(int, found[-1])))
    else:
        answer = next((fact for words, fact in FACTS.items() if words in question), "yes")
    return f"Judgment: CORRECT\nAnswer: {answer}"


@contextmanager
def page_upstream() -> Iterator[str]:
    """Yield the origin of the running server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
