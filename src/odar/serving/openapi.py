"""GET /openapi.json, generated from the Structs of request bodies.

Bodies can have further fields. Answers are not described: they have the formats of OpenAI and Anthropic.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from odar import __version__
from odar.serving.errors import STATUSES
from odar.serving.forward import CompletionsBody, EmbeddingsBody
from odar.serving.protocols.chat import ChatBody, DecisionBody
from odar.serving.protocols.chat_request import OPTION_HEADERS, OdarOptions
from odar.serving.protocols.messages import CountBody, MessagesBody
from odar.serving.protocols.responses import ResponsesBody

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_REF = "#/components/schemas/{name}"
_ERRORS = {str(status): text for status, text in STATUSES.items()} | {
    "default": "The provider's own status, with its own body in the error object.",
}


class Feedback(Struct, forbid_unknown_fields=True):
    """Whether an answer was right."""

    trace_id: str
    correct: bool
    note: str | None = None


_POSTS: dict[str, tuple[str, type[Struct]]] = {
    "/v1/chat/completions": ("A chat completion (OpenAI).", ChatBody),
    "/v1/responses": ("A response (OpenAI).", ResponsesBody),
    "/v1/messages": ("A message (Anthropic).", MessagesBody),
    "/v1/decision": (
        "What ODAR would do with a chat request, given the answers so far; no model is called.",
        DecisionBody,
    ),
    "/v1/embeddings": ("Embeddings of a named model (OpenAI).", EmbeddingsBody),
    "/v1/completions": ("Completions of a named model (OpenAI).", CompletionsBody),
    "/v1/messages/count_tokens": ("The tokens of a message, counted by the gateway (Anthropic).", CountBody),
    "/v1/feedback": ("Mark an answer right or wrong.", Feedback),
}


@cache
def openapi_document() -> Schema:
    kinds = [body for _, body in _POSTS.values()]
    _, schemas = msgspec.json.schema_components([*kinds, OdarOptions], ref_template=_REF)
    options = schemas["OdarOptions"]["properties"]
    text = "As in `odar`, for clients that cannot add a field to the body; the body wins."
    headers = [
        {"name": header.decode(), "in": "header", "schema": options[name]["anyOf"][0], "description": text}
        for header, name in OPTION_HEADERS.items()
    ]
    posts = {
        path: {"post": _post(path, summary, schemas.pop(body.__name__), headers)}
        for path, (summary, body) in _POSTS.items()
    }
    name = {"name": "name", "in": "path", "required": True, "schema": _TEXT}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ODAR gateway",
            "version": __version__,
            "description": "As much model compute as each question is worth. "
            "Models: odar, odar-economy and odar-quality; odar-simple, odar-medium and odar-hard (the paper's "
            "paths); and every configured model by its own name, passed through.",
        },
        "security": [{"bearer": []}, {"x-api-key": []}, {}],
        "paths": {
            **posts,
            "/v1/models": {"get": _get("All models.", "401", "403")},
            "/v1/models/{name}": {"get": _get("One model.", "401", "403", "404") | {"parameters": [name]}},
            "/healthz": {"get": _get("The process is alive.")},
            "/readyz": {"get": _get("Requests are accepted; 503 while loading or shutting down.", "503")},
            "/metrics": {"get": _get("Metrics for Prometheus.", content="text/plain")},
            "/openapi.json": {"get": _get("This description.")},
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": schemas
            | {
                "OpenAIError": _object(error=_object(message=_TEXT, type={}, param={}, code={})),
                "AnthropicError": _object(type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT)),
            },
        },
    }


def _post(path: str, summary: str, body: Schema, headers: list[Schema]) -> Schema:
    content = {"application/json": {"schema": {"type": "object"}}}
    asks_model = path not in ("/v1/messages/count_tokens", "/v1/feedback")
    streams = asks_model and path not in ("/v1/decision", "/v1/embeddings")
    answer = content | {"text/event-stream": {"schema": {}}} if streams else content
    shape = "AnthropicError" if path.startswith("/v1/messages") else "OpenAIError"
    error = {"application/json": {"schema": {"$ref": _REF.format(name=shape)}}}
    return {
        "summary": summary,
        "parameters": headers if asks_model else [],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "The answer: JSON, or server-sent events with `stream`.", "content": answer},
            **{status: {"description": text, "content": error} for status, text in _ERRORS.items()},
        },
    }


def _get(summary: str, *errors: str, content: str = "application/json") -> Schema:
    # Errors are any object, because the 503 of /readyz has its own format.
    schema = {"type": "object"} if content == "application/json" else _TEXT
    responses = {"200": {"description": "Success.", "content": {content: {"schema": schema}}}}
    error = {"application/json": {"schema": {"type": "object"}}}
    responses |= {status: {"description": _ERRORS[status], "content": error} for status in errors}
    return {"summary": summary, "responses": responses}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}
