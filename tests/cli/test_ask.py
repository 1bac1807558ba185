from __future__ import annotations

import json
import re
import sys

import pytest

from odar.errors import ProviderError
from support.scripted import completion


def test_the_text_of_the_answer_is_on_standard_output(odar, provider):
    result = odar("ask", "--path", "medium", "What is 2 + 2?")
    assert (result.code, result.out) == (0, "Judgment: CORRECT\nAnswer: 4\n")
    assert odar("ask", "--short", "What is 2 + 2?").out == "4\n"


def test_a_terminal_shows_the_text_once(odar, provider, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for path in ("simple", "medium", "hard"):
        assert odar("ask", "--path", path, "What is 2 + 2?").out.count("Answer: 4") == 1
        assert odar("ask", "--path", path, "--short", "What is 2 + 2?").out == "4\n"


def test_the_question_can_come_from_standard_input_or_a_file(odar, provider, tmp_path):
    assert odar("ask", "--short", "-", stdin=b"What is 2 + 2?").out == "4\n"
    assert odar("ask", "--short", stdin=b"What is 2 + 2?").out == "4\n"
    (tmp_path / "q.txt").write_text("What is 2 + 2?")
    assert odar("ask", "--short", "--file", "q.txt").out == "4\n"
    assert all("What is 2 + 2?" in request.messages[-1].text for request in provider.requests)


def test_json_is_the_document_of_the_trace(odar, provider):
    result = odar("ask", "--json", "--path", "hard", "--seed", "7", "What is 2 + 2?")
    body = json.loads(result.out)
    assert (body["answer"]["final"], body["path"], body["degradations"]) == ("4", "hard", [])
    assert (body["spend"]["calls"], body["spend"]["cost_usd"]) == (6, pytest.approx((10 * 1 + 5 * 2) * 2 / 1e6))
    assert [decision["stage"] for decision in body["decisions"]] == ["fast+slow*5", None]
    assert [candidate["agent"] for candidate in body["candidates"]] == ["fast", *["slow"] * 5]
    assert all(candidate["energy"]["free_energy"] > 0 for candidate in body["candidates"])
    assert body["baseline_usd"] == pytest.approx((10 * 1 + 1 * 2) / 1e6), "one of five samples"
    assert all(request.sampling.seed == 7 for request in provider.requests)
    assert result.err == ""
    stored = json.loads(odar("traces", "show", body["id"], "--json").out)["document"]
    assert stored.keys() == body.keys()


def test_the_dial_and_the_models_of_the_agents_are_options(odar, provider, tmp_path):
    second = '[models.other]\nprovider = "script"\nprice = { input = 1, output = 2 }\n'
    (tmp_path / "odar.toml").write_text((tmp_path / "odar.toml").read_text() + second)
    result = odar("ask", "--json", "--second", "other", "--dial", "3", "What is 2 + 2?")
    plan = json.loads(result.out)["plan"]
    assert plan["dial"] == "3 points"
    assert plan["assignment"]["models"] == {"fast": "m", "second": "other", "slow": "m"}
    wrong = odar("ask", "--dial", "best", "What is 2 + 2?")
    assert (wrong.code, "dial 'best' is neither one of economy, balanced, quality" in wrong.err) == (2, True)


def test_a_dry_run_makes_no_call_and_leaves_no_trace(odar, provider):
    result = odar("ask", "--dry-run", "--path", "hard", "What is 2 + 2?")
    assert (result.code, result.out.split()[:2]) == (0, ["first", "fast+slow*5"])
    assert "one slow call $0.0" in result.out
    step = json.loads(odar("ask", "--dry-run", "--json", "What is 2 + 2?").out)
    assert (step["action"], step["ask"][0]["model"]) == ("ask", "m")
    assert provider.requests == []
    assert json.loads(odar("traces", "--json").out)["traces"] == []


def test_an_unknown_cost_is_null(odar, provider, tmp_path):
    toml = (tmp_path / "odar.toml").read_text().replace("price =", "# price =")
    (tmp_path / "odar.toml").write_text(toml)
    body = json.loads(odar("ask", "--json", "What is 2 + 2?").out)
    assert (body["spend"]["cost_usd"], body["baseline_usd"]) == (None, None)
    assert "unknown: set the price of [models." in odar("ask", "--explain", "What is 2 + 2?").err


def test_explain_fits_80_columns(odar, provider):
    result = odar("ask", "--short", "--explain", "--verbose", "--path", "hard", "What is 2 + 2?")
    assert result.out == "4\n"
    assert "fast+slow*5  4 (6×) · all 6 agree" in result.err
    for name in ("difficulty", "path", "calls", "tokens", "cost", "trace"):
        assert f"\n{name} " in result.err
    assert result.err.count("slow solve") == 5
    assert max(map(len, result.err.splitlines())) <= 80
    assert "\x1b" not in result.err


def test_explain_survives_markup_and_very_long_answers(odar, provider):
    provider.script = lambda request, index: [completion("Answer: [/bold] [red]" + "x" * 500)] * request.n
    result = odar("ask", "--verbose", "--path", "hard", "What?")
    assert result.code == 0
    assert "[/bold] [red]" in result.err
    assert max(map(len, result.err.splitlines())) <= 80
    rows = [line for line in result.err.splitlines() if "slow solve" in line]
    assert len(rows) == 5
    assert all(len(re.findall(r"\d\.\d{3}", row)) >= 3 for row in rows)  # the figures are never cut
    assert sum(line.startswith("* ") for line in result.err.splitlines()) == 1


def test_a_degraded_answer_is_marked(odar, provider):
    def failing(request, index):
        return [completion("Answer: 4")] if index == 0 else ProviderError("overloaded", status=529)

    provider.script = failing
    result = odar("ask", "--path", "medium", "What is 2 + 2?")
    assert (result.code, result.out) == (0, "Answer: 4\n")
    assert "odar: degraded: slow agent: overloaded" in result.err


def test_named_models_are_not_announced(odar, provider):
    assert "profile" not in odar("ask", "What is 2 + 2?").err
    provider_file = ["--set", "providers.script.kind=scripted", "--set", "models.m.provider=script"]
    sets = [*provider_file, "--fast", "m", "--slow", "m", "--set", "prompts=paper"]
    result = odar("ask", "--config", "/dev/null", *sets, "What is 2 + 2?")
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["ask", ""], None, "the question is empty"),
        (["ask", "-"], b"", "the question is empty"),
        (["ask"], None, "nothing to answer; try: odar ask"),
        (["ask", "-"], b"a\0b", "NUL character at position 1"),
        (["ask", "-"], b"\xff\xfe", "standard input is not UTF-8 text: byte 0 is 0xff"),
        (["ask", "x\udc80"], None, "unpaired surrogate"),
        (["ask", "--file", "none.txt"], None, "file 'none.txt' cannot be read: No such file or directory"),
        (["ask", "--file", "odar.toml", "also"], None, "give a question or --file, not both"),
        (
            ["ask", "--image", "none.png", "What?"],
            None,
            "image 'none.png' cannot be read: No such file or directory",
        ),
        (["ask", "--image", "odar.toml", "What?"], None, "is not a PNG, JPEG, GIF or WebP file"),
        (["ask", "--set", "fast.model=nope", "What?"], None, "unknown model 'nope'"),
        (["ask", "--profile", "paper", "--config", "/dev/null", "What?"], None, "needs a key: set OPENAI_API_KEY"),
    ],
)
def test_invalid_input_is_a_one_line_error(odar, provider, arguments, stdin, message):
    result = odar(*arguments, stdin=stdin)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert result.out == ""


def test_a_question_beyond_the_context_is_rejected(odar, provider):
    result = odar("ask", "--set", "models.m.context=8192", "-", stdin=b"x" * 2**20)
    assert result.code == 2
    assert "1,048,576 characters cannot fit the context of m, 8,192 tokens" in result.err
