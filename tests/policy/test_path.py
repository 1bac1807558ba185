from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.path import Routing, Thresholds
from odar.types import Assignment, Estimate, Path


@pytest.mark.parametrize(
    ("difficulty", "path"),
    [
        (0.0, Path.SIMPLE),
        (0.2999, Path.SIMPLE),
        (0.3, Path.MEDIUM),
        (0.6999, Path.MEDIUM),
        (0.7, Path.HARD),
        (1.0, Path.HARD),
    ],
)
def test_thresholds_of_the_spec(difficulty, path):
    assert Routing(Thresholds(0.3, 0.7)).decide(Estimate(difficulty, "x")).path is path


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_higher_difficulty_never_gets_a_cheaper_path(a, b, tau1, tau2):
    tau1, tau2 = sorted((tau1, tau2))
    routing = Routing(Thresholds(tau1, tau2))
    order = list(Path)
    low, high = (order.index(routing.decide(Estimate(d, "x")).path) for d in sorted((a, b)))
    assert low <= high


def test_the_reason_names_a_forced_path():
    decision = Routing(Thresholds(0.3, 0.7)).decide(Estimate(0.1, "x"), forced=Path.HARD)
    assert (decision.path, decision.reason, decision.estimate.difficulty) == (
        Path.HARD,
        "asked for by the caller",
        0.1,
    )


def test_with_routing_disabled_every_path_is_medium():
    for difficulty in (0.0, 0.5, 1.0):
        decision = Routing(Thresholds(0.3, 0.7), enabled=False).decide(Estimate(difficulty, "x"))
        assert (decision.path, decision.reason) == (Path.MEDIUM, "strategy switched off")


def test_an_expert_can_have_thresholds_of_its_own_and_the_reason_names_it():
    routing = Routing(Thresholds(0.3, 0.7), uses_posterior=True, by_expert={"math": Thresholds(0.2, 0.5, "math")})
    general, maths = (routing.decide(Estimate(0.6, "x"), Assignment(expert)) for expert in ("code", "math"))
    assert (general.path, general.reason) == (Path.MEDIUM, "τ1 = 0.3 ≤ d = 0.600 < τ2 = 0.7")
    assert (maths.path, maths.reason) == (Path.HARD, "d = 0.600 ≥ τ2 = 0.5 (thresholds of math)")
    assert "< τ2 = 0.5 (thresholds of math); prior 0.600" in routing.reconsider(maths, 0.25).reason
    assert routing.boundaries("math") == (0.2, 0.5, 1.0) and routing.boundaries("logic") == (0.3, 0.7, 1.0)
