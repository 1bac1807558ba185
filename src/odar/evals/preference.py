"""Pairwise preference by an LLM judge: which of two answers to a recorded question is better, and how sure that is.

Every pair is shown in both orders. A judge that prefers the first place says 1 twice, so that its preference comes
out as a tie; how often that happens is its position bias, which is reported with the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from odar.agents.prompts import load_prompt
from odar.agents.scoring import chosen_index, format_replies
from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.conversation import Options
from odar.engine import Odar
from odar.errors import InputError, ProviderError
from odar.evals.fusion_study import with_energy
from odar.policy.fusion import Fusion
from odar.recording.schema import RecordedItem
from odar.types import Query, Step

SIDES = ("hard", "slow", "verify", "fast")
"""What can be compared: the answer chosen on the Hard path, or the first answer of a step."""
_MAX_TOKENS = 512
_STEPS = {"slow": Step.SOLVE, "verify": Step.VERIFY, "fast": Step.ANSWER}


class Pair(NamedTuple):
    """Two answers to one question."""

    question: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class PreferenceResult:
    """How often the first of two answers is preferred."""

    pairs: int
    different: int
    """Pairs whose answers differ; the others are ties and cost no call."""
    preference: Interval
    """Mean preference for the first answer, from 0 to 1; 0.5 is a tie."""
    order_dependent: float
    """Share of the different pairs whose verdict changes with the order."""
    first_place: float
    """Share of all verdicts that name the answer shown first; 0.5 is no position bias."""
    failed: int
    """Pairs without a readable verdict in one of the orders; they are left out."""
    calls: int
    cost_usd: float | None


def answer_pairs(items: Sequence[RecordedItem], one: str, other: str, fusion: Fusion, weight: float) -> list[Pair]:
    """Return the two answers of each item; an item that lacks one of them is left out."""
    found = [[_answer_of_side(item, side, fusion, weight) for side in (one, other)] for item in items]
    rows = zip(items, found, strict=True)
    return [Pair(item.query, a, b) for item, (a, b) in rows if a is not None and b is not None]


def _answer_of_side(item: RecordedItem, side: str, fusion: Fusion, weight: float) -> str | None:
    if side != "hard":
        return next((each.answer for each in item.attempts if each.step is _STEPS[side]), None)
    candidates = [with_energy(each.candidate, weight) for each in item.attempts if each.step is not Step.VERIFY]
    return candidates[fusion.choose(candidates, item.query).winner].answer if candidates else None


async def judge_pairs(
    odar: Odar,
    model: str,
    pairs: Sequence[Pair],
    rubric: str = "",
    *,
    concurrency: int = 4,
    on_progress: Callable[[], object] = lambda: None,
) -> PreferenceResult:
    """Ask a model which answer of each pair is better, in both orders; InputError if no verdict can be read."""
    gate, calls, costs = asyncio.Semaphore(concurrency), 0, []

    async def verdict(question: str, shown: tuple[str, str]) -> int | None:
        nonlocal calls
        prompt = load_prompt("judge")
        draft = format_replies(shown) + (f"\n\nJudge by this rubric:\n{rubric.strip()}" if rubric else "")
        messages = prompt.messages(Query(question), "", draft)
        async with gate:
            query = Query.from_messages(messages, Options(temperature=0.0, max_tokens=_MAX_TOKENS))
            team = odar.plain_team(query, model)
            found = await team.answer()
        spend = team.ledger.spend()
        calls += spend.calls
        costs.append(spend.cost_usd)
        on_progress()
        try:
            return chosen_index(found[0].text, 2) if found else None
        except ProviderError:
            return None

    different = [pair for pair in pairs if pair.first.split() != pair.second.split()]
    shown = [(p.question, order) for p in different for order in ((p.first, p.second), (p.second, p.first))]
    places = await asyncio.gather(*(verdict(*each) for each in shown))
    both = [(a, b) for a, b in zip(places[::2], places[1::2], strict=True) if a is not None and b is not None]
    if different and not both:
        raise InputError(f"{model} gave no readable verdict on {len(different)} pairs; choose a stronger judge")
    # place 0 of the first order and place 1 of the second are the same answer
    preferences = [((a == 0) + (b == 1)) / 2 for a, b in both] + [0.5] * (len(pairs) - len(different))
    known = [cost for cost in costs if cost is not None]
    return PreferenceResult(
        pairs=len(pairs),
        different=len(different),
        preference=bootstrap_mean(preferences),
        order_dependent=float(np.mean([a == b for a, b in both])) if both else 0.0,
        first_place=float(np.mean([place == 0 for pair in both for place in pair])) if both else 0.5,
        failed=len(different) - len(both),
        calls=calls,
        cost_usd=sum(known) if len(known) == len(costs) else None,
    )
