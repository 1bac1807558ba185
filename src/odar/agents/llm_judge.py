"""An LLM as judge of free-text answers on the Hard path: it names the best candidate, or writes one (SPEC 5.15).

One counted call under the question's limits. If it fails, the choice by similarity stands, and the trace says so.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from odar.agents.prompts import Prompt, load_prompt
from odar.agents.team import Failure, Team
from odar.errors import OdarError, ProviderProtocolError
from odar.policy.answers import extract_answer
from odar.policy.fusion import Fusion, eligible
from odar.providers.base import Completion
from odar.settings import Settings
from odar.types import Candidate, Role, Step, Verdict

MAX_CANDIDATES = 8
"""Distinct candidates that a judge reads at most, those of the largest weight."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class LLMJudge:
    """The slow model, asked which of the distinct candidates is best.

    Args:
        fusion: says which candidates are free text, and which are the same.
        prompt: asks for a number, or for an answer.
        writes: whether it writes an answer instead of naming one.
    """

    fusion: Fusion
    prompt: Prompt
    writes: bool = False

    @classmethod
    def of(cls, settings: Settings, fusion: Fusion) -> LLMJudge | None:
        """Return the judge that the settings ask for; None if they ask for none."""
        if not settings.fusion.judge:
            return None
        writes = settings.fusion.synthesis
        return cls(fusion, load_prompt("synthesis" if writes else "judge"), writes)

    async def decide(
        self, candidates: Sequence[Candidate], verdict: Verdict, team: Team
    ) -> tuple[list[Candidate], Verdict]:
        """Return the candidates, with a new one if it wrote one, and the verdict; unchanged if it is not needed."""
        shown = self.distinct(candidates, verdict, team.query.text)
        if len(shown) < 2:
            return list(candidates), verdict
        random.Random(team.seed).shuffle(shown)  # noqa: S311 - an order, not a secret
        name = "synthesis" if self.writes else "judge"
        team.extra_prompts[name] = self.prompt.md5
        try:
            completion = await self.ask([candidates[i].answer for i in shown], team)
            if self.writes:
                written = self._written(completion, team)
                reason = f"{verdict.reason}; the slow model wrote it from {len(shown)} candidates"
                energies = (*verdict.energies, math.nan) if verdict.energies else ()
                won = Verdict(len(candidates), name, reason, (*verdict.weights, 0.0), energies)
                return [*candidates, written], won
            place = named_place(completion.text, len(shown))
            reason = f"{verdict.reason}; the slow model chose number {place + 1} of {len(shown)} in random order"
            return list(candidates), replace(verdict, winner=shown[place], scorer=name, reason=reason)
        except OdarError as error:
            team.failures.append(Failure(Role.SLOW, error, name))
            return list(candidates), verdict

    def distinct(self, candidates: Sequence[Candidate], verdict: Verdict, question: str) -> list[int]:
        """Return the best candidate of each answer if they are free text, else nothing."""
        able = eligible(candidates)
        texts = [candidates[i] for i in able]
        if self.fusion.overlap(texts, question) is None:
            return []
        weights = verdict.weights or (0.0,) * len(candidates)
        order = sorted(
            zip(able, self.fusion.groups(texts), strict=True),
            key=lambda pair: (pair[0] == verdict.winner, weights[pair[0]], candidates[pair[0]].text),
            reverse=True,
        )
        firsts = {group: i for i, group in reversed(order)}
        return [i for i, group in order if firsts[group] == i][:MAX_CANDIDATES]

    async def ask(self, answers: Sequence[str], team: Team) -> Completion:
        """Show the answers in this order and return the reply; a counted call within the limits."""
        card, terms = team.cards[Role.SLOW], team.terms(Role.SLOW)
        sampling = terms.sampling if self.writes else replace(terms.sampling, temperature=0.0)
        messages = self.prompt.messages(team.query, "", listed(answers))
        request = replace(terms, messages=messages, sampling=sampling, logprobs=self.writes and terms.logprobs)
        read, provider = team.read(messages), team.providers[card.provider]
        team.ledger.affordable(card, read, sampling.max_tokens, 1)
        reply = await team.ledger.bill(Step.SOLVE, card, request, read, provider.complete, scoring=not self.writes)
        if not reply.completions:
            raise ProviderProtocolError("no reply", provider=card.provider)
        return reply.completions[0]

    def _written(self, completion: Completion, team: Team) -> Candidate:
        text = completion.text.strip()
        if not text or completion.finish == "length":
            raise ProviderProtocolError("its answer is empty or cut off", provider=team.cards[Role.SLOW].provider)
        answer, model = extract_answer(text), team.cards[Role.SLOW].name
        return Candidate(Step.SOLVE, model, text, answer, completion.tokens, finish=completion.finish)


def listed(answers: Sequence[str]) -> str:
    """Return the answers as a judge reads them, numbered from 1."""
    return "\n\n".join(f"<reply number={n}>\n{text}\n</reply>" for n, text in enumerate(answers, 1))


def named_place(text: str, count: int) -> int:
    """Return the place that a reply names, from 0; raises ProviderProtocolError if it names none.

    >>> named_place("Reply 2 is best.", 3)
    1
    """
    numbers = [int(digits) for digits in _NUMBER.findall(text[:10_000]) if len(digits) < 4]
    if not numbers or not 1 <= numbers[-1] <= count:
        raise ProviderProtocolError(f"it named none of the {count} candidates", provider="")
    return numbers[-1] - 1
