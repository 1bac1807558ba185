"""The cascade: after every answer, is another call worth its price (SPEC 9)?

The stages are asked in order; any of them can be skipped, the first one too. A right answer is worth V dollars.
Stopping is worth p·V, where p is the probability that the leading answer is right, by the `belief`. A further stage
is worth the expected value after it, less its price, by `cascade_values`. Requests without a right answer to agree
on take one call.

One decision, from the top: `CascadePolicy.next_stage` gets a `State`. Its `Plan` has the prices and V, its opinions
are what the belief sees of each candidate (`odar.agents.measure`). `Belief.posterior` turns them into p and q;
`StageValues.best_stage` says what each stage is worth at this p and q.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations

from odar.policy.base import Policy, Walk, stage_price
from odar.policy.belief import Belief, Evidence, Posterior, RatedAgent
from odar.policy.cascade_values import Reached, Simulation, StageValues
from odar.policy.kinds import Kind
from odar.types import (
    CHEAP_AGENTS,
    FAST,
    MAX_STAGES,
    SECOND,
    SLOW,
    Ask,
    Candidate,
    Decision,
    Plan,
    Route,
    Stage,
    State,
    Verdict,
    within_path,
)

LEVEL = 1.1
"""Ratio of adjacent price levels, so that questions of similar length share a table of values."""
_LOG_LEVEL = math.log(LEVEL)
MAX_TABLES = 2000
"""Number of tables of values that are kept; each takes a kilobyte or two."""
EASY = 0.2
"""Difficulty up to which any agent answers an open-ended request well; above it, skill counts more and more."""
PROSE_WORDS = 40
"""Number of words above which a reply without a final answer is prose."""
MAX_PLAUSIBLE = 20
"""Number of plausible answers above which more make no difference."""


def default_stages(agents: Mapping[str, object]) -> tuple[Stage, ...]:
    """Cheap agents, slow, other agents, then further samples of slow (SPEC 9.2).

    >>> [str(stage) for stage in default_stages({"fast": 1, "slow": 1})]
    ['fast', 'slow', 'slow*2', 'slow*2']
    """
    cheap = [agent for agent in (FAST, SECOND) if agent in agents]
    others = [agent for agent in agents if agent not in CHEAP_AGENTS and agent != SLOW]
    texts = (*cheap, SLOW, *others, f"{SLOW}*2", f"{SLOW}*2")
    return tuple(Stage.parse(text) for text in texts[:MAX_STAGES])


_Key = tuple[str, int, tuple[int, ...]]
"""What the values of the stages depend on: the kind of question (empty if no skill by kind is known), the number of
plausible answers (0 means many), and the price level of each stage."""


@dataclass(frozen=True, slots=True)
class CascadePolicy(Policy):
    """Asks a further stage while it is worth its price.

    Args:
        stages: the stages in order.
        agents: skill and family of each agent.
        belief: p and q.
        max_samples: the most samples of an agent in all, so that `slow`, `slow*3` and `slow*5` are alternatives; an
            agent that is missing has no limit.
    """

    stages: tuple[Stage, ...]
    agents: Mapping[str, RatedAgent]
    belief: Belief
    max_samples: Mapping[str, int] = field(default_factory=dict)
    _simulations: dict[tuple[str, int], Simulation] = field(default_factory=dict, init=False, repr=False)
    """By the kind of question and the number of plausible answers."""
    _values: dict[_Key, StageValues] = field(default_factory=dict, init=False, repr=False)
    """The values that were computed last, the oldest first."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    name = "cascade"

    def posterior(self, state: State) -> Posterior:
        plan = state.plan
        return self.belief.posterior(
            Evidence(state.opinions, plausible=plan.plausible, difficulty=plan.estimate.difficulty)
        )

    def verdict(self, state: State) -> Verdict | None:
        """The leading answer, in the words of its most skilled agent; None if no agent gave an answer."""
        posterior = self.posterior(state)
        opinions = state.opinions
        members = [i for i, opinion in enumerate(opinions) if opinion.group == posterior.leader]
        if not members:
            return None
        winner = max(members, key=lambda i: (opinions[i].agent.skill, -i))
        agree = f"{len(members)} of {len(opinions)} answers agree" if len(opinions) > 1 else "the only answer"
        if state.plan.kind != Kind.OPEN_ENDED:  # which has no right answer
            agree = f"{posterior.p:.0%} likely right; {agree}"
        weights = tuple(float(opinion.group == posterior.leader) * posterior.p for opinion in opinions)
        return Verdict(winner, "belief", agree, weights)

    def next_stage(self, state: State) -> Decision:
        """Decide: one call, the stage that is worth most, or to stop."""
        plan = state.plan
        posterior = self.posterior(state)
        # is there a choice?
        if plan.one_call:
            return self._one_call(state, posterior)
        p = posterior.p if state.candidates else None
        if plan.kind == Kind.SHORT and any(map(_is_prose, state.candidates)):
            return Decision(None, "the reply is prose without a final answer, so there is nothing to compare", p=p)
        reached = self._reached(state)
        position = reached[-1] + 1 if reached else 0
        numbers = [i for i in range(position, len(self.stages)) if self._may_ask(self.stages[i], state)]
        if not numbers and not state.candidates:
            return self._one_call(state, posterior)
        if not numbers:
            left = position < len(self.stages)
            return Decision(None, "no further stage fits the limits" if left else "every stage was asked", p=p)
        values = self.values(plan)
        if reached and reached[-1] in values.stop_after and _is_single_answer(state):
            return Decision(None, "no other call could be worth its price", p=p)
        # the stage that is worth most, against stopping now
        reference = self.stages[-1].asks[-1].agent
        q = posterior.q(self.agents[reference].on(plan.kind))
        best, worth = values.best_stage(numbers, p or 0.0, q)
        stage = self.stages[best]
        price = stage_price(stage, plan)
        gain = worth + price / plan.value_usd - (p or 0.0)
        if p is not None and worth <= p:
            reason = f"p = {p:.2f}: no further call is worth its price"
            return Decision(None, reason, p=p, q=q, price_usd=price, gain=gain)
        reason = "first answer" if p is None else f"p = {p:.2f}, {reference} would be right with {q:.2f}"
        final = p is None and stage.calls == 1 and (best == numbers[-1] or best in values.stop_after)
        return Decision(stage, reason, final=final, p=p, q=q, price_usd=price, gain=gain)

    def _one_call(self, state: State, posterior: Posterior) -> Decision:
        """Ask the agent that is worth most, and then stop: no second opinion (SPEC 9.3b)."""
        plan = state.plan
        open_ended = plan.kind == Kind.OPEN_ENDED  # without a right answer, so that p means nothing
        if state.candidates:
            return Decision(None, "one call is enough", p=None if open_ended else posterior.p)
        # the agent of a tool loop if it did not fail, else any that may answer alone
        usable = [agent for agent in plan.models if agent not in state.failed]
        if plan.loop_agent in usable:
            usable = [plan.loop_agent]
        calls = [Stage((Ask(agent, plan.n),)) for agent in usable]
        stages = [stage for stage in calls if self._may_ask(stage, state)]
        if not stages and not state.failed:  # the cheapest one, which fails with the limit named
            stages = sorted(calls, key=lambda stage: stage_price(stage, plan))[:1]
        if not stages:
            return Decision(None, "no agent is left")
        chances = {stage: posterior.q(self.agents[stage.asks[0].agent].on(plan.kind)) for stage in stages}
        if open_ended:
            share = max(0.0, (plan.estimate.difficulty - EASY) / (1 - EASY))
            chances = {stage: 1 - share + share * q for stage, q in chances.items()}
        best = max(stages, key=lambda stage: chances[stage] * plan.value_usd - stage_price(stage, plan))
        why = (
            f"{plan.loop_agent} began this tool loop"
            if best.asks[0].agent == plan.loop_agent
            else f"{plan.kind}: one call"
        )
        return Decision(best, why, final=True, q=chances[best], price_usd=stage_price(best, plan))

    def walks(self, n: int = 1, max_path: Route | None = None) -> list[Walk]:
        """The longest walk that ends with each stage, then a single call to each agent."""
        longest = _longest_walks(self.stages, tuple(self.max_samples.items()), max_path)
        single = [(Stage((Ask(agent, n),)),) for agent in self.agents]
        return [*longest, *(walk for walk in single if within_path(walk, max_path))]

    def describe_thresholds(self, plan: Plan) -> list[str]:
        """The thresholds on d(x) and p in words; empty if one call is enough."""
        if plan.one_call:
            return []
        return self.values(plan).thresholds

    def expected_usd(self, state: State) -> float:
        """Expected price of all further stages, from simulated questions that are similar in this state."""
        plan = state.plan
        decision = self.next_stage(state)
        if decision.stage is None:
            return 0.0
        price = stage_price(decision.stage, plan)
        if plan.one_call or decision.stage not in self.stages:
            return price
        reached = self._reached(state)
        number = self.stages.index(decision.stage, reached[-1] + 1 if reached else 0)
        values = self.values(plan)
        similar = values.simulation.similar(reached, decision.p, decision.q or 0.0)
        counts = values.later_stages((*reached, number), similar)
        left = None if state.calls_left is None else state.calls_left - decision.stage.calls
        then = replace(state, stages=(*state.stages, decision.stage), calls_left=left)
        later = [(stage, counts[i]) for i, stage in enumerate(self.stages) if self._may_ask(stage, then)]
        return price + sum(count * stage_price(stage, plan) for stage, count in later) / len(similar)

    def values(self, plan: Plan) -> StageValues:
        """The values of all stages for a question; others with prices within 10% share them.

        New ones take tens of milliseconds: call it in a thread first, unless it `has_values`. Thread-safe.
        """
        key = self._key(plan)
        if (known := self._values.get(key)) is not None:
            return known  # without the lock, which a thread holds while it computes others
        with self._lock:
            if key in self._values:
                return self._values[key]
            kind, plausible, levels = key
            prices = [LEVEL**level for level in levels]  # in units of V
            names = [str(stage) for stage in self.stages]
            found = StageValues.by_induction(self.simulation(plausible, kind), prices, names)
            self._values[key] = found
            if len(self._values) > MAX_TABLES:
                del self._values[next(iter(self._values))]
            return found

    def has_values(self, plan: Plan) -> bool:
        """Whether the values for a question are known already, or not needed."""
        return plan.one_call or self._key(plan) in self._values

    def _key(self, plan: Plan) -> _Key:
        known = any(name == plan.kind for agent in self.agents.values() for name, _ in agent.by_kind)
        levels = tuple([price_level(stage_price(stage, plan), plan.value_usd) for stage in self.stages])
        return plan.kind if known else "", min(plan.plausible, MAX_PLAUSIBLE), levels

    def simulation(self, plausible: int, kind: str = "") -> Simulation:
        """What may happen in the cascade to questions of one kind, which is empty if no skill by kind is known.

        `plausible` is the number of plausible answers; 0 means many.
        """
        if (kind, plausible) not in self._simulations:
            agents = [
                [self.agents[ask.agent].on(kind) for ask in stage.asks for _ in range(ask.samples)]
                for stage in self.stages
            ]
            possible = _reachable(self.stages, tuple(self.max_samples.items()))
            self._simulations[kind, plausible] = Simulation.run(self.belief, agents, plausible, possible)
        return self._simulations[kind, plausible]

    def _reached(self, state: State) -> Reached:
        """Numbers of the stages that were asked."""
        reached: list[int] = []
        for stage in state.stages:
            after = reached[-1] + 1 if reached else 0
            if stage not in self.stages[after:]:
                break
            reached.append(self.stages.index(stage, after))
        return tuple(reached)

    def _may_ask(self, stage: Stage, state: State) -> bool:
        models = state.plan.models
        for ask in stage.asks:
            if ask.agent not in models or ask.agent in state.failed or (ask.verify and not state.candidates):
                return False
        return within_samples((*state.stages, stage), self.max_samples) and state.fits(stage)


def _is_single_answer(state: State) -> bool:
    """Whether the last stage was a single call, and its answer is the only one."""
    last = state.stages[-1]
    return last.calls == 1 and [candidate.agent for candidate in state.candidates] == [last.asks[0].agent]


def _is_prose(candidate: Candidate) -> bool:
    """Whether a complete reply has no final answer: the request was open-ended after all."""
    complete = candidate.finish == "stop" and not candidate.tool_calls
    return complete and not candidate.stated and len(candidate.text.split()) > PROSE_WORDS


def within_samples(stages: Iterable[Stage], most: Mapping[str, int]) -> bool:
    """Whether no agent is asked for more samples in all than its maximum; verifications do not count.

    >>> within_samples([Stage.parse("slow"), Stage.parse("slow*5")], {"slow": 5})
    False
    """
    left = dict(most)  # without a Counter: replays ask this a million times
    for stage in stages:
        for ask in stage.asks:
            if ask.agent in left and not ask.verify:
                left[ask.agent] -= ask.samples
                if left[ask.agent] < 0:
                    return False
    return True


@lru_cache(maxsize=256)
def _reachable(stages: tuple[Stage, ...], samples: Iterable[tuple[str, int]]) -> tuple[Reached, ...]:
    """The states of a cascade, those with fewer stages first."""
    subsets = (subset for size in range(len(stages) + 1) for subset in combinations(range(len(stages)), size))
    most = dict(samples)
    return tuple(subset for subset in subsets if within_samples([stages[number] for number in subset], most))


@lru_cache(maxsize=256)
def _longest_walks(
    stages: tuple[Stage, ...], samples: tuple[tuple[str, int], ...], max_path: Route | None
) -> tuple[Walk, ...]:
    """The walk with the most calls that ends with each stage, those with more calls first."""
    longest: dict[int, Walk] = {}
    for reached in _reachable(stages, samples)[1:]:
        walk = tuple(stages[number] for number in reached)
        if within_path(walk, max_path) and _calls(walk) >= _calls(longest.get(reached[-1], ())):
            longest[reached[-1]] = walk
    return tuple(sorted(longest.values(), key=_calls, reverse=True))


def _calls(walk: Iterable[Stage]) -> int:
    return sum(stage.calls for stage in walk)


def price_level(price: float, value: float) -> int:
    """Number of the price level of a price in units of V.

    >>> price_level(0.1, 1.0), price_level(0.102, 1.0)
    (-24, -24)
    """
    return round(math.log(max(price, 1e-9 * value) / value) / _LOG_LEVEL)
