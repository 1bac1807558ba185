"""An upstream that answers every chat completion at once, or after a delay: `python qa/load/stub_upstream.py PORT DELAY_S`.

It runs in its own process and does as little work as possible, so that the gateway in front of it is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")
_TOKEN = {"token": "four", "logprob": -0.1, "bytes": [102, 111, 117, 114], "top_logprobs": []}
_CHOICE = {
    "index": 0,
    "message": {"role": "assistant", "content": "The answer is four, as far as a stub can tell."},
    "finish_reason": "stop",
    "logprobs": {"content": [_TOKEN] * 12},
}
REPLY = json.dumps(
    {
        "id": "stub",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "choices": [_CHOICE],
        "usage": {"prompt_tokens": 24, "completion_tokens": 12, "total_tokens": 36},
    }
).encode()
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(REPLY), REPLY)


class Stub(asyncio.Protocol):
    """One connection."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        """Answer every whole request."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            if self._delay_s:
                asyncio.get_running_loop().call_later(self._delay_s, self._answer)
            else:
                self._answer()

    def _answer(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_ANSWER)


async def serve(port: int, delay_s: float) -> None:
    """Listen until the end of standard input, which is the end of whoever started this."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stub(delay_s), "127.0.0.1", port)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def run_fast(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on uvloop if it is installed.

    >>> run_fast(asyncio.sleep(0, "done"))
    'done'
    """
    try:
        from uvloop import new_event_loop
    except ImportError:  # Windows
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


if __name__ == "__main__":
    run_fast(serve(int(sys.argv[1]), float(sys.argv[2])))
