"""Responses of all protocols: the choices, headers and `odar` object of an answer, and event streams."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from odar.agents.measure import size_of
from odar.background import run_by_size
from odar.conversation import ToolCall
from odar.formats import dump_json
from odar.policy.base import STOP
from odar.providers.base import Delta
from odar.serving.errors import SHUTDOWN_TIMEOUT, ApiError, api_error_of, openai_body
from odar.serving.exchange import EVENT_STREAM_HEADERS, ClientLeft, Exchange, Headers
from odar.serving.protocols.chat_request import ChatRequest
from odar.traces.record import Record, to_document
from odar.traces.story import tell_story
from odar.types import Answer, Candidate, Decision, Plan, Spend, path_name

_PIECE = re.compile(r"(?s).{1,23}\S*\s*")
"""A few words of a text."""


def thinking_of(candidate: Candidate) -> str:
    """The thinking of a model, if its server reports it."""
    value = candidate.wire.value if candidate.wire is not None else {}
    message = value.get("message") or {}
    if thinking := message.get("reasoning_content") or message.get("reasoning"):
        return str(thinking)
    blocks = value.get("content") or ()
    thinking = (b.get("thinking") for b in blocks if isinstance(b, dict) and b.get("type") == "thinking")
    return "".join(text for text in thinking if isinstance(text, str))


def openai_usage(spend: Spend, read: str = "prompt", written: str = "completion") -> dict[str, Any] | None:
    """Tokens and cost of all calls in OpenAI's formats; None if a provider did not report its tokens."""
    usage = spend.usage
    if usage.input is None or usage.output is None:
        return None
    return {
        f"{read}_tokens": usage.input,
        f"{written}_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        f"{read}_tokens_details": {"cached_tokens": usage.cached},
        f"{written}_tokens_details": {"reasoning_tokens": usage.reasoning},
        "cost": spend.cost_usd,
    }


def plan_headers(plan: Plan | None, decisions: Sequence[Decision], trace_id: str) -> list[tuple[bytes, bytes]]:
    """The headers that are known before the answer; the path only if no other stage can follow."""
    if plan is None:
        return []
    headers = [(b"x-odar-trace", trace_id.encode()), (b"x-odar-difficulty", b"%.4f" % plan.estimate.difficulty)]
    last = decisions[-1]
    if last.final or last.stage is None:
        headers.append((b"x-odar-path", path_name(plan, decisions).encode()))
    return headers


def spend_headers(spend: Spend) -> list[tuple[bytes, bytes]]:
    cost = b"unknown" if spend.cost_usd is None else b"%.6f" % spend.cost_usd
    return [(b"x-odar-calls", b"%d" % spend.calls), (b"x-odar-cost-usd", cost)]


def answer_headers(answer: Answer) -> list[tuple[bytes, bytes]]:
    trace = answer.trace
    headers = plan_headers(trace.plan, trace.decisions, trace.id) + spend_headers(trace.spend)
    if answer.degraded:
        headers.append((b"x-odar-degraded", b"true"))
    return headers


def sse_event(data: Any, name: str = "") -> bytes:
    """A server-sent event.

    >>> sse_event({"type": "ping"}, "ping")
    b'event: ping\\ndata: {"type":"ping"}\\n\\n'
    """
    head = b"event: %b\n" % name.encode() if name else b""
    return b"%bdata: %b\n\n" % (head, dump_json(data))


KEEPALIVE_S = 5.0
"""Seconds between keep-alive events in a stream that has no text yet."""
_MAX_UNREAD = 4_000_000
"""Size of the queue for a slow client, in characters; far more than a model writes at once."""
_PIECE_OVERHEAD = 200
"""Size of a piece in addition to its text."""


class ReplyWriter(ABC):
    """Writes the answer to one request in the client's protocol: as JSON, or as a stream of events."""

    error_body: Callable[[ApiError], dict[str, Any]] = staticmethod(openai_body)
    """Returns an error that is sent instead of an answer."""

    def __init__(self, request: ChatRequest, trace_id: str) -> None:
        self._request = request
        self._trace_id = trace_id
        self._created = int(time.time())

    @abstractmethod
    def body(self, answer: Answer) -> dict[str, Any]:
        """The whole answer."""

    @abstractmethod
    def keep_alive(self) -> bytes:
        """The event or comment that keeps an idle connection open."""

    def begin(self) -> bytes:
        """The events before the first piece."""
        return b""

    @abstractmethod
    def piece(self, piece: Delta) -> bytes:
        """The events of a piece of the answer."""

    @abstractmethod
    def end(self, answer: Answer, *, answered: bool = False) -> bytes:
        """The remaining events: the answer if it is not `answered` yet, finish reason and usage."""

    @abstractmethod
    def error_event(self, api_error: ApiError) -> bytes:
        """The event of an error after the stream has begun."""

    def tool_calls(self, candidate: Candidate) -> list[ToolCall]:
        """The tool calls; missing ids are filled in, always in the same way."""
        calls = enumerate(candidate.tool_calls)
        return [ToolCall(call.id or f"call_{self._trace_id}_{i}", call.name, call.arguments) for i, call in calls]

    def deltas(self, candidate: Candidate) -> Iterator[Delta]:
        """Yield a finished answer as a stream: its text in pieces of a few words, then its tool calls."""
        yield from map(Delta, _PIECE.findall(candidate.text))
        for call in enumerate(self.tool_calls(candidate)):
            yield Delta(tool_calls=(call,))

    def odar_object(self, answer: Answer) -> dict[str, Any]:
        """The field `odar` of an answer: how it was found, and at what cost."""
        trace = answer.trace
        winner = trace.winner
        reasons = [decision.reason for decision in trace.decisions if decision.reason != STOP]
        fields: dict[str, Any] = {
            "trace_id": trace.id,
            "path": path_name(trace.plan, trace.decisions),
            "stages": [str(decision.stage) for decision in trace.decisions if decision.stage is not None],
            "difficulty": trace.plan.estimate.difficulty,
            "dial": trace.plan.dial,
            "p": trace.decisions[-1].p,
            "reason": reasons[-1] if reasons else "",
            "agent": winner.agent,
            "model": winner.model,
            "rule": trace.verdict.rule,
            "calls": trace.spend.calls,
            "cost_usd": trace.spend.cost_usd,
            "degraded": answer.degraded,
            "degradations": list(trace.degradations),
            "notes": list(trace.notes),
        }
        if trace.plan.session is not None:
            fields["session"] = dataclasses.asdict(trace.plan.session)
        if self._request.odar.explain:
            document = to_document(Record(self._request.query, trace), content=True)
            fields |= {"explanation": document, "story": tell_story(document)}
        return fields


class EventStream:
    """Sends one answer to the client while it is generated, and a keep-alive after `KEEPALIVE_S` idle seconds.

    The status is sent with the first piece, so that an error before it has its own status; `headers` returns what
    is known of the answer then.
    """

    def __init__(self, exchange: Exchange, writer: ReplyWriter, headers: Callable[[], Headers]) -> None:
        self._exchange = exchange
        self._writer = writer
        self._headers = headers
        self._pending: list[Delta] = []
        self._unread = 0
        self._writing = False
        self._answered = False
        """Whether a part of the answer other than thinking has been sent."""
        self._wake_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_delta(self, delta: Delta) -> None:
        self._pending.append(delta)
        self._unread += len(delta.text) + _PIECE_OVERHEAD
        if self._writing and self._unread > _MAX_UNREAD:
            self._exchange.abort()
        if not self._wake_up.done():
            self._wake_up.set_result(None)

    async def send(self, answer: Coroutine[Any, Any, Answer]) -> None:
        """Run `answer` and send its pieces; cancel it if the client leaves.

        Raises:
            ClientLeft: the client has disconnected.
            Exception: `answer` failed; a stream that had begun was ended with the error.
        """
        work = asyncio.ensure_future(answer)
        try:
            with self._exchange.cancel_on_disconnect():
                await self._send_pieces(work)
            result = work.result()
            await self._send_head()
            write_end = partial(self._writer.end, result, answered=self._answered)
            end = await run_by_size(size_of(result.trace.candidates), write_end)
            await self._exchange.write(end, more=False)
        except Exception as error:
            if not self._exchange.status or isinstance(error, ClientLeft):
                raise
            api_error = api_error_of(error)
            await self._exchange.write(self._writer.error_event(api_error), more=False)
            self._exchange.status = api_error.status  # for the record: 200 was sent
            raise
        except asyncio.CancelledError:
            if self._exchange.status:
                await self._exchange.write(self._writer.error_event(SHUTDOWN_TIMEOUT), more=False)
            raise
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            del work  # the traceback of its error refers to this frame: break the reference cycle

    async def _send_pieces(self, work: asyncio.Future[Answer]) -> None:
        while not work.done() or self._pending:
            if self._pending:
                await self._send_head()
                pieces, self._pending, self._unread = self._pending, [], 0
                self._answered = self._answered or any(piece.text or piece.tool_calls for piece in pieces)
                self._writing = True
                await self._exchange.write(b"".join(map(self._writer.piece, pieces)))
                self._writing = False
                continue
            events: set[asyncio.Future[Any]] = {work, self._wake_up}
            done, _ = await asyncio.wait(events, timeout=KEEPALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if self._wake_up.done():
                self._wake_up = asyncio.get_running_loop().create_future()
            if not done:
                await self._send_head()
                await self._exchange.write(self._writer.keep_alive())

    async def _send_head(self) -> None:
        if not self._exchange.status:
            await self._exchange.start(200, [*EVENT_STREAM_HEADERS, *self._headers()])
            await self._exchange.write(self._writer.begin() + self._writer.keep_alive())
