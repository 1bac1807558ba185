"""A parsed request, the same for every protocol: the question, the model, limits, pictures, tools and formats.

The gateway fetches nothing. But a model server that is handed `http://169.254.169.254/…` as an image may, from a
network that the client cannot reach. An address that shows this is refused here; a public name that leads to an
inner address is for the upstream's own rules to stop (docs/security.md).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import ipaddress
import socket
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from odar.conversation import Format, Image, Message, Tool, ToolChoice, Wire
from odar.errors import InputError
from odar.gateway.errors import ApiError, bad_field
from odar.gateway.fields import Fields
from odar.inputs import MAX_BYTES
from odar.policy.response_format import schema_fault
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


def read_image(url: Any, where: str) -> Image:
    """An image by its address: http(s), or data: with the bytes in it.

    >>> read_image("data:image/png;base64,Li4u", "image").data
    b'...'
    """
    if not isinstance(url, str):
        raise bad_field(where, "must be the address of an image")
    if url.startswith(("http://", "https://")):
        return Image("image/*", url=url)
    head, comma, data = url.partition(",")
    media_type, _, encoding = head.removeprefix("data:").partition(";")
    if not (url.startswith("data:image/") and comma and encoding.endswith("base64")):
        raise bad_field(where, "must be an http(s) address or data:image/…;base64,…")
    return Image(media_type, decode(data, where))


def decode(data: Any, where: str) -> bytes:
    """A picture in base64 as bytes."""
    try:
        picture = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise bad_field(where, "is not valid base64") from None
    if len(picture) > MAX_BYTES:
        raise ApiError(413, f"{where}: a picture may have {MAX_BYTES // 1024**2} MB", "image_too_large", where)
    return picture


def read_tool(fields: Fields, schema_name: str, wire: Wire | None) -> Tool:
    """A function of the client's."""
    name = fields.needed("name", fields.text("name"))
    return Tool(name, fields.text("description") or "", fields.table(schema_name), wire)


def read_tool_choice(choice: Any, fields: Fields) -> ToolChoice | None:
    """OpenAI's `tool_choice`; chat completions and responses name a function in two ways.

    >>> read_tool_choice({"type": "function", "function": {"name": "f"}}, Fields({}))
    ToolChoice(mode='tool', name='f')
    """
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return ToolChoice("tool", name)
    raise fields.bad("tool_choice", 'must be "auto", "none", "required" or a function by name')


def read_schema(schema: Any, where: str, name: str, wire: Wire | None) -> Format:
    """A response format with a schema, refused where the schema itself is wrong."""
    if not isinstance(schema, dict):
        raise bad_field(where, "must be a JSON schema")
    if fault := schema_fault(schema):
        raise bad_field(where, f"is not a usable JSON schema: {fault}")
    return Format(schema, name, wire)


_INNER = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "arpa", "svc", "test")
"""Last parts of names that no public server has."""
_SCHEMES = ("http:", "https:", "ftp:", "file:", "s3:", "gs:")


def check_addresses(query: Query, allowed: str) -> None:
    """Refuse a conversation with an address that `gateway.image_urls` (public, any, none) does not allow."""
    if allowed == "any":
        return
    for url in _addresses(query):
        if allowed == "none":
            raise bad_field("image_url", "addresses are not allowed here; send data:image/…;base64,… instead")
        if not is_public(url):
            raise bad_field(
                "image_url", "the address is not a public one (gateway.image_urls); send the bytes instead"
            )


def is_public(url: str) -> bool:
    """Whether an address names a host on the open internet, as far as its text can tell.

    >>> [is_public(url) for url in ("https://example.com/a.png", "http://127.1/", "http://intranet/", "file:///etc")]
    [True, False, False, False]
    """
    text = unicodedata.normalize("NFKC", url)  # ① is 1 to a resolver
    if any(c.isspace() or not c.isprintable() or c == "\\" for c in text):  # parsers do not agree on these
        return False
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host:
        return False
    number = _address_of(host)
    if number is not None:
        return number.is_global and not number.is_multicast
    last = host.rpartition(".")[2]
    return "." in host and last not in _INNER and not last.isdigit()


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, in any of the spellings that resolvers take: 127.1, 0x7f000001, 2130706433."""
    try:
        number = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeEncodeError):
            return None
    inner = getattr(number, "ipv4_mapped", None) or getattr(number, "sixtofour", None)
    return inner or number


def _addresses(query: Query) -> Iterator[str]:
    for message in query.messages:
        yield from (image.url for image in message.images if image.url is not None)
        if message.untranslated:
            yield from _inside(message)


def _inside(message: Message) -> Iterator[str]:
    """Whatever looks like an address in content that is passed on as it stands: videos, files, documents."""
    waiting: list[Any] = [] if message.wire is None else [message.wire.value.get("content")]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if each.get("type") != "text":
                waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, str) and each.lower().startswith(_SCHEMES):
            yield each
