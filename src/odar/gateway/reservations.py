"""Ledgers of requests and, for keys with limits, reservations of a request's highest cost and tokens."""

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
"""Estimated bytes of each token of a draft; the ledger measures the draft itself."""


def request_ledger(odar: Odar, request: ChatRequest, reserved_usd: float | None = None) -> Ledger:
    """Return the ledger of a request, limited by the request and by its reservation."""
    costs = [cost for cost in (request.extras.max_cost, reserved_usd) if cost is not None]
    return odar.ledger(request.extras.max_calls, min(costs, default=None), request.extras.deadline_s)


async def reserve(
    odar: Odar, budgets: Budgets, request: ChatRequest, key: Key, options: dict[str, Any], trace_id: str
) -> tuple[Reservation, Ledger, dict[str, Any]]:
    """Reserve the highest cost of a request, on the most expensive allowed path that fits the key's limits.

    Returns:
        The reservation, the ledger, and the engine's options limited to that path.

    Raises:
        ApiError: 403 if a price is unknown, 429 if no path fits.
    """
    offers = path_needs(odar, request.query, options, priced=key.limits.has_budget)
    limits = request_ledger(odar, request).limits
    max_cost = float("inf") if limits.cost_usd is None else limits.cost_usd
    needs = [Need(min(need.usd, max_cost), need.tokens) for _, need in offers]
    future = budgets.reserve(key.id, trace_id, needs, limits.deadline_s)

    def release(future: Future[Reservation]) -> None:
        if not future.cancelled() and future.exception() is None:
            budgets.settle(future.result(), 0.0, 0)

    try:
        reserved = await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        future.add_done_callback(release)  # the client has left
        raise
    except KeyRefused as error:
        headers = rate_headers(error.rates)
        raise ApiError(429, str(error), "key_limit", retry_after=error.retry_after, more_headers=headers) from None
    path = offers[reserved.choice][0] if reserved.choice else None
    if path is not None:
        options = options | {"max_path": path}
    ledger = request_ledger(odar, request, reserved.need.usd if key.limits.has_budget else None)
    return reserved, ledger, options


def settle(budgets: Budgets, reserved: Reservation, key: Key, ledger: Ledger) -> None:
    """Replace a reservation by the actual spending; a call of unknown cost is charged with its reserved cost."""
    spend = ledger.spend()
    tokens = None
    if spend.usage.input is not None and spend.usage.output is not None:
        tokens = spend.usage.input + spend.usage.output
    budgets.settle(reserved, ledger.charged_usd() if key.limits.has_budget else spend.cost_usd, tokens)


def with_max_tokens(request: ChatRequest, max_tokens: int) -> ChatRequest:
    """Return the request with a limit on the answer, so that its cost is bounded."""
    if request.query.options.max_tokens is not None:
        return request
    options = dataclasses.replace(request.query.options, max_tokens=max_tokens)
    return dataclasses.replace(request, query=dataclasses.replace(request.query, options=options))


def path_needs(
    odar: Odar, query: Query, options: dict[str, Any], *, priced: bool
) -> list[tuple[Path | None, Need]]:
    """Return the highest need of each allowed path, the most expensive first; `priced` if money is limited.

    Raises:
        ApiError: 403 if money is limited and a price is unknown.
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
    """Return a key's limits per minute as the headers of OpenAI's API.

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
    if path is Path.MEDIUM:
        return _add(fast, _multiply(n, _call_need(team, Step.VERIFY, priced)))
    count = max(samples, n)
    need = _add(fast, _multiply(count, _call_need(team, Step.SOLVE, priced)))
    if team.settings.fusion.judge:
        need = _add(need, _call_need(team, Step.SOLVE, priced, drafts=count + 1))
    return need


def _call_need(team: Team, step: Step, priced: bool, drafts: int = 0) -> Need:
    """Return the highest need of one call of a step; a judge also reads this many drafts."""
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
    tokens = token_upper_bound(read) + (max_tokens or 0)
    if not priced:
        return Need(0.0, tokens)
    usd = Ledger.worst_cost(card, read, max_tokens)
    for fallback in fallbacks:
        with contextlib.suppress(BudgetExceeded):  # of unknown cost: not used under a budget
            usd = max(usd, Ledger.worst_cost(fallback, read, max_tokens))
    return Need(usd, tokens)


def _add(first: Need, second: Need) -> Need:
    return Need(first.usd + second.usd, first.tokens + second.tokens)


def _multiply(count: int, need: Need) -> Need:
    return Need(count * need.usd, count * need.tokens)
