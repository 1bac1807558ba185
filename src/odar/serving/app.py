"""The gateway as an ASGI application: `create_app` and its routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from odar.errors import KeyRefused, UnknownName
from odar.serving.dashboard_api import DASHBOARD_ROUTES
from odar.serving.endpoint import DecisionEndpoint, Endpoint, StoredResponses, TokenCount
from odar.serving.errors import ApiError, anthropic_body, api_error_of, openai_body
from odar.serving.exchange import ClientLeft, json_response, read_body
from odar.serving.forward import ForwardEndpoint, read_completions, read_embeddings
from odar.serving.logs import Logs
from odar.serving.openapi import Feedback, openapi_document
from odar.serving.protocols.chat import ChatWriter, read_chat, read_decision
from odar.serving.protocols.chat_request import ChatRequest
from odar.serving.protocols.json_body import convert, read_json
from odar.serving.protocols.messages import MessageWriter, read_count_tokens, read_messages
from odar.serving.protocols.responses import ResponseWriter, read_responses
from odar.serving.service import Service
from odar.serving.store import Store
from odar.serving.workers import READY, Workers
from odar.settings import Settings
from odar.types import Query

_FEEDBACK_BYTES = 64_000
_BATCH_PATHS = [
    f"/v1/{name}{rest}" for name in ("batches", "files", "messages/batches") for rest in ("", "/{_:path}")
]
_EXPOSED_HEADERS = [
    *(f"x-odar-{name}" for name in ("trace", "path", "difficulty", "calls", "cost-usd")),
    *(f"x-ratelimit-{name}-{unit}" for unit in ("requests", "tokens") for name in ("limit", "remaining", "reset")),
]
"""Response headers that web pages can read."""


def create_app(
    settings: Settings,
    *,
    store: Store,
    logs: Logs | None = None,
    announce: Callable[[str], None] | None = None,
    workers: Workers | None = None,
    **engine_options: Any,
) -> Starlette:
    """The gateway as an ASGI application; `app.state.service` is the `Service` made of these arguments.

    `announce` receives lines during start-up: which models answer, and when the gateway is ready. Without it, no
    server is contacted before the first question.
    """
    service = Service(settings, store, logs, workers, **engine_options)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        warm_up = asyncio.create_task(_warm_up(service, announce))  # while serving: /healthz answers at once
        publishing = asyncio.create_task(service.metrics.keep_publishing())
        yield
        warm_up.cancel()
        publishing.cancel()
        await service.close()

    # conversations are posted to these
    responses = StoredResponses if settings.store.responses else Endpoint
    endpoints = {
        "/v1/chat/completions": Endpoint(service, "chat.completions", read_chat, ChatWriter),
        "/v1/messages": Endpoint(service, "messages", read_messages, MessageWriter),
        "/v1/responses": responses(service, "responses", read_responses, ResponseWriter),
        "/v1/decision": DecisionEndpoint(service, "decision", read_decision, ChatWriter),
        "/v1/embeddings": ForwardEndpoint(service, "embeddings", read_embeddings, ChatWriter),
        "/v1/completions": ForwardEndpoint(service, "completions", read_completions, ChatWriter),
        "/v1/messages/count_tokens": TokenCount(service, "messages", read_count_tokens, MessageWriter),
    }
    routes = [
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()),
        *_UTILITY_ROUTES,
        *DASHBOARD_ROUTES,
    ]
    handlers: Any = dict.fromkeys((HTTPException, ApiError, ClientLeft, KeyRefused), _error_response)
    app = _Gateway(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.endpoints = endpoints
    app.router.redirect_slashes = False  # the address would be made from the client's Host header
    if origins := settings.gateway.cors_origins:
        app.cors = CORSMiddleware(
            app.answer,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
        )
    app.state.service = service
    return app


async def _models(request: Request) -> Response:
    """Every model that this key can use and whose server answers, for OpenAI's and Anthropic's SDKs."""
    service: Service = request.app.state.service
    key = service.access.identify(request.scope)
    listed = [service.models.entry(name) for name in await service.models.listed(key)]
    ids = [entry["id"] for entry in listed] or [None]
    page = {"first_id": ids[0], "last_id": ids[-1], "has_more": False}
    return json_response({"object": "list", "data": listed, **page})


async def _model(request: Request) -> Response:
    """One model; rejected if this key may not ask it."""
    service: Service = request.app.state.service
    name = request.path_params["name"]
    service.route(ChatRequest(name, Query("")), service.access.identify(request.scope))
    return json_response(service.models.entry(name))


async def _feedback(request: Request) -> Response:
    """Mark an answer right or wrong; only with the key that asked, or an admin's."""
    service: Service = request.app.state.service
    key = service.access.identify(request.scope)
    service.concurrency_limit.count_request(key)
    body = await read_body(request.scope["headers"], request.receive, _FEEDBACK_BYTES)
    feedback = convert(read_json(body), Feedback)
    try:
        async with service.read_threads.turn_of(key):
            by = None if key.admin else key.id
            await service.store.mark(feedback.trace_id, feedback.correct, feedback.note or None, by)
    except UnknownName:
        message = f"there is no trace {feedback.trace_id!r}"
        raise ApiError(404, message, "trace_not_found", "trace_id") from None
    return json_response({"trace_id": feedback.trace_id, "recorded": True})


async def _batches(request: Request) -> Response:
    """Reject files and batches of both protocols, and say what to do instead."""
    request.app.state.service.access.identify(request.scope)
    command = "`odar batch requests.jsonl answers.jsonl --budget USD`"
    lines = "one object with id and messages a line"
    message = f"files and batches are not served: the gateway keeps no files; run {command} instead, {lines}"
    raise ApiError(501, message, "not_supported")


async def _healthz(request: Request) -> Response:
    return json_response({"status": "ok"})


async def _readyz(request: Request) -> Response:
    """200 if requests are accepted; 503 while loading or shutting down, or if the store of keys is lost."""
    service: Service = request.app.state.service
    if service.concurrency_limit.draining:
        return json_response({"status": "draining"}, 503)
    if not service.odar.planner.estimator.loaded:
        return json_response({"status": "loading"}, 503)
    if service.access.keys_required and service.access.keys.lost:
        return json_response({"status": "store unavailable"}, 503)
    return json_response({"status": "ready"})


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    service.access.check_metrics(request.scope)
    return Response(await service.metrics.render(), headers={"content-type": service.metrics.content_type})


async def _openapi(request: Request) -> Response:
    return json_response(openapi_document())


_UTILITY_ROUTES = [
    Route("/v1/feedback", _feedback, methods=["POST"]),
    *(Route(path, _batches, methods=["GET", "POST", "DELETE"]) for path in _BATCH_PATHS),
    Route("/v1/models", _models),
    Route("/v1/models/{name:path}", _model),
    Route("/healthz", _healthz),
    Route("/readyz", _readyz),
    Route("/metrics", _metrics),
    Route("/openapi.json", _openapi),
]
"""Routes that call no model."""


async def _warm_up(service: Service, announce: Callable[[str], None] | None) -> None:
    """Load what the first question needs, and announce which models answer."""
    started = time.monotonic()
    loading = asyncio.create_task(service.odar.warm_up())
    try:
        if announce is not None:
            for line in await service.status_lines():
                announce(line)
        await loading
    finally:
        loading.cancel()
    service.workers.mark(READY)
    if announce is not None:
        while any(state != READY for state in service.workers.states):  # noqa: ASYNC110 - they are other processes
            await asyncio.sleep(0.05)
        announce(f"ready after {time.monotonic() - started:.1f} s")


class _Gateway(Starlette):
    """Starlette, except that POST requests to endpoints bypass its middleware."""

    endpoints: Mapping[str, Endpoint]
    cors: CORSMiddleware | None = None
    """Adds the headers for `gateway.cors_origins`; None if there are none."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with CORS headers if they are configured."""
        await (self.cors or self.answer)(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; Starlette's three layers of middleware would take a twentieth of its time."""
        app: ASGIApp = super().__call__
        if scope["type"] == "http" and scope["method"] == "POST":
            app = self.endpoints.get(scope["path"], app)
        await app(scope, receive, send)


async def _error_response(request: Request, error: Exception) -> Response:
    """An error in the format of the client's SDK; Anthropic's SDK sends `anthropic-version`."""
    if isinstance(error, HTTPException):  # Starlette's own 404 and 405
        target = f"{request.method} {request.url.path}"
        message = f"there is no {target}" if error.status_code == 404 else f"{target}: {error.detail}"
        api_error = ApiError(error.status_code, message, "unknown_url")
        headers = dict(error.headers or {})
    else:
        api_error = api_error_of(error)
        headers = {name.decode(): value.decode() for name, value in api_error.headers}
    anthropic = request.url.path.startswith("/v1/messages") or "anthropic-version" in request.headers
    body = anthropic_body(api_error) if anthropic else openai_body(api_error)
    return json_response(body, api_error.status, headers)
