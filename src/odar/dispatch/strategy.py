"""d → path and budget (SPEC 1, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from odar.types import Assignment, Decision, Estimate, Path


@dataclass(frozen=True, slots=True)
class Strategy:
    """Thresholds on difficulty, and how many slow samples Hard takes.

    Switched off, every query takes Medium: the paper's "rules only" (SPEC 4.4).

    >>> Strategy(0.3, 0.7, 5).decide(Estimate(0.12, "length")).path
    <Path.SIMPLE: 'simple'>
    """

    tau1: float
    tau2: float
    samples: int
    enabled: bool = True

    def decide(
        self, estimate: Estimate, assignment: Assignment | None = None, forced: Path | None = None
    ) -> Decision:
        """The path for this difficulty, or the one the caller insists on."""
        path, reason = self._path(estimate.difficulty)
        if forced is not None:
            path, reason = forced, "asked for by the caller"
        return Decision(path, estimate, self.samples, reason, assignment or Assignment(), forced is not None)

    def _path(self, d: float) -> tuple[Path, str]:
        if not self.enabled:
            return Path.MEDIUM, "strategy switched off"
        if d < self.tau1:
            return Path.SIMPLE, f"d = {d:.3f} < τ1 = {self.tau1:g}"
        if d < self.tau2:
            return Path.MEDIUM, f"τ1 = {self.tau1:g} ≤ d = {d:.3f} < τ2 = {self.tau2:g}"
        return Path.HARD, f"d = {d:.3f} ≥ τ2 = {self.tau2:g}"
