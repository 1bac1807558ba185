"""Budget ledger of one request: calls, tokens, dollars and seconds, and their limits (SPEC 6.1, 6.2).

The maximum cost of a call is reserved before it, and replaced by its cost after it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from odar.catalogue import ModelCard
from odar.conversation import Message
from odar.errors import BudgetExceeded, DeadlineExceeded, ProviderError, ProviderTimeout, one_line, summary_of
from odar.providers.base import Reply, Request
from odar.types import CANCELLED, NO_USAGE, Ask, Call, Spend, Usage

MAX_RETRIES = 6
"""Maximum number of retries of all calls of one question."""
GRACE_S = 0.5
"""Seconds after which a provider that does not enforce its own timeout is cancelled."""


CallReservation = tuple[int, float]
"""Calls and dollars reserved for a running call."""


@dataclass(slots=True)
class Ledger:
    """The calls of one request, what is reserved for running ones, and its limits; None is no limit (SPEC 6.2)."""

    deadline_s: float
    max_calls: int | None = None
    max_cost_usd: float | None = None
    configured_deadline_s: float | None = None
    """The operator's deadline, if the request has a shorter one."""
    clock: Callable[[], float] = time.monotonic
    calls: list[Call] = field(default_factory=list)
    _reservations: list[CallReservation] = field(default_factory=list)
    _retries: int = 0
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def exclude_time(self, seconds: float) -> None:
        """Do not count some time towards the deadline, such as that of a download."""
        self._started += seconds

    def seconds(self) -> float:
        """The time since the request began, without excluded time."""
        return self.clock() - self._started

    def time_left(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self.deadline_s - self.seconds())

    def call_timeout(self, wanted_s: float) -> tuple[float, bool]:
        """The timeout of a call, and whether it is shorter than the operator's.

        It is shorter if the request has its own deadline, or if little of the deadline is left: then a timeout does
        not mean that the provider is down.
        """
        left = self.time_left()
        if left > wanted_s:
            return wanted_s, False
        configured = self.configured_deadline_s or self.deadline_s
        return left, self.deadline_s < configured or left < min(wanted_s, configured) / 2

    def take_retry(self) -> bool:
        """Count a retry, and return whether it is within the limit."""
        self._retries += 1
        return self._retries <= MAX_RETRIES

    def affordable(self, card: ModelCard, messages: Sequence[Message], max_tokens: int | None, wanted: int) -> int:
        """How many of the wanted samples fit the remaining limits.

        Raises:
            BudgetExceeded: not one of them does.
        """
        if self.time_left() <= 0:
            raise DeadlineExceeded(f"the deadline of {self.deadline_s:g} s has passed")
        count = wanted
        if (calls_left := self.calls_left()) is not None:
            count = min(count, calls_left - sum(calls for calls, _ in self._reservations))
            if count < 1:
                raise BudgetExceeded(f"max_calls = {self.max_calls} is used up; raise it or take a simpler path")
        if self.max_cost_usd is not None:
            sample_usd = worst_cost(card, messages, max_tokens)
            left = self.max_cost_usd - self.charged_usd()
            if sample_usd:
                count = int(min(count, (left + 1e-12) / sample_usd))  # with a tolerance for rounding errors
            if count < 1:
                raise BudgetExceeded(
                    f"max_cost_usd = ${self.max_cost_usd:g} leaves ${max(left, 0):.6f}, and one call to "
                    f"{card.name} can cost ${sample_usd:.6f}; raise it, or lower max_tokens = {max_tokens}"
                )
        return count

    def calls_left(self) -> int | None:
        """How many calls are left; None without a limit."""
        if self.max_calls is None:
            return None
        return self.max_calls - sum(call.samples for call in self.calls)

    def usd_left(self) -> float | None:
        """How many dollars are left; None without a limit."""
        return None if self.max_cost_usd is None else self.max_cost_usd - self.charged_usd()

    def reserve(
        self, card: ModelCard, messages: Sequence[Message], max_tokens: int | None, samples: int
    ) -> CallReservation:
        """Reserve the maximum cost of these samples. Call `affordable` first."""
        limited = self.max_cost_usd is not None
        cost = samples * worst_cost(card, messages, max_tokens) if limited else 0.0
        reservation = (samples, cost)
        self._reservations.append(reservation)
        return reservation

    def charge(self, reservation: CallReservation, call: Call) -> None:
        """Replace a reservation by the call; if its cost is unknown, it may still be billed: the dollars stay."""
        self._reservations.remove(reservation)
        self.calls.append(call)
        if call.cost_usd is None:
            self._reservations.append((0, reservation[1]))

    async def bill(
        self,
        ask: Ask,
        card: ModelCard,
        request: Request,
        billed: Sequence[Message],
        send: Callable[[Request], Awaitable[Reply]],
    ) -> Reply:
        """Send a request within the limits, and add the call to the ledger. Call `affordable` first.

        Args:
            ask: the agent and its task.
            card: the model.
            request: what is sent, with a timeout of at most the remaining time.
            billed: all messages that are billed as input.
            send: sends the request.

        Raises:
            ProviderError: it failed; the ledger contains the failed call.
        """
        # its time, and the most that it can cost
        timeout_s, short = self.call_timeout(request.timeout_s)
        request = replace(
            request,
            timeout_s=timeout_s,
            short_timeout=short,
            retry_billed=self.max_calls is None and self.max_cost_usd is None,
            take_retry=self.take_retry,
        )
        reservation = self.reserve(card, billed, request.sampling.max_tokens, request.n)
        started = self.seconds()
        call = Call(
            step=ask.step,
            agent=ask.agent,
            provider=card.provider,
            model=card.name,
            samples=request.n,
            usage=Usage(),
            cost_usd=None,
            seconds=0.0,
            error=CANCELLED,  # unless it returns or fails
            began_s=started,
            error_summary=CANCELLED,
        )
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                reply = await send(request)
            # Some servers send more completions than were asked for.
            samples = max(1, min(len(reply.completions), request.n))
            call = replace(
                call, samples=samples, usage=reply.usage, retries=reply.retries, error=None, error_summary=None
            )
            return reply
        except TimeoutError:
            error = f"{card.provider} gave no answer within {timeout_s:g} s"
            call = replace(call, error=error, error_summary=error)
            raise ProviderTimeout(error, provider=card.provider, retryable=True) from None
        except ProviderError as failure:
            call = replace(
                call,
                samples=request.n if failure.reached else 0,
                usage=Usage() if failure.may_be_billed else NO_USAGE,
                retries=failure.retries,
                error=one_line(failure),
                error_summary=summary_of(failure),
            )
            raise
        finally:
            # charge what it cost, which is unknown without a price or a report of its tokens
            cost = card.price.cost(call.usage) if card.price else (0.0 if call.usage == NO_USAGE else None)
            self.charge(reservation, replace(call, cost_usd=cost, seconds=self.seconds() - started))

    def spend(self) -> Spend:
        usage: Usage = sum((call.usage for call in self.calls), NO_USAGE)
        costs = [call.cost_usd for call in self.calls if call.cost_usd is not None]
        cost = math.fsum(costs) if len(costs) == len(self.calls) else None
        return Spend(sum(call.samples for call in self.calls), usage, cost, self.seconds())

    def charged_usd(self) -> float:
        """An upper bound of the cost, with the maximum for running calls and those of unknown cost."""
        reserved = sum(usd for _, usd in self._reservations)
        spent = sum(call.cost_usd or 0.0 for call in self.calls)
        return reserved + spent


MAX_IMAGE_TOKENS = 4096
"""Upper bound of the tokens of one image, for every provider in the catalogue."""
DRAFT_BYTES = 4
"""Estimated bytes of each token of an answer that is not written yet; one that exists is measured."""
TURN_TOKENS = 16
"""Upper bound of the tokens that a chat template adds to a turn."""
_FILE_REFERENCES = frozenset({"file_id", "file_url"})
"""Fields that refer to a file which is not part of the request."""


def worst_cost(card: ModelCard, messages: Sequence[Message], max_tokens: int | None, draft: int = 0) -> float:
    """The maximum cost of one sample of at most `max_tokens`, which also reads a draft of so many tokens.

    Raises:
        BudgetExceeded: it is unknown.
    """
    if max_tokens is None:
        raise BudgetExceeded(f"max_cost_usd cannot be kept without max_tokens; set how long {card.name} may answer")
    if card.price is None:
        raise BudgetExceeded(
            f"the price of {card.name} is unknown, so max_cost_usd cannot be kept; "
            f'add price = {{ input = …, output = … }} to [models."{card.name}"] in odar.toml'
        )
    price = card.price
    size = token_upper_bound(messages) + draft
    if price.up_to is not None and size > price.up_to:
        raise BudgetExceeded(
            f"the price of {card.name} holds for prompts of up to {price.up_to:,} tokens, and this one may "
            f"have {size:,}, so max_cost_usd cannot be kept; shorten it"
        )
    if not price.free and price.written is None and writes_cache(messages):
        raise BudgetExceeded(
            f"what {card.name} charges for cache_control is unknown, so max_cost_usd cannot be kept; "
            f'add written = … to the price of [models."{card.name}"] in odar.toml'
        )
    return (size * price.max_input_price + max_tokens * price.output) / 1_000_000


def token_upper_bound(messages: Iterable[Message]) -> int:
    """An upper bound of the tokens: a token has at least one byte, and images count by number.

    A turn that is sent as the client wrote it counts with all its fields, including those that ODAR does not read.

    >>> token_upper_bound([Message("user", "hello")])
    21

    Raises:
        BudgetExceeded: the conversation refers to a file of unknown size.
    """
    return sum(input_bound(message)[0] for message in messages)


def draft_tokens(card: ModelCard, max_tokens: int) -> int:
    """An upper bound of the tokens that a model reads of drafts of at most so many tokens, none written yet.

    >>> draft_tokens(ModelCard("m", "p", "m", context=8192), 200_000_000)
    8192
    """
    tokens = TURN_TOKENS + DRAFT_BYTES * max_tokens if max_tokens else 0
    return min(tokens, card.context) if card.context else tokens


def writes_cache(messages: Iterable[Message]) -> bool:
    """Whether the client asks the provider to cache a part of the conversation."""
    return any(input_bound(message)[1] for message in messages)


def input_bound(message: Message) -> tuple[int, bool]:
    """An upper bound of the tokens of a message, and whether the client asks the provider to cache it."""
    if message.bound is None:
        text = "".join([message.text, *map(str, message.tool_calls)]) if message.tool_calls else message.text
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        size += MAX_IMAGE_TOKENS * len(message.images)
        cached = False
        if message.wire:
            size = max(size, _json_tokens(message.wire.value))
            cached = _has_key(message.wire.value, "cache_control")
        object.__setattr__(message, "bound", (TURN_TOKENS + size, cached))
    found: tuple[int, bool] | None = message.bound
    assert found is not None
    return found


def _json_tokens(value: Any) -> int:
    """An upper bound of the tokens of a JSON value: its bytes, and MAX_IMAGE_TOKENS for each image in it."""
    match value:
        case str():
            return MAX_IMAGE_TOKENS if value.startswith("data:image/") else len(value.encode("utf-8", "replace"))
        case Mapping():
            kind = value.get("type")
            source = value.get("source") or value.get("image_url")
            address = source.get("url") if isinstance(source, Mapping) else source
            fetched = isinstance(address, str) and not address.startswith("data:")  # by the provider
            if _FILE_REFERENCES & value.keys() or (kind == "document" and fetched):
                raise BudgetExceeded(
                    "max_cost_usd cannot be kept: the conversation refers to a file whose size is not known here; "
                    "send its content instead"
                )
            inline = kind == "base64" and str(value.get("media_type", "")).startswith("image/")
            if inline or (kind in ("image", "image_url") and fetched):
                return MAX_IMAGE_TOKENS
            return sum(len(str(name)) + _json_tokens(each) for name, each in value.items())
        case list() | tuple():
            return sum(map(_json_tokens, value))
        case _:
            return len(str(value))


def _has_key(value: Any, name: str) -> bool:
    if isinstance(value, Mapping):
        return name in value or any(_has_key(child, name) for child in value.values())
    return isinstance(value, list | tuple) and any(_has_key(child, name) for child in value)
