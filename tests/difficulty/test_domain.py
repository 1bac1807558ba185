"""The domain classifier (SPEC 2.3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odar.difficulty.domain import BUCKETS, DOMAINS, LinearDomainClassifier, hashed_ngrams, shipped_classifier
from odar.errors import InputError
from odar.types import Image, Query


@settings(max_examples=60)
@given(st.text(max_size=200))
def test_probabilities_sum_to_one(text: str) -> None:
    p = shipped_classifier().probabilities(Query(text.encode("utf8", "replace").decode()))
    assert p.shape == (8,) and p.sum() == pytest.approx(1) and (p >= 0).all()


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("Find the sum of the first ten odd integers.", "mathematics"),
        ("Write a Python function that checks whether a list is sorted.", "coding"),
        ("who was the first man on the moon", "knowledge"),
    ],
)
def test_typical_questions_are_classified(text: str, domain: str) -> None:
    assert DOMAINS[int(shipped_classifier().probabilities(Query(text)).argmax())] == domain


def test_an_image_raises_the_multimodal_probability() -> None:
    picture = Query("What is shown here?", (Image("image/png"),))
    at = DOMAINS.index("multimodal")
    assert (
        shipped_classifier().probabilities(picture)[at]
        > shipped_classifier().probabilities(Query(picture.text))[at]
    )


def test_hashed_features_have_fixed_indices_and_norm_one() -> None:
    """The shipped weights belong to these indices."""
    index, value = hashed_ngrams(Query("a b"))
    assert index.tolist() == [817, 11833, 13759, 48707, 59708, 61433, 65396]
    assert value @ value == pytest.approx(1) and (index < BUCKETS).all()


def test_another_version_is_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", format=np.array("odar-domain/99"))
    with pytest.raises(InputError, match="odar-domain/99"):
        LinearDomainClassifier.load(tmp_path / "d.npz")
