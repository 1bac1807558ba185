"""Values of stages by backward induction (SPEC 9.4)."""

from __future__ import annotations

import numpy as np
import pytest

from odar.policy.belief import Belief, RatedAgent
from odar.policy.cascade_values import Simulation, StageValues

BELIEF = Belief.load()
FAST = RatedAgent("fast", 0.58, "gpt")
SECOND = RatedAgent("second", 0.58, "gemini")
SLOW = RatedAgent("slow", 0.79, "gpt")
NAMES = ("fast", "second", "slow")
SIMULATION = Simulation.run(BELIEF, [(FAST,), (SECOND,), (SLOW,)], plausible=10)


def values(ratio: float = 10.0, gain: float = 0.1, simulation: Simulation = SIMULATION) -> StageValues:
    return StageValues.by_induction(simulation, [gain / ratio, gain / ratio, gain], NAMES)


def test_drawn_questions_agree_with_the_belief() -> None:
    """p and q keep their means from state to state, as the expectations of one belief must."""
    start = SIMULATION.q[()].mean()
    for reached in ((0,), (1,), (0, 1)):
        assert SIMULATION.q[reached].mean() == pytest.approx(start, abs=0.02)
    for number, agent in enumerate((FAST, SECOND, SLOW)):
        assert SIMULATION.p[(number,)].mean() == pytest.approx(0.1 + 0.9 * agent.skill, abs=0.04), (
            "a guess in ten is right"
        )
    assert SIMULATION.p[(0, 1, 2)].mean() > SIMULATION.p[(0, 1)].mean() + 0.1
    assert SIMULATION.p[(0, 1)].mean() > SIMULATION.p[(0,)].mean() + 0.005
    assert SIMULATION.p[(0, 1, 2)].mean() == pytest.approx(SIMULATION.p[(2,)].mean(), abs=0.02)


@pytest.mark.parametrize("ratio", [3.0, 10.0, 20.0])
@pytest.mark.parametrize("gain", [0.25, 0.1, 0.03])
def test_a_sure_answer_is_kept_and_an_unsure_one_is_not(ratio: float, gain: float) -> None:
    found = values(ratio, gain)
    assert found.next_stage([2], 0.99, 0.85) == -1
    assert found.next_stage([2], 0.3, 0.7) == 2
    p = np.linspace(0.2, 0.99, 80)
    choice = found.next_stage([2], p, np.full(80, 0.75))
    assert (np.diff(choice) <= 0).all(), "once it stops, it stops at every higher p"


def test_a_question_that_slow_would_fail_is_not_worth_a_call() -> None:
    found = values()
    assert found.next_stage([2], 0.45, 0.85) == 2
    assert found.next_stage([2], 0.45, 0.45) == -1


def test_a_right_answer_of_no_value_buys_only_the_cheapest() -> None:
    found = values(ratio=10.0, gain=2.0)
    assert found.next_stage([0, 1, 2], None, 0.79) == 0
    assert found.next_stage([1, 2], 0.5, 0.7) == -1


def test_straight_to_slow_where_fast_seldom_helps() -> None:
    weak = RatedAgent("fast", 0.2, "gpt")
    simulation = Simulation.run(BELIEF, [(weak,), (SLOW,)], plausible=10)
    found = StageValues.by_induction(simulation, [1 / 60, 3 / 60], ("fast", "slow"))
    assert found.next_stage([0, 1], None, 0.79) == 1
    assert "slow" in found.thresholds[0]


def test_numbers_and_arrays_choose_alike() -> None:
    found = values()
    p, q = np.array([0.0, 0.3, 0.6, 0.9, 0.99]), np.array([0.8, 0.5, 0.7, 0.8, 0.9])
    assert found.next_stage([1, 2], p, q).tolist() == [
        found.next_stage([1, 2], *pair) for pair in zip(p.tolist(), q.tolist(), strict=True)
    ]


def test_several_agents_and_samples_in_a_stage() -> None:
    stages = [(FAST, SECOND), (SLOW,), (SLOW, SLOW)]
    simulation = Simulation.run(BELIEF, stages, plausible=0)
    found = StageValues.by_induction(simulation, [2 / 400, 10 / 400, 18 / 400])
    assert found.next_stage([0, 1, 2], None, 0.79) in (0, 1, 2)
    assert found.next_stage([2], 0.97, 0.8) == -1


def test_thresholds_in_words() -> None:
    lines = values(10.0, 0.1).thresholds
    assert len(lines) == 3
    assert lines[0].startswith("start with fast")
    assert lines[2].startswith("after second: slow if p < 0.7") and lines[2].endswith("else stop")
