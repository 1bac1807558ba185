"""Candidates → one answer (SPEC 5.6).

The configured rule decides if enough tokens have log-probabilities; else agreement among the slow samples, the
verifier's judgment, or the slow answer. The verdict names what decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from odar.policy.arrays import Array
from odar.policy.energy import confidences, missing_share
from odar.policy.equivalence import group_candidates
from odar.policy.fusion_rules import RULES, Ballot, answer_energies, majority, same_answer, winner
from odar.policy.similarity import AnswerForm, answer_form, asks_for_choice, is_free_text, lexical
from odar.types import CHEAP_AGENTS, Candidate, Energy, Step, Verdict

if TYPE_CHECKING:
    from odar.calibration_file import Source, Statistics
    from odar.settings import FusionSettings

MISSING_LIMIT = 0.2
"""Maximum share of tokens without log-probabilities for free energy to decide (SPEC 5.6)."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """The rule that chooses one of the candidates.

    Args:
        rule: the name of a rule in `RULES`.
        beta: β of the answer free energy (SPEC 5.10).
        skills: w_m, the prior weight of each model at each step (SPEC 5.10b); 1 if missing.
        similarity: how free text is compared (SPEC 5.15): `lexical`, or `none` for exactly.
    """

    rule: str = "fep"
    beta: float = np.inf
    skills: Mapping[tuple[str, Step], float] = field(default_factory=dict)
    similarity: str = "lexical"

    def __post_init__(self) -> None:
        _ = RULES[self.rule]  # raises UnknownName now, not after answers have been paid for

    @classmethod
    def from_settings(
        cls,
        settings: FusionSettings,
        statistics: Mapping[Source, Statistics],
        sources: Mapping[tuple[str, Step], Source],
    ) -> Fusion:
        """The rule of the settings, with the calibrated skills of these sources."""
        skills = {
            (source.model, step): known.skill
            for (_, step), source in sources.items()
            if (known := statistics.get(source)) is not None
        }
        return cls(settings.rule, settings.beta, skills, settings.similarity)

    def choose(self, candidates: Sequence[Candidate], question: str = "") -> Verdict:
        """The winner (SPEC 5.7), regardless of the order of the candidates.

        Args:
            candidates: the answers, with their energies.
            question: the question; one that lists options is not answered in free text.

        Raises:
            ValueError: there is no candidate.
        """
        if not candidates:
            raise ValueError("no candidate to choose from")
        order = sorted(eligible(candidates), key=lambda i: tie_break_key(candidates[i]), reverse=True)
        verdict = self._choose([candidates[i] for i in order], question)
        # the verdict on all candidates
        weights = dict(zip(order, verdict.weights, strict=True))
        energies = dict(zip(order, verdict.energies, strict=False))
        every = range(len(candidates))
        return Verdict(
            order[verdict.winner],
            verdict.scorer,
            verdict.reason + _exclusion_note(candidates, len(order)),
            tuple(weights.get(i, 0.0) for i in every),
            tuple(energies.get(i, np.nan) for i in every) if energies else (),
        )

    def free_text_similarity(self, candidates: Sequence[Candidate], question: str = "") -> Array | None:
        """(n, n) s between candidates if they are free text (SPEC 5.15), else None."""
        if self.similarity == "none" or len(candidates) < 2 or asks_for_choice(question):
            return None
        forms = [
            AnswerForm.EXACT if candidate.tool_calls else answer_form(candidate.answer, stated=candidate.stated)
            for candidate in candidates
        ]
        if not is_free_text(forms):
            return None
        groups = np.array(group_candidates(candidates))
        return np.maximum(same_answer(groups), lexical([candidate.answer for candidate in candidates]))

    def _choose(self, candidates: Sequence[Candidate], question: str) -> Verdict:
        """The winner of eligible candidates, which are in the order that breaks exact ties."""
        if len(candidates) == 1:
            return Verdict(0, "only", "the only candidate", (1.0,))
        # can free energies decide?
        missing = missing_share(candidates)
        if missing > MISSING_LIMIT:
            why = f"{missing:.0%} of the tokens have no log-probabilities"
            return self._without_energy(candidates, why, question)
        scored = {i: each.energy for i, each in enumerate(candidates) if each.energy is not None}
        if not scored:
            return self._without_energy(candidates, "no candidate has any text to score", question)
        # an aligned energy is never compared with a raw one (SPEC 5.5)
        voters = [candidates[i] for i in scored]
        unaligned = sorted({candidates[i].model for i, energy in scored.items() if energy.aligned is None})
        ballot = self._ballot(voters, list(scored.values()), bool(unaligned), question)
        keys = RULES[self.rule](ballot)
        first = winner(keys)
        # weights and energies of all candidates, 0 and NaN for those without an energy
        numbers = list(scored)
        weights = np.zeros(len(candidates))
        weights[numbers] = keys[0]
        energies = np.full(len(candidates) if self.rule == "fep" else 0, np.nan)
        if self.rule == "fep":
            energies[numbers] = answer_energies(ballot)
        # why it won
        agree = int((ballot.groups == ballot.groups[first]).sum())
        reason = self._description(agree, len(voters))
        if unaligned:
            reason += f"; raw energies: no alignment statistics for {', '.join(unaligned)}"
        scorer = f"{self.rule} (uncalibrated)" if unaligned else self.rule
        reason += self._similarity_note(ballot.similarity)
        return Verdict(numbers[first], scorer, reason, tuple(weights.tolist()), tuple(energies.tolist()))

    def _ballot(
        self, candidates: Sequence[Candidate], energies: Sequence[Energy], raw: bool, question: str
    ) -> Ballot:
        ballot = Ballot(
            np.array([each.free_energy if raw or each.aligned is None else each.aligned for each in energies]),
            np.array(group_candidates(candidates), dtype=np.int64),
            np.array([self.skills.get((each.model, each.step), 1.0) for each in candidates]),
            self.beta,
            self.free_text_similarity(candidates, question),
        )
        if self.rule in ("fep", "majority"):  # they compare free energies only
            return ballot
        logprob, probability, window = np.array([confidences(each) for each in candidates]).T
        return replace(ballot, mean_logprob=logprob, mean_probability=probability, lowest_window=window)

    def _description(self, agree: int, voters: int) -> str:
        if self.rule == "fep" and self.beta == np.inf:
            return "lowest free energy"
        if self.rule == "majority" or (self.rule == "fep" and self.beta == 0):
            return f"vote: {agree} of {voters} answers agree"
        if self.rule == "fep":
            return f"lowest free energy of an answer: {agree} of {voters} agree"
        return f"chosen by {self.rule}"

    def _similarity_note(self, similarity: Array | None) -> str:
        """The note on the similarity of free text for a trace; empty for answers of an exact form."""
        if similarity is None:
            return ""
        others = similarity[~np.eye(len(similarity), dtype=bool)]
        return f"; free text, compared by {self.similarity} similarity (mean {others.mean():.2f})"

    def _without_energy(self, candidates: Sequence[Candidate], why: str, question: str) -> Verdict:
        """The winner by agreement, by the verifier's judgment, or the slow answer (SPEC 5.6)."""
        every = range(len(candidates))
        voters = [i for i in every if candidates[i].agent not in CHEAP_AGENTS] or list(every)
        groups = np.array(group_candidates(candidates))[voters]
        # all candidates decide whether the answers are free text
        similarity = self.free_text_similarity(candidates, question)
        s = None if similarity is None else similarity[np.ix_(voters, voters)]
        ballot = Ballot(np.zeros(len(voters)), groups, np.ones(len(voters)), similarity=s)
        first = voters[winner(majority(ballot))]
        votes = ballot.s @ np.ones(len(voters))
        judgment = candidates[first].judgment
        if len(voters) > 1 and similarity is not None:
            scorer, how = "agreement", "the most similar to the others" + self._similarity_note(similarity)
        elif len(voters) > 1:
            scorer, how = "agreement", f"{votes.max():.0f} of {len(voters)} agree"
        elif judgment is not None:
            scorer, how = "judgment", f"the verifier says {'CORRECT' if judgment else 'INCORRECT'}"
        else:
            scorer, how = "slow", "the slow answer"
        weights = np.zeros(len(candidates))
        weights[voters] = votes / len(voters)
        return Verdict(first, scorer, f"{why}; {how}", tuple(weights.tolist()))


def eligible(candidates: Sequence[Candidate]) -> list[int]:
    """The candidates that may win and vote.

    A candidate that violates the client's tools or response format is not eligible while another does not; nor is
    one that was cut off or states no answer (SPEC 5.6b).
    """
    valid = [i for i, candidate in enumerate(candidates) if not candidate.fault] or list(range(len(candidates)))
    return [i for i in valid if candidates[i].stated and candidates[i].finish != "length"] or valid


def rank(candidates: Sequence[Candidate], verdict: Verdict) -> list[int]:
    """All candidates, best first: the winner, the best of each other answer, then repetitions."""
    weights = verdict.weights or (0.0,) * len(candidates)
    groups = group_candidates(candidates)
    order = sorted(
        range(len(candidates)),
        key=lambda i: (i == verdict.winner, not candidates[i].fault, weights[i], *tie_break_key(candidates[i])),
        reverse=True,
    )
    best: dict[int, int] = {}
    for i in order:
        best.setdefault(groups[i], i)
    return list(dict.fromkeys([*best.values(), *order]))


def tie_break_key(candidate: Candidate) -> tuple[bool, str, str]:
    """The key that breaks exact ties by content, never by position: slow before fast, then by text."""
    return candidate.agent not in CHEAP_AGENTS, candidate.text, candidate.step


def _exclusion_note(candidates: Sequence[Candidate], eligible: int) -> str:
    """How many candidates were not eligible, and why."""
    faulty = sum(bool(candidate.fault) for candidate in candidates)
    faults = 0 if faulty == len(candidates) else faulty  # if all have one, none counts
    incomplete = len(candidates) - faults - eligible
    note = f"; {faults} of {len(candidates)} did not keep to the form asked for" if faults else ""
    return note + (f"; {incomplete} of {len(candidates)} were cut off or stated no answer" if incomplete else "")
