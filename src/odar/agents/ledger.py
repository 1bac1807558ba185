"""The ledger counts calls, tokens, dollars and seconds; it refuses a call before a limit is passed (SPEC 6.1, 6.2).

The most that a call can cost is reserved before it, and replaced by its cost after it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from odar.catalogue import ModelCard
from odar.conversation import Message
from odar.errors import BudgetExceeded, DeadlineExceeded, ProviderError, ProviderTimeout, one_line
from odar.providers.base import Reply, Request
from odar.types import CANCELLED, NO_USAGE, Call, Spend, Step, Usage

GRACE_S = 0.5
"""A provider enforces its own timeout; one that does not is cancelled this much later."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may spend; None is no limit (SPEC 6.2)."""

    deadline_s: float
    calls: int | None = None
    cost_usd: float | None = None
    retries: int = 6
    """Retries of all calls together."""
    configured_deadline_s: float | None = field(default=None, repr=False, compare=False)
    """The operator's deadline, if the request has a shorter one."""

    def tightened(
        self, deadline_s: float | None = None, calls: int | None = None, cost_usd: float | None = None
    ) -> Limits:
        """Return the stricter of these limits and a request's own: a request cannot loosen the configured ones.

        >>> Limits(120, calls=6).tightened(deadline_s=20, calls=9, cost_usd=0.5)
        Limits(deadline_s=20, calls=6, cost_usd=0.5, retries=6)
        """
        return Limits(
            deadline_s=min(x for x in (self.deadline_s, deadline_s) if x is not None),
            calls=min((x for x in (self.calls, calls) if x is not None), default=None),
            cost_usd=min((x for x in (self.cost_usd, cost_usd) if x is not None), default=None),
            retries=self.retries,
            configured_deadline_s=self.deadline_s,
        )


class CallReservation(NamedTuple):
    """Calls and money held back for a call that is under way."""

    calls: int
    cost_usd: float


@dataclass(slots=True)
class Ledger:
    """One request's bill."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    calls: list[Call] = field(default_factory=list)
    _held: list[CallReservation] = field(default_factory=list)
    _at_risk_usd: float = 0.0
    """Reserved for calls of unknown cost, such as one that timed out: they may still be billed."""
    _retries: int = 0
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    @property
    def limited(self) -> bool:
        """Whether calls or money are limited."""
        return self.limits.calls is not None or self.limits.cost_usd is not None

    def exclude(self, seconds: float) -> None:
        """Take time off the deadline's clock, such as that of a download."""
        self._started += seconds

    def seconds(self) -> float:
        """Time since the request began, without what was excluded."""
        return self.clock() - self._started

    def time_left(self) -> float:
        """Return seconds until the deadline, never below 0."""
        return max(0.0, self.limits.deadline_s - self.seconds())

    def call_timeout(self, wanted_s: float) -> tuple[float, bool]:
        """Return how long a call may take, and whether that is less than the operator gives it.

        It is less if the request has its own deadline, or if little of the deadline is left: then a timeout does
        not mean that the provider is down.
        """
        left = self.time_left()
        if left > wanted_s:
            return wanted_s, False
        configured = self.limits.configured_deadline_s or self.limits.deadline_s
        return left, self.limits.deadline_s < configured or left < min(wanted_s, configured) / 2

    def take_retry(self) -> bool:
        """Return whether a call may be tried again; each time counts for all calls of the question."""
        self._retries += 1
        return self._retries <= self.limits.retries

    def affordable(self, card: ModelCard, messages: Sequence[Message], max_tokens: int | None, wanted: int) -> int:
        """Return how many of the wanted samples fit into what is left.

        Raises:
            BudgetExceeded: not one of them does.
        """
        if self.time_left() <= 0:
            raise DeadlineExceeded(f"the deadline of {self.limits.deadline_s:g} s has passed")
        count = wanted
        if self.limits.calls is not None:
            used = sum(call.samples for call in self.calls) + sum(held.calls for held in self._held)
            count = min(count, self.limits.calls - used)
            if count < 1:
                raise BudgetExceeded(f"max_calls = {self.limits.calls} is used up; raise it or take a simpler path")
        if self.limits.cost_usd is not None:
            each = self.worst_cost(card, messages, max_tokens)
            left = self.limits.cost_usd - self.charged_usd()
            # Tolerance for rounding errors.
            count = min(count, int(min(count, (left + 1e-12) / each)) if each else count)
            if count < 1:
                raise BudgetExceeded(
                    f"max_cost = ${self.limits.cost_usd:g} leaves ${max(left, 0):.6f}, and one call to {card.name} "
                    f"can cost ${each:.6f}; raise it, or lower max_tokens = {max_tokens}"
                )
        return count

    def reserve(
        self, card: ModelCard, messages: Sequence[Message], max_tokens: int | None, samples: int
    ) -> CallReservation:
        """Reserve the most that these samples can cost. Call `affordable` first."""
        limited = self.limits.cost_usd is not None
        cost = samples * self.worst_cost(card, messages, max_tokens) if limited else 0.0
        reservation = CallReservation(samples, cost)
        self._held.append(reservation)
        return reservation

    def settle(self, reservation: CallReservation, call: Call | None) -> None:
        """Replace a reservation by what really happened; None if the call was never sent."""
        self._held.remove(reservation)
        if call is not None:
            self.calls.append(call)
            if call.cost_usd is None:
                self._at_risk_usd += reservation.cost_usd

    async def bill(
        self,
        step: Step,
        card: ModelCard,
        request: Request,
        read: Sequence[Message],
        ask: Callable[[Request], Awaitable[Reply]],
        *,
        scoring: bool = False,
    ) -> Reply:
        """Send a request within the limits: reserve the most it can cost before, enter its real cost after.

        Ask `affordable` first. `read` is everything the model is billed for reading. `ask` gets the request with
        its timeout shortened to the time that is left. `scoring`: a text is scored instead of written.

        Raises:
            ProviderError: it failed; that is in the ledger too.
        """
        timeout_s, short = self.call_timeout(request.timeout_s)
        request = replace(
            request,
            timeout_s=timeout_s,
            short_timeout=short,
            retry_billed=not self.limited,
            take_retry=self.take_retry,
        )
        held = self.reserve(card, read, request.sampling.max_tokens, request.n)
        started = self.seconds()
        samples, usage, retries = request.n, Usage(), 0
        error: str | None = CANCELLED
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                reply = await ask(request)
            # Some servers send more completions than were asked for.
            samples, error = max(1, min(len(reply.completions), request.n)), None
            usage, retries = reply.usage, reply.retries
            return reply
        except TimeoutError:
            error = f"{card.provider} gave no answer within {timeout_s:g} s"
            raise ProviderTimeout(error, provider=card.provider, retryable=True) from None
        except ProviderError as failure:
            samples, retries, error = request.n if failure.reached else 0, failure.retries, one_line(failure)
            usage = Usage() if failure.may_be_billed else NO_USAGE
            raise
        finally:
            cost = card.price.cost(usage) if card.price else (0.0 if usage == NO_USAGE else None)
            took, model = self.seconds() - started, card.name
            call = Call(step, card.provider, model, samples, usage, cost, took, retries, error, started, scoring)
            self.settle(held, call)

    def spend(self) -> Spend:
        """Return the sums so far."""
        usage: Usage = sum((call.usage for call in self.calls), NO_USAGE)
        costs = [call.cost_usd for call in self.calls if call.cost_usd is not None]
        cost = math.fsum(costs) if len(costs) == len(self.calls) else None
        return Spend(sum(call.samples for call in self.calls), usage, cost, self.seconds())

    def charged_usd(self) -> float:
        """Return an upper bound of the cost: for calls of unknown cost, the most they can have cost."""
        held = sum(held.cost_usd for held in self._held)
        spent = sum(call.cost_usd or 0.0 for call in self.calls)
        return held + spent + self._at_risk_usd

    @staticmethod
    def worst_cost(card: ModelCard, messages: Sequence[Message], max_tokens: int | None) -> float:
        """Return the most one sample can cost: an answer has at most max_tokens."""
        if max_tokens is None:
            raise BudgetExceeded(f"max_cost cannot be kept without max_tokens; set how long {card.name} may answer")
        if card.price is None:
            raise BudgetExceeded(
                f"the price of {card.name} is unknown, so max_cost cannot be kept; "
                f'add price = {{ input = …, output = … }} to [models."{card.name}"] in odar.toml'
            )
        price, size = card.price, token_upper_bound(messages)
        if price.up_to is not None and size > price.up_to:
            raise BudgetExceeded(
                f"the price of {card.name} holds for prompts of up to {price.up_to:,} tokens, and this one may "
                f"have {size:,}, so max_cost cannot be kept; shorten it"
            )
        if not price.free and price.written is None and writes_cache(messages):
            raise BudgetExceeded(
                f"what {card.name} charges for cache_control is unknown, so max_cost cannot be kept; "
                f'add written = … to the price of [models."{card.name}"] in odar.toml'
            )
        return (size * price.max_input_price + max_tokens * price.output) / 1_000_000


IMAGE_TOKENS = 4096
"""More than any provider in the catalogue bills for one image."""
TURN_TOKENS = 16
"""Room for what a chat template puts around a turn."""
_ELSEWHERE = frozenset({"file_id", "file_url"})
"""Fields that name a file which is not part of the request."""


def token_upper_bound(messages: Iterable[Message]) -> int:
    """Return an upper bound of the tokens: a token has at least one byte, and images count by number.

    A turn that is sent as the client wrote it counts with all it holds, not only with what we understood of it.

    >>> token_upper_bound([Message("user", "hello")])
    21

    Raises:
        BudgetExceeded: the conversation refers to a file of unknown size.
    """
    total = 0
    for message in messages:
        understood = len("".join([message.text, *map(str, message.tool_calls)]).encode("utf-8", "replace"))
        understood += IMAGE_TOKENS * len(message.images)
        total += TURN_TOKENS + max(understood, _bytes(message.wire.value) if message.wire else 0)
    return total


def writes_cache(messages: Iterable[Message]) -> bool:
    """Return whether the client asks the provider to keep a part of the conversation in its cache."""
    return any(message.wire is not None and _mentions(message.wire.value, "cache_control") for message in messages)


def _bytes(value: Any) -> int:
    """Bytes of everything in a JSON value that can be read as text, and IMAGE_TOKENS for each image in it."""
    match value:
        case str():
            return IMAGE_TOKENS if value.startswith("data:image/") else len(value.encode("utf-8", "replace"))
        case Mapping():
            kind, source = value.get("type"), value.get("source") or value.get("image_url")
            address = source.get("url") if isinstance(source, Mapping) else source
            elsewhere = isinstance(address, str) and not address.startswith("data:")  # the provider fetches it
            if _ELSEWHERE & value.keys() or (kind == "document" and elsewhere):
                raise BudgetExceeded(
                    "max_cost cannot be kept: the conversation refers to a file whose size is not known here; "
                    "send its content instead"
                )
            inline = kind == "base64" and str(value.get("media_type", "")).startswith("image/")
            if inline or (kind in ("image", "image_url") and elsewhere):
                return IMAGE_TOKENS
            return sum(len(str(name)) + _bytes(each) for name, each in value.items())
        case list() | tuple():
            return sum(map(_bytes, value))
        case _:
            return len(str(value))


def _mentions(value: Any, name: str) -> bool:
    if isinstance(value, Mapping):
        return name in value or any(_mentions(each, name) for each in value.values())
    return isinstance(value, list | tuple) and any(_mentions(each, name) for each in value)
