"""What a request may cost: its bill, and for keys with limits the most that each path can take, held back first."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from odar.agents.ledger import Ledger, token_upper_bound
from odar.agents.team import Team
from odar.conversation import Message
from odar.engine import Odar
from odar.errors import BudgetExceeded, KeyRefused
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError
from odar.store.budgets import Budgets, Need, RateLimit, Reservation
from odar.store.keys import Key
from odar.types import Path, Query, Role, Step

_DRAFT_BYTES = 4
"""Bytes that a verifier reads for each token of a draft, roughly: the ledger looks at the draft itself."""


def request_ledger(odar: Odar, request: ChatRequest, reserved_usd: float | None = None) -> Ledger:
    """Return the bill of a request, under its own limits and what is reserved for it."""
    costs = [cost for cost in (request.extras.max_cost, reserved_usd) if cost is not None]
    return odar.ledger(request.extras.max_calls, min(costs, default=None), request.extras.deadline_s)


async def reserve(
    odar: Odar, budgets: Budgets, request: ChatRequest, key: Key, options: dict[str, Any], trace_id: str
) -> tuple[Reservation, Ledger, dict[str, Any]]:
    """Hold back the most that the request can cost: on the path it may take, or on a cheaper one that fits.

    Raises:
        ApiError: 403 where a price is unknown, 429 where nothing fits.
    """
    offers = path_needs(odar, request.query, options, priced=key.limits.has_budget)
    limits = (request.extras.max_cost, odar.settings.limits.max_cost_usd)
    most = min((limit for limit in limits if limit is not None), default=float("inf"))
    needs = [Need(min(need.usd, most), need.tokens) for _, need in offers]
    granted = budgets.reserve(key.id, trace_id, needs, request_ledger(odar, request).limits.deadline_s)

    def release(granted: Future[Reservation]) -> None:
        if not granted.cancelled() and granted.exception() is None:
            budgets.settle(granted.result(), 0.0, 0)

    try:
        held = await asyncio.shield(asyncio.wrap_future(granted))
    except asyncio.CancelledError:
        granted.add_done_callback(release)  # the client has left meanwhile
        raise
    except KeyRefused as refused:
        headers = rate_headers(refused.rates)
        raise ApiError(
            429, str(refused), "key_limit", retry_after=refused.retry_after, more_headers=headers
        ) from None
    path = offers[held.choice][0] if held.choice else None
    limited = {"max_path": path} if path is not None else {}
    return held, request_ledger(odar, request, held.need.usd if key.limits.has_budget else None), options | limited


def settle(budgets: Budgets, held: Reservation, key: Key, ledger: Ledger) -> None:
    """Charge what was spent; where a cost is unknown, what was reserved for that call."""
    spend = ledger.spend()
    tokens = None
    if spend.usage.input is not None and spend.usage.output is not None:
        tokens = spend.usage.input + spend.usage.output
    budgets.settle(held, ledger.charged_usd() if key.limits.has_budget else spend.cost_usd, tokens)


def with_max_tokens(request: ChatRequest, max_tokens: int) -> ChatRequest:
    """Return the request with a longest answer; without one nothing bounds what it costs."""
    if request.query.options.max_tokens is not None:
        return request
    options = dataclasses.replace(request.query.options, max_tokens=max_tokens)
    return dataclasses.replace(request, query=dataclasses.replace(request.query, options=options))


def path_needs(
    odar: Odar, query: Query, options: dict[str, Any], *, priced: bool
) -> list[tuple[Path | None, Need]]:
    """Return the most that each allowed path can need, the most expensive first; `priced` if money is limited.

    Raises:
        ApiError: 403, a price that must be known is not.
    """
    try:
        if (model := options.get("model")) is not None:
            team = odar.plain_team(query, model)
            return [(None, _multiply(query.options.n, _call_need(team, Step.ANSWER, priced)))]
        team = odar.team(query, odar.ledger(), assignment=odar.dispatcher.assign(query))
        forced = options.get("path")
        allowed = options.get("paths", tuple(Path)) if forced is None else (forced,)
        samples = odar.settings.routing.samples
        return [(path, _path_need(team, path, samples, priced)) for path in reversed(Path) if path in allowed]
    except BudgetExceeded as error:
        raise ApiError(403, f"this key has a budget, and {error}", "price_unknown", "model") from None


def rate_headers(rates: Iterable[RateLimit]) -> list[tuple[bytes, bytes]]:
    """Return a key's limits a minute in the headers that OpenAI's clients read.

    >>> rate_headers([RateLimit("requests", 60, 59)])[2]
    (b'x-ratelimit-reset-requests', b'1.000s')
    """
    headers = []
    for rate in rates:
        of = rate.of.encode()
        headers += [
            (b"x-ratelimit-limit-" + of, b"%d" % max(1, rate.per_minute)),
            (b"x-ratelimit-remaining-" + of, b"%d" % rate.remaining),
            (b"x-ratelimit-reset-" + of, b"%.3fs" % rate.reset_s),
        ]
    return headers


def _path_need(team: Team, path: Path, samples: int, priced: bool) -> Need:
    n, fast = team.query.options.n, _call_need(team, Step.ANSWER, priced)
    if path is Path.SIMPLE:
        return _multiply(n, fast)
    step, count = (Step.VERIFY, n) if path is Path.MEDIUM else (Step.SOLVE, max(samples, n))
    slow = _multiply(count, _call_need(team, step, priced))
    if path is Path.HARD and team.settings.fusion.judge:
        judge = _call_need(team, Step.SOLVE, priced, drafts=count + 1)
        slow = Need(slow.usd + judge.usd, slow.tokens + judge.tokens)
    return Need(fast.usd + slow.usd, fast.tokens + slow.tokens)


def _call_need(team: Team, step: Step, priced: bool, drafts: int = 0) -> Need:
    """Return the need of one call of a step; a judge also reads this many drafts."""
    card, *fallbacks = team.models(step.role)
    max_tokens = team.request_template(step.role).sampling.max_tokens
    messages = team.prompts[step].messages(team.query, "", "")
    if step is Step.VERIFY:
        draft = _DRAFT_BYTES * (team.request_template(Role.FAST).sampling.max_tokens or 0)
        messages = (*messages, Message("assistant", "x" * draft))
    if drafts:
        longest = max(team.request_template(role).sampling.max_tokens or 0 for role in Role)
        messages = (*messages, Message("assistant", "x" * (_DRAFT_BYTES * longest * drafts)))
    read = team.billed_messages(messages)
    usd = Ledger.worst_cost(card, read, max_tokens) if priced else 0.0
    for other in fallbacks if priced else ():  # one whose cost is unknown is not asked under a budget
        with contextlib.suppress(BudgetExceeded):
            usd = max(usd, Ledger.worst_cost(other, read, max_tokens))
    return Need(usd, token_upper_bound(read) + (max_tokens or 0))


def _multiply(count: int, need: Need) -> Need:
    return Need(count * need.usd, count * need.tokens)
