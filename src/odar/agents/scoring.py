"""Candidates → verdict: free energies, by a surrogate if log-probabilities are missing, and fusion (SPEC 5).

A surrogate scores all eligible candidates or none: energies of different scorers are never compared. For free text
on the Hard path, the slow model can be the judge: it names the best candidate, or writes one (SPEC 5.15).
"""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from odar.agents.flow import run_fusion
from odar.agents.prompts import Prompt, load_prompt
from odar.agents.team import Failure, Team
from odar.catalogue import ModelCard
from odar.errors import BudgetExceeded, OdarError, ProviderProtocolError
from odar.observer import observed
from odar.policy.alignment import Source
from odar.policy.answers import extract_answer
from odar.policy.energy import measure_energy
from odar.policy.fusion import Fusion, distinct, eligible
from odar.policy.signals import AnswerSignals, QuantileTables
from odar.providers.base import Completion, Message, Quirks, Request, Sampling
from odar.settings import Settings
from odar.store.alignment import SHIPPED, ServedAlignment
from odar.types import Candidate, Path, Role, Step, Token, Verdict


@dataclass(frozen=True, slots=True)
class EnergyScorer:
    """Measures the free energy of candidates, and counts served energies."""

    varentropy_weight: float
    """λ in F = E + λ·V."""
    alignment: ServedAlignment
    """μ and σ by source."""

    def score(self, candidate: Candidate, team: Team, scorer: str = "") -> Candidate:
        """Return the candidate with its energy; `scorer` names the surrogate that produced its tokens, if any."""
        source = self._source(candidate.step, team, scorer, candidate.model)
        known = None if source is None else self.alignment.find(source)
        energy = measure_energy(candidate.tokens, self.varentropy_weight, known.alignment if known else None)
        if energy is None and candidate.energy is None:
            return candidate
        if energy is not None and (known or scorer):
            energy = replace(energy, origin=known.origin if known else "", scorer=scorer)
        return replace(candidate, energy=energy)

    def observe(self, candidates: Iterable[Candidate], team: Team) -> None:
        """Count the energies of served candidates, except for models that are not in the settings."""
        if team.plain and any(card.name not in team.settings.models for card in team.cards.values()):
            return
        for candidate in candidates:
            energy = candidate.energy
            source = None if energy is None else self._source(candidate.step, team, energy.scorer, candidate.model)
            if energy is not None and source is not None:
                self.alignment.observe(source, energy.free_energy)

    def tables(self, team: Team) -> tuple[QuantileTables | None, str]:
        """Return quantiles of the fast agent's signals for this query's sampling, and their origin."""
        source = self._source(Step.ANSWER, team)
        return (None, SHIPPED) if source is None else self.alignment.tables(source)

    def observe_signals(self, answer: AnswerSignals, team: Team) -> None:
        """Count the signals of a fast answer, for the quantiles of served answers."""
        source = self._source(Step.ANSWER, team)
        if source is not None:
            self.alignment.observe_signals(source, answer)

    def _source(self, step: Step, team: Team, scorer: str = "", model: str = "") -> Source | None:
        """Return the source of a step's answers with this query's sampling; None if the server sets part of it."""
        used = team.request_template(step.role).sampling
        if used.temperature is None or used.top_p is None or used.max_tokens is None:
            return None
        model, md5 = model or team.cards[step.role].name, team.prompts[step].md5  # a fallback may have answered
        return Source(model, md5, used.temperature, used.top_p, used.max_tokens, self.varentropy_weight, scorer)


SCORING_TOKENS = 1
"""Number of tokens that a server generates after the text it scores; vLLM generates at least one."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A model that scores the answers of other models."""

    card: ModelCard
    scorer: EnergyScorer
    fusion: Fusion
    timeout_s: float

    @classmethod
    def from_settings(cls, settings: Settings, scorer: EnergyScorer, fusion: Fusion) -> Surrogate | None:
        """Return the surrogate of the settings, with the timeout of the slow agent; None if they name none."""
        name = settings.fusion.surrogate
        return cls(settings.card(name), scorer, fusion, settings.slow.timeout_s) if name else None

    def is_needed(self, candidates: Sequence[Candidate], team: Team) -> bool:
        """Return whether free energy can decide only with the surrogate."""
        texts_only = all(candidate.text.strip() and not candidate.tool_calls for candidate in candidates)
        sees = self.card.images or not team.query.images
        return texts_only and sees and self.fusion.needs_surrogate(candidates)

    async def score(self, candidates: Sequence[Candidate], team: Team) -> list[Candidate]:
        """Return the candidates with the surrogate's tokens and energies.

        Raises:
            OdarError: one of them could not be scored, or they do not all fit the limits.
        """
        conversation = team.query.messages
        each = [(*conversation, Message("assistant", candidate.text)) for candidate in candidates]
        longest = max(each, key=lambda messages: len(messages[-1].text))
        if team.ledger.affordable(self.card, longest, SCORING_TOKENS, len(candidates)) < len(candidates):
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
            Sampling(0.0, None, SCORING_TOKENS),
            timeout_s=self.timeout_s,
            quirks=Quirks(card.max_tokens_field, card.drop, card.extra),
        )
        read = (*request.messages, Message("assistant", candidate.text))
        reply = await team.ledger.bill(
            candidate.step,
            card,
            request,
            read,
            lambda sent: provider.score(sent, candidate.text),
            scoring=True,
        )
        tokens = reply.completions[0].tokens if reply.completions else ()
        if not any(token.logprob is not None for token in tokens):
            raise ProviderProtocolError(f"{card.name} scored nothing", provider=card.provider)
        return tokens


MAX_CANDIDATES = 8
"""Maximum number of distinct candidates that a judge reads; those with the largest weight are chosen."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class LLMJudge:
    """The slow model, asked which of the distinct candidates is best: one counted call under the question's limits.

    If it fails, the choice by similarity is kept, and the trace records the failure.
    """

    fusion: Fusion
    prompt: Prompt
    writes: bool = False
    """Whether it writes an answer instead of naming one."""

    @classmethod
    def from_settings(cls, settings: Settings, fusion: Fusion) -> LLMJudge | None:
        """Return the judge that the settings ask for; None if they ask for none."""
        if not settings.fusion.judge:
            return None
        writes = settings.fusion.synthesis
        return cls(fusion, load_prompt("synthesis" if writes else "judge"), writes)

    async def decide(
        self, candidates: Sequence[Candidate], verdict: Verdict, team: Team
    ) -> tuple[list[Candidate], Verdict]:
        """Return the candidates, including a new one if the judge wrote it, and the verdict."""
        shown = self.distinct(candidates, verdict, team.query.text)
        if len(shown) < 2:
            return list(candidates), verdict
        random.Random(team.seed).shuffle(shown)  # noqa: S311 - an order, not a secret
        name = "synthesis" if self.writes else "judge"
        team.extra_prompts[name] = self.prompt.md5
        try:
            completion = await self.ask([candidates[i].answer for i in shown], team)
            if self.writes:
                written = self._written_candidate(completion, team)
                reason = f"{verdict.reason}; the slow model wrote it from {len(shown)} candidates"
                energies = (*verdict.energies, math.nan) if verdict.energies else ()
                weights = (*verdict.weights, 0.0)
                return [*candidates, written], Verdict(len(candidates), name, reason, weights, energies)
            index = chosen_index(completion.text, len(shown))
            reason = f"{verdict.reason}; the slow model chose number {index + 1} of {len(shown)} in random order"
            return list(candidates), replace(verdict, winner=shown[index], scorer=name, reason=reason)
        except OdarError as error:
            team.failures.append(Failure(Role.SLOW, error, name))
            return list(candidates), verdict

    def distinct(self, candidates: Sequence[Candidate], verdict: Verdict, question: str) -> list[int]:
        """Return the best candidate of each distinct answer if they are free text, else an empty list."""
        able = eligible(candidates)
        texts = [candidates[i] for i in able]
        if self.fusion.free_text_similarity(texts, question) is None:
            return []
        weights = verdict.weights or (0.0,) * len(candidates)
        groups = dict(zip(able, self.fusion.groups(texts), strict=True))
        order = sorted(able, key=lambda i: (i == verdict.winner, weights[i], candidates[i].text), reverse=True)
        return distinct(order, groups)[:MAX_CANDIDATES]

    async def ask(self, answers: Sequence[str], team: Team) -> Completion:
        """Return the reply of the slow model to these answers, in this order."""
        card, template = team.cards[Role.SLOW], team.request_template(Role.SLOW)
        request = replace(template, messages=self.prompt.messages(team.query, "", format_replies(answers)))
        if not self.writes:
            request = replace(request, sampling=replace(template.sampling, temperature=0.0), logprobs=False)
        team.affordable(card, request)
        reply = await team.complete(Step.SOLVE, card, request, scoring=not self.writes)
        if not reply.completions:
            raise ProviderProtocolError("no reply", provider=card.provider)
        return reply.completions[0]

    def _written_candidate(self, completion: Completion, team: Team) -> Candidate:
        text = completion.text.strip()
        if not text or completion.finish == "length":
            raise ProviderProtocolError("its answer is empty or cut off", provider=team.cards[Role.SLOW].provider)
        answer, model = extract_answer(text), team.cards[Role.SLOW].name
        return Candidate(Step.SOLVE, model, text, answer, completion.tokens, finish=completion.finish)


def format_replies(answers: Sequence[str]) -> str:
    """Return the answers for the prompt of a judge, numbered from 1."""
    return "\n\n".join(f"<reply number={n}>\n{text}\n</reply>" for n, text in enumerate(answers, 1))


def chosen_index(text: str, count: int) -> int:
    """Return the index that a reply names, from 0; raises ProviderProtocolError if it names no candidate.

    >>> chosen_index("Reply 2 is best.", 3)
    1
    """
    numbers = [int(digits) for digits in _NUMBER.findall(text[:10_000]) if len(digits) < 4]
    if not numbers or not 1 <= numbers[-1] <= count:
        raise ProviderProtocolError(f"it named none of the {count} candidates", provider="")
    return numbers[-1] - 1


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides between the candidates of a question."""

    fusion: Fusion
    scorer: EnergyScorer
    surrogate: Surrogate | None = None
    llm: LLMJudge | None = None

    @observed("fusion")
    async def decide(
        self, candidates: Sequence[Candidate], team: Team, path: Path | None = None
    ) -> tuple[list[Candidate], Verdict]:
        """Return the candidates with their energies, and which of them wins.

        If the surrogate fails, the failure is added to the team and fusion decides without energies.
        """
        measured = [self.scorer.score(candidate, team) for candidate in candidates]
        compared, able = list(measured), eligible(measured)
        if self.surrogate is not None and self.surrogate.is_needed([measured[i] for i in able], team):
            try:
                scored = await self.surrogate.score([measured[i] for i in able], team)
                for i, candidate in zip(able, scored, strict=True):
                    compared[i] = candidate
            except OdarError as error:
                team.failures.append(Failure(Role.SLOW, error, f"surrogate {self.surrogate.card.name}"))
        verdict = await run_fusion(self.fusion, partial(self.fusion.choose, compared, team.query.text))
        # A candidate keeps the tokens of its own model and gets the energy that was compared.
        measured = [
            own if own.energy is view.energy else replace(own, energy=view.energy)
            for own, view in zip(measured, compared, strict=True)
        ]
        self.scorer.observe(measured, team)
        if self.llm is not None and path is Path.HARD and not team.plain and team.query.options.n == 1:
            return await self.llm.decide(measured, verdict, team)
        return measured, verdict
