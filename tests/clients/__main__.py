"""Real clients through `odar serve`: a table of what works, in front of a scripted model server.

    make test-clients                            every client, through odar, odar-hard and a named model
    make test-clients ONLY="codex claude-code"   some of them

Each client is installed from PyPI or npm into a folder of its own under the user's cache folder, once; nothing of
theirs gets into ODAR's environment. Ends with 1 if a cell fails. A client that cannot be installed fails too.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

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
    Client("llama-index", "LlamaIndex", ("llama-index-llms-openai-like",)),
    Client("dspy", "DSPy", ("dspy",), lacks=("stream",)),
    Client("inspect-ai", "inspect_ai", ("inspect_ai", "openai"), lacks=("stream",)),
    Client("promptfoo", "promptfoo", ("promptfoo",), node=True, lacks=("stream",)),
    Client("lm-eval", "lm-evaluation-harness", ("lm_eval[api]",), lacks=("stream", "tools", "structured", "usage")),
)
Cells = dict[tuple[str, str, str], str]
"""Results by client, model and feature."""


def install(client: Client) -> str:
    """Install it once; its version, or why it cannot be had."""
    folder, marker = client.folder, client.folder / "version.txt"
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
"""


@contextmanager
def gateway(work: Path) -> Iterator[str]:
    """`odar serve` in front of the scripted server, as a user starts it; its address."""
    from clients.upstream import scripted_upstream

    with scripted_upstream() as upstream:
        (work / "odar.toml").write_text(TOML.format(url=upstream.url))
        environment = os.environ | {"ODAR_STORE_URL": str(work / "odar.db"), "HOME": str(work)}
        command = [str(Path(sys.executable).with_name("odar")), "serve"]
        log = work / "gateway.log"
        with log.open("w") as out:
            server = subprocess.Popen(command, cwd=work, env=environment, stderr=out)
            try:
                yield _address(log, server)
            finally:
                server.terminate()
                server.wait(30)


def _address(log: Path, server: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + 120
    while time.monotonic() < until and server.poll() is None:
        found = [line.split()[3] for line in log.read_text().splitlines() if "listening on http" in line]
        if found:
            host, _, port = found[0].removeprefix("http://").partition(":")
            connection = http.client.HTTPConnection(host, int(port), timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return found[0]
        time.sleep(0.2)
    raise SystemExit(f"odar serve did not start:\n{log.read_text()}")


def run(client: Client, url: str, models: Sequence[str], work: Path) -> Cells:
    """One client's features with each model."""
    from clients.command_line import COMMANDS

    work.mkdir(parents=True, exist_ok=True)
    if client.name in COMMANDS:
        return {
            (client.name, model, feature): _outcome(program)
            for model in models
            for feature, program in COMMANDS[client.name](client.folder, work / model, url, model).items()
        }
    if client.node:
        shutil.copy(HERE / "programs.mjs", client.folder)
        command, cwd = ["node", "programs.mjs"], client.folder
    else:
        command, cwd = [str(client.folder / "bin" / "python"), "-P", str(HERE / "programs.py")], work
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, client.name, *models],
        cwd=cwd,
        env=clean | {"HOME": str(work), "ODAR_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"feature"')]
    crashed = f"ended with {done.returncode}: {done.stderr.strip()[-300:]}" if done.returncode else "was not run"
    cells = {(client.name, model, feature): crashed for model in models for feature in FEATURES}
    return cells | {(client.name, line["model"], line["feature"]): line["result"] for line in lines}


def _outcome(program: Callable[[], object]) -> str:
    try:
        program()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:400]
    return "ok"


def wanted(client: Client, models: Sequence[str]) -> list[tuple[str, str, str]]:
    """The cells that must be green."""
    return [
        (client.name, model, feature) for model in models for feature in FEATURES if feature not in client.lacks
    ]


def table(clients: Sequence[Client], models: Sequence[str], cells: Cells, versions: dict[str, str]) -> str:
    """The table in Markdown: a row a client, a cell a feature, with the models that fail named in it."""
    lines = [f"| client | version | {' | '.join(FEATURES)} |", f"|---|---|{'---|' * len(FEATURES)}"]
    for client in clients:
        row = []
        for feature in FEATURES:
            if feature in client.lacks:
                row.append(NOT_THERE)
                continue
            bad = [model for model in models if cells.get((client.name, model, feature)) != "ok"]
            row.append(f"**fails: {', '.join(bad)}**" if bad else "yes")
        lines.append(f"| {client.title} | {versions[client.name]} | {' | '.join(row)} |")
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

Made by `make test-clients` on {date} with {python} on {system}. How to set up each client:
[Agents and frameworks](../guides/agents.md).
"""


def main() -> int:
    """Install, run, print the table; 1 if a cell fails."""
    parser = argparse.ArgumentParser(prog="python -m clients", description=(__doc__ or "").partition("\n")[0])
    names = [client.name for client in CLIENTS]
    parser.add_argument("client", nargs="*", choices=[*names, []], help="Clients to run. Default: all.")
    parser.add_argument("--model", action="append", help="Model to ask, several times. Default: all four.")
    parser.add_argument("--out", type=Path, help="Write the page with the table here, if all cells are green.")
    options = parser.parse_args()
    chosen = [client for client in CLIENTS if not options.client or client.name in options.client]
    models = tuple(options.model or MODELS)
    cells: Cells = {}
    versions: dict[str, str] = {}
    CACHE.mkdir(parents=True, exist_ok=True)
    # Not under /tmp, where Codex refuses to work.
    with tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as folder, gateway(Path(folder)) as url:
        for client in chosen:
            versions[client.name] = install(client)
            started = time.monotonic()
            cells |= run(client, url, models, Path(folder) / client.name)
            bad = [cell for cell in wanted(client, models) if cells.get(cell) != "ok"]
            click.echo(f"{client.name:18} {time.monotonic() - started:5.0f} s  {'ok' if not bad else ''}")
            for cell in bad:
                click.echo(f"  {cell[1]} {cell[2]}: {cells.get(cell, 'was not run')}")
    shown = table(chosen, models, cells, versions)
    click.echo(f"\n{shown}")
    every = [cell for client in chosen for cell in wanted(client, models)]
    bad = [cell for cell in every if cells.get(cell) != "ok"]
    click.echo(f"\n{len(every) - len(bad)} of {len(every)} cells are green")
    if options.out and not bad:
        where = f"{platform.system()} {platform.machine()}"
        python = f"Python {platform.python_version()}"
        page = PAGE.format(
            table=shown,
            models=", ".join(f"`{m}`" for m in models),
            date=datetime.now(UTC).date(),
            python=python,
            system=where,
        )
        options.out.write_text(page)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
