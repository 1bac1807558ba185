"""Each statistic compared with a known result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from odar.errors import InputError
from odar.lab.statistics import (
    _t_quantile,
    benjamini_hochberg,
    difference,
    fold_interval,
    item_means,
    mcnemar_test,
    mean_over_sets,
    seed_deviation,
    sign_flip_test,
)

BITS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80)


def paired(b, c, both=20, neither=10):
    """Return scores where only the first is right on b items and only the second on c items."""
    first = [1] * both + [1] * b + [0] * c + [0] * neither
    return first, [1] * both + [0] * b + [1] * c + [0] * neither


def test_the_t_interval_over_five_folds_matches_the_table():
    # Means .70 .72 .74 .76 .78: mean .74, s = .0316228, t(.975, 4) = 2.776445; .74 ± 2.776445 · s/√5 = ± .0392649
    values = np.repeat([0.70, 0.72, 0.74, 0.76, 0.78], 10)
    interval = fold_interval(values, np.repeat(np.arange(5), 10))
    assert (interval.value, interval.low, interval.high) == pytest.approx((0.74, 0.700735, 0.779265), abs=1e-6)


def test_equal_folds_have_no_width_and_one_fold_no_interval():
    assert fold_interval([1, 0] * 4, [0, 0, 1, 1, 2, 2, 3, 3]).high == 0.5
    assert np.isnan(fold_interval([1, 0], [0, 0]).low)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 28, 29, 5000])
def test_t_quantiles_are_scipys(freedom):
    assert _t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-6)


def test_mcnemar_exact_by_hand():
    # b = 8, c = 2: 2 · P(X ≤ 2 | 10, ½) = 2 · 56/1024
    assert mcnemar_test(*paired(8, 2)) == pytest.approx(112 / 1024)
    # b = 121, c = 59, the textbook's prime-minister approval shape: exact by scipy's own binomial test
    assert mcnemar_test(*paired(121, 59)) == pytest.approx(stats.binomtest(59, 180).pvalue)


def test_benjamini_hochberg_on_the_authors_own_example():
    # Benjamini and Hochberg (1995), section 3.2: fifteen p-values, q = .05 rejects the four smallest
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
         0.7590, 1.0]  # fmt: skip
    adjusted = benjamini_hochberg(p)
    assert [value <= 0.05 for value in adjusted] == [True] * 4 + [False] * 11
    assert adjusted[3] == pytest.approx(0.0095 * 15 / 4)
    assert benjamini_hochberg([None, 0.01, None]) == [None, pytest.approx(0.01), None]
    assert benjamini_hochberg([]) == []
    assert adjusted == pytest.approx(stats.false_discovery_control(p).tolist())


def test_the_bootstrap_interval_is_that_of_the_normal_approximation():
    rng = np.random.default_rng(1)
    first = (rng.random(4000) < 0.8).astype(float)
    second = np.where(rng.random(4000) < 0.1, 1 - first, first)
    found = difference(first, second)
    apart = first - second
    half = 1.96 * apart.std() / np.sqrt(len(apart))
    assert found.interval.low == pytest.approx(apart.mean() - half, abs=0.0007)
    assert found.interval.high == pytest.approx(apart.mean() + half, abs=0.0007)


@given(BITS)
def test_identical_policies_have_zero_difference_and_a_wide_interval(rows):
    values = [float(a) for a, _ in rows]
    same = difference(values, values, resamples=200)
    assert same.interval.value == 0.0
    if len(rows) < 10:
        assert same.p is None and np.isnan(same.interval.low)
    else:
        assert same.p == 1.0 and same.interval.low < 0 < same.interval.high


@given(BITS)
def test_swapping_the_policies_changes_the_sign_and_keeps_p(rows):
    a, b = ([float(row[i]) for row in rows] for i in (0, 1))
    there, back = difference(a, b, resamples=300), difference(b, a, resamples=300)
    assert there.interval.value == -back.interval.value
    assert there.p == back.p
    if there.p is not None:
        assert 0 < there.p <= 1


def test_twelve_items_support_no_strong_claim():
    assert difference([1.0] * 12, [0.0] * 12).p == pytest.approx(2 / 2**12)
    one_stratum_each = difference([1.0] * 6 + [0.0] * 6, [1.0] * 2 + [0.0] * 10, strata=list(range(12)))
    assert one_stratum_each.p == pytest.approx(2 / 2**4)
    assert one_stratum_each.interval.low < 0 < one_stratum_each.interval.high
    assert difference([1.0] * 9, [0.0] * 9).p is None


@pytest.mark.parametrize("items", [12, 48, 300])
@pytest.mark.parametrize(("good", "less_good", "shared"), [(0.7, 0.6, 0.5), (0.6, 0.6, 0.0), (0.9, 0.5, 0.3)])
def test_the_95_percent_interval_has_its_coverage(items, good, less_good, shared):
    """Two policies with correlated scores, in strata of about six items."""
    rng, covered, draws = np.random.default_rng(items), 0, 600
    for _ in range(draws):
        luck = rng.random(items)
        other = np.where(rng.random(items) < shared, luck, rng.random(items))
        strata = rng.integers(0, items // 6, items).tolist()
        found = difference(luck < good, other < less_good, strata, resamples=400)
        covered += found.interval.low <= good - less_good <= found.interval.high
    assert covered / draws >= 0.93
    assert covered / draws <= (1.0 if items == 12 else 0.975)


def test_items_needed_shrink_with_the_square_of_the_difference():
    found = difference(*paired(84, 54, both=126, neither=36))
    assert found.items_needed(2) == pytest.approx(25 * found.items_needed(10), rel=0.01)
    # Two independent policies at 0.7 and 0.6: variance 0.45, so (1.96 + 0.84)² · 0.45 / 0.1² = 353 items
    assert found.items_needed(10) == pytest.approx(353, rel=0.02)


def test_p_is_rarely_small_without_a_gain_and_small_with_one():
    rng = np.random.default_rng(4)
    null = [difference(rng.random(150) < 0.6, rng.random(150) < 0.6, resamples=500).p for _ in range(200)]
    assert np.mean(np.array(null) < 0.05) <= 0.1
    assert difference(*paired(60, 10), resamples=2000).p < 0.002


def test_a_sign_flip_test_of_right_and_wrong_is_mcnemars():
    a, b = (np.array(each, float) for each in paired(8, 2))
    assert sign_flip_test(a - b, resamples=40_000) == pytest.approx(mcnemar_test(a, b), abs=0.01)


def test_fractions_use_the_sign_flip_test_and_unequal_lengths_are_rejected():
    found = difference([0.5] * 20, [0.25] * 20)
    assert found.test == "sign-flip" and found.p < 0.001
    with pytest.raises(InputError, match="cannot be paired"):
        difference([1, 0], [1])


def test_deviation_over_seeds():
    assert seed_deviation(np.array([1, 1, 0, 1, 0, 0]), [42, 42, 123, 123, 456, 456]) == 0.5
    assert np.isnan(seed_deviation(np.array([1, 0]), [42, 42]))


def test_the_interval_over_benchmarks_is_a_bootstrap_over_them():
    rng = np.random.default_rng(1)
    values = rng.normal(0.06, 0.02, 23)
    found = mean_over_sets(values.tolist())
    half = 1.96 * values.std() / np.sqrt(23)
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), abs=0.002)
    assert np.isnan(mean_over_sets([0.1, 0.2, 0.3, 0.4]).low)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1).map(lambda x: round(x, 3)), min_size=30, max_size=60), st.floats(0.001, 0.5))
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
