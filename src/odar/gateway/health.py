"""The addresses that ask no model: models, feedback, health, metrics, and the API's own description."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError
from odar.gateway.exchange import JsonResponse, read_body
from odar.gateway.fields import convert, read_json
from odar.gateway.openapi import Feedback, description
from odar.gateway.service import Service
from odar.types import Query

_FEEDBACK_BYTES = 64_000


def health_routes(service: Service) -> list[Route]:
    """The routes to add to the gateway's."""
    plain = _Health(service)
    return [
        Route("/v1/feedback", plain.feedback, methods=["POST"]),
        Route("/v1/models", plain.models),
        Route("/v1/models/{name:path}", plain.model),
        Route("/healthz", plain.healthz),
        Route("/readyz", plain.readyz),
        Route("/metrics", plain.metrics),
        Route("/openapi.json", plain.openapi),
    ]


class _Health:
    """What answers there."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._started = int(time.time())

    async def models(self, request: Request) -> Response:
        """Every model that this key can use and that can be reached, in a shape that both SDKs read."""
        key = self._service.access.identify(request.scope)
        await self._service.refresh_reachable()
        listed = [self._model(name, owner) for name, owner in self._service.models(key)]
        ids = [entry["id"] for entry in listed] or [None]
        ends = {"first_id": ids[0], "last_id": ids[-1], "has_more": False}
        return JsonResponse({"object": "list", "data": listed, **ends})

    async def model(self, request: Request) -> Response:
        """One model; refused exactly where a question to it would be."""
        key = self._service.access.identify(request.scope)
        name = request.path_params["name"]
        named = self._service.route(ChatRequest(name, Query("")), key).get("model")
        return JsonResponse(self._model(name, self._service.settings.card(named).provider if named else "odar"))

    async def feedback(self, request: Request) -> Response:
        """An answer marked right or wrong, by the key that asked or an admin's."""
        grant = self._service.access.identify(request.scope)
        gateway = self._service.settings.gateway
        body = await read_body(request.scope["headers"], request.receive, _FEEDBACK_BYTES, gateway.body_timeout_s)
        mark = convert(read_json(body), Feedback)
        allowed = await self._service.may_see(mark.trace_id, grant)
        by = None if grant is None else grant.key_id
        if not allowed or not await self._service.recorder.feedback(
            mark.trace_id, mark.correct, mark.note or "", by
        ):
            raise ApiError(404, f"there is no trace {mark.trace_id!r}", "trace_not_found", "trace_id")
        return JsonResponse({"trace_id": mark.trace_id, "recorded": True})

    async def healthz(self, request: Request) -> Response:
        """The process is alive."""
        return JsonResponse({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Requests are welcome; not while draining, nor before what the first one needs is loaded."""
        if self._service.gate.draining:
            return JsonResponse({"status": "draining"}, 503)
        if not self._service.odar.warm:
            return JsonResponse({"status": "loading"}, 503)
        return JsonResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """Figures for Prometheus."""
        self._service.access.check_metrics(request.scope)
        metrics = self._service.metrics
        return Response(await metrics.render(), headers={"content-type": metrics.content_type})

    async def openapi(self, request: Request) -> Response:
        """This API, described."""
        return JsonResponse(description())

    def _model(self, name: str, owner: str) -> dict[str, Any]:
        shared = {"id": name, "display_name": name, "created": self._started, "owned_by": owner}
        return {**shared, "object": "model", "type": "model"}
