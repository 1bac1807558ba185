"""Four explanations for docs/guides/traces.md: agreement, a hard question, slow asked first, and a tool call.

A stub server gives the replies below in OpenAI's protocol, with log-probabilities, so only the models are simulated: a cheap one, a
cheap one of another family, and a strong one that costs five times as much. The rest is `odar ask --explain`, and
for the tool call `odar.ask`.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.everyday import Stub
from click.testing import CliRunner

from docsite.markdown import ROOT
from odar.cli.ask import command
from odar.cli.explain import print_explanation
from odar.config import load_settings
from odar.conversation import ChatParameters, Message, Tool
from odar.engine import Odar
from odar.types import Query

PAGE = ROOT / "docs" / "guides" / "traces.md"
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


class ThreeModels(Stub):
    """The chat completions of three models."""

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
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
        named = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
        return {**named, "choices": [choice], "usage": usage}


def explanations() -> dict[str, str]:
    """What each of the four questions prints, by a title."""
    titles = {AGREE: "fast and second agree", DIFFER: "fast and second differ", SLOW_FIRST: "slow is asked first"}
    found = {}
    with ThreeModels() as stub, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "odar.toml")
        file.write_text(SETTINGS.format(url=stub.url))
        for question, title in titles.items():
            options = ["--config", str(file), "--explain", question]
            told = CliRunner().invoke(command, options, env={"ODAR_STORE_ENABLED": "false", "COLUMNS": "80"})
            if told.exit_code:
                raise SystemExit(told.output)
            found[title] = f'$ odar ask --explain "{question}"\n{told.output}'
        with Odar(load_settings(config=file)) as odar:
            found["fast and second make the same tool call"] = with_tool(odar)
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


def write_explanations() -> list[Path]:
    """Write the part of the page."""
    blocks = [
        f"**{title[0].upper()}{title[1:]}:**\n\n```text\n{text}\n```" for title, text in explanations().items()
    ]
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(before + "\n\n".join([BEGIN, *blocks, END]) + rest.partition(END)[2], "utf-8")
    return [PAGE]
