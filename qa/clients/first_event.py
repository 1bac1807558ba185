"""How soon a stream shows something: each protocol on each path, while every model takes `DELAY_S` to begin."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from clients.programs import CHAT, KEY

DELAY_S = 2.0
PATHS = ("simple", "medium", "hard")
_TURNS = [{"role": "user", "content": CHAT}]
_BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": _TURNS},
    "/v1/responses": {"input": CHAT},
    "/v1/messages": {
        "messages": _TURNS,
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
}


def measure(url: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Seconds to the first visible event and to the first of the answer, by address and path."""
    return {address: {path: _times(url, address, path) for path in PATHS} for address in _BODIES}


def _times(url: str, address: str, path: str) -> tuple[float, float]:
    body = {"model": f"odar-{path}", "stream": True, **_BODIES[address]}
    started, first, answer = time.monotonic(), 0.0, 0.0
    for event in _events(url, address, body):
        shown = _shown(event)
        if shown and not first:
            first = time.monotonic() - started
        if shown == "answer" and not answer:
            answer = time.monotonic() - started
    if not answer:
        raise AssertionError(f"{address} on {path}: no answer")
    return first, answer


def _events(url: str, address: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    connection.request("POST", address, json.dumps(body), headers)
    response = connection.getresponse()
    if response.status != 200:
        raise AssertionError(f"{address}: {response.status} {response.read()[:200]!r}")
    for line in response:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])
    connection.close()


def _shown(event: Mapping[str, Any]) -> str:
    """What a client displays of an event: answer, thinking, or nothing."""
    delta = event.get("delta") or {}
    if choices := event.get("choices"):
        delta = choices[0]["delta"]
        return "answer" if delta.get("content") else "thinking" if delta.get("reasoning_content") else ""
    match event.get("type"):
        case "response.output_text.delta":
            return "answer"
        case "response.reasoning_summary_text.delta":
            return "thinking"
        case "content_block_delta":
            return "answer" if delta.get("text") else "thinking" if delta.get("thinking") else ""
    return ""


def table(found: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """The times in Markdown."""
    lines = [f"| | {' | '.join(PATHS)} |", f"|---|{'---|' * len(PATHS)}"]
    for address, times in found.items():
        cells = [f"{first:.2f} s, answer {answer:.2f} s" for first, answer in (times[path] for path in PATHS)]
        lines.append(f"| `{address}` | {' | '.join(cells)} |")
    return "\n".join(lines)
