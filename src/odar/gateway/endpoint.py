"""An endpoint that answers questions: read, route, run, reply; the same for every protocol.

Plain ASGI, because each layer of middleware costs a request more than the whole of this file.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from odar.agents.ledger import Ledger
from odar.errors import one_line
from odar.formats import dump_json
from odar.gateway.addresses import check_addresses
from odar.gateway.ask import Ask
from odar.gateway.event_stream import EventStream, Told, Writer
from odar.gateway.exchange import JSON, ClientLeft, Exchange, Receive, Scope, Send
from odar.gateway.fields import read_json
from odar.gateway.gate import identify
from odar.gateway.logs import CURRENT, Ids
from odar.gateway.ports import Entry, Grant
from odar.gateway.refusals import CLIENT_LEFT, CUT_OFF, INTERNAL, Refusal, refusal_of
from odar.gateway.reply import answer_headers
from odar.gateway.service import Service
from odar.observer import Observer, observing
from odar.types import Answer, Decision

LOG = logging.getLogger("odar.gateway")


class Dialect(NamedTuple):
    """How one protocol reads and writes."""

    name: str
    read: Callable[[Any], Ask]
    write: Callable[[Answer, Ask], dict[str, Any]]
    stream: Callable[[Ask, str], Writer]
    error: Callable[[Refusal], dict[str, Any]]


@dataclass(slots=True)
class _Visit:
    """What is known of a request so far."""

    exchange: Exchange
    trace_id: str
    started: float
    grant: Grant | None = None
    ask: Ask | None = None
    ledger: Ledger | None = None
    """The bill; what is on it was spent, whether or not an answer came of it."""
    decision: Decision | None = None
    answer: Answer | None = None


class Endpoint:
    """An ASGI application for one address."""

    def __init__(self, service: Service, dialect: Dialect) -> None:
        self._service = service
        self._dialect = dialect
        gateway = service.settings.gateway
        self._limit = int(gateway.max_body_mb * 1e6)
        self._gateway = gateway

    @property
    def observer(self) -> Observer | None:
        """Whoever watches the engine sees requests too."""
        return self._service.odar.observer

    @observing("request")
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever it is."""
        trace_id = uuid.uuid4().hex
        visit = _Visit(Exchange(scope, receive, send, trace_id), trace_id, time.perf_counter())
        CURRENT.set(Ids(visit.exchange.request_id, trace_id))  # the server gives each request a context of its own
        error: BaseException | None = None
        try:
            visit.grant = identify(visit.exchange.headers, self._service.keys)
            self._service.gate.enter()
            try:
                await self._answer(visit)
            finally:
                self._service.gate.leave()
        except ClientLeft as left:
            error, visit.exchange.status = left, CLIENT_LEFT
        except asyncio.CancelledError:
            # The server's patience is at its end: the client shall at least know, and the record too.
            if not visit.exchange.status:
                await self._refuse(visit, CUT_OFF)
            visit.exchange.status = CUT_OFF.status
            self._record(visit, CUT_OFF)
            raise
        except Exception as failure:
            error = failure
            await self._refuse(visit, failure)
        self._record(visit, error)

    async def _answer(self, visit: _Visit) -> None:
        service, gateway = self._service, self._gateway
        body = await visit.exchange.body(self._limit, gateway.body_timeout_s)
        visit.ask = ask = self._dialect.read(read_json(body, gateway.max_depth))
        check_addresses(ask.query, gateway.image_urls)
        visit.ledger, options = service.bill(ask, visit.grant), service.route(ask, visit.grant)
        if visit.grant is not None and (stop := service.keys.admit(visit.grant)) is not None:
            raise Refusal(429, stop.reason, "key_limit", retry_after=stop.retry_after)
        if ask.stream:
            await self._stream(visit, ask, options)
        else:
            await self._whole(visit, ask, options)

    async def _whole(self, visit: _Visit, ask: Ask, options: dict[str, Any]) -> None:
        with _Listening(visit.exchange):
            answer = await self._ask(visit, ask, options)
        body = dump_json(self._dialect.write(answer, ask))
        await visit.exchange.respond(200, body, [*JSON, *answer_headers(answer)])

    async def _stream(self, visit: _Visit, ask: Ask, options: dict[str, Any]) -> None:
        writer = self._dialect.stream(ask, visit.trace_id)
        stream = EventStream(visit.exchange, writer, visit.trace_id, self._gateway.keepalive_s)
        asking = self._ask(visit, ask, options, on_text=stream.on_text, on_decision=stream.on_decision)
        await stream.send(asking, self._refusal)

    async def _ask(
        self,
        visit: _Visit,
        ask: Ask,
        options: dict[str, Any],
        on_text: Callable[[str], None] | None = None,
        on_decision: Callable[[Decision], None] | None = None,
    ) -> Answer:
        def decided(decision: Decision) -> None:
            self._service.check_path(decision, visit.grant)
            visit.decision = decision
            if on_decision is not None:
                on_decision(decision)

        visit.answer = await self._service.odar.aask(
            ask.query,
            ledger=visit.ledger,
            on_text=on_text,
            on_decision=decided,
            final=True,
            trace_id=visit.trace_id,
            **options,
        )
        return visit.answer

    async def _refuse(self, visit: _Visit, error: Exception) -> None:
        if isinstance(error, Told):
            return
        refusal = self._refusal(error)
        headers = [*JSON, *refusal.headers, (b"x-odar-trace", visit.trace_id.encode())]
        await visit.exchange.respond(refusal.status, dump_json(self._dialect.error(refusal)), headers)

    def _refusal(self, error: BaseException) -> Refusal:
        refusal = refusal_of(error)
        if refusal.code == INTERNAL:  # not an upstream's own 500, which is foreseen
            LOG.error("unforeseen error in %s", self._dialect.name, exc_info=error)
        return refusal

    def _record(self, visit: _Visit, error: BaseException | None) -> None:
        ask, ledger, trace = visit.ask, visit.ledger, visit.answer.trace if visit.answer else None
        if isinstance(error, Told):
            error = error.__cause__
        self._service.finish(
            Entry(
                trace_id=visit.trace_id,
                endpoint=self._dialect.name,
                model=ask.model if ask else "",
                status=visit.exchange.status,
                seconds=time.perf_counter() - visit.started,
                stream=ask.stream if ask else False,
                key_id=visit.grant.key_id if visit.grant else None,
                query=ask.query if ask else None,
                trace=trace,
                decision=visit.decision,
                calls=tuple(ledger.calls) if ledger else (),
                spend=trace.spend if trace else ledger.spend() if ledger else None,
                error=None if error is None else one_line(f"{type(error).__name__}: {error}"),
                request_id=visit.exchange.request_id,
            )
        )


class _Listening:
    """Cancels what runs inside as soon as the client leaves, and raises `ClientLeft` in its place.

    It begins to listen after a moment: most answers of a fast upstream are there by then, and a task for each of
    them would cost more than reading the question.
    """

    AFTER_S = 0.05

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._watcher: asyncio.Task[None] | None = None
        self._left = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(self.AFTER_S, self._listen)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        assert self._task is not None
        if kind is asyncio.CancelledError and self._left and self._task.uncancel() == 0:
            raise ClientLeft from None

    def _listen(self) -> None:
        self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        await self._exchange.gone()
        self._left = True
        assert self._task is not None
        self._task.cancel()
