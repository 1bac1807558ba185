"""create_app(settings): every address of the gateway, and what answers there."""

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

from odar.gateway.chat import ChatStream, read_chat, write_chat
from odar.gateway.chat_request import ChatRequest
from odar.gateway.dashboard import dashboard_routes
from odar.gateway.endpoint import Endpoint, StoredResponses, TokenCount, WireProtocol
from odar.gateway.errors import ApiError, anthropic_body, api_error_of, openai_body
from odar.gateway.exchange import ClientLeft, Receive, Scope, Send, json_response, read_body
from odar.gateway.fields import convert, read_json
from odar.gateway.logs import Logs
from odar.gateway.messages import MessageStream, read_messages, write_message
from odar.gateway.openapi import Feedback, openapi_document
from odar.gateway.passthrough import PassThrough, read_completions, read_embeddings
from odar.gateway.responses import ResponseStream, read_responses, write_response
from odar.gateway.service import Service
from odar.settings import Settings
from odar.store.store import Store
from odar.types import Query

CHAT = WireProtocol("chat.completions", read_chat, write_chat, ChatStream, openai_body)
MESSAGES = WireProtocol("messages", read_messages, write_message, MessageStream, anthropic_body)
RESPONSES = WireProtocol("responses", read_responses, write_response, ResponseStream, openai_body)
EMBEDDINGS = CHAT._replace(name="embeddings", read=read_embeddings)
COMPLETIONS = CHAT._replace(name="completions", read=read_completions)
_FEEDBACK_BYTES = 64_000


def create_app(
    settings: Settings,
    *,
    store: Store | None = None,
    logs: Logs | None = None,
    announce: Callable[[str], None] | None = None,
    **engine_options: Any,
) -> Starlette:
    """Return the gateway as an ASGI application.

    Args:
        settings: from `load_settings`.
        store: keys and traces; without one, requests from this machine only, and nothing is kept.
        logs: receives a line for each question; None writes none.
        announce: receives lines about the start: which models answer, and when all is ready; without one, no
            server is asked before the first question.
        engine_options: for `Odar`, such as ready-made providers.

    `app.state.service` holds the engine, the concurrency_limit, the breakers and the metrics.
    """
    service = Service(settings, store, logs, **engine_options)
    utility = _UtilityRoutes(service)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        warming = asyncio.create_task(
            _warm_up(service, announce)
        )  # concurrent with serving: /healthz answers at once
        yield
        warming.cancel()
        await service.close()

    kept = store if settings.store.responses else None
    questions = {
        "/v1/chat/completions": Endpoint(service, CHAT),
        "/v1/messages": Endpoint(service, MESSAGES),
        "/v1/responses": StoredResponses(service, RESPONSES, kept) if kept else Endpoint(service, RESPONSES),
        "/v1/embeddings": PassThrough(service, EMBEDDINGS),
        "/v1/completions": PassThrough(service, COMPLETIONS),
        "/v1/messages/count_tokens": TokenCount(service, MESSAGES._replace(read=_read_countable)),
    }
    routes = [
        *(Route(address, endpoint, methods=["POST"]) for address, endpoint in questions.items()),
        Route("/v1/feedback", utility.feedback, methods=["POST"]),
        Route("/v1/models", utility.models),
        Route("/v1/models/{name:path}", utility.model),
        Route("/healthz", utility.healthz),
        Route("/readyz", utility.readyz),
        Route("/metrics", utility.metrics),
        Route("/openapi.json", utility.openapi),
        *dashboard_routes(service),
    ]
    handlers: Any = dict.fromkeys((HTTPException, ApiError, ClientLeft), _error_response)
    app = _Gateway(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.questions = questions
    if origins := settings.gateway.cors_origins:
        app.cors = CORSMiddleware(
            app.answer,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=[
                *(f"x-odar-{name}" for name in ("trace", "path", "difficulty", "calls", "cost-usd")),
                *(f"x-ratelimit-{name}-requests" for name in ("limit", "remaining", "reset")),
                *(f"x-ratelimit-{name}-tokens" for name in ("limit", "remaining", "reset")),
            ],
        )
    app.state.service = service
    return app


class _UtilityRoutes:
    """The addresses that ask no model: models, feedback, health, metrics, and the API's own description."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._started = int(time.time())

    async def models(self, request: Request) -> Response:
        """Return every model that this key can use and whose server answers, in a shape that both SDKs read."""
        key = self._service.access.identify(request.scope)
        listed = [self._model_entry(name, owner) for name, owner in await self._service.models(key)]
        ids = [entry["id"] for entry in listed] or [None]
        ends = {"first_id": ids[0], "last_id": ids[-1], "has_more": False}
        return json_response({"object": "list", "data": listed, **ends})

    async def model(self, request: Request) -> Response:
        """One model; refused exactly where a question to it would be."""
        key = self._service.access.identify(request.scope)
        name = request.path_params["name"]
        named = self._service.route(ChatRequest(name, Query("")), key).get("model")
        return json_response(
            self._model_entry(name, self._service.settings.card(named).provider if named else "odar")
        )

    async def feedback(self, request: Request) -> Response:
        """Return an answer marked right or wrong, by the key that asked or an admin's."""
        key = self._service.access.identify(request.scope)
        gateway = self._service.settings.gateway
        body = await read_body(request.scope["headers"], request.receive, _FEEDBACK_BYTES, gateway.body_timeout_s)
        mark = convert(read_json(body), Feedback)
        if not await self._service.mark(mark.trace_id, mark.correct, mark.note or "", key):
            raise ApiError(404, f"there is no trace {mark.trace_id!r}", "trace_not_found", "trace_id")
        return json_response({"trace_id": mark.trace_id, "recorded": True})

    async def healthz(self, request: Request) -> Response:
        """Return 200 while the process is alive."""
        return json_response({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Requests are welcome; not while draining, nor before what the first one needs is loaded."""
        if self._service.concurrency_limit.draining:
            return json_response({"status": "draining"}, 503)
        if not self._service.odar.warm:
            return json_response({"status": "loading"}, 503)
        return json_response({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """Figures for Prometheus."""
        self._service.access.check_metrics(request.scope)
        metrics = self._service.metrics
        return Response(await metrics.render(), headers={"content-type": metrics.content_type})

    async def openapi(self, request: Request) -> Response:
        """This API, described."""
        return json_response(openapi_document())

    def _model_entry(self, name: str, owner: str) -> dict[str, Any]:
        shared = {"id": name, "display_name": name, "created": self._started, "owned_by": owner}
        return {**shared, "object": "model", "type": "model"}


def _read_countable(body: Any) -> ChatRequest:
    """Read a request to count tokens, which needs no `max_tokens`."""
    return read_messages({"max_tokens": 1, **body} if isinstance(body, dict) else body)


async def _warm_up(service: Service, announce: Callable[[str], None] | None) -> None:
    """Load what the first question needs, and say which models answer."""
    started = time.monotonic()
    warming = asyncio.create_task(service.odar.warm_up())
    try:
        if announce is not None:
            for line in await service.agent_status_lines():
                announce(line)
        await warming
    finally:
        warming.cancel()
    if announce is not None:
        announce(f"ready after {time.monotonic() - started:.1f} s")


class _Gateway(Starlette):
    """Starlette, but questions go straight to their endpoint, which answers for its own errors."""

    questions: Mapping[str, Endpoint]
    cors: CORSMiddleware | None = None
    """Tells browsers which pages may read answers; only if `gateway.cors_origins` names some."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a program or of a web page."""
        await (self.cors or self.answer)(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; three layers of middleware would take a twentieth of a question's time."""
        asked = scope["type"] == "http" and scope["method"] == "POST"
        await (self.questions.get(scope["path"], super().__call__) if asked else super().__call__)(
            scope, receive, send
        )


async def _error_response(request: Request, error: Exception) -> Response:
    """Return an error in the shape of the client's SDK; Anthropic's sends its version with every request."""
    if isinstance(error, HTTPException):  # Starlette's own 404 and 405
        what = f"{request.method} {request.url.path}"
        message = f"there is no {what}" if error.status_code == 404 else f"{what}: {error.detail}"
        api_error, headers = ApiError(error.status_code, message, "unknown_url"), dict(error.headers or {})
    else:
        api_error = api_error_of(error)
        headers = {name.decode(): value.decode() for name, value in api_error.headers}
    anthropic = request.url.path.startswith("/v1/messages") or "anthropic-version" in request.headers
    body = anthropic_body(api_error) if anthropic else openai_body(api_error)
    return json_response(body, api_error.status, headers)
