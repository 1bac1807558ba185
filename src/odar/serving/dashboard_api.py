"""Routes of the dashboard: its files and its JSON API.

The files are public; data needs a key if keys exist. A key reads its own traces, an admin key (`odar keys create
NAME --admin`) all of them; without keys, this machine reads all. The JSON is for the dashboard of the same version
only; other programs use /v1, /metrics and `odar traces`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib import resources
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec
import orjson
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from odar import __version__
from odar.background import MAX_INLINE_BYTES, run_by_size
from odar.errors import InputError, StoreError, UnknownName
from odar.formats import dump_json, json_size
from odar.served.targets import TargetReport
from odar.serving.errors import ApiError, bad_field, operator_error
from odar.serving.keys import Key
from odar.serving.protocols.fields import convert
from odar.serving.service import Service
from odar.serving.store import Store
from odar.traces.observations import settings_lines
from odar.traces.overview import warnings_of
from odar.traces.record import Filter, Text, utc_or_error
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


def dashboard_routes(service: Service) -> list[Route]:
    data = _DataRoutes(service)
    return [
        Route("/", _serve_file, name=INDEX),
        Route(API + "/session", data.session),
        Route(API + "/overview", data.overview),
        Route(API + "/traces", data.page),
        Route(API + "/traces/{id}", data.trace),
        Route(API + "/export", data.export),
        Route(API + "/models", data.models),
        Route(API + "/observation", data.observation),
        Route("/dashboard/{name}", _serve_file),
    ]


@cache
def files() -> dict[str, tuple[bytes, str, str]]:
    """Return body, media type and ETag of all files; only these are served: no path is ever made from a request.

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
    """Return a file of the dashboard; 304 if the browser has it already."""
    name = request.path_params.get("name", INDEX)
    if name not in files():
        raise ApiError(404, f"there is no GET /dashboard/{name}", "unknown_url")
    body, media_type, etag = files()[name]
    headers = {**HEADERS, "etag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)


class _DataRoutes:
    """The JSON API, limited to the data that the request's key can read."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def session(self, request: Request) -> Response:
        key = self._service.access.identify(request.scope)
        settings = self._service.settings
        return await _private_json(
            {
                "version": __version__,
                "profile": settings.profile,
                "key": None if key is None else {"id": key.id, "name": key.name, "admin": key.admin},
                "recording": settings.store.enabled and self._service.store is not None,
                "content": settings.store.content,
                "retention_days": settings.store.retention_days,
                "policy": settings.policy,
                "dial": str(settings.dial()),
                "fusion": {"rule": settings.fusion.rule, "lambda": settings.fusion.varentropy_weight},
            }
        )

    async def overview(self, request: Request) -> Response:
        key, store, query = self._key_store_query(request)
        odar = self._service.odar

        def read() -> tuple[dict[str, Any], list[str], list[TargetReport]]:
            problems = [] if odar.certificate is None else odar.certificate.problems()
            return store.archive.overview(query, query.step), problems, odar.targets.report()

        overview, problems, rows = await self._read(key, read)
        shown = [dataclasses.asdict(row) for row in rows if query.key is None or f"key {query.key}" in row.scope]
        warnings = [f"certificate removed: {problem}" for problem in problems]
        if (since := store.observations.fallback_at) is not None:
            whose = "every request" if store.observations.fell_back(query.key) else "requests of some keys"
            warnings.append(f"slow answers {whose} since {since}: the cascade differed too often from it")
        warnings += warnings_of(overview, odar.settings)
        return await _private_json({**overview, "targets": shown, "warnings": warnings})

    async def observation(self, request: Request) -> Response:
        key, store, query = self._key_store_query(request)
        settings = self._service.settings
        observer = self._service.traffic_observer
        work = partial(store.observations.report, query.since, query.key, query.step, MAX_EXAMPLES)
        report = await self._read(key, work)
        agents = self._service.odar.believed_agents.items()
        learned = self._service.odar.agreement.skills()
        return await _private_json(
            {
                **report,
                **dataclasses.asdict(settings.observe),
                "share": settings.observe.used_share,
                "observed": 0 if observer is None else observer.observed,
                "dropped": {} if observer is None else dict(observer.dropped),
                "skills": [
                    {"agent": name, "expected": agent.skill, "learned": learned[i] if learned else None}
                    for i, (name, agent) in enumerate(agents)
                ],
                "toml": settings_lines(settings),
            }
        )

    async def page(self, request: Request) -> Response:
        key, store, query = self._key_store_query(request)
        work = partial(store.archive.page, query, query.after, query.limit)
        return await _private_json(await self._read(key, work))

    async def trace(self, request: Request) -> Response:
        """Return one trace with its document; a trace of another key is reported as unknown."""
        key, store, query = self._key_store_query(request)
        trace_id = request.path_params["id"]
        async with self._service.read_threads.turn_of(key):
            with _api_errors(trace_id):
                trace = await store.get(trace_id)
            if query.key is not None and trace["key_id"] != query.key:
                raise _trace_not_found(trace_id)
            story = await self._service.read_threads.run(lambda: tell_story(trace["document"]))
            return await _private_json({**trace, "story": story})

    async def export(self, request: Request) -> Response:
        """Stream the traces that match as JSONL."""
        key, store, query = self._key_store_query(request)
        traces = store.archive.export(query, orjson.Fragment)  # documents are copied, not parsed
        lines = (dump_json(trace) + b"\n" for trace in traces)

        def read_part() -> bytes:
            part = b""
            while len(part) < MAX_INLINE_BYTES and (line := next(lines, b"")):
                part += line
            return part

        async def parts(part: bytes) -> AsyncIterator[bytes]:
            while part:
                yield part
                part = await self._read(key, read_part)  # takes no turn while the client reads

        first = await self._read(key, read_part)  # an error is reported before the response starts
        headers = {**_PRIVATE_HEADERS, "content-disposition": 'attachment; filename="odar-traces.jsonl"'}
        return StreamingResponse(parts(first), headers=headers, media_type="application/jsonl")

    async def models(self, request: Request) -> Response:
        key = self._service.access.identify(request.scope)
        report = await self._read(key, partial(report_models, self._service, key))  # may wait for a file lock
        return await _private_json(report)

    async def _read(self, key: Key | None, work: Callable[[], T]) -> T:
        """Read the store in a thread, when it is this key's turn."""
        async with self._service.read_threads.turn_of(key):
            with _api_errors():
                return await self._service.read_threads.run(work)

    def _key_store_query(self, request: Request) -> tuple[Key | None, Store, TraceQuery]:
        """Return the key, the store, and the parameters, limited to the traces that the key may read."""
        key = self._service.access.identify(request.scope)
        if self._service.store is None:
            raise ApiError(503, "this gateway keeps no traces: it was started without a store", "no_store")
        query = TraceQuery.read(request.query_params)
        limited = query if key is None or key.admin else msgspec.structs.replace(query, key=key.id)
        return key, self._service.store, limited


@contextmanager
def _api_errors(trace_id: str = "") -> Iterator[None]:
    """Convert errors of the store to ApiError."""
    try:
        yield
    except UnknownName:
        raise _trace_not_found(trace_id) from None
    except InputError as error:
        raise bad_field("after", str(error)) from None
    except StoreError as error:
        raise dataclasses.replace(operator_error(error), code="store_unavailable", retry_after=2.0) from None


def _trace_not_found(trace_id: str) -> ApiError:
    return ApiError(404, f"there is no trace {trace_id[:64]!r} of this key", "trace_not_found", "id")


async def _private_json(value: Any) -> Response:
    body = await run_by_size(json_size(value, MAX_INLINE_BYTES), partial(dump_json, value))
    return Response(body, headers=_PRIVATE_HEADERS, media_type="application/json")


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
        for name in ("since", "until"):
            try:
                _ = (moment := getattr(query, name)) and utc_or_error(moment)
            except InputError as error:
                raise bad_field(name, str(error)) from None
        return query


_CARD_FIELDS = (
    "name", "provider", "id", "context", "images", "logprobs", "n", "price", "price_date", "scores",
)  # fmt: skip


def report_models(service: Service, key: Key | None = None) -> dict[str, Any]:
    """Return the models of the agents and of the catalogue, in this order, and the circuit breakers.

    A key that may use some models sees only these and their providers, unless it is an admin's.
    """
    settings = service.settings
    agents: dict[str, list[dict[str, Any]]] = {}
    for agent in settings.agent_names:
        for i, name in enumerate(settings.models_of(agent)):
            agents.setdefault(name, []).append({"agent": agent, "default": i == 0})
    names = dict.fromkeys([*agents, *settings.models])
    if key is not None and key.limits.models is not None and not key.admin:
        names = {name: None for name in names if name in key.limits.models}
    providers = {settings.card(name).provider for name in names}
    drift = [dataclasses.asdict(row) for row in service.alignment_report()]
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
        "breakers": {  # of providers that have been used
            name: report._asdict() for name, report in service.breaker_reports().items() if name in providers
        },
    }


def _statistics(service: Service, model: str) -> list[dict[str, Any]]:
    """Return μ and σ of every calibrated source of a model, and whether the gateway uses it."""
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
