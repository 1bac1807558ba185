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
from odar.gateway.dashboard import dashboard_routes
from odar.gateway.endpoint import Endpoint, StoredResponses, TokenCount, WireProtocol
from odar.gateway.errors import ApiError, anthropic_body, api_error_of, openai_body
from odar.gateway.exchange import ClientLeft, JsonResponse, Receive, Scope, Send
from odar.gateway.health import health_routes
from odar.gateway.logs import Logs
from odar.gateway.messages import MessageStream, read_messages, write_message
from odar.gateway.passthrough import PassThrough, read_completions, read_embeddings
from odar.gateway.records import Keys, Recorder
from odar.gateway.responses import ResponseStream, read_responses, write_response
from odar.gateway.service import Service
from odar.settings import Settings
from odar.store.store import Store

CHAT = WireProtocol("chat.completions", read_chat, write_chat, ChatStream, openai_body)
MESSAGES = WireProtocol("messages", read_messages, write_message, MessageStream, anthropic_body)
RESPONSES = WireProtocol("responses", read_responses, write_response, ResponseStream, openai_body)
EMBEDDINGS = CHAT._replace(name="embeddings", read=read_embeddings)
COMPLETIONS = CHAT._replace(name="completions", read=read_completions)


def create_app(
    settings: Settings,
    *,
    keys: Keys | None = None,
    recorder: Recorder | None = None,
    traces: Store | None = None,
    logs: Logs | None = None,
    announce: Callable[[str], None] | None = None,
    **engine_options: Any,
) -> Starlette:
    """The gateway as an ASGI application.

    Args:
        settings: from `load_settings`.
        keys: who may ask; without one, requests from this machine only.
        recorder: where traces go; without one, nowhere.
        traces: where the dashboard reads them; without one, it has none to show.
        logs: where each question gets a line; without one, nowhere.
        announce: receives lines about the start: which models answer, and when all is ready; without one, no
            server is asked before the first question.
        engine_options: for `Odar`, such as ready-made providers.

    `app.state.service` holds the engine, the gate, the breakers and the metrics.
    """
    service = Service(settings, keys, recorder, traces, logs=logs, **engine_options)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        warming = asyncio.create_task(_start(service, announce))  # beside serving: /healthz answers at once
        yield
        warming.cancel()
        await service.close()

    questions = {
        "/v1/chat/completions": Endpoint(service, CHAT),
        "/v1/messages": Endpoint(service, MESSAGES),
        "/v1/responses": StoredResponses(service, RESPONSES),
        "/v1/embeddings": PassThrough(service, EMBEDDINGS),
        "/v1/completions": PassThrough(service, COMPLETIONS),
        "/v1/messages/count_tokens": TokenCount(service, MESSAGES),
    }
    routes = [
        *(Route(address, endpoint, methods=["POST"]) for address, endpoint in questions.items()),
        *health_routes(service),
        *dashboard_routes(service),
    ]
    handlers: Any = {HTTPException: _http_error, ApiError: _refused, ClientLeft: _refused}
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


async def _start(service: Service, announce: Callable[[str], None] | None) -> None:
    """Load what the first question needs, and say which models answer."""
    started = time.monotonic()
    warming = asyncio.create_task(service.odar.warm_up())
    try:
        if announce is not None:
            for line in await service.agent_lines():
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


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    what = f"{request.method} {request.url.path}"
    message = f"there is no {what}" if status == 404 else f"{what}: {getattr(error, 'detail', 'error')}"
    headers = dict(getattr(error, "headers", None) or {})
    return JsonResponse(_error_body(request, ApiError(status, message, "unknown_url")), status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    refusal = api_error_of(error)
    headers = {name.decode(): value.decode() for name, value in refusal.headers}
    return JsonResponse(_error_body(request, refusal), refusal.status, headers)


def _error_body(request: Request, refusal: ApiError) -> dict[str, Any]:
    """The error in the shape that the client's SDK reads: Anthropic's sends its version with every request."""
    own = request.url.path.startswith("/v1/messages") or "anthropic-version" in request.headers
    return anthropic_body(refusal) if own else openai_body(refusal)
