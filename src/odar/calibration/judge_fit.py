"""Whether a judge pays (SPEC 5.15): it chooses among recorded answers, and is switched on only if more are right.

The judge has no parameters, so nothing is fitted: the gain is measured on items of the Hard path whose answers are
free text. Each is shown in two opposite orders, so that the position bias is measured too.
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
"""Calls for each item: the candidates in random order, and in the opposite one."""


@dataclass(frozen=True, slots=True)
class JudgeTrial:
    """What the judge would change on these items."""

    items: int
    """Items on the Hard path with several free-text answers."""
    unreadable: int
    """Replies that named no answer; the choice without a judge stands."""
    order_dependent: float
    """Share of items for which the choice changes with the order."""
    first_place: float
    """Share of replies that name the answer shown first."""
    expected_first: float
    """The same without a position bias."""
    accuracy_gain: Interval
    """Over all items, those of other paths included."""
    calls_gain: Interval
    cost_gain: Interval | None

    def rejection_reason(self) -> str | None:
        """Return why the judge is not switched on, or None if it is."""
        if not self.items:
            return "no item of the Hard path has several free-text answers"
        charged = self.cost_gain is not None and self.cost_gain.value > 0
        price = self.cost_gain if charged and self.cost_gain is not None else self.calls_gain
        return rejection_reason(self.accuracy_gain, price)


@dataclass(frozen=True, slots=True)
class Choice:
    """One item to judge."""

    query: Query
    answers: tuple[str, ...]
    """The distinct answers, in random order."""
    columns: tuple[int, ...]
    """Where they stand in the evidence."""


def judge_items(odar: Odar, items: Sequence[RecordedItem], evidence: Evidence, setup: Setup) -> list[Item]:
    """Return the items that a judge would be asked about on the Hard path, with the most that they can cost."""
    judge, card, longest = _judge(odar), odar.cards[Role.SLOW][0], odar.settings.slow.max_tokens
    path = setup.route(evidence.fast).path
    run = setup.simulate(evidence, np.full(len(evidence), HARD))
    found = []
    for row in np.flatnonzero(path == HARD).tolist():
        item, read = items[row], np.flatnonzero(run.read[row]).tolist()
        every, query = attempts_by_column(item), Query(items[row].query)
        team = odar.team(query, odar.ledger(), item.key.seed)
        attempts = [each for column in read if (each := every[column]) is not None]
        candidates = [odar.judge.scorer.score(each.candidate, team) for each in attempts]
        shown = judge.distinct(candidates, odar.fusion.choose(candidates, item.query), item.query)
        if len(shown) < 2:
            continue
        random.Random(item.key.seed).shuffle(shown)  # noqa: S311 - an order, not a secret
        choice = Choice(query, tuple(candidates[i].answer for i in shown), tuple(read[i] for i in shown))
        messages = judge.prompt.messages(query, "", format_replies(choice.answers))
        needs = {card.provider: Amount(ORDERS, ORDERS * (token_upper_bound(messages) + longest))}
        digest = digest_of(query, choice.answers, judge.prompt.md5)
        found.append(Item(row_id(item.key), choice, digest, needs, worst_cost(card, messages, longest, ORDERS)))
    return found


def judge_work(odar: Odar) -> Work:
    """Return the work with one engine: ask about an item in both orders."""
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
    """Compare what the judge named with what the Hard path chooses without it.

    Args:
        evidence: the recorded items.
        setup: chooses the path, and the answer without a judge.
        keys: the row id of each recorded item.
        asked: from `judge_items`.
        rows: what `judge_work` made of them, by row id; items that failed are missing.
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
    changed_share, first_share, chance = (
        float(np.mean(each)) if each else 0.0 for each in (changed, first, chances)
    )
    return JudgeTrial(
        items=len(judged),
        unreadable=unreadable,
        order_dependent=changed_share,
        first_place=first_share,
        expected_first=chance,
        accuracy_gain=bootstrap_mean(gain, shares=False),
        calls_gain=bootstrap_mean(calls, shares=False),
        cost_gain=None if np.isnan(cost).any() else bootstrap_mean(cost, shares=False),
    )


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
