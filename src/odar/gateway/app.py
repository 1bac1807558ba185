"""create_app(settings): every address of the gateway, and what answers there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odar.formats import dump_json
from odar.gateway.chat import read_chat
from odar.gateway.chat_reply import ChatStream, write_chat
from odar.gateway.dashboard import dashboard_routes
from odar.gateway.endpoint import Dialect, Endpoint
from odar.gateway.exchange import ClientLeft, Receive, Scope, Send, read_body
from odar.gateway.fields import Fields, read_json
from odar.gateway.gate import identify
from odar.gateway.logs import Logs
from odar.gateway.messages import read_messages
from odar.gateway.messages_reply import MessageStream, write_message
from odar.gateway.openapi import description
from odar.gateway.ports import Keyring, Recorder, Traces
from odar.gateway.refusals import Refusal, anthropic_body, openai_body, refusal_of
from odar.gateway.responses import read_responses
from odar.gateway.responses_reply import ResponseStream, write_response
from odar.gateway.service import Service
from odar.settings import Settings

CHAT = Dialect("chat.completions", read_chat, write_chat, ChatStream, openai_body)
MESSAGES = Dialect("messages", read_messages, write_message, MessageStream, anthropic_body)
RESPONSES = Dialect("responses", read_responses, write_response, ResponseStream, openai_body)
_FEEDBACK_BYTES = 64_000


def create_app(
    settings: Settings,
    *,
    keys: Keyring | None = None,
    recorder: Recorder | None = None,
    traces: Traces | None = None,
    logs: Logs | None = None,
    **engine_options: Any,
) -> Starlette:
    """The gateway as an ASGI application.

    Args:
        settings: from `load_settings`.
        keys: who may ask; without one, requests from this machine only.
        recorder: where traces go; without one, nowhere.
        traces: where the dashboard reads them; without one, it has none to show.
        logs: where each question gets a line; without one, nowhere.
        engine_options: for `Odar`, such as ready-made providers.

    `app.state.service` holds the engine, the gate, the breakers and the metrics.
    """
    service = Service(settings, keys, recorder, traces, logs=logs, **engine_options)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        warming = asyncio.create_task(service.odar.warm_up())  # beside serving: /healthz answers at once
        yield
        warming.cancel()
        await service.close()

    plain = _Plain(service)
    questions = {
        "/v1/chat/completions": Endpoint(service, CHAT),
        "/v1/messages": Endpoint(service, MESSAGES),
        "/v1/responses": Endpoint(service, RESPONSES),
    }
    routes = [
        *(Route(address, endpoint, methods=["POST"]) for address, endpoint in questions.items()),
        Route("/v1/feedback", plain.feedback, methods=["POST"]),
        Route("/v1/models", plain.models),
        Route("/v1/models/{name:path}", plain.model),
        Route("/healthz", plain.healthz),
        Route("/readyz", plain.readyz),
        Route("/metrics", plain.metrics),
        Route("/openapi.json", plain.openapi),
        *dashboard_routes(service),
    ]
    handlers: Any = {HTTPException: _http_error, Refusal: _refused, ClientLeft: _refused}
    app = _Gateway(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.questions = questions
    app.state.service = service
    return app


class _Gateway(Starlette):
    """Starlette, but questions go straight to their endpoint, which answers for its own errors."""

    questions: Mapping[str, Endpoint]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; three layers of middleware would take a twentieth of a question's time."""
        asked = scope["type"] == "http" and scope["method"] == "POST"
        await (self.questions.get(scope["path"], super().__call__) if asked else super().__call__)(
            scope, receive, send
        )


class _Plain:
    """The addresses that ask no model."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._started = int(time.time())

    async def models(self, request: Request) -> Response:
        """Every model by name, in a shape that both SDKs read."""
        identify(request.scope["headers"], self._service.keys)
        listed = [self._model(name, owner) for name, owner in self._service.models()]
        ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"], "has_more": False}
        return _json({"object": "list", "data": listed, **ends})

    async def model(self, request: Request) -> Response:
        """One model."""
        identify(request.scope["headers"], self._service.keys)
        wanted = request.path_params["name"]
        for name, owner in self._service.models():
            if name == wanted:
                return _json(self._model(name, owner))
        raise Refusal(404, f"there is no model {wanted!r}; GET /v1/models lists them", "model_not_found", "model")

    async def feedback(self, request: Request) -> Response:
        """An answer marked right or wrong, by the key that asked or an admin's."""
        grant = identify(request.scope["headers"], self._service.keys)
        gateway = self._service.settings.gateway
        body = await read_body(request.scope["headers"], request.receive, _FEEDBACK_BYTES, gateway.body_timeout_s)
        fields = Fields(read_json(body, gateway.max_depth))
        trace_id = fields.needed("trace_id", fields.text("trace_id"))
        correct = fields.needed("correct", fields.flag("correct"))
        note = fields.text("note") or ""
        for name in fields.rest():
            raise fields.bad(name, "is unknown; known are trace_id, correct, note")
        allowed = await self._service.may_see(trace_id, grant)
        if not allowed or not await self._service.recorder.feedback(trace_id, correct, note):
            raise Refusal(404, f"there is no trace {trace_id!r}", "trace_not_found", "trace_id")
        return _json({"trace_id": trace_id, "recorded": True})

    async def healthz(self, request: Request) -> Response:
        """The process is alive."""
        return _json({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Requests are welcome; not while draining, nor before what the first one needs is loaded."""
        if self._service.gate.draining:
            return _json({"status": "draining"}, 503)
        if not self._service.odar.warm:
            return _json({"status": "loading"}, 503)
        return _json({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """Figures for Prometheus."""
        metrics = self._service.metrics
        return Response(metrics.text(), headers={"content-type": metrics.content_type})

    async def openapi(self, request: Request) -> Response:
        """This API, described."""
        return _json(description())

    def _model(self, name: str, owner: str) -> dict[str, Any]:
        shared = {"id": name, "display_name": name, "created": self._started, "owned_by": owner}
        return {**shared, "object": "model", "type": "model"}


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dump_json(value), status, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405, in OpenAI's shape."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    what = f"{request.method} {request.url.path}"
    message = f"there is no {what}" if status == 404 else f"{what}: {getattr(error, 'detail', 'error')}"
    headers = dict(getattr(error, "headers", None) or {})
    return _json(openai_body(Refusal(status, message, "unknown_url")), status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    refusal = refusal_of(error)
    headers = {name.decode(): value.decode() for name, value in refusal.headers}
    return _json(openai_body(refusal), refusal.status, headers)
