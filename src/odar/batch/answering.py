"""The work of `odar batch`: a question becomes a row with its answer, or with what went wrong."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from odar.agents.ledger import Ledger
from odar.agents.prompt_size import most_tokens
from odar.agents.terms import agent_terms
from odar.batch.executor import Item, Outcome, Work
from odar.batch.journal import Memo
from odar.batch.limits import Amount, Needs
from odar.batch.questions import Question, digest_of
from odar.batch.replies import RememberingProvider, replies_kept_in
from odar.engine import Odar
from odar.errors import BudgetExceeded, OdarError, ProviderError
from odar.settings import Settings
from odar.store.record import Record
from odar.store.store import Store, open_store
from odar.types import NO_USAGE, Answer, Call, Path, Spend, Step

_BYTES_PER_TOKEN = 4
"""Of a proposal that the verifier will read: nobody has written it yet."""


@dataclass(frozen=True, slots=True)
class Answering:
    """Opens an engine and the store of traces; can be sent to another machine.

    Args:
        settings: keys are not in them: each machine finds its own (`api_key_env`, `api_key_file`).
        seed: for questions without one of their own.
    """

    settings: Settings
    seed: int | None = None

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Work]:
        """The work, for as long as the context is open."""
        store = open_store(self.settings) if self.settings.store.enabled else None
        try:
            async with Odar(self.settings, guard=RememberingProvider) as odar:

                async def work(item: Item, memo: Memo) -> Outcome:
                    with replies_kept_in(memo):
                        return await answer(odar, item, self.seed, store)

                yield work
        finally:
            if store is not None:
                await store.close()


async def answer(odar: Odar, item: Item, seed: int | None, store: Store | None = None) -> Outcome:
    """Ask one question; whatever ODAR raises on purpose becomes an error in the row."""
    question: Question = item.payload
    try:
        given = await odar.aask(
            question.query,
            path=question.path,
            seed=seed if question.seed is None else question.seed,
            max_cost_usd=question.max_cost_usd,
        )
    except OdarError as error:
        return Outcome(_error_row(item, error), item.needs)
    if store is not None:
        store.put(Record(question.query, given))
    return Outcome(_row(item, given), _used(given.trace.calls, item.needs, odar.settings.retry.attempts))


def make_items(odar: Odar, questions: Iterable[Question], seed: int | None = None) -> list[Item]:
    """Work items: each with what it may need and cost at the most."""
    items = []
    for question in questions:
        needs, cost = worst_case(odar, question)
        items.append(Item(question.id, question, digest_of(question, odar, seed), needs, cost))
    return items


def worst_case(odar: Odar, question: Question) -> tuple[Needs, float | None]:
    """The most that one question can take: requests and tokens by provider, and money, None where nobody knows.

    Where an agent may choose among models, the dearest counts, and each provider as if it were chosen.
    """
    needs: Counter[tuple[str, str]] = Counter()
    total: float | None = 0.0
    for step, count in _steps(odar, question):
        dearest: float | None = 0.0
        for card in odar.cards[step.role]:
            terms = agent_terms(odar.settings.agent(step.role), card, question.query.options, None)
            longest = terms.sampling.max_tokens or 0
            draft = "x" * _BYTES_PER_TOKEN * (odar.settings.fast.max_tokens if step is Step.VERIFY else 0)
            messages = odar.prompts[step].messages(question.query, draft, draft)
            needs[card.provider, "requests"] += count
            needs[card.provider, "tokens"] += count * (most_tokens(messages) + longest)
            try:
                cost = count * Ledger.worst_cost(card, messages, longest)
            except BudgetExceeded:
                dearest = None
            else:
                dearest = None if dearest is None else max(dearest, cost)
        total = None if total is None or dearest is None else total + dearest
    providers = {name for name, _ in needs}
    by_provider = {name: Amount(needs[name, "requests"], needs[name, "tokens"]) for name in providers}
    caps = [x for x in (question.max_cost_usd, odar.settings.limits.max_cost_usd, total) if x is not None]
    return by_provider, min(caps, default=None)


def _steps(odar: Odar, question: Question) -> Sequence[tuple[Step, int]]:
    """The dearest way through each path: where the fast agent fails, the slow one solves instead (SPEC 6.3)."""
    n, samples = question.query.options.n, odar.settings.routing.samples
    match question.path:
        case Path.SIMPLE:
            return (Step.ANSWER, n), (Step.SOLVE, n)
        case Path.MEDIUM:
            return (Step.ANSWER, 1), (Step.VERIFY, n)
        case _:
            return (Step.ANSWER, n), (Step.SOLVE, max(samples, n))


def _used(calls: Iterable[Call], needs: Needs, attempts: int) -> Needs:
    """What the bill says, by provider. A failed call may have been tried as often as is allowed, and unknown tokens
    may have been the most."""
    requests: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    unknown: set[str] = set()
    for call in calls:
        requests[call.provider] += attempts if call.error not in (None, "cancelled") else 1 + call.retries
        if call.usage.input is None or call.usage.output is None:
            unknown.add(call.provider)
        else:
            tokens[call.provider] += call.usage.input + call.usage.output
    return {
        name: Amount(count, max(tokens[name], needs[name].tokens if name in unknown and name in needs else 0))
        for name, count in requests.items()
    }


def _row(item: Item, given: Answer) -> dict[str, Any]:
    trace = given.trace
    return {
        "id": item.key,
        "answer": given.answer,
        "text": given.text,
        "path": trace.decision.path.value,
        "difficulty": trace.decision.difficulty,
        **_spent(trace.spend),
        "degradations": list(trace.degradations),
        "trace_id": trace.id,
        "error": None,
        "digest": item.digest,
    }


def _error_row(item: Item, error: OdarError) -> dict[str, Any]:
    told: dict[str, Any] = {"type": type(error).__name__, "message": " ".join(str(error).split())}
    if isinstance(error, ProviderError):
        told |= {"provider": error.provider, "status": error.status, "retryable": error.retryable}
    return {
        **dict.fromkeys(("id", "answer", "text", "path", "difficulty")),
        "id": item.key,
        **_spent(error.spend or Spend(0, NO_USAGE, 0.0, 0.0)),
        "degradations": [],
        "trace_id": None,
        "error": told,
        "digest": item.digest,
    }


def _spent(spend: Spend) -> dict[str, Any]:
    return {
        "calls": spend.calls,
        "cost_usd": spend.cost_usd,
        "usage": dataclasses.asdict(spend.usage),
        "seconds": round(spend.seconds, 3),
    }
