"""A parsed request: what is asked, of which model, within which limits. The same for every protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odar.errors import InputError
from odar.gateway.errors import bad_field
from odar.gateway.fields import Fields
from odar.policy.target import Target
from odar.types import Path, Query

MODEL_CHARACTERS = 256
"""The longest name of a model."""
MAX_BETAS = 50
_HEADERS = {
    b"anthropic-beta": "betas",
    b"x-odar-path": "path",
    b"x-odar-max-calls": "max_calls",
    b"x-odar-max-cost": "max_cost",
    b"x-odar-deadline-s": "deadline_s",
    b"x-odar-target-calls": "calls",
    b"x-odar-target-cost-usd": "cost_usd",
}


@dataclass(frozen=True, slots=True)
class Extras:
    """The `odar` object of a request: limits tighten the configured ones, never loosen them."""

    path: str | None = None
    max_calls: int | None = None
    max_cost: float | None = None
    deadline_s: float | None = None
    explain: bool = False
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request."""

    model: str
    query: Query
    extras: Extras = Extras()
    stream: bool = False
    include_usage: bool = False
    """Usage in the last chunk of a chat-completions stream."""
    echo: Mapping[str, Any] = field(default_factory=dict)
    """What the protocol wants repeated in the answer."""


def read_model(fields: Fields) -> str:
    """The name of the model that is asked for."""
    model: str = fields.needed("model", fields.text("model"))
    if len(model) > MODEL_CHARACTERS:
        raise fields.bad("model", f"is longer than {MODEL_CHARACTERS} characters; GET /v1/models lists the names")
    return model


def take_extras(fields: Fields, where: str = "odar") -> Extras:
    """The `odar` object of a request; a field in it that nobody knows is a mistake, and named."""
    body = fields.table("odar")
    if body is None:
        return Extras()
    own = Fields(body, where)
    deadline = own.number("deadline_s")
    if deadline == 0:
        raise own.bad("deadline_s", "0 leaves no time; leave it out for the configured deadline")
    extras = Extras(
        path=own.choice("path", tuple(Path)),
        max_calls=own.integer("max_calls", at_least=1),
        max_cost=own.number("max_cost"),
        deadline_s=deadline,
        explain=own.flag("explain") or False,
        target=_take_target(own),
    )
    for name in own.rest():
        raise own.bad(name, "is unknown; known are path, max_calls, max_cost, deadline_s, explain, target")
    return extras


def with_headers(ask: ChatRequest, headers: Iterable[tuple[bytes, bytes]]) -> ChatRequest:
    """The request with what its headers ask for, for clients that cannot add fields to a body.

    x-odar-path, x-odar-max-calls, x-odar-max-cost, x-odar-deadline-s, x-odar-target-calls and
    x-odar-target-cost-usd are the `odar` object's fields; what the body says counts.
    """
    given = {name: value.decode("latin-1") for name, value in headers if name in _HEADERS}
    if not given:
        return ask
    betas = tuple(filter(None, map(str.strip, given.pop(b"anthropic-beta", "").split(","))))
    if betas and len(betas) <= MAX_BETAS:
        options = dataclasses.replace(ask.query.options, betas=betas)
        ask = dataclasses.replace(ask, query=dataclasses.replace(ask.query, options=options))
    if not given:
        return ask
    body: dict[str, Any] = {}
    for header, text in given.items():
        name = _HEADERS[header]
        value: Any = text if name == "path" else _number(header.decode(), text)
        if name in ("calls", "cost_usd"):
            body.setdefault("target", {})[name] = value
        else:
            body[name] = value
    told = take_extras(Fields({"odar": body}), "header x-odar")
    extras = {f.name: getattr(ask.extras, f.name) or getattr(told, f.name) for f in dataclasses.fields(Extras)}
    return dataclasses.replace(ask, extras=Extras(**extras))


def _number(header: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise bad_field(f"header {header}", "is not a number") from None


def _take_target(own: Fields) -> Target | None:
    """Mean calls or dollars to meet: {"calls": 1.8} or {"cost_usd": 0.002}."""
    body = own.table("target")
    if body is None:
        return None
    fields = Fields(body, "odar.target")
    calls, cost = fields.number("calls"), fields.number("cost_usd")
    for name in fields.rest():
        raise fields.bad(name, "is unknown; known are calls, cost_usd")
    try:
        return Target.of(calls=calls, cost_usd=cost)
    except InputError as error:
        raise own.bad("target", str(error)) from None
