"""Whether an answer keeps to the client's tools and response format, in bounded time.

Schemas come from clients and values from models; neither is trusted. No reference is fetched, and patterns are
matched in linear time. A schema of twenty lines can still take minutes: if each definition refers twice to the one
before, every definition doubles the work. So the steps of a check are counted first, which visits each pair of
schema and value once. A value is not checked if there are too many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from odar.conversation import ChatParameters, Format, Tool, ToolCall
from odar.formats import dump_canonical, load_json

MAX_CHARACTERS = 120_000
"""Characters of a schema, as JSON without blanks."""
MAX_PATTERNS = 30
"""Regular expressions in a schema; compiling one takes up to a millisecond."""
_MAX_PATTERN_BYTES = 50_000
"""Size of a compiled regular expression, and of the tables that it fills while it matches."""
_MAX_KEPT = 32
"""Compiled schemas that are kept."""
_MAX_VISITS = 10_000
"""Visits of a schema and a value while the steps for one answer are counted: about 30 ms."""
_CHARACTERS_PER_VISIT = 40
"""Characters of a schema that take as long to compile as a visit."""
_MAX_STEPS = 200_000
"""Steps of all checks of one answer; a million take 10 to 50 ms."""
_MAX_EXPLAINED_STEPS = 500
"""Steps of a check that names its reason, which takes a thousand times as long."""
_MAX_SHOWN = 120
"""Characters of a reason that are kept."""
_POINTER = re.compile(r"#(?:/[^%]*)?")
"""A reference into the same document, without percent-encoded characters."""


def format_fault(text: str, calls: Sequence[ToolCall], parameters: ChatParameters) -> str:
    """How an answer violates the client's tools or response format; empty if it does not.

    >>> format_fault("no JSON", (), ChatParameters(format=Format()))
    'the text is not JSON'
    >>> format_fault('{"a": 1}', (), ChatParameters(format=Format()))
    ''
    """
    checker = SchemaChecker()
    if calls:
        tools = {tool.name: tool for tool in parameters.tools}
        return next((fault for call in calls if (fault := _call_fault(call, tools, parameters, checker))), "")
    if parameters.tool_choice is not None and parameters.tool_choice.mode in ("required", "tool"):
        return "a tool call was required and none was made"
    return _text_fault(text, parameters.format, checker) if parameters.format is not None else ""


def _call_fault(
    call: ToolCall, tools: Mapping[str, Tool], parameters: ChatParameters, checker: SchemaChecker
) -> str:
    choice = parameters.tool_choice
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


def schema_fault(schema: Mapping[str, Any]) -> str:
    """Why a schema of a client cannot be used; empty if it can.

    >>> schema_fault({"type": "object"}), schema_fault({"type": "objekt"})[:8]
    ('', '"objekt"')
    """
    compiled = _compile(dump_canonical(schema))
    return compiled if isinstance(compiled, str) else ""


class SchemaChecker:
    """Checks the values of one answer, such as the arguments of its tool calls, within limits for all of them.

    >>> checker = SchemaChecker()
    >>> checker.violation(1, {"type": "string"}), checker.violation("a", {"type": "string"})
    ('1 is not of type "string"', '')
    """

    def __init__(self) -> None:
        self._visits_left = _MAX_VISITS
        self._steps_left = _MAX_STEPS
        self._validators: dict[int, tuple[Mapping[str, Any], Any]] = {}

    def violation(self, value: Any, schema: Mapping[str, Any] | None) -> str:
        """How a value violates a schema; empty if it does not.

        A value is not checked if the schema cannot be used, or if the limits would be passed.
        """
        if not schema or self._visits_left <= 0:
            return ""
        if id(schema) not in self._validators:
            text = dump_canonical(schema)
            self._visits_left -= len(text) // _CHARACTERS_PER_VISIT
            self._validators[id(schema)] = schema, _compile(text)
        _, validator = self._validators[id(schema)]
        if isinstance(validator, str):
            return ""
        counter = _StepCounter(schema, self._visits_left)
        steps = counter.count(value)
        self._visits_left -= counter.visits
        if steps is None or steps > self._steps_left:
            return ""
        self._steps_left -= steps
        if steps > _MAX_EXPLAINED_STEPS:
            return "" if validator.is_valid(value) else "it violates the schema"
        try:
            validator.validate(value)
        except ValueError as error:  # jsonschema_rs.ValidationError is one
            return _shortened(str(error))
        return ""


class _NotCountable(Exception):
    """The steps of a check are too many to count, or unknown."""


class _StepCounter:
    """Counts the steps of a check: how often a schema is applied to a value, with repetitions."""

    _IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
    """Keywords whose schemas apply to the value itself."""
    _ON_ITEMS = ("items", "prefixItems", "additionalItems", "contains")
    _ON_MEMBERS = ("patternProperties", "additionalProperties", "propertyNames")
    """Keywords whose schemas may apply to any item of an array, or any member of an object."""
    _NOT_COUNTED = ("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")
    """Keywords that evaluate other schemas again, or that are resolved during the check."""

    def __init__(self, root: Mapping[str, Any], max_visits: int = _MAX_VISITS) -> None:
        self._root = root
        self._max_visits = max_visits
        self._steps: dict[tuple[int, int], int] = {}
        self.visits = 0

    def count(self, value: Any) -> int | None:
        """Number of steps; None if it is unknown."""
        try:
            return self._count(self._root, value)
        except (_NotCountable, RecursionError):
            return None

    def _count(self, schema: Any, value: Any) -> int:
        self.visits += 1
        if self.visits > self._max_visits:
            raise _NotCountable
        if not isinstance(schema, Mapping):  # true or false
            return 1
        key = id(schema), id(value)
        if key in self._steps:
            if not (steps := self._steps[key]):  # the schema refers to itself, for the same value
                raise _NotCountable
            return steps
        self._check_keywords(schema)
        self._steps[key] = 0
        steps = 1 + sum(len(entry) for entry in schema.values() if isinstance(entry, list))
        steps += sum(self._count(part, value) for part in self._parts_in_place(schema))
        steps += sum(self._count(part, child) for part, child in self._parts_of_children(schema, value))
        self._steps[key] = steps
        return steps

    def _check_keywords(self, schema: Mapping[str, Any]) -> None:
        other_base = schema is not self._root and any(isinstance(schema.get(key), str) for key in ("$id", "id"))
        if other_base or any(keyword in schema for keyword in self._NOT_COUNTED):
            raise _NotCountable

    def _parts_in_place(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        for keyword in self._IN_PLACE:
            if keyword in schema:
                yield from _schemas(schema[keyword], named=keyword.startswith("depend"))
        if "$ref" in schema:
            yield self._resolve(schema["$ref"])

    def _parts_of_children(self, schema: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
        if isinstance(value, list):
            for keyword in self._ON_ITEMS:
                for part in _schemas(schema.get(keyword)):
                    yield from ((part, item) for item in value)
        elif isinstance(value, Mapping):
            properties = schema.get("properties", {})
            yield from ((properties[name], value[name]) for name in value if name in properties)
            for keyword in self._ON_MEMBERS:
                for part in _schemas(schema.get(keyword), named=keyword == "patternProperties"):
                    yield from ((part, member) for member in value.values())

    def _resolve(self, reference: Any) -> Any:
        """The schema at a JSON pointer into the root; other references are not resolved."""
        if not isinstance(reference, str) or not _POINTER.fullmatch(reference):
            raise _NotCountable
        found: Any = self._root
        for part in reference.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(part)] if isinstance(found, list) else found[part]
            except (LookupError, TypeError, ValueError):
                raise _NotCountable from None
        return found


def _schemas(entry: Any, *, named: bool = False) -> Iterator[Any]:
    """Yield the schemas of a keyword, which has one, a list of them, or (if `named`) an object of them."""
    if named and isinstance(entry, Mapping):
        yield from entry.values()
    elif isinstance(entry, list):
        yield from entry
    elif isinstance(entry, Mapping):
        yield entry


def _pattern_counts(entry: Any) -> Iterator[int]:
    """Yield the numbers of regular expressions in the parts of a schema."""
    if isinstance(entry, Mapping):
        patterns = entry.get("patternProperties")
        yield isinstance(entry.get("pattern"), str) + (len(patterns) if isinstance(patterns, Mapping) else 0)
    for part in entry.values() if isinstance(entry, Mapping) else entry if isinstance(entry, list) else ():
        yield from _pattern_counts(part)


@lru_cache(maxsize=_MAX_KEPT)
def _compile(text: str) -> Any:
    """The validator of a schema, or why the schema cannot be used."""
    from jsonschema_rs import ReferencingError, RegexOptions, ValidationError, validator_for

    if len(text) > MAX_CHARACTERS:
        return f"it has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed"
    schema = json.loads(text)
    if (count := sum(_pattern_counts(schema))) > MAX_PATTERNS:
        return f"it has {count} patterns; at most {MAX_PATTERNS} are allowed"
    patterns = RegexOptions(size_limit=_MAX_PATTERN_BYTES, dfa_size_limit=_MAX_PATTERN_BYTES)
    try:
        return validator_for(schema, offline=True, pattern_options=patterns)
    except (ValidationError, ReferencingError, ValueError, RecursionError) as error:
        return _shortened(str(error))


def _shortened(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 1] + "…"
