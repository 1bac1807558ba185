"""Difficulty → path and budget (SPEC 1, 4.3), and the second choice after the fast answer (SPEC 5.11).

`Routing.decide` and `Routing.reconsider` decide about one question, `Routing.route` about recorded questions as
arrays; tests/policy/test_agreement.py holds the two equal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from odar.policy.arrays import Array, Bools, Ints
from odar.types import Assignment, Decision, Estimate, Path, Role

if TYPE_CHECKING:
    from odar.settings import RoutingSettings

PATHS = tuple(Path)
SIMPLE, MEDIUM, HARD = range(3)
"""Numbers of the paths in arrays: indices into PATHS."""
_UNREACHABLE = 2.0
"""A threshold above every difficulty."""


def path_shares(paths: Ints) -> tuple[float, float, float]:
    """Return the shares of Simple, Medium and Hard; NaN if there is no question.

    >>> path_shares(np.array([0, 0, 2, 0]))
    (0.75, 0.0, 0.25)
    """
    simple, medium, hard = (float((paths == path).mean()) if len(paths) else np.nan for path in range(3))
    return simple, medium, hard


@dataclass(frozen=True, slots=True)
class Thresholds:
    """τ1 and τ2 on the difficulty (SPEC 1, 2.7).

    >>> Thresholds(0.3, 0.7).path(0.3)
    <Path.MEDIUM: 'medium'>
    >>> Thresholds(0.3, 0.7).paths(np.array([0.1, 0.3, 0.9])).tolist()
    [0, 1, 2]
    """

    tau1: float
    tau2: float
    expert: str = ""
    """The expert that these thresholds are for; empty if they are common to all."""

    def path(self, difficulty: float) -> Path:
        """Return the path for one difficulty."""
        if difficulty < self.tau1:
            return Path.SIMPLE
        return Path.MEDIUM if difficulty < self.tau2 else Path.HARD

    def paths(self, difficulty: Array) -> Ints:
        """Return the number of the path for each difficulty."""
        return np.asarray((difficulty >= self.tau1).astype(np.int64) + (difficulty >= self.tau2))

    def reason(self, difficulty: float, name: str) -> str:
        """Return the explanation of the path for one difficulty, as shown in a trace."""
        expert = f" (thresholds of {self.expert})" if self.expert else ""
        match self.path(difficulty):
            case Path.SIMPLE:
                return f"{name} = {difficulty:.3f} < τ1 = {self.tau1:g}{expert}"
            case Path.MEDIUM:
                return f"τ1 = {self.tau1:g} ≤ {name} = {difficulty:.3f} < τ2 = {self.tau2:g}{expert}"
            case _:
                return f"{name} = {difficulty:.3f} ≥ τ2 = {self.tau2:g}{expert}"

    def scaled(self, ratio: float) -> Thresholds:
        """Return the thresholds multiplied by a ratio, none above 1."""
        return replace(self, tau1=min(1.0, self.tau1 * ratio), tau2=min(1.0, self.tau2 * ratio))


def thresholds_by_expert(
    common: Thresholds, tau1: Mapping[str, float], tau2: Mapping[str, float]
) -> dict[str, Thresholds]:
    """Return the thresholds of the experts that have their own; a missing one of the two is the common one."""
    experts = sorted({*tau1, *tau2})
    return {e: Thresholds(tau1.get(e, common.tau1), tau2.get(e, common.tau2), e) for e in experts}


@dataclass(frozen=True, slots=True)
class Route:
    """The path of each recorded question, and the difficulty that it was chosen by."""

    path: Ints
    """SIMPLE, MEDIUM or HARD."""
    difficulty: Array
    """The posterior if there is one, else the prior."""
    after_fast_answer: Bools
    """Whether the path was chosen after the fast answer (SPEC 5.11)."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The rule that chooses the path of a question.

    Args:
        thresholds: τ1 and τ2.
        samples: slow samples of the Hard path.
        uses_posterior: whether the path is chosen again after the fast answer (`routing.mode = "posterior"`).
        clearly_hard: if the prior is at least this, the path is chosen without the fast answer.
        enabled: if False, every question takes Medium: the paper's "rules only" (SPEC 4.4).
        by_expert: thresholds of single experts, which replace the common ones (SPEC 4.3).

    >>> Routing(Thresholds(0.3, 0.7), 5).decide(Estimate(0.12, "length")).path
    <Path.SIMPLE: 'simple'>
    """

    thresholds: Thresholds
    samples: int = 5
    uses_posterior: bool = False
    clearly_hard: float = 1.0
    enabled: bool = True
    by_expert: Mapping[str, Thresholds] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: RoutingSettings, enabled: bool = True) -> Routing:
        """Return the routing that the settings describe."""
        common = Thresholds(settings.tau1, settings.tau2)
        return cls(
            common,
            settings.samples,
            settings.mode == "posterior",
            settings.clearly_hard,
            enabled,
            thresholds_by_expert(common, settings.tau1_by_expert, settings.tau2_by_expert),
        )

    def thresholds_of(self, expert: str) -> Thresholds:
        """Return the thresholds for questions of one expert."""
        return self.by_expert.get(expert, self.thresholds)

    def for_target(self, thresholds: Thresholds) -> Routing:
        """Return the routing of a target (SPEC 5.13): one pair of thresholds, and no question is clearly hard."""
        return replace(self, thresholds=thresholds, by_expert={}, clearly_hard=_UNREACHABLE)

    def scaled(self, ratio: float) -> Routing:
        """Return the routing of a session (SPEC 4.5), with all thresholds multiplied by a ratio."""
        if ratio == 1.0:
            return self
        by_expert = {expert: thresholds.scaled(ratio) for expert, thresholds in self.by_expert.items()}
        return replace(self, thresholds=self.thresholds.scaled(ratio), by_expert=by_expert)

    def boundaries(self, expert: str) -> tuple[float, float, float]:
        """Return the difficulties at which the treatment of an expert's questions changes."""
        thresholds = self.thresholds_of(expert)
        return thresholds.tau1, thresholds.tau2, self.clearly_hard

    def decide(
        self, estimate: Estimate, assignment: Assignment | None = None, forced: Path | None = None
    ) -> Decision:
        """Choose the path by the prior, or take the one that the caller asked for (SPEC 4.3)."""
        assignment = assignment or Assignment()
        if forced is not None:
            path, reason = forced, "asked for by the caller"
        elif not self.enabled:
            path, reason = Path.MEDIUM, "strategy switched off"
        else:
            thresholds, d = self.thresholds_of(assignment.expert), estimate.exact_or_middle
            path, reason = thresholds.path(d), thresholds.reason(d, "d")
        return Decision(path, estimate, self.samples, reason, assignment, forced=forced is not None)

    def needs_fast_answer(self, decision: Decision) -> bool:
        """Return whether the fast answer can still change this path."""
        if not (self.uses_posterior and self.enabled) or decision.forced or decision.alone:
            return False
        clearly_hard, session = decision.estimate.exact_or_middle >= self.clearly_hard, decision.session
        if session is not None and session.requests:  # the session chose the path, not the prior
            return session.looks and (decision.path is Path.SIMPLE or not clearly_hard)
        return not clearly_hard

    def reconsider(self, decision: Decision, posterior: float, allowed: Collection[str] = PATHS) -> Decision:
        """Choose the path again after the fast answer (SPEC 5.11); a path that is not allowed is not taken.

        >>> routing = Routing(Thresholds(0.3, 0.7), 5, uses_posterior=True)
        >>> after = routing.reconsider(routing.decide(Estimate(0.5, "learned")), 0.2)
        >>> after.path, after.reason
        (<Path.SIMPLE: 'simple'>, 'posterior d = 0.200 < τ1 = 0.3; prior 0.500, medium')
        """
        thresholds = self.thresholds_of(decision.assignment.expert)
        path = thresholds.path(posterior)
        before = f"prior {decision.estimate.difficulty:.3f}, {decision.path}"
        reason = f"{thresholds.reason(posterior, 'posterior d')}; {before}"
        if path not in allowed:
            path, reason = decision.path, f"{reason}; {path} is not allowed"
        return replace(decision, path=path, reason=reason, posterior=posterior)

    def route(
        self, prior: Array, posterior: Array, experts: Sequence[str] | NDArray[np.str_] | None = None
    ) -> Route:
        """Choose the path of every recorded question: `decide`, `needs_fast_answer` and `reconsider` as arrays.

        Args:
            prior: d(x).
            posterior: d(x, y_fast); NaN if the fast answer has no signals.
            experts: the expert of each question; needed only if some have their own thresholds.
        """
        if not self.enabled:
            return Route(np.full(len(prior), MEDIUM), prior, np.zeros(len(prior), dtype=bool))
        after_fast_answer = (prior < self.clearly_hard) & self.uses_posterior
        difficulty = np.where(after_fast_answer & np.isfinite(posterior), posterior, prior)
        path = self.thresholds.paths(difficulty)
        if experts is not None:
            for expert, thresholds in self.by_expert.items():
                path = np.where(np.asarray(experts) == expert, thresholds.paths(difficulty), path)
        return Route(path, difficulty, after_fast_answer)


def restrict_path(
    decision: Decision, seeing: Collection[Role], max_path: Path | None = None
) -> tuple[Decision, list[str]]:
    """Return the decision as it can be carried out, and a note for each change of it.

    Args:
        decision: the chosen path.
        seeing: the agents that can see the images of the question; if there is only one, it answers alone.
        max_path: the most expensive path that the budget allows.
    """
    notes = []
    assignment = decision.assignment
    if len(seeing) == 1 and assignment.slow:
        blind = assignment.fast if Role.SLOW in seeing else assignment.slow
        notes.append(f"{blind} cannot see images; the {next(iter(seeing))} agent answers alone")
        if Role.FAST in seeing:
            decision = replace(decision, path=Path.SIMPLE, forced=True, alone=False)
        else:
            path = Path.MEDIUM if decision.path is Path.SIMPLE else decision.path
            decision = replace(decision, path=path, alone=True)
    if max_path is not None and PATHS.index(decision.path) > PATHS.index(max_path):
        notes.append(f"the {decision.path} path does not fit the budget; the {max_path} path was taken")
        decision = replace(decision, path=max_path)
    if notes:
        decision = replace(decision, reason="; ".join([decision.reason, *notes]))
    return decision, notes
