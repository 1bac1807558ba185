"""What an item of work takes from providers: the most before it starts, the actual amounts when it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from odar.agents.ledger import draft_tokens, token_upper_bound, worst_cost
from odar.agents.team import agent_request_template
from odar.engine import Odar
from odar.errors import BudgetExceeded
from odar.lab.recording.schema import sum_costs
from odar.lab.runs.limits import REQUESTS, TOKENS, Amounts
from odar.providers.http import ATTEMPTS
from odar.types import Ask, Call, Query


def worst_case(odar: Odar, query: Query, asks: Iterable[Ask]) -> tuple[Amounts, float | None]:
    """The maximum needs and cost of these requests; the cost is None if a price is unknown.

    If an agent may choose among models, the most expensive one counts for the cost, and all of them for the needs.
    """
    needs: Counter[tuple[str, str]] = Counter()
    costs: list[float | None] = []
    open_ended = odar.agents.prompts.is_open_ended(query)
    prompts = odar.agents.prompts.choose(open_ended=open_ended)
    for ask in asks:
        drafted = odar.settings.fast.max_tokens if ask.verify else 0
        messages = prompts[ask.step].messages(query, "", "")
        settings = odar.settings.agent(ask.agent, open_ended=open_ended)
        choices: list[float | None] = []
        for card in odar.agents.cards[ask.agent]:
            template = agent_request_template(settings, card, query.parameters, None)
            max_tokens = template.sampling.max_tokens or 0
            drafts = draft_tokens(card, drafted)
            needs[card.provider, REQUESTS] += ask.samples
            needs[card.provider, TOKENS] += ask.samples * (token_upper_bound(messages) + drafts + max_tokens)
            try:
                choices.append(ask.samples * worst_cost(card, messages, max_tokens, drafts))
            except BudgetExceeded:  # its price is unknown
                choices.append(None)
        costs.append(None if None in choices else max(cost or 0.0 for cost in choices))
    return needs, sum_costs(costs)


def used_amounts(calls: Iterable[Call], needs: Amounts) -> Amounts:
    """Requests and tokens of some calls.

    A failed call counts with all allowed attempts, a provider with unknown tokens with at least its maximum.
    """
    used: Counter[tuple[str, str]] = Counter()
    unknown = set()
    for call in calls:
        used[call.provider, REQUESTS] += ATTEMPTS if call.failed else 1 + call.retries
        if call.usage.input is None or call.usage.output is None:
            unknown.add((call.provider, TOKENS))
        else:
            used[call.provider, TOKENS] += call.usage.input + call.usage.output
    return {**used, **{resource: max(used[resource], needs.get(resource, 0)) for resource in unknown}}
