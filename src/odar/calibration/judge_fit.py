"""Trial of a judge (SPEC 5.15): it chooses among recorded answers, and is switched on only if more are right.

The judge has no parameters, so nothing is fitted: the gain is measured on items of the Hard path whose answers are
free text. Their answers are shown in two opposite orders, which also measures the position bias.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odar.agents.ledger import token_upper_bound
from odar.agents.scoring import LLMJudge, chosen_index, format_replies
from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.evidence import Evidence, attempts_by_column
from odar.calibration.routing_fit import rejection_reason
from odar.calibration.setup import Setup
from odar.engine import Odar
from odar.errors import OdarError
from odar.policy.path import HARD
from odar.recording.executor import Item, Outcome, Work, failure
from odar.recording.journal import Memo, digest_of
from odar.recording.limits import Amount
from odar.recording.schema import RecordedItem, row_id
from odar.recording.work import use_memo, used_amounts, worst_cost
from odar.types import Query, Role

ORDERS = 2
"""Calls for each item: the answers in random order, and in the opposite one."""


@dataclass(frozen=True, slots=True)
class JudgeTrial:
    """The effect of a judge on these items."""

    items: int
    """Items on the Hard path with several free-text answers."""
    unreadable: int
    """Replies that name no answer; the choice without a judge stands."""
    order_dependent: float
    """Share of items for which the choice changes with the order."""
    first_place: float
    """Share of replies that name the answer shown first."""
    expected_first: float
    """Expected value of `first_place` without a position bias."""
    accuracy_gain: Interval
    """Gain over all items, those of other paths included."""
    calls_gain: Interval
    cost_gain: Interval | None

    def rejection_reason(self) -> str | None:
        """Return why the judge is not switched on, or None if it is."""
        if not self.items:
            return "no item of the Hard path has several free-text answers"
        if self.cost_gain is not None and self.cost_gain.value > 0:
            return rejection_reason(self.accuracy_gain, self.cost_gain)
        return rejection_reason(self.accuracy_gain, self.calls_gain)


@dataclass(frozen=True, slots=True)
class Choice:
    """One item to judge."""

    query: Query
    answers: tuple[str, ...]
    """The distinct answers, in random order."""
    columns: tuple[int, ...]
    """Their columns in the evidence."""


def judge_items(odar: Odar, items: Sequence[RecordedItem], evidence: Evidence, setup: Setup) -> list[Item]:
    """Return the items of the Hard path that a judge would decide, with their maximum needs and cost."""
    judge, card, max_tokens = _judge(odar), odar.cards[Role.SLOW][0], odar.settings.slow.max_tokens
    path = setup.route(evidence.fast).path
    run = setup.simulate(evidence, np.full(len(evidence), HARD))
    work_items = []
    for row in np.flatnonzero(path == HARD).tolist():
        item, read = items[row], np.flatnonzero(run.read[row]).tolist()
        attempts, query = attempts_by_column(item), Query(item.query)
        team = odar.team(query, odar.ledger(), item.key.seed)
        read_attempts = [each for column in read if (each := attempts[column]) is not None]
        candidates = [odar.judge.scorer.score(each.candidate, team) for each in read_attempts]
        shown = judge.distinct(candidates, odar.fusion.choose(candidates, item.query), item.query)
        if len(shown) < 2:
            continue
        random.Random(item.key.seed).shuffle(shown)  # noqa: S311 - an order, not a secret
        choice = Choice(query, tuple(candidates[i].answer for i in shown), tuple(read[i] for i in shown))
        messages = judge.prompt.messages(query, "", format_replies(choice.answers))
        needs = {card.provider: Amount(ORDERS, ORDERS * (token_upper_bound(messages) + max_tokens))}
        digest = digest_of(query, choice.answers, judge.prompt.md5)
        cost = worst_cost(card, messages, max_tokens, ORDERS)
        work_items.append(Item(row_id(item.key), choice, digest, needs, cost))
    return work_items


def judge_work(odar: Odar) -> Work:
    """Return the work with one engine: ask the judge about an item in both orders."""
    judge = _judge(odar)

    async def judge_item(item: Item, memo: Memo) -> Outcome:
        choice: Choice = item.payload
        ledger = odar.ledger()
        team = odar.team(choice.query, ledger, odar.settings.seed)
        count, places = len(choice.answers), []
        try:
            with use_memo(memo):
                for answers in (choice.answers, choice.answers[::-1]):
                    places.append(_named((await judge.ask(answers, team)).text, count))
        except OdarError as error:
            return failure(item, error, cost_usd=ledger.spend().cost_usd)
        row = {"id": item.key, "cost_usd": ledger.spend().cost_usd, "error": None, "digest": item.digest}
        spent = used_amounts(ledger.calls, item.needs, odar.settings.retry.attempts)
        return Outcome({**row, "places": places}, spent)

    return judge_item


def judge_trial(
    evidence: Evidence,
    setup: Setup,
    keys: Sequence[str],
    asked: Sequence[Item],
    rows: Mapping[str, Mapping[str, Any]],
) -> JudgeTrial:
    """Compare the answers that the judge chose with those of the Hard path without it.

    Args:
        evidence: the recorded items.
        setup: chooses the path, and the answer without a judge.
        keys: the row id of each recorded item.
        asked: from `judge_items`.
        rows: from `judge_work`, by row id; items that failed are missing.
    """
    winner = setup.simulate(evidence, np.full(len(evidence), HARD)).winner
    gain, calls, cost = np.zeros((3, len(evidence)))
    first, chances, changed, unreadable = [], [], [], 0
    number = {key: row for row, key in enumerate(keys)}
    judged = [item for item in asked if item.key in rows]
    for item in judged:
        row, columns = number[item.key], item.payload.columns
        places, paid = rows[item.key]["places"], rows[item.key]["cost_usd"]
        shown = (columns, columns[::-1])
        named = [None if place is None else order[place] for order, place in zip(shown, places, strict=True)]
        right = [evidence.correct[row, winner[row] if column is None else column] for column in named]
        gain[row] = np.mean(right) - evidence.correct[row, winner[row]]
        calls[row], cost[row] = 1.0, np.nan if paid is None else paid / ORDERS
        read = [place for place in places if place is not None]
        unreadable += ORDERS - len(read)
        first += [place == 0 for place in read]
        chances += [1 / len(columns)] * len(read)
        changed += [named[0] != named[1]] if len(read) == ORDERS else []
    return JudgeTrial(
        items=len(judged),
        unreadable=unreadable,
        order_dependent=_mean(changed),
        first_place=_mean(first),
        expected_first=_mean(chances),
        accuracy_gain=bootstrap_mean(gain, shares=False),
        calls_gain=bootstrap_mean(calls, shares=False),
        cost_gain=None if np.isnan(cost).any() else bootstrap_mean(cost, shares=False),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _named(text: str, count: int) -> int | None:
    try:
        return chosen_index(text, count)
    except OdarError:
        return None


def _judge(odar: Odar) -> LLMJudge:
    judge = LLMJudge.from_settings(odar.settings, odar.fusion)
    assert judge is not None, "made for settings with fusion.judge"
    assert not judge.writes, "what a synthesis writes has no recorded score"
    return judge
