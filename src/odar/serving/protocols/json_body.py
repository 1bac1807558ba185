"""The JSON body of a request: parsed within limits, and converted to the msgspec Structs of its protocol.

Sizes are checked before objects are built. A limit on bytes is not enough: 32 MB can be one image, which takes
milliseconds, or 800,000 messages, which take seconds and a gigabyte.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from odar.errors import one_line
from odar.formats import dump_json, json_deeper_than
from odar.serving.errors import ApiError, bad_field

T = TypeVar("T")
MAX_DEPTH = 64
MAX_VALUES = 100_000
"""Most values in the JSON of a request: objects, lists and their elements."""
_VALUE_BYTES = 250
"""Maximum memory of a parsed value, in addition to its text."""
MAX_MESSAGES = 5_000
MAX_TOOLS = 512
MAX_SCHEMA_KB = 128
_MAX_TOOLS_KB = 8 * MAX_SCHEMA_KB
MAX_INTEGER = 2**53
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_INTEGER)]
_VALUE_OR_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{\[,]', re.DOTALL)
"""A string, closed or not, or the character before a value."""
_QUOTE = ord('"')
_TYPE_NAMES = {
    "array": "a list",
    "bool": "a boolean",
    "float": "a number",
    "int": "an integer",
    "object": "a JSON object",
    "str": "a string",
}
"""JSON types by their names in msgspec's errors."""
_TYPE_ERROR = re.compile(r"Expected `([^`]*)`(?:, got `(\w+)`|(.*))")
_NESTED_SCHEMA_KEYS = frozenset({"$ref", "enum", "items", "properties"})
_FIELD_ERROR = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)


def convert(value: Any, kind: type[T], where: str = "", *, strict: bool = True) -> T:
    """Convert JSON to a type; unknown fields of a Struct are ignored unless it forbids them.

    Args:
        value: the result of `read_json`, or a part of it.
        kind: the type to convert to.
        where: the name of the field that holds the value; empty for a whole body.
        strict: whether numbers in strings are rejected.

    >>> convert("2", int, "n")
    Traceback (most recent call last):
    odar.serving.errors.ApiError: n: must be an integer, not a string
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _validation_error(str(error), kind, where) from None


def _validation_error(error: str, kind: Any, where: str) -> ApiError:
    """Reword an error of msgspec, which can quote the value and does not list the allowed ones."""
    message, located, path = error.rpartition(" - at `$")
    if located and path.endswith("`"):
        path = path[:-1]
    else:
        message = error
        path = ""
    param = (where + path).lstrip(".")
    if match := _FIELD_ERROR.fullmatch(message):
        name = one_line(match[2], 60)
        known = ", ".join(_schema_at(kind, path).get("properties", ()))
        fault = "is missing" if match[1].startswith("missing") else f"is unknown; known are {known}"
        return bad_field(f"{param}.{name}" if param else name, fault)
    if message.startswith("Invalid enum value"):
        return bad_field(param, f"is not one of: {', '.join(_schema_at(kind, path).get('enum', ()))}")
    param = param or "body"
    match = _TYPE_ERROR.fullmatch(message)
    if match is None:
        return bad_field(param, message)
    expected, found, limits = match.groups()
    if found == "null":
        return bad_field(param, "is missing")
    names = " or ".join(_TYPE_NAMES.get(name, name) for name in expected.split(" | ") if name != "null")
    if found is None:
        return bad_field(param, f"must be {names}{limits}")
    found_name = "a fraction" if found == "float" else _TYPE_NAMES.get(found)
    return bad_field(param, f"must be {names}, not {found_name}")


@cache
def _schema_of(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    return schema, parts


def _schema_at(kind: Any, path: str) -> dict[str, Any]:
    """The JSON schema at a path such as `.messages[0].role`; empty if there is none."""
    schema, parts = _schema_of(kind)
    for step in ["", *re.findall(r"\w+", path)]:
        if step:
            schema = schema.get("items", {}) if step.isdigit() else schema.get("properties", {}).get(step, {})
        nested = (part for part in schema.get("anyOf", ()) if not part.keys().isdisjoint(_NESTED_SCHEMA_KEYS))
        schema = next(nested, schema)
        schema = parts[schema["$ref"]] if "$ref" in schema else schema
    return schema


def required(value: T | None, where: str) -> T:
    """The value of a field; raises ApiError if it is missing."""
    if value is None:
        raise bad_field(where, "is missing")
    return value


def read_json(body: bytes) -> Any:
    """Parse a request body; raise ApiError if it is not valid JSON, nested too deeply, or has too many values.

    >>> read_json(b'{"a": [1.0, 0.5]}')
    {'a': [1, 0.5]}
    """
    check_values(body)
    if json_deeper_than(MAX_DEPTH, body):
        raise bad_field("body", f"is nested more than {MAX_DEPTH} deep")
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise bad_field("body", f"is not valid JSON: {one_line(error, 120)}") from None


def _read_number(text: str) -> float:
    """Parse a number with a point or an exponent; 1.0 becomes an integer, as JSON Schema defines integers."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is out of range")
    return int(value) if value.is_integer() and abs(value) <= MAX_INTEGER else value


_DECODER = msgspec.json.Decoder(float_hook=_read_number)


def parsed_bytes(body: bytes) -> int:
    """The maximum memory of the values of JSON; JSON with more than `MAX_VALUES` of them is not parsed."""
    return _VALUE_BYTES * min(_values_upper_bound(body), MAX_VALUES)


def _values_upper_bound(body: bytes) -> int:
    """An upper bound for the number of values: characters inside strings are counted too."""
    return body.count(b"{") + body.count(b"[") + body.count(b",")


def check_values(body: bytes) -> None:
    """Raise ApiError if JSON has more than `MAX_VALUES` values, without parsing it."""
    if _values_upper_bound(body) <= MAX_VALUES:
        return
    count = 0
    # runs in a thread; unlike a parser, this loop releases the GIL from time to time
    for found in _VALUE_OR_STRING.finditer(body):
        count += body[found.start()] != _QUOTE
        if count > MAX_VALUES:
            raise bad_field("body", f"holds more than {MAX_VALUES} values")


def check_parts(body: Any) -> None:
    """Raise ApiError if a request of any protocol has too many messages or tools, or too large a schema."""
    if not isinstance(body, dict):
        return
    for name in ("messages", "input"):
        if isinstance(turns := body.get(name), list):
            contents = (turn.get("content") for turn in turns if isinstance(turn, dict))
            count = len(turns) + sum(len(content) for content in contents if isinstance(content, list))
            if count > MAX_MESSAGES:
                raise bad_field(name, f"has {count} messages and parts; the limit is {MAX_MESSAGES}")
    if isinstance(tools := body.get("tools"), list):
        if len(tools) > MAX_TOOLS:
            raise bad_field("tools", f"has {len(tools)} tools; the limit is {MAX_TOOLS}")
        if len(dump_json(tools)) > MAX_SCHEMA_KB * 1000:
            for i, tool in enumerate(tools):
                _check_size(f"tools[{i}]", tool, MAX_SCHEMA_KB)
            _check_size("tools", tools, _MAX_TOOLS_KB)
    for name in ("response_format", "text", "output_config"):
        if isinstance(value := body.get(name), dict):
            _check_size(name, value, MAX_SCHEMA_KB)


def _check_size(name: str, value: Any, max_kb: int) -> None:
    size = len(dump_json(value))
    if size > max_kb * 1000:
        raise bad_field(name, f"has {size / 1000:.0f} kB; the limit is {max_kb} kB")
