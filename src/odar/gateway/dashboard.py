"""The dashboard's addresses: its files, and the JSON that they ask for.

The files are public; every figure needs a key where keys exist. A key reads the traces that were asked with it, an
admin key (`odar keys create NAME --admin`) all of them; without any key, this machine reads all. The JSON is for
the dashboard of the same version and no promise to other programs: those have /v1, /metrics and `odar traces`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from odar import __version__
from odar.dashboard.files import HEADERS, INDEX, files
from odar.errors import InputError, StoreError, UnknownName
from odar.formats import dump_json
from odar.gateway.dashboard_query import read_cursor, read_filter, read_limit, read_step
from odar.gateway.endpoint import Endpoint
from odar.gateway.errors import ApiError, operator_fault
from odar.gateway.json_response import JsonResponse
from odar.gateway.model_report import report_models
from odar.gateway.playground import PLAYGROUND
from odar.gateway.ports import ApiKey, Traces
from odar.gateway.service import Service
from odar.store.overview import warnings_of
from odar.store.record import Filter

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
    """A file of the dashboard; 304 where the browser has it already."""
    name = request.path_params.get("name", INDEX)
    file = files().get(name)
    if file is None:
        raise ApiError(404, f"there is no GET /dashboard/{name}", "unknown_url")
    headers = {**HEADERS, "etag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)


class _Data:
    """The figures, as far as the key that asks may see them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def session(self, request: Request) -> Response:
        """Who asks, and what this server is set to."""
        grant = self._identify(request)
        settings, routing = self._service.settings, self._service.settings.routing
        key = None if grant is None else {"id": grant.key_id, "name": grant.name, "admin": grant.admin}
        return _private(
            {
                "version": __version__,
                "profile": settings.profile,
                "key": key,
                "recording": settings.store.enabled and self._service.traces is not None,
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
        """One trace with its document; another key's is as unknown as one that never was."""
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
        first = await _read(asyncio.to_thread(next, lines, b""))  # what is wrong is said before the head is out
        headers = {**_PRIVATE, "content-disposition": 'attachment; filename="odar-traces.jsonl"'}
        return StreamingResponse(_chain(first, lines), headers=headers, media_type="application/jsonl")

    async def models(self, request: Request) -> Response:
        """Every configured model."""
        self._identify(request)
        return _private(await asyncio.to_thread(report_models, self._service))  # it may wait for a file's lock

    def _identify(self, request: Request) -> ApiKey | None:
        return self._service.access.identify(request.scope)

    def _scope(self, request: Request) -> tuple[Traces, Filter]:
        """Where to read, and what of it may be read."""
        grant = self._identify(request)
        if self._service.traces is None:
            raise ApiError(503, "this gateway keeps no traces: it was started without a store", "no_store")
        wanted = read_filter(request.query_params)
        if grant is not None and not grant.admin:
            wanted = dataclasses.replace(wanted, key=grant.key_id)
        return self._service.traces, wanted


async def _read(work: Awaitable[Any], trace_id: str = "") -> Any:
    """What the store says; its errors in words that fit a reader."""
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
    """A figure that no cache may keep."""
    return JsonResponse(value, headers=_PRIVATE)
