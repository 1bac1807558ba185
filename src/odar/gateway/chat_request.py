"""A request of any protocol: what all bodies have in common, and the question, the limits and the images in it.

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
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from odar.conversation import Format, Image, Message, ToolChoice, Wire
from odar.errors import InputError
from odar.gateway.errors import ApiError, bad_field
from odar.gateway.fields import Count, convert, required
from odar.inputs import MAX_BYTES
from odar.policy.json_schema import schema_fault
from odar.policy.target import Target
from odar.types import Query

MAX_BETAS = 50
LIMIT_HEADERS = {
    b"x-odar-path": "path",
    b"x-odar-max-calls": "max_calls",
    b"x-odar-max-cost": "max_cost",
    b"x-odar-deadline-s": "deadline_s",
    b"x-odar-target-calls": "calls",
    b"x-odar-target-cost-usd": "cost_usd",
}
"""Fields of `odar` and of its `target` that can be sent as headers."""
ToolMode = Literal["auto", "none", "required"]


class TargetField(Struct, frozen=True, forbid_unknown_fields=True):
    """Mean calls or US dollars that requests with this target meet together; one of the two."""

    calls: Annotated[float, Meta(ge=1)] | None = None
    cost_usd: Annotated[float, Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        try:
            Target.from_options(calls=self.calls, cost_usd=self.cost_usd)
        except InputError as error:
            raise ValueError(str(error)) from None


class Extras(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits and wishes for ODAR; they tighten the configured limits, never loosen them."""

    path: Annotated[Literal["simple", "medium", "hard"], Meta(description="Path, with model odar.")] | None = None
    max_calls: Count | None = None
    max_cost: Annotated[float, Meta(ge=0, description="US dollars.")] | None = None
    deadline_s: Annotated[float, Meta(gt=0)] | None = None
    explain: Annotated[bool, Meta(description="Return candidates, energies and the ledger too.")] | None = None
    mean: TargetField | None = msgspec.field(default=None, name="target")

    @property
    def target(self) -> Target | None:
        """The target as the policy knows it."""
        return (
            Target.from_options(calls=self.mean.calls, cost_usd=self.mean.cost_usd)
            if self.mean is not None
            else None
        )


NO_EXTRAS = Extras()


class RequestBody(Struct, kw_only=True):
    """Fields of every request to a model."""

    model: Annotated[str, Meta(max_length=256)]
    stream: bool | None = None
    odar: Extras | None = None


class OpenAIBody(RequestBody, kw_only=True):
    """Fields of OpenAI's requests for an answer."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tool_choice: ToolMode | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None


class ImageSource(Struct):
    """An image: its address, or its bytes in base64."""

    type: Literal["base64", "url"] | None = None
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class Part(Struct):
    """A part of a message's content; each type has some of the fields, and unknown types may have others."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | ImageSource | None = None
    source: Any = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None


Content = str | list[Part]


class Function(Struct):
    """A function that a model may call or has called."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    arguments: str | None = None


class AnswerFormat(Struct):
    """The form of the answer; chat completions have name and schema in `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] | None = None
    name: str | None = None
    schema: dict[str, Any] | None = None
    json_schema: AnswerFormat | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request."""

    model: str
    query: Query
    extras: Extras = NO_EXTRAS
    stream: bool = False
    include_usage: bool = False
    """Usage in the last chunk of a chat-completions stream."""
    echo: Mapping[str, Any] = field(default_factory=dict)
    """What the protocol wants repeated in the answer, or sent to the provider."""

    @classmethod
    def of(cls, body: RequestBody, query: Query, **more: Any) -> ChatRequest:
        """Return the request in a body."""
        return cls(body.model, query, body.odar or NO_EXTRAS, bool(body.stream), **more)


def with_headers(request: ChatRequest, headers: Iterable[tuple[bytes, bytes]]) -> ChatRequest:
    """Add the limits in headers, for clients that cannot add fields to a body; those in the body come first."""
    limits: dict[str, Any] = {}
    for header, value in headers:
        if header in LIMIT_HEADERS:
            limits[LIMIT_HEADERS[header]] = value.decode("latin-1")
        elif header == b"anthropic-beta":
            betas = tuple(filter(None, map(str.strip, value.decode("latin-1").split(","))))[:MAX_BETAS]
            options = dataclasses.replace(request.query.options, betas=betas)
            request = dataclasses.replace(request, query=dataclasses.replace(request.query, options=options))
    if not limits:
        return request
    if target := {name: limits.pop(name) for name in TargetField.__struct_fields__ if name in limits}:
        limits["target"] = target
    told = convert(limits, Extras, "header x-odar", strict=False)
    extras = {name: getattr(request.extras, name) or getattr(told, name) for name in Extras.__struct_fields__}
    return dataclasses.replace(request, extras=Extras(**extras))


def further_fields(body: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the fields of a body that its definition does not have; null counts as left out."""
    return {name: value for name, value in body.items() if name not in known and value is not None}


def to_content(value: Any, where: str) -> Content:
    """Convert content that only some types of parts or items have."""
    kind: Any = Content
    content: Content = convert(value, kind, where)
    return content


def read_content(
    content: Content | None, where: str, skip: Collection[str] = ()
) -> tuple[str, tuple[Image, ...], tuple[str, ...]]:
    """Return the text and the images of a message in any protocol, and the types of parts that are neither."""
    if content is None or isinstance(content, str):
        return content or "", (), ()
    texts: list[str] = []
    images: list[Image] = []
    untranslated: list[str] = []
    for i, part in enumerate(content):
        match part.type:
            case "text" | "input_text" | "output_text":
                texts.append(required(part.text, f"{where}[{i}].text"))
            case "refusal":
                texts.append(required(part.refusal, f"{where}[{i}].refusal"))
            case "image_url" | "input_image" | "image":
                images.append(_read_part_image(part, f"{where}[{i}]"))
            case kind if kind not in skip:
                untranslated.append(kind)
    return "\n".join(texts), tuple(images), tuple(untranslated)


def _read_part_image(part: Part, where: str) -> Image:
    if part.type == "image":
        where = f"{where}.source"
        source = convert(required(part.source, where), ImageSource, where)
        if required(source.type, f"{where}.type") == "base64":
            media_type = required(source.media_type, f"{where}.media_type")
            return Image(media_type, _decode_base64(required(source.data, f"{where}.data"), f"{where}.data"))
        return read_image(source.url, f"{where}.url")
    given, where = part.image_url, f"{where}.image_url"
    url = given.url if isinstance(given, ImageSource) else given
    return read_image(url, where if given is None or part.type == "input_image" else f"{where}.url")


def read_image(address: str | None, where: str) -> Image:
    """Return an image by its address: http(s), or data: with the bytes in it."""
    url: str = required(address, where)
    if url.startswith(("http://", "https://")):
        return Image("image/*", url=url)
    head, comma, data = url.partition(",")
    media_type, _, encoding = head.removeprefix("data:").partition(";")
    if not (url.startswith("data:image/") and comma and encoding.endswith("base64")):
        raise bad_field(where, "must be an http(s) address or data:image/…;base64,…")
    return Image(media_type, _decode_base64(data, where))


def _decode_base64(data: str, where: str) -> bytes:
    try:
        picture = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise bad_field(where, "is not valid base64") from None
    if len(picture) > MAX_BYTES:
        raise ApiError(413, f"{where}: a picture may have {MAX_BYTES // 1024**2} MB", "image_too_large", where)
    return picture


def read_tool_choice(choice: ToolMode | dict[str, Any] | None) -> ToolChoice | None:
    """OpenAI's `tool_choice`; chat completions and responses name a function in two ways."""
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return ToolChoice("tool", name)
    raise bad_field("tool_choice", 'must be "auto", "none", "required" or a function by name')


def read_format(form: AnswerFormat, where: str, wire: Wire | None = None) -> Format | None:
    """Return a response format, refused if its schema is wrong; None for text."""
    kind = required(form.type, f"{where}.type")
    if kind != "json_schema":
        return Format(wire=wire) if kind == "json_object" else None
    schema = required(form.schema, f"{where}.schema")
    if fault := schema_fault(schema):
        raise bad_field(f"{where}.schema", f"is not a usable JSON schema: {fault}")
    return Format(schema, form.name or "answer", wire)


_PRIVATE_SUFFIXES = (
    "localhost",
    "local",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "private",
    "arpa",
    "svc",
    "test",
)
"""Last parts of names that no public server has."""
_URL_SCHEMES = ("http:", "https:", "ftp:", "file:", "s3:", "gs:")


def check_addresses(query: Query, allowed: str) -> None:
    """Refuse a conversation with an address that `gateway.image_urls` (public, any, none) does not allow."""
    if allowed == "any":
        return
    for url in _urls(query):
        if allowed == "none":
            raise bad_field("image_url", "addresses are not allowed here; send data:image/…;base64,… instead")
        if not is_public(url):
            raise bad_field(
                "image_url", "the address is not a public one (gateway.image_urls); send the bytes instead"
            )


def is_public(url: str) -> bool:
    """Return whether an address names a host on the public internet, as far as its text can tell.

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
    number = _parse_address(host)
    if number is not None:
        return number.is_global and not number.is_multicast
    last = host.rpartition(".")[2]
    return "." in host and last not in _PRIVATE_SUFFIXES and not last.isdigit()


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address of a host in any spelling that resolvers accept: 127.1, 0x7f000001, 2130706433."""
    try:
        number = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeEncodeError):
            return None
    inner = getattr(number, "ipv4_mapped", None) or getattr(number, "sixtofour", None)
    return inner or number


def _urls(query: Query) -> Iterator[str]:
    for message in query.messages:
        yield from (image.url for image in message.images if image.url is not None)
        if message.untranslated:
            yield from _forwarded_urls(message)


def _forwarded_urls(message: Message) -> Iterator[str]:
    """Return everything that looks like a URL in content that is forwarded unchanged: videos, files, documents."""
    waiting: list[Any] = [] if message.wire is None else [message.wire.value.get("content")]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if each.get("type") != "text":
                waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, str) and each.lower().startswith(_URL_SCHEMES):
            yield each
