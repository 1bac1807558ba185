"""The paper's policy: difficulty → Simple, Medium or Hard, by two thresholds (SPEC 1, 4.3, 9.6).

Simple is one fast call. Medium is the fast answer and its verification by the slow agent. Hard is one stage with
the fast agent and five independent slow samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odar.policy.base import STOP, Policy, Walk
from odar.types import FAST, SLOW, Ask, Decision, Plan, Route, Stage, State, within_path

if TYPE_CHECKING:
    from odar.settings import RoutingSettings

PATHS = tuple(Route)


@dataclass(frozen=True, slots=True)
class PaperPolicy(Policy):
    """Chooses the path of a question by its difficulty alone.

    Args:
        tau1: τ1, the difficulty from which a question is Medium (SPEC 2.7).
        tau2: τ2, the difficulty from which it is Hard.
        samples: slow samples of the Hard path.
        by_expert: τ1 and τ2 of single experts, in place of the common ones (SPEC 4.3).
        forced: the path that the caller asked for.

    >>> from odar.types import Assignment, Estimate
    >>> pair = Assignment(models={"fast": "a", "slow": "b"})
    >>> print(PaperPolicy().next_stage(State(Plan(Estimate(0.9, "length"), pair))).stage)
    fast+slow*5
    """

    tau1: float = 0.3
    tau2: float = 0.7
    samples: int = 5
    by_expert: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    forced: Route | None = None

    name = "paper"

    @classmethod
    def from_settings(cls, settings: RoutingSettings, forced: Route | None = None) -> PaperPolicy:
        tau1s, tau2s = settings.tau1_by_expert, settings.tau2_by_expert
        by_expert = {
            expert: (tau1s.get(expert, settings.tau1), tau2s.get(expert, settings.tau2))
            for expert in sorted({*tau1s, *tau2s})
        }
        return cls(settings.tau1, settings.tau2, settings.samples, by_expert, forced)

    def thresholds_of(self, expert: str) -> tuple[float, float]:
        return self.by_expert.get(expert, (self.tau1, self.tau2))

    @property
    def opening(self) -> Decision:
        return Decision(Stage((Ask(FAST),)), "every path begins with it")

    def choose_path(self, plan: Plan) -> tuple[Route, str]:
        """The path, no longer than the plan allows, and the reason."""
        if self.forced is not None:
            path = self.forced
            reason = "asked for by the caller"
        else:
            path, reason = self.path_by_difficulty(plan.estimate.difficulty, plan.assignment.expert)
        if plan.max_path is not None and PATHS.index(path) > PATHS.index(plan.max_path):
            reason += f"; the {path} path does not fit the budget, the {plan.max_path} path was taken"
            path = plan.max_path
        return path, reason

    def path_by_difficulty(self, difficulty: float, expert: str = "") -> tuple[Route, str]:
        """The path, and the reason.

        >>> PaperPolicy().path_by_difficulty(0.3)
        (<Route.MEDIUM: 'medium'>, 'τ1 = 0.3 ≤ d = 0.300 < τ2 = 0.7')
        """
        tau1, tau2 = self.thresholds_of(expert)
        origin = f" (thresholds of {expert})" if expert in self.by_expert else ""
        if difficulty < tau1:
            return Route.SIMPLE, f"d = {difficulty:.3f} < τ1 = {tau1:g}{origin}"
        if difficulty < tau2:
            return Route.MEDIUM, f"τ1 = {tau1:g} ≤ d = {difficulty:.3f} < τ2 = {tau2:g}{origin}"
        return Route.HARD, f"d = {difficulty:.3f} ≥ τ2 = {tau2:g}{origin}"

    def next_stage(self, state: State) -> Decision:
        """The next stage of the path; an agent that failed is replaced by the other (SPEC 6.3)."""
        plan = state.plan
        path, reason = self.choose_path(plan)
        asked = len(state.stages)
        if not {FAST, SLOW} <= plan.models.keys():  # one of the two cannot see the images, or neither can
            usable = [agent for agent in (FAST, SLOW, *plan.models) if agent in plan.models]
            stage = Stage((Ask(usable[0], plan.n),))
            return Decision(None, STOP) if asked else Decision(stage, reason, final=plan.n == 1)
        walk = self._walk(path, plan.n)
        if asked == 0 or (asked < len(walk) and state.candidates):
            return Decision(walk[asked], "verify" if asked else reason, final=path is Route.SIMPLE)
        if path is not Route.HARD and not state.candidates and SLOW not in state.failed:
            return Decision(Stage((Ask(SLOW, plan.n),)), "the fast agent failed", final=plan.n == 1)
        return Decision(None, STOP)

    def _walk(self, path: Route, n: int) -> Walk:
        """The stages of a path for a client that wants n answers."""
        if path is Route.SIMPLE:
            return (Stage((Ask(FAST, n),)),)
        if path is Route.MEDIUM:
            return Stage((Ask(FAST),)), Stage((Ask(SLOW, n, verify=True),))
        return (Stage((Ask(FAST), Ask(SLOW, max(self.samples, n)))),)

    def walks(self, n: int = 1, max_path: Route | None = None) -> list[Walk]:
        """The walk of each path, or of the one that the caller asked for."""
        walks = [self._walk(path, n) for path in reversed(PATHS) if self.forced in (None, path)]
        return [walk for walk in walks if within_path(walk, max_path)]

    def describe_thresholds(self, plan: Plan) -> list[str]:
        if self.forced is not None:
            return []
        tau1, tau2 = self.thresholds_of(plan.assignment.expert)
        return [f"simple if d < {tau1:g}, medium if d < {tau2:g}, else hard"]
