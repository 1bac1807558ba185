"""Estimators by name or by file."""

from __future__ import annotations

from pathlib import Path

import pytest

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
