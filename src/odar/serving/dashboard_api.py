"""Routes of the dashboard: its files and its JSON API.

The files are public; data needs a key if keys exist. A key reads its own traces, an admin key (`odar keys create
NAME --admin`) all of them; without keys, this machine reads all. The JSON is for the dashboard of the same version
only; other programs use /v1, /metrics and `odar traces`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec
import orjson
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from odar import __version__
from odar.background import MAX_INLINE_BYTES
from odar.errors import InputError, StoreError, UnknownName
from odar.formats import dump_json
from odar.serving.concurrency import PerKeyThreads
from odar.serving.errors import ApiError, bad_field, operator_error
from odar.serving.keys import NO_KEY, Key
from odar.serving.protocols.json_body import convert
from odar.serving.service import Service
from odar.traces.filter import Filter, Text, parse_time
from odar.traces.observations import settings_toml
from odar.traces.overview import warnings_of
from odar.traces.story import tell_story

T = TypeVar("T")
API = "/dashboard/api"
INDEX = "index.html"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"  # strings cannot become markup
)
"""Allows the page to load its own files and to call its own server, and nothing else."""
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
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
MAX_EXAMPLES = 20
_PRIVATE_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@cache
def files() -> dict[str, tuple[bytes, str, str]]:
    """Body, media type and ETag of each file. No path is made from a request, so nothing else can be served.

    >>> files()["index.html"][1]
    'text/html; charset=utf-8'
    """
    served = {}
    for path in resources.files("odar.serving.dashboard").joinpath("static").iterdir():
        media_type = _MEDIA_TYPES.get(path.name.rpartition(".")[2])
        if media_type is not None:
            body = path.read_bytes()
            served[path.name] = (body, media_type, f'"{hashlib.sha256(body).hexdigest()[:20]}"')
    return served


async def _serve_file(request: Request) -> Response:
    """A file of the dashboard; 304 if the browser has it already."""
    name = request.path_params.get("name", INDEX)
    if name not in files():
        raise ApiError(404, f"there is no GET /dashboard/{name}", "unknown_url")
    body, media_type, etag = files()[name]
    headers = {**HEADERS, "etag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)


class TraceQuery(Filter, frozen=True, kw_only=True):
    """Query parameters of requests for traces."""

    after: Text | None = None
    """The cursor of the page, from the previous page."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    step: Literal["day", "hour", "minute"] = "day"
    """The interval of time series."""

    @classmethod
    def read(cls, params: Mapping[str, str]) -> Self:
        """Read the parameters; empty ones are ignored."""
        query = convert({name: value for name, value in params.items() if value}, cls, strict=False)
        for name, moment in (("since", query.since), ("until", query.until)):
            try:
                if moment is not None:
                    parse_time(moment)
            except InputError as error:
                raise bad_field(name, str(error)) from None
        return query


@dataclass(frozen=True, slots=True)
class _View:
    """What a request may read."""

    service: Service
    key: Key
    query: TraceQuery
    """The parameters, limited to the traces that the key may read."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[PerKeyThreads]:
        """Wait for this key's turn to use the threads for reads; errors of the store become ApiError."""
        async with self.service.read_threads.turn_of(self.key):
            try:
                yield self.service.read_threads
            except InputError as error:
                raise bad_field("after", str(error)) from None
            except StoreError as error:
                busy = operator_error(error)
                raise dataclasses.replace(busy, code="store_unavailable", retry_after=2.0) from None

    async def run(self, work: Callable[[], T]) -> T:
        async with self.turn() as threads:
            return await threads.run(work)


def _view(request: Request) -> _View:
    service: Service = request.app.state.service
    key = service.access.identify(request.scope)
    query = TraceQuery.read(request.query_params)
    return _View(service, key, query if key.admin else msgspec.structs.replace(query, key=key.id))


def _json_route(read: Callable[[_View], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that calls the function in a thread."""

    async def endpoint(request: Request) -> Response:
        view = _view(request)
        return _private_json(await view.run(lambda: dump_json(read(view))))

    return endpoint


def _private_json(body: bytes) -> Response:
    return Response(body, headers=_PRIVATE_HEADERS, media_type="application/json")


def _session(view: _View) -> dict[str, Any]:
    key = view.key
    settings = view.service.settings
    return {
        "version": __version__,
        "profile": settings.profile,
        "key": None if key is NO_KEY else {"id": key.id, "name": key.name, "admin": key.admin},
        "recording": settings.store.enabled,
        "content": settings.store.content,
        "retention_days": settings.store.retention_days,
        "policy": settings.policy,
        "dial": str(settings.dial()),
        "fusion": {"rule": settings.fusion.rule, "lambda": settings.fusion.varentropy_weight},
    }


def _overview(view: _View) -> dict[str, Any]:
    odar = view.service.odar
    query = view.query
    observations = view.service.store.observations
    overview = view.service.store.archive.overview(query, query.step)
    targets = [row for row in odar.targets.report() if query.key is None or f"key {query.key}" in row.scope]
    problems = [] if odar.certificate is None else odar.certificate.problems()
    warnings = [f"certificate removed: {problem}" for problem in problems]
    if (since := observations.fallback_at) is not None:
        whose = "every request" if observations.fell_back(query.key or "") else "requests of some keys"
        warnings.append(f"slow answers {whose} since {since}: the cascade differed too often from it")
    warnings += warnings_of(overview, odar.settings)
    return {**overview, "targets": list(map(dataclasses.asdict, targets)), "warnings": warnings}


def _observation(view: _View) -> dict[str, Any]:
    odar = view.service.odar
    settings = odar.settings
    observer = view.service.traffic_observer
    query = view.query
    learned = odar.agreement.skills()
    return {
        **view.service.store.observations.report(query.since, query.key, query.step, MAX_EXAMPLES),
        **dataclasses.asdict(settings.observe),
        "share": settings.observe.used_share,
        "observed": observer.observed,
        "dropped": dict(observer.dropped),
        "skills": [
            {"agent": name, "expected": agent.skill, "learned": learned[i] if learned else None}
            for i, (name, agent) in enumerate(odar.rated_agents.items())
        ],
        "toml": settings_toml(settings),
    }


def _page(view: _View) -> dict[str, Any]:
    return view.service.store.archive.page(view.query, view.query.after, view.query.limit)


async def _trace(request: Request) -> Response:
    """One trace with its document; a trace of another key is reported as unknown."""
    view = _view(request)
    trace_id = request.path_params["id"]
    async with view.turn() as threads:
        try:
            trace = await view.service.store.get(trace_id)
        except UnknownName:
            trace = None
        if trace is None or view.query.key not in (None, trace["key_id"]):
            raise ApiError(404, f"there is no trace {trace_id[:64]!r} of this key", "trace_not_found", "id")
        return _private_json(
            await threads.run(lambda: dump_json({**trace, "story": tell_story(trace["document"])}))
        )


async def _export(request: Request) -> Response:
    """Stream the traces that match as JSONL."""
    view = _view(request)
    traces = view.service.store.archive.export(view.query, orjson.Fragment)  # documents are copied, not parsed
    lines = (dump_json(trace) + b"\n" for trace in traces)

    def read_part() -> bytes:
        part = b""
        while len(part) < MAX_INLINE_BYTES and (line := next(lines, b"")):
            part += line
        return part

    async def parts(part: bytes) -> AsyncIterator[bytes]:
        while part:
            yield part
            part = await view.run(read_part)  # takes no turn while the client reads

    first = await view.run(read_part)  # an error is reported before the response starts
    headers = {**_PRIVATE_HEADERS, "content-disposition": 'attachment; filename="odar-traces.jsonl"'}
    return StreamingResponse(parts(first), headers=headers, media_type="application/jsonl")


_CARD_FIELDS = (
    "name", "provider", "id", "context", "images", "logprobs", "n", "price", "price_date", "scores",
)  # fmt: skip


def _models(view: _View) -> dict[str, Any]:
    """The models of the agents and of the catalogue, in this order, and the circuit breakers.

    A key that may use some models sees only these and their providers, unless it is an admin's.
    """
    service = view.service
    key = view.key
    settings = service.settings
    agents: dict[str, list[dict[str, Any]]] = {}
    for agent in settings.agent_names:
        for i, name in enumerate(settings.models_of(agent)):
            agents.setdefault(name, []).append({"agent": agent, "default": i == 0})
    names = dict.fromkeys([*agents, *settings.models])
    if key.models is not None and not key.admin:
        names = {name: None for name in names if name in key.models}
    providers = {settings.card(name).provider for name in names}
    drift = [dataclasses.asdict(row) for row in service.drift_report()]
    breakers = service.metrics.breaker_reports()
    cards = [dataclasses.asdict(settings.card(name)) for name in names]
    return {
        "models": [
            {field: card[field] for field in _CARD_FIELDS}
            | {
                "agents": agents.get(name, []),
                "usable": service.models.is_usable(name),
                "statistics": _statistics(service, name),
                "drift": [row for row in drift if row["model"] == name],
            }
            for name, card in zip(names, cards, strict=True)
        ],
        # of providers that have been used
        "breakers": {name: report._asdict() for name, report in breakers.items() if name in providers},
    }


def _statistics(service: Service, model: str) -> list[dict[str, Any]]:
    """Mean and deviation (μ, σ) of every calibrated source of a model, and whether the gateway uses it."""
    odar = service.odar
    in_use = {
        odar.agents.source(model, agent, step)
        for agent, step in odar.agents.sources()
        if model in odar.settings.models_of(agent)
    }
    steps = odar.agents.prompts.steps()
    return [
        dataclasses.asdict(source)
        | dataclasses.asdict(statistics)
        | {"step": steps.get(source.prompt_md5), "in_use": source in in_use}
        for source, statistics in odar.calibration.statistics.items()
        if source.model == model
    ]


DASHBOARD_ROUTES = [
    Route("/", _serve_file, name=INDEX),
    Route("/dashboard/{name}", _serve_file),
    Route(API + "/session", _json_route(_session)),
    Route(API + "/overview", _json_route(_overview)),
    Route(API + "/traces", _json_route(_page)),
    Route(API + "/traces/{id}", _trace),
    Route(API + "/models", _json_route(_models)),
    Route(API + "/observation", _json_route(_observation)),
    Route(API + "/export", _export),
]
