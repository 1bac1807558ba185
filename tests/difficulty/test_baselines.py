from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odar.difficulty.base import ESTIMATORS, ConstantEstimator, LengthEstimator
from odar.types import Query


def test_constant_is_constant():
    assert ConstantEstimator(0.8).estimate(Query("anything")).difficulty == 0.8


def test_length_crosses_the_thresholds_where_it_says():
    def length(words: int) -> float:
        return LengthEstimator().estimate(Query("word " * words)).difficulty

    assert length(17) < 0.3 <= length(18)
    assert length(93) < 0.7 <= length(94)


@given(st.text(max_size=200), st.text(max_size=200))
def test_every_estimate_is_a_difficulty_and_more_words_are_never_easier(a, b):
    for name in ("constant", "length"):
        estimate = ESTIMATORS[name]().estimate(Query(a))
        assert 0 <= estimate.difficulty < 1
        assert estimate.estimator == name
    longer = LengthEstimator().estimate(Query(a + " " + b)).difficulty
    assert longer >= LengthEstimator().estimate(Query(a)).difficulty
