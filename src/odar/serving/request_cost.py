"""The ledger of a request, the most that it can cost, and what its key is charged.

If the key has limits, the endpoint reserves this most in the database (`budgets.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from concurrent.futures import Future
from functools import cache, partial

from odar.agents.ledger import Ledger, token_upper_bound
from odar.agents.team import Team
from odar.engine import Odar
from odar.errors import BudgetExceeded
from odar.options import AskOptions
from odar.policy.base import Walk
from odar.serving.budgets import Budgets, Need, Reservation
from odar.serving.errors import ApiError
from odar.serving.keys import Key
from odar.serving.protocols.chat_request import ChatRequest
from odar.types import DIRECT, Ask, Query, Stage, path_of


def request_ledger(odar: Odar, request: ChatRequest) -> Ledger:
    limits = request.odar
    return odar.agents.ledger(limits.max_calls, limits.max_cost_usd, limits.deadline_s)


def charge_key(budgets: Budgets, reserved: Reservation, key: Key, ledger: Ledger) -> Future[None]:
    """Replace a reservation by the actual spending; a call of unknown cost is charged with its reserved cost."""
    spend = ledger.spend()
    tokens = None
    if spend.usage.input is not None and spend.usage.output is not None:
        tokens = spend.usage.input + spend.usage.output
    return budgets.charge(reserved, ledger.charged_usd() if key.has_budget else spend.cost_usd, tokens)


def with_max_tokens(query: Query, max_tokens: int) -> Query:
    """The query with a limit on the answer, so that its cost is bounded."""
    if query.parameters.max_tokens is not None:
        return query
    return dataclasses.replace(query, parameters=dataclasses.replace(query.parameters, max_tokens=max_tokens))


def walk_needs(odar: Odar, query: Query, options: AskOptions, *, priced: bool) -> list[tuple[Walk, Need]]:
    """The maximum cost of each walk, the most expensive first; in dollars only if `priced`.

    Raises:
        ApiError: 403 if money is limited and a price is unknown.
    """
    walks: list[Walk]
    if options.model is not None:
        team = odar.agents.plain_team(query, options.model)
        walks = [(Stage((Ask(DIRECT, query.parameters.n),)),)]
    else:
        models = odar.planner.assign(query, options.session).models
        team = odar.agents.team(query, odar.agents.ledger(), models=models)
        walks = odar.policy(options).walks(query.parameters.n, options.max_path)
    if not priced:
        # Then only the path limits a request: keep the first walk of each path, which is the longest.
        walks = list({path_of(walk): walk for walk in reversed(walks)}.values())[::-1]
    call_need = cache(partial(_call_need, team, priced=priced))  # many walks, few kinds of calls

    def need(walk: Walk) -> Need:
        asks = [ask for stage in walk for ask in stage.asks if ask.agent in team.cards]  # others cannot answer
        usd = sum(ask.samples * call_need(ask).usd for ask in asks)
        return Need(usd, sum(ask.samples * call_need(ask).tokens for ask in asks))

    try:
        needs = [(walk, need(walk)) for walk in walks]
    except BudgetExceeded as error:
        raise ApiError(403, f"this key has a budget, and {error}", "price_unknown", "model") from None
    return sorted(needs, key=lambda pair: (-pair[1].usd, -pair[1].tokens))


def _call_need(team: Team, ask: Ask, priced: bool) -> Need:
    """The maximum cost of one call of an agent, whichever of its models answers."""
    card, *fallbacks = team.models(ask.agent)
    max_tokens = team.request_template(ask.agent).sampling.max_tokens or 0
    tokens = token_upper_bound(team.billed_prompt(ask)) + max_tokens + team.draft_tokens(ask, card)
    if not priced:
        return Need(0.0, tokens)
    usd = team.worst_cost(ask, card)
    for fallback in fallbacks:
        with contextlib.suppress(BudgetExceeded):  # of unknown cost: not used under a budget
            usd = max(usd, team.worst_cost(ask, fallback))
    return Need(usd, tokens)
