"""Run the agents on every item once, resumable to the item, bounded in concurrency and money.

What is done with an item is a `Work`: `record` has it answered, verified and solved, for `odar calibrate`. Whatever
is fitted later is a replay of these records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from odar.agents.ledger import Ledger
from odar.agents.surrogate import WRITES
from odar.agents.team import Team
from odar.calibration.items import Item
from odar.calibration.journal import Entry, Journal
from odar.calibration.records import Attempt, Record, Score, attempt
from odar.engine import CHARACTERS_PER_TOKEN_AT_MOST, Odar
from odar.errors import BudgetExceeded, OdarError
from odar.providers.base import Message
from odar.types import Candidate, Energy, Step

T = TypeVar("T", bound=Entry)
Work = Callable[[Odar, Item, Ledger, int | None], Awaitable[T]]
"""What is done with one item: engine, item, ledger and seed in, an entry for the journal out."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a collection is."""

    done: int
    total: int
    cost_usd: float | None
    """Spent so far in this run; None where a price is unknown."""
    failed: int


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
                total += count * _worst_score(odar, item, agent.max_tokens)
            except BudgetExceeded:
                return None
    return total


def _worst_score(odar: Odar, item: Item, max_tokens: int) -> float:
    """The most that a surrogate's score of one answer can cost; nothing where there is no surrogate."""
    if odar.judge.surrogate is None:
        return 0.0
    text = Message("assistant", "x" * CHARACTERS_PER_TOKEN_AT_MOST * max_tokens)
    return Ledger.worst_cost(odar.judge.surrogate.card, (*item.query.messages, text), WRITES)


async def collect(
    odar: Odar,
    items: Sequence[Item],
    file: Journal[T],
    work: Work[T],
    *,
    concurrency: int = 4,
    budget_usd: float | None = None,
    seed: int | None = 42,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[tuple[str, OdarError]]:
    """Do the work for every item that is not in the file yet; returns the items that failed, with why.

    Stops before the budget is passed. A failed item has no entry and is tried again by the next run.
    """
    todo = file.missing(items)
    before = len(items) - len(todo)
    failures: list[tuple[str, OdarError]] = []
    done = 0
    spent: float | None = 0.0
    slots = asyncio.Semaphore(concurrency)

    async def one(item: Item) -> None:
        nonlocal done, spent
        async with slots:
            needed = 0.0
            if budget_usd is not None:
                worst = worst_cost(odar, [item])
                if worst is None or spent is None or spent + worst > budget_usd:
                    failures.append((item.id, BudgetExceeded(f"the budget of ${budget_usd:g} does not cover it")))
                    return
                needed = worst
                spent += needed  # held back; settled below
            ledger = odar.ledger()
            try:
                entry = await work(odar, item, ledger, seed)
            except OdarError as error:
                failures.append((item.id, error))
            else:
                file.append(entry)
                done += 1
            cost = ledger.spend().cost_usd
            spent = None if spent is None or cost is None else spent - needed + cost
            on_progress(Progress(before + done, len(items), spent, len(failures)))

    await asyncio.gather(*(one(item) for item in todo))
    return failures


async def record(odar: Odar, item: Item, ledger: Ledger, seed: int | None) -> Record:
    """Everything that the three paths would do with an item, each call made once."""
    team = odar.team(item.query, ledger, seed)
    fast = needed(await team.answer(), team)
    verify = needed(await team.verify(fast[0]), team)
    solves = needed(await odar.waves.sample(team, odar.settings.routing.samples), team)
    energies = await _scored(odar, team, fast, verify, solves)
    attempts = [_attempts(odar, item, each, team, energies) for each in (fast, verify, solves)]
    return Record(
        id=item.id,
        query=item.query.text,
        difficulty=odar.estimator.estimate(item.query).difficulty,
        fast=attempts[0][0],
        verify=attempts[1][0],
        solves=attempts[2],
        solve_calls=sum(call.samples for call in ledger.calls if call.step is Step.SOLVE and not call.scoring),
        effort=item.effort,
    )


async def _scored(
    odar: Odar, team: Team, fast: list[Candidate], verify: list[Candidate], solves: list[Candidate]
) -> dict[int, Energy]:
    """The surrogate's energies by the candidates' identity, where the Medium or the Hard path would ask it.

    Raises:
        OdarError: it failed; the item is tried again by the next run.
    """
    surrogate = odar.judge.surrogate
    if surrogate is None or not any(surrogate.needed(fast + slow, team) for slow in (verify, solves)):
        return {}
    candidates = fast + verify + solves
    scored = await surrogate.weigh(candidates, team)
    return {id(own): view.energy for own, view in zip(candidates, scored, strict=True) if view.energy is not None}


def needed(candidates: list[Candidate], team: Team) -> list[Candidate]:
    """The candidates; where there are none, what went wrong is raised."""
    if not candidates:
        raise team.failures[-1].error
    return candidates


def _attempts(
    odar: Odar, item: Item, candidates: Sequence[Candidate], team: Team, energies: Mapping[int, Energy]
) -> tuple[Attempt, ...]:
    """The candidates of one step, each with an equal share of what the step cost, and of what scoring it cost."""
    written, scoring = (_share(team, candidates, scoring=scoring) for scoring in (False, True))

    def score(candidate: Candidate) -> Score | None:
        energy = energies.get(id(candidate))
        return None if energy is None else Score(energy.energy, energy.varentropy, scoring)

    return tuple(attempt(item, odar.scales.weigh(each, team), written, score(each)) for each in candidates)


def _share(team: Team, candidates: Sequence[Candidate], *, scoring: bool) -> float | None:
    """What writing, or scoring, one of a step's candidates cost; None where it is unknown."""
    calls = [call for call in team.ledger.calls if call.step is candidates[0].step and call.scoring is scoring]
    known = [call.cost_usd for call in calls if call.cost_usd is not None]
    return sum(known) / len(candidates) if len(known) == len(calls) else None
