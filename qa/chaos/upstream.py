"""A model server that counts every request and every token it was asked for, question by question.

Its books are what the gateway's ledger is compared with: it knows nothing of the gateway but what came in.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from support.fault_server import Behaviour, Exchange, FaultServer
from support.payloads import chat_events, chat_payload

_QUESTION = re.compile(rb"Question (\d+):")
_TEXT = "It is so. Judgment: CORRECT\nAnswer: 4"


@dataclass(slots=True)
class Tally:
    """What one question cost the server."""

    requests: int = 0
    """Requests that arrived, whatever became of them."""
    choices: int = 0
    """Answers that were sent whole."""
    tokens: int = 0
    """Tokens of the replies that were sent whole, as they were told to the client."""


class CountingUpstream(FaultServer):
    """Answers after a moment, unless it is told to misbehave; keeps its books either way."""

    def __init__(self, delay_s: float = 0.02, seed: int = 0) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.books: dict[int, Tally] = defaultdict(Tally)
        self._delay_s = delay_s
        self._port = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self.misbehave(None)

    def misbehave(self, fault: Behaviour | None) -> None:
        """Use this behaviour for every request; None restores normal answers."""
        wanted = fault or self.answer_normally

        async def booked(exchange: Exchange) -> None:
            self.requests.clear()  # the books are enough: minutes of load would fill the memory
            self._connections.add(exchange._writer)
            if exchange.method == "GET":  # the gateway asks which models there are
                await exchange.send(b'{"object": "list", "data": []}')
                return
            self.books[number_of(exchange)].requests += 1
            await wanted(exchange)

        self.behave(booked)

    async def answer_normally(self, exchange: Exchange, *, logprobs: bool = True, every_s: float = 0.0) -> None:
        """Send a correct answer with the requested choices, streamed on request; `every_s` is the pause between pieces."""
        asked, number = exchange.json, number_of(exchange)
        await asyncio.sleep(self._delay_s * self.rng.uniform(0.5, 2))
        count = asked.get("n", 1)
        # Every question has another cost, so that a reply counted for another question is noticed.
        usage = {"prompt_tokens": 10 + number % 17, "completion_tokens": 5 * count + number % 5}
        if asked.get("stream"):
            events = chat_events(_TEXT)
            events[-1]["usage"] = usage
            await _send_events(exchange, events if logprobs else _bare_events(events), every_s)
            self._book(number, count, sum(usage.values()))
            await exchange.chunk(b"")
        else:
            payload = chat_payload(*[_TEXT] * count, usage=usage)
            await _send(exchange, json.dumps(payload if logprobs else _bare(payload)).encode(), every_s)
            self._book(number, count, sum(usage.values()))

    def _book(self, number: int, choices: int, tokens: int) -> None:
        self.books[number].choices += choices
        self.books[number].tokens += tokens

    async def stop_listening(self) -> None:
        """Close every connection and refuse new ones."""
        assert self._server is not None
        self._port = self._port or self._server.sockets[0].getsockname()[1]
        self._server.close()
        self.close_connections()

    async def listen_again(self) -> None:
        """Listen again on the same port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    def close_connections(self) -> None:
        """Close every connection, so that pools of clients drop them."""
        for writer in self._connections:
            writer.transport.abort()
        self._connections.clear()


def number_of(exchange: Exchange) -> int:
    """Return the number of the question of this request, or -1."""
    found = _QUESTION.search(exchange.body)
    return int(found.group(1)) if found else -1


async def _send_events(exchange: Exchange, events: list[dict[str, Any]], every_s: float) -> None:
    """Up to [DONE], after which a client may leave at once: what follows must not decide what is booked."""
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", "", ""]
    await exchange.write("\r\n".join(lines).encode())
    for event in events:
        await exchange.chunk(f"data: {json.dumps(event)}\n\n".encode())
        await asyncio.sleep(every_s)
    await exchange.chunk(b"data: [DONE]\n\n")


async def _send(exchange: Exchange, data: bytes, every_s: float) -> None:
    if not every_s:
        await exchange.send(data)
        return
    await exchange.head(200, "application/json", len(data))
    for byte in data:
        await exchange.write(bytes([byte]))
        await asyncio.sleep(every_s)


def _bare(payload: dict[str, Any]) -> dict[str, Any]:
    for choice in payload["choices"]:
        choice.pop("logprobs", None)
    return payload


def _bare_events(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_bare(event) for event in events]
