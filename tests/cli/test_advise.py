from __future__ import annotations

import json
import re

import pytest

from support.scripted import completion

TOML = """
profile = "tiny"
[providers.script]
kind = "scripted"
[models.mini]
provider = "script"
price = { input = 0.1, output = 0.4 }
[models.lite]
provider = "script"
family = "lite"
price = { input = 0.1, output = 0.4 }
[models.big]
provider = "script"
price = { input = 2, output = 8 }
[fast]
model = "mini"
alternatives = ["lite"]
[slow]
model = "big"
"""


def say(request, index):
    """The slow model is right; the cheap ones are, where the first number is not divisible by 6 or 7."""
    numbers = [int(each) for each in re.findall(r"\d+", request.messages[-1].text)]
    error = {"mini": 5 * (numbers[0] % 6 == 0), "lite": 11 * (numbers[0] % 7 == 0)}.get(request.model, 0)
    return [completion(f"Answer: {sum(numbers) + error}", -0.2)] * request.n


@pytest.fixture
def log(tmp_path, provider):
    provider.script = say
    (tmp_path / "odar.toml").write_text(TOML)
    rows = [
        {"model": "x", "messages": [{"role": "user", "content": f"What is {i} + {i % 7}?"}]} for i in range(1, 91)
    ]
    rows += [{"messages": [{"role": "user", "content": f"Write a poem about {i} cats."}]} for i in range(9)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    return tmp_path / "log.jsonl"


def test_a_log_is_answered_within_a_budget_and_ends_with_one_sentence(odar, log, provider, tmp_path):
    refused = odar("advise", "log.jsonl", stdin=b"")
    assert (refused.code, provider.requests) == (2, [])
    assert (
        "90 of 90 questions to answer" in refused.err and "about $0." in refused.err and "at most $" in refused.err
    )
    result = odar("advise", "log.jsonl", "--budget", "5", "--html", "a.html")
    assert result.code == 0, result.err
    assert "9 without a comparable answer, 1 row skipped (a line is not JSON)" in result.err
    assert "same answer as slow" in result.out and "9 requests without a comparable answer" in result.out
    assert re.search(r"(Use the cascade|No cascade pays here)", result.out)
    assert "as big itself when asked" in result.out.replace("\n", " ") or "No cascade" in result.out
    assert 'model = "big"' in result.out
    asked = len(provider.requests)
    again = odar("advise", "log.jsonl", "--json")
    assert (again.code, len(provider.requests)) == (0, asked)  # nothing is asked twice
    body = json.loads(again.out)
    slow = next(row for row in body["choices"] if row["choice"] == "slow")
    assert (body["questions"], slow["score"]["value"]) == (90, 1.0)
    assert 10 < body["asked_twice"] < 60 and body["one_call"]["requests"] == 9
    assert asked == 2 * 90 + body["asked_twice"]
    page = (tmp_path / "a.html").read_text()
    assert page.count("<circle") == len(body["choices"])  # drawn without matplotlib, which is an extra
    assert "http://" not in page and "What is 1" not in page


def test_a_stopped_run_continues_and_a_small_budget_uses_what_there_is(odar, log, provider):
    calls = []

    def interrupted(request, index):
        calls.append(1)
        if len(calls) > 100:
            raise KeyboardInterrupt
        return say(request, index)

    provider.script = interrupted
    stopped = odar("advise", "log.jsonl", "--budget", "5")
    assert stopped.code == 130
    provider.script = say
    before = len(provider.requests)
    assert odar("advise", "log.jsonl", "--budget", "5").code == 0
    assert len(provider.requests) - before < 2 * 90 + 45 - 80
    other = ("advise", "log.jsonl", "--set", "slow.temperature=0.9")
    worst = float(re.search(r"at most \$([\d.]+)", odar(*other, stdin=b"").err)[1]) / 90
    short = odar(*other, "--budget", str(1.5 * worst + 0.006), "--json")
    assert (short.code, "does not cover" in short.err) == (4, True)
    assert 30 <= json.loads(short.out)["questions"] < 90


def test_the_best_second_of_the_configured_models_is_tried(odar, log, provider):
    body = json.loads(odar("advise", "log.jsonl", "--budget", "5", "--second", "auto", "--json").out)
    assert set(body["seconds"]) == {"lite", "none"}
    assert body["models"]["second"] == "lite" and body["seconds"]["lite"] > body["seconds"]["none"]


def test_one_budget_is_for_all_seconds_together(odar, log, provider):
    first = odar("advise", "log.jsonl", "--budget", "5")
    spent_usd = float(re.findall(r"\$([\d.]+) so far", first.err)[-1])
    provider.requests.clear()
    result = odar("advise", "log.jsonl", "--budget", f"{spent_usd + 1e-4:.6f}", "--second", "auto")
    assert result.code == 4 and "lite is left out" in result.err
    assert {request.model for request in provider.requests} <= {"lite"} and len(provider.requests) < 30
    assert "fast mini, slow big" in result.out  # what is known is still used


def test_a_table_and_a_recording_need_no_call(odar, provider, tmp_path):
    rows = [
        {"id": i, "question": f"What is {i} + 1?", "model": model, "answer": i + 1 + (i % wrong == 0), "cost": cost}
        for i in range(80)
        for model, wrong, cost in (("mini", 4, 0.1), ("lite", 5, 0.1), ("big", 50, 2.0))
    ]
    (tmp_path / "table.jsonl").write_text("\n".join(map(json.dumps, rows)))
    body = json.loads(odar("advise", "table.jsonl", "--json").out)
    assert body["models"] == {"fast": "mini", "second": "lite", "slow": "big"}
    assert (body["questions"], body["asked_twice"], body["nominal_prices"]) == (80, 0, False)
    assert odar("eval", "import", "--answers", "table.jsonl", "--out", "r.jsonl.gz").code == 0
    assert json.loads(odar("advise", "r.jsonl.gz", "--json").out)["choices"] == body["choices"]
    assert provider.requests == []
    fitted = json.loads((tmp_path / "advice.json").read_text())
    assert all(source["prompt_md5"] and source["accuracy"] for source in fitted["sources"])  # known when serving
    unknown = [{**row, "cost": None} for row in rows]
    (tmp_path / "unpriced.jsonl").write_text("\n".join(map(json.dumps, unknown)))
    refused = odar("advise", "unpriced.jsonl")
    assert (refused.code, "--price mini=IN,OUT" in refused.err) == (2, True)
    nominal = odar("advise", "unpriced.jsonl", "--fast", "mini", "--slow", "big")
    assert nominal.code == 0 and "the price of big is unknown; set it with --price big=IN,OUT" in nominal.err


def test_logs_without_comparable_requests_or_prices_are_refused(odar, log, provider, tmp_path):
    rows = [{"messages": [{"role": "user", "content": f"Write a poem about {i} cats."}]} for i in range(9)]
    (tmp_path / "open.jsonl").write_text("\n".join(map(json.dumps, rows)))
    refused = odar("advise", "open.jsonl", "--budget", "1")
    assert (refused.code, "no request has a comparable answer" in refused.err) == (2, True)
    (tmp_path / "odar.toml").write_text(TOML.replace("price = { input = 2, output = 8 }", ""))
    unpriced = odar("advise", "log.jsonl", "--budget", "1")
    assert (unpriced.code, 'set [models."big"] price to know what they cost' in unpriced.err) == (4, True)
    (tmp_path / "empty.jsonl").write_text("")
    assert (odar("advise", "empty.jsonl").code, provider.requests) == (2, [])
