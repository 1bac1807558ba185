"""Validation of a candidate against the client's tools and response format; canonical tool calls and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odar.conversation import Format, Options, Tool, ToolCall
from odar.formats import dump_canonical, load_json
from odar.policy.json_schema import SchemaChecker


def format_fault(text: str, calls: Sequence[ToolCall], options: Options) -> str:
    """Return how an answer violates the client's tools or response format, or an empty string.

    >>> format_fault("no JSON", (), Options(format=Format()))
    'the text is not JSON'
    >>> format_fault('{"a": 1}', (), Options(format=Format()))
    ''
    """
    checker = SchemaChecker()
    if calls:
        tools = {tool.name: tool for tool in options.tools}
        return next((fault for call in calls if (fault := _call_fault(call, tools, options, checker))), "")
    if options.tool_choice is not None and options.tool_choice.mode in ("required", "tool"):
        return "a tool call was required and none was made"
    return _text_fault(text, options.format, checker) if options.format is not None else ""


def call_key(calls: Sequence[ToolCall]) -> str:
    """Return a key that equal tool calls share: names and canonical arguments, sorted.

    >>> call_key([ToolCall("1", "f", '{"b": 1, "a": 2}')]) == call_key([ToolCall("2", "f", '{"a":2,"b":1.0}')])
    True
    """
    return "\n".join(sorted(f"{call.name} {canonical_json(call.arguments)}" for call in calls))


def canonical_json(text: str) -> str:
    """Return JSON with sorted keys, without white space, and with 1.0 as 1; other text unchanged."""
    try:
        return dump_canonical(_floats_to_ints(load_json(text.strip() or "{}")))
    except ValueError:
        return text.strip()


def _call_fault(call: ToolCall, tools: Mapping[str, Tool], options: Options, checker: SchemaChecker) -> str:
    choice = options.tool_choice
    if choice is not None and choice.mode == "none":
        return "a tool was called although tool_choice is none"
    if choice is not None and choice.mode == "tool" and call.name != choice.name:
        return f"{call.name!r} was called in place of {choice.name!r}"
    if call.name not in tools:
        return f"there is no tool {call.name!r}"
    try:
        arguments = load_json(call.arguments or "{}")
    except ValueError:
        return f"the arguments for {call.name!r} are not JSON"
    violation = checker.violation(arguments, tools[call.name].parameters)
    return f"the arguments for {call.name!r} do not fit: {violation}" if violation else ""


def _text_fault(text: str, form: Format, checker: SchemaChecker) -> str:
    try:
        value = load_json(text)
    except ValueError:
        return "the text is not JSON"
    if form.schema is None:
        return "" if isinstance(value, dict) else "the text is not a JSON object"
    violation = checker.violation(value, form.schema)
    return f"the text does not fit the schema: {violation}" if violation else ""


def _floats_to_ints(value: Any) -> Any:
    match value:
        case dict():
            return {key: _floats_to_ints(each) for key, each in value.items()}
        case list():
            return [_floats_to_ints(each) for each in value]
        case float() if value.is_integer():
            return int(value)
    return value
