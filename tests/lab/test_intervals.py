from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from odar.lab.intervals import Interval, bootstrap_mean, resampled_means

VALUES = st.lists(st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 2)), min_size=1, max_size=60)


def test_the_text_of_an_interval():
    assert str(Interval(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"
    assert Interval(-0.01, -0.02, 0.04).signed() == "-0.010 [-0.020, +0.040]"


def test_no_values_have_no_mean():
    assert np.isnan(bootstrap_mean([])).all()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_resampled_means_of_two_values_are_binomial(share):
    """Few distinct values are drawn as counts: the resampled mean of n is a binomial over n."""
    values = (np.arange(400) < 400 * share).astype(float)
    drawn = resampled_means(values, resamples=20_000) * 400
    expected = stats.binom(400, share)
    assert drawn.mean() == pytest.approx(expected.mean(), rel=0.01)
    assert drawn.std() == pytest.approx(expected.std(), rel=0.03)
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert (low, high) == pytest.approx(expected.ppf([0.025, 0.975]), abs=1.01)


def test_counts_and_single_draws_have_the_same_distribution():
    """The same data twice, once with so many distinct values that they are drawn one by one."""
    few = np.repeat([0.0, 1.0], [30, 70])
    many = few + np.linspace(0, 1e-9, 100)
    one, other = (resampled_means(values, resamples=20_000) for values in (few, many))
    assert one.std() == pytest.approx(other.std(), rel=0.03)
    assert stats.ks_2samp(np.round(one, 6), np.round(other, 6)).statistic < 0.02


@settings(max_examples=50)
@given(VALUES)
def test_an_interval_contains_its_mean_and_repeats(values):
    found = bootstrap_mean(values, resamples=300)
    assert found.low - 1e-9 <= found.value <= found.high + 1e-9
    assert found == bootstrap_mean(values, resamples=300)


@settings(max_examples=50)
@given(VALUES)
def test_strata_of_one_item_are_pooled(values):
    assert bootstrap_mean(values, strata=list(range(len(values))), resamples=50) == bootstrap_mean(
        values, resamples=50
    )


def test_strata_remove_the_variance_between_them():
    rng = np.random.default_rng(5)
    easy, hard = rng.random(200) < 0.95, rng.random(200) < 0.05
    values, strata = np.concatenate([easy, hard]).astype(float), ["easy"] * 200 + ["hard"] * 200
    plain, by_stratum = bootstrap_mean(values), bootstrap_mean(values, strata=strata)
    within = np.sqrt((easy.var() + hard.var()) / 2 / 400)
    assert by_stratum.high - by_stratum.low == pytest.approx(2 * 1.96 * within, rel=0.1)
    assert by_stratum.high - by_stratum.low < 0.6 * (plain.high - plain.low)


def test_resampling_uses_bounded_memory():
    """All resamples at once would take 288 MB."""
    values = np.random.default_rng(0).random(30_000)
    tracemalloc.start()
    try:
        assert len(resampled_means(values, 1200)) == 1200
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


def test_values_that_are_not_shares_get_no_wilson_interval():
    assert bootstrap_mean(np.zeros(50), shares=False) == (0.0, 0.0, 0.0)
    assert bootstrap_mean(np.zeros(50)).high > 0
    gain = bootstrap_mean([1.0] * 3 + [0.0] * 37, shares=False)
    assert gain.low <= 0.0 < gain.value


def test_the_bootstrap_of_many_distinct_values_agrees_with_scipys():
    values = np.random.default_rng(2).normal(0.3, 1, 200)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    ours = bootstrap_mean(values)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.015)


def test_a_wilson_interval_is_used_near_one():
    found = bootstrap_mean([1.0] * 45 + [0.0] * 3)
    theirs = stats.binomtest(45, 48).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-6)
