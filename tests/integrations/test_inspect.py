"""ODAR as a model of inspect_ai: real tasks, run by inspect_ai, through the engine, into its log.

inspect_ai is not part of the `dev` extra: where it is not installed these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed: pip install 'odar[inspect]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # inspect_ai's own

from inspect_ai import Task, eval  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentAudio,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ResponseSchema,
    get_model,
)
from inspect_ai.scorer import match  # noqa: E402
from inspect_ai.tool import ToolCall, ToolFunction, ToolInfo  # noqa: E402
from inspect_ai.util import JSONSchema  # noqa: E402

import odar.integrations.inspect  # noqa: E402, F401 - as its entry point does
from odar.errors import InputError, ProviderError, ProviderTimeout, UnknownName  # noqa: E402
from odar.integrations.inspect_model import _call, read_query  # noqa: E402
from odar.providers.pool import KINDS  # noqa: E402
from support.scripted import ScriptedProvider, completion  # noqa: E402

TOML = """
profile = "tiny"
calibration = ""
[providers.script]
kind = "scripted"
[models.m]
provider = "script"
logprobs = true
price = { input = 1, output = 2 }
[fast]
model = "m"
[slow]
model = "m"
"""
PNG = b"\x89PNG\r\n\x1a\n"


def script(request, index):
    (asked,) = (m.text for m in request.messages if m.text.startswith("What is"))
    return [completion(f"The answer is {asked.split()[2]}", -0.2)] * request.n


@pytest.fixture
def provider(tmp_path, monkeypatch):
    provider = ScriptedProvider(script, "script")
    KINDS.add("scripted", lambda name, settings, all_settings: provider)
    (tmp_path / "odar.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    return provider


def sums(count=2):
    return Task(
        dataset=[Sample(input=f"What is {i} + 0 ?", target=str(i)) for i in range(3, 3 + count)],
        scorer=match(location="end"),
    )


@pytest.mark.parametrize(("model", "calls"), [("simple", 1), ("medium", 2), ("hard", 6)])
def test_a_task_runs_through_the_engine_and_the_log_has_the_trace(provider, model, calls):
    (log,) = eval(sums(), model=f"odar/{model}", model_args={"seed": 7}, log_samples=True)
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    for sample in log.samples:
        trace = sample.output.metadata["odar"]
        assert (trace["path"], trace["calls"], len(trace["candidates"])) == (model, calls, calls)
        assert (trace["answer"], trace["text"]) == (sample.target, sample.output.completion)
        assert trace["trace_id"] == sample.output.response_id
        assert sample.output.usage.output_tokens == 5 * calls
        assert sample.output.usage.total_cost == pytest.approx(calls * 20e-6)
        assert sample.output.model == "m"
    assert log.stats.model_usage[f"odar/{model}"].input_tokens == 2 * 10 * calls
    on_disk = json.loads(_dump(log.location))
    assert on_disk["samples"][0]["output"]["metadata"]["odar"]["path"] == model


def _dump(location):
    command = [sys.executable, "-m", "inspect_ai", "log", "dump", location]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=120).stdout


async def test_choices_and_logprobs(provider):
    async with get_model("odar/simple", memoize=False) as model:
        config = GenerateConfig(num_choices=3, logprobs=True, temperature=0.9, stop_seqs=["\n"], seed=5)
        output = await model.generate("What is 4 + 0 ?", config=config)
    assert [choice.message.text for choice in output.choices] == ["The answer is 4"] * 3
    assert [p.logprob for p in output.choices[0].logprobs.content] == [-0.2] * 4
    sampling = provider.requests[0].sampling
    assert (sampling.temperature, sampling.stop, sampling.seed) == (0.9, ("\n",), 5)
    assert provider.closed


async def test_unknown_usage_is_not_zero(provider):
    from odar.types import Usage

    provider.usage = Usage()
    async with get_model("odar/simple", memoize=False) as model:
        output = await model.generate("What is 4 + 0 ?")
    assert output.usage is None
    assert output.metadata["odar"]["cost_usd"] is None


def test_a_whole_conversation_is_read(tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    tool = ToolInfo(name="look_up", description="Looks up.")
    query = read_query(
        [
            ChatMessageSystem(content="Be brief."),
            ChatMessageUser(content=[ContentText(text="Hello"), ContentImage(image=str(tmp_path / "a.png"))]),
            ChatMessageAssistant(
                content=[ContentReasoning(reasoning="hm"), ContentText(text="Wait")],
                tool_calls=[ToolCall("c1", "look_up", {"a": 1})],
            ),
            ChatMessageTool(content="found", tool_call_id="c1"),
        ],
        [tool],
        ToolFunction("look_up"),
        GenerateConfig(
            max_tokens=9,
            response_schema=ResponseSchema(name="r", json_schema=JSONSchema(type="object")),
            extra_body={"top_k": 5},
        ),
    )
    assert [turn.role for turn in query.turns] == ["system", "user", "assistant", "tool"]
    assert (query.text, query.images[0].data, query.images[0].media_type) == ("Hello", PNG, "image/png")
    assert (query.turns[2].text, str(query.turns[2].tool_calls[0])) == ("Wait", 'look_up({"a": 1})')
    options = query.options
    assert (options.tools[0].name, options.tool_choice, options.max_tokens) == ("look_up", ("tool", "look_up"), 9)
    assert options.format.schema["type"] == "object"
    assert options.extra == {"top_k": 5}


@pytest.mark.parametrize(("choice", "mode"), [("auto", "auto"), ("any", "required"), ("none", "none")])
def test_tool_choices_are_translated(choice, mode):
    tool = ToolInfo(name="t", description="d")
    assert (
        read_query([ChatMessageUser(content="x")], [tool], choice, GenerateConfig()).options.tool_choice.mode
        == mode
    )


def test_what_cannot_be_passed_on_is_refused():
    sound = ChatMessageUser(content=[ContentAudio(audio="a.wav", format="wav")])
    with pytest.raises(InputError, match="content of type audio"):
        read_query([sound], [], "auto", GenerateConfig())
    with pytest.raises(InputError, match="temperature"):
        read_query([ChatMessageUser(content="x")], [], "auto", GenerateConfig(temperature=7))


@pytest.mark.parametrize("arguments", ["{", "[]", "nonsense"])
def test_broken_arguments_of_a_tool_call_are_reported(arguments):
    assert "look_up cannot be read" in _call("1", "look_up", arguments).parse_error
    assert _call("1", "look_up", '{"a": 1}').arguments == {"a": 1}


def test_names_addresses_and_retries(provider):
    with pytest.raises(UnknownName, match="odar/hrad'; did you mean 'odar/hard'"):
        get_model("odar/hrad", memoize=False)
    with pytest.raises(InputError, match=r"odar\.toml"):
        get_model("odar/default", base_url="http://x", memoize=False)
    api = get_model("odar/default", memoize=False).api
    assert api.should_retry(ProviderTimeout("x", retryable=True))
    assert not api.should_retry(ProviderError("x"))
    assert not api.should_retry(ValueError("x"))
    assert (api.max_connections(), api.connection_key()) == (10, "odar")
    assert get_model("odar/default", profile="tiny", config=None, fast__model="smollm2-135m", memoize=False)


def test_the_command_finds_it_by_its_entry_point(provider, tmp_path):
    """`inspect eval` in a process of its own, with recorded replies."""
    reply = {"model": "m", "completions": [{"text": "The answer is 3"}], "usage": {"input": 9, "output": 4}}
    (tmp_path / "tape.jsonl").write_text("\n".join([json.dumps(reply)] * 2))
    toml = TOML.replace('kind = "scripted"', 'kind = "replay"\nrecordings = "tape.jsonl"')
    (tmp_path / "odar.toml").write_text(toml)
    (tmp_path / "task.py").write_text(
        "from inspect_ai import Task, task\nfrom inspect_ai.dataset import Sample\nfrom inspect_ai.scorer import match\n"
        "@task\ndef sums():\n"
        "    samples = [Sample(input=f'What is {i} + 2?', target=str(i + 2)) for i in (1, 5)]\n"
        "    return Task(dataset=samples, scorer=match(location='end'))\n"
    )
    command = [str(Path(sys.executable).parent / "inspect"), "eval", "task.py", "--model", "odar/simple"]
    command += ["--log-format", "json", "--log-dir", "logs", "--display", "none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tmp_path / "logs").glob("*.json")
    log = json.loads(file.read_text())
    assert (log["status"], log["results"]["scores"][0]["metrics"]["accuracy"]["value"]) == ("success", 0.5)
    assert [s["output"]["metadata"]["odar"]["path"] for s in log["samples"]] == ["simple", "simple"]
