"""The output of `--explain` for any answer."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from odar.cli.explain import WIDTH, print_explanation
from odar.types import Candidate, Query, Step, Usage
from support.traces import make_answer


@pytest.fixture
def explain(capsys):
    """Return a function that returns the lines of the explanation and its facts by name."""

    def explain(answer, *, verbose=False):
        print_explanation(answer, Query("What is 2 + 2?"), "named by --profile", verbose=verbose)
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


def test_every_stage_has_its_line_and_jargon_is_for_verbose(explain):
    lines, facts = explain(make_answer())
    assert facts["start"] == "τ1 ≤ d < τ2"
    assert facts["slow:verify"] == "says CORRECT, 4 · they agree"
    assert facts["answer"] == "4 by slow: lowest free energy"
    assert facts["models"] == "fast cheap, slow dear"
    assert not any("varentropy" in line for line in lines)
    assert "difficulty" not in facts
    lines, facts = explain(make_answer(), verbose=True)
    assert facts["difficulty"] == "0.500 by linear"
    assert any("varentropy" in line for line in lines)


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
    ("cost", "baseline", "said"),
    [
        (0.0, None, "free"),
        (0.0, 0.0, "free (local models)"),
        (1.5, 3.0, "$1.50; one call to slow: $3.00"),
    ],
)
def test_the_cost_is_shown_beside_that_of_one_slow_call(explain, cost, baseline, said):
    assert explain(make_answer(cost=cost, baseline=baseline))[1]["cost"] == said


def test_an_unknown_cost_is_not_shown_as_zero(explain):
    assert explain(make_answer(cost=None, baseline=None))[1]["cost"].startswith("unknown: ")


def test_candidates_without_energies_and_with_judgments_are_shown(explain):
    answer = make_answer()
    candidates = (
        Candidate(Step.ANSWER, "fast", "cheap", "x", "4"),
        Candidate(Step.VERIFY, "slow", "dear", "x", "5", judgment=False, stage=1),
        Candidate(Step.VERIFY, "slow", "dear", "x", "漢字" * 60, judgment=True, stage=1),
    )
    lines, facts = explain(with_trace(answer, candidates=candidates), verbose=True)
    assert facts["slow:verify"].startswith("says INCORRECT, 5, says CORRECT,")
    fast, against, agreeing = (line for line in lines if line[2:6] in ("fast", "slow") and line[:1] in "* ")
    assert fast.split() == ["fast", "answer", "4", "-", "-", "-", "-"]
    assert against.startswith("* slow verify 5")
    assert "漢字" in agreeing and "…" in agreeing  # wide letters take two columns each


def test_hostile_answers_are_shown_safely(explain):
    answer = make_answer()
    hostile = "[/red]\x1b[31m\n\t" + "\u202e" * 3 + "é" * 300
    candidate = replace(answer.trace.candidates[0], answer=hostile)
    changed = with_trace(answer, candidates=(candidate,), verdict=replace(answer.trace.verdict, winner=0))
    lines, _ = explain(changed, verbose=True)
    assert any("* fast answer [/red]" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_explain_and_traces_show_print_the_same(odar, provider):
    asked = odar("ask", "--verbose", "--path", "hard", "--set", "store.content=true", "What is 2 + 2?")
    trace_id = re.search(r"^trace +(\w+)", asked.err, re.MULTILINE)[1]
    recorded = odar("traces", "show", trace_id, "--verbose")
    table = asked.err.partition("  agent")[2]
    assert table.count("slow solve") == 5
    assert recorded.out.partition("  agent")[2] == table
    facts = set(asked.err.splitlines()) & set(recorded.out.splitlines())
    names = {line.split("  ")[0] for line in facts}
    expected = "start fast+slow*5 answer path models difficulty features expert calls cost"
    assert set(expected.split()) <= names
