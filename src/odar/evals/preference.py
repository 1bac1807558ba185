"""Pairwise preference between two answers to a recorded question, by an LLM judge.

Every pair is shown in both orders. A judge that always prefers the first place names 1 twice, which counts as a
tie. The position bias is reported with the result.
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
from odar.types import Query, Spend, Step

SIDES = ("hard", "slow", "verify", "fast")
"""Answers that can be compared: the one chosen on the Hard path, or the first of a step."""
_MAX_TOKENS = 512
_STEPS = {"slow": Step.SOLVE, "verify": Step.VERIFY, "fast": Step.ANSWER}


class Pair(NamedTuple):
    """Two answers to one question."""

    question: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class PreferenceResult:
    """The mean preference for the first of two answers, and the position bias of the judge."""

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
    pairs = []
    for item in items:
        first, second = (_answer_of_side(item, side, fusion, weight) for side in (one, other))
        if first is not None and second is not None:
            pairs.append(Pair(item.query, first, second))
    return pairs


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
    """Ask a model which answer of each pair is better, in both orders.

    Raises:
        InputError: no verdict can be read.
    """
    prompt, semaphore = load_prompt("judge"), asyncio.Semaphore(concurrency)
    instructions = f"\n\nJudge by this rubric:\n{rubric.strip()}" if rubric else ""

    async def better_place(question: str, first: str, second: str) -> tuple[int | None, Spend]:
        messages = prompt.messages(Query(question), "", format_replies((first, second)) + instructions)
        query = Query.from_messages(messages, Options(temperature=0.0, max_tokens=_MAX_TOKENS))
        async with semaphore:
            team = odar.plain_team(query, model)
            replies = await team.answer()
        on_progress()
        try:
            return (chosen_index(replies[0].text, 2) if replies else None), team.ledger.spend()
        except ProviderError:
            return None, team.ledger.spend()

    different = [pair for pair in pairs if pair.first.split() != pair.second.split()]
    orders = [order for pair in different for order in (pair, Pair(pair.question, pair.second, pair.first))]
    verdicts = await asyncio.gather(*(better_place(*order) for order in orders))
    places, spends = [place for place, _ in verdicts], [spend for _, spend in verdicts]
    both = [(a, b) for a, b in zip(places[::2], places[1::2], strict=True) if a is not None and b is not None]
    if different and not both:
        raise InputError(f"{model} gave no readable verdict on {len(different)} pairs; choose a stronger judge")
    # place 0 of the first order and place 1 of the second are the same answer
    preferences = [((a == 0) + (b == 1)) / 2 for a, b in both] + [0.5] * (len(pairs) - len(different))
    costs = [spend.cost_usd for spend in spends if spend.cost_usd is not None]
    return PreferenceResult(
        pairs=len(pairs),
        different=len(different),
        preference=bootstrap_mean(preferences),
        order_dependent=float(np.mean([a == b for a, b in both])) if both else 0.0,
        first_place=float(np.mean([place == 0 for pair in both for place in pair])) if both else 0.5,
        failed=len(different) - len(both),
        calls=sum(spend.calls for spend in spends),
        cost_usd=sum(costs) if len(costs) == len(spends) else None,
    )
