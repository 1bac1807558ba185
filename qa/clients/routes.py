"""Where the requests of coding agents go: the difficulty that ODAR sees, and the agent that it asks (SPEC 9.3b).

Claude Code and Codex wrap the user's words in reminders, environment and tool lists. Each task is one run of the real
client in front of a scripted server whose slow model is ten times as expensive as the fast one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clients.command_line import ask_claude_code, ask_codex

TASKS = {
    "hi": "hi",
    "typo fix": "Fix the typo in note.txt: pomegranate is spelled wrong.",
    "refactoring": (
        "Refactor the order pipeline: split OrderService into validation, pricing and persistence, move the retry logic "
        "into one decorator, keep the public API backwards compatible, and prove with property tests that totals, "
        "discounts and rounding do not change for any sequence of partial refunds under concurrent updates."
    ),
}
TOML = """
[providers.up]
kind = "openai"
base_url = "{url}/v1"
[models.quick]
provider = "up"
price = {{ input = 0.5, output = 2.0 }}
[models.deep]
provider = "up"
price = {{ input = 5.0, output = 20.0 }}
[fast]
model = "quick"
[slow]
model = "deep"
[store]
content = true
[gateway]
port = 0
"""
ASK: dict[str, tuple[str, Callable[..., Callable[..., Any]]]] = {
    "claude-code": ("Claude Code", ask_claude_code),
    "codex": ("Codex CLI", ask_codex),
}


def table(cache: Path, work: Path, url: str) -> str:
    """Run every task with each agent; the table in Markdown."""
    lines = ["| request | from | d(x) | kind | calls | asked |", "|---|---|---|---|---|---|"]
    for task, prompt in TASKS.items():
        for name, (title, asker) in ASK.items():
            asker(cache / name, work / f"{name} {task}", url, "odar")(prompt)
            found = _last_trace(work, prompt)
            models = ", ".join(dict.fromkeys(call["model"] for call in found["calls"]))
            plan = found["plan"]
            cells = (
                task,
                title,
                f"{plan['estimate']['difficulty']:.2f}",
                plan["kind"],
                len(found["calls"]),
                models,
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _last_trace(work: Path, prompt: str) -> dict[str, Any]:
    """The document of the newest trace; agents may send further small requests of their own, which come first."""
    for _ in range(20):  # a trace is written after its answer
        for each in _odar(work, "traces", "--json", "--limit", "20")["traces"]:
            found: dict[str, Any] = _odar(work, "traces", "show", each["id"], "--json")["document"]
            if prompt in json.dumps(found["query"], ensure_ascii=False):
                return found
        time.sleep(0.5)
    raise SystemExit(f"no trace of {prompt!r}")


def _odar(work: Path, *arguments: str) -> Any:
    command = [str(Path(sys.executable).with_name("odar")), *arguments]
    environment = os.environ | {"ODAR_STORE_URL": str(work / "odar.db")}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
