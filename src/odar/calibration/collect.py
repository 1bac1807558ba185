"""The work of `odar calibrate` and `odar sample`: the agents run on every item once.

`record` has an item answered, verified and solved. Whatever is fitted later is a replay of these records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from odar.agents.ledger import Ledger
from odar.agents.team import Team
from odar.batch import executor
from odar.batch.bounds import used, worst_case
from odar.batch.executor import Outcome, Work, failure
from odar.batch.journal import Memo, Row, digest_of
from odar.batch.replies import replies_kept_in
from odar.calibration.items import Item
from odar.calibration.records import Attempt, Record, attempt
from odar.engine import Odar
from odar.errors import OdarError
from odar.types import Candidate, Role, Step

SEED = 42
Recorder = Callable[[Odar, Item, Ledger, int | None], Awaitable[Row]]
"""What is done with one item: engine, item, ledger and seed in, a row of the journal out."""


def fingerprint(odar: Odar, seed: int | None = SEED) -> str:
    """What records depend on: models, prompts and sampling. Other settings may change without collecting anew."""
    agents = {role.value: asdict(odar.settings.agent(role)) for role in Role}
    for agent in agents.values():
        del agent["timeout_s"]
    fusion = odar.settings.fusion
    facts: dict[str, Any] = {
        **agents,
        "prompts": {step: prompt.md5 for step, prompt in odar.prompts.items()},
        "samples": (odar.settings.routing.samples, fusion.stop_confidence, fusion.first_wave),
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def work_items(odar: Odar, items: Iterable[Item], steps: Sequence[tuple[Step, int]]) -> list[executor.Item]:
    """The items as the executor knows them: each with the most that these steps may take and cost."""
    return [
        executor.Item(
            item.id,
            item,
            digest_of(item.query, item.answers, item.effort),
            *worst_case(odar, item.query, steps),
        )
        for item in items
    ]


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
    found = Record(
        id=item.id,
        query=item.query.text,
        difficulty=odar.estimator.estimate(item.query).difficulty,
        fast=_attempts(odar, item, fast, team)[0],
        verify=_attempts(odar, item, verify, team)[0],
        solves=_attempts(odar, item, solves, team),
        solve_calls=sum(call.samples for call in ledger.calls if call.step is Step.SOLVE),
        effort=item.effort,
    )
    return asdict(found)


def needed(candidates: list[Candidate], team: Team) -> list[Candidate]:
    """The candidates; where there are none, what went wrong is raised."""
    if not candidates:
        raise team.failures[-1].error
    return candidates


def _attempts(odar: Odar, item: Item, candidates: Sequence[Candidate], team: Team) -> tuple[Attempt, ...]:
    """The candidates of one step, each with an equal share of what the step cost."""
    costs = [call.cost_usd for call in team.ledger.calls if call.step is candidates[0].step]
    known = [cost for cost in costs if cost is not None]
    share = sum(known) / len(candidates) if len(known) == len(costs) else None
    return tuple(attempt(item, odar.scales.weigh(candidate, team), share) for candidate in candidates)
