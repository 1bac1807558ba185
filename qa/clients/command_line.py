"""The command-line clients of npm: Claude Code, Codex and promptfoo, without a terminal, in a scratch folder."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clients.programs import ASK_JSON, CHAT, FACT, KEY, RESULT, SCHEMA, check, has, pieces

NOTE = "The secret word is pomegranate."
SHORT_PROMPT = "You are a helpful assistant. Answer briefly."
"""In place of an agent's own instructions, for models that read a hundred tokens a second."""
LIMIT_S, SHORT_LIMIT_S = 300, 3600
_READ = "Please read the file note.txt and tell me."
Features = dict[str, Callable[[], Any]]


class Agent:
    """A client's command, run in a folder of its own with a home of its own."""

    def __init__(self, folder: Path, name: str, work: Path, limit_s: float = LIMIT_S) -> None:
        self.binary = str(folder / "node_modules" / ".bin" / name)
        self.work, self.limit_s = work, limit_s
        self.home = work / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        (work / "note.txt").write_text(NOTE)

    def __call__(self, *arguments: str, **environment: str) -> str:
        """Its output; a failure is raised with the end of what it said."""
        clean = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        done = subprocess.run(
            [self.binary, *arguments],
            cwd=self.work,
            env=clean | {"HOME": str(self.home)} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.limit_s,
        )
        check(done.returncode == 0, done.stdout[-300:] + done.stderr[-300:])
        return done.stdout


def ask_claude_code(folder: Path, work: Path, url: str, model: str, *, short: bool = False) -> Callable[..., str]:
    """`claude -p`; every model it would choose is the one under test. `short`: with a short prompt and no tools."""
    agent = Agent(folder, "claude", work, SHORT_LIMIT_S if short else LIMIT_S)
    shorter = ("--system-prompt", SHORT_PROMPT, "--tools", "") if short else ()
    names = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "IS_SANDBOX")
    told = dict.fromkeys(names, model) | dict.fromkeys(quiet, "1")
    told |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}

    def ask(prompt: str, *arguments: str, form: str = "json") -> str:
        free = "--dangerously-skip-permissions"
        return agent("-p", prompt, "--output-format", form, free, *shorter, *arguments, **told)

    return ask


def claude_code(folder: Path, work: Path, url: str, model: str, *, short: bool = False) -> Features:
    """The features of Claude Code."""
    ask = ask_claude_code(folder, work, url, model, short=short)

    def stream() -> None:
        lines = ask(CHAT, "--verbose", "--include-partial-messages", form="stream-json").splitlines()
        events = [json.loads(line).get("event", {}) for line in lines]
        pieces([e["delta"].get("text", "") for e in events if e.get("type") == "content_block_delta"])

    def structured() -> None:
        done = json.loads(ask(ASK_JSON, "--json-schema", json.dumps(SCHEMA)))
        check((done.get("structured_output") or {}).get("city") == FACT, done.get("result"))

    return {
        "chat": lambda: has(json.loads(ask(CHAT))["result"], FACT),
        "stream": stream,
        "tools": lambda: has(json.loads(ask(_READ))["result"], NOTE),
        "structured": structured,
        "usage": lambda: check(json.loads(ask(CHAT))["usage"]["output_tokens"] > 0),
    }


CODEX_SHORT = """model_instructions_file = "prompt.md"
include_permissions_instructions = false
include_apps_instructions = false
include_environment_context = false
skills.include_instructions = false
"""


def ask_codex(
    folder: Path, work: Path, url: str, model: str, *, short: bool = False
) -> Callable[..., list[dict[str, Any]]]:
    """`codex exec`, over the Responses API; it streams every request. `short`: with a short prompt."""
    agent = Agent(folder, "codex", work, SHORT_LIMIT_S if short else LIMIT_S)
    home = work / "codex"
    home.mkdir(exist_ok=True)
    provider = f'[model_providers.odar]\nname = "odar"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
    (home / "config.toml").write_text(
        f'model = "{model}"\nmodel_provider = "odar"\n{CODEX_SHORT if short else ""}{provider}env_key = "ODAR_KEY"\n'
    )
    (home / "prompt.md").write_text(SHORT_PROMPT)
    (work / "schema.json").write_text(json.dumps(SCHEMA))

    def ask(prompt: str, *arguments: str) -> list[dict[str, Any]]:
        free = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
        said = agent("exec", "--json", *free, *arguments, prompt, CODEX_HOME=str(home), ODAR_KEY=KEY)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    return ask


def codex(folder: Path, work: Path, url: str, model: str, *, short: bool = False) -> Features:
    """The features of Codex."""
    ask = ask_codex(folder, work, url, model, short=short)

    def last(events: list[dict[str, Any]]) -> str:
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        return str([item["text"] for item in items if item["type"] == "agent_message"][-1])

    def usage() -> None:
        (done,) = [event for event in ask(CHAT) if event["type"] == "turn.completed"]
        check(done["usage"]["output_tokens"] > 0, done)

    def structured() -> None:
        check(json.loads(last(ask(ASK_JSON, "--output-schema", "schema.json")))["city"] == FACT)

    return {
        "chat": lambda: has(last(ask(CHAT)), FACT),
        "stream": lambda: has(last(ask(CHAT)), FACT),
        "tools": lambda: has(last(ask(_READ)), NOTE),
        "structured": structured,
        "usage": usage,
    }


def promptfoo(folder: Path, work: Path, url: str, model: str) -> Features:
    """`promptfoo eval` with one prompt; a tool's function is called in its own process."""
    agent = Agent(folder, "promptfoo", work)
    quiet = dict.fromkeys(
        ("PROMPTFOO_DISABLE_TELEMETRY", "PROMPTFOO_DISABLE_UPDATE", "PROMPTFOO_DISABLE_REMOTE_GENERATION"), "1"
    )

    def ask(prompt: str, **config: Any) -> dict[str, Any]:
        options = {"apiBaseUrl": f"{url}/v1", "apiKey": KEY, **config}
        provider = {"id": f"openai:chat:{model}", "config": options}
        (work / "promptfooconfig.json").write_text(
            json.dumps({"prompts": [prompt], "providers": [provider], "tests": [{"vars": {"none": ""}}]})
        )
        out = work / "out.json"
        agent(
            "eval",
            "-c",
            "promptfooconfig.json",
            "--no-cache",
            "--no-write",
            "--no-progress-bar",
            "-o",
            str(out),
            **quiet,
        )
        found: dict[str, Any] = json.loads(out.read_text())["results"]["results"][0]["response"]
        return found

    form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}

    def structured() -> None:
        output = ask(ASK_JSON, response_format=form)["output"]
        check((json.loads(output) if isinstance(output, str) else output)["city"] == FACT, output)

    def tools() -> None:
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
        call = f"async () => '{RESULT}'"
        said = ask("What is the weather in Paris?", tools=[tool], functionToolCallbacks={"get_weather": call})
        has(str(said["output"]), RESULT)

    return {
        "chat": lambda: has(ask(CHAT)["output"], FACT),
        "tools": tools,
        "structured": structured,
        "usage": lambda: check(ask(CHAT)["tokenUsage"]["completion"] > 0),
    }


COMMANDS = {"claude-code": claude_code, "codex": codex, "promptfoo": promptfoo}
