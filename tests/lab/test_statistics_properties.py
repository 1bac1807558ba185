"""Invariances and monotonicity of the statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from odar.errors import InputError
from odar.lab.router_quality import auroc, cpt, gap_recovered
from odar.lab.statistics import (
    difference,
    item_means,
)

# ── many tests at once ──────────────────────────────────────────────────────────────────────────────────────


# ── right or wrong ──────────────────────────────────────────────────────────────────────────────────────────


# ── differences and intervals ───────────────────────────────────────────────────────────────────────────────


many = st.lists(st.floats(0, 1).map(lambda x: round(x, 3)), min_size=30, max_size=60)


@settings(max_examples=40)
@given(many, st.floats(0.001, 0.5))
def test_a_constant_gain_has_no_width_and_the_lowest_p(values, gain):
    found = difference(np.array(values) + gain, values, resamples=200)
    assert found.interval.low == pytest.approx(gain) and found.interval.high == pytest.approx(gain)
    assert found.p == pytest.approx(1 / 201)  # as small as 200 resamples can say


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0, 1)), min_size=1, max_size=30))
def test_a_repeated_item_counts_once(rows):
    items, values = zip(*rows, strict=True)
    means, places = item_means(values, items)
    assert [items[place] for place in places] == list(dict.fromkeys(items))
    for mean, place in zip(means, places, strict=True):
        assert mean == pytest.approx(np.mean([v for i, v in rows if i == items[place]]))


# ── routers ─────────────────────────────────────────────────────────────────────────────────────────────────

routed = st.lists(
    st.tuples(st.floats(0, 1).map(lambda x: round(x, 2)), st.booleans(), st.booleans()), min_size=3, max_size=40
)


def columns(rows: list[tuple[float, bool, bool]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    score, weak, strong = (np.array(column, float) for column in zip(*rows, strict=True))
    assume(strong.sum() > weak.sum())
    return score, weak, strong


@given(routed, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_target_never_needs_fewer_strong_calls(rows, first, second):
    score, weak, strong = columns(rows)
    less, more = sorted((first, second))
    assert cpt(score, weak, strong, less) <= cpt(score, weak, strong, more)


@given(routed)
def test_the_cpt_share_recovers_the_target(rows):
    score, weak, strong = columns(rows)
    for target in (0.5, 0.8, 1.0):
        share = cpt(score, weak, strong, target)
        assert gap_recovered(score, weak, strong, [share])[0] >= target - 1e-9


@pytest.mark.parametrize("shares", [[0.0], [1.0], [0.0, 0.25, 0.5, 1.0]])
def test_shares_0_and_1_recover_nothing_and_everything(shares):
    found = gap_recovered([3, 2, 1, 0], [0, 0, 1, 0], [1, 1, 1, 1], shares)
    assert found[0] == (0.0 if shares[0] == 0.0 else 1.0)
    assert found[-1] == (1.0 if shares[-1] == 1.0 else 0.0)


def test_an_undefined_figure_is_an_input_error():
    with pytest.raises(InputError, match=r"not better \(0\.5000 against 1\.0000\)"):
        gap_recovered([1, 2], [1, 1], [0, 1], [0.5])
    with pytest.raises(InputError, match="both positives and negatives"):
        auroc([1, 2], [1, 1])
