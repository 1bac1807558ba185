"""The most that a request can cost, path by path, for keys whose money, tokens or requests are limited."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Any

from odar.agents.ledger import Ledger, most_tokens
from odar.agents.team import Team
from odar.conversation import Message
from odar.engine import Odar
from odar.errors import BudgetExceeded
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError
from odar.store.budgets import Need, RateLimit
from odar.types import Path, Query, Role, Step

_DRAFT_BYTES = 4
"""Bytes that a verifier reads for each token of a draft, roughly: the ledger looks at the draft itself."""


def with_length(request: ChatRequest, max_tokens: int) -> ChatRequest:
    """The request with a longest answer; without one nothing bounds what it costs."""
    if request.query.options.max_tokens is not None:
        return request
    options = dataclasses.replace(request.query.options, max_tokens=max_tokens)
    return dataclasses.replace(request, query=dataclasses.replace(request.query, options=options))


def needs_of(odar: Odar, query: Query, options: dict[str, Any], *, priced: bool) -> list[tuple[Path | None, Need]]:
    """What each path that may be taken can need at the most, the dearest first.

    Args:
        odar: the engine that will be asked.
        query: the question.
        options: how it will be asked: `model`, `path`, `paths`.
        priced: whether money is limited, so that a price must be known.

    Raises:
        ApiError: 403, a price that must be known is not.
    """
    try:
        if (model := options.get("model")) is not None:
            team = odar.plain_team(query, model)
            return [(None, _times(query.options.n, _need(team, Step.ANSWER, priced)))]
        team = odar.team(query, odar.ledger(), assignment=odar.dispatcher.assign(query))
        forced = options.get("path")
        allowed = (
            [Path(forced)] if forced is not None else [p for p in Path if p in options.get("paths", tuple(Path))]
        )
        needs = [(path, _path_need(team, path, odar.settings.routing.samples, priced)) for path in allowed]
    except BudgetExceeded as error:
        raise ApiError(403, f"this key has a budget, and {error}", "price_unknown", "model") from None
    return list(reversed(needs))


def rate_headers(rates: Iterable[RateLimit]) -> list[tuple[bytes, bytes]]:
    """A key's limits a minute in the headers that OpenAI's clients read.

    >>> rate_headers([RateLimit("requests", 60, 59)])[2]
    (b'x-ratelimit-reset-requests', b'1.000s')
    """
    return [
        header
        for rate in rates
        for header in (
            (f"x-ratelimit-limit-{rate.of}".encode(), b"%d" % max(1, rate.per_minute)),
            (f"x-ratelimit-remaining-{rate.of}".encode(), b"%d" % rate.remaining),
            (f"x-ratelimit-reset-{rate.of}".encode(), b"%.3fs" % rate.reset_s),
        )
    ]


def _path_need(team: Team, path: Path, samples: int, priced: bool) -> Need:
    n, fast = team.query.options.n, _need(team, Step.ANSWER, priced)
    if path is Path.SIMPLE:
        return _times(n, fast)
    step, count = (Step.VERIFY, n) if path is Path.MEDIUM else (Step.SOLVE, max(samples, n))
    slow = _times(count, _need(team, step, priced))
    if path is Path.HARD and team.settings.fusion.judge:
        judge = _need(team, Step.SOLVE, priced, drafts=count + 1)
        slow = Need(slow.usd + judge.usd, slow.tokens + judge.tokens)
    return Need(fast.usd + slow.usd, fast.tokens + slow.tokens)


def _need(team: Team, step: Step, priced: bool, drafts: int = 0) -> Need:
    """One call of a step; a judge reads so many drafts besides."""
    card, *fallbacks = team.models(step.role)
    max_tokens = team.terms(step.role).sampling.max_tokens
    messages = team.prompts[step].messages(team.query, "", "")
    if step is Step.VERIFY:
        draft = _DRAFT_BYTES * (team.terms(Role.FAST).sampling.max_tokens or 0)
        messages = (*messages, Message("assistant", "x" * draft))
    if drafts:
        longest = max(team.terms(role).sampling.max_tokens or 0 for role in Role)
        messages = (*messages, Message("assistant", "x" * (_DRAFT_BYTES * longest * drafts)))
    read = team.read(messages)
    usd = Ledger.worst_cost(card, read, max_tokens) if priced else 0.0
    for other in fallbacks if priced else ():  # one whose cost is unknown is not asked under a budget
        with contextlib.suppress(BudgetExceeded):
            usd = max(usd, Ledger.worst_cost(other, read, max_tokens))
    return Need(usd, most_tokens(read) + (max_tokens or 0))


def _times(count: int, need: Need) -> Need:
    return Need(count * need.usd, count * need.tokens)
