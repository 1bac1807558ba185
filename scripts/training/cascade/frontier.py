"""Cascades of three recorded models (fast, second, slow) at any dial, against the fixed choices at equal dollars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cascade.fit import Signals, difficulty, opinion
from cascade.recorded import Recorded
from odar.lab.calibration.fit import Answers
from odar.lab.replay.outcomes import upper_hull
from odar.policy.belief import Belief, RatedAgent
from odar.policy.cascade_values import Simulation, StageValues

STATES = ("", "F", "S", "L", "FS", "FL", "SL", "FSL")
DIAL = np.geomspace(1.2, 0.003, 28)
"""Least gain for which a slow call is bought, from economy to quality."""
Curve = list[tuple[float, float]]


@dataclass(frozen=True)
class Triple:
    """Numbers of the models."""

    fast: int
    second: int
    slow: int

    @property
    def models(self) -> tuple[int, int, int]:
        """Fast, second, slow."""
        return self.fast, self.second, self.slow


def qualifying(recorded: Recorded, models: Sequence[int] | None = None) -> list[Triple]:
    """Triples of issue 31: all right on 30%, slow 5 points better, fast and second similar and of two families."""
    right = recorded.accuracy
    models = range(len(right)) if models is None else models
    pairs = [
        (f, s) for f in models for s in models
        if recorded.families[f] != recorded.families[s] and min(right[f], right[s]) >= 0.3
        and abs(right[f] - right[s]) <= 0.10
    ]  # fmt: skip
    return [Triple(f, s, m) for f, s in pairs for m in models if right[m] >= max(right[f], right[s]) + 0.05]


@dataclass(frozen=True)
class Table:
    """Every reachable state of every item of a triple (SPEC 9.9): leader right, p, and q of the slow agent."""

    agents: dict[str, RatedAgent]
    right: dict[str, np.ndarray]
    p: dict[str, np.ndarray]
    q: dict[str, np.ndarray]
    plausible: int
    gate: np.ndarray
    """Where fast and second differ, or did not answer."""


def answers_of(
    recorded: Recorded, signals: Signals, triple: Triple, agents: dict[str, RatedAgent], items: np.ndarray
) -> Answers:
    """What the three agents of a triple said about some items."""
    return Answers(
        [opinion(recorded, signals, m, items, agents[role]) for role, m in zip("FSL", triple.models, strict=True)],
        [recorded.right[m, items].astype(float) for m in triple.models],
        recorded.plausible[items],
        difficulty(recorded, items),
    )


def table(
    belief: Belief,
    recorded: Recorded,
    signals: Signals,
    triple: Triple,
    agents: dict[str, RatedAgent],
    items: np.ndarray,
) -> Table:
    """Judge all states of a triple with these agents."""
    answers = answers_of(recorded, signals, triple, agents, items)
    fast, second, _ = answers.opinions
    right, p, q = {}, {}, {}
    for name in STATES:
        asked = ["FSL".index(role) for role in name]
        posterior = answers.posterior(belief, asked)
        right[name] = answers.leader_right(posterior.leader, asked)
        p[name] = np.broadcast_to(posterior.p, len(items)) if name else np.zeros(len(items))
        if "L" not in name:
            q[name] = np.broadcast_to(posterior.q(agents["L"]), len(items))
    gate = (fast.group != second.group) | (fast.group < 0)
    return Table(agents, right, p, q, int(np.median(answers.plausible)), gate)


def walk(found: Table, stages: str, prices: dict[str, float], values: StageValues) -> tuple[float, float]:
    """Mean cost and accuracy of a cascade of two or three stages, the last of which is slow."""
    size = len(found.gate)
    right = np.zeros(size)
    cost = np.zeros(size)
    open_states = {"": np.ones(size, bool)}  # state → items that are in it
    while open_states:
        name, here = open_states.popitem()
        if not here.any():
            continue
        choice = np.full(size, -1)
        if "L" not in name:
            after = max((stages.index(role) + 1 for role in name), default=0)
            choice[here] = values.next_stage(
                range(after, len(stages)), found.p[name][here] if name else None, found.q[name][here]
            )
        right = np.where(here & (choice < 0), found.right[name], right)
        for number, role in enumerate(stages):
            chosen = here & (choice == number)
            cost[chosen] += prices[role]
            open_states["".join(sorted(name + role, key="FSL".index))] = chosen
    return float(cost.mean()), float(right.mean())


@lru_cache(maxsize=2000)
def _simulation(belief_id: int, agents: tuple[RatedAgent, ...], plausible: int) -> Simulation:
    return Simulation.run(_KNOWN[belief_id], [(agent,) for agent in agents], plausible)


@lru_cache(maxsize=20_000)
def _values(
    belief_id: int, agents: tuple[RatedAgent, ...], plausible: int, ratio: float, gain: float
) -> StageValues:
    prices = [(ratio if agent.name == "L" else 1.0) / (ratio / gain) for agent in agents]
    return StageValues.by_induction(_simulation(belief_id, agents, plausible), prices)


_KNOWN: dict[int, Belief] = {}


def curve(belief: Belief, found: Table, ratio: float, stages: str = "FSL", dial: Sequence[float] = DIAL) -> Curve:
    """Cost and accuracy along the dial, from economy to quality; fast and second cost 1."""
    _KNOWN[id(belief)] = belief
    # skills are rounded here, so that triples can share the values
    families = [found.agents[role].family for role in stages]
    agents = tuple(
        RatedAgent(a.name, round(a.skill * 50) / 50, str(families.index(a.family)), round(a.unanswered * 50) / 50)
        for a in (found.agents[role] for role in stages)
    )
    prices = {"F": 1.0, "S": 1.0, "L": float(ratio)}
    return [walk(found, stages, prices, _values(id(belief), agents, found.plausible, ratio, g)) for g in dial]


def at_cost(points: Curve, cost: np.ndarray) -> np.ndarray:
    """Accuracy at each cost, interpolated between neighbours."""
    x, y = np.array(sorted(points)).T
    return np.interp(cost, x, y)


def middle(ratio: float) -> np.ndarray:
    """Costs of the middle half of the range from fast to slow."""
    return np.linspace(1 + 0.25 * (ratio - 1), 1 + 0.75 * (ratio - 1), 21)


def gain(points: Curve, fixed: Sequence[tuple[float, float]], ratio: float) -> float:
    """Mean points of accuracy above the hull of the fixed choices, over the middle half of the cost range."""
    cost = middle(ratio)
    return 100 * float((at_cost(points, cost) - at_cost(upper_hull(fixed), cost)).mean())


def paper_point(recorded: Recorded, triple: Triple, ratio: float, items: np.ndarray) -> tuple[float, float]:
    """Cost and accuracy of the paper's policy: fast alone below τ1, slow's answer above; no samples or verifications are recorded."""
    asked = recorded.prior[items] >= 0.3
    right = np.where(asked, recorded.right[triple.slow, items], recorded.right[triple.fast, items])
    return 1 + ratio * float(asked.mean()), float(right.mean())


def gate_curve(found: Table, ratio: float) -> Curve:
    """Fast, then the plain gate (fast and second, slow where they differ) unless it costs more than slow, then slow."""
    fast, slow = (1.0, float(found.right["F"].mean())), (float(ratio), float(found.right["L"].mean()))
    cost = 2 + ratio * float(found.gate.mean())
    right = float(np.where(found.gate, found.right["L"], found.right["F"]).mean())
    return [fast, (cost, right), slow] if cost < ratio else [fast, slow]
