"""A day of traffic for the dashboard: many queries, every path, some failed, some without a price."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from odar.difficulty.features import FEATURES
from odar.policy.energy import Alignment, measure_energy
from odar.traces.record import Record, Unanswered
from odar.types import (
    Assignment,
    Call,
    Candidate,
    Decision,
    Estimate,
    Plan,
    Query,
    Route,
    Spend,
    Stage,
    Step,
    Token,
    Trace,
    Usage,
    Verdict,
)

QUESTIONS = (
    "Is Paris the capital of France?",
    "How many legs does a spider have?",
    "What is the boiling point of water at 2000 m?",
    "Find all real numbers x such that sqrt(x+3)+sqrt(x-1)=4",
    "Prove that every planar graph is five-colourable.",
    "Write a function that reverses a linked list in place.",
    "Derive the time-dependent Schrödinger equation.",
)
TAU1, TAU2 = 0.3, 0.7
STEPS = {
    Route.SIMPLE: (Step.ANSWER,),
    Route.MEDIUM: (Step.ANSWER, Step.VERIFY),
    Route.HARD: (Step.ANSWER, *[Step.SOLVE] * 5),
}
STAGES = {Route.SIMPLE: ("fast",), Route.MEDIUM: ("fast", "slow:verify"), Route.HARD: ("fast+slow*5",)}
PRICES = {Step.ANSWER: 0.00012, Step.VERIFY: 0.0031, Step.SOLVE: 0.0048}


def traffic(count: int, *, hours: float = 23.0, seed: int = 7) -> Iterator[Record]:
    """Return `count` records of the last hours, the newest last."""
    rng = random.Random(seed)
    now = datetime.now(UTC)
    for index in range(count):
        at = now - timedelta(hours=hours * (1 - index / count) ** 1.3 + 0.001)
        yield one(rng, at.isoformat(timespec="milliseconds"), f"{index:032x}")


def one(rng: random.Random, started_at: str, id: str) -> Record:
    d = min(max(rng.betavariate(1.3, 2.1) + rng.gauss(0, 0.04), 0.01), 0.99)
    question = QUESTIONS[min(int(d * len(QUESTIONS)), len(QUESTIONS) - 1)]
    if rng.random() < 0.02:
        failed = Unanswered(id=id, started_at=started_at, profile="custom")
        return Record(Query(question), failed, error="fast: p answered 503")
    path = Route.SIMPLE if d < TAU1 else Route.MEDIUM if d < TAU2 else Route.HARD
    return Record(Query(question), make_trace(rng, path, d, started_at, id), endpoint="chat.completions")


def make_trace(rng: random.Random, path: Route, d: float, started_at: str, id: str) -> Trace:
    """Return a trace with consistent tokens, energies and costs."""
    unknown = rng.random() < 0.03
    candidates = tuple(candidate(rng, step, path) for step in STEPS[path])
    calls, clock = [], 0.004
    for step in STEPS[path]:
        seconds = rng.lognormvariate(-0.6 if step is Step.ANSWER else 0.7, 0.4)
        cost = None if unknown else PRICES[step] * rng.uniform(0.6, 1.6)
        usage = Usage(rng.randint(40, 400), 0, rng.randint(20, 500), 0)
        agent, model = ("fast", "quick") if step is Step.ANSWER else ("slow", "deep")
        calls.append(
            Call(step, agent, "p", model, 1, usage, cost, seconds, 0, None, 0.004 if path is Route.HARD else clock)
        )
        clock += seconds
    total = max((call.began_s or 0) + call.seconds for call in calls)
    usage = sum((call.usage for call in calls[1:]), calls[0].usage)
    cost = None if unknown else sum(call.cost_usd or 0.0 for call in calls)
    best = min(range(len(candidates)), key=lambda i: candidates[i].energy.free_energy)
    weights = [math.exp(-4 * c.energy.free_energy) for c in candidates]
    return Trace(
        id=id,
        started_at=started_at,
        profile="custom",
        plan=Plan(estimate(rng, d), Assignment("math", "keywords: how many", {"fast": "quick", "slow": "deep"})),
        decisions=(
            *(Decision(Stage.parse(text), reason(d)) for text in STAGES[path]),
            Decision(None, "done"),
        ),
        candidates=candidates,
        verdict=Verdict(best, "fep", "lowest free energy", tuple(w / sum(weights) for w in weights)),
        calls=tuple(calls),
        spend=Spend(len(calls), usage, cost, total),
        prompts=(("answer", "0cc175b9c0f1b6a831c399e269772661"), ("verify", "92eb5ffee6ae2fec3ad71c777531578f")),
        degradations=("slow agent: p gave no answer within 60 s",) if rng.random() < 0.015 else (),
        baseline_usd=None if unknown else PRICES[Step.VERIFY] * rng.uniform(0.6, 1.6),
    )


def estimate(rng: random.Random, d: float) -> Estimate:
    shares = [rng.gauss(0, 0.2) for _ in FEATURES]
    rows = tuple((name, round(rng.uniform(0, 40), 2), share) for name, share in zip(FEATURES, shares, strict=True))
    return Estimate(d, "learned/1", rows)


def candidate(rng: random.Random, step: Step, path: Route) -> Candidate:
    value = rng.choice(("8", "8", "8", "1"))
    words = f"A spider is an arachnid ,\n so it has {value} legs . \n Answer: {value}".split(" ")
    texts = [word if i == 0 else f" {word}" for i, word in enumerate(words)]
    tokens = (*(Token(text, -rng.expovariate(1.8)) for text in texts), Token("", -0.01, control=True))
    text = "".join(token.text for token in tokens)
    energy = measure_energy(tokens, 0.1, None if step is Step.VERIFY else Alignment(0.2, 0.08))
    judgment = True if step is Step.VERIFY else None
    agent, model = ("fast", "quick") if step is Step.ANSWER else ("slow", "deep")
    stage = int(path is Route.MEDIUM and agent == "slow")
    return Candidate(step, agent, model, text, value, tokens, judgment, "stop", energy, stage=stage)


def reason(d: float) -> str:
    if d < TAU1:
        return f"d = {d:.3f} < τ1 = {TAU1:g}"
    return f"τ1 = {TAU1:g} ≤ d = {d:.3f} < τ2 = {TAU2:g}" if d < TAU2 else f"d = {d:.3f} ≥ τ2 = {TAU2:g}"
