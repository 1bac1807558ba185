"""Records to put into a store."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from odar.traces.record import Record
from odar.types import (
    Answer,
    Assignment,
    Call,
    Candidate,
    Decision,
    Energy,
    Estimate,
    Plan,
    Query,
    Spend,
    Stage,
    Step,
    Token,
    Trace,
    Usage,
    Verdict,
)


def ago(**delta: float) -> str:
    """A time before now."""
    return (datetime.now(UTC) - timedelta(**delta)).isoformat(timespec="milliseconds")


STAGES = {"simple": ("fast",), "medium": ("fast", "slow:verify"), "hard": ("fast+slow*5",), "direct": ("direct",)}


def make_decisions(path: str = "medium") -> tuple[Decision, ...]:
    """The stages of a path, and the decision to stop."""
    stages = [Decision(Stage.parse(text), "τ1 ≤ d < τ2") for text in STAGES[path]]
    return (*stages, Decision(None, "done"))


def make_answer(
    path: str = "medium",
    *,
    id: str | None = None,
    started_at: str | None = None,
    text: str = "Let me see.\nAnswer: 4",
    difficulty: float = 0.5,
    models: tuple[str, str] = ("cheap", "dear"),
    cost: float | None = 0.002,
    baseline: float | None = 0.003,
    forced: bool = False,
    seconds: float = 1.5,
    calls: int = 2,
    degradations: tuple[str, ...] = (),
    error: str | None = None,
    cue: str = "keywords: plus",
) -> Answer:
    words = tuple(Token(word, -0.25, index == 0) for index, word in enumerate(text.split(" ")))
    fast, slow = models
    candidates = (
        Candidate(Step.ANSWER, "fast", fast, text, "4", words, None, "stop", Energy(0.1, 0.02, 0.102, None)),
        Candidate(
            Step.VERIFY, "slow", slow, text, "4", words, True, "stop", Energy(0.1, 0.02, 0.102, -0.5), stage=1
        ),
    )
    usage = Usage(20, 0, 10, None)
    bill = (
        Call(Step.ANSWER, "fast", "p", fast, 1, usage, cost, 0.5),
        Call(Step.VERIFY, "slow", "p", slow, 1, usage, cost, 1.0, 1, error),
    )
    trace = Trace(
        id=id or uuid.uuid4().hex,
        started_at=started_at or ago(),
        profile="tiny",
        plan=Plan(
            Estimate(difficulty, "linear", (("f1", 12.0, 0.3),)),
            Assignment("math", cue, {"direct": fast} if path == "direct" else {"fast": fast, "slow": slow}),
            forced=forced,
        ),
        decisions=make_decisions(path),
        candidates=candidates,
        verdict=Verdict(1, "fep", "lowest free energy", (0.4, 0.6)),
        calls=bill,
        spend=Spend(calls, usage, cost, seconds),
        prompts=(("answer", "0cc175b9"), ("verify", "92eb5ffe")),
        degradations=degradations,
        degradation_summaries=degradations,
        baseline_usd=baseline,
    )
    return Answer(text, "4", trace)


def make_record(query: str = "What is 2 plus 2?", key_id: str = "", **options: Any) -> Record:
    return Record(Query(query), make_answer(**options).trace, key_id)
