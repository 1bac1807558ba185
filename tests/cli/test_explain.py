"""The output of `--explain` for any answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from odar.cli.explain import WIDTH, print_explanation
from odar.types import Candidate, Query, Step, Usage
from support.traces import make_answer


@pytest.fixture
def explain(capsys):
    """Return a function that returns the lines of the explanation and its facts by name."""

    def explain(answer):
        print_explanation(answer, Query("What is 2 + 2?"), "named by --profile")
        captured = capsys.readouterr()
        assert captured.out == ""
        lines = captured.err.splitlines()
        assert max(map(cell_len, lines)) <= WIDTH
        facts = [line.rstrip().split(None, 1) for line in lines if line[:1].isalpha()]
        return lines, {fact[0]: fact[1] for fact in facts if len(fact) > 1}

    return explain


def with_trace(answer, **changes):
    return replace(answer, trace=replace(answer.trace, **changes))


def test_every_reason_for_a_degraded_answer_has_its_line(explain):
    lines, _ = explain(make_answer(degradations=("slow agent: overloaded", "the deadline cut 2 samples off")))
    assert [line.rstrip().split(None, 1)[1] for line in lines if line.startswith("degraded")] == [
        "slow agent: overloaded",
        "the deadline cut 2 samples off",
    ]


def test_the_posterior_is_shown_if_there_is_one(explain):
    answer = make_answer()
    assert not any(line.startswith("posterior") for line in explain(answer)[0])
    looked = with_trace(answer, decision=replace(answer.trace.decision, posterior=0.8125))
    assert explain(looked)[1]["posterior"] == "0.812 after the fast answer"


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (Usage(1200, 0, 10, 0), "1,200 in, 10 out"),
        (Usage(20, 8, 10, 4), "20 in (8 cached), 10 out (4 reasoning)"),
        (Usage(None, None, None, None), "unknown in, unknown out"),
        (Usage(20, None, None, None), "20 in, unknown out"),
    ],
)
def test_unreported_tokens_are_unknown(explain, usage, said):
    answer = make_answer()
    assert explain(with_trace(answer, spend=replace(answer.trace.spend, usage=usage)))[1]["tokens"] == said


@pytest.mark.parametrize(
    ("cost", "said"),
    [(None, "unknown: a price or a token count is missing"), (0.0, "$0.000000"), (1.5, "$1.500000")],
)
def test_an_unknown_cost_is_not_shown_as_zero(explain, cost, said):
    assert explain(make_answer(cost=cost))[1]["cost"] == said


def test_candidates_without_energies_and_with_judgments_are_shown(explain):
    answer = make_answer()
    candidates = (
        Candidate(Step.ANSWER, "cheap", "x", "4", (), None, "stop", None),
        Candidate(Step.VERIFY, "dear", "x", "5", (), False, "stop", None),
        Candidate(Step.VERIFY, "dear", "x", "漢字" * 60, (), True, "stop", None),
    )
    lines, _ = explain(with_trace(answer, candidates=candidates))
    fast, against, agreeing = (line for line in lines if line[2:6] in ("fast", "slow"))
    assert fast.split() == ["fast", "answer", "4", "-", "-", "-", "-"]
    assert against.startswith("* ") and "disagrees: 5" in against
    assert "agrees: 漢字" in agreeing and "…" in agreeing  # wide letters take two columns each


def test_hostile_answers_are_shown_safely(explain):
    answer = make_answer()
    hostile = "[/red]\x1b[31m\n\t" + "\u202e" * 3 + "é" * 300
    candidate = replace(answer.trace.candidates[0], answer=hostile)
    lines, _ = explain(with_trace(answer, candidates=(candidate,), verdict=replace(answer.trace.verdict, winner=0)))
    assert any("* fast answer [/red]" in line for line in lines)
    assert "\x1b" not in "".join(lines)
