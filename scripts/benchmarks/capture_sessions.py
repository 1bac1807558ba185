"""Capture agent sessions: real clients run coding tasks against a scripted model, and every request is kept.

    python -m venv /tmp/clients && /tmp/clients/bin/pip install openai-agents "pydantic-ai-slim[openai]" langchain \\
        langchain-openai anthropic "smolagents[openai]" starlette uvicorn
    python -m venv /tmp/aider && /tmp/aider/bin/pip install aider-chat
    /tmp/clients/bin/python scripts/benchmarks/capture_sessions.py --aider /tmp/aider/bin/python agent-sessions.jsonl.gz

The clients, their prompts and their tools are real: the tools read and search this repository; only what shell commands
print is scripted. The model plays the script of each task, one step for each request. A line of the file is a session;
a request holds what differs from the one before it. scripts/benchmarks/replay_sessions.py replays the file.
"""

# ruff: noqa: ASYNC110, ASYNC240

import argparse
import asyncio
import gzip
import inspect
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

REPO = Path(__file__).parents[2]
SESSIONS = {}
"""(client, task) → requests with the replies to them."""
PORT = 0

SCRIPT = json.loads((REPO / "scripts" / "session_tasks.json").read_text())
TASKS, RUNS = SCRIPT["tasks"], SCRIPT["runs"]
"""Tasks: user turns of what the user says, the steps and the text that ends the turn; and what commands print."""


def plan(task):
    """Every reply of the model in a task, in order: a tool call or the text that ends a turn."""
    return [
        reply
        for turn in TASKS[task]
        for reply in (*turn["steps"], {"text": turn["text"], "hard": turn.get("hard")})
    ]


def position(kind, body):
    if kind == "responses":
        items = body["input"] if isinstance(body["input"], list) else []
        return sum(i.get("type") == "function_call" or i.get("role") == "assistant" for i in items)
    return sum(m["role"] == "assistant" for m in body["messages"])


def turn(client, task, kind, body):
    steps, before = plan(task), SESSIONS.setdefault((client, task), [])
    at = position(kind, body)
    if client == "aider":  # no tools, and examples that look like answers: each request is a turn of its own
        at, steps = len(before), [step for step in steps if "text" in step]
    elif client == "smolagents":  # writes down its steps as text
        at = len(before)
    step = steps[min(at, len(steps) - 1)]
    if client == "smolagents" and "text" in step:
        step = {"tool": "final_answer", "args": {"answer": step["text"]}, "hard": step.get("hard")}
    text, calls = step.get("text", ""), []
    if "tool" in step:
        calls = [{"id": f"call_{at}", "name": step["tool"], "arguments": json.dumps(step["args"])}]
    hard = bool(step.get("hard"))
    before.append({"protocol": kind, "body": body, "hard": hard, "text": text, "calls": calls})
    return text, calls


async def chat(request):
    client, task = request.path_params["client"], request.path_params["task"]
    body = await request.json()
    text, calls = turn(client, task, "chat", body)
    wire = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for c in calls
    ]
    finish = "tool_calls" if calls else "stop"
    head = {"id": "x", "created": 1, "model": body["model"]}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    if body.get("stream"):

        def events():
            delta = {"role": "assistant", "content": text or None}
            if wire:
                delta["tool_calls"] = [{"index": i, **w} for i, w in enumerate(wire)]
            for d, f in ((delta, None), ({}, finish)):
                yield (
                    "data: "
                    + json.dumps(
                        {
                            **head,
                            "object": "chat.completion.chunk",
                            "choices": [{"index": 0, "delta": d, "finish_reason": f}],
                        }
                    )
                    + "\n\n"
                )
            if (body.get("stream_options") or {}).get("include_usage"):
                yield (
                    "data: "
                    + json.dumps({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
                    + "\n\n"
                )
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")
    message = {"role": "assistant", "content": text or None, **({"tool_calls": wire} if wire else {})}
    return JSONResponse(
        {
            **head,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": usage,
        }
    )


async def messages(request):
    client, task = request.path_params["client"], request.path_params["task"]
    body = await request.json()
    text, calls = turn(client, task, "messages", body)
    content = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": c["id"], "name": c["name"], "input": json.loads(c["arguments"])} for c in calls
    ]
    return JSONResponse(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }
    )


async def responses(request):
    client, task = request.path_params["client"], request.path_params["task"]
    body = await request.json()
    text, calls = turn(client, task, "responses", body)
    out = (
        [
            {
                "type": "message",
                "id": "m1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
        ]
        if text
        else []
    )
    out += [
        {
            "type": "function_call",
            "id": "fc_" + c["id"],
            "call_id": c["id"],
            "name": c["name"],
            "arguments": c["arguments"],
            "status": "completed",
        }
        for c in calls
    ]
    return JSONResponse(
        {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": body["model"],
            "output": out,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "temperature": 1,
            "top_p": 1,
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "total_tokens": 15,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }
    )


app = Starlette(
    routes=[
        Route("/{client}/{task}/v1/chat/completions", chat, methods=["POST"]),
        Route("/{client}/{task}/v1/messages", messages, methods=["POST"]),
        Route("/{client}/{task}/v1/responses", responses, methods=["POST"]),
    ]
)


# ── the workspace: the tools that the agents really run ──
def read_file(path: str) -> str:
    """Read a file of the project."""
    found = REPO / path
    return found.read_text()[:12000] if found.exists() else f"{path}: no such file"


def search(pattern: str) -> str:
    """Search the project for a pattern."""
    out = subprocess.run(
        ["grep", "-rnF", "--include=*.py", pattern, "src"], cwd=REPO, capture_output=True, text=True
    ).stdout
    return out[:4000] or "no matches"


def write_file(path: str, content: str) -> str:
    """Write a file of the project."""
    return f"wrote {len(content)} characters to {path}"


def run(command: str) -> str:
    """Run a shell command in the project."""
    return RUNS.get(command, "ok")


TOOLS = [read_file, search, write_file, run]
SYSTEM = (
    "You are a coding agent. You work in a Python project (src/odar, tests, docs) with four tools. Read before you write, keep changes small, run the tests after "
    "every change, and say plainly what you did. Never guess the contents of a file. Stop when the task is done."
)


def url(client, task):
    return f"http://127.0.0.1:{PORT}/{client}/{task}"


async def openai_agents(task, api):
    from openai import AsyncOpenAI

    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )

    set_tracing_disabled(True)
    name = "openai-agents" + ("" if api == "responses" else "-chat")
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
    agent = Agent(
        name="coder",
        instructions=SYSTEM,
        tools=[function_tool(t) for t in TOOLS],
        model=kind("odar", openai_client=AsyncOpenAI(base_url=url(name, task) + "/v1", api_key="x")),
    )
    history = []
    for said in (turn["user"] for turn in TASKS[task]):
        result = await Runner.run(agent, [*history, {"role": "user", "content": said}], max_turns=30)
        history = result.to_input_list()


async def pydantic_ai(task):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    agent = Agent(
        OpenAIChatModel("odar", provider=OpenAIProvider(base_url=url("pydantic-ai", task) + "/v1", api_key="x")),
        instructions=SYSTEM,
        tools=TOOLS,
    )
    history = []
    for said in (turn["user"] for turn in TASKS[task]):
        history = (await agent.run(said, message_history=history)).all_messages()


async def langchain(task):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    agent = create_agent(
        ChatOpenAI(model="odar", base_url=url("langchain", task) + "/v1", api_key="x", streaming=True),
        tools=TOOLS,
        system_prompt=SYSTEM,
    )
    history = []
    for said in (turn["user"] for turn in TASKS[task]):
        history = (
            await agent.ainvoke(
                {"messages": [*history, {"role": "user", "content": said}]}, {"recursion_limit": 80}
            )
        )["messages"]


async def anthropic_runner(task):
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(base_url=url("anthropic", task), api_key="x")
    tools = [
        {
            "name": t.__name__,
            "description": t.__doc__,
            "input_schema": {
                "type": "object",
                "properties": {p: {"type": "string"} for p in inspect.signature(t).parameters},
                "required": list(inspect.signature(t).parameters),
            },
        }
        for t in TOOLS
    ]
    known = {t.__name__: t for t in TOOLS}
    history = []
    for said in (turn["user"] for turn in TASKS[task]):
        history.append({"role": "user", "content": said})
        while True:
            message = await client.messages.create(
                model="odar", max_tokens=4096, system=SYSTEM, tools=tools, messages=history
            )
            history.append(
                {
                    "role": "assistant",
                    "content": [b.model_dump(exclude_none=True, mode="json") for b in message.content],
                }
            )
            uses = [b for b in message.content if b.type == "tool_use"]
            if not uses:
                break
            history.append(
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": b.id, "content": known[b.name](**b.input)}
                        for b in uses
                    ],
                }
            )


async def smolagents_(task):
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    def described(t):
        doc = (
            t.__doc__
            + "\n\n    Args:\n"
            + "".join(f"        {p}: the {p}\n" for p in inspect.signature(t).parameters)
        )
        t2 = type(t)(t.__code__, t.__globals__, t.__name__)
        t2.__annotations__ = t.__annotations__
        t2.__doc__ = doc
        return tool(t2)

    agent = ToolCallingAgent(
        tools=[described(t) for t in TOOLS],
        model=OpenAIServerModel("odar", api_base=url("smolagents", task) + "/v1", api_key="x"),
        verbosity_level=0,
    )
    first = True
    for said in (turn["user"] for turn in TASKS[task]):
        await asyncio.to_thread(agent.run, said, reset=first)
        first = False


def pack(client, task, records):
    """Each request as what differs from the one before: leading messages that are equal are only counted."""
    before, fields, packed = [], {}, []
    for r in records:
        name = "input" if r["protocol"] == "responses" else "messages"
        body = dict(r["body"])
        said = body.pop(name)
        said = said if isinstance(said, list) else [{"role": "user", "content": said}]
        same = next(
            (i for i, (a, b) in enumerate(zip(before, said, strict=False)) if a != b), min(len(before), len(said))
        )
        packed.append(
            {
                "same": same,
                "more": said[same:],
                "fields": {k: v for k, v in body.items() if fields.get(k) != v},
                "hard": r["hard"],
                "text": r["text"],
                "calls": r["calls"],
            }
        )
        before, fields = said, body
    return {"client": client, "task": task, "protocol": records[0]["protocol"], "requests": packed}


async def capture(aider, out):
    """Run every client on every task, and write what was captured."""
    global PORT
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    PORT = sock.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    threading.Thread(target=lambda: asyncio.run(server.serve([sock])), daemon=True).start()
    while not server.started:
        await asyncio.sleep(0.05)
    for task in TASKS:
        for name, f in [
            ("openai-agents", lambda t: openai_agents(t, "responses")),
            ("openai-agents-chat", lambda t: openai_agents(t, "chat")),
            ("pydantic-ai", pydantic_ai),
            ("langchain", langchain),
            ("anthropic", anthropic_runner),
            ("smolagents", smolagents_),
        ]:
            try:
                await asyncio.wait_for(f(task), 40)
            except Exception as e:
                print(name, task, type(e).__name__, str(e)[:300], file=sys.stderr)
            print(name, task, len(SESSIONS.get((name, task), [])), flush=True)
        work = tempfile.mkdtemp()
        env = {**os.environ, "OPENAI_API_BASE": url("aider", task) + "/v1", "OPENAI_API_KEY": "x", "HOME": work}
        code = """
import sys, json
from aider.coders import Coder
from aider.models import Model
from aider.io import InputOutput
turns = json.loads(sys.argv[1]); files = sys.argv[2:]
coder = Coder.create(main_model=Model('openai/odar'), fnames=files, io=InputOutput(yes=True, pretty=False, fancy_input=False), use_git=False, stream=True, map_tokens=0, edit_format='diff', suggest_shell_commands=False, detect_urls=False)
for turn in turns: coder.run(turn)
"""
        Path(work, "gate.py").write_text((REPO / "src/odar/serving/access.py").read_text())
        Path(work, "path.py").write_text((REPO / "src/odar/policy/path.py").read_text())
        done = await asyncio.to_thread(
            subprocess.run,
            [aider, "-c", code, json.dumps([turn["user"] for turn in TASKS[task]]), "gate.py", "path.py"],
            cwd=work,
            env=env,
            capture_output=True,
            text=True,
            timeout=200,
        )
        if done.returncode:
            print(done.stderr[-600:], file=sys.stderr)
        print("aider", task, len(SESSIONS.get(("aider", task), [])), flush=True)
    lines = []
    for (client, task), records in SESSIONS.items():
        lines.append(pack(client, task, records))
    raw = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines).encode()
    packed = gzip.compress(raw, 9, mtime=0)
    out.write_bytes(packed)
    print(
        len(lines),
        "sessions",
        sum(len(line["requests"]) for line in lines),
        "requests",
        len(raw),
        "->",
        len(packed),
        "bytes",
    )


def main():
    """Parse the arguments and capture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="where the sessions are written (.jsonl.gz)")
    parser.add_argument("--aider", required=True, help="the Python of an environment with aider")
    given = parser.parse_args()
    asyncio.run(capture(given.aider, given.file))


if __name__ == "__main__":
    main()
