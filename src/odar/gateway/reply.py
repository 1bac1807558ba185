"""What all protocols share in writing an answer: its choices, headers and `odar` object, and the event stream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

from odar.conversation import ToolCall
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import SHUTDOWN_TIMEOUT, ApiError
from odar.gateway.exchange import EVENT_STREAM_HEADERS, ClientLeft, Exchange
from odar.policy.fusion import rank
from odar.providers.base import CallDelta, Delta
from odar.summary import summary
from odar.types import Answer, Candidate, Decision, Path, Role, Spend

_PIECE = re.compile(r"\S+\s*|\s+")
_PIECE_CHARACTERS = 24


def choices(answer: Answer, n: int) -> list[Candidate]:
    """Return the n best candidates, the winner first; fewer where there are no more."""
    candidates = answer.trace.candidates
    if n == 1:
        return [candidates[answer.trace.verdict.winner]]
    return [candidates[i] for i in rank(candidates, answer.trace.verdict)[:n]]


def tool_calls_of(candidate: Candidate, trace_id: str) -> list[ToolCall]:
    """Return the tool calls, each with an id that is the same in a stream, a whole answer and a stored one."""
    calls = enumerate(candidate.tool_calls)
    return [ToolCall(call.id or f"call_{trace_id}_{i}", call.name, call.arguments) for i, call in calls]


def thinking_of(candidate: Candidate) -> str:
    """Return what an Anthropic model thought before it answered, as far as its server shows it."""
    blocks = candidate.wire.value.get("content") if candidate.wire is not None else None
    thoughts = (b.get("thinking") for b in blocks or () if isinstance(b, dict) and b.get("type") == "thinking")
    return "".join(thought for thought in thoughts if isinstance(thought, str))


def deltas_of(candidate: Candidate, trace_id: str) -> Iterator[Delta]:
    """Yield a finished answer as a stream: its text in pieces of a few words, then its tool calls."""
    held = ""
    for match in _PIECE.finditer(candidate.text):
        held += match.group()
        if len(held) >= _PIECE_CHARACTERS:
            yield Delta(held)
            held = ""
    if held:
        yield Delta(held)
    for index, call in enumerate(tool_calls_of(candidate, trace_id)):
        yield Delta(calls=(CallDelta(index, call.id, call.name, call.arguments),))


def extras_of(answer: Answer, request: ChatRequest) -> dict[str, Any]:
    """Return the `odar` object of a response; with `explain`, everything."""
    trace = answer.trace
    short: dict[str, Any] = {
        "trace_id": trace.id,
        "path": trace.decision.path.value,
        "difficulty": trace.decision.difficulty,
        "prior": trace.decision.estimate.difficulty,
        "reason": trace.decision.reason,
        "model": trace.candidates[trace.verdict.winner].model,
        "scorer": trace.verdict.scorer,
        "calls": trace.spend.calls,
        "cost_usd": trace.spend.cost_usd,
        "degraded": answer.degraded,
        "degradations": list(trace.degradations),
    }
    if (use := trace.decision.session) is not None:
        counts = {name: getattr(use, name) for name in ("requests", "switches", "cached_tokens")}
        short["session"] = {"event": use.event, "agent": (Role.SLOW if use.slow else Role.FAST).value, **counts}
    return short | ({"explanation": summary(answer)} if request.extras.explain else {})


def decision_headers(decision: Decision, trace_id: str) -> list[tuple[bytes, bytes]]:
    """Headers that are known as soon as the path is."""
    return [
        (b"x-odar-trace", trace_id.encode()),
        (b"x-odar-path", decision.path.encode()),
        (b"x-odar-difficulty", b"%.4f" % decision.difficulty),
    ]


def spend_headers(spend: Spend) -> list[tuple[bytes, bytes]]:
    """Calls and cost of a request."""
    cost = b"unknown" if spend.cost_usd is None else b"%.6f" % spend.cost_usd
    return [(b"x-odar-calls", b"%d" % spend.calls), (b"x-odar-cost-usd", cost)]


def answer_headers(answer: Answer) -> list[tuple[bytes, bytes]]:
    """Headers of a finished answer."""
    headers = decision_headers(answer.trace.decision, answer.trace.id) + spend_headers(answer.trace.spend)
    return [*headers, (b"x-odar-degraded", b"true")] if answer.degraded else headers


_MAX_UNREAD = 4_000_000
"""Characters that may wait for a client that does not read; far more than a model writes in a moment."""
_PIECE_SIZE = 200
"""Bytes of a piece in addition to its text."""


class EventWriter(Protocol):
    """Writes one answer as a stream of events."""

    @property
    def keepalive(self) -> bytes:
        """What is sent while there is nothing else to send."""

    def begin(self) -> bytes:
        """Return what comes before any text."""

    def piece(self, piece: Delta) -> bytes:
        """Return a piece of the answer, as it is generated."""

    def end(self, answer: Answer) -> bytes:
        """Return the rest: the whole answer where nothing has been sent, then how it ended and what it cost."""

    def error(self, api_error: ApiError) -> bytes:
        """Return what went wrong after the stream had begun."""


class AlreadyReported(Exception):
    """A failure that the client already knows of; its cause is what failed."""


class EventStream:
    """Sends one answer to the client while it is generated; after `keepalive_s` seconds without data, a keep-alive.

    On the Simple path the head waits for the first piece, so that an error still has its status.
    """

    def __init__(self, exchange: Exchange, writer: EventWriter, trace_id: str, keepalive_s: float) -> None:
        self._exchange = exchange
        self._writer = writer
        self._trace_id = trace_id
        self._keepalive_s = keepalive_s
        self._pending: list[Delta] = []
        self._unread = 0
        """The size of what has arrived while the client was not reading."""
        self._writing = False
        self._decision: Decision | None = None
        self._wake_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_delta(self, delta: Delta) -> None:
        """Queue a part of the answer."""
        self._pending.append(delta)
        self._unread += len(delta.text) + _PIECE_SIZE
        if self._writing and self._unread > _MAX_UNREAD:
            self._exchange.abort()
        self._wake()

    def on_decision(self, decision: Decision) -> None:
        """A path was chosen; should it change, the head may be out already, and says the first."""
        self._decision = self._decision or decision
        self._wake()

    async def send(
        self, asking: Coroutine[Any, Any, Answer], api_error_of: Callable[[BaseException], ApiError]
    ) -> None:
        """Send what comes of it. A client that leaves cancels it.

        Raises:
            ClientLeft: the client has disconnected.
            AlreadyReported: it failed, and the client has been told.
            Exception: it failed before anything was said.
        """
        work = asyncio.ensure_future(asking)
        disconnect = asyncio.ensure_future(self._exchange.wait_for_disconnect())
        try:
            await self._send_pieces(work, disconnect)
            answer = work.result()
            await self._send_head()
            await self._exchange.write(self._writer.end(answer), more=False)
        except Exception as error:
            if not self._exchange.status or isinstance(error, ClientLeft):
                raise
            api_error = api_error_of(error)
            await self._exchange.write(self._writer.error(api_error), more=False)
            self._exchange.status = api_error.status  # for the record: the head said 200
            raise AlreadyReported from error
        except asyncio.CancelledError:
            if self._exchange.status:
                await self._exchange.write(self._writer.error(SHUTDOWN_TIMEOUT), more=False)
            raise
        finally:
            running: list[asyncio.Future[Any]] = [task for task in (work, disconnect) if not task.done()]
            for task in running:
                task.cancel()
            if running:
                await asyncio.gather(*running, return_exceptions=True)

    async def _send_pieces(self, work: asyncio.Future[Answer], disconnect: asyncio.Future[None]) -> None:
        """Write pieces and keep-alives until the work is done."""
        while not work.done() or self._pending:
            if self._pending or (self._decision is not None and self._decision.path is not Path.SIMPLE):
                await self._send_head()
            if self._pending:
                pieces, self._pending, self._unread = self._pending, [], 0
                self._writing = True
                await self._exchange.write(b"".join(map(self._writer.piece, pieces)))
                self._writing = False
                continue
            waiting: set[asyncio.Future[Any]] = {work, disconnect, self._wake_up}
            done, _ = await asyncio.wait(waiting, timeout=self._keepalive_s, return_when=asyncio.FIRST_COMPLETED)
            if disconnect in done and not work.done():
                raise ClientLeft
            if self._wake_up.done():
                self._wake_up = asyncio.get_running_loop().create_future()
            if not done:
                await self._send_head()
                await self._exchange.write(self._writer.keepalive)

    async def _send_head(self) -> None:
        if not self._exchange.status:
            known = decision_headers(self._decision, self._trace_id) if self._decision is not None else []
            await self._exchange.start(200, [*EVENT_STREAM_HEADERS, *known])
            await self._exchange.write(self._writer.begin() + self._writer.keepalive)

    def _wake(self) -> None:
        if not self._wake_up.done():
            self._wake_up.set_result(None)
