"""d → path and budget (SPEC 1, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from odar.types import Decision, Estimate, Path


@dataclass(frozen=True, slots=True)
class Strategy:
    """Thresholds on difficulty, and how many slow samples Hard takes.

    >>> Strategy(0.3, 0.7, 5).decide(Estimate(0.12, "length")).path
    <Path.SIMPLE: 'simple'>
    """

    tau1: float
    tau2: float
    samples: int

    def decide(self, estimate: Estimate, forced: Path | None = None) -> Decision:
        """The path for this difficulty, or the one the caller insists on."""
        d = estimate.difficulty
        if forced is not None:
            return Decision(forced, estimate, self.samples, "asked for by the caller")
        if d < self.tau1:
            return Decision(Path.SIMPLE, estimate, self.samples, f"d = {d:.3f} < τ1 = {self.tau1:g}")
        if d < self.tau2:
            reason = f"τ1 = {self.tau1:g} ≤ d = {d:.3f} < τ2 = {self.tau2:g}"
            return Decision(Path.MEDIUM, estimate, self.samples, reason)
        return Decision(Path.HARD, estimate, self.samples, f"d = {d:.3f} ≥ τ2 = {self.tau2:g}")
