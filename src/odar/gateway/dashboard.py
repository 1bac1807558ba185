"""Routes of the dashboard: its files, and the JSON that they request.

The files are public; all data needs a key if keys exist. A key reads its own traces, an admin key (`odar keys
create NAME --admin`) all of them; without any keys, this machine reads all. The JSON is only for the dashboard of
the same version; other programs use /v1, /metrics and `odar traces`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from odar import __version__
from odar.agents.prompts import load_prompts
from odar.catalogue import ModelCard
from odar.dashboard.files import HEADERS, INDEX, files
from odar.errors import InputError, StoreError, UnknownName
from odar.formats import dump_json
from odar.gateway.chat import ChatStream, read_chat
from odar.gateway.chat_request import ChatRequest
from odar.gateway.endpoint import Endpoint, WireProtocol
from odar.gateway.errors import ApiError, bad_field, openai_body, operator_fault
from odar.gateway.exchange import JsonResponse
from odar.gateway.fields import convert
from odar.gateway.service import Service
from odar.store.keys import Key
from odar.store.overview import STEPS, warnings_of
from odar.store.record import MARKS, PATHS, STATUSES, UNMARKED, Cursor, Filter, Record, to_document
from odar.store.store import Store
from odar.types import Answer, Role, Step

API = "/dashboard/api"
_PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def dashboard_routes(service: Service) -> list[Route]:
    """The routes to add to the gateway's."""
    data = _Data(service)
    return [
        Route("/", _file, name=INDEX),
        Route(API + "/session", data.session),
        Route(API + "/overview", data.overview),
        Route(API + "/traces", data.page),
        Route(API + "/traces/{id}", data.trace),
        Route(API + "/export", data.export),
        Route(API + "/models", data.models),
        Route(API + "/ask", Endpoint(service, PLAYGROUND), methods=["POST"]),
        Route("/dashboard/{name}", _file),
    ]


async def _file(request: Request) -> Response:
    """A file of the dashboard; 304 if the browser has it already."""
    name = request.path_params.get("name", INDEX)
    file = files().get(name)
    if file is None:
        raise ApiError(404, f"there is no GET /dashboard/{name}", "unknown_url")
    headers = {**HEADERS, "etag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)


class _Data:
    """The data that the key of a request may see."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def session(self, request: Request) -> Response:
        """The key of the request, and the settings of this server."""
        grant = self._identify(request)
        settings, routing = self._service.settings, self._service.settings.routing
        key = None if grant is None else {"id": grant.id, "name": grant.name, "admin": grant.admin}
        return _private(
            {
                "version": __version__,
                "profile": settings.profile,
                "key": key,
                "recording": settings.store.enabled and self._service.store is not None,
                "content": settings.store.content,
                "retention_days": settings.store.retention_days,
                "routing": dataclasses.asdict(routing),
                "fusion": {"rule": settings.fusion.rule, "lambda": settings.fusion.varentropy_weight},
            }
        )

    async def overview(self, request: Request) -> Response:
        """Sums and distributions over the traces that match."""
        traces, wanted = self._scope(request)
        found = await _read(traces.overview(wanted, read_step(request.query_params)))
        rows = [dataclasses.asdict(row) for row in self._service.odar.targets.report()]
        problems = await asyncio.to_thread(self._service.odar.certificate_problems)
        own = None if wanted.key is None else f"key {wanted.key}"
        return _private(
            {
                **found,
                "targets": [row for row in rows if own is None or own in row["scope"]],
                "warnings": [
                    *(f"certificate removed: {problem}" for problem in problems),
                    *warnings_of(found, self._service.odar.settings),
                ],
            }
        )

    async def page(self, request: Request) -> Response:
        """A list of traces, newest first, and the cursor of the next."""
        traces, wanted = self._scope(request)
        params = request.query_params
        page = await _read(traces.page(wanted, read_cursor(params), read_limit(params)))
        return _private({"traces": page.traces, "next": None if page.next is None else str(page.next)})

    async def trace(self, request: Request) -> Response:
        """One trace with its document; a trace of another key is reported as unknown."""
        traces, wanted = self._scope(request)
        trace_id = request.path_params["id"]
        found = await _read(traces.get(trace_id), trace_id)
        if wanted.key is not None and found["key_id"] != wanted.key:
            raise _unknown(trace_id)
        return _private(found)

    async def export(self, request: Request) -> Response:
        """Every trace that matches, as JSONL, read while it is sent."""
        traces, wanted = self._scope(request)
        lines = _lines(traces.export(wanted))
        first = await _read(asyncio.to_thread(next, lines, b""))  # an error is reported before the response starts
        headers = {**_PRIVATE, "content-disposition": 'attachment; filename="odar-traces.jsonl"'}
        return StreamingResponse(_chain(first, lines), headers=headers, media_type="application/jsonl")

    async def models(self, request: Request) -> Response:
        """Every configured model."""
        self._identify(request)
        return _private(await asyncio.to_thread(report_models, self._service))  # it may wait for a file's lock

    def _identify(self, request: Request) -> Key | None:
        return self._service.access.identify(request.scope)

    def _scope(self, request: Request) -> tuple[Store, Filter]:
        """The store, and a filter of the traces that may be read."""
        grant = self._identify(request)
        if self._service.store is None:
            raise ApiError(503, "this gateway keeps no traces: it was started without a store", "no_store")
        wanted = read_filter(request.query_params)
        if grant is not None and not grant.admin:
            wanted = dataclasses.replace(wanted, key=grant.id)
        return self._service.store, wanted


async def _read(work: Awaitable[Any], trace_id: str = "") -> Any:
    """Await a read of the store; its errors become API errors."""
    try:
        return await work
    except UnknownName:
        raise _unknown(trace_id) from None
    except InputError as error:
        raise ApiError(400, str(error), "invalid_value", "since") from None
    except StoreError as error:
        raise dataclasses.replace(operator_fault(error), code="store_unavailable", retry_after=2.0) from None


def _unknown(trace_id: str) -> ApiError:
    return ApiError(404, f"there is no trace {trace_id[:64]!r} that this key may see", "trace_not_found", "id")


def _lines(traces: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    return (dump_json(trace) + b"\n" for trace in traces)


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _private(value: Any) -> Response:
    """A JSON response that must not be cached."""
    return JsonResponse(value, headers=_PRIVATE)


MOST = 200
"""Traces per page, at most."""
_LONGEST = 200
"""Characters of a parameter, at most."""

Params = Mapping[str, str]


def read_filter(params: Params) -> Filter:
    """Which traces; an empty parameter is one that was left out.

    >>> read_filter({"path": "hard", "degraded": "true", "model": ""})
    Filter(since=None, until=None, path='hard', status=None, degraded=True, model=None, key=None, min_cost=None, \
max_cost=None, min_difficulty=None, max_difficulty=None, id=None, feedback=None, text=None)
    """
    degraded = _choice(params, "degraded", ("true", "false"))
    return Filter(
        since=_text(params, "since"),
        until=_text(params, "until"),
        path=_choice(params, "path", PATHS),
        status=_choice(params, "status", STATUSES),
        degraded=None if degraded is None else degraded == "true",
        model=_text(params, "model"),
        key=_text(params, "key"),
        min_cost=_number(params, "min_cost"),
        max_cost=_number(params, "max_cost"),
        min_difficulty=_number(params, "min_difficulty"),
        max_difficulty=_number(params, "max_difficulty"),
        id=_text(params, "id"),
        feedback=_choice(params, "feedback", (*MARKS, UNMARKED)),
        text=_text(params, "text"),
    )


def read_cursor(params: Params) -> Cursor | None:
    """Where the page begins."""
    text = _text(params, "after")
    try:
        return None if text is None else Cursor.parse(text)
    except InputError as error:
        raise bad_field("after", str(error)) from None


def read_limit(params: Params) -> int:
    """How many traces."""
    text = _text(params, "limit") or "50"
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST:
        return int(text)
    raise bad_field("limit", f"{text!r} is not a whole number from 1 to {MOST}")


def read_step(params: Params) -> str:
    """How fine the time series is."""
    return _choice(params, "step", tuple(STEPS)) or "day"


def _text(params: Params, name: str) -> str | None:
    value = params.get(name, "")
    if len(value) > _LONGEST:
        raise bad_field(name, f"has {len(value)} characters; at most {_LONGEST} make sense")
    if "\0" in value:
        raise bad_field(name, "holds a NUL character")
    return value or None


def _choice(params: Params, name: str, allowed: tuple[str, ...]) -> str | None:
    value = _text(params, name)
    if value is None or value in allowed:
        return value
    raise bad_field(name, f"{value!r} is not one of: {', '.join(allowed)}")


def _number(params: Params, name: str) -> float | None:
    value = _text(params, name)
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise bad_field(name, f"{value!r} is not a number")
    return number


def report_models(service: Service) -> dict[str, Any]:
    """Every model of the catalogue and every one an agent uses, agents' models first."""
    settings = service.settings
    agents: dict[str, list[dict[str, Any]]] = {}
    for role in Role:
        for place, name in enumerate(settings.models_of(role)):
            agents.setdefault(name, []).append({"agent": role.value, "default": place == 0})
    names = dict.fromkeys([*agents, *settings.models])
    drift = [dataclasses.asdict(row) for row in service.odar.alignment_report()]
    return {
        "models": [
            _card(settings.card(name))
            | {
                "agents": agents.get(name, []),
                "usable": service.usable(name),
                "statistics": _statistics(service, name),
                "drift": [row for row in drift if row["model"] == name],
            }
            for name in names
        ],
        "breakers": _breakers(service),
    }


def _card(card: ModelCard) -> dict[str, Any]:
    return {
        "name": card.name,
        "provider": card.provider,
        "id": card.id,
        "context": card.context,
        "images": card.images,
        "logprobs": card.logprobs,
        "n": card.n,
        "price": None if card.price is None else dataclasses.asdict(card.price),
        "price_date": card.price_date,
        "scores": dict(card.scores),
    }


def _statistics(service: Service, model: str) -> list[dict[str, Any]]:
    """μ and σ of every calibrated source of this model, and whether it is one that this gateway samples from."""
    odar = service.odar
    here = {odar.source(model, step): step for step in Step if model in odar.settings.models_of(step.role)}
    sets = (load_prompts(service.settings.prompts), odar.prompts)  # of `odar ask`, and of this gateway
    steps = {prompt.md5: step.value for prompts in sets for step, prompt in prompts.items()}
    return [
        dataclasses.asdict(source)
        | dataclasses.asdict(known)
        | {"step": steps.get(source.prompt_md5), "in_use": source in here}
        for source, known in odar.calibration.statistics.entries.items()
        if source.model == model
    ]


def _breakers(service: Service) -> dict[str, dict[str, Any]]:
    """By provider; a provider that has not been used yet has no breaker."""
    return {
        name: {"state": breaker.state.value, "failures": breaker.failures, "retry_s": breaker.waiting()}
        for name, breaker in service.breakers.items()
    }


class Question(Struct, forbid_unknown_fields=True):
    """A question that is asked on the dashboard."""

    question: str
    model: str | None = None
    path: str | None = None
    max_cost: Annotated[float, Meta(ge=0)] | None = None


def read_question(body: Any) -> ChatRequest:
    """Read a question with a path and a limit as a chat of one turn."""
    asked = convert(body, Question)
    if not asked.question.strip():
        raise bad_field("question", "is empty")
    limits = {"path": asked.path, "max_cost": asked.max_cost}
    turn = {"role": "user", "content": asked.question}
    return read_chat({"model": asked.model or "odar", "messages": [turn], "odar": limits})


def write_document(answer: Answer, ask: ChatRequest) -> dict[str, Any]:
    """The trace in the form of a stored one with its texts, for the page that shows stored traces."""
    return {"id": answer.trace.id, "document": to_document(Record(ask.query, answer), content=True)}


PLAYGROUND = WireProtocol("playground", read_question, write_document, ChatStream, openai_body)
