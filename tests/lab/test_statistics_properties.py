"""Invariances and monotonicity of the statistics."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from odar.errors import InputError
from odar.lab.router_quality import auroc, cpt, gap_recovered
from odar.lab.statistics import (
    benjamini_hochberg,
    difference,
    fold_interval,
    item_means,
    mcnemar_test,
)

scores = st.lists(st.floats(0, 1).map(lambda x: round(x, 3)), min_size=2, max_size=40)
probabilities = st.lists(st.floats(1e-6, 1).map(lambda x: round(x, 6)), min_size=1, max_size=20)
moves = st.floats(-5, 5).map(lambda x: round(x, 2))


# ── many tests at once ──────────────────────────────────────────────────────────────────────────────────────


@given(probabilities, st.randoms(use_true_random=False))
def test_adjusting_keeps_the_order_and_never_lowers_p(p, rng):
    adjusted = benjamini_hochberg(p)
    assert all(before - 1e-12 <= after <= 1 for before, after in zip(p, adjusted, strict=True))
    ranked = sorted(zip(p, adjusted, strict=True))
    assert all(first[1] <= second[1] + 1e-12 for first, second in itertools.pairwise(ranked))
    order = rng.sample(range(len(p)), len(p))
    assert benjamini_hochberg([p[i] for i in order]) == pytest.approx([adjusted[i] for i in order])


@given(probabilities)
def test_adjusted_p_values_are_bounded(p):
    adjusted = benjamini_hochberg(p)
    assert max(adjusted) == pytest.approx(max(p))
    assert min(adjusted) <= min(1.0, len(p) * min(p)) + 1e-12


# ── right or wrong ──────────────────────────────────────────────────────────────────────────────────────────


def pair(both: int, only_first: int, only_second: int, neither: int) -> tuple[list[int], list[int]]:
    first = [1] * (both + only_first) + [0] * (only_second + neither)
    return first, [1] * both + [0] * only_first + [1] * only_second + [0] * neither


counts = st.integers(0, 30)


@given(counts, counts, counts, counts, counts, counts)
def test_mcnemar_depends_only_on_items_that_differ(b, c, both, neither, more, others):
    assume(both + neither + b + c and more + others + b + c)
    first = mcnemar_test(*pair(both, b, c, neither))
    assert first == pytest.approx(mcnemar_test(*pair(more, b, c, others)))
    assert first == pytest.approx(mcnemar_test(*pair(both, c, b, neither)))
    assert 0 <= first <= 1


@given(st.integers(2, 60), st.data())
def test_a_more_uneven_split_has_a_lower_p(differing, data):
    fewer = data.draw(st.integers(0, (differing - 1) // 2))
    p = [mcnemar_test(*pair(5, differing - c, c, 5)) for c in range(fewer + 1)]
    assert p == sorted(p)


# ── differences and intervals ───────────────────────────────────────────────────────────────────────────────


many = st.lists(st.floats(0, 1).map(lambda x: round(x, 3)), min_size=30, max_size=60)


@settings(max_examples=40)
@given(many, moves, st.integers(0, 5))
def test_a_common_shift_does_not_change_the_difference(values, shift, seed):
    rng = np.random.default_rng(seed)
    other = rng.permutation(values)
    plain = difference(values, other, resamples=100)
    moved = difference(np.array(values) + shift, np.array(other) + shift, resamples=100)
    assert moved.interval.value == pytest.approx(plain.interval.value, abs=1e-9)
    assert plain.interval.value == pytest.approx(0.0, abs=1e-9)  # the same scores in another order
    assert moved.interval.low == pytest.approx(plain.interval.low, abs=1e-6)


@settings(max_examples=40)
@given(many, st.floats(0.001, 0.5))
def test_a_constant_gain_has_no_width_and_the_lowest_p(values, gain):
    found = difference(np.array(values) + gain, values, resamples=200)
    assert found.interval.low == pytest.approx(gain) and found.interval.high == pytest.approx(gain)
    assert found.p == pytest.approx(1 / 201)  # as small as 200 resamples can say


@given(scores, st.integers(2, 5), moves, st.floats(0.1, 10))
def test_fold_intervals_shift_and_scale_with_the_data(values, folds, shift, scale):
    assume(len(values) >= folds)
    numbers = [i % folds for i in range(len(values))]
    plain = fold_interval(values, numbers)
    moved = fold_interval(scale * np.array(values) + shift, numbers)
    assert moved.value == pytest.approx(scale * plain.value + shift, abs=1e-9)
    assert moved.high - moved.low == pytest.approx(scale * (plain.high - plain.low), abs=1e-6)
    assert plain.low <= plain.value <= plain.high
    renamed = fold_interval(values, [f"fold {9 - number}" for number in numbers])
    assert renamed == pytest.approx(plain)


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
