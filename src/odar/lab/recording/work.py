"""For work that uses an engine: maximum needs of an item, replies kept in a memo, an engine in each process.

`odar batch` keeps replies by request (`RememberingProvider`), `collect` keeps finished answers by agent and sample.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import replace

from odar.agents.ledger import Ledger, draft_tokens, token_upper_bound
from odar.agents.team import agent_request_template
from odar.catalogue import ModelCard
from odar.conversation import Message
from odar.engine import Odar
from odar.errors import BudgetExceeded
from odar.lab.recording.executor import Work
from odar.lab.recording.header import digest_json
from odar.lab.recording.journal import Memo, write_in_thread
from odar.lab.recording.limits import NOTHING, Amount, Needs
from odar.lab.recording.schema import sum_costs
from odar.providers.base import OnDelta, Provider, ProviderWrapper, Reply, Request
from odar.providers.replay import reply_from_json, reply_to_json
from odar.settings import Settings
from odar.types import Ask, Call, Query


def worst_case(odar: Odar, query: Query, asks: Iterable[Ask]) -> tuple[Needs, float | None]:
    """The maximum needs and cost of these requests; the cost is None if a price is unknown.

    If an agent may choose among models, the most expensive one counts for the cost, and all of them for the needs.
    """
    needs: dict[str, Amount] = {}
    costs: list[float | None] = []
    open_ended = odar.agents.prompts.is_open(query)
    prompts = odar.agents.prompts.choose(open_ended=open_ended)
    for ask in asks:
        drafted = odar.settings.fast.max_tokens if ask.verify else 0
        messages = prompts[ask.step].messages(query, "", "")
        settings = odar.settings.agent(ask.agent, open_ended=open_ended)
        choices = []
        for card in odar.agents.cards[ask.agent]:
            template = agent_request_template(settings, card, query.parameters, None)
            max_tokens = template.sampling.max_tokens or 0
            drafts = draft_tokens(card, drafted)
            need = Amount(ask.samples, ask.samples * (token_upper_bound(messages) + drafts + max_tokens))
            needs[card.provider] = needs.get(card.provider, NOTHING).plus(need)
            choices.append(worst_cost(card, messages, max_tokens, ask.samples, drafts))
        costs.append(None if None in choices else max(cost or 0.0 for cost in choices))
    return needs, sum_costs(costs)


def worst_cost(
    card: ModelCard, messages: Sequence[Message], max_tokens: int, count: int, drafts: int = 0
) -> float | None:
    """Dollars of `count` requests at most; None if the price is unknown."""
    try:
        return count * Ledger.worst_cost(card, messages, max_tokens, drafts)
    except BudgetExceeded:
        return None


def used_amounts(calls: Iterable[Call], needs: Needs, attempts: int) -> Needs:
    """Requests and tokens of some calls, by provider.

    A failed call counts with all allowed attempts, a provider with unknown tokens with at least its maximum.
    """
    used: dict[str, Amount] = {}
    unknown: set[str] = set()
    for call in calls:
        requests = attempts if call.failed else 1 + call.retries
        tokens = 0
        if call.usage.input is None or call.usage.output is None:
            unknown.add(call.provider)
        else:
            tokens = call.usage.input + call.usage.output
        used[call.provider] = used.get(call.provider, NOTHING).plus(Amount(requests, tokens))
    for name in unknown & needs.keys():
        used[name] = Amount(used[name].requests, max(used[name].tokens, needs[name].tokens))
    return used


_current_memo: ContextVar[Memo | None] = ContextVar("odar_memo", default=None)
"""The memo of the item that a task works on."""


@contextmanager
def use_memo(memo: Memo) -> Iterator[None]:
    """Answer requests from this memo if it holds a reply, in the context and in tasks started in it."""
    token = _current_memo.set(memo)
    try:
        yield
    finally:
        _current_memo.reset(token)


class RememberingProvider(ProviderWrapper):
    """A provider that makes no request twice for the same item; used as a guard of `Odar`."""

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        name = request_name(self.name, request)
        return await _recall_or_request(name, lambda: self._provider.complete(request, on_delta))


async def _recall_or_request(request: str, send: Callable[[], Awaitable[Reply]]) -> Reply:
    memo = _current_memo.get()
    if memo is None:
        return await send()
    name = f"{request}:{memo.requests[request]}"  # samples without a seed are several identical requests
    memo.requests[request] += 1
    if (kept := memo.recall(name)) is not None:
        return reply_from_json(kept)
    reply = await send()
    if any(completion.text.strip() or completion.tool_calls for completion in reply.completions):
        await write_in_thread(memo.keep, name, reply_to_json(reply))  # an empty one is asked for again
    return reply


def request_name(provider: str, request: Request) -> str:
    """The name of a request in a memo: a hash of everything but its timeout."""
    return digest_json([provider, replace(request, timeout_s=0.0)])


@asynccontextmanager
async def open_engine_work(
    settings: Settings,
    make_work: Callable[[Odar], Work],
    open_providers: Callable[[Settings], Mapping[str, Provider]] | None = None,
) -> AsyncIterator[Work]:
    """Opens an engine; a `partial` of it can be sent to another machine, which needs keys.

    `open_providers` opens providers to use in place of the configured ones.
    """
    providers = open_providers(settings) if open_providers else None
    async with Odar(settings, providers=providers, guard=RememberingProvider) as odar:
        yield make_work(odar)
