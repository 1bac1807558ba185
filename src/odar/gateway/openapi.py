"""GET /openapi.json, written by hand: what is promised here is what the code checks, and no more.

Bodies are open: fields not listed pass through. The SDKs of OpenAI and Anthropic know the rest of the shapes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from odar import __version__
from odar.types import Path

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_ANY: Schema = {}
_FLAG: Schema = {"type": "boolean"}
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
_LIMITS: Schema = {
    "path": {"enum": [path.value for path in Path], "description": "With model odar: take this path."},
    "max_calls": {"type": "integer", "minimum": 1, "maximum": 2**53},
    "max_cost": {"type": "number", "minimum": 0, "description": "US dollars."},
    "deadline_s": {"type": "number", "exclusiveMinimum": 0},
}
_TARGETS: Schema = {
    "calls": {"type": "number", "minimum": 1},
    "cost_usd": {"type": "number", "exclusiveMinimum": 0},
}
_HEADERS: list[Schema] = [
    {
        "name": f"x-odar-{name.replace('_', '-')}",
        "in": "header",
        "schema": schema,
        "description": "As in the field `odar`, for clients that cannot add one to the body; the body comes first.",
    }
    for name, schema in {**_LIMITS, **{f"target_{name}": schema for name, schema in _TARGETS.items()}}.items()
]


@cache
def description() -> Schema:
    """The whole description."""
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
            "/v1/chat/completions": {"post": _question("A chat completion (OpenAI).", _chat(), "OpenAIError")},
            "/v1/responses": {"post": _question("A response (OpenAI).", _responses(), "OpenAIError")},
            "/v1/messages": {"post": _question("A message (Anthropic).", _messages(), "AnthropicError")},
            "/v1/embeddings": {
                "post": _question("Embeddings of a named model (OpenAI).", _embeddings(), "OpenAIError")
            },
            "/v1/completions": {
                "post": _question("A text continued by a named model (OpenAI).", _completions(), "OpenAIError")
            },
            "/v1/messages/count_tokens": {"post": _count_tokens()},
            "/v1/feedback": {"post": _feedback()},
            "/v1/models": {"get": _get("Every model that can be asked for.", ("401", "403"))},
            "/v1/models/{name}": {
                "get": _get("One model.", ("401", "403", "404"))
                | {"parameters": [{"name": "name", "in": "path", "required": True, "schema": _TEXT}]}
            },
            "/healthz": {"get": _get("The process is alive.")},
            "/readyz": {"get": _get("Requests are welcome; 503 while loading or shutting down.", ("503",))},
            "/metrics": {"get": _get("Figures for Prometheus.", content="text/plain")},
            "/openapi.json": {"get": _get("This description.")},
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": {"OpenAIError": _openai_error(), "AnthropicError": _anthropic_error()},
        },
    }


def _question(summary: str, body: Schema, error: str) -> Schema:
    answer = {
        "description": "The answer: JSON, or server-sent events with `stream`.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {"schema": _ANY}},
    }
    return {
        "summary": summary,
        "parameters": _HEADERS,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": answer, **_errors(_ERRORS, error)},
    }


def _count_tokens() -> Schema:
    body = _messages()
    counted = _object({"input_tokens": {"type": "integer", "minimum": 0}}, "input_tokens")
    told = {name: _ERRORS[name] for name in ("400", "401", "403", "404", "408", "413", "429", "503")}
    return {
        "summary": "The tokens of a message, counted here; no model is asked (Anthropic).",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": body | {"required": ["model", "messages"]}}},
        },
        "responses": {
            "200": {"description": "As asked.", "content": {"application/json": {"schema": counted}}},
            **_errors(told, "AnthropicError"),
        },
    }


def _feedback() -> Schema:
    body = _object({"trace_id": _TEXT, "correct": _FLAG, "note": _TEXT}, "trace_id", "correct")
    told = {name: _ERRORS[name] for name in ("400", "401", "403", "404", "408", "413")}
    return {
        "summary": "Mark an answer right or wrong.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": body | {"additionalProperties": False}}},
        },
        "responses": {"200": _ok("application/json"), **_errors(told, "OpenAIError")},
    }


def _get(summary: str, errors: tuple[str, ...] = (), content: str = "application/json") -> Schema:
    # /readyz says 503 in a shape of its own, so errors here promise no more than an object.
    told = {
        name: {"description": _ERRORS[name], "content": {"application/json": {"schema": {"type": "object"}}}}
        for name in errors
    }
    return {"summary": summary, "responses": {"200": _ok(content), **told}}


def _ok(content: str) -> Schema:
    schema = {"type": "object"} if content == "application/json" else _TEXT
    return {"description": "As asked.", "content": {content: {"schema": schema}}}


def _errors(told: dict[str, str], shape: str) -> Schema:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{shape}"}}}
    return {status: {"description": what, "content": content} for status, what in told.items()}


def _chat() -> Schema:
    turn = {
        "oneOf": [
            _object(
                {"role": {"enum": ["system", "developer", "user"]}, "content": _content("text")}, "role", "content"
            ),
            _object({"role": {"const": "assistant"}, "content": _content("text")}, "role"),
            _object(
                {"role": {"const": "tool"}, "content": _TEXT, "tool_call_id": _TEXT},
                "role",
                "content",
                "tool_call_id",
            ),
        ]
    }
    return _object(
        {
            "model": _TEXT,
            "messages": {"type": "array", "minItems": 1, "items": turn},
            "stream": _FLAG,
            "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            "top_p": {"type": "number", "minimum": 0, "maximum": 1},
            "max_tokens": {"type": "integer", "minimum": 1, "maximum": 2**53},
            "max_completion_tokens": {"type": "integer", "minimum": 1, "maximum": 2**53},
            "n": {"type": "integer", "minimum": 1, "maximum": 128},
            "seed": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
            "stop": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
            "user": _TEXT,
            "tools": _tools(
                {"type": {"const": "function"}, "function": _object({"name": _TEXT}, "name")}, "function"
            ),
            "tool_choice": {"enum": ["auto", "none", "required"]},
            "response_format": _object({"type": {"enum": ["text", "json_object"]}}, "type"),
            "odar": _extras(),
        },
        "model",
        "messages",
    )


def _responses() -> Schema:
    roles = {"enum": ["system", "developer", "user", "assistant"]}
    item = _object({"role": roles, "content": _content("input_text")}, "role", "content")
    return _object(
        {
            "model": _TEXT,
            "input": {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": item}]},
            "instructions": _TEXT,
            "stream": _FLAG,
            "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            "max_output_tokens": {"type": "integer", "minimum": 1, "maximum": 2**53},
            "tools": _tools({"type": {"const": "function"}, "name": _TEXT}, "name"),
            "odar": _extras(),
        },
        "model",
        "input",
    )


def _messages() -> Schema:
    turn = _object({"role": {"enum": ["user", "assistant"]}, "content": _content("text")}, "role", "content")
    return _object(
        {
            "model": _TEXT,
            "max_tokens": {"type": "integer", "minimum": 1, "maximum": 2**53},
            "messages": {"type": "array", "minItems": 1, "items": turn},
            "system": {"anyOf": [_TEXT, {"type": "array", "items": _part("text")}]},
            "stream": _FLAG,
            "temperature": {"type": "number", "minimum": 0, "maximum": 1},
            "stop_sequences": {"type": "array", "items": _TEXT},
            "tools": {
                "type": "array",
                "items": _object({"name": _TEXT, "input_schema": {"type": "object"}}, "name"),
            },
            "odar": _extras(),
        },
        "model",
        "max_tokens",
        "messages",
    )


def _embeddings() -> Schema:
    return _object({"model": _TEXT, "input": _texts(), "odar": _extras()}, "model", "input")


def _completions() -> Schema:
    return _object(
        {
            "model": _TEXT,
            "prompt": _texts(),
            "suffix": _TEXT,
            "max_tokens": {"type": "integer", "minimum": 0, "maximum": 2**53},
            "n": {"type": "integer", "minimum": 1, "maximum": 128},
            "best_of": {"type": "integer", "minimum": 1, "maximum": 128},
            "stream": _FLAG,
            "odar": _extras(),
        },
        "model",
        "prompt",
    )


def _texts() -> Schema:
    """A text, several, tokens, or several lists of tokens."""
    tokens = {"type": "array", "minItems": 1, "items": {"type": "integer"}}
    several = {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"anyOf": [_TEXT, tokens]}}
    return {"anyOf": [_TEXT, tokens, several]}


def _content(kind: str) -> Schema:
    return {"anyOf": [_TEXT, {"type": "array", "items": _part(kind)}]}


def _part(kind: str) -> Schema:
    return _object({"type": {"const": kind}, "text": _TEXT}, "type", "text")


def _tools(properties: Schema, *required: str) -> Schema:
    return {"type": "array", "items": _object(properties, "type", *required)}


def _object(properties: Schema, *required: str) -> Schema:
    """An object; null counts as left out in every field that is not required."""
    fields = {name: schema if name in required else _or_null(schema) for name, schema in properties.items()}
    return {"type": "object", "properties": fields, "required": list(required)}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _extras() -> Schema:
    target = _object(_TARGETS) | {
        "description": "Mean calls or US dollars that requests with this target meet together; one of the two.",
        "additionalProperties": False,
    }
    explain = {"type": "boolean", "description": "Return candidates, energies and the ledger too."}
    return _object({**_LIMITS, "explain": explain, "target": target}) | {
        "description": "Limits and wishes for ODAR; they tighten the configured limits, never loosen them.",
        "additionalProperties": False,
    }


def _openai_error() -> Schema:
    inner = _object(
        {"message": _TEXT, "type": _ANY, "param": _ANY, "code": _ANY}, "message", "type", "param", "code"
    )
    return _object({"error": inner}, "error")


def _anthropic_error() -> Schema:
    inner = _object({"type": _TEXT, "message": _TEXT}, "type", "message")
    return _object({"type": {"const": "error"}, "error": inner}, "type", "error")
