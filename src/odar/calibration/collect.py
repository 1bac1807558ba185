"""Run both agents on every item once: the fast answer, the slow verification, the slow samples.

Resumable to the item, bounded in concurrency and money. Whatever is fitted later is a replay of these records.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from odar.agents.ledger import Ledger
from odar.agents.team import Team
from odar.calibration.items import Item
from odar.calibration.records import Attempt, Record, RecordFile, attempt
from odar.engine import Odar
from odar.errors import BudgetExceeded, OdarError
from odar.types import Candidate, Step


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a collection is."""

    done: int
    total: int
    cost_usd: float | None
    """Spent so far in this run; None where a price is unknown."""
    failed: int


def fingerprint(odar: Odar) -> str:
    """What records depend on: models, prompts and sampling. Other settings may change without collecting anew."""
    facts = {
        "fast": asdict(odar.settings.fast),
        "slow": asdict(odar.settings.slow),
        "prompts": {step: prompt.md5 for step, prompt in odar.prompts.items()},
        "samples": odar.settings.routing.samples,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def worst_cost(odar: Odar, items: Sequence[Item]) -> float | None:
    """The most that collecting these items can cost; None where a price is unknown."""
    total = 0.0
    for item in items:
        for step, count in ((Step.ANSWER, 1), (Step.VERIFY, 1), (Step.SOLVE, odar.settings.routing.samples)):
            agent = odar.settings.agent(step.role)
            card = odar.settings.card(agent.model)
            # The verifier also reads the proposal, which is at most a whole fast answer long.
            proposal = "x" * 4 * odar.settings.fast.max_tokens if step is Step.VERIFY else ""
            messages = odar.prompts[step].messages(item.query, proposal)
            try:
                total += count * Ledger.worst_cost(card, messages, agent.max_tokens)
            except BudgetExceeded:
                return None
    return total


async def collect(
    odar: Odar,
    items: Sequence[Item],
    file: RecordFile,
    *,
    concurrency: int = 4,
    budget_usd: float | None = None,
    seed: int | None = 42,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[tuple[str, OdarError]]:
    """Record every item that is not in the file yet; returns the items that failed, with why.

    Stops before the budget is passed. A failed item has no record and is tried again by the next run.
    """
    todo = file.missing(items)
    failures: list[tuple[str, OdarError]] = []
    spent: float | None = 0.0
    slots = asyncio.Semaphore(concurrency)

    async def one(item: Item) -> None:
        nonlocal spent
        async with slots:
            if budget_usd is not None:
                needed = worst_cost(odar, [item])
                if needed is None or spent is None or spent + needed > budget_usd:
                    failures.append((item.id, BudgetExceeded(f"the budget of ${budget_usd:g} does not cover it")))
                    return
                spent += needed  # held back; settled below
            else:
                needed = 0.0
            ledger = odar.ledger()
            try:
                record = await _record(odar, item, ledger, seed)
            except OdarError as error:
                failures.append((item.id, error))
            else:
                file.append(record)
            cost = ledger.spend().cost_usd
            spent = None if spent is None or cost is None else spent - (needed or 0.0) + cost
            on_progress(Progress(len(items) - len(file.missing(items)), len(items), spent, len(failures)))

    await asyncio.gather(*(one(item) for item in todo))
    return failures


async def _record(odar: Odar, item: Item, ledger: Ledger, seed: int | None) -> Record:
    team = odar.team(item.query, ledger, seed)
    fast = _needed(await team.answer(), team)
    verify = _needed(await team.verify(fast[0]), team)
    solves = _needed(await team.solve(odar.settings.routing.samples), team)
    attempts = [_attempt(odar, item, candidate, team) for candidate in (fast[0], verify[0], *solves)]
    return Record(
        id=item.id,
        query=item.query.text,
        difficulty=odar.estimator.estimate(item.query).difficulty,
        fast=attempts[0],
        verify=attempts[1],
        solves=tuple(attempts[2:]),
        effort=item.effort,
    )


def _needed(candidates: list[Candidate], team: Team) -> list[Candidate]:
    if not candidates:
        raise team.failures[-1].error
    return candidates


def _attempt(odar: Odar, item: Item, candidate: Candidate, team: Team) -> Attempt:
    calls = [call for call in team.ledger.calls if call.step is candidate.step]
    costs = [call.cost_usd for call in calls]
    samples = sum(call.samples for call in calls)
    known = sum(cost for cost in costs if cost is not None)
    return attempt(item, odar.scales.weigh(candidate, team), None if None in costs else known / max(1, samples))
