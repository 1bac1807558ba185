"""Four explanations for docs/guides/traces.md: agreement, a hard question, slow asked first, and a tool call.

    python scripts/docsite/explanations.py [--write]

A stub server gives the replies below in OpenAI's protocol, with log-probabilities, so only the models are simulated: a cheap one, a
cheap one of another family, and a strong one that costs five times as much. The rest is `odar ask --explain`, and
for the tool call `odar.ask`. Without --write the page goes to standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from odar.cli.ask import command
from odar.cli.explain import print_explanation
from odar.config import load_settings
from odar.conversation import ChatParameters, Message, Tool
from odar.engine import Odar
from odar.types import Query

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "traces.md"
BEGIN = "<!-- EXPLANATIONS: written by scripts/docsite/explanations.py -->"
END = "<!-- END EXPLANATIONS -->"
SETTINGS = """
[providers.one]
kind = "openai"
base_url = "{url}/v1"
cheap = "quick"
strong = "deep"
[providers.two]
kind = "openai"
base_url = "{url}/v1"
cheap = "other"
strong = "deep"
[models.quick]
provider = "one"
family = "one"
logprobs = true
price = {{ input = 0.1, output = 0.4 }}
[models.other]
provider = "two"
family = "two"
logprobs = true
price = {{ input = 0.1, output = 0.4 }}
[models.deep]
provider = "one"
family = "one"
logprobs = true
price = {{ input = 0.5, output = 2 }}
[fast]
model = "quick"
[second]
model = "other"
[slow]
model = "deep"
"""
AGREE = "How many minutes are there in a day and a half?"
DIFFER = "How many prime numbers are there between 100 and 150?"
SLOW_FIRST = "Prove that every group of order 15 is cyclic, and determine how many generators such a group has."
TOOL = "Will I need an umbrella in Bergen tomorrow?"
REPLIES = {
    AGREE: {
        "quick": "A day has 1440 minutes, half a day 720.\nAnswer: 2160",
        "other": "36 hours of 60 minutes each.\nAnswer: 2160",
    },
    DIFFER: {
        "quick": "101, 103, 107, 109, 113, 127, 131, 137 and 139.\nAnswer: 9",
        "other": "101, 103, 107, 109, 113, 119, 127, 131, 137, 139 and 149.\nAnswer: 11",
        "deep": "101, 103, 107, 109, 113, 127, 131, 137, 139 and 149.\nAnswer: 10",
    },
    SLOW_FIRST: {
        "deep": "By Sylow, the subgroups of order 3 and 5 are normal and meet in 1, so the group is their product, which is cyclic "
        "of order 15. It has φ(15) = **8** generators."
    },
}


class Handler(BaseHTTPRequestHandler):
    """The chat completions of three models."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        question = body["messages"][-1]["content"]
        message: dict[str, Any] = {"role": "assistant", "content": None}
        tokens: list[dict[str, Any]] = []
        if question == TOOL:
            call = {"name": "forecast", "arguments": '{"place": "Bergen"}'}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": call}]
        else:
            message["content"] = REPLIES[question][body["model"]]
            parts = re.findall(r"\s*\w+|\s*\W", message["content"])
            sure = -0.35 if question == DIFFER else -0.02
            tokens = [{"token": part, "logprob": sure, "bytes": None, "top_logprobs": []} for part in parts]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if question == TOOL else "stop"}
        choice["logprobs"] = {"content": tokens}
        prompt = sum(len(turn["content"]) // 4 + 4 for turn in body["messages"])
        usage = {"prompt_tokens": prompt, "completion_tokens": len(tokens) or 12}
        reply = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def explanations() -> dict[str, str]:
    """What each of the four questions prints, by a title."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    titles = {AGREE: "fast and second agree", DIFFER: "fast and second differ", SLOW_FIRST: "slow is asked first"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "odar.toml")
            file.write_text(SETTINGS.format(url=f"http://127.0.0.1:{server.server_address[1]}"))
            found = {}
            for question, title in titles.items():
                options = ["--config", str(file), "--explain", question]
                told = CliRunner().invoke(command, options, env={"ODAR_STORE_ENABLED": "false", "COLUMNS": "80"})
                if told.exit_code:
                    raise SystemExit(told.output)
                found[title] = f'$ odar ask --explain "{question}"\n{told.output}'
            with Odar(load_settings(config=file)) as odar:
                found["fast and second make the same tool call"] = with_tool(odar)
    finally:
        server.shutdown()
        server.server_close()
    return {title: stable(text) for title, text in found.items()}


def with_tool(odar: Odar) -> str:
    """The explanation of a question with a tool, which the command cannot give."""
    place = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
    parameters = ChatParameters(tools=(Tool("forecast", "Weather of tomorrow.", place),))
    query = Query.from_messages((Message("user", TOOL),), parameters)
    answer = odar.ask(query, dial="quality")
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        print_explanation(answer, query, odar.settings.profile_reason)
    return f'>>> odar.ask("{TOOL}", with the tool "forecast", dial="quality")\n{told.getvalue()}'


def stable(text: str) -> str:
    """The text without what differs from run to run."""
    text = re.sub(r"(?m)^(time|trace|profile)  .*$\n?", "", text)
    return re.sub(r"(?m) +$|^odar: .*$\n?", "", text).rstrip()


def write_page() -> None:
    """Print the part of the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    write = parser.parse_args().write
    blocks = [
        f"**{title[0].upper()}{title[1:]}:**\n\n```text\n{text}\n```" for title, text in explanations().items()
    ]
    part = "\n\n".join([BEGIN, *blocks, END])
    if not write:
        print(part)
        return
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + part + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    write_page()
