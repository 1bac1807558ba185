"""The paper's policy: difficulty → Simple, Medium or Hard, by two thresholds (SPEC 1, 4.3, 9.6).

Simple is one fast call. Medium is the fast answer and its verification by the slow agent. Hard is one stage with
the fast agent and five independent slow samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odar.policy.base import STOP, Policy, Walk, decision_of
from odar.types import FAST, SLOW, Ask, Decision, Plan, Route, Stage, State, within_path

if TYPE_CHECKING:
    from odar.settings import RoutingSettings

PATHS = tuple(Route)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """τ1 and τ2 on the difficulty (SPEC 1, 2.7).

    >>> Thresholds(0.3, 0.7).choose(0.3)
    (<Route.MEDIUM: 'medium'>, 'τ1 = 0.3 ≤ d = 0.300 < τ2 = 0.7')
    """

    tau1: float
    tau2: float
    expert: str = ""
    """The expert that these thresholds are for; empty if they are common to all."""

    def choose(self, difficulty: float) -> tuple[Route, str]:
        """The path, and the reason."""
        expert = f" (thresholds of {self.expert})" if self.expert else ""
        if difficulty < self.tau1:
            return Route.SIMPLE, f"d = {difficulty:.3f} < τ1 = {self.tau1:g}{expert}"
        if difficulty < self.tau2:
            return Route.MEDIUM, f"τ1 = {self.tau1:g} ≤ d = {difficulty:.3f} < τ2 = {self.tau2:g}{expert}"
        return Route.HARD, f"d = {difficulty:.3f} ≥ τ2 = {self.tau2:g}{expert}"


@dataclass(frozen=True, slots=True)
class PaperPolicy(Policy):
    """Chooses the path of a question by its difficulty alone.

    Args:
        thresholds: τ1 and τ2.
        samples: slow samples of the Hard path.
        by_expert: thresholds of single experts, which replace the common ones (SPEC 4.3).
        forced: the path that the caller asked for.

    >>> from odar.types import Assignment, Estimate
    >>> pair = Assignment(models={"fast": "a", "slow": "b"})
    >>> print(PaperPolicy(Thresholds(0.3, 0.7)).next_stage(State(Plan(Estimate(0.9, "length"), pair))).stage)
    fast+slow*5
    """

    thresholds: Thresholds = Thresholds(0.3, 0.7)
    samples: int = 5
    by_expert: Mapping[str, Thresholds] = field(default_factory=dict)
    forced: Route | None = None

    name = "paper"

    @classmethod
    def from_settings(cls, settings: RoutingSettings, forced: Route | None = None) -> PaperPolicy:
        common = Thresholds(settings.tau1, settings.tau2)
        experts = sorted({*settings.tau1_by_expert, *settings.tau2_by_expert})
        by_expert = {
            expert: Thresholds(
                settings.tau1_by_expert.get(expert, common.tau1),
                settings.tau2_by_expert.get(expert, common.tau2),
                expert,
            )
            for expert in experts
        }
        return cls(common, settings.samples, by_expert, forced)

    def thresholds_of(self, expert: str) -> Thresholds:
        return self.by_expert.get(expert, self.thresholds)

    @property
    def opening(self) -> Decision:
        """The fast call, with which every path begins."""
        return Decision(Stage((Ask(FAST),)), "every path begins with it")

    def choose_path(self, plan: Plan) -> tuple[Route, str]:
        if self.forced is not None:
            path, reason = self.forced, "asked for by the caller"
        else:
            path, reason = self.thresholds_of(plan.assignment.expert).choose(plan.estimate.difficulty)
        if plan.max_path is not None and PATHS.index(path) > PATHS.index(plan.max_path):
            reason += f"; the {path} path does not fit the budget, the {plan.max_path} path was taken"
            path = plan.max_path
        return path, reason

    def next_stage(self, state: State) -> Decision:
        """The next stage of the path; an agent that failed is replaced by the other (SPEC 6.3)."""
        plan = state.plan
        path, reason = self.choose_path(plan)
        asked = len(state.stages)
        usable = [agent for agent in (FAST, SLOW) if agent in plan.models and agent not in state.failed]
        if len(plan.models) == 1:  # only one agent can see the images
            if asked or not usable:
                return Decision(None, STOP)
            return decision_of(Stage((Ask(usable[0], plan.n),)), reason)
        # Hard: one stage
        if path is Route.HARD:
            samples = Ask(SLOW, max(self.samples, plan.n))
            return Decision(None, STOP) if asked else decision_of(Stage((Ask(FAST), samples)), reason)
        # the second stage of Medium
        if path is Route.MEDIUM and asked == 1:
            proposal = bool(state.candidates)
            why = "verify" if proposal else "the fast agent failed"
            return decision_of(Stage((Ask(SLOW, plan.n, verify=proposal),)), why)
        # the first stage of Medium and Simple; then slow, if the fast agent failed
        if asked == 0:
            samples = Ask(FAST, plan.n if path is Route.SIMPLE else 1)
            return Decision(Stage((samples,)), reason, final=path is Route.SIMPLE)
        if not state.candidates and SLOW in usable:
            return decision_of(Stage((Ask(SLOW, plan.n),)), "the fast agent failed")
        return Decision(None, STOP)

    def walks(self, n: int = 1, max_path: Route | None = None) -> list[Walk]:
        """The walk of each path, or of the one that the caller asked for."""
        by_path = {
            Route.HARD: (Stage((Ask(FAST), Ask(SLOW, max(self.samples, n)))),),
            Route.MEDIUM: (Stage((Ask(FAST),)), Stage((Ask(SLOW, n, verify=True),))),
            Route.SIMPLE: (Stage((Ask(FAST, n),)),),
        }
        walks = [walk for path, walk in by_path.items() if self.forced in (None, path)]
        return [walk for walk in walks if within_path(walk, max_path)]

    def describe_thresholds(self, plan: Plan) -> list[str]:
        if self.forced is not None:
            return []
        own = self.thresholds_of(plan.assignment.expert)
        return [f"simple if d < {own.tau1:g}, medium if d < {own.tau2:g}, else hard"]
