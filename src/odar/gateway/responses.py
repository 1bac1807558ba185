"""POST /v1/responses: a request read. The part of it that other models can follow: text, images, tool calls.

Custom tools, local_shell and the functions in a namespace are put to models as functions, and their calls back into
the words that the client knows. Tools and items that exist only at OpenAI are left out, and the answer says so;
what needs a server that remembers (conversation, background) is refused by name. `endpoint.StoredResponses` puts
the conversation in place of `previous_response_id` before it is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odar.conversation import Format, Image, Message, Options, Tool, ToolCall, ToolChoice, Wire
from odar.formats import dump_json
from odar.gateway.chat_request import ChatRequest, read_model, take_extras
from odar.gateway.content import read_image, read_schema, read_tool, read_tool_choice
from odar.gateway.fields import Fields
from odar.types import Query

_UNSUPPORTED = ("previous_response_id", "conversation", "background", "prompt")
_IGNORED = ("store", "include", "truncation", "stream_options", "max_tool_calls", "client_metadata")
"""Say nothing to a model, or nothing that applies to one call."""
_ROLES = ("system", "developer", "user", "assistant")
_LEFT_OUT = frozenset(
    {
        "code_interpreter_call",
        "compaction",
        "computer_call",
        "computer_call_output",
        "file_search_call",
        "image_generation_call",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
"""Items that only OpenAI can read; the conversation goes on without them."""
SHELL = "local_shell"
PROTOCOL = "responses"
"""Marks a tool's `Wire` that says what the client calls it."""
_SHELL_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
        "working_directory": {"type": "string"},
        "timeout_ms": {"type": "integer"},
    },
    "required": ["command"],
}
_INPUT_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def read_responses(body: Any) -> ChatRequest:
    """A Responses request; fields nobody here knows go on as fields of a chat completion."""
    fields = Fields(body)
    model = read_model(fields)
    for name in _UNSUPPORTED:
        if fields.any(name):
            kept = " without store.responses = true in the gateway's settings" if name == _UNSUPPORTED[0] else ""
            raise fields.bad(name, f"is not supported{kept}: send the whole conversation in `input`")
    for name in _IGNORED:
        fields.any(name)
    instructions = fields.text("instructions")
    turns = [Message("system", instructions)] if instructions else []
    given = fields.needed("input", fields.any("input"))
    left_out: set[str] = set()
    turns += [Message("user", given)] if isinstance(given, str) else _items(given, fields, left_out)
    stream = fields.flag("stream") or False
    extras = take_extras(fields)
    metadata = fields.table("metadata") or {}
    echo = {
        "instructions": instructions,
        "metadata": metadata,
        **{name: body.get(name) for name in ("temperature", "top_p", "max_output_tokens", "user")},
        "tools": body.get("tools") or [],
        "tool_choice": body.get("tool_choice") or "auto",
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "text": body.get("text") or {"format": {"type": "text"}},
    }
    options = _options(fields, tuple(left_out))
    return ChatRequest(model, Query.of(tuple(turns), options), extras, stream, echo=echo)


def _options(fields: Fields, left_out: tuple[str, ...]) -> Options:
    reasoning = Fields(fields.table("reasoning") or {}, "reasoning")
    tools = fields.items("tools") or ()
    text = fields.table("text")
    verbosity = {"verbosity": text["verbosity"]} if text and text.get("verbosity") else {}
    return Options(
        temperature=fields.number("temperature", at_most=2),
        top_p=fields.number("top_p", at_most=1),
        max_tokens=fields.integer("max_output_tokens", at_least=1),
        top_logprobs=fields.integer("top_logprobs", at_most=20),
        tools=tuple(own for i, tool in enumerate(tools) for own in _tools(tool, f"tools[{i}]")),
        tool_choice=_tool_choice(fields),
        parallel_tools=fields.flag("parallel_tool_calls"),
        format=_format(text),
        user=fields.text("user"),
        effort=reasoning.text("effort"),
        left_out=left_out,
        extra={**fields.rest(), **verbosity},
    )


def _items(items: Any, fields: Fields, left_out: set[str]) -> list[Message]:
    if not isinstance(items, list) or not items:
        raise fields.bad("input", "must be a string or a list of items with at least one in it")
    turns: list[Message] = []
    for i, item in enumerate(items):
        own = Fields(item, f"input[{i}]")
        match own.text("type") or "message":
            case "message":
                turns.append(_message(own))
            case "function_call" | "custom_tool_call" | "local_shell_call" as kind:
                call = _call(own, kind)
                # Calls that stand together were made in one turn.
                before = turns[-1] if turns and turns[-1].role == "assistant" else None
                if before is not None:
                    turns[-1] = Message("assistant", before.text, tool_calls=(*before.tool_calls, call))
                else:
                    turns.append(Message("assistant", "", tool_calls=(call,)))
            case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
                text, images = _content(own.needed("output", own.any("output")), own, "output")
                call_id = own.needed("call_id", own.text("call_id"))
                turns.append(Message("tool", text, images, tool_call_id=call_id))
            case "reasoning":
                continue  # a model's own notes, for the provider that wrote them
            case kind if kind in _LEFT_OUT:
                left_out.add(kind)
            case kind:
                raise own.bad("type", f"{kind!r} is not supported; send messages and function calls")
    return turns


def _message(fields: Fields) -> Message:
    role = fields.needed("role", fields.choice("role", _ROLES))
    text, images = _content(fields.needed("content", fields.any("content")), fields, "content")
    return Message("system" if role == "developer" else role, text, images)


def _content(content: Any, fields: Fields, name: str) -> tuple[str, tuple[Image, ...]]:
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        raise fields.bad(name, "must be a string or a list of parts")
    texts: list[str] = []
    images: list[Image] = []
    for i, part in enumerate(content):
        own = Fields(part, f"{fields.where}.{name}[{i}]")
        match own.needed("type", own.text("type")):
            case "input_text" | "output_text":
                texts.append(own.needed("text", own.text("text")))
            case "refusal":
                texts.append(own.needed("refusal", own.text("refusal")))
            case "input_image":
                address = own.needed("image_url", own.any("image_url"))
                images.append(read_image(address, f"{own.where}.image_url"))
            case kind:
                raise own.bad("type", f"{kind!r} is not supported; send input_text or input_image")
    return "\n".join(texts), tuple(images)


def _call(fields: Fields, kind: str) -> ToolCall:
    """A call that the model made before, as the function that it was offered."""
    call_id = fields.needed("call_id", fields.text("call_id") or fields.text("id"))
    if kind == "local_shell_call":
        action = fields.table("action") or {}
        asked = {name: action[name] for name in _SHELL_SCHEMA["properties"] if action.get(name) is not None}
        return ToolCall(call_id, SHELL, dump_json(asked).decode())
    name = fields.needed("name", fields.text("name"))
    if kind == "custom_tool_call":
        return ToolCall(call_id, name, dump_json({"input": fields.text("input") or ""}).decode())
    return ToolCall(call_id, _qualified(fields.text("namespace"), name), fields.text("arguments") or "")


def _qualified(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _tools(tool: Any, where: str, namespace: str | None = None) -> Iterator[Tool]:
    """The functions that a model is offered for a tool of the client's: one, or all of a namespace."""
    fields = Fields(tool, where)
    match kind := fields.needed("type", fields.text("type")):
        case "function" if namespace is None:
            yield read_tool(fields, "parameters", None)
        case "function":
            name = fields.needed("name", fields.text("name"))
            wire = Wire(PROTOCOL, {"type": kind, "name": name, "namespace": namespace})
            described = fields.text("description") or ""
            yield Tool(_qualified(namespace, name), described, fields.table("parameters"), wire)
        case "namespace" if namespace is None:
            name = fields.needed("name", fields.text("name"))
            for i, inner in enumerate(fields.items("tools") or ()):
                yield from _tools(inner, f"{where}.tools[{i}]", name)
        case "custom" if namespace is None:
            name = fields.needed("name", fields.text("name"))
            form = fields.table("format") or {}
            grammar = f"\n\nThe input follows this grammar:\n{form['definition']}" if "definition" in form else ""
            described = (fields.text("description") or "") + grammar
            yield Tool(name, described, _INPUT_SCHEMA, Wire(PROTOCOL, {"type": kind, "name": name}))
        case "local_shell":
            yield Tool(
                SHELL, "Runs a command on the user's machine.", _SHELL_SCHEMA, Wire(PROTOCOL, {"type": kind})
            )
        case _:
            yield Tool(kind, hosted=kind)


def _tool_choice(fields: Fields) -> ToolChoice | None:
    match choice := fields.any("tool_choice"):
        case {"type": "custom", "name": str(name)}:
            return ToolChoice("tool", name)
        case {"type": "function", "name": str(name), "namespace": str(namespace)}:
            return ToolChoice("tool", _qualified(namespace, name))
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode}:
            return ToolChoice(mode)
        case {"type": str(kind)} if kind != "function":
            return ToolChoice("tool", kind)  # a tool that is left out takes this with it
    return read_tool_choice(choice, fields)


def _format(body: dict[str, Any] | None) -> Format | None:
    form = Fields(body or {}, "text").table("format")
    if form is None:
        return None
    fields = Fields(form, "text.format")
    match fields.needed("type", fields.choice("type", ("text", "json_object", "json_schema"))):
        case "json_object":
            return Format()
        case "json_schema":
            name = fields.text("name") or "answer"
            return read_schema(fields.any("schema"), "text.format.schema", name, None)
    return None
