"""Routes of the dashboard: its files, and the JSON that they request.

The files are public; all data needs a key if keys exist. A key reads its own traces, an admin key (`odar keys
create NAME --admin`) all of them; without any keys, this machine reads all. The JSON is only for the dashboard of
the same version; other programs use /v1, /metrics and `odar traces`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Awaitable, Mapping
from functools import cache
from importlib import resources
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from odar import __version__
from odar.agents.prompts import load_prompts
from odar.errors import InputError, StoreError, UnknownName
from odar.formats import dump_json
from odar.gateway.chat import ChatStream, read_chat
from odar.gateway.chat_request import ChatRequest
from odar.gateway.endpoint import Endpoint, WireProtocol
from odar.gateway.errors import ApiError, bad_field, openai_body, operator_error
from odar.gateway.exchange import json_response
from odar.gateway.fields import convert
from odar.gateway.service import Service
from odar.store.overview import warnings_of
from odar.store.record import Cursor, Filter, Record, Text, to_document
from odar.store.store import Store
from odar.types import Answer, Role, Step

API = "/dashboard/api"
INDEX = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"  # a string can never become markup
)
"""What the page may do: run and load its own files, ask its own server, and nothing else."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # revalidate each time, so that an upgrade shows at once
}
_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PRIVATE_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def dashboard_routes(service: Service) -> list[Route]:
    """Return the routes to add to the gateway's."""
    data = _DataRoutes(service)
    return [
        Route("/", _serve_file, name=INDEX),
        Route(API + "/session", data.session),
        Route(API + "/overview", data.overview),
        Route(API + "/traces", data.page),
        Route(API + "/traces/{id}", data.trace),
        Route(API + "/export", data.export),
        Route(API + "/models", data.models),
        Route(API + "/ask", Endpoint(service, PLAYGROUND), methods=["POST"]),
        Route("/dashboard/{name}", _serve_file),
    ]


class StaticFile(NamedTuple):
    """One file as it is served."""

    body: bytes
    media_type: str
    etag: str


@cache
def files() -> dict[str, StaticFile]:
    """Return every file by name. A name that is not a key here is not served: no path is ever made from a request.

    >>> files()["index.html"].media_type
    'text/html; charset=utf-8'
    """
    found = {}
    for entry in resources.files("odar.dashboard").joinpath("static").iterdir():
        kind = _MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None:
            body = entry.read_bytes()
            found[entry.name] = StaticFile(body, kind, f'"{hashlib.sha256(body).hexdigest()[:20]}"')
    return found


async def _serve_file(request: Request) -> Response:
    """Return a file of the dashboard; 304 if the browser has it already."""
    name = request.path_params.get("name", INDEX)
    file = files().get(name)
    if file is None:
        raise ApiError(404, f"there is no GET /dashboard/{name}", "unknown_url")
    headers = {**HEADERS, "etag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)


class _DataRoutes:
    """The data that the key of a request may see."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def session(self, request: Request) -> Response:
        """Return the key of the request, and the settings of this server."""
        key, settings = self._service.access.identify(request.scope), self._service.settings
        return _private_json(
            {
                "version": __version__,
                "profile": settings.profile,
                "key": None if key is None else {"id": key.id, "name": key.name, "admin": key.admin},
                "recording": settings.store.enabled and self._service.store is not None,
                "content": settings.store.content,
                "retention_days": settings.store.retention_days,
                "routing": dataclasses.asdict(settings.routing),
                "fusion": {"rule": settings.fusion.rule, "lambda": settings.fusion.varentropy_weight},
            }
        )

    async def overview(self, request: Request) -> Response:
        """Sums and distributions over the traces that match."""
        store, wanted = self._store_and_query(request)
        found = await _read_store(asyncio.to_thread(store.archive.overview, wanted, wanted.step))
        rows = [dataclasses.asdict(row) for row in self._service.odar.targets.report()]
        problems = await asyncio.to_thread(self._service.odar.certificate_problems)
        own = None if wanted.key is None else f"key {wanted.key}"
        return _private_json(
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
        """Return a list of traces, newest first, and the cursor of the next."""
        store, wanted = self._store_and_query(request)
        page = await _read_store(asyncio.to_thread(store.archive.page, wanted, wanted.cursor(), wanted.limit))
        return _private_json({"traces": page.traces, "next": None if page.next is None else str(page.next)})

    async def trace(self, request: Request) -> Response:
        """One trace with its document; a trace of another key is reported as unknown."""
        store, wanted = self._store_and_query(request)
        trace_id = request.path_params["id"]
        found = await _read_store(store.get(trace_id), trace_id)
        if wanted.key is not None and found["key_id"] != wanted.key:
            raise _trace_not_found(trace_id)
        return _private_json(found)

    async def export(self, request: Request) -> Response:
        """Return every trace that matches, as JSONL, read while it is sent."""
        store, wanted = self._store_and_query(request)
        lines = (dump_json(trace) + b"\n" for trace in store.archive.export(wanted))
        first = await _read_store(
            asyncio.to_thread(next, lines, b"")
        )  # an error is reported before the response starts
        headers = {**_PRIVATE_HEADERS, "content-disposition": 'attachment; filename="odar-traces.jsonl"'}
        return StreamingResponse(chain([first], lines), headers=headers, media_type="application/jsonl")

    async def models(self, request: Request) -> Response:
        """Return every configured model."""
        self._service.access.identify(request.scope)
        return _private_json(await asyncio.to_thread(report_models, self._service))  # it may wait for a file's lock

    def _store_and_query(self, request: Request) -> tuple[Store, TraceQuery]:
        """Return the store and the parameters, limited to the traces that the key may read."""
        key = self._service.access.identify(request.scope)
        if self._service.store is None:
            raise ApiError(503, "this gateway keeps no traces: it was started without a store", "no_store")
        query = TraceQuery.read(request.query_params)
        limited = query if key is None or key.admin else msgspec.structs.replace(query, key=key.id)
        return self._service.store, limited


async def _read_store(work: Awaitable[Any], trace_id: str = "") -> Any:
    """Await a read of the store; its errors become API errors."""
    try:
        return await work
    except UnknownName:
        raise _trace_not_found(trace_id) from None
    except InputError as error:
        raise ApiError(400, str(error), "invalid_value", "since") from None
    except StoreError as error:
        raise dataclasses.replace(operator_error(error), code="store_unavailable", retry_after=2.0) from None


def _trace_not_found(trace_id: str) -> ApiError:
    return ApiError(404, f"there is no trace {trace_id[:64]!r} that this key may see", "trace_not_found", "id")


def _private_json(value: Any) -> Response:
    """Return a JSON response that must not be cached."""
    return json_response(value, headers=_PRIVATE_HEADERS)


class TraceQuery(Filter, frozen=True, kw_only=True):
    """Parameters of a request for traces: a filter, and how to show what it finds."""

    after: Text | None = None
    """Where the page begins: the cursor that the page before it gave."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    """Traces per page."""
    step: Literal["day", "hour", "minute"] = "day"
    """How fine the time series is."""

    @classmethod
    def read(cls, params: Mapping[str, str]) -> Self:
        """Read the parameters; an empty one counts as left out."""
        return convert({name: value for name, value in params.items() if value}, cls, strict=False)

    def cursor(self) -> Cursor | None:
        """Return where the page begins."""
        try:
            return None if self.after is None else Cursor.parse(self.after)
        except InputError as error:
            raise bad_field("after", str(error)) from None


_CARD_FIELDS = (
    "name", "provider", "id", "context", "images", "logprobs", "n", "price", "price_date", "scores",
)  # fmt: skip


def report_models(service: Service) -> dict[str, Any]:
    """Return every model of the catalogue and every one an agent uses, agents' models first."""
    settings = service.settings
    agents: dict[str, list[dict[str, Any]]] = {}
    for role in Role:
        for place, name in enumerate(settings.models_of(role)):
            agents.setdefault(name, []).append({"agent": role.value, "default": place == 0})
    names = dict.fromkeys([*agents, *settings.models])
    drift = [dataclasses.asdict(row) for row in service.odar.alignment_report()]
    cards = [dataclasses.asdict(settings.card(name)) for name in names]
    return {
        "models": [
            {field: card[field] for field in _CARD_FIELDS}
            | {
                "agents": agents.get(name, []),
                "usable": service.usable(name),
                "statistics": _statistics(service, name),
                "drift": [row for row in drift if row["model"] == name],
            }
            for name, card in zip(names, cards, strict=True)
        ],
        "breakers": {  # a provider that has not been used yet has none
            name: {"state": breaker.state.value, "failures": breaker.failures, "retry_s": breaker.waiting()}
            for name, breaker in service.breakers.items()
        },
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
        for source, known in odar.calibration.statistics.items()
        if source.model == model
    ]


class PlaygroundBody(Struct, forbid_unknown_fields=True):
    """A question that is asked on the dashboard."""

    question: str
    model: str | None = None
    path: str | None = None
    max_cost: Annotated[float, Meta(ge=0)] | None = None


def read_question(body: Any) -> ChatRequest:
    """Read a question with a path and a limit as a chat of one turn."""
    asked = convert(body, PlaygroundBody)
    if not asked.question.strip():
        raise bad_field("question", "is empty")
    limits = {"path": asked.path, "max_cost": asked.max_cost}
    turn = {"role": "user", "content": asked.question}
    return read_chat({"model": asked.model or "odar", "messages": [turn], "odar": limits})


def write_document(answer: Answer, request: ChatRequest) -> dict[str, Any]:
    """Return the trace in the form of a stored one with its texts, for the page that shows stored traces."""
    return {"id": answer.trace.id, "document": to_document(Record(request.query, answer), content=True)}


PLAYGROUND = WireProtocol("playground", read_question, write_document, ChatStream, openai_body)
