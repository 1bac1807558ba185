"""`ChatRequest`, a request of any protocol, and how the parts that several protocols share are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from odar.conversation import Format, Image, ToolChoice, Wire
from odar.errors import InputError
from odar.inputs import MAX_BYTES, decode_base64, image_from_url
from odar.policy.dial import Dial
from odar.response_format import schema_fault
from odar.serving.errors import ApiError, bad_field
from odar.serving.protocols.json_body import Count, convert, required
from odar.types import Query

MAX_BETAS = 50
DIAL_FIELDS = ("dial", "value_usd", "target_calls", "target_cost_usd")
"""The forms of the dial; a request has at most one of them."""
ToolMode = Literal["auto", "none", "required"]


class OdarOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options for ODAR; limits can tighten the configured ones, never loosen them."""

    path: Annotated[Literal["simple", "medium", "hard"], Meta(description="Path, with model odar.")] | None = None
    max_calls: Count | None = None
    max_cost_usd: Annotated[float, Meta(ge=0, description="US dollars.")] | None = None
    deadline_s: Annotated[float, Meta(gt=0)] | None = None
    explain: Annotated[bool, Meta(description="Return candidates, energies and the ledger too.")] | None = None
    dial: Annotated[str | float, Meta(description="economy, balanced, quality, or points of accuracy.")] | None = (
        None
    )
    value_usd: Annotated[float, Meta(gt=0, description="What a right answer is worth.")] | None = None
    target_calls: Annotated[float, Meta(ge=1, description="Mean calls of such requests.")] | None = None
    target_cost_usd: Annotated[float, Meta(gt=0, description="Mean US dollars of such requests.")] | None = None

    def read_dial(self) -> Dial | None:
        """The dial; raises ApiError if it is invalid or given in two forms."""
        forms = {name: getattr(self, name) for name in DIAL_FIELDS}
        try:
            return Dial.from_options(**forms)
        except InputError as error:
            name = next(name for name, value in forms.items() if value is not None)
            raise bad_field(f"odar.{name}", str(error)) from None


NO_OPTIONS = OdarOptions()
OPTION_HEADERS = {
    f"x-odar-{name.replace('_', '-')}".encode(): name for name in OdarOptions.__struct_fields__ if name != "explain"
}
"""Fields of `OdarOptions` that can be sent as headers, such as x-odar-max-calls."""


class RequestBody(Struct, kw_only=True):
    """Fields of every request to a model."""

    model: Annotated[str, Meta(max_length=256)]
    stream: bool | None = None
    odar: OdarOptions | None = None

    def chat_request(self, query: Query, **more: Any) -> ChatRequest:
        return ChatRequest(self.model, query, self.odar or NO_OPTIONS, bool(self.stream), **more)

    def further_fields(self, body: Mapping[str, Any], ignored: Collection[str] = ()) -> dict[str, Any]:
        """The fields of the body that the Struct does not declare, except null ones."""
        known = {*self.__struct_fields__, *ignored}
        return {name: value for name, value in body.items() if name not in known and value is not None}


class OpenAIBody(RequestBody, kw_only=True):
    """Fields of OpenAI's requests for an answer."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tool_choice: ToolMode | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None


class ImageSource(Struct):
    """An image: its URL, or its bytes in base64."""

    type: Literal["base64", "url"] | None = None
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class Part(Struct):
    """A part of a message's content; each type has some of the fields, unknown types may have further ones."""

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
    """The format of the answer; chat completions have name and schema in `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] | None = None
    name: str | None = None
    schema: dict[str, Any] | None = None
    json_schema: AnswerFormat | None = None


class OutputOptions(Struct):
    """Format and length of the answer, and effort of thinking; each protocol has some of the fields."""

    format: AnswerFormat | None = None
    verbosity: Any = None
    effort: str | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request in any protocol."""

    model: str
    query: Query
    odar: OdarOptions = NO_OPTIONS
    stream: bool = False
    include_usage: bool = False
    """Whether the last chunk of a chat-completions stream contains the usage."""
    body_fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the body that its endpoint needs later: responses repeat them, embeddings and completions forward
    them, and a decision reads `answers`."""


def with_headers(request: ChatRequest, headers: Iterable[tuple[bytes, bytes]]) -> ChatRequest:
    """Add the `OdarOptions` in headers, for clients that cannot add fields to a body; those in the body win."""
    given: dict[str, Any] = {}
    for header, value in headers:
        if header in OPTION_HEADERS:
            given[OPTION_HEADERS[header]] = value.decode("latin-1")
        elif header == b"anthropic-beta":
            betas = tuple(filter(None, map(str.strip, value.decode("latin-1").split(","))))[:MAX_BETAS]
            parameters = dataclasses.replace(request.query.parameters, betas=betas)
            request = dataclasses.replace(request, query=dataclasses.replace(request.query, parameters=parameters))
    if not given:
        return request
    try:
        in_headers = msgspec.structs.asdict(convert(given, OdarOptions, "header x-odar", strict=False))
    except ApiError as error:  # name the header, not the field
        field = error.param or ""
        named = field.replace(".", "-").replace("_", "-")
        raise dataclasses.replace(error, message=error.message.replace(field, named), param=named) from None
    in_body = {name: value for name, value in msgspec.structs.asdict(request.odar).items() if value is not None}
    if not in_body.keys().isdisjoint(DIAL_FIELDS):
        in_headers |= dict.fromkeys(DIAL_FIELDS)
    return dataclasses.replace(request, odar=OdarOptions(**{**in_headers, **in_body}))


def to_content(value: Any, where: str) -> Content:
    """Convert the content of a tool result, which its Struct declares as Any."""
    kind: Any = Content
    content: Content = convert(value, kind, where)
    return content


def read_content(
    content: Content | None, where: str, skip: Collection[str] = ()
) -> tuple[str, tuple[Image, ...], tuple[str, ...]]:
    """The text and the images of a message in any protocol, and the types of other parts not in `skip`."""
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
    media_type = None
    if part.type == "image":
        where = f"{where}.source"
        source = convert(required(part.source, where), ImageSource, where)
        if required(source.type, f"{where}.type") == "base64":
            media_type = required(source.media_type, f"{where}.media_type")
            text = source.data
            where = f"{where}.data"
        else:
            text = source.url
            where = f"{where}.url"
    else:
        text = part.image_url.url if isinstance(part.image_url, ImageSource) else part.image_url
        where = f"{where}.image_url" + ("" if part.image_url is None or part.type == "input_image" else ".url")
    text = required(text, where)
    try:
        image = image_from_url(text) if media_type is None else Image(media_type, decode_base64(text))
    except InputError as error:
        raise bad_field(where, str(error)) from None
    if len(image.data) > MAX_BYTES:
        message = f"{where}: the image is larger than {MAX_BYTES // 1024**2} MB"
        raise ApiError(413, message, "image_too_large", where)
    return image


def read_stop(stop: str | list[str] | None) -> tuple[str, ...] | None:
    if stop is None:
        return None
    return (stop,) if isinstance(stop, str) else tuple(stop)


def read_tool_choice(choice: ToolMode | dict[str, Any] | None) -> ToolChoice | None:
    """Read OpenAI's `tool_choice`; chat completions and responses name a function in different ways."""
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return ToolChoice("tool", name)
    raise bad_field("tool_choice", 'must be "auto", "none", "required" or a function by name')


def read_format(form: AnswerFormat, where: str, wire: Wire | None = None) -> Format | None:
    """Read a response format and check its schema; return None for text."""
    kind = required(form.type, f"{where}.type")
    if kind != "json_schema":
        return Format(wire=wire) if kind == "json_object" else None
    schema = required(form.schema, f"{where}.schema")
    if fault := schema_fault(schema):
        raise bad_field(f"{where}.schema", f"is not a usable JSON schema: {fault}")
    return Format(schema, form.name or "answer", wire)
