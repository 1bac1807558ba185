"""The story of a question, told from its document."""

from __future__ import annotations

from dataclasses import replace

from odar.traces.record import Record, to_document
from odar.traces.story import tell_story
from odar.types import Candidate, Decision, Plan, Query, Stage, Step, Verdict
from support.traces import make_answer, make_record


def candidate(agent: str, answer: str, stage: int) -> Candidate:
    step = Step.SOLVE if agent == "slow" else Step.ANSWER
    return Candidate(step, agent, f"{agent}-model", f"Answer: {answer}", answer, stage=stage)


def document(*, content: bool = True, **changes):
    answer = make_answer()
    decisions = (
        Decision(Stage.parse("fast"), "first answer", q=0.6, price_usd=0.0001, gain=0.6),
        Decision(Stage.parse("second"), "go", p=0.41, q=0.8, price_usd=0.0001, gain=0.12),
        Decision(Stage.parse("slow"), "go", p=0.3, q=0.8, price_usd=0.002, gain=0.4),
        Decision(None, "enough", p=0.95, q=0.8, price_usd=0.004, gain=0.01),
    )
    trace = replace(
        answer.trace,
        plan=replace(answer.trace.plan, policy="cascade", value_usd=0.02, kind="number"),
        decisions=decisions,
        candidates=(candidate("fast", "26", 0), candidate("second", "13", 1), candidate("slow", "13", 2)),
        verdict=Verdict(2, "belief", "p = 0.95; 2 of 3 answers agree"),
    )
    trace = replace(trace, **changes)
    return to_document(Record(Query("What is 39 / 3?"), trace), content=content)


def test_every_stage_is_told_with_the_decision_after_it():
    assert tell_story(document()) == [
        ("start", "difficulty 0.50, a number: fast is asked first for $0.00010"),
        (
            "fast",
            "26 · 41% likely right · second is expected to add 12.0 points of accuracy for $0.00010 (worth it from 0.5)",
        ),
        (
            "second",
            "13 · they differ · 30% likely right · "
            "slow is expected to add 40.0 points of accuracy for $0.0020 (worth it from 10.0)",
        ),
        (
            "slow",
            "13 · 2 of 3 agree · 95% likely right · "
            "stop: another call would add 1.0 points of accuracy for $0.0040 (worth it from 20.0)",
        ),
        ("answer", "13 by slow: p = 0.95; 2 of 3 answers agree"),
    ]


def test_without_texts_equal_answers_have_the_same_letter():
    story = dict(tell_story(document(content=False)))
    assert story["fast"].startswith("answer A")
    assert story["second"].startswith("answer B · they differ")
    assert story["slow"].startswith("answer B")


def test_samples_are_counted_and_nominal_prices_left_out():
    decisions = (
        Decision(Stage.parse("fast+slow*5"), "d = 0.812 ≥ τ2 = 0.7"),
        Decision(None, "done"),
    )
    candidates = (candidate("fast", "26", 0), *(candidate("slow", "13", 0) for _ in range(5)))
    told = document(decisions=decisions, candidates=candidates)
    assert tell_story(told)[:2] == [
        ("start", "d = 0.812 ≥ τ2 = 0.7"),
        ("fast+slow*5", "26, 13 (5×) · 5 of 6 agree"),
    ]
    plan = replace(make_answer().trace.plan, value_usd=0.02, nominal=True)
    assert "$" not in tell_story(document(plan=plan))[0][1]


def test_a_verifier_and_a_stage_without_an_answer():
    story = dict(tell_story(to_document(make_record("?"), content=True)))
    assert story["slow:verify"] == "says CORRECT, 4 · they agree"
    lonely = document(candidates=(candidate("slow", "13", 2),), verdict=Verdict(0, "only", "the only candidate"))
    story = dict(tell_story(lonely))
    assert story["fast"].endswith("second is asked instead") and story["second"].endswith("slow is asked instead")


def test_a_fixed_policy_says_that_the_question_did_not_matter():
    told = document(decisions=(Decision(Stage.parse("slow"), "fixed"), Decision(None, "done")))
    assert tell_story(told)[0][1].startswith(
        "difficulty 0.50, a number: slow is asked, whatever the question (policy "
    )


def test_a_question_without_decisions_has_no_story():
    assert tell_story(document(decisions=())) == []
    assert isinstance(make_answer().trace.plan, Plan)
