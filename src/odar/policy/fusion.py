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
from odar.policy.energy import missing_share, token_figures
from odar.policy.equivalence import group_candidates
from odar.policy.fusion_rules import RULES, Ballot, answer_energies, majority, same_answer, winner
from odar.policy.similarity import are_free_text, asks_for_choice, is_free_text, lexical_similarity
from odar.types import CHEAP_AGENTS, Candidate, Step, Verdict

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
        # in the order that breaks exact ties, which is not that of the candidates
        order = sorted(eligible(candidates), key=lambda i: tie_break_key(candidates[i]), reverse=True)
        verdict = self._choose(candidates, order, question)
        return replace(verdict, reason=verdict.reason + _exclusion_note(candidates, len(order)))

    def free_text_similarity(self, candidates: Sequence[Candidate], question: str = "") -> Array | None:
        """(n, n) s between candidates if they are free text (SPEC 5.15), else None."""
        if self.similarity == "none" or len(candidates) < 2 or asks_for_choice(question):
            return None
        if any(candidate.tool_calls for candidate in candidates):
            return None
        # a text that should have stated an answer and did not is not free text
        if not are_free_text([candidate.stated and is_free_text(candidate.answer) for candidate in candidates]):
            return None
        groups = np.array(group_candidates(candidates))
        return np.maximum(same_answer(groups), lexical_similarity([candidate.answer for candidate in candidates]))

    def _choose(self, candidates: Sequence[Candidate], order: Sequence[int], question: str) -> Verdict:
        """The winner of the eligible candidates, whose numbers are `order`."""
        weights = np.zeros(len(candidates))
        if len(order) == 1:
            weights[order] = 1.0
            return Verdict(order[0], "only", "the only candidate", tuple(weights.tolist()))
        # can free energies decide?
        figures = {i: token_figures(candidates[i]) for i in order}
        missing = missing_share(figures.values())
        if missing > MISSING_LIMIT:
            why = f"{missing:.0%} of the tokens have no log-probabilities"
            return self._without_energy(candidates, order, why, question)
        scored = {i: energy for i in order if (energy := candidates[i].energy) is not None}
        if not scored:
            return self._without_energy(candidates, order, "no candidate has any text to score", question)
        # an aligned energy is never compared with a raw one (SPEC 5.5)
        numbers = list(scored)
        voters = [candidates[i] for i in numbers]
        unaligned = sorted({candidates[i].model for i, energy in scored.items() if energy.aligned is None})
        free_energies = [energy.aligned for energy in scored.values()]
        if unaligned:
            free_energies = [energy.free_energy for energy in scored.values()]
        ballot = Ballot(
            free_energy=np.array(free_energies),
            groups=np.array(group_candidates(voters), dtype=np.int64),
            skills=np.array([self.skills.get((voter.model, voter.step), 1.0) for voter in voters]),
            beta=self.beta,
            similarity=self.free_text_similarity(voters, question),
            mean_logprob=np.array([figures[i].mean_logprob or 0.0 for i in numbers]),
            mean_probability=np.array([figures[i].mean_probability or 0.0 for i in numbers]),
            lowest_window=np.array([figures[i].lowest_window or 0.0 for i in numbers]),
        )
        keys = RULES[self.rule](ballot)
        first = winner(keys)
        # weights and energies of all candidates, 0 and NaN for those without an energy
        weights[numbers] = keys[0]
        energies = np.full(len(candidates) if self.rule == "fep" else 0, np.nan)
        if self.rule == "fep":
            energies[numbers] = answer_energies(ballot)
        # why it won
        agree = int((ballot.groups == ballot.groups[first]).sum())
        reason = self._description(agree, len(voters))
        if unaligned:
            reason += f"; raw energies: no alignment statistics for {', '.join(unaligned)}"
        rule = f"{self.rule} (uncalibrated)" if unaligned else self.rule
        reason += self._similarity_note(ballot.similarity)
        return Verdict(numbers[first], rule, reason, tuple(weights.tolist()), tuple(energies.tolist()))

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

    def _without_energy(
        self, candidates: Sequence[Candidate], order: Sequence[int], why: str, question: str
    ) -> Verdict:
        """The winner by agreement, by the verifier's judgment, or the slow answer (SPEC 5.6)."""
        # all eligible candidates decide whether the answers are free text, and the slow ones vote
        valid = [candidates[i] for i in order]
        slow = [i for i, each in enumerate(valid) if each.agent not in CHEAP_AGENTS] or list(range(len(order)))
        similarity = self.free_text_similarity(valid, question)
        ballot = Ballot(
            np.zeros(len(slow)),
            np.array(group_candidates(valid))[slow],
            np.ones(len(slow)),
            similarity=None if similarity is None else similarity[np.ix_(slow, slow)],
        )
        voters = [order[i] for i in slow]
        first = voters[winner(majority(ballot))]
        votes = ballot.s @ ballot.skills
        judgment = candidates[first].judgment
        if len(voters) > 1 and similarity is not None:
            reason = "the most similar to the others" + self._similarity_note(similarity)
        elif len(voters) > 1:
            reason = f"{votes.max():.0f} of {len(voters)} agree"
        elif judgment is not None:
            reason = f"the verifier says {'CORRECT' if judgment else 'INCORRECT'}"
        else:
            reason = "the slow answer"
        rule = "agreement" if len(voters) > 1 else "slow" if judgment is None else "judgment"
        weights = np.zeros(len(candidates))
        weights[voters] = votes / len(voters)
        return Verdict(first, rule, f"{why}; {reason}", tuple(weights.tolist()))


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
