"""Endpoints that answer questions, for every protocol: read the request, choose the models, run, respond.

They are plain ASGI: one layer of middleware would take more time per request than this module.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

from starlette.types import Receive, Scope, Send

from odar.agents.ledger import Ledger
from odar.agents.measure import size_of
from odar.background import CURRENT_KEY, run_by_size, run_in_thread
from odar.errors import InputError, OdarError, one_line, summary_of
from odar.formats import dump_json
from odar.observer import Observer, observed
from odar.options import DEFAULT_OPTIONS, AskOptions
from odar.providers.base import OnDelta
from odar.question import core_question
from odar.serving.budgets import Need, Reservation
from odar.serving.errors import SHUTDOWN_TIMEOUT, api_error_of, bad_field, rate_headers
from odar.serving.exchange import JSON_HEADERS, ClientLeft, Exchange, read_body
from odar.serving.keys import Key
from odar.serving.logs import CURRENT_REQUEST
from odar.serving.models import DIAL_MODELS
from odar.serving.protocols.chat_request import ChatRequest, with_headers
from odar.serving.protocols.image_urls import check_image_urls
from odar.serving.protocols.json_body import MAX_INTEGER, check_parts, parsed_bytes, read_json
from odar.serving.protocols.messages import count_tokens
from odar.serving.protocols.reply import EventStream, ReplyWriter, answer_headers, plan_headers
from odar.serving.request_cost import charge_key, request_ledger, walk_needs, with_max_tokens
from odar.serving.service import Service
from odar.traces.record import CLIENT_LEFT, Record, Unanswered
from odar.types import NO_USAGE, Answer, Decision, Plan, Query, Spend, path_of

LOG = logging.getLogger("odar.serving")
_CHARGE_TIMEOUT_S = 1.0
"""Seconds that a reply waits until it is charged; a database that takes longer is written to afterwards."""
UNREAD = ChatRequest("", Query(""))
"""Stands for a request whose body has not been read."""
UNIDENTIFIED = Key("", "not identified")
"""Stands for the key of a request until it is known; it has no rights."""


@dataclass(slots=True)
class RequestState:
    """The state of one HTTP request."""

    exchange: Exchange
    trace_id: str
    started: float
    key: Key = UNIDENTIFIED
    body_bytes: int = 0
    held_bytes: int = 0
    """Bytes of memory for the body and for what it is parsed into, about."""
    request: ChatRequest = UNREAD
    options: AskOptions = DEFAULT_OPTIONS
    """What the engine is to do; its session is set if ODAR chooses the path, its ledger before the first call."""
    charge: Callable[[], Future[None]] | None = None
    """Replaces the reservation by the actual use; further calls return the same future. None without limits."""
    plan: Plan | None = None
    decisions: list[Decision] = field(default_factory=list)
    answer: Answer | None = None
    items_to_store: list[Any] | None = None
    """The request's own items of the Responses API; None if the conversation is not stored."""


class Endpoint:
    """An ASGI application for one path of the API.

    `name` is that of the path in traces and metrics, `read` and `writer` are those of its protocol.
    """

    recorded = True
    """Whether the store and the observer receive its requests."""

    def __init__(
        self, service: Service, name: str, read: Callable[[Any], ChatRequest], writer: type[ReplyWriter]
    ) -> None:
        self._service = service
        self._name = name
        self._read = read
        self._writer = writer
        self._gateway = service.settings.gateway
        self._max_body_bytes = int(self._gateway.max_body_mb * 1e6)

    @property
    def observer(self) -> Observer | None:  # for `observed`
        return self._service.odar.observer

    @observed("request", outermost=True)
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        trace_id = secrets.token_hex(16)
        state = RequestState(Exchange(scope, receive, send, trace_id), trace_id, time.perf_counter())
        # The server runs each request in its own context.
        CURRENT_REQUEST.set({"request_id": state.exchange.request_id, "trace_id": trace_id})
        error: BaseException | None = None
        try:
            state.key = self._service.access.identify(scope)
            CURRENT_KEY.set(state.key.id)
            self._service.concurrency_limit.acquire(state.key)
            try:
                await self._answer(state)
            finally:
                self._service.concurrency_limit.release(state.key, state.held_bytes)
                if state.charge is not None:
                    state.charge()
        except ClientLeft as left:
            error = left
            state.exchange.status = CLIENT_LEFT
        except asyncio.CancelledError:
            # Shutdown timed out: tell the client and record the request before re-raising.
            await self._send_error(state, SHUTDOWN_TIMEOUT)
            state.exchange.status = SHUTDOWN_TIMEOUT.status
            self._record(state, SHUTDOWN_TIMEOUT)
            raise
        except Exception as failure:
            error = failure
            await self._send_error(state, failure)
        self._record(state, error)
        error = None  # its traceback refers to this frame: break the reference cycle

    async def _answer(self, state: RequestState) -> None:
        await self._receive(state)
        await self._find_session(state)
        ledger = await self._open_ledger(state)
        if state.request.stream:
            await self._stream(state, ledger)
        else:
            await self._send_answer(state)

    async def _receive(self, state: RequestState) -> None:
        """Read and check the request, and choose its models."""
        body = await self._read_body(state)
        request = with_headers(await self._read_request(state, body), state.exchange.headers)
        state.request = request  # for the record, even if it is refused now
        state.options = self._service.route(request, state.key)
        model = state.options.model
        if model is None:
            return
        query = request.query
        if state.key.needs_reservation:
            query = with_max_tokens(query, self._service.settings.limits.max_tokens)
        # A request that is passed through has the slow model, not the one that it named.
        state.request = dataclasses.replace(request, model=model, query=query)

    async def _read_body(self, state: RequestState) -> bytes:
        hold = partial(self._hold_memory, state)
        body = await read_body(state.exchange.headers, state.exchange.receive, self._max_body_bytes, hold)
        state.body_bytes = len(body)
        hold(await run_by_size(len(body), partial(parsed_bytes, body)))
        return body

    def _hold_memory(self, state: RequestState, size: int) -> None:
        self._service.concurrency_limit.hold_memory(state.key, size)
        state.held_bytes += size

    async def _read_request(self, state: RequestState, body: bytes) -> ChatRequest:
        return await run_by_size(len(body), lambda: self._make_request(read_json(body)))

    def _make_request(self, value: Any) -> ChatRequest:  # in a thread if it is large
        check_parts(value)
        request = self._read(value)
        check_image_urls(request.query, self._gateway.image_urls)
        # The query keeps it for the engine: of a long text it takes too long for the event loop.
        core_question(request.query)
        return request

    async def _find_session(self, state: RequestState) -> None:
        """Add the session of the conversation to the options, if ODAR chooses the stages."""
        if state.request.model not in DIAL_MODELS or state.options.path is not None or not self._gateway.sessions:
            return
        sessions = self._service.sessions
        find = partial(sessions.find, state.request.query, state.exchange.headers, state.key.id)
        in_thread = sessions.stored is not None
        session = await (run_in_thread(find) if in_thread else run_by_size(state.body_bytes, find))
        state.options = dataclasses.replace(state.options, session=session)

    async def _open_ledger(self, state: RequestState) -> Ledger:
        """Open the request's ledger; for a key with limits, first reserve the request's highest cost."""
        ledger = request_ledger(self._service.odar, state.request)
        state.options = dataclasses.replace(state.options, ledger=ledger)
        if state.key.needs_reservation:
            await self._reserve(state, ledger)
        return ledger

    async def _reserve(self, state: RequestState, ledger: Ledger) -> None:
        """Reserve the cost of the most expensive walk that fits the key's limits; leave out stages beyond it.

        Raises:
            ApiError: 403 if a price is unknown.
            KeyRefused: no walk fits the key's limits.
        """
        key = state.key
        budgets = self._service.store.budgets
        # what each walk needs, within the limits of the request
        query = state.request.query
        measure = partial(walk_needs, self._service.odar, query, state.options, priced=key.has_budget)
        walks = await run_by_size(state.body_bytes, measure)
        max_cost = math.inf if ledger.max_cost_usd is None else ledger.max_cost_usd
        needs = [Need(min(need.usd, max_cost), min(need.tokens, MAX_INTEGER)) for _, need in walks]
        # reserve it; if the client leaves meanwhile, free it again
        future = budgets.reserve(key.id, state.trace_id, needs, ledger.deadline_s)

        def release(future: Future[Reservation]) -> None:
            if not future.cancelled() and future.exception() is None:
                budgets.charge(future.result(), 0.0, 0)

        try:
            reserved = await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            future.add_done_callback(release)
            raise
        # keep within the reservation
        if reserved.choice:
            state.options = dataclasses.replace(state.options, max_path=path_of(walks[reserved.choice][0]))
        if key.has_budget:
            ledger.max_cost_usd = reserved.need.usd
        # Called before the reply ends and again when the request has ended: only the first call counts.
        state.charge = cache(partial(charge_key, budgets, reserved, key, ledger))
        state.exchange.more_headers = rate_headers(reserved.rates)

    async def _send_answer(self, state: RequestState) -> None:
        with state.exchange.cancel_on_disconnect():
            answer = await self._ask(state)
        write = partial(self._writer(state.request, state.trace_id).body, answer)
        body = await run_by_size(size_of(answer.trace.candidates), lambda: dump_json(write()))
        await state.exchange.respond(200, body, [*JSON_HEADERS, *answer_headers(answer)])

    async def _stream(self, state: RequestState, ledger: Ledger) -> None:
        writer = self._writer(state.request, state.trace_id)
        stream = EventStream(
            state.exchange, writer, lambda: plan_headers(state.plan, state.decisions, state.trace_id)
        )
        timer = state.exchange.abort_after(ledger.time_left())  # the engine keeps the deadline
        try:
            await stream.send(self._ask(state, stream.on_delta))
        finally:
            timer.cancel()
        if state.exchange.aborted:
            raise ClientLeft

    async def _ask(self, state: RequestState, on_delta: OnDelta | None = None) -> Answer:
        def record_decision(decision: Decision, plan: Plan) -> None:
            state.plan = plan
            state.decisions.append(decision)

        options = dataclasses.replace(
            state.options,
            on_delta=on_delta,
            on_decision=record_decision,
            progress=self._gateway.stream_progress,
            trace_id=state.trace_id,
        )
        state.answer = await self._service.odar.aask(state.request.query, options)
        if options.session is not None:
            self._service.sessions.save(options.session, state.answer.trace, state.key.id)
        await self._charge(state)
        return state.answer

    async def _charge(self, state: RequestState) -> None:
        """Charge the key before the reply ends, so that no answer is free if the process is killed."""
        if state.charge is not None:
            await asyncio.wait([asyncio.wrap_future(state.charge())], timeout=_CHARGE_TIMEOUT_S)

    async def _send_error(self, state: RequestState, error: Exception) -> None:
        if state.exchange.status:  # a stream has begun, and has reported the error itself
            return
        api_error = api_error_of(error)
        headers = [*JSON_HEADERS, *api_error.headers, (b"x-odar-trace", state.trace_id.encode())]
        await state.exchange.respond(api_error.status, dump_json(self._writer.error_body(api_error)), headers)

    def _record(self, state: RequestState, error: BaseException | None) -> None:
        """Count, log and store the request, once it has ended."""
        request = state.request
        ledger = state.options.ledger
        seconds = time.perf_counter() - state.started
        trace = (
            state.answer.trace
            if state.answer is not None
            else Unanswered(
                id=state.trace_id,
                started_at=(datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds"),
                profile=self._service.settings.profile,
                plan=state.plan,
                decisions=tuple(state.decisions),
                calls=tuple(ledger.calls) if ledger else (),
                spend=ledger.spend() if ledger else Spend(0, NO_USAGE, 0.0, seconds),
            )
        )
        self._service.finish(
            Record(
                query=request.query if self.recorded and request is not UNREAD else None,
                trace=trace,
                key_id=state.key.id,
                charged=state.charge is not None,
                error=None if error is None else one_line(f"{type(error).__name__}: {error}"),
                error_summary=None if error is None else summary_of(error),
                endpoint=self._name,
                model=request.model,
                http_status=state.exchange.status,
                seconds=seconds,
                stream=request.stream,
                request_id=state.exchange.request_id,
            )
        )


class StoredResponses(Endpoint):
    """POST /v1/responses with `store.responses`: stores conversations, so that clients can continue them by id."""

    async def _read_request(self, state: RequestState, body: bytes) -> ChatRequest:
        value = await run_by_size(len(body), partial(read_json, body))
        if not isinstance(value, dict):
            return self._make_request(value)
        # put the stored conversation before the request's own items
        items = value.get("input")
        previous = value.pop("previous_response_id", None)
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        if isinstance(items, list):
            earlier = [] if previous is None else await self._earlier_items(state, previous)
            value["input"] = [*earlier, *items]
        request = await run_by_size(state.body_bytes, partial(self._make_request, value))
        # to be stored with the answer, by `_ask`
        if value.get("store") is not False:
            state.items_to_store = items
        return dataclasses.replace(request, body_fields={**request.body_fields, "previous_response_id": previous})

    async def _earlier_items(self, state: RequestState, previous: Any) -> list[Any]:
        """The conversation up to a response of this key; responses of other keys count as unknown."""
        if not isinstance(previous, str):
            raise bad_field("previous_response_id", "must be a string")
        text = await asyncio.to_thread(self._service.store.responses.items, previous, state.key.id)
        if text is None:
            message = "is unknown for this key, or too old; send the whole conversation"
            raise bad_field("previous_response_id", message)
        raw = text.encode()
        if len(raw) + state.body_bytes > self._max_body_bytes:
            raise bad_field("previous_response_id", "the conversation is larger than gateway.max_body_mb allows")
        self._hold_memory(state, len(raw) + parsed_bytes(raw))
        items: list[Any] = await run_by_size(len(raw), partial(read_json, raw))
        return items

    async def _ask(self, state: RequestState, on_delta: OnDelta | None = None) -> Answer:
        """Store the conversation before the response ends, because the client may continue it at once."""
        answer = await super()._ask(state, on_delta)
        if state.items_to_store is not None:
            response = self._writer(state.request, state.trace_id).body(answer)
            items = [*state.items_to_store, *(item for item in response["output"] if item["type"] != "reasoning")]
            try:
                text = (await asyncio.to_thread(dump_json, items)).decode()
                save = partial(self._service.store.responses.save, response["id"], state.key.id, text)
                await asyncio.to_thread(save, state.request.body_fields["previous_response_id"])
            except OdarError as error:  # the answer is returned all the same: it is paid for
                LOG.error("a response was not stored: %s", type(error).__name__)
        return answer


class TokenCount(Endpoint):
    """POST /v1/messages/count_tokens: counts with one tokenizer for every model, without calling a provider."""

    recorded = False

    async def _answer(self, state: RequestState) -> None:
        threads = self._service.count_threads
        async with threads.turn_of(state.key):  # before the body: few large bodies are in memory at a time
            body = await self._read_body(state)
            request = await threads.run(lambda: self._make_request(read_json(body)))
            self._service.route(request, state.key)
            tokens = await threads.run(lambda: count_tokens(request.query))
        await state.exchange.respond(200, dump_json({"input_tokens": tokens}))


class DecisionEndpoint(Endpoint):
    """POST /v1/decision: what ODAR would do with a chat request and the answers so far, without calling a provider.

    Nothing is stored, and the answers, which the gateway has not seen being made, are not counted as served ones.
    """

    recorded = False

    async def _answer(self, state: RequestState) -> None:
        await self._receive(state)
        await self._find_session(state)
        odar = self._service.odar
        options = dataclasses.replace(state.options, ledger=request_ledger(odar, state.request))
        try:
            async with self._service.count_threads.turn_of(state.key):
                step = await odar.adecide(state.request.query, state.request.body_fields["answers"], options)
        except InputError as error:
            name, _, fault = str(error).partition(": ")
            raise (bad_field(name, fault) if name.startswith("answers[") else error) from None
        reply = await run_by_size(state.body_bytes, lambda: dump_json(step.to_dict()))
        await state.exchange.respond(200, reply)
