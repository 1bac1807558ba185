"""GET /openapi.json: request bodies are described by the Structs that they are converted to.

Bodies are open: fields not listed pass through. The SDKs of OpenAI and Anthropic know the rest of the shapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from odar import __version__
from odar.gateway.chat import ChatBody
from odar.gateway.chat_request import Extras, TargetField
from odar.gateway.messages import CountBody, MessagesBody
from odar.gateway.passthrough import CompletionsBody, EmbeddingsBody
from odar.gateway.responses import ResponsesBody

Schema = dict[str, Any]
_REF = "#/components/schemas/{name}"
_ERRORS = {
    "400": "A field is missing or wrong; `param` names it.",
    "401": "No key, or a wrong one.",
    "403": "The key does not allow this, or the request is not from this machine and no keys exist.",
    "404": "No such model or trace.",
    "408": "The request took too long to arrive.",
    "413": "The body is larger than gateway.max_body_mb.",
    "422": "The limits in `odar` leave no room for one call.",
    "429": "Too many requests here, at the provider, or for this key; see retry-after.",
    "502": "The provider broke off or made no sense.",
    "503": "Shutting down, or the provider is left alone after repeated failures; see retry-after.",
    "504": "No answer in time.",
    "default": "The provider's own status, with its own body in the error object.",
}


class Feedback(Struct, forbid_unknown_fields=True):
    """Whether an answer was right."""

    trace_id: str
    correct: bool
    note: str | None = None


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT: Schema = {"type": "string"}
_SHAPES = {
    "OpenAIError": _object(error=_object(message=_TEXT, type={}, param={}, code={})),
    "AnthropicError": _object(type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT)),
}
"""Errors; those of an upstream have further fields."""


@cache
def description() -> Schema:
    """The whole description."""
    kinds: tuple[type[Struct], ...] = (
        ChatBody,
        ResponsesBody,
        MessagesBody,
        CountBody,
        EmbeddingsBody,
        CompletionsBody,
        Feedback,
    )
    _, schemas = msgspec.json.schema_components([*kinds, Extras, TargetField], ref_template=_REF)
    bodies = {kind: schemas.pop(kind.__name__) for kind in kinds}
    headers = _headers(schemas["Extras"], schemas["TargetField"])
    question = {
        "description": "The answer: JSON, or server-sent events with `stream`.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {"schema": {}}},
    }

    def post(summary: str, body: type[Struct], error: str = "OpenAIError") -> Schema:
        """A request that a model answers."""
        return _post(summary, bodies[body], question, _ERRORS, error) | {"parameters": headers}

    told = ("400", "401", "403", "404", "408", "413", "429", "503")
    counting = _post(
        "The tokens of a message, counted here; no model is asked (Anthropic).",
        bodies[CountBody],
        _ok(_object(input_tokens={"type": "integer", "minimum": 0})),
        told,
        "AnthropicError",
    )
    marking = _post(
        "Mark an answer right or wrong.", bodies[Feedback], _ok({"type": "object"}), told[:6], "OpenAIError"
    )
    name = {"name": "name", "in": "path", "required": True, "schema": _TEXT}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ODAR gateway",
            "version": __version__,
            "description": "As much model compute as each question needs. Models: odar (adaptive), odar-simple, "
            "odar-medium, odar-hard, and every configured model by its own name, passed through.",
        },
        "security": [{"bearer": []}, {"x-api-key": []}, {}],
        "paths": {
            "/v1/chat/completions": {"post": post("A chat completion (OpenAI).", ChatBody)},
            "/v1/responses": {"post": post("A response (OpenAI).", ResponsesBody)},
            "/v1/messages": {"post": post("A message (Anthropic).", MessagesBody, "AnthropicError")},
            "/v1/embeddings": {"post": post("Embeddings of a named model (OpenAI).", EmbeddingsBody)},
            "/v1/completions": {"post": post("A text continued by a named model (OpenAI).", CompletionsBody)},
            "/v1/messages/count_tokens": {"post": counting},
            "/v1/feedback": {"post": marking},
            "/v1/models": {"get": _get("Every model that can be asked for.", "401", "403")},
            "/v1/models/{name}": {"get": _get("One model.", "401", "403", "404") | {"parameters": [name]}},
            "/healthz": {"get": _get("The process is alive.")},
            "/readyz": {"get": _get("Requests are welcome; 503 while loading or shutting down.", "503")},
            "/metrics": {"get": _get("Figures for Prometheus.", content="text/plain")},
            "/openapi.json": {"get": _get("This description.")},
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": schemas | _SHAPES,
        },
    }


def _headers(extras: Schema, target: Schema) -> list[Schema]:
    """The fields of `odar` that can be sent as headers."""
    fields = {name: extras["properties"][name] for name in ("path", "max_calls", "max_cost", "deadline_s")}
    fields |= {f"target_{name}": schema for name, schema in target["properties"].items()}
    return [
        {
            "name": f"x-odar-{name.replace('_', '-')}",
            "in": "header",
            "schema": schema["anyOf"][0],
            "description": "As in `odar`, for clients that cannot add a field to the body; the body comes first.",
        }
        for name, schema in fields.items()
    ]


def _post(summary: str, body: Schema, answer: Schema, statuses: Iterable[str], error: str) -> Schema:
    content = {"application/json": {"schema": {"$ref": _REF.format(name=error)}}}
    told = {status: {"description": _ERRORS[status], "content": content} for status in statuses}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": answer, **told},
    }


def _get(summary: str, *errors: str, content: str = "application/json") -> Schema:
    # /readyz says 503 in a shape of its own, so errors here promise no more than an object.
    told = {name: _ok({"type": "object"}) | {"description": _ERRORS[name]} for name in errors}
    schema = {"type": "object"} if content == "application/json" else _TEXT
    return {"summary": summary, "responses": {"200": _ok(schema, content), **told}}


def _ok(schema: Schema, content: str = "application/json") -> Schema:
    return {"description": "As asked.", "content": {content: {"schema": schema}}}
