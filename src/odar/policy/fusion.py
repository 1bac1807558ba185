"""Candidates → one answer (SPEC 5.6).

The configured rule decides if enough tokens have log-probabilities; else agreement among the slow samples, the
verifier's judgment, or the slow answer. The verdict names what decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from odar.policy.arrays import Array
from odar.policy.energy import measure_energy
from odar.policy.equivalence import call_key, group_answers
from odar.policy.rules import RULES, Ballot, answer_energies, majority, same_answer, winners
from odar.policy.similarity import (
    EXACT_ONLY,
    AnswerForm,
    answer_form,
    asks_for_choice,
    is_free_text,
    similarity_matrix,
)
from odar.types import CHEAP_AGENTS, Candidate, Step, TokenFigures, Verdict

if TYPE_CHECKING:
    from odar.calibration_file import Source, Statistics
    from odar.settings import FusionSettings

MISSING_LIMIT = 0.2
"""Maximum share of tokens without log-probabilities for free energy to decide (SPEC 5.6)."""
CONFIDENCES = ("mean_logprob", "mean_probability", "lowest_window")
"""Fields of `Ballot` that rules other than free energy and majority compare."""
_WINDOW = 32
"""Number of tokens over which DeepConf-style confidence is averaged."""
_CHARACTERS_PER_TOKEN = 4
"""Characters per token, for candidates whose provider lists no tokens."""


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
        return _verdict_on_all(self._choose([candidates[i] for i in order], question), order, candidates)

    @staticmethod
    def groups(candidates: Sequence[Candidate]) -> list[int]:
        """A group number for each candidate, under any rule; equal answers and equal tool calls share it."""
        texts = [i for i, candidate in enumerate(candidates) if not candidate.tool_calls]
        numbers = dict(zip(texts, group_answers([candidates[i].answer for i in texts]), strict=True))
        calls: dict[str, int] = {}
        for i, candidate in enumerate(candidates):
            if candidate.tool_calls:
                numbers[i] = len(candidates) + calls.setdefault(call_key(candidate.tool_calls), len(calls))
        return [numbers[i] for i in range(len(candidates))]

    def free_text_similarity(self, candidates: Sequence[Candidate], question: str = "") -> Array | None:
        """s between eligible candidates if they are free text (SPEC 5.15), else None."""
        if self.similarity == EXACT_ONLY or len(candidates) < 2 or asks_for_choice(question):
            return None
        forms = [
            AnswerForm.EXACT if candidate.tool_calls else answer_form(candidate.answer, stated=candidate.stated)
            for candidate in candidates
        ]
        if not is_free_text(forms):
            return None
        return similarity_matrix([candidate.answer for candidate in candidates], self.groups(candidates))

    def _choose(self, candidates: Sequence[Candidate], question: str) -> Verdict:
        """The winner of eligible candidates, which are in the order that breaks exact ties."""
        if len(candidates) == 1:
            return Verdict(0, "only", "the only candidate", (1.0,))
        # can free energies decide?
        missing = missing_share(candidates)
        if missing > MISSING_LIMIT:
            why = f"{missing:.0%} of the tokens have no log-probabilities"
            return self._without_energy(candidates, why, question)
        scored = [i for i, candidate in enumerate(candidates) if candidate.energy is not None]
        if not scored:
            return self._without_energy(candidates, "no candidate has any text to score", question)
        # the rule, on the candidates that have an energy
        raw, scorer, note = self._energy_basis([candidates[i] for i in scored])
        ballot = self._ballot([candidates[i] for i in scored], raw, question)
        keys = RULES[self.rule](ballot)
        weights = np.zeros(len(candidates))
        weights[scored] = keys[0]
        energies: list[float] = []
        if self.rule == "fep":
            found = np.full(len(candidates), np.nan)
            found[scored] = answer_energies(ballot)
            energies = found.tolist()
        first = int(winners(keys, ballot.present))
        # why it won
        agree = int((ballot.groups == ballot.groups[first]).sum())
        reason = self._description(agree, len(scored)) + note + self._similarity_note(ballot.similarity)
        return Verdict(scored[first], scorer, reason, tuple(weights.tolist()), tuple(energies))

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
        slow = np.array([candidate.agent not in CHEAP_AGENTS for candidate in candidates])
        pool = slow if slow.any() else ~slow
        # All candidates decide whether the answers are free text; only the pool votes.
        similarity = self.free_text_similarity(candidates, question)
        groups = np.where(pool, self.groups(candidates), -1)
        zeros = np.zeros(len(candidates))
        winner = int(winners(majority(Ballot(zeros, groups, zeros, similarity=similarity)), pool))
        voters = int(pool.sum())
        votes = (same_answer(groups) if similarity is None else similarity * pool) @ pool  # (n, n) @ (n,)
        judgment = candidates[winner].judgment
        if voters > 1 and similarity is not None:
            scorer, how = "agreement", "the most similar to the others" + self._similarity_note(similarity)
        elif voters > 1:
            scorer, how = "agreement", f"{votes.max():.0f} of {voters} agree"
        elif judgment is not None:
            scorer, how = "judgment", f"the verifier says {'CORRECT' if judgment else 'INCORRECT'}"
        else:
            scorer, how = "slow", "the slow answer"
        return Verdict(winner, scorer, f"{why}; {how}", tuple(np.where(pool, votes / voters, 0.0).tolist()))

    def _energy_basis(self, candidates: Sequence[Candidate]) -> tuple[bool, str, str]:
        """Whether raw energies are compared, the scorer, and a note for the reason (SPEC 5.5, 5.6).

        An aligned energy is never compared with a raw one: if one candidate has no alignment statistics, all are
        compared raw.
        """
        measured = [(candidate.model, energy) for candidate in candidates if (energy := candidate.energy)]
        if unaligned := sorted({model for model, energy in measured if energy.aligned is None}):
            note = f"; raw energies: no alignment statistics for {', '.join(unaligned)}"
            return True, f"{self.rule} (uncalibrated)", note
        return False, self.rule, ""

    def _ballot(self, candidates: Sequence[Candidate], raw: bool, question: str) -> Ballot:
        energies = [energy for candidate in candidates if (energy := candidate.energy)]
        ballot = Ballot(
            np.array([e.free_energy if raw or e.aligned is None else e.aligned for e in energies]),
            np.array(self.groups(candidates), dtype=np.int64),
            np.array([self.skills.get((c.model, c.step), 1.0) for c in candidates]),
            self.beta,
            self.free_text_similarity(candidates, question),
        )
        if self.rule in ("fep", "majority"):  # they compare free energies only
            return ballot
        confidence = np.array([confidences(candidate) for candidate in candidates]).T
        return replace(ballot, **dict(zip(CONFIDENCES, confidence, strict=True)))


def eligible(candidates: Sequence[Candidate]) -> list[int]:
    """The candidates that may win and vote.

    A candidate that violates the client's tools or response format is not eligible while another does not; nor is
    one that was cut off or states no answer (SPEC 5.6b).
    """
    valid = [i for i, candidate in enumerate(candidates) if not candidate.fault] or list(range(len(candidates)))
    return [i for i in valid if candidates[i].stated and candidates[i].finish != "length"] or valid


def missing_share(candidates: Sequence[Candidate]) -> float:
    """The share of tokens of all candidates that have no log-probability (SPEC 5.6)."""
    counts = [token_counts(candidate) for candidate in candidates]
    total, missing = (sum(each) for each in zip(*counts, strict=True))
    return missing / total if total else 1.0


def token_counts(candidate: Candidate) -> tuple[int, int]:
    """The number of tokens of a candidate, and of those without a log-probability; no control tokens.

    If the provider lists no tokens, their number is estimated, and all of them are without a log-probability.
    """
    if candidate.figures is not None:
        return candidate.figures.total, candidate.figures.missing
    counted = [token for token in candidate.tokens if not token.control]
    if counted:
        return len(counted), sum(token.logprob is None for token in counted)
    characters = len(candidate.text) + sum(len(str(call)) for call in candidate.tool_calls)
    estimate = -(-characters // _CHARACTERS_PER_TOKEN)
    return estimate, estimate


def confidences(candidate: Candidate) -> tuple[float, float, float]:
    """Mean log-probability, mean probability and lowest window of a candidate with log-probabilities."""
    if (known := candidate.figures) is not None:
        return known.mean_logprob or 0.0, known.mean_probability or 0.0, known.lowest_window or 0.0
    logprobs = np.array([t.logprob for t in candidate.tokens if t.logprob is not None and not t.control])
    size = logprobs.size  # `add.reduce` is faster than `mean`, which calls it through five layers of Python
    return np.add.reduce(logprobs) / size, np.add.reduce(np.exp(logprobs)) / size, _lowest_window(logprobs)


def token_figures(candidate: Candidate) -> TokenFigures:
    """The numbers of a candidate's tokens, so that they need not be kept."""
    total, missing = token_counts(candidate)
    energy = measure_energy(candidate.tokens, 0.0, None)
    if energy is None:
        return TokenFigures(total, missing)
    return TokenFigures(total, missing, energy.energy, energy.varentropy, *map(float, confidences(candidate)))


def rank(candidates: Sequence[Candidate], verdict: Verdict) -> list[int]:
    """All candidates, best first: the winner, the best of each other answer, then repetitions."""
    weights = verdict.weights or (0.0,) * len(candidates)
    groups = Fusion.groups(candidates)
    order = sorted(
        range(len(candidates)),
        key=lambda i: (i == verdict.winner, not candidates[i].fault, weights[i], *tie_break_key(candidates[i])),
        reverse=True,
    )
    best = distinct(order, groups)
    return best + [i for i in order if i not in best]


def distinct(order: Iterable[int], groups: Sequence[int] | Mapping[int, int]) -> list[int]:
    """The first candidate of each group, in this order.

    >>> distinct([2, 0, 1], groups=[5, 7, 5])
    [2, 1]
    """
    firsts: dict[int, int] = {}
    for i in order:
        firsts.setdefault(groups[i], i)
    return list(firsts.values())


def tie_break_key(candidate: Candidate) -> tuple[bool, str, str]:
    """The key that breaks exact ties by content, never by position: slow before fast, then by text."""
    return candidate.agent not in CHEAP_AGENTS, candidate.text, candidate.step


def _verdict_on_all(verdict: Verdict, numbers: Sequence[int], candidates: Sequence[Candidate]) -> Verdict:
    """The verdict on all candidates, given that on the eligible ones, which have these numbers."""
    weights = dict(zip(numbers, verdict.weights, strict=True))
    energies = dict(zip(numbers, verdict.energies, strict=False))
    every = range(len(candidates))
    faulty = sum(bool(candidate.fault) for candidate in candidates)
    faults = 0 if faulty == len(candidates) else faulty  # if all have one, none counts
    incomplete = len(candidates) - faults - len(numbers)
    notes = [f"{faults} of {len(candidates)} did not keep to the form asked for"] if faults else []
    notes += [f"{incomplete} of {len(candidates)} were cut off or stated no answer"] if incomplete else []
    return Verdict(
        numbers[verdict.winner],
        verdict.scorer,
        "; ".join([verdict.reason, *notes]),
        tuple(weights.get(i, 0.0) for i in every),
        tuple(energies.get(i, np.nan) for i in every) if energies else (),
    )


def _lowest_window(logprobs: Array) -> float:
    width = min(_WINDOW, len(logprobs))
    sums = np.concatenate(([0.0], np.cumsum(logprobs)))
    return float((sums[width:] - sums[:-width]).min() / width)
