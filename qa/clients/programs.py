"""What each Python client does in the table: chat, stream, tools with loop, structured output, usage.

Run by `python -m clients` with the client's own interpreter: programs.py CLIENT MODEL…; ODAR_URL says where.
Prints one JSON object a feature. Nothing of ODAR is imported here.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

URL, MODEL = os.environ.get("ODAR_URL", ""), ""
V1, KEY = f"{URL}/v1", "sk-none"
CHAT, FACT = "What is the capital of France?", "Paris"
ASK_TOOL, RESULT = "What is the weather in Paris?", "21 degrees and sunny"
ASK_JSON = "Name the capital of France as JSON."
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "get_weather", "description": "The weather in a city.", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: {RESULT}"


def check(condition: object, what: Any = "") -> None:
    """Fail with what was seen."""
    if not condition:
        raise AssertionError(f"unexpected: {str(what)[:200]}")


def has(text: Any, wanted: str) -> None:
    """The text holds it."""
    check(isinstance(text, str) and wanted in text, text)


def pieces(found: list[str], wanted: str = FACT) -> None:
    """More than one piece came, and together they hold it."""
    check(len([piece for piece in found if piece]) > 1, found)
    has("".join(found), wanted)


def openai_python() -> dict[str, Callable[[], Any]]:
    """The OpenAI SDK: chat completions and responses."""
    import openai
    from pydantic import BaseModel

    client = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0)

    class City(BaseModel):
        city: str

    def ask(text: str, **more: Any) -> Any:
        return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **more)

    def stream() -> None:
        pieces([chunk.choices[0].delta.content or "" for chunk in ask(CHAT, stream=True)])
        events = list(client.responses.create(model=MODEL, input=CHAT, stream=True))
        pieces([event.delta for event in events if event.type == "response.output_text.delta"])

    def tools() -> None:
        turns: list[Any] = [{"role": "user", "content": ASK_TOOL}]
        said = client.chat.completions.create(model=MODEL, messages=turns, tools=[TOOL]).choices[0].message
        (call,) = said.tool_calls
        result = get_weather(**json.loads(call.function.arguments))
        turns += [said, {"role": "tool", "tool_call_id": call.id, "content": result}]
        last = client.chat.completions.create(model=MODEL, messages=turns, tools=[TOOL])
        has(last.choices[0].message.content, RESULT)
        flat = {"type": "function", **FUNCTION, "strict": True}
        items: list[Any] = [{"role": "user", "content": ASK_TOOL}]
        first = client.responses.create(model=MODEL, input=items, tools=[flat])
        (made,) = [item for item in first.output if item.type == "function_call"]
        items += first.output
        items += [{"type": "function_call_output", "call_id": made.call_id, "output": RESULT}]
        has(client.responses.create(model=MODEL, input=items, tools=[flat]).output_text, RESULT)

    def structured() -> None:
        turns: Any = [{"role": "user", "content": ASK_JSON}]
        parsed = client.chat.completions.parse(model=MODEL, messages=turns, response_format=City)
        check(parsed.choices[0].message.parsed == City(city=FACT), parsed)
        check(client.responses.parse(model=MODEL, input=ASK_JSON, text_format=City).output_parsed.city == FACT)

    def usage() -> None:
        check(ask(CHAT).usage.prompt_tokens > 0)
        last = list(ask(CHAT, stream=True, stream_options={"include_usage": True}))[-1]
        check(last.usage.completion_tokens > 0, last)
        check(client.responses.create(model=MODEL, input=CHAT).usage.output_tokens > 0)

    def chat() -> None:
        has(ask(CHAT).choices[0].message.content, FACT)
        has(client.responses.create(model=MODEL, input=CHAT).output_text, FACT)
        check(client.models.retrieve(MODEL).id == MODEL)

    return {"chat": chat, "stream": stream, "tools": tools, "structured": structured, "usage": usage}


def anthropic_python() -> dict[str, Callable[[], Any]]:
    """The Anthropic SDK."""
    import anthropic

    client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
    tool = {"name": "get_weather", "description": "The weather in a city.", "input_schema": SCHEMA}

    def ask(turns: Any, **more: Any) -> Any:
        turns = [{"role": "user", "content": turns}] if isinstance(turns, str) else turns
        return client.messages.create(model=MODEL, max_tokens=500, messages=turns, **more)

    def stream() -> None:
        turns: Any = [{"role": "user", "content": CHAT}]
        with client.messages.stream(model=MODEL, max_tokens=500, messages=turns) as got:
            pieces(list(got.text_stream))
            check(got.get_final_message().stop_reason == "end_turn")

    def tools() -> None:
        turns: list[Any] = [{"role": "user", "content": ASK_TOOL}]
        first = ask(turns, tools=[tool])
        (use,) = [block for block in first.content if block.type == "tool_use"]
        result = {"type": "tool_result", "tool_use_id": use.id, "content": get_weather(**use.input)}
        turns += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        has(ask(turns, tools=[tool]).content[-1].text, RESULT)

    def structured() -> None:
        form = {"format": {"type": "json_schema", "schema": SCHEMA}}
        check(json.loads(ask(ASK_JSON, output_config=form).content[0].text) == {"city": FACT})

    def usage() -> None:
        check(ask(CHAT).usage.output_tokens > 0)
        turns: Any = [{"role": "user", "content": CHAT}]
        check(client.messages.count_tokens(model=MODEL, messages=turns).input_tokens > 0)

    return {
        "chat": lambda: has(ask(CHAT).content[0].text, FACT),
        "stream": stream,
        "tools": tools,
        "structured": structured,
        "usage": usage,
    }


def langchain() -> dict[str, Callable[[], Any]]:
    """LangChain's OpenAI and Anthropic models, and its agent."""
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel

    class City(BaseModel):
        city: str

    model = ChatOpenAI(model=MODEL, base_url=V1, api_key=KEY, max_retries=0)  # type: ignore[arg-type]
    other = ChatAnthropic(model=MODEL, base_url=URL, api_key=KEY, max_retries=0)  # type: ignore[call-arg, arg-type]

    def tools() -> None:
        for each in (model, other):
            agent = create_agent(each, tools=[get_weather])
            turns = agent.invoke({"messages": [{"role": "user", "content": ASK_TOOL}]})["messages"]
            has(turns[-1].text, RESULT)

    def stream() -> None:
        for each in (model, other):
            pieces([chunk.text for chunk in each.stream(CHAT)])

    def structured() -> None:
        check(model.with_structured_output(City).invoke(ASK_JSON).city == FACT)
        check(other.with_structured_output(City).invoke(ASK_JSON).city == FACT)

    return {
        "chat": lambda: [has(each.invoke(CHAT).text, FACT) for each in (model, other)],
        "stream": stream,
        "tools": tools,
        "structured": structured,
        "usage": lambda: [check(each.invoke(CHAT).usage_metadata["output_tokens"] > 0) for each in (model, other)],
    }


def openai_agents() -> dict[str, Callable[[], Any]]:
    """The OpenAI Agents SDK, over the Responses API."""
    from openai import AsyncOpenAI
    from pydantic import BaseModel

    from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled

    set_tracing_disabled(True)
    set_default_openai_client(AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0))

    class City(BaseModel):
        city: str

    plain = Agent(name="a", instructions="Answer.", model=MODEL)

    async def stream() -> None:
        run = Runner.run_streamed(plain, CHAT)
        found = [event.data async for event in run.stream_events() if event.type == "raw_response_event"]
        pieces([event.delta for event in found if event.type == "response.output_text.delta"])

    async def tools() -> None:
        agent = Agent(name="b", model=MODEL, tools=[function_tool(get_weather)])
        has((await Runner.run(agent, ASK_TOOL)).final_output, RESULT)

    async def structured() -> None:
        agent = Agent(name="c", model=MODEL, output_type=City)
        check((await Runner.run(agent, ASK_JSON)).final_output == City(city=FACT))

    async def chat() -> None:
        has((await Runner.run(plain, CHAT)).final_output, FACT)

    async def usage() -> None:
        check((await Runner.run(plain, CHAT)).context_wrapper.usage.output_tokens > 0)

    return {"chat": chat, "stream": stream, "tools": tools, "structured": structured, "usage": usage}


def pydantic_ai() -> dict[str, Callable[[], Any]]:
    """pydantic-ai's OpenAI model."""
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class City(BaseModel):
        city: str

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=V1, api_key=KEY))

    async def stream() -> None:
        async with Agent(model).run_stream(CHAT) as run:
            pieces([text async for text in run.stream_text(delta=True, debounce_by=None)])

    async def tools() -> None:
        has((await Agent(model, tools=[get_weather]).run(ASK_TOOL)).output, RESULT)

    async def usage() -> None:
        found = (await Agent(model).run(CHAT)).usage
        check((found() if callable(found) else found).output_tokens > 0)

    async def structured() -> None:
        check((await Agent(model, output_type=City).run(ASK_JSON)).output == City(city=FACT))

    async def chat() -> None:
        has((await Agent(model).run(CHAT)).output, FACT)

    return {"chat": chat, "stream": stream, "tools": tools, "structured": structured, "usage": usage}


def instructor_client() -> dict[str, Callable[[], Any]]:
    """instructor in three modes."""
    import instructor
    import openai
    from pydantic import BaseModel

    class City(BaseModel):
        city: str

    def made(mode: Any) -> Any:
        return instructor.from_openai(openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0), mode=mode)

    turns = [{"role": "user", "content": ASK_JSON}]

    def structured() -> None:
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON):
            check(made(mode).create(model=MODEL, messages=turns, response_model=City).city == FACT, mode)

    def stream() -> None:
        parts = list(made(instructor.Mode.TOOLS).create_partial(model=MODEL, messages=turns, response_model=City))
        check(parts[-1].city == FACT, parts)

    def usage() -> None:
        _, raw = made(instructor.Mode.TOOLS).create_with_completion(
            model=MODEL, messages=turns, response_model=City
        )
        check(raw.usage.completion_tokens > 0)

    def chat() -> None:
        reply = made(instructor.Mode.TOOLS).create(
            model=MODEL, messages=[{"role": "user", "content": CHAT}], response_model=None
        )
        has(reply.choices[0].message.content, FACT)

    return {"chat": chat, "stream": stream, "structured": structured, "usage": usage}


def litellm_client() -> dict[str, Callable[[], Any]]:
    """LiteLLM by its OpenAI and its Anthropic route."""
    import litellm

    routes = ((f"openai/{MODEL}", V1), (f"anthropic/{MODEL}", URL))

    def ask(route: tuple[str, str], turns: Any, **more: Any) -> Any:
        turns = [{"role": "user", "content": turns}] if isinstance(turns, str) else turns
        return litellm.completion(model=route[0], api_base=route[1], api_key=KEY, messages=turns, **more)

    def stream() -> None:
        for route in routes:
            pieces([chunk.choices[0].delta.content or "" for chunk in ask(route, CHAT, stream=True)])

    def tools() -> None:
        for route in routes:
            turns: list[Any] = [{"role": "user", "content": ASK_TOOL}]
            said = ask(route, turns, tools=[TOOL]).choices[0].message
            call = said.tool_calls[0]
            result = get_weather(**json.loads(call.function.arguments))
            turns += [said.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": result}]
            has(ask(route, turns, tools=[TOOL]).choices[0].message.content, RESULT)

    def structured() -> None:
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
        for route in routes:
            text = ask(route, ASK_JSON, response_format=form).choices[0].message.content
            check(json.loads(text)["city"] == FACT, text)

    return {
        "chat": lambda: [has(ask(route, CHAT).choices[0].message.content, FACT) for route in routes],
        "stream": stream,
        "tools": tools,
        "structured": structured,
        "usage": lambda: [check(ask(route, CHAT).usage.completion_tokens > 0) for route in routes],
    }


def llama_index() -> dict[str, Callable[[], Any]]:
    """LlamaIndex's model for OpenAI-compatible servers."""
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike
    from pydantic import BaseModel

    class City(BaseModel):
        """A city."""

        city: str

    llm = OpenAILike(
        model=MODEL, api_base=V1, api_key=KEY, is_chat_model=True, is_function_calling_model=True, max_retries=0
    )

    def tools() -> None:
        turns = [ChatMessage(role="user", content=ASK_TOOL)]
        tool = FunctionTool.from_defaults(get_weather)
        said = llm.chat_with_tools([tool], chat_history=turns)
        (call,) = llm.get_tool_calls_from_response(said)
        result = str(tool(**call.tool_kwargs))
        turns += [
            said.message,
            ChatMessage(role="tool", content=result, additional_kwargs={"tool_call_id": call.tool_id}),
        ]
        has(llm.chat_with_tools([tool], chat_history=turns).message.content, RESULT)

    def stream() -> None:
        pieces([part.delta or "" for part in llm.stream_chat([ChatMessage(role="user", content=CHAT)])])

    def structured() -> None:
        reply = llm.as_structured_llm(City).chat([ChatMessage(role="user", content=ASK_JSON)])
        check(reply.raw.city == FACT, reply)

    def usage() -> None:
        check(llm.chat([ChatMessage(role="user", content=CHAT)]).raw.usage.completion_tokens > 0)

    return {
        "chat": lambda: has(llm.chat([ChatMessage(role="user", content=CHAT)]).message.content, FACT),
        "stream": stream,
        "tools": tools,
        "structured": structured,
        "usage": usage,
    }


def dspy_client() -> dict[str, Callable[[], Any]]:
    """DSPy with its JSON adapter; it asks for a schema unasked only of models that it knows."""
    import dspy

    lm = dspy.LM(f"openai/{MODEL}", api_base=V1, api_key=KEY, cache=False, num_retries=0, max_tokens=500)
    dspy.configure(lm=lm, adapter=dspy.JSONAdapter())
    form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}

    def tools() -> None:
        turns: list[Any] = [{"role": "user", "content": ASK_TOOL}]
        (said,) = lm(messages=turns, tools=[TOOL])
        call = said["tool_calls"][0]
        entry = call.model_dump() if hasattr(call, "model_dump") else call
        result = get_weather(**json.loads(entry["function"]["arguments"]))
        turns += [{"role": "assistant", "content": None, "tool_calls": [entry]}]
        turns += [{"role": "tool", "tool_call_id": entry["id"], "content": result}]
        (last,) = lm(messages=turns, tools=[TOOL])
        has(last if isinstance(last, str) else last["text"], RESULT)

    def usage() -> None:
        lm(CHAT)
        check(lm.history[-1]["usage"]["completion_tokens"] > 0)

    return {
        "chat": lambda: has(str(lm(CHAT)[0]), FACT),
        "tools": tools,
        "structured": lambda: check(
            dspy.Predict("question -> city", response_format=form)(question=ASK_JSON).city == FACT
        ),
        "usage": usage,
    }


def inspect_client() -> dict[str, Callable[[], Any]]:
    """inspect_ai's model for OpenAI-compatible servers."""
    from inspect_ai.model import ChatMessageUser, GenerateConfig, ResponseSchema, get_model
    from inspect_ai.tool import tool
    from inspect_ai.util import json_schema
    from pydantic import BaseModel

    class City(BaseModel):
        city: str

    @tool
    def weather():  # type: ignore[no-untyped-def]
        async def execute(city: str) -> str:
            """The weather in a city.

            Args:
                city: Its name.
            """
            return get_weather(city)

        return execute

    model = get_model(f"openai-api/odar/{MODEL}", base_url=V1, api_key=KEY)

    async def tools() -> None:
        turns, _ = await model.generate_loop([ChatMessageUser(content=ASK_TOOL)], tools=[weather()])
        has(turns[-1].text, RESULT)

    async def structured() -> None:
        config = GenerateConfig(response_schema=ResponseSchema(name="city", json_schema=json_schema(City)))
        check(json.loads((await model.generate(ASK_JSON, config=config)).completion)["city"] == FACT)

    async def chat() -> None:
        has((await model.generate(CHAT)).completion, FACT)

    async def usage() -> None:
        check((await model.generate(CHAT)).usage.output_tokens > 0)

    return {"chat": chat, "tools": tools, "structured": structured, "usage": usage}


def lm_eval_client() -> dict[str, Callable[[], Any]]:
    """lm-evaluation-harness's chat completions model."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.api_models import JsonChatStr
    from lm_eval.models.openai_completions import LocalChatCompletion

    def chat() -> None:
        lm = LocalChatCompletion(base_url=f"{V1}/chat/completions", model=MODEL, max_retries=1)
        turn = JsonChatStr(json.dumps([{"role": "user", "content": CHAT, "type": "text"}]))
        request = Instance("generate_until", {}, (turn, {"until": ["\n\n"], "max_gen_toks": 99}), 0)
        has(lm.generate_until([request])[0], FACT)

    return {"chat": chat}


def run(*command: str, **environment: str) -> str:
    """The output of a command line, both streams; its failure is ours."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=os.environ | environment, stdin=subprocess.DEVNULL
    )
    check(done.returncode == 0, done.stdout[-150:] + done.stderr[-300:])
    return done.stdout + done.stderr


def llm_client() -> dict[str, Callable[[], Any]]:
    """The command `llm`."""
    llm, home = str(Path(sys.executable).with_name("llm")), Path.cwd()
    entry = {"model_id": "served", "model_name": MODEL, "api_base": V1, "api_key_name": "odar"}
    entry |= {"supports_tools": True, "supports_schema": True}
    (home / "extra-openai-models.yaml").write_text(json.dumps([entry]))  # YAML holds JSON
    (home / "keys.json").write_text(json.dumps({"odar": KEY}))

    def ask(*arguments: str) -> str:
        return run(llm, "-m", "served", *arguments, LLM_USER_PATH=str(home))

    code = f'def get_weather(city: str) -> str:\n    "The weather in a city."\n    return "{RESULT}"\n'
    return {
        "chat": lambda: has(ask("--no-stream", CHAT), FACT),
        "stream": lambda: has(ask(CHAT), FACT),
        "tools": lambda: has(ask("--functions", code, ASK_TOOL), f"says: {RESULT}"),
        "structured": lambda: check(
            json.loads(ask("--no-stream", "--schema", json.dumps(SCHEMA), ASK_JSON))["city"] == FACT
        ),
        "usage": lambda: has(ask("-u", "--no-stream", CHAT), "output"),
    }


def aider_client() -> dict[str, Callable[[], Any]]:
    """The command `aider`."""
    aider = str(Path(sys.executable).with_name("aider"))

    def ask(*arguments: str) -> str:
        quiet = (
            "--no-git",
            "--yes-always",
            "--no-pretty",
            "--no-analytics",
            "--no-check-update",
            "--edit-format",
            "ask",
        )
        more = ("--no-show-model-warnings", "--no-detect-urls", "--model", f"openai/{MODEL}", "--map-tokens", "0")
        key = {"OPENAI_API_BASE": V1, "OPENAI_API_KEY": KEY}
        return run(aider, *quiet, *more, *arguments, "--message", CHAT, **key)

    return {
        "chat": lambda: has(ask("--no-stream"), FACT),
        "stream": lambda: has(ask("--stream"), FACT),
        "usage": lambda: has(ask("--no-stream"), "received"),
    }


@functools.cache
def open_webui_session() -> tuple[str, dict[str, str]]:
    """The address of an Open WebUI server that uses the gateway, and the header of its first user."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "DATA_DIR": str(Path.cwd() / "data"), "WEBUI_AUTH": "false", "WEBUI_SECRET_KEY": "test", "OFFLINE_MODE": "true",
        "HF_HUB_OFFLINE": "1", "ENABLE_OLLAMA_API": "false", "OPENAI_API_BASE_URL": V1, "OPENAI_API_KEY": KEY,
        "RAG_EMBEDDING_ENGINE": "openai", "ENABLE_VERSION_UPDATE_CHECK": "false", "ANONYMIZED_TELEMETRY": "false",
    }  # fmt: skip
    command = [
        str(Path(sys.executable).with_name("open-webui")),
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with Path("open-webui.log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
    atexit.register(server.kill)
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + 600
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            break
        except OSError:
            time.sleep(1)
    user = json.load(_post(f"{url}/api/v1/auths/signin", {"email": "", "password": ""}, {}))
    return url, {"Authorization": f"Bearer {user['token']}"}


def _post(url: str, body: object, headers: dict[str, str]) -> Any:
    content = {"Content-Type": "application/json"} | headers
    return urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), content), timeout=120)


def open_webui() -> dict[str, Callable[[], Any]]:
    """Open WebUI's server: what its page sends, through its own API."""
    url, user = open_webui_session()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/api/models", headers=user), timeout=60) as listed:
        check(MODEL in [model["id"] for model in json.load(listed)["data"]], "model is not listed")

    def ask(turns: Any, **more: Any) -> Any:
        turns = [{"role": "user", "content": turns}] if isinstance(turns, str) else turns
        body = {"model": MODEL, "messages": turns, "stream": False} | more
        return _post(f"{url}/api/chat/completions", body, user)

    def message(turns: Any, **more: Any) -> Any:
        return json.load(ask(turns, **more))["choices"][0]["message"]

    def stream() -> None:
        lines = [line[6:] for line in ask(CHAT, stream=True) if line.startswith(b"data: {")]
        deltas = [choice["delta"] for line in lines for choice in json.loads(line).get("choices", [])]
        pieces([delta.get("content") or "" for delta in deltas])

    def tools() -> None:
        said = message(ASK_TOOL, tools=[TOOL])
        (call,) = said["tool_calls"]
        result = get_weather(**json.loads(call["function"]["arguments"]))
        reply = {"role": "tool", "tool_call_id": call["id"], "content": result}
        has(message([{"role": "user", "content": ASK_TOOL}, said, reply], tools=[TOOL])["content"], RESULT)

    def structured() -> None:
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
        check(json.loads(message(ASK_JSON, response_format=form)["content"])["city"] == FACT)

    return {
        "chat": lambda: has(message(CHAT)["content"], FACT),
        "stream": stream,
        "tools": tools,
        "structured": structured,
        "usage": lambda: check(json.load(ask(CHAT))["usage"]["completion_tokens"] > 0),
    }


PROGRAMS = {
    "openai-python": openai_python,
    "anthropic-python": anthropic_python,
    "langchain": langchain,
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "instructor": instructor_client,
    "litellm": litellm_client,
    "llama-index": llama_index,
    "dspy": dspy_client,
    "inspect-ai": inspect_client,
    "lm-eval": lm_eval_client,
    "llm": llm_client,
    "aider": aider_client,
    "open-webui": open_webui,
}


def main(name: str, *models: str) -> None:
    """Run one client's features, each on its own, with each model."""
    global MODEL
    with asyncio.Runner() as loop:  # clients keep connections, which belong to a loop
        for MODEL in models:
            for feature, program in PROGRAMS[name]().items():
                try:
                    loop.run(program()) if inspect.iscoroutinefunction(program) else program()
                    why = "ok"
                except Exception as error:
                    why = f"{type(error).__name__}: {error}"[:400]
                sys.stdout.write(json.dumps({"feature": feature, "model": MODEL, "result": why}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
