"""Real clients through `odar serve`: a table of what works, in front of a scripted model server.

    make test-clients                            every client, through odar, odar-hard and a named model
    make test-clients ONLY="codex claude-code"   some of them
    make test-clients LOCAL=1                    the coding agents, chat and stream, with the models of profile local

Each client is installed from PyPI or npm into a folder of its own under the user's cache folder, once (Java is the machine's JDK); nothing of
theirs gets into ODAR's environment. Ends with 1 if a cell fails. A client that cannot be installed fails too. The last
results of each client are kept beside them, so that a long run can be made in parts; the page shows all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import click
from clients import first_event, routes
from clients.upstream import Upstream, scripted_upstream

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "odar" / "clients"
FEATURES = ("chat", "stream", "tools", "structured", "usage")
MODELS = ("odar", "odar-hard", "quick", "claude-deep")
"""Adaptive, all agents, a model by name behind chat completions, and one behind Anthropic's API."""
NOT_THERE = "n/a"


@dataclass(frozen=True, slots=True)
class Client:
    """What to install, and what it does not have."""

    name: str
    title: str
    packages: tuple[str, ...]
    node: bool = False
    java: bool = False
    """Whether it is a program for the JDK of this machine; nothing is installed."""
    lacks: tuple[str, ...] = ()
    """Features that the client itself does not have."""

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return CACHE / self.name


CLIENTS = (
    Client("openai-python", "OpenAI SDK (Python), chat completions and responses", ("openai",)),
    Client("openai-node", "OpenAI SDK (Node)", ("openai", "zod"), node=True),
    Client("anthropic-python", "Anthropic SDK (Python)", ("anthropic",)),
    Client("anthropic-node", "Anthropic SDK (Node)", ("@anthropic-ai/sdk", "zod"), node=True),
    Client("claude-code", "Claude Code", ("@anthropic-ai/claude-code",), node=True),
    Client("codex", "Codex CLI", ("@openai/codex",), node=True),
    Client(
        "langchain", "LangChain, OpenAI and Anthropic", ("langchain", "langchain-openai", "langchain-anthropic")
    ),
    Client("vercel-ai", "Vercel AI SDK", ("ai", "@ai-sdk/openai-compatible", "zod"), node=True),
    Client("openai-agents", "OpenAI Agents SDK", ("openai-agents",)),
    Client("pydantic-ai", "pydantic-ai", ("pydantic-ai-slim[openai]",)),
    Client("instructor", "instructor", ("instructor",), lacks=("tools",)),
    Client("litellm", "LiteLLM, OpenAI and Anthropic", ("litellm", "mcp")),
    Client("llm", "llm", ("llm",)),
    Client("aider", "aider", ("aider-chat",), lacks=("tools", "structured")),
    Client("open-webui", "Open WebUI", ("open-webui", "torch==2.13.0")),  # gigabytes
    Client("llama-index", "LlamaIndex", ("llama-index-llms-openai-like",)),
    Client("dspy", "DSPy", ("dspy",), lacks=("stream",)),
    Client("inspect-ai", "inspect_ai", ("inspect_ai", "openai"), lacks=("stream",)),
    Client("promptfoo", "promptfoo", ("promptfoo",), node=True, lacks=("stream",)),
    Client("java", "Java, the JDK's HTTP client", (), java=True),
    Client("lm-eval", "lm-evaluation-harness", ("lm_eval[api]",), lacks=("stream", "tools", "structured", "usage")),
)


class Result(TypedDict):
    """What the last run of a client gave."""

    version: str
    date: str
    cells: dict[str, str]
    """ok, or what went wrong, by `model feature`."""


def install(client: Client) -> str:
    """Install it once; its version, or why it cannot be had."""
    folder, marker = client.folder, client.folder / "version.txt"
    if client.java:
        if shutil.which("java") is None:
            return "not installed: needs a JDK (Debian: default-jdk-headless)"
        return _quietly(["java", "--version"], HERE).stdout.split()[1]
    if marker.exists():
        return marker.read_text()
    folder.mkdir(parents=True, exist_ok=True)
    main = client.packages[0].partition("[")[0]
    if client.node:
        (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
        done = _quietly(["npm", "install", "--no-audit", "--no-fund", *client.packages], folder)
    else:
        _quietly([sys.executable, "-m", "venv", str(folder)], folder)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        done = _quietly([*pip, *client.packages], folder)
    if done.returncode:
        return f"not installed: {(done.stderr or done.stdout).strip()[-200:]}"
    if client.node:
        version = json.loads((folder / "node_modules" / main / "package.json").read_text())["version"]
    else:
        shown = _quietly([str(folder / "bin" / "pip"), "show", main], folder).stdout
        version = next(line.split()[1] for line in shown.splitlines() if line.startswith("Version:"))
    marker.write_text(version)
    return str(version)


def _quietly(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


TOML = """
profile = "tiny"
calibration = ""
[providers.up]
kind = "openai"
base_url = "{url}/v1"
[providers.claude]
kind = "anthropic"
base_url = "{url}"
[models.quick]
provider = "up"
logprobs = true
n = true
[models.deep]
provider = "up"
logprobs = true
n = true
[models.claude-deep]
provider = "claude"
[routing]
estimator = "length"
[fast]
model = "quick"
[slow]
model = "deep"
[gateway]
port = 0
workers = 2
"""
LOCAL = ("claude-code", "codex")
"""Clients that are tried with local models too."""
LOCAL_TOML = """
profile = "local"
[models."qwen2.5-coder-0.5b"]
context = 8192
[models."qwen2.5-coder-1.5b"]
context = 8192
[fast]
timeout_s = 1200
[slow]
timeout_s = 1200
[limits]
deadline_s = 2400
[gateway]
port = 0
"""


@contextmanager
def gateway(work: Path, local: bool, toml: str = TOML) -> Iterator[tuple[str, Upstream | None]]:
    """`odar serve` as a user starts it, in front of the scripted server or with local models; address and server."""
    with nullcontext() if local else scripted_upstream() as upstream:
        (work / "odar.toml").write_text(toml.format(url=upstream.url) if upstream else LOCAL_TOML)
        environment = os.environ | {"ODAR_STORE_URL": str(work / "odar.db"), "HOME": str(work)}
        environment |= {"XDG_CACHE_HOME": str(CACHE.parents[1])}  # which holds the weights
        command = [str(Path(sys.executable).with_name("odar")), "serve"]
        log = work / "gateway.log"
        with log.open("w") as out:
            server = subprocess.Popen(command, cwd=work, env=environment, stderr=out)
            try:
                yield _address(log, server), upstream
            finally:
                server.terminate()
                try:
                    server.wait(60)
                except subprocess.TimeoutExpired:  # it waits for requests of clients that failed
                    server.kill()


def _address(log: Path, server: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + 600
    while time.monotonic() < until and server.poll() is None:
        lines = log.read_text().splitlines()
        if any("ready after" in line for line in lines):
            return next(line.split()[3] for line in lines if "listening on http" in line)
        time.sleep(0.2)
    raise SystemExit(f"odar serve did not start:\n{log.read_text()}")


def run(client: Client, url: str, work: Path) -> dict[str, str]:
    """One client's features with each model."""
    from clients.command_line import COMMANDS

    work.mkdir(parents=True, exist_ok=True)
    if client.name in COMMANDS:
        return {
            f"{model} {feature}": _outcome(program)
            for model in MODELS
            for feature, program in COMMANDS[client.name](client.folder, work / model, url, model).items()
        }
    arguments = [client.name, *MODELS]
    if client.java:
        command, cwd = ["java", str(HERE / "JavaClient.java")], work
        arguments = [*MODELS]
    elif client.node:
        shutil.copy(HERE / "programs.mjs", client.folder)
        command, cwd = ["node", "programs.mjs"], client.folder
    else:
        command, cwd = [str(client.folder / "bin" / "python"), "-P", str(HERE / "programs.py")], work
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        env=clean | {"HOME": str(work), "ODAR_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"feature"')]
    crashed = f"ended with {done.returncode}: {done.stderr.strip()[-300:]}" if done.returncode else "was not run"
    cells = {f"{model} {feature}": crashed for model in MODELS for feature in FEATURES}
    return cells | {f"{line['model']} {line['feature']}": line["result"] for line in lines}


def _outcome(program: Callable[[], object]) -> str:
    try:
        program()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:400]
    return "ok"


def run_local(client: Client, url: str, work: Path) -> dict[str, str]:
    """Chat and stream with the pair of local models: how long each took, or what went wrong."""
    from clients.command_line import COMMANDS

    features = COMMANDS[client.name](client.folder, work, url, "odar", short=True)
    cells: dict[str, str] = {}
    for feature in ("chat", "stream"):
        started = time.monotonic()
        outcome = _outcome(features[feature])
        cells[feature] = f"{time.monotonic() - started:.0f} s" if outcome == "ok" else outcome
        click.echo(f"{client.name:18} {feature}: {cells[feature]}")
    return cells


def unfinished(result: Result) -> list[str]:
    """The cells of a run with local models that hold no time."""
    return [name for name, cell in result["cells"].items() if not re.fullmatch(r"\d+ s", cell)]


def failing(client: Client, result: Result) -> list[str]:
    """The cells that must be green and are not, as `model feature`."""
    cells = [f"{model} {feature}" for model in MODELS for feature in FEATURES if feature not in client.lacks]
    return [cell for cell in cells if result["cells"].get(cell, "was not run") != "ok"]


def table(results: Mapping[str, Result]) -> str:
    """The table in Markdown: a row a client, a cell a feature, with the models that fail named in it."""
    lines = [f"| client | version | {' | '.join(FEATURES)} | run on |", f"|---|---|{'---|' * len(FEATURES)}---|"]
    for client in CLIENTS:
        if (result := results.get(client.name)) is None:
            continue
        bad = failing(client, result)
        row = []
        for feature in FEATURES:
            models = [cell.split()[0] for cell in bad if cell.endswith(f" {feature}")]
            row.append(f"**fails: {', '.join(models)}**" if models else "yes")
            if feature in client.lacks:
                row[-1] = NOT_THERE
        lines.append(f"| {client.title} | {result['version']} | {' | '.join(row)} | {result['date']} |")
    return "\n".join(lines)


PAGE = """# Clients

What real clients do through `odar serve`, each in its own environment, against a scripted model server. A cell says
yes where the feature works with each of the models {models}: the adaptive one, the one that always asks all agents, a
named model behind chat completions, and one behind Anthropic's API. n/a: the client has no such feature.

{table}

- chat: a question, a whole answer. stream: more than one piece, in order.
- tools: the client's tool is called, runs, and its result is in the answer. Claude Code and Codex read a file with
  their own shell tool.
- structured: an answer that fits a JSON schema. usage: the tokens that the client reports are above zero.

{routes}{first}{local}{left_out}Made by `make test-clients`, last on {date}, with {python} on {system}. How to set up each client:
[Agents and frameworks](../guides/agents.md).
"""


LOCAL_TABLE = """## With the local pair

The same with the models of profile `local` behind `odar`, with short instructions and a context of 8,192 tokens
([how to set it up](../guides/agents.md#local-models)). A cell says how long the client took, its start included, on
two cores that other processes were using too.

| client | version | chat | stream | run on |
|---|---|---|---|---|
{rows}

"""


def local_table(local: Mapping[str, Result]) -> str:
    """What the coding agents did with local models; empty if they were not run."""
    rows = [
        f"| {client.title} | {found['version']} | {found['cells']['chat']} | {found['cells']['stream']} | {found['date']} |"
        for client in CLIENTS
        if (found := local.get(client.name))
    ]
    return LOCAL_TABLE.format(rows="\n".join(rows)) if rows else ""


FIRST_EVENT = """## First visible event

From the request to the first event that a client displays (reasoning, progress or text), and to the first text of the answer, while each
model takes {delay:g} s to begin. On the Simple path nothing is shown before the model's own first token. Requests to `/v1/messages` ask for
thinking; without it nothing can be shown before the answer.

{table}

"""


ROUTES = """## Where the requests of coding agents go

Coding agents wrap what the user says in reminders, environment and tool lists; [difficulty and kind](../concepts/cascade.md#one-call-is-enough) come
from the user's own words. `deep` is ten times as expensive as `quick`.

{table}

"""


def page(results: Mapping[str, Result], local: Mapping[str, Result]) -> str:
    """The page of the documentation."""
    times = CACHE / "first_event.md"
    routed = CACHE / "routes.md"
    missing = [client.title for client in CLIENTS if client.name not in results]
    return PAGE.format(
        table=table(results),
        models=", ".join(f"`{model}`" for model in MODELS),
        routes=ROUTES.format(table=routed.read_text()) if routed.exists() else "",
        local=local_table(local),
        first=FIRST_EVENT.format(delay=first_event.DELAY_S, table=times.read_text()) if times.exists() else "",
        left_out=f"Not run: {'; '.join(missing)}.\n\n" if missing else "",
        date=max(result["date"] for result in results.values()),
        python=f"Python {platform.python_version()}",
        system=f"{platform.system()} {platform.machine()}",
    )


class _Kept:
    """The last result of each client, in a file: a long run can be made in parts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.results: dict[str, Result] = json.loads(file.read_text()) if file.exists() else {}

    def put(self, name: str, result: Result) -> None:
        """Keep a result."""
        self.results[name] = result
        self._file.write_text(json.dumps(self.results, indent=1))


def main() -> int:
    """Install, run, print the table; 1 if a cell fails."""
    parser = argparse.ArgumentParser(prog="python -m clients", description=(__doc__ or "").partition("\n")[0])
    names = [client.name for client in CLIENTS]
    parser.add_argument("client", nargs="*", choices=[*names, []], help="Clients to run. Default: all.")
    parser.add_argument(
        "--out", type=Path, help="Write the page with all kept results here, if all cells are green."
    )
    parser.add_argument("--local", action="store_true", help="Coding agents with local models: chat and stream.")
    options = parser.parse_args()
    possible = [client for client in CLIENTS if not options.local or client.name in LOCAL]
    chosen = [client for client in possible if not options.client or client.name in options.client]
    CACHE.mkdir(parents=True, exist_ok=True)
    kept, kept_local = _Kept(CACHE / "results.json"), _Kept(CACHE / "local.json")
    attempt = run_local if options.local else run
    # Not under /tmp, where Codex refuses to work.
    with (
        tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as folder,
        gateway(Path(folder), options.local) as (url, upstream),
    ):
        for client in chosen:
            version, started = install(client), time.monotonic()
            cells = attempt(client, url, Path(folder) / client.name)
            result = Result(version=version, date=str(datetime.now(UTC).date()), cells=cells)
            (kept_local if options.local else kept).put(client.name, result)
            bad = unfinished(result) if options.local else failing(client, result)
            click.echo(f"{client.name:18} {time.monotonic() - started:5.0f} s  {'ok' if not bad else ''}")
            for cell in bad:
                click.echo(f"  {cell}: {cells.get(cell, 'was not run')}")
        if upstream is not None:
            upstream.delay_s = first_event.DELAY_S
            (CACHE / "first_event.md").write_text(first_event.table(first_event.measure(url)))
    if not options.local and set(routes.ASK) <= {client.name for client in chosen}:
        with (
            tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as folder,
            gateway(Path(folder), False, routes.TOML) as (url, _),
        ):
            (CACHE / "routes.md").write_text(routes.table(CACHE, Path(folder), url))
    results, local = kept.results, kept_local.results
    click.echo(local_table(local) if options.local else f"\n{table(results)}")
    bad = {client.name: failing(client, results[client.name]) for client in CLIENTS if client.name in results}
    bad_local = {name: unfinished(result) for name, result in local.items()}
    if options.out and results and not any(bad.values()) and not any(bad_local.values()):
        options.out.write_text(page(results, local))
    return 1 if any((bad_local if options.local else bad).get(client.name) for client in chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
