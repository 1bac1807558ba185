"""The domain classifier (SPEC 2.3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odar.difficulty.domain import BUCKETS, DOMAINS, LinearDomainClassifier, default_classifier, hashed
from odar.errors import InputError
from odar.types import Image, Query


@settings(max_examples=60)
@given(st.text(max_size=200))
def test_probabilities(text: str) -> None:
    p = default_classifier().probabilities(Query(text.encode("utf8", "replace").decode()))
    assert p.shape == (8,) and p.sum() == pytest.approx(1) and (p >= 0).all()


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("Find the sum of the first ten odd integers.", "mathematics"),
        ("Write a Python function that checks whether a list is sorted.", "coding"),
        ("who was the first man on the moon", "knowledge"),
    ],
)
def test_plain_cases(text: str, domain: str) -> None:
    assert default_classifier().classify(Query(text)) == domain


def test_an_image_is_seen() -> None:
    picture = Query("What is shown here?", (Image("image/png"),))
    at = DOMAINS.index("multimodal")
    assert (
        default_classifier().probabilities(picture)[at]
        > default_classifier().probabilities(Query(picture.text))[at]
    )


def test_hashes_are_the_same_in_every_process() -> None:
    index, value = hashed(Query("a b"))
    assert value @ value == pytest.approx(1) and (index < BUCKETS).all() and len(index) == 7


@pytest.mark.parametrize("shape", [(BUCKETS, 7), (10, 8)])
def test_wrong_shapes_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="shape"):
        LinearDomainClassifier(np.zeros(shape), np.zeros(8))


def test_wrong_version_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", format=np.array("odar-domain/99"))
    with pytest.raises(InputError, match="odar-domain/99"):
        LinearDomainClassifier.load(tmp_path / "d.npz")
