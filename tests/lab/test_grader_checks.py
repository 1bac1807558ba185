from __future__ import annotations

import sys

import pytest

from odar.config import load_settings
from odar.errors import GradedElsewhere, InputError
from odar.lab.benchmarks.base import BENCHMARKS, NAMES
from odar.lab.graders import mathematics
from odar.lab.recording.schema import Task
from odar.lab.selection import check_grader, with_fitting_prompts
from odar.types import Query, Stage
from support.benchmarks import sums
from support.engine import engine


def settings(**more):
    return load_settings("tiny", environ={}, **more)


@pytest.mark.parametrize(
    ("name", "gold", "why"),
    [
        ("swe_bench", "a__b-1", "Run swebench.harness.run_evaluation .*odar eval import --answers FAST.RUN.json"),
        ("imo_2025", {"problem": "x", "checklist": ["y"]}, "with_verifier.*odar eval import --answers FAST.jsonl"),
    ],
)
def test_a_missing_grader_is_reported_before_any_call(name, gold, why):
    with pytest.raises(GradedElsewhere, match=why):
        check_grader(BENCHMARKS[name], [Task("1", Query("x"), gold)])


def test_a_missing_library_is_reported(monkeypatch):
    worker = mathematics.Worker()
    monkeypatch.setattr(mathematics, "_WORKER", worker)
    monkeypatch.setattr(sys, "executable", "/bin/true")  # a worker that is never ready, as without math-verify
    with pytest.raises(InputError, match=r"scoring math: .*pip install .*\[evals\]'"):
        check_grader(BENCHMARKS["math"], [Task("1", Query("x"), "\\frac{1}{2}")])


def test_one_task_of_every_stratum_is_tried():
    tried = []

    def score(task, response, answer):
        tried.append((task.stratum, response, answer))
        return 0.0

    watched = sums(9, score=score)
    check_grader(watched, list(watched.load()))
    assert sorted(tried) == [("other", "x + 1", "x + 1"), ("third", "x + 1", "x + 1")]


def test_only_benchmarks_that_score_the_form_change_the_prompts():
    ifeval, gsm8k, livebench = (BENCHMARKS[name] for name in ("ifeval", "gsm8k", "livebench"))
    assert with_fitting_prompts(settings(), [gsm8k]) == settings()
    assert with_fitting_prompts(settings(), [ifeval, livebench]).prompts == "chat"
    assert with_fitting_prompts(settings(), [BENCHMARKS["ifeval+masking"]]).prompts == "chat"
    with pytest.raises(
        InputError, match=r"ifeval is asked with prompts = 'chat'.*gsm8k with 'tiny'.*two recordings"
    ):
        with_fitting_prompts(settings(), [gsm8k, ifeval])
    assert {name for name in NAMES if BENCHMARKS[name].form_is_scored} == {"ifeval", "livebench"}


def test_custom_prompts_without_a_scaffold_are_kept(tmp_path):
    for step in ("answer", "verify", "solve"):
        (tmp_path / f"{step}.toml").write_text('user = "Be kind. {query}"')
    own = settings(prompts=str(tmp_path))
    assert with_fitting_prompts(own, [BENCHMARKS["ifeval"]]) is own
    assert with_fitting_prompts(own, [BENCHMARKS["ifeval"], BENCHMARKS["gsm8k"]]) is own


async def test_ifeval_is_scored_on_the_plain_answer():
    """The scaffold of the default prompts would break "all in lower case" in every answer."""
    odar, fast, _ = engine(prompts="chat")
    query = Query("Say hello, all in lower case.")
    team = odar.agents.team(query, odar.agents.ledger())
    await team.ask(Stage.parse("fast"))
    assert [message.text for message in fast.requests[0].messages] == [query.text]
    gold = {"instructions": ["change_case:english_lowercase"], "arguments": [{}]}
    score = BENCHMARKS["ifeval"].score
    assert score(Task("1", query, gold), "hello, dear friend of mine, how are you today?", "") == 1
    assert score(Task("1", query, gold), "hello, dear friend of mine, how are you today?\nAnswer: hello", "") == 0


def test_a_set_marked_plain_uses_the_chat_prompts():
    assert with_fitting_prompts(settings(), [sums()]) == settings()
    assert with_fitting_prompts(settings(), [sums(form_is_scored=True)]).prompts == "chat"
