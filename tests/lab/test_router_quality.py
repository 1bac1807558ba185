"""APGR, CPT, AUROC, Pearson, bootstrap (SPEC 7.6)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import InputError
from odar.lab.intervals import bootstrap_interval
from odar.lab.router_quality import (
    accuracy_curve,
    apgr,
    auroc,
    cpt,
    gap_recovered,
    pearson,
)  # fmt: skip

ROWS = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), min_size=2, max_size=60)


def columns(rows: list[tuple[int, bool, bool]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    s, w, g = (np.array(c, float) for c in zip(*rows, strict=True))
    # one certain gain, so that there is a gap
    return np.r_[s, 0], np.r_[w, 0], np.r_[np.maximum(w, g), 1]


@given(ROWS)
def test_the_curve_starts_weak_and_ends_strong(rows: list[tuple[int, bool, bool]]) -> None:
    s, w, g = columns(rows)
    curve = accuracy_curve(s, w, g)
    assert curve[0] == pytest.approx(w.mean()) and curve[-1] == pytest.approx(g.mean())


@given(ROWS, st.floats(0, 1), st.floats(0, 1))
def test_the_cpt_share_recovers_the_target_and_grows_with_it(rows, first, second) -> None:
    routed = columns(rows)
    less, more = sorted((first, second))
    assert 0 <= cpt(*routed, less) <= cpt(*routed, more) <= 1
    assert gap_recovered(*routed, [cpt(*routed, more)])[0] >= more - 1e-9


@given(ROWS)
def test_a_constant_score_has_an_apgr_of_one_half(rows: list[tuple[int, bool, bool]]) -> None:
    _, w, g = columns(rows)
    assert apgr(np.zeros(len(w)), w, g) == pytest.approx(0.5)


@given(ROWS)
def test_the_oracle_is_the_best_router_and_its_reverse_the_worst(rows: list[tuple[int, bool, bool]]) -> None:
    s, w, g = columns(rows)
    best = g - w
    assert apgr(-best, w, g) - 1e-9 <= apgr(s, w, g) <= apgr(best, w, g) + 1e-9


@given(ROWS)
def test_order_of_rows_and_monotone_maps_do_not_matter(rows: list[tuple[int, bool, bool]]) -> None:
    s, w, g = columns(rows)
    assert apgr(s[::-1], w[::-1], g[::-1]) == pytest.approx(apgr(s, w, g))
    assert apgr(np.exp(s) * 3, w, g) == pytest.approx(apgr(s, w, g))


def test_apgr_and_cpt_by_hand() -> None:
    weak, strong = [0, 0, 1, 1], [1, 1, 1, 1]
    assert gap_recovered([4, 3, 2, 1], weak, strong, [0, 0.25, 0.5, 1]).tolist() == [0, 0.5, 1, 1]
    assert apgr([4, 3, 2, 1], weak, strong) == pytest.approx(0.75)
    assert cpt([1, 2, 3, 4], weak, strong, 0.5) == 0.75


def test_no_gap_is_an_error() -> None:
    for figure in (apgr, lambda *a: cpt(*a, 0.5)):
        with pytest.raises(InputError, match=r"not better \(0\.5000 against 1\.0000\): no gap"):
            figure([1, 2], [1, 1], [1, 0])


@pytest.mark.parametrize("bad", [([], [], []), ([1], [1, 0], [1, 1]), ([float("nan")], [0], [1])])
def test_invalid_routedare_rejected(bad: tuple[list[float], list[float], list[float]]) -> None:
    with pytest.raises(InputError):
        apgr(*bad)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=40))
def test_auroc_is_the_share_of_ordered_pairs(rows: list[tuple[int, bool]]) -> None:
    positive = [s for s, p in rows if p]
    negative = [s for s, p in rows if not p]
    s, label = zip(*rows, strict=True)
    if not positive or not negative:
        with pytest.raises(InputError):
            auroc(s, label)
        return
    pairs = [(a > b) + 0.5 * (a == b) for a in positive for b in negative]
    assert auroc(s, label) == pytest.approx(np.mean(pairs))


def test_pearson_agrees_with_numpy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50))
    assert pearson(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert pearson(a, np.ones(50)) == 0


def test_the_bootstrap_interval_contains_the_value_and_is_reproducible() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=200)
    b = a + rng.normal(size=200)
    first, second = (
        bootstrap_interval(pearson, a, b, resamples=200, rng=np.random.default_rng(7)) for _ in range(2)
    )
    assert first == second and first.low < first.value < first.high


def test_the_bootstrap_fails_if_every_resample_fails() -> None:
    def only_once(column: np.ndarray) -> float:
        if column.tolist() != list(range(20)):
            raise InputError("no")
        return 0.0

    with pytest.raises(InputError, match="resamples"):
        bootstrap_interval(only_once, range(20), resamples=5, rng=np.random.default_rng(0))
