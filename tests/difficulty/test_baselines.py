from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odar.difficulty.base import ESTIMATORS, ConstantEstimator, LengthEstimator
from odar.types import Query


def test_the_constant_estimator_returns_its_value():
    assert ConstantEstimator(0.8).estimate(Query("anything")).difficulty == 0.8


def test_the_length_estimator_reaches_the_thresholds_at_its_word_counts():
    def length(words: int) -> float:
        return LengthEstimator().estimate(Query("word " * words)).difficulty

    assert length(17) < 0.3 <= length(18)
    assert length(93) < 0.7 <= length(94)


@given(st.text(max_size=200), st.text(max_size=200))
def test_baseline_estimates_are_difficulties_and_grow_with_length(a, b):
    for name in ("constant", "length"):
        estimate = ESTIMATORS[name]().estimate(Query(a))
        assert 0 <= estimate.difficulty < 1
        assert estimate.estimator == name
    longer = LengthEstimator().estimate(Query(a + " " + b)).difficulty
    assert longer >= LengthEstimator().estimate(Query(a)).difficulty
