"""Pictures, tools and formats as clients write them, made into ODAR's own types. Shared by the three protocols."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from odar.conversation import Format, Image, Tool, ToolChoice, Wire
from odar.gateway.errors import ApiError, bad_field
from odar.gateway.fields import Fields
from odar.inputs import MAX_BYTES
from odar.policy.response_format import schema_fault


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
