"""What an item may take at the most, before anybody is asked; and what it took, afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from odar.agents.ledger import Ledger
from odar.agents.prompt_size import most_tokens
from odar.agents.terms import agent_terms
from odar.batch.limits import Amount, Needs
from odar.engine import Odar
from odar.errors import BudgetExceeded
from odar.types import Call, Query, Step

_BYTES_PER_TOKEN = 4
"""Of a proposal that the verifier will read: nobody has written it yet."""


def worst_case(odar: Odar, query: Query, steps: Iterable[tuple[Step, int]]) -> tuple[Needs, float | None]:
    """The most that these steps, each so many times, can take for one query.

    Requests and tokens by provider, and money, None where nobody knows. Where an agent may choose among models, the
    dearest counts, and each provider as if it were chosen.
    """
    needs: Counter[tuple[str, str]] = Counter()
    total: float | None = 0.0
    for step, count in steps:
        dearest: float | None = 0.0
        for card in odar.cards[step.role]:
            terms = agent_terms(odar.settings.agent(step.role), card, query.options, None)
            longest = terms.sampling.max_tokens or 0
            draft = "x" * _BYTES_PER_TOKEN * (odar.settings.fast.max_tokens if step is Step.VERIFY else 0)
            messages = odar.prompts[step].messages(query, draft, draft)
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
    return {name: Amount(needs[name, "requests"], needs[name, "tokens"]) for name in providers}, total


def used(calls: Iterable[Call], needs: Needs, attempts: int) -> Needs:
    """What the bill says, by provider. A failed call may have been tried as often as is allowed, and unknown tokens
    may have been the most."""
    requests: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    unknown: set[str] = set()
    for call in calls:
        requests[call.provider] += attempts if call.failed else 1 + call.retries
        if call.usage.input is None or call.usage.output is None:
            unknown.add(call.provider)
        else:
            tokens[call.provider] += call.usage.input + call.usage.output
    return {
        name: Amount(count, max(tokens[name], needs[name].tokens if name in unknown and name in needs else 0))
        for name, count in requests.items()
    }
