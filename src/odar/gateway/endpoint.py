"""An endpoint that answers questions: read, route, run, reply; the same for every protocol.

Plain ASGI, because each layer of middleware costs a request more than the whole of this file.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from odar.agents.ledger import Ledger
from odar.engine import ServingOptions
from odar.errors import OdarError, one_line
from odar.formats import dump_json
from odar.gateway.chat_request import ChatRequest, check_addresses, with_headers
from odar.gateway.errors import CUT_OFF, INTERNAL, ApiError, api_error_of, bad_field
from odar.gateway.exchange import JSON, ClientLeft, Exchange, Listening, Receive, Scope, Send
from odar.gateway.fields import check_parts, check_values, estimated_tokens, read_json
from odar.gateway.logs import CURRENT
from odar.gateway.records import CLIENT_LEFT, Entry
from odar.gateway.reply import AlreadyReported, EventStream, EventWriter, answer_headers
from odar.gateway.reservations import bill, rate_headers, reserve, settle, with_length
from odar.gateway.service import ADAPTIVE, Service
from odar.gateway.sessions import OpenSession
from odar.observer import Observer, observed
from odar.providers.base import OnDelta
from odar.store.keys import Key
from odar.store.store import Store
from odar.types import NO_USAGE, Answer, Decision, Spend

LOG = logging.getLogger("odar.gateway")
_READ_AT_ONCE_BYTES = 32_000
"""A body of up to this size is read faster than a thread takes over."""


class WireProtocol(NamedTuple):
    """How one protocol reads and writes."""

    name: str
    read: Callable[[Any], ChatRequest]
    write: Callable[[Answer, ChatRequest], dict[str, Any]]
    stream: Callable[[ChatRequest, str], EventWriter]
    error: Callable[[ApiError], dict[str, Any]]


@dataclass(slots=True)
class RequestState:
    """What is known of a request so far."""

    exchange: Exchange
    trace_id: str
    started: float
    key: Key | None = None
    ask: ChatRequest | None = None
    ledger: Ledger | None = None
    """The bill; what is on it was spent, whether or not an answer came of it."""
    settle: Callable[[], None] | None = None
    """Replaces what is reserved for it by what it used; None if its key has no limits."""
    session: OpenSession | None = None
    """The conversation it continues, where ODAR chooses the path."""
    decision: Decision | None = None
    answer: Answer | None = None
    items: list[Any] | None = None
    """The conversation as the Responses API has it, if it is kept."""

    @property
    def key_id(self) -> str | None:
        """The id of its key, if it has one."""
        return self.key.id if self.key is not None else None


class Endpoint:
    """An ASGI application for one address."""

    def __init__(self, service: Service, protocol: WireProtocol) -> None:
        self._service = service
        self._protocol = protocol
        gateway = service.settings.gateway
        self._limit = int(gateway.max_body_mb * 1e6)
        self._gateway = gateway

    @property
    def observer(self) -> Observer | None:
        """The engine's observer, which also receives requests."""
        return self._service.odar.observer

    @observed("request", outermost=True)
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        trace_id = secrets.token_hex(16)
        state = RequestState(Exchange(scope, receive, send, trace_id), trace_id, time.perf_counter())
        # the server gives each request a context of its own
        CURRENT.set({"request_id": state.exchange.request_id, "trace_id": trace_id})
        error: BaseException | None = None
        try:
            state.key = self._service.access.identify(scope)
            self._service.gate.enter()
            try:
                await self._answer(state)
            finally:
                self._service.gate.leave()
                if state.settle is not None:
                    state.settle()
        except ClientLeft as left:
            error, state.exchange.status = left, CLIENT_LEFT
        except asyncio.CancelledError:
            # Shutdown timed out: tell the client and record the request before re-raising.
            if not state.exchange.status:
                await self._refuse(state, CUT_OFF)
            state.exchange.status = CUT_OFF.status
            self._record(state, CUT_OFF)
            raise
        except Exception as failure:
            error = failure
            await self._refuse(state, failure)
        self._record(state, error)
        error = None  # its traceback holds this frame and those below, with the body: a cycle that would live long

    async def _answer(self, state: RequestState) -> None:
        service, gateway = self._service, self._gateway
        body = await state.exchange.body(self._limit, gateway.body_timeout_s)
        state.ask = ask = with_headers(await self._receive(body, state), state.exchange.headers)
        options = service.route(ask, state.key)
        if ask.model == ADAPTIVE and ask.extras.path is None and gateway.sessions:
            state.session = service.sessions.open(ask.query, state.exchange.headers, state.key_id)
            options["session"] = state.session.request
        options = await self._bill(state, options)
        if state.ask.stream:
            await self._stream(state, state.ask, options)
        else:
            await self._whole(state, state.ask, options)

    async def _bill(self, state: RequestState, options: dict[str, Any]) -> dict[str, Any]:
        """Open the request's bill; for a key with limits the most that it can cost is reserved first."""
        service, ask, key = self._service, state.ask, state.key
        assert ask is not None
        if key is None or service.store is None or not key.limits.counted:
            state.ledger = bill(service.odar, ask)
            return options
        state.ask = ask = with_length(ask, self._gateway.max_tokens) if "model" in options else ask
        budgets = service.store.budgets
        held, state.ledger, options = await reserve(service.odar, budgets, ask, key, options, state.trace_id)
        state.settle = partial(settle, budgets, held, key, state.ledger)
        state.exchange.more_headers = rate_headers(held.rates)
        return options

    async def _receive(self, body: bytes, state: RequestState) -> ChatRequest:
        """Return the request in a body; a large one is read in a thread, and others are answered meanwhile."""
        return self._read(body) if len(body) <= _READ_AT_ONCE_BYTES else await asyncio.to_thread(self._read, body)

    def _read(self, body: bytes) -> ChatRequest:
        """Return the request in a body; refused where it is not one, or holds too much."""
        check_values(body)
        return self._checked(read_json(body))

    def _checked(self, value: Any) -> ChatRequest:
        check_parts(value)
        ask = self._protocol.read(value)
        check_addresses(ask.query, self._gateway.image_urls)
        return ask

    async def _whole(self, state: RequestState, ask: ChatRequest, options: dict[str, Any]) -> None:
        with Listening(state.exchange):
            answer = await self._ask(state, ask, options)
        body = dump_json(self._protocol.write(answer, ask))
        await state.exchange.respond(200, body, [*JSON, *answer_headers(answer)])

    async def _stream(self, state: RequestState, ask: ChatRequest, options: dict[str, Any]) -> None:
        writer = self._protocol.stream(ask, state.trace_id)
        stream = EventStream(state.exchange, writer, state.trace_id, self._gateway.keepalive_s)
        asking = self._ask(state, ask, options, on_delta=stream.on_delta, on_decision=stream.on_decision)
        assert state.ledger is not None
        # The engine keeps to the deadline; a client that reads too slowly must keep to it too, but for a moment.
        loop, left = asyncio.get_running_loop(), state.ledger.time_left()
        timer = loop.call_later(left + self._gateway.write_timeout_s, state.exchange.abort)
        try:
            await stream.send(asking, self._refusal)
        finally:
            timer.cancel()
        if state.exchange.aborted:
            raise ClientLeft

    async def _ask(
        self,
        state: RequestState,
        ask: ChatRequest,
        options: dict[str, Any],
        on_delta: OnDelta | None = None,
        on_decision: Callable[[Decision], None] | None = None,
    ) -> Answer:
        def decided(decision: Decision) -> None:
            self._service.check_path(decision, state.key)
            state.decision = decision
            if on_decision is not None:
                on_decision(decision)

        state.answer = await self._service.odar.aask(
            ask.query,
            path=options.get("path"),
            target=options.get("target"),
            serving=ServingOptions(
                ledger=state.ledger,
                on_delta=on_delta,
                on_decision=decided,
                final=True,
                progress=self._gateway.stream_progress,
                trace_id=state.trace_id,
                **{name: value for name, value in options.items() if name not in ("path", "target")},
            ),
        )
        if state.session is not None:
            trace = state.answer.trace
            self._service.sessions.close(state.session, trace.decision, trace.calls)
        return state.answer

    async def _refuse(self, state: RequestState, error: Exception) -> None:
        if isinstance(error, AlreadyReported):
            return
        refusal = self._refusal(error)
        headers = [*JSON, *refusal.headers, (b"x-odar-trace", state.trace_id.encode())]
        await state.exchange.respond(refusal.status, dump_json(self._protocol.error(refusal)), headers)

    def _refusal(self, error: BaseException) -> ApiError:
        refusal = api_error_of(error)
        if refusal.code == INTERNAL:  # not an upstream's own 500, which is foreseen
            LOG.error("unforeseen error in %s", self._protocol.name, exc_info=error)
        return refusal

    def _record(self, state: RequestState, error: BaseException | None) -> None:
        ask, ledger, trace = state.ask, state.ledger, state.answer.trace if state.answer else None
        seconds = time.perf_counter() - state.started
        if isinstance(error, AlreadyReported):
            error = error.__cause__
        self._service.finish(
            Entry(
                trace_id=state.trace_id,
                endpoint=self._protocol.name,
                model=ask.model if ask else "",
                status=state.exchange.status,
                seconds=seconds,
                stream=ask.stream if ask else False,
                key_id=state.key_id,
                query=ask.query if ask else None,
                trace=trace,
                decision=trace.decision if trace else state.decision,
                calls=tuple(ledger.calls) if ledger else (),
                spend=trace.spend if trace else ledger.spend() if ledger else Spend(0, NO_USAGE, 0.0, seconds),
                error=None if error is None else one_line(f"{type(error).__name__}: {error}"),
                request_id=state.exchange.request_id,
                settled=state.settle is not None,
            )
        )


class StoredResponses(Endpoint):
    """POST /v1/responses with `store.responses`: keeps conversations, so that clients can continue them by id."""

    def __init__(self, service: Service, protocol: WireProtocol, store: Store) -> None:
        super().__init__(service, protocol)
        self._archive = store.archive

    async def _receive(self, body: bytes, state: RequestState) -> ChatRequest:
        check_values(body)
        value = await asyncio.to_thread(read_json, body)
        if not isinstance(value, dict):
            return self._checked(value)
        given, previous = value.get("input"), value.pop("previous_response_id", None)
        own = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if isinstance(own, list):
            before = [] if previous is None else await self._before(previous, state, len(body))
            value["input"] = own = [*before, *own]
        ask = await asyncio.to_thread(self._checked, value)
        if value.get("store") is not False:
            state.items = own
        return dataclasses.replace(ask, echo={**ask.echo, "previous_response_id": previous})

    async def _before(self, previous: Any, state: RequestState, size: int) -> list[Any]:
        """Return the conversation up to a response of the same key; whether another key has it cannot be told."""
        if not isinstance(previous, str):
            raise bad_field("previous_response_id", "must be a string")
        text = await asyncio.to_thread(self._archive.response_items, previous, state.key_id or "")
        if text is None:
            raise bad_field(
                "previous_response_id", "is not known for this key, or is too old; send the whole conversation"
            )
        raw = text.encode()
        if len(raw) + size > self._limit:
            raise bad_field("previous_response_id", "the conversation is larger than gateway.max_body_mb allows")
        check_values(raw)
        items: list[Any] = await asyncio.to_thread(read_json, raw)
        return items

    async def _ask(self, state: RequestState, *args: Any, **options: Any) -> Answer:
        """Keep the conversation before the last bytes leave: the client may continue it at once."""
        answer = await super()._ask(state, *args, **options)
        if state.items is not None and state.ask is not None:
            response = self._protocol.write(answer, state.ask)
            items = [*state.items, *(item for item in response["output"] if item["type"] != "reasoning")]
            try:
                text = (await asyncio.to_thread(dump_json, items)).decode()
                await asyncio.to_thread(self._archive.save_response, response["id"], state.key_id or "", text)
            except OdarError as error:  # the answer is paid for, and is given without it
                LOG.error("a response was not kept: %s", type(error).__name__)
        return answer


class TokenCount(Endpoint):
    """POST /v1/messages/count_tokens: counted here, with one tokenizer for every model; no server is asked."""

    async def _answer(self, state: RequestState) -> None:
        body = await state.exchange.body(self._limit, self._gateway.body_timeout_s)
        ask = await asyncio.to_thread(self._read, body)
        self._service.route(ask, state.key)
        tokens = await asyncio.to_thread(estimated_tokens, ask.query)
        await state.exchange.respond(200, dump_json({"input_tokens": tokens}))
