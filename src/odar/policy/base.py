"""What a policy is, and the simplest one: fixed choices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from odar.types import FAST, Ask, Candidate, Decision, Plan, Route, Stage, State, Verdict, within_path

STOP = "done"
"""Reason of a decision to stop, which reports leave out because it says nothing."""
FIXED = "fixed"
"""Reason of a decision that is the same for every question."""
Walk = tuple[Stage, ...]
"""The stages that a question passes through, from the first to the last."""


class Policy(ABC):
    """Decides in every state whether to ask another stage. Pure: no clock, no randomness, no I/O."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the policy in traces."""

    @property
    def opening(self) -> Decision | None:
        """The single call with which every question begins, if any: it can start before the plan is made."""
        return None

    @abstractmethod
    def next_stage(self, state: State) -> Decision:
        """The next stage, or stop."""

    @abstractmethod
    def walks(self, n: int = 1, max_path: Route | None = None) -> list[Walk]:
        """The walks for which money or calls may have to be reserved before a request is sent.

        The longest one comes first, then shorter ones down to a single call.

        Args:
            n: number of choices that the client asks for.
            max_path: the longest path that the key allows; walks beyond it are left out.
        """

    def verdict(self, state: State) -> Verdict | None:
        """The winner of the candidates; None leaves it to the fusion rule."""
        return None

    def describe_thresholds(self, plan: Plan) -> list[str]:
        """When a question like this one stops or goes on, in words; empty if nothing depends on a number."""
        return []

    def leading_candidate(self, state: State) -> Candidate | None:
        """The candidate that leads now, for a verifier; None without any."""
        verdict = self.verdict(state) if len(state.candidates) > 1 else None
        return state.candidates[0 if verdict is None else verdict.winner] if state.candidates else None

    def expected_usd(self, state: State) -> float:
        """The expected price of all further stages of a question, whose answers change none of them."""
        total = 0.0
        while (stage := self.next_stage(state).stage) is not None:
            total += stage_price(stage, state.plan)
            answered = Candidate(stage.asks[0].step, stage.asks[0].agent, "", "", "")
            state = replace(state, stages=(*state.stages, stage), candidates=(*state.candidates, answered))
        return total


@dataclass(frozen=True, slots=True)
class FixedPolicy(Policy):
    """Asks the same stages for every question: slow alone, self-consistency (`slow*5`), a named model.

    An agent that fails, or cannot answer, is replaced by the first of the others.

    >>> from odar.types import Assignment, Estimate
    >>> slow = State(Plan(Estimate(0.2, "length"), Assignment(models={"slow": "b"})))
    >>> print(FixedPolicy((Stage.parse("slow*5"),)).next_stage(slow).stage)
    slow*5
    """

    stages: tuple[Stage, ...]

    @classmethod
    def parse(cls, *stages: str) -> FixedPolicy:
        return cls(tuple(map(Stage.parse, stages)))

    @property
    def name(self) -> str:
        return ", ".join(map(str, self.stages))

    @property
    def opening(self) -> Decision | None:
        first = self.stages[0]
        return Decision(first, FIXED, final=len(self.stages) == 1) if first.calls == 1 else None

    def next_stage(self, state: State) -> Decision:
        plan = state.plan
        remaining = self.stages[len(state.stages) :]
        last = len(remaining) == 1
        if remaining and remaining[0].agents <= set(plan.models):
            stage = remaining[0].times(plan.n) if last else remaining[0]
            if state.fits(stage):
                alone = last and not state.stages and stage.calls == plan.n
                return Decision(stage, FIXED, final=alone)
        others = [Stage((Ask(agent, plan.n),)) for agent in plan.models if agent not in state.failed]
        if not state.candidates and others:
            stage = next(filter(state.fits, others), others[0])
            reason = "another agent failed" if state.failed else "the fixed stage does not fit the limits"
            return Decision(stage, reason, final=plan.n == 1)
        return Decision(None, STOP)

    def walks(self, n: int = 1, max_path: Route | None = None) -> list[Walk]:
        walks: list[Walk] = [(*self.stages[:-1], self.stages[-1].times(n)), (Stage((Ask(FAST, n),)),)]
        return [walk for walk in walks if within_path(walk, max_path)]


def stage_price(stage: Stage, plan: Plan) -> float:
    """Expected price of a stage for this question; samples of one request share its prompt."""
    total = 0.0
    for ask in stage.asks:
        price = plan.prices.get(ask.agent, 0.0)
        if ask.samples > 1:
            price += (ask.samples - 1) * plan.sample_prices.get(ask.agent, price)
        total += price
    return total
