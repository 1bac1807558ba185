"""Surrogate scoring: where candidates have no log-probs, another model says how likely their texts are (SPEC 5.6).

It scores all of them or none, so that energies of one scorer are compared with each other and never with another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from odar.agents.billing import billed
from odar.agents.scales import Scales
from odar.agents.team import Team
from odar.catalogue import ModelCard
from odar.errors import BudgetExceeded, OdarError, ProviderProtocolError
from odar.policy.fusion import Fusion
from odar.providers.base import Message, Quirks, Request, Sampling, score_text
from odar.settings import Settings
from odar.types import Candidate, Token

WRITES = 1
"""Tokens a server writes after the text it scores; vLLM cannot write fewer."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A model that scores what others wrote.

    Args:
        card: the model.
        scales: puts its scores on the scales.
        fusion: says whether it is needed.
        timeout_s: for each text.
    """

    card: ModelCard
    scales: Scales
    fusion: Fusion
    timeout_s: float

    @classmethod
    def of(cls, settings: Settings, scales: Scales, fusion: Fusion) -> Surrogate | None:
        """The one that the settings name; it gets as much time for each text as the slow agent for an answer."""
        name = settings.fusion.surrogate
        return cls(settings.card(name), scales, fusion, settings.slow.timeout_s) if name else None

    def needed(self, candidates: Sequence[Candidate], team: Team) -> bool:
        """Whether free energy could not decide without it, and can with it."""
        texts_only = all(candidate.text.strip() and not candidate.tool_calls for candidate in candidates)
        sees = self.card.images or not team.query.images
        return texts_only and sees and self.fusion.needs_surrogate(candidates)

    async def weigh(self, candidates: Sequence[Candidate], team: Team) -> list[Candidate]:
        """The candidates with the surrogate's tokens and energies.

        Raises:
            OdarError: one of them could not be scored, or all of them do not fit the limits.
        """
        conversation = team.query.messages
        each = [(*conversation, Message("assistant", candidate.text)) for candidate in candidates]
        longest = max(each, key=lambda messages: len(messages[-1].text))
        if team.ledger.affordable(self.card, longest, WRITES, len(candidates)) < len(candidates):
            raise BudgetExceeded(f"scoring {len(candidates)} answers does not fit the limits")
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._score(candidate, team)) for candidate in candidates]
        except* OdarError as failures:
            raise failures.exceptions[0] from None
        scored = (replace(c, tokens=task.result()) for c, task in zip(candidates, tasks, strict=True))
        return [self.scales.weigh(candidate, team, self.card.name) for candidate in scored]

    async def _score(self, candidate: Candidate, team: Team) -> tuple[Token, ...]:
        card, provider = self.card, team.providers[self.card.provider]
        timeout_s, short = team.ledger.call_timeout(self.timeout_s)
        request = Request(
            model=card.id,
            messages=team.query.messages,
            sampling=Sampling(0.0, None, WRITES),
            timeout_s=timeout_s,
            short_timeout=short,
            retry_billed=not team.ledger.limited,
            take_retry=team.ledger.take_retry,
            quirks=Quirks(card.max_tokens_field, card.drop, card.extra),
        )
        read = (*request.messages, Message("assistant", candidate.text))
        reply = await billed(
            team.ledger,
            candidate.step,
            card,
            request,
            read,
            lambda: score_text(provider, request, candidate.text),
            scoring=True,
        )
        tokens = reply.completions[0].tokens if reply.completions else ()
        if not any(token.logprob is not None for token in tokens):
            raise ProviderProtocolError(f"{card.name} scored nothing", provider=card.provider)
        return tokens
