"""Estimators by name or by file, and the two that know only a constant or the length."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.difficulty.base import ESTIMATORS, LengthEstimator, open_estimator
from odar.difficulty.estimator import LearnedEstimator, shipped_estimator
from odar.errors import InputError, UnknownName
from odar.types import Query


def test_an_estimator_is_opened_by_name() -> None:
    assert open_estimator("learned") is shipped_estimator()
    assert open_estimator("length").name == "length"


def test_an_estimator_is_opened_from_a_file(tmp_path: Path) -> None:
    shipped_estimator().save(tmp_path / "mine.json")
    mine = open_estimator(str(tmp_path / "mine.json"))
    assert isinstance(mine, LearnedEstimator)
    query = Query("Prove that 2 is prime.")
    assert mine.estimate(query).difficulty == pytest.approx(
        shipped_estimator().estimate(query).difficulty, abs=1e-4
    )
    assert "mine.json" in mine.estimate(query).estimator


def test_a_registered_name_overrides_a_file() -> None:
    ESTIMATORS.add("odd.json", LengthEstimator)
    assert open_estimator("odd.json").name == "length"


def test_an_unknown_name_or_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="learned"):
        open_estimator("learnt")
    with pytest.raises(InputError, match="none"):
        open_estimator(str(tmp_path / "none.json"))


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
