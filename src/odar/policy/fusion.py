"""Candidates → verdict: the rule asked for where log-probabilities allow it, else a ladder down (SPEC 5.6).

free energy → agreement among slow samples → the verifier's judgment → the slow answer. The verdict names the rung.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from odar.policy.equivalence import Equivalence, group
from odar.policy.response_format import call_key
from odar.policy.rules import RULES, Array, Ballot
from odar.types import Candidate, Role, Step, Verdict

_WINDOW = 32
"""Tokens over which DeepConf-style confidence is averaged."""
_CHARACTERS_PER_TOKEN = 4
"""Only to weigh a candidate whose provider lists no tokens at all against those that do."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """How candidates become one answer.

    Args:
        rule: the name of a rule in `RULES`.
        beta: β of the answer free energy (SPEC 5.10).
        missing_limit: the share of tokens without log-probs that free energy bears (SPEC 5.6).
        skills: w_m, the prior weight of each model at each step (SPEC 5.10b); 1 where none is given.
        equivalence: which answers are the same one.
    """

    rule: str = "fep"
    beta: float = np.inf
    missing_limit: float = 0.2
    skills: Mapping[tuple[str, Step], float] = field(default_factory=dict)
    equivalence: Equivalence = group

    def __post_init__(self) -> None:
        _ = RULES[self.rule]  # an unknown rule is refused now, not when answers have been paid for

    def choose(self, candidates: Sequence[Candidate]) -> Verdict:
        """Pick the winner (SPEC 5.7). Energies must have been measured; the candidates' order does not matter.

        A candidate at fault with the client's tools or response format loses to any without a fault.

        Raises:
            ValueError: there is no candidate.
            UnknownName: nobody registered the rule.
        """
        decide = RULES[self.rule]
        if not candidates:
            raise ValueError("no candidate to choose from")
        fit = [i for i, candidate in enumerate(candidates) if not candidate.fault]
        if fit and len(fit) < len(candidates):
            return _among(self.choose([candidates[i] for i in fit]), fit, len(candidates))
        if len(candidates) == 1:
            return Verdict(0, "only", "the only candidate", (1.0,))
        missing = missing_share(candidates)
        if missing > self.missing_limit:
            return self._without_energy(candidates, f"{missing:.0%} of the tokens have no log-probabilities")
        scored = [i for i, candidate in enumerate(candidates) if candidate.energy is not None]
        if not scored:
            return self._without_energy(candidates, "no candidate has any text to score")
        ballot, basis = self._ballot([candidates[i] for i in scored])
        keys = decide(ballot)
        best = max(
            range(len(scored)), key=lambda i: (*(key[i] for key in keys), *last_resort(candidates[scored[i]]))
        )
        weights = np.zeros(len(candidates))
        weights[scored] = keys[0]
        reason = "lowest free energy" if self.rule == "fep" else f"chosen by {self.rule}"
        return Verdict(scored[best], f"{self.rule}{basis.mark}", basis.reason(reason), tuple(weights.tolist()))

    def groups(self, candidates: Sequence[Candidate]) -> list[int]:
        """A number per candidate; equal answers share it, as do calls of the same tools with the same arguments."""
        spoken = [i for i, candidate in enumerate(candidates) if not candidate.tool_calls]
        numbers = dict(zip(spoken, self.equivalence([candidates[i].answer for i in spoken]), strict=True))
        calls: dict[str, int] = {}
        for i, candidate in enumerate(candidates):
            if candidate.tool_calls:
                numbers[i] = -1 - calls.setdefault(call_key(candidate.tool_calls), len(calls))
        return [numbers[i] for i in range(len(candidates))]

    def _without_energy(self, candidates: Sequence[Candidate], why: str) -> Verdict:
        """The rungs below free energy: agreement, judgment, the slow answer (SPEC 5.6)."""
        slow = [i for i, candidate in enumerate(candidates) if candidate.role is Role.SLOW]
        pool = slow or list(range(len(candidates)))
        groups = self.groups(candidates)
        votes = {i: sum(groups[j] == groups[i] for j in pool) for i in pool}
        winner = max(pool, key=lambda i: (votes[i], *last_resort(candidates[i])))
        weights = tuple(votes.get(i, 0) / len(pool) for i in range(len(candidates)))
        judgment = candidates[winner].judgment
        if len(pool) > 1:
            scorer, how = "agreement", f"{votes[winner]} of {len(pool)} agree"
        elif judgment is not None:
            scorer, how = "judgment", f"the verifier says {'CORRECT' if judgment else 'INCORRECT'}"
        else:
            scorer, how = "slow", "the slow answer"
        return Verdict(winner, scorer, f"{why}; {how}", weights)

    def _ballot(self, candidates: Sequence[Candidate]) -> tuple[Ballot, Basis]:
        """The arrays a rule sees, and on what basis their energies are compared."""
        basis = Basis.of(candidates)
        energies = [candidate.energy for candidate in candidates if candidate.energy is not None]
        values = [e.free_energy if basis.raw or e.aligned is None else e.aligned for e in energies]
        sureness = np.array([confidences(candidate) for candidate in candidates])
        return (
            Ballot(
                free_energy=np.array(values),
                mean_logprob=sureness[:, 0],
                mean_probability=sureness[:, 1],
                lowest_window=sureness[:, 2],
                groups=np.array(self.groups(candidates), dtype=np.int64),
                skills=np.array([self.skills.get((c.model, c.step), 1.0) for c in candidates]),
                beta=self.beta,
            ),
            basis,
        )


def missing_share(candidates: Sequence[Candidate]) -> float:
    """The share of a candidate set's tokens that have no log-probability (SPEC 5.6).

    A candidate whose provider lists no tokens counts as all missing, at four characters a token.
    """
    counts = [token_counts(candidate) for candidate in candidates]
    total, missing = (sum(each) for each in zip(*counts, strict=True))
    return missing / total if total else 1.0


def token_counts(candidate: Candidate) -> tuple[int, int]:
    """Tokens of a candidate, and how many of them have no log-probability; control tokens count for neither."""
    counted = [token for token in candidate.tokens if not token.control]
    if counted:
        return len(counted), sum(token.logprob is None for token in counted)
    characters = len(candidate.text) + sum(len(str(call)) for call in candidate.tool_calls)
    estimate = -(-characters // _CHARACTERS_PER_TOKEN)
    return estimate, estimate


def confidences(candidate: Candidate) -> tuple[float, float, float]:
    """Mean log-probability, mean probability and lowest window of a candidate that has log-probabilities."""
    known = np.array([t.logprob for t in candidate.tokens if t.logprob is not None and not t.control])
    # numpy's mean is five layers of Python over this
    return np.add.reduce(known) / known.size, np.add.reduce(np.exp(known)) / known.size, _lowest_window(known)


def rank(candidates: Sequence[Candidate], verdict: Verdict) -> list[int]:
    """Every candidate, the best first: the winner, the best of each other answer, then what repeats one of them.

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


def _among(verdict: Verdict, fit: Sequence[int], total: int) -> Verdict:
    """A verdict on some of the candidates as one on all."""
    weights = [0.0] * total
    for i, weight in zip(fit, verdict.weights, strict=True):
        weights[i] = weight
    note = f"{total - len(fit)} of {total} did not keep to the form asked for"
    return Verdict(fit[verdict.winner], verdict.scorer, f"{verdict.reason}; {note}", tuple(weights))


def _lowest_window(logprobs: Array) -> float:
    width = min(_WINDOW, len(logprobs))
    sums = np.concatenate(([0.0], np.cumsum(logprobs)))
    return float((sums[width:] - sums[:-width]).min() / width)


def last_resort(candidate: Candidate) -> tuple[bool, str, str]:
    """Breaks exact ties by content, never by position: slow before fast, then by text."""
    return candidate.role is Role.SLOW, candidate.text, candidate.step


@dataclass(frozen=True, slots=True)
class Basis:
    """How the energies of some candidates were made comparable.

    Aligned and raw energies never meet: if one candidate has no alignment statistics, all are compared raw. Who is
    aligned by served traffic, and who scored in a model's place, is said.

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
        """The basis for candidates that have been measured."""
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
        """Why the winner won, given the rule's own word for it."""
        if self.raw:
            return f"raw free energy{self._by}: no alignment statistics for {', '.join(self.unaligned)}"
        served = f"; {', '.join(self.running)} aligned by served traffic" if self.running else ""
        return f"{rule}{self._by}{served}"

    @property
    def _by(self) -> str:
        return f" by surrogate {', '.join(self.scorers)}" if self.scorers else ""
