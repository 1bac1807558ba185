"""The reference of the HTTP API, from the description that the gateway serves at /openapi.json."""

from __future__ import annotations

from typing import Any

from docsite.markdown import slugify
from odar.serving.openapi import openapi_document

FIRST = "/v1/chat/completions"
_HEAD = """# HTTP

Every address of the gateway (`odar serve`), as it describes itself at `GET /openapi.json`. What each path does to a request,
streams, errors and extras are explained in [the guide](../guides/gateway.md).

Keys travel as `Authorization: Bearer …` or `x-api-key: …`; without any key, only this machine may ask. Of the other fields
of a protocol, known ones and those in `providers.NAME.forward` reach the upstream; the rest is dropped, and the trace says so. A field that is not required can be null, which is the same as leaving it out.

"""


def http_page() -> str:
    """The page."""
    paths = openapi_document()["paths"]
    summary = "\n".join(
        f"| `{method.upper()} {path}` | {operation['summary']} |"
        for path, methods in paths.items()
        for method, operation in methods.items()
    )
    sections = [
        _section(method, path, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
        if "requestBody" in operation
    ]
    return f"{_HEAD}| address | |\n|---|---|\n{summary}\n\n" + "\n".join(sections) + "\n" + _extras()


def _section(method: str, path: str, operation: dict[str, Any]) -> str:
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return f"## {method.upper()} {path}\n\n{operation['summary']}\n\n{_fields(schema)}\n\n{_statuses(path, operation)}\n"


def _statuses(path: str, operation: dict[str, Any]) -> str:
    """The statuses of a reply, described once if they are those of the first address."""
    told = {status: each["description"] for status, each in operation["responses"].items()}
    first = openapi_document()["paths"][FIRST]["post"]["responses"]
    if path != FIRST and told == {status: each["description"] for status, each in first.items()}:
        return f"Statuses: those of [`POST {FIRST}`](#post-{slugify(FIRST)})."
    return "| status | |\n|---|---|\n" + "\n".join(f"| {status} | {words} |" for status, words in told.items())


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        f"| `{name}` | {'required' if name in required else ''} | {_kind(name, each)} | {each.get('description', '')} |"
        for name, each in ((name, _value(field)) for name, field in schema["properties"].items())
    ]
    return "| field | | value | |\n|---|---|---|---|\n" + "\n".join(rows)


def _extras() -> str:
    chat = openapi_document()["paths"][FIRST]["post"]
    extras = _value(chat["requestBody"]["content"]["application/json"]["schema"]["properties"]["odar"])
    headers = ", ".join(f"`{header['name']}`" for header in chat["parameters"])
    return (
        f"## The field odar\n\n{extras['description']} The same on all three.\n\n{_fields(extras)}\n\n"
        f"Clients that cannot add a field to the body send headers: {headers}. The body comes first.\n"
    )


def _value(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field's value where the field can also be null, or is defined elsewhere."""
    values = [each for each in schema.get("anyOf", [schema]) if each != {"type": "null"}]
    if len(values) > 1:
        return {"anyOf": values}
    name = values[0].get("$ref", "").rpartition("/")[2]
    return dict(openapi_document()["components"]["schemas"][name] if name else values[0])


def _kind(name: str, schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if name == "odar":
        return "[object](#the-field-odar)"
    if "enum" in schema:
        return " · ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind("", _value(each)) for each in schema["anyOf"])
    if schema.get("type") == "array":
        item = _value(schema["items"])
        return f"list of {_kind('', item)}s" if "type" in item else "list"
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum")
    bounds = "" if low is None or abs(low) >= 2**53 else f" {'>' if 'exclusiveMinimum' in schema else '≥'} {low}"
    bounds += "" if high is None or high >= 2**53 else f", ≤ {high}"
    words = {"integer": "whole number", "string": "text", "boolean": "true, false"}
    return words.get(schema.get("type", ""), schema.get("type", "anything")) + bounds
