"""d → path and budget (SPEC 1, 4.3)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

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
        """The path for this difficulty, or the one the caller insists on (SPEC 4.3)."""
        path, reason = self._path(estimate.exact_or_middle)
        if forced is not None:
            path, reason = forced, "asked for by the caller"
        return Decision(path, estimate, self.samples, reason, assignment or Assignment(), forced is not None)

    def reconsider(self, decision: Decision, posterior: float, allowed: Collection[str] = tuple(Path)) -> Decision:
        """The decision after the fast answer was seen (SPEC 5.11); a path that is not allowed is not taken.

        >>> before = Strategy(0.3, 0.7, 5).decide(Estimate(0.5, "learned"))
        >>> after = Strategy(0.3, 0.7, 5).reconsider(before, 0.2)
        >>> after.path, after.reason
        (<Path.SIMPLE: 'simple'>, 'posterior d = 0.200 < τ1 = 0.3; prior 0.500, medium')
        """
        path, reason = self._path(posterior, "posterior d")
        reason += f"; prior {decision.estimate.difficulty:.3f}, {decision.path}"
        if path not in allowed:
            path, reason = decision.path, f"{reason}; {path} is not allowed"
        return replace(decision, path=path, reason=reason, posterior=posterior)

    def _path(self, d: float, name: str = "d") -> tuple[Path, str]:
        if not self.enabled:
            return Path.MEDIUM, "strategy switched off"
        if d < self.tau1:
            return Path.SIMPLE, f"{name} = {d:.3f} < τ1 = {self.tau1:g}"
        if d < self.tau2:
            return Path.MEDIUM, f"τ1 = {self.tau1:g} ≤ {name} = {d:.3f} < τ2 = {self.tau2:g}"
        return Path.HARD, f"{name} = {d:.3f} ≥ τ2 = {self.tau2:g}"
