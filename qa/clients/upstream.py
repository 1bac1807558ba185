"""A scripted model server: chat completions and messages, whole or streamed, with tools, formats and thinking.

It answers by rules, so that a client's loop can be followed without a model: a turn that asks for a tool gets a
call to it, the result of a tool is repeated in the reply, a schema is filled in. Every request is kept.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODELS = ("quick", "deep", "claude-deep")
FACT = "Paris"
SIGNATURE = "c2lnbmF0dXJl"
_SHELLS = {
    "Bash": lambda path: {"command": f"cat {path}", "description": "Show the file"},
    "exec_command": lambda path: {"cmd": f"cat {path}"},
    "shell_command": lambda path: {"command": f"cat {path}"},
    "shell": lambda path: {"command": ["cat", path]},
    "local_shell": lambda path: {"command": ["cat", path]},
}
"""How agents' own tools are told to show a file; a task says `read the file PATH`."""


_NOTES = re.compile(
    r"<(system-reminder|environment_context|user_instructions)>.*?</\1>|Before you reply, check this draft .*", re.S
)
"""What agents, and ODAR's verifier, add to the user's turns."""


def decide(turns: list[tuple[str, str]], tools: Mapping[str, Any], forced: str | None, schema: Any) -> Any:
    """What to reply: a text, or (tool, arguments).

    Args:
        turns: (role, text) in order; tool results have the role tool.
        tools: parameter schemas by name.
        forced: the tool that must be called, "*" for any.
        schema: the form of the answer.
    """
    turns = [(role, _NOTES.sub("", text)) for role, text in turns]
    last = max((i for i, (role, text) in enumerate(turns) if role == "user" and text.strip()), default=0)
    task = turns[last][1] if turns else ""
    results = [text for role, text in turns[last:] if role == "tool"]
    if results and forced in (None, "*") and not (forced and "final_result" in tools):
        return json.dumps(instance(schema)) if schema else f"The tool says: {results[-1].strip()[:400]}"
    if forced and tools:
        name = forced if forced in tools else next(n for n in ("final_result", *tools) if n in tools)
        return name, instance(tools[name])
    if schema is not None:
        return json.dumps(instance(schema))
    if found := re.findall(r"read the file ([\w./-]+)", task):
        for name, arguments in _SHELLS.items():
            if name in tools:
                return name, arguments(found[-1])
    if "StructuredOutput" in tools:  # Claude Code's way to ask for a schema
        return "StructuredOutput", instance(tools["StructuredOutput"])
    for name in tools:
        if "weather" in name and "weather" in task:
            return name, instance(tools[name])
    if "weather" in task and "json" not in task.lower() and len(tools) == 1:
        (name,) = tools
        return name, instance(tools[name])
    return f"The capital of France is {FACT}."


def instance(schema: Any, name: str = "") -> Any:
    """A value that fits a JSON schema.

    >>> instance({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
    {'city': 'Paris'}
    """
    return _instance(schema, schema, name)


def _instance(schema: Any, root: Any, name: str) -> Any:
    if not isinstance(schema, Mapping):
        return FACT
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return _instance(target, root, name)
    for union in ("anyOf", "oneOf", "allOf"):
        if schema.get(union):
            return _instance(schema[union][0], root, name)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    match kind:
        case "object" | None if "properties" in schema or kind == "object":
            fields = schema.get("properties") or {}
            wanted = schema.get("required", list(fields))
            return {field: _instance(fields[field], root, field) for field in fields if field in wanted}
        case "array":
            return [_instance(schema.get("items", {}), root, name)]
        case "integer" | "number":
            return 7
        case "boolean":
            return True
        case "null":
            return None
    return "Rome" if name == "location" else FACT


class Handler(BaseHTTPRequestHandler):
    """The two protocols."""

    protocol_version = "HTTP/1.1"
    server: Upstream

    @property
    def address(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]

    def do_GET(self) -> None:
        """The list of models."""
        self._json({"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})

    def do_POST(self) -> None:
        """Keep the request, and answer it."""
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        self.server.keep(self.path, body, {k.lower(): v for k, v in self.headers.items()})
        time.sleep(self.server.delay_s)
        if status := self.server.status:
            self._json({"error": {"type": "scripted", "message": f"scripted {status}"}}, status)
        elif self.address.endswith("/chat/completions"):
            self._chat(body)
        elif self.address.endswith("/count_tokens"):
            self._json({"input_tokens": len(json.dumps(body)) // 4})
        elif self.address.endswith("/messages"):
            self._messages(body)
        elif self.address.endswith("/embeddings"):
            vectors = [{"object": "embedding", "index": 0, "embedding": [0.1, 0.2]}]
            self._json({"object": "list", "data": vectors, "model": body["model"], "usage": {"prompt_tokens": 2}})
        else:
            self._json({"error": {"message": f"no {self.path}"}}, 404)

    def _chat(self, body: dict[str, Any]) -> None:
        tools = {t["function"]["name"]: t["function"].get("parameters") for t in body.get("tools") or ()}
        choice, form = body.get("tool_choice"), body.get("response_format") or {}
        forced = choice["function"]["name"] if isinstance(choice, dict) else "*" if choice == "required" else None
        schema = form["json_schema"]["schema"] if form.get("type") == "json_schema" else None
        if form.get("type") == "json_object":
            schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        turns = [(turn["role"], _text(turn.get("content"))) for turn in body["messages"]]
        said = decide(turns, {} if choice == "none" else tools, forced, schema)
        usage = {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18}
        head = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
        if isinstance(said, str):
            message: dict[str, Any] = {"role": "assistant", "content": said}
            finish = "stop"
        else:
            call = {"name": said[0], "arguments": json.dumps(said[1])}
            calls = [{"index": 0, "id": f"call_{self.server.count}", "type": "function", "function": call}]
            message, finish = {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
        tokens = [
            {"token": word, "logprob": -0.05, "bytes": list(word.encode()), "top_logprobs": []}
            for word in _words(said if isinstance(said, str) else "")
        ]
        logprobs = {"content": tokens} if body.get("logprobs") else None
        if not body.get("stream"):
            choices = [
                {"index": i, "message": message, "finish_reason": finish, "logprobs": logprobs}
                for i in range(body.get("n") or 1)
            ]
            self._json({**head, "object": "chat.completion", "choices": choices, "usage": usage})
            return
        head["object"] = "chat.completion.chunk"
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if isinstance(said, str):
            deltas += [{"content": word} for word in _words(said)]
        else:
            whole = message["tool_calls"][0]
            deltas += [{"tool_calls": [{**whole, "function": {**whole["function"], "arguments": ""}}]}]
            deltas += [
                {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}
                for part in re.findall(r".{1,9}", whole["function"]["arguments"], re.S)
            ]
        events: list[Any] = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
        ]
        events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if (body.get("stream_options") or {}).get("include_usage"):
            events.append({**head, "choices": [], "usage": usage})
        self._events([*events, "[DONE]"])

    def _messages(self, body: dict[str, Any]) -> None:
        tools = {t["name"]: t.get("input_schema") for t in body.get("tools") or ()}
        choice = body.get("tool_choice") or {}
        forced = {"tool": choice.get("name"), "any": "*"}.get(choice.get("type", ""))
        schema = ((body.get("output_config") or {}).get("format") or {}).get("schema")
        if "one JSON object" in _text(body.get("system")):  # ODAR's words for any JSON
            schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        turns: list[tuple[str, str]] = []
        for turn in body["messages"]:
            blocks = turn["content"] if isinstance(turn["content"], list) else [turn["content"]]
            for block in blocks:
                result = isinstance(block, dict) and block.get("type") == "tool_result"
                turns.append(("tool" if result else turn["role"], _text([block])))
        said = decide(turns, {} if choice.get("type") == "none" else tools, forced, schema)
        thinks = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
        blocks = [{"type": "thinking", "thinking": "Let me see.", "signature": SIGNATURE}] if thinks else []
        if isinstance(said, str):
            blocks.append({"type": "text", "text": said})
        else:
            use = {"type": "tool_use", "id": f"toolu_{self.server.count}", "name": said[0], "input": said[1]}
            blocks.append(use)
        stop = "end_turn" if isinstance(said, str) else "tool_use"
        usage = {"input_tokens": 12, "output_tokens": 6}
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
        if not body.get("stream"):
            whole = {"content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": usage}
            self._json(head | whole)
            return
        start = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage | {"output_tokens": 1}}
        events: list[Any] = [{"type": "message_start", "message": head | start}]
        for index, block in enumerate(blocks):
            events += [{"index": index, **event} for event in _block_events(block)]
        delta = {"stop_reason": stop, "stop_sequence": None}
        events += [
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 6}},
            {"type": "message_stop"},
        ]
        self._events(events)

    def _json(self, payload: Any, status: int = 200) -> None:
        data = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if status == 429:
            self.send_header("retry-after", "7")
        self.end_headers()
        self.wfile.write(data)

    def _events(self, events: list[Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            data = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"{name}data: {data}\n\n".encode())
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _block_events(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": word} for word in _words(block["text"])]
        case "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": word} for word in _words(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case _:
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    yield {"type": "content_block_start", "content_block": empty}
    yield from ({"type": "content_block_delta", "delta": delta} for delta in deltas)
    yield {"type": "content_block_stop"}


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def _text(content: Any) -> str:
    """All text in a turn's content, whatever its shape."""
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text, content)))
    if isinstance(content, dict):
        return _text(content.get("text") or content.get("content"))
    return content if isinstance(content, str) else ""


class Upstream(ThreadingHTTPServer):
    """The server; `seen` holds (path, body, headers) of every request."""

    daemon_threads = True

    def __init__(self, port: int = 0, log: Path | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.seen: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.status = 0
        """An error to answer with, in place of everything else."""
        self.delay_s = 0.0
        """Seconds before an answer begins."""
        self.count = 0
        self._log = log
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Its origin."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def keep(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        """Remember a request, and write it to the log if there is one."""
        with self._lock:
            self.count += 1
            self.seen.append((path, body, headers))
            if self._log is not None:
                with self._log.open("a") as out:
                    out.write(json.dumps({"path": path, "headers": headers, "body": body}) + "\n")


@contextmanager
def scripted_upstream(log: Path | None = None) -> Iterator[Upstream]:
    """The server while it runs."""
    server = Upstream(log=log)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
