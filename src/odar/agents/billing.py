"""A request to a provider, on the ledger from the first moment to the last (SPEC 6.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from odar.agents.ledger import Ledger
from odar.catalogue import ModelCard
from odar.errors import ProviderError, ProviderTimeout, one_line
from odar.providers.base import Message, Reply, Request
from odar.types import CANCELLED, NO_USAGE, Call, Step, Usage

GRACE_S = 0.5
"""A provider keeps its own time; one that does not is cut off this much later."""


async def billed(
    ledger: Ledger,
    step: Step,
    card: ModelCard,
    request: Request,
    read: Sequence[Message],
    ask: Callable[[], Awaitable[Reply]],
    *,
    scoring: bool = False,
) -> Reply:
    """Ask, with the most it can cost held back before, and what it did cost written down after.

    Args:
        ledger: whose limits hold; ask it first whether this is affordable.
        step: what it is for.
        card: the model that is asked.
        request: what is asked of it.
        read: everything the model is billed for reading.
        ask: sends the request.
        scoring: whether a text is scored, rather than written.

    Raises:
        ProviderError: it failed; that is on the bill too.
    """
    held = ledger.reserve(card, read, request.sampling.max_tokens, request.n)
    started = ledger.seconds()

    def settle(samples: int, usage: Usage, retries: int = 0, error: str | None = None) -> None:
        cost = card.price.cost(usage) if card.price else (0.0 if usage == NO_USAGE else None)
        seconds = ledger.seconds() - started
        call = Call(step, card.provider, card.name, samples, usage, cost, seconds, retries, error, started, scoring)
        ledger.settle(held, call)

    try:
        reply = await _within(card.provider, request.timeout_s, ask)
    except ProviderError as error:
        usage = Usage() if error.may_be_billed else NO_USAGE
        settle(request.n if error.reached else 0, usage, error.retries, one_line(error))
        raise
    except BaseException:
        settle(request.n, Usage(), error=CANCELLED)
        raise
    # Some servers send more completions than were asked for.
    settle(max(1, min(len(reply.completions), request.n)), reply.usage, reply.retries)
    return reply


async def _within(provider: str, timeout_s: float, ask: Callable[[], Awaitable[Reply]]) -> Reply:
    try:
        async with asyncio.timeout(timeout_s + GRACE_S):
            return await ask()
    except TimeoutError:
        raise ProviderTimeout(
            f"{provider} gave no answer within {timeout_s:g} s", provider=provider, retryable=True
        ) from None
