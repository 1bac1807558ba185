"""POST /v1/responses: read requests; write answers as JSON or as a stream of response.* events.

Models get custom tools and the functions of a namespace as functions; calls are written in the form of the client's
tool. Tools and items that only OpenAI supports are left out, and the answer lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from odar.conversation import ChatParameters, Message, Tool, ToolCall, ToolChoice, Wire
from odar.formats import dump_json, load_json
from odar.providers.base import Delta, wire_value
from odar.serving.errors import ApiError, bad_field, openai_body
from odar.serving.protocols.chat_request import (
    ChatRequest,
    Content,
    OpenAIBody,
    OutputOptions,
    Part,
    ToolMode,
    read_content,
    read_format,
    read_tool_choice,
    to_content,
)
from odar.serving.protocols.json_body import Count, convert, required
from odar.serving.protocols.reply import ReplyWriter, openai_usage, sse_event, thinking_of
from odar.types import Answer, Query

_SEND_ALL = "send the whole conversation in `input`"
_UNSUPPORTED_FIELDS = {
    "previous_response_id": f"{_SEND_ALL}, or set store.responses = true to continue a response by its id",
    "conversation": _SEND_ALL,
    "background": "the response is not kept for a later request; leave it out and set `stream`, or a long timeout",
    "prompt": "only OpenAI has stored prompts; send its text in `instructions`",
}
"""Fields that are rejected, and what to do; `endpoint.StoredResponses` handles the first one before."""
_IGNORED_FIELDS = frozenset(
    {"store", "include", "truncation", "stream_options", "max_tool_calls", "client_metadata", *_UNSUPPORTED_FIELDS}
)
"""Fields without effect: they concern the server or several calls, not the model."""
_OPENAI_ONLY_ITEMS = frozenset({
    "code_interpreter_call", "compaction", "computer_call", "computer_call_output", "file_search_call",
    "image_generation_call", "local_shell_call", "local_shell_call_output", "mcp_approval_request",
    "mcp_approval_response", "mcp_call", "mcp_list_tools", "tool_search_call", "tool_search_output",
    "web_search_call",
})  # fmt: skip
"""Items that are left out, because only OpenAI can read them."""
PROTOCOL = "responses"
"""The protocol of a tool's `Wire`, which contains the client's type and name of the tool."""
_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons for an incomplete response by finish reason."""
_CUSTOM_TOOL_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class Item(Struct):
    """A message, a tool call or its result; each type has some of the fields."""

    type: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    input: Any = None
    output: Any = None


class ResponsesTool(Struct):
    """A function, a custom tool, a namespace of functions, or a tool that runs at OpenAI."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    format: dict[str, Any] | None = None
    tools: list[ResponsesTool] | None = None


class ResponsesBody(OpenAIBody, kw_only=True):
    """The body of a request; further fields are those of a chat completion."""

    input: str | Annotated[list[Item], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    tools: list[ResponsesTool] | None = None
    text: OutputOptions | None = None
    reasoning: OutputOptions | None = None
    metadata: dict[str, Any] | None = None


def read_responses(body: Any) -> ChatRequest:
    """Read a Responses request; unknown fields are kept as fields of a chat completion."""
    request = convert(body, ResponsesBody)
    for name, hint in _UNSUPPORTED_FIELDS.items():
        if body.get(name):
            raise bad_field(name, f"is not supported: {hint}")
    turns = [Message("system", request.instructions)] if request.instructions else []
    if isinstance(request.input, str):
        turns.append(Message("user", request.input))
    else:
        turns += _read_items(request.input)
    repeated = {
        "instructions": request.instructions,
        "metadata": request.metadata or {},
        **{name: body.get(name) for name in ("temperature", "top_p", "max_output_tokens", "user")},
        "tools": body.get("tools") or [],
        "tool_choice": body.get("tool_choice") or "auto",
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "text": body.get("text") or {"format": {"type": "text"}},
    }
    query = Query.from_messages(tuple(turns), _read_parameters(request, body))
    return request.chat_request(query, body_fields=repeated)


def _read_parameters(request: ResponsesBody, body: Mapping[str, Any]) -> ChatParameters:
    text = request.text or OutputOptions()
    verbosity = {"verbosity": text.verbosity} if text.verbosity else {}
    items = () if isinstance(request.input, str) else request.input
    return ChatParameters(
        temperature=request.temperature,
        top_p=request.top_p,
        max_tokens=request.max_output_tokens,
        top_logprobs=request.top_logprobs,
        tools=tuple(own for i, tool in enumerate(request.tools or ()) for own in _read_tools(tool, f"tools[{i}]")),
        tool_choice=_read_tool_choice(request.tool_choice),
        parallel_tools=request.parallel_tool_calls,
        format=None if text.format is None else read_format(text.format, "text.format"),
        user=request.user,
        effort=None if request.reasoning is None else request.reasoning.effort,
        left_out=tuple({item.type for item in items if item.type in _OPENAI_ONLY_ITEMS}),
        extra=request.further_fields(body, _IGNORED_FIELDS) | verbosity,
    )


def _read_items(items: list[Item]) -> list[Message]:
    turns: list[Message] = []
    for i, item in enumerate(items):
        where = f"input[{i}]"
        match item.type or "message":
            case "message":
                role = required(item.role, f"{where}.role")
                role = "system" if role == "developer" else role
                turns.append(_read_message(role, item.content, f"{where}.content"))
            case "function_call" | "custom_tool_call":
                call = _read_call(item, where)
                # Consecutive calls were made in one turn.
                before = turns.pop() if turns and turns[-1].role == "assistant" else Message("assistant", "")
                turns.append(Message("assistant", before.text, tool_calls=(*before.tool_calls, call)))
            case "function_call_output" | "custom_tool_call_output":
                call_id = required(item.call_id, f"{where}.call_id")
                output = None if item.output is None else to_content(item.output, f"{where}.output")
                turns.append(_read_message("tool", output, f"{where}.output", call_id))
            case "reasoning":
                pass  # only the provider that wrote it can read it
            case kind if kind not in _OPENAI_ONLY_ITEMS:
                raise bad_field(f"{where}.type", "is not supported; send messages and function calls")
    return turns


def _read_message(role: str, content: Content | None, where: str, call_id: str | None = None) -> Message:
    if content is None:
        raise bad_field(where, "is missing")
    text, images, untranslated = read_content(content, where)
    if untranslated:
        index = next(i for i, part in enumerate(content) if isinstance(part, Part) and part.type in untranslated)
        raise bad_field(f"{where}[{index}].type", "is not supported; send input_text or input_image")
    return Message(role, text, images, tool_call_id=call_id)


def _read_call(item: Item, where: str) -> ToolCall:
    """Read an earlier call of the model, as a call of the function that models get for the tool."""
    call_id = required(item.call_id or item.id, f"{where}.call_id")
    name = required(item.name, f"{where}.name")
    if item.type == "custom_tool_call":
        text = convert(item.input or "", str, f"{where}.input")
        return ToolCall(call_id, name, dump_json({"input": text}).decode())
    arguments = convert(item.arguments or "", str, f"{where}.arguments")
    return ToolCall(call_id, _qualified_name(item.namespace, name), arguments)


def _qualified_name(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _read_tools(tool: ResponsesTool, where: str, namespace: str | None = None) -> Iterator[Tool]:
    """Yield the functions that models get for a tool of the client: one, or all of a namespace."""
    kind = tool.type
    description = tool.description or ""
    if kind != "function" and (namespace is not None or kind not in ("namespace", "custom")):
        yield Tool(kind, hosted=kind)
        return
    name = required(tool.name, f"{where}.name")
    if kind == "namespace":
        for i, inner in enumerate(tool.tools or ()):
            yield from _read_tools(inner, f"{where}.tools[{i}]", name)
    elif kind == "custom":
        if tool.format and "definition" in tool.format:
            description += f"\n\nThe input follows this grammar:\n{tool.format['definition']}"
        yield Tool(name, description, _CUSTOM_TOOL_SCHEMA, Wire(PROTOCOL, {"type": kind, "name": name}))
    else:
        wire = Wire(PROTOCOL, {"type": kind, "name": name, "namespace": namespace}) if namespace else None
        yield Tool(_qualified_name(namespace, name), description, tool.parameters, wire)


def _read_tool_choice(choice: ToolMode | dict[str, Any] | None) -> ToolChoice | None:
    match choice:
        case {"type": "custom", "name": str(name)}:
            return ToolChoice("tool", name)
        case {"type": "function", "name": str(name), "namespace": str(namespace)}:
            return ToolChoice("tool", _qualified_name(namespace, name))
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode}:
            return ToolChoice(mode)
        case {"type": str(kind)} if kind != "function":
            hosted = "names a tool that runs at OpenAI, which other models cannot call"
            raise bad_field("tool_choice", f"{hosted}; offer a function of your own, or ask OpenAI itself")
    return read_tool_choice(choice)


class ResponseWriter(ReplyWriter):
    """A response; in a stream OpenAI's response.* events of text and function calls."""

    def __init__(self, request: ChatRequest, trace_id: str) -> None:
        super().__init__(request, trace_id)
        self._number = 0
        """Number of the next event."""
        self._items: list[dict[str, Any]] = []
        """Completed output items."""
        self._open: str | int | None = None
        """The type of the open item (thinking, text), or the index of its call; None if no item is open."""
        self._item: dict[str, Any] = {}
        self._call_name = ""
        """The models' name of the function of the open call."""
        self._parts: list[str] = []
        """The text or the arguments of the open item."""

    def body(self, answer: Answer) -> dict[str, Any]:
        winner = answer.trace.winner
        if thinking := thinking_of(winner):
            self._items.append(_reasoning_item(self._trace_id, thinking))
        if winner.text:
            self._items.append(_message_item(self._trace_id, "completed", winner.text))
        calls = self.tool_calls(winner)
        self._items += [_call_item(call, self._request, "completed") for call in calls]
        return self._response(answer)

    def keep_alive(self) -> bytes:
        """An event instead of a comment, because Codex disconnects after five minutes without an event."""
        return self._event("response.in_progress", response=self._response())

    def begin(self) -> bytes:
        return self._event("response.created", response=self._response())

    def piece(self, piece: Delta) -> bytes:
        out = b""
        if piece.thinking:
            if self._open != "thinking":
                out += self._close_item()  # the id is the number of closed items
                out += self._open_item("thinking", _reasoning_item(f"{self._trace_id}_{len(self._items)}"))
                out += self._item_event("response.reasoning_summary_part.added", part=_summary_part(""))
            self._parts.append(piece.thinking)
            out += self._item_event("response.reasoning_summary_text.delta", delta=piece.thinking)
        if piece.text:
            if self._open != "text":
                out += self._open_item("text", _message_item(self._trace_id, "in_progress"))
                out += self._item_event("response.content_part.added", part=_text_part(""))
            self._parts.append(piece.text)
            out += self._item_event("response.output_text.delta", delta=piece.text, logprobs=[])
        for index, call in piece.tool_calls:
            if self._open != index:
                empty = ToolCall(call.id or f"call_{self._trace_id}_{index}", call.name, "")
                out += self._open_item(index, _call_item(empty, self._request, "in_progress"))
                self._call_name = call.name
            if call.arguments:
                self._parts.append(call.arguments)
                if self._item["type"] == "function_call":
                    out += self._item_event("response.function_call_arguments.delta", delta=call.arguments)
        return out

    def end(self, answer: Answer, *, answered: bool = False) -> bytes:
        out = b"" if answered else b"".join(map(self.piece, self.deltas(answer.trace.winner)))
        out += self._close_item()
        response = self._response(answer)
        return out + self._event(f"response.{response['status']}", response=response)

    def error_event(self, api_error: ApiError) -> bytes:
        error = openai_body(api_error)["error"]
        shown = {"code": error["code"] or "server_error", "message": error["message"]}
        return self._event("response.failed", response=self._response() | {"status": "failed", "error": shown})

    def _response(self, answer: Answer | None = None) -> dict[str, Any]:
        """The response with the completed items; in progress without an answer."""
        reason = None if answer is None else _INCOMPLETE_REASONS.get(answer.trace.winner.finish)
        status = "in_progress" if answer is None else "completed"
        return {
            "id": f"resp_{self._trace_id}",
            "object": "response",
            "created_at": self._created,
            "status": "incomplete" if reason else status,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": self._request.model,
            "output": self._items,
            "previous_response_id": None,
            "truncation": "disabled",
            "usage": openai_usage(answer.trace.spend, "input", "output") if answer else None,
            **self._request.body_fields,
            **({"odar": self.odar_object(answer)} if answer else {}),
        }

    def _open_item(self, part: str | int, item: dict[str, Any]) -> bytes:
        out = self._close_item()
        self._open = part
        self._item = item
        self._parts = []
        return out + self._event("response.output_item.added", output_index=len(self._items), item=item)

    def _close_item(self) -> bytes:
        if self._open is None:
            return b""
        text = "".join(self._parts)
        if self._open == "text":
            item = _message_item(self._trace_id, "completed", text)
            out = self._item_event("response.output_text.done", text=text, logprobs=[])
            out += self._item_event("response.content_part.done", part=_text_part(text))
        elif self._open == "thinking":
            item = {**self._item, "summary": [_summary_part(text)]}
            out = self._item_event("response.reasoning_summary_text.done", text=text)
            out += self._item_event("response.reasoning_summary_part.done", part=_summary_part(text))
        else:
            item = _call_item(ToolCall(self._item["call_id"], self._call_name, text), self._request, "completed")
            if item["type"] == "function_call":
                done = {"arguments": text, "name": item["name"]}
                out = self._item_event("response.function_call_arguments.done", **done)
            else:
                out = self._item_event("response.custom_tool_call_input.delta", delta=item["input"])
                out += self._item_event("response.custom_tool_call_input.done", input=item["input"])
        out += self._event("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        self._open = None
        return out

    def _item_event(self, kind: str, **fields: Any) -> bytes:
        part = {"thinking": {"summary_index": 0}, "text": {"content_index": 0}}.get(str(self._open), {})
        return self._event(kind, item_id=self._item["id"], output_index=len(self._items), **part, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = sse_event({"type": kind, "sequence_number": self._number, **fields}, kind)
        self._number += 1
        return event


def _reasoning_item(name: str, *texts: str) -> dict[str, Any]:
    return {"id": f"rs_{name}", "type": "reasoning", "summary": [_summary_part(text) for text in texts]}


def _summary_part(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _message_item(trace_id: str, status: str, *texts: str) -> dict[str, Any]:
    content = [_text_part(text) for text in texts]
    return {"id": f"msg_{trace_id}", "type": "message", "role": "assistant", "status": status, "content": content}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call_item(call: ToolCall, request: ChatRequest, status: str) -> dict[str, Any]:
    """A call in the form of the client's tool: function, function of a namespace, or custom tool."""
    head = {"call_id": call.id, "status": status, "name": call.name}
    wires = (wire_value(tool.wire, PROTOCOL) for tool in request.query.parameters.tools if tool.name == call.name)
    tool = next(filter(None, wires), None)
    if tool is not None and tool["type"] == "custom":
        return {
            "id": f"ctc_{call.id}",
            "type": "custom_tool_call",
            "input": _custom_tool_input(call.arguments),
            **head,
        }
    if tool is not None:
        head |= {"name": tool["name"], "namespace": tool["namespace"]}
    return {"id": f"fc_{call.id}", "type": "function_call", "arguments": call.arguments, **head}


def _custom_tool_input(arguments: str) -> Any:
    """The input of a custom tool; the whole arguments if they are not an object with `input`."""
    try:
        value = load_json(arguments or "{}")
    except ValueError:
        return arguments
    return value.get("input", arguments) if isinstance(value, dict) else arguments
