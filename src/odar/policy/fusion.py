"""Candidates → one answer: the rule asked for if log-probabilities allow it, else a ladder down (SPEC 5.6).

free energy → agreement among slow samples → the verifier's judgment → the slow answer. The verdict names the rung.
`Fusion.choose` decides about one question. `Fusion.choose_rows` decides about recorded questions as arrays;
tests/policy/test_agreement.py holds the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from odar.policy.equivalence import AnswerGroups, Equivalence, group
from odar.policy.response_format import call_key
from odar.policy.rules import RULES, TIE, Array, Ballot, Bools, Ints, Votes, answer_energies, fuse, same_answer
from odar.policy.similarity import (
    EXACT_ONLY,
    SIMILARITIES,
    AnswerForm,
    SimilarityRows,
    answer_form,
    asks_for_choice,
    is_free_text,
    overlap,
)
from odar.types import Candidate, Role, Step, Verdict

FAST, VERIFY, SOLVE = range(3)
"""Columns of arrays over recorded questions: the fast answer, the verification, the first of the slow samples."""
_WINDOW = 32
"""Tokens over which DeepConf-style confidence is averaged."""
_CHARACTERS_PER_TOKEN = 4
"""Estimates the tokens of a candidate whose provider lists none."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """How candidates become one answer.

    Args:
        rule: the name of a rule in `RULES`.
        beta: β of the answer free energy (SPEC 5.10).
        missing_limit: the share of tokens without log-probs that free energy tolerates (SPEC 5.6).
        skills: w_m, the prior weight of each model at each step (SPEC 5.10b); 1 if none is given.
        equivalence: which answers are the same.
        similarity: how free text is compared, by a name of `SIMILARITIES` (SPEC 5.15); `none` compares it exactly.
    """

    rule: str = "fep"
    beta: float = np.inf
    missing_limit: float = 0.2
    skills: Mapping[tuple[str, Step], float] = field(default_factory=dict)
    equivalence: Equivalence = group
    similarity: str = "lexical"

    def __post_init__(self) -> None:
        _ = RULES[self.rule]  # an unknown rule is refused now, not when answers have been paid for
        if self.similarity != EXACT_ONLY:
            _ = SIMILARITIES[self.similarity]

    @property
    def slow_similarity(self) -> bool:
        """Whether comparing free text takes too long for an event loop, as with an encoder."""
        return self.similarity not in ("lexical", EXACT_ONLY)

    def choose(self, candidates: Sequence[Candidate], question: str = "") -> Verdict:
        """Pick the winner (SPEC 5.7). Energies must have been measured; the candidates' order does not matter.

        Args:
            candidates: the answers.
            question: what was asked; one that lists options is not answered in free text.

        Raises:
            ValueError: there is no candidate.
            UnknownName: nobody registered the rule.
        """
        if not candidates:
            raise ValueError("no candidate to choose from")
        able = eligible(candidates)
        verdict = self._choose([candidates[i] for i in able], question)
        return verdict if len(able) == len(candidates) else _among(verdict, able, candidates)

    def groups(self, candidates: Sequence[Candidate]) -> list[int]:
        """Number the answers: equal ones share a number, as do calls of the same tools with the same arguments."""
        spoken = [i for i, candidate in enumerate(candidates) if not candidate.tool_calls]
        numbers = dict(zip(spoken, self.equivalence([candidates[i].answer for i in spoken]), strict=True))
        calls: dict[str, int] = {}
        for i, candidate in enumerate(candidates):
            if candidate.tool_calls:
                numbers[i] = -1 - calls.setdefault(call_key(candidate.tool_calls), len(calls))
        return [numbers[i] for i in range(len(candidates))]

    def overlap(self, candidates: Sequence[Candidate], question: str = "") -> Array | None:
        """Return s between eligible candidates if they are free text (SPEC 5.15); None: they are equal or not."""
        if self.similarity == EXACT_ONLY or len(candidates) < 2 or asks_for_choice(question):
            return None
        forms = [
            AnswerForm.EXACT if candidate.tool_calls else answer_form(candidate.answer, stated=candidate.stated)
            for candidate in candidates
        ]
        if not is_free_text(forms):
            return None
        return overlap([candidate.answer for candidate in candidates], self.groups(candidates), self.similarity)

    def votes(self, candidates: Sequence[Candidate], question: str = "") -> Array:
        """Return s between the candidates that vote (SPEC 5.6b); 1 or 0 if their answers have an exact form."""
        voting = [candidates[i] for i in eligible(candidates)]
        s = self.overlap(voting, question)
        return np.equal.outer(groups := self.groups(voting), groups).astype(np.float64) if s is None else s

    def needs_surrogate(self, candidates: Sequence[Candidate]) -> bool:
        """Return whether free energy cannot decide between these eligible candidates by their own log-probs."""
        return len(candidates) > 1 and missing_share(candidates) > self.missing_limit

    def _choose(self, candidates: Sequence[Candidate], question: str) -> Verdict:
        if len(candidates) == 1:
            return Verdict(0, "only", "the only candidate", (1.0,))
        missing = missing_share(candidates)
        if missing > self.missing_limit:
            why = f"{missing:.0%} of the tokens have no log-probabilities"
            return self._without_energy(candidates, why, question)
        scored = [i for i, candidate in enumerate(candidates) if candidate.energy is not None]
        if not scored:
            return self._without_energy(candidates, "no candidate has any text to score", question)
        ballot, basis = self._ballot([candidates[i] for i in scored], question)
        keys = RULES[self.rule](ballot)
        best = max(
            range(len(scored)), key=lambda i: (*(key[i] for key in keys), *last_resort(candidates[scored[i]]))
        )
        weights = np.zeros(len(candidates))
        weights[scored] = keys[0]
        energies = np.full(len(candidates) if self.rule == "fep" else 0, np.nan)
        if self.rule == "fep":
            energies[scored] = answer_energies(ballot)
        reason = basis.reason("lowest free energy" if self.rule == "fep" else f"chosen by {self.rule}")
        reason += self._compared(ballot.similarity)
        scorer, shares = f"{self.rule}{basis.mark}", tuple(weights.tolist())
        return Verdict(scored[best], scorer, reason, shares, tuple(energies.tolist()))

    def _compared(self, similarity: Array | None) -> str:
        """Explain how free text was compared; empty for answers of an exact form."""
        if similarity is None:
            return ""
        others = similarity[~np.eye(len(similarity), dtype=bool)]
        return f"; free text, compared by {self.similarity} similarity (mean {others.mean():.2f})"

    def _without_energy(self, candidates: Sequence[Candidate], why: str, question: str) -> Verdict:
        """Descend the ladder below free energy: agreement, judgment, the slow answer (SPEC 5.6)."""
        slow = [i for i, candidate in enumerate(candidates) if candidate.role is Role.SLOW]
        pool = slow or list(range(len(candidates)))
        # Whether they are free text is decided by all of them, as everywhere; only the pool votes.
        similarity = self.overlap(candidates, question)
        groups = np.array(self.groups(candidates))
        s = (groups[:, None] == groups[None, :]) * 1.0 if similarity is None else similarity
        sums = {i: sum(sorted(s[i, pool].tolist())) for i in pool}
        most = max(sums.values())
        votes = {i: most if each >= most * (1 - TIE) else each for i, each in sums.items()}
        winner = max(pool, key=lambda i: (votes[i], *last_resort(candidates[i])))
        weights = tuple(votes.get(i, 0) / len(pool) for i in range(len(candidates)))
        judgment = candidates[winner].judgment
        if len(pool) > 1:
            agree = f"{most:.0f} of {len(pool)} agree" if similarity is None else "the most similar to the others"
            scorer, how = "agreement", agree + self._compared(similarity)
        elif judgment is not None:
            scorer, how = "judgment", f"the verifier says {'CORRECT' if judgment else 'INCORRECT'}"
        else:
            scorer, how = "slow", "the slow answer"
        return Verdict(winner, scorer, f"{why}; {how}", weights)

    def _ballot(self, candidates: Sequence[Candidate], question: str) -> tuple[Ballot, Basis]:
        """Collect the arrays a rule sees, and on what basis their energies are compared."""
        basis = Basis.of(candidates)
        energies = [candidate.energy for candidate in candidates if candidate.energy is not None]
        values = [e.free_energy if basis.raw or e.aligned is None else e.aligned for e in energies]
        if self.rule in ("fep", "majority"):  # which compare free energies only
            confidence = np.full((len(candidates), 3), np.nan)
        else:
            confidence = np.array([confidences(candidate) for candidate in candidates])
        return (
            Ballot(
                free_energy=np.array(values),
                mean_logprob=confidence[:, 0],
                mean_probability=confidence[:, 1],
                lowest_window=confidence[:, 2],
                groups=np.array(self.groups(candidates), dtype=np.int64),
                skills=np.array([self.skills.get((c.model, c.step), 1.0) for c in candidates]),
                beta=self.beta,
                similarity=self.overlap(candidates, question),
            ),
            basis,
        )

    def choose_rows(self, candidates: CandidateArrays, among: Bools) -> Ints:
        """Return the winning column of each row, of some of its candidates: `choose` as arrays.

        Every row must have a candidate.
        """
        view = self.compare(candidates, among)
        by_rule = self._by_rule(candidates, view)
        if not view.ladder.any():
            return by_rule
        slow = view.eligible.copy()
        slow[:, FAST] &= ~slow[:, FAST + 1 :].any(axis=1)  # the fast answer votes only if it is alone
        numbers = candidates.groups.among(view.eligible)
        groups = np.where(slow, numbers, -1)
        rank = np.argsort(candidates.order, axis=1).astype(np.float64)
        similarity = candidates.similarity.among(numbers, view.eligible)
        by_vote = _fuse(candidates.order, groups, rank, 0.0, np.ones(slow.shape), similarity)
        return np.where(view.ladder, by_vote, by_rule)

    def compare(self, candidates: CandidateArrays, among: Bools) -> Comparison:
        """Decide for every row which candidates are eligible, and by which energies they are compared."""
        able = candidates.eligible(among)
        total, missing = (np.where(able, each, 0).sum(axis=1) for each in (candidates.total, candidates.missing))
        share = np.divide(missing, total, out=np.ones(len(able)), where=total > 0)
        silent = (able.sum(axis=1) > 1) & (share > self.missing_limit)
        by_surrogate = silent & (np.isfinite(candidates.surrogate) | ~able).all(axis=1)
        column = by_surrogate[:, None]
        energy = np.where(column, candidates.surrogate, candidates.energy)
        aligned = np.where(column, candidates.surrogate_aligned, candidates.aligned)
        scored = able & np.isfinite(energy)
        ladder = (silent & ~by_surrogate) | ~scored.any(axis=1)
        calibrated = ~(scored & np.isnan(aligned)).any(axis=1, keepdims=True)
        return Comparison(able, scored, by_surrogate, ladder, np.where(calibrated, aligned, energy))

    def _by_rule(self, candidates: CandidateArrays, view: Comparison) -> Ints:
        """Return the winner by the rule; rows on the ladder hold anything.

        All built-in rules are the answer free energy of `fuse` with other energies: confidence rules take the most
        confident answer (β = ∞), majority counts (β = 0), DeepConf adds up exp(lowest window) (β = 1).
        """
        mask = np.where(view.ladder[:, None], view.eligible, view.scored)
        groups, ones, order = candidates.groups.among(mask), np.ones(mask.shape), candidates.order
        similarity = candidates.similarity.among(groups, mask)
        match self.rule:
            case "fep":
                return _fuse(order, groups, view.energy, self.beta, candidates.skills, similarity)
            case "majority":
                return _fuse(order, groups, view.energy, 0.0, ones, similarity)
            case "max_confidence":
                return _fuse(order, groups, -candidates.mean_probability, np.inf, ones)
            case "mean_logprob":
                return _fuse(order, groups, -candidates.mean_logprob, np.inf, ones)
            case "deepconf":
                return _fuse(order, groups, -candidates.lowest_window, 1.0, ones, similarity)
            case _:
                return self._row_by_row(candidates, view, groups, similarity)

    def _row_by_row(
        self, candidates: CandidateArrays, view: Comparison, groups: Ints, similarity: Array | None
    ) -> Ints:
        """Apply a rule from another package, such as a reward model: it sees one ballot at a time."""
        decide = RULES[self.rule]
        winners = np.zeros(len(groups), dtype=np.int64)
        for row in np.flatnonzero(~view.ladder):
            columns = np.array([column for column in candidates.order[row] if groups[row, column] >= 0])
            keys = decide(
                Ballot(
                    free_energy=view.energy[row, columns],
                    mean_logprob=candidates.mean_logprob[row, columns],
                    mean_probability=candidates.mean_probability[row, columns],
                    lowest_window=candidates.lowest_window[row, columns],
                    groups=groups[row, columns],
                    skills=candidates.skills[row, columns],
                    beta=self.beta,
                    similarity=None if similarity is None else similarity[row][np.ix_(columns, columns)],
                )
            )
            best = np.lexsort(tuple(-key for key in reversed(keys)))[0]  # stable: exact ties by content
            winners[row] = columns[best]
        return winners


def eligible(candidates: Sequence[Candidate]) -> list[int]:
    """Return the candidates that may win.

    A candidate that violates the client's tools or response format loses to any that does not. Of the others, one
    that was cut off or states no answer does not vote while any other candidate does (SPEC 5.6b).
    """
    able = [i for i, candidate in enumerate(candidates) if not candidate.fault] or list(range(len(candidates)))
    return [i for i in able if is_complete(candidates[i])] or able


def is_complete(candidate: Candidate) -> bool:
    """Return whether a candidate states its answer and was not cut off at the limit of tokens (SPEC 5.6b)."""
    return candidate.stated and candidate.finish != "length"


def missing_share(candidates: Sequence[Candidate]) -> float:
    """Return the share of a candidate set's tokens that have no log-probability (SPEC 5.6).

    A candidate whose provider lists no tokens counts as all missing, at four characters a token.
    """
    counts = [token_counts(candidate) for candidate in candidates]
    total, missing = (sum(each) for each in zip(*counts, strict=True))
    return missing / total if total else 1.0


def token_counts(candidate: Candidate) -> tuple[int, int]:
    """Count the tokens of a candidate, and those without a log-probability; control tokens count for neither."""
    counted = [token for token in candidate.tokens if not token.control]
    if counted:
        return len(counted), sum(token.logprob is None for token in counted)
    characters = len(candidate.text) + sum(len(str(call)) for call in candidate.tool_calls)
    estimate = -(-characters // _CHARACTERS_PER_TOKEN)
    return estimate, estimate


def confidences(candidate: Candidate) -> tuple[float, float, float]:
    """Return mean log-probability, mean probability and lowest window of a candidate with log-probabilities."""
    known = np.array([t.logprob for t in candidate.tokens if t.logprob is not None and not t.control])
    # numpy's mean is five layers of Python over this
    return np.add.reduce(known) / known.size, np.add.reduce(np.exp(known)) / known.size, _lowest_window(known)


def rank(candidates: Sequence[Candidate], verdict: Verdict) -> list[int]:
    """Sort all candidates, best first: the winner, the best of each other answer, then repetitions.

    For a client that asked for several answers: it gets distinct ones as long as there are any.
    """
    weights = verdict.weights or (0.0,) * len(candidates)
    groups = Fusion().groups(candidates)
    order = sorted(
        range(len(candidates)),
        key=lambda i: (i == verdict.winner, not candidates[i].fault, weights[i], *last_resort(candidates[i])),
        reverse=True,
    )
    firsts = {group: i for i in reversed(order) for group in [groups[i]]}
    return sorted(order, key=lambda i: firsts[groups[i]] != i)  # stable: the order holds within both halves


def last_resort(candidate: Candidate) -> tuple[bool, str, str]:
    """Break exact ties by content, never by position: slow before fast, then by text."""
    return candidate.role is Role.SLOW, candidate.text, candidate.step


def tie_order(candidates: Sequence[Candidate]) -> list[int]:
    """Return the candidates in the order in which exact ties are broken, the winner first."""
    return sorted(range(len(candidates)), key=lambda i: last_resort(candidates[i]), reverse=True)


def _among(verdict: Verdict, able: Sequence[int], candidates: Sequence[Candidate]) -> Verdict:
    """Turn a verdict on the eligible candidates into one on all."""
    weights = [0.0] * len(candidates)
    energies = [np.nan] * (len(candidates) if verdict.energies else 0)
    for place, i in enumerate(able):
        weights[i] = verdict.weights[place]
        if verdict.energies:
            energies[i] = verdict.energies[place]
    faults = sum(bool(candidate.fault) for candidate in candidates) % len(
        candidates
    )  # if all have one, none counts
    silent = len(candidates) - faults - len(able)
    notes = [f"{faults} of {len(candidates)} did not keep to the form asked for"] if faults else []
    notes += [f"{silent} of {len(candidates)} were cut off or stated no answer"] if silent else []
    reason = "; ".join([verdict.reason, *notes])
    return Verdict(able[verdict.winner], verdict.scorer, reason, tuple(weights), tuple(energies))


def _lowest_window(logprobs: Array) -> float:
    width = min(_WINDOW, len(logprobs))
    sums = np.concatenate(([0.0], np.cumsum(logprobs)))
    return float((sums[width:] - sums[:-width]).min() / width)


def _fuse(
    order: Ints, groups: Ints, energy: Array, beta: float, skills: Array, similarity: Array | None = None
) -> Ints:
    """`fuse` with columns in the order in which exact ties are broken."""
    energies, weights = (np.take_along_axis(each, order, axis=1) for each in (energy, skills))
    ordered = np.take_along_axis(groups, order, axis=1)
    if similarity is not None:
        similarity = similarity[np.arange(len(order))[:, None, None], order[:, :, None], order[:, None, :]]
    votes = Votes(energies, ordered, np.zeros(groups.shape, dtype=bool), similarity=similarity)
    found = fuse(votes, beta, weights)
    return np.asarray(np.take_along_axis(order, found[:, None], axis=1)[:, 0])


@dataclass(frozen=True, slots=True)
class CandidateArrays:
    """N recorded questions with up to M candidates each; every array is (N, M).

    Columns are the fast answer, the verification, then the slow samples. Where there is no candidate, `present` is
    False and the other arrays may hold anything.
    """

    present: Bools
    energy: Array
    """F by the log-probabilities of the model itself; NaN if there are none."""
    aligned: Array
    """F̃; NaN if the source has no statistics."""
    surrogate: Array
    """F by a surrogate's log-probabilities (SPEC 5.6); NaN if no surrogate scored the candidate."""
    surrogate_aligned: Array
    total: Array
    """Tokens, see `token_counts`."""
    missing: Array
    """Tokens without a log-probability."""
    complete: Bools
    """Whether the candidate states an answer and was not cut off (SPEC 5.6b)."""
    skills: Array
    """w_m of the source (SPEC 5.10b)."""
    order: Ints
    """The columns of each row in the order in which exact ties are broken: slow before fast, then by text."""
    mean_logprob: Array
    mean_probability: Array
    lowest_window: Array
    groups: AnswerGroups
    similarity: SimilarityRows

    def __len__(self) -> int:
        return len(self.present)

    def rows(self, index: Ints | Bools) -> CandidateArrays:
        """Some of the questions."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        tables = ("groups", "similarity")
        return CandidateArrays(**{n: v.rows(index) if n in tables else v[index] for n, v in parts.items()})

    def eligible(self, among: Bools) -> Bools:
        """Return the candidates that may win, of some of them: `eligible` as arrays."""
        among = among & self.present
        stated = among & self.complete
        return np.where(stated.any(axis=1, keepdims=True), stated, among)

    def votes(self, among: Bools) -> Array:
        """Return (N, M, M) s between the candidates that vote, 0 for the others: `Fusion.votes` as arrays."""
        voting = self.eligible(among)
        groups = self.groups.among(voting)
        s = self.similarity.among(groups, voting)
        return same_answer(groups) if s is None else np.where(voting[:, :, None] & voting[:, None, :], s, 0.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the candidates of each recorded question are compared."""

    eligible: Bools
    """(N, M) the candidates that may win."""
    scored: Bools
    """(N, M) those that have an energy."""
    by_surrogate: Bools
    """(N,) whether a surrogate's scores decide; it scores every eligible candidate."""
    ladder: Bools
    """(N,) whether too few log-probabilities are known for any energy to decide."""
    energy: Array
    """(N, M) F̃ if every scored candidate of the row has one, else F: the two are never compared (SPEC 5.5)."""


@dataclass(frozen=True, slots=True)
class Basis:
    """On what basis the energies of some candidates are compared, in the words of a trace (SPEC 5.5, 5.6).

    Aligned and raw energies are never compared: if one candidate has no alignment statistics, all are compared raw.
    The trace names models aligned by served traffic, and surrogates.

    >>> Basis(scorers=("m",)).reason("lowest free energy")
    'lowest free energy by surrogate m'
    """

    scorers: tuple[str, ...] = ()
    """Surrogates."""
    unaligned: tuple[str, ...] = ()
    """Models without statistics."""
    running: tuple[str, ...] = ()
    """Models whose statistics are those of served traffic."""

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> Basis:
        """Return the basis for candidates that have been measured."""
        energies = [(candidate.model, candidate.energy) for candidate in candidates if candidate.energy is not None]
        return cls(
            tuple(sorted({energy.scorer for _, energy in energies if energy.scorer})),
            tuple(sorted({model for model, energy in energies if energy.aligned is None})),
            tuple(sorted({model for model, energy in energies if energy.origin == "running"})),
        )

    @property
    def raw(self) -> bool:
        """Whether F is compared, because not every F̃ is known."""
        return bool(self.unaligned)

    @property
    def mark(self) -> str:
        """What is added to the name of the rule."""
        return self._by + (" (uncalibrated)" if self.raw else " (running)" if self.running else "")

    def reason(self, rule: str) -> str:
        """Explain why the winner won, given the rule's own explanation."""
        if self.raw:
            return f"raw free energy{self._by}: no alignment statistics for {', '.join(self.unaligned)}"
        served = f"; {', '.join(self.running)} aligned by served traffic" if self.running else ""
        return f"{rule}{self._by}{served}"

    @property
    def _by(self) -> str:
        return f" by surrogate {', '.join(self.scorers)}" if self.scorers else ""
