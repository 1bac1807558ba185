"""The work of `odar calibrate` and `odar sample`: the agents run on every item once.

`record` has an item answered, verified and solved. Whatever is fitted later is a replay of these records.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict

from odar.agents.ledger import Ledger
from odar.agents.team import Team
from odar.calibration.items import Item
from odar.calibration.records import Attempt, Record, Score, attempt
from odar.engine import Odar
from odar.errors import OdarError
from odar.policy.fusion import eligible
from odar.recording import executor
from odar.recording.executor import Outcome, Work, failure
from odar.recording.journal import Memo, Row, digest_of
from odar.recording.work import replies_kept_in, used, worst_case
from odar.types import Candidate, Energy, Step

SEED = 42
Recorder = Callable[[Odar, Item, Ledger, int | None], Awaitable[Row]]
"""What is done with one item: engine, item, ledger and seed in, a row of the journal out."""


def work_items(
    odar: Odar, items: Iterable[Item], steps: Sequence[tuple[Step, int]], *, scored: bool = False
) -> list[executor.Item]:
    """The items as the executor knows them: each with the most that these steps may take and cost.

    Args:
        odar: whose agents are asked.
        items: the questions.
        steps: what is done with each, and how often.
        scored: whether a surrogate, where there is one, scores every answer too.
    """
    found = []
    for item in items:
        needs, cost = worst_case(odar, item.query, steps, scored=scored)
        found.append(executor.Item(item.id, item, digest_of(item.query, item.answers, item.effort), needs, cost))
    return found


def recording(recorder: Recorder, odar: Odar, seed: int | None = SEED) -> Work:
    """The work with one engine. Replies that an unfinished item has paid for are not asked for again."""

    async def work(item: executor.Item, memo: Memo) -> Outcome:
        ledger = odar.ledger()
        try:
            with replies_kept_in(memo):
                row = await recorder(odar, item.payload, ledger, seed)
        except OdarError as error:
            return failure(item, error, cost_usd=ledger.spend().cost_usd)
        told = {"cost_usd": ledger.spend().cost_usd, "error": None, "digest": item.digest}
        return Outcome({**row, **told}, used(ledger.calls, item.needs, odar.settings.retry.attempts))

    return work


async def record(odar: Odar, item: Item, ledger: Ledger, seed: int | None) -> Row:
    """Everything that the three paths would do with an item, each call made once: a `Record` as a row."""
    team = odar.team(item.query, ledger, seed)
    fast = needed(await team.answer(), team)
    verify = needed(await team.verify(fast[0]), team)
    solves = needed(await odar.waves.sample(team, odar.settings.routing.samples), team)
    energies = await _scored(odar, team, fast, verify, solves)
    attempts = [_attempts(odar, item, each, team, energies) for each in (fast, verify, solves)]
    found = Record(
        id=item.id,
        query=item.query.text,
        difficulty=odar.estimator.estimate(item.query).difficulty,
        fast=attempts[0][0],
        verify=attempts[1][0],
        solves=attempts[2],
        solve_calls=sum(call.samples for call in ledger.calls if call.step is Step.SOLVE and not call.scoring),
        effort=item.effort,
    )
    return asdict(found)


async def _scored(
    odar: Odar, team: Team, fast: list[Candidate], verify: list[Candidate], solves: list[Candidate]
) -> dict[int, Energy]:
    """The surrogate's energies by the candidates' identity, where the Medium or the Hard path would ask it.

    Raises:
        OdarError: it failed; the item is tried again by the next run.
    """
    surrogate = odar.judge.surrogate
    if surrogate is None or not any(surrogate.needed(_able(fast + slow), team) for slow in (verify, solves)):
        return {}
    candidates = fast + verify + solves
    scored = await surrogate.weigh(candidates, team)
    return {id(own): view.energy for own, view in zip(candidates, scored, strict=True) if view.energy is not None}


def _able(candidates: list[Candidate]) -> list[Candidate]:
    return [candidates[i] for i in eligible(candidates)]


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
