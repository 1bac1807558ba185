"""Candidates → verdict: their free energies measured, by a surrogate if they have no log-probs, and fused (SPEC 5).

A surrogate scores all candidates that may win or none: energies of one scorer are never compared with another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from odar.agents.flow import run_fusion
from odar.agents.llm_judge import LLMJudge
from odar.agents.team import Failure, Team
from odar.catalogue import ModelCard
from odar.errors import BudgetExceeded, OdarError, ProviderProtocolError
from odar.observer import observed
from odar.policy.alignment import Source
from odar.policy.energy import measure
from odar.policy.fusion import Fusion, eligible
from odar.policy.signals import AnswerSignals, QuantileTables
from odar.providers.base import Message, Quirks, Request, Sampling, score_text
from odar.settings import Settings
from odar.store.alignment import SHIPPED, ServedAlignment
from odar.types import Candidate, Path, Role, Step, Token, Verdict


@dataclass(frozen=True, slots=True)
class EnergyScorer:
    """Measures the free energy of candidates, and counts the energies that were served.

    Args:
        varentropy_weight: λ in F = E + λ·V.
        alignment: μ and σ by source.
    """

    varentropy_weight: float
    alignment: ServedAlignment

    def score(self, candidate: Candidate, team: Team, scorer: str = "") -> Candidate:
        """The candidate with its energy; `scorer` is the surrogate where its tokens are that one's."""
        source = self._source(candidate.step, team, scorer, candidate.model)
        known = None if source is None else self.alignment.find(source)
        energy = measure(candidate.tokens, self.varentropy_weight, known.alignment if known else None)
        if energy is None and candidate.energy is None:
            return candidate
        if energy is not None and (known or scorer):
            energy = replace(energy, origin=known.origin if known else "", scorer=scorer)
        return replace(candidate, energy=energy)

    def observe(self, candidates: Iterable[Candidate], team: Team) -> None:
        """Count the energies of what is about to be served; not of a model name that the client made up."""
        if team.plain and any(card.name not in team.settings.models for card in team.cards.values()):
            return
        for candidate in candidates:
            energy = candidate.energy
            source = None if energy is None else self._source(candidate.step, team, energy.scorer, candidate.model)
            if energy is not None and source is not None:
                self.alignment.observe(source, energy.free_energy)

    def tables(self, team: Team) -> tuple[QuantileTables | None, str]:
        """Return quantiles of the fast agent's signals on the terms of this query, and where they come from."""
        source = self._source(Step.ANSWER, team)
        return (None, SHIPPED) if source is None else self.alignment.tables(source)

    def observe_signals(self, answer: AnswerSignals, team: Team) -> None:
        """Count the signals of a fast answer, from which quantiles of served answers are made."""
        source = self._source(Step.ANSWER, team)
        if source is not None:
            self.alignment.observe_signals(source, answer)

    def _source(self, step: Step, team: Team, scorer: str = "", model: str = "") -> Source | None:
        """Where a step's answers come from on the terms of this query; None where the server sets some of them."""
        terms = team.terms(step.role).sampling
        if terms.temperature is None or terms.top_p is None or terms.max_tokens is None:
            return None
        model, md5 = model or team.cards[step.role].name, team.prompts[step].md5  # a fallback may have answered
        return Source(model, md5, terms.temperature, terms.top_p, terms.max_tokens, self.varentropy_weight, scorer)


WRITES = 1
"""Tokens a server writes after the text it scores; vLLM cannot write fewer."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A model that scores what others wrote.

    Args:
        card: the model.
        scorer: measures its scores.
        fusion: says whether it is needed.
        timeout_s: for each text.
    """

    card: ModelCard
    scorer: EnergyScorer
    fusion: Fusion
    timeout_s: float

    @classmethod
    def of(cls, settings: Settings, scorer: EnergyScorer, fusion: Fusion) -> Surrogate | None:
        """The one that the settings name; it gets as much time for each text as the slow agent for an answer."""
        name = settings.fusion.surrogate
        return cls(settings.card(name), scorer, fusion, settings.slow.timeout_s) if name else None

    def needed(self, candidates: Sequence[Candidate], team: Team) -> bool:
        """Whether free energy could not decide without it, and can with it."""
        texts_only = all(candidate.text.strip() and not candidate.tool_calls for candidate in candidates)
        sees = self.card.images or not team.query.images
        return texts_only and sees and self.fusion.needs_surrogate(candidates)

    async def score(self, candidates: Sequence[Candidate], team: Team) -> list[Candidate]:
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
        return [self.scorer.score(candidate, team, self.card.name) for candidate in scored]

    async def _score(self, candidate: Candidate, team: Team) -> tuple[Token, ...]:
        card, provider = self.card, team.providers[self.card.provider]
        request = Request(
            card.id,
            team.query.messages,
            Sampling(0.0, None, WRITES),
            timeout_s=self.timeout_s,
            quirks=Quirks(card.max_tokens_field, card.drop, card.extra),
        )
        read = (*request.messages, Message("assistant", candidate.text))
        reply = await team.ledger.bill(
            candidate.step,
            card,
            request,
            read,
            lambda ask: score_text(provider, ask, candidate.text),
            scoring=True,
        )
        tokens = reply.completions[0].tokens if reply.completions else ()
        if not any(token.logprob is not None for token in tokens):
            raise ProviderProtocolError(f"{card.name} scored nothing", provider=card.provider)
        return tokens


@dataclass(frozen=True, slots=True)
class Judge:
    """How an engine decides between candidates.

    Args:
        fusion: the rule.
        scorer: measures their free energies.
        surrogate: scores the texts of models without log-probs.
        llm: chooses among free-text answers on the Hard path.
    """

    fusion: Fusion
    scorer: EnergyScorer
    surrogate: Surrogate | None = None
    llm: LLMJudge | None = None

    @observed("fusion")
    async def decide(
        self, candidates: Sequence[Candidate], team: Team, path: Path | None = None
    ) -> tuple[list[Candidate], Verdict]:
        """The candidates with their energies, and which of them wins.

        A surrogate that fails leaves the decision to the next rung of the ladder, and the team with a failure.
        """
        weighed = [self.scorer.score(candidate, team) for candidate in candidates]
        seen, able = list(weighed), eligible(weighed)
        if self.surrogate is not None and self.surrogate.needed([weighed[i] for i in able], team):
            try:
                scored = await self.surrogate.score([weighed[i] for i in able], team)
                for i, candidate in zip(able, scored, strict=True):
                    seen[i] = candidate
            except OdarError as error:
                team.failures.append(Failure(Role.SLOW, error, f"surrogate {self.surrogate.card.name}"))
        verdict = await run_fusion(self.fusion, partial(self.fusion.choose, seen, team.query.text))
        # A candidate keeps the tokens its own model reported, and has the energy that was decided by.
        weighed = [
            own if own.energy is view.energy else replace(own, energy=view.energy)
            for own, view in zip(weighed, seen, strict=True)
        ]
        self.scorer.observe(weighed, team)
        if self.llm is not None and path is Path.HARD and not team.plain and team.query.options.n == 1:
            return await self.llm.decide(weighed, verdict, team)
        return weighed, verdict
