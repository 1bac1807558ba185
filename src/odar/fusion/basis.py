"""On what basis energies are compared, in the words of a trace (SPEC 5.5, 5.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odar.types import Candidate


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
