"""Histograms of served energies: rounding, decay, merging and outliers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.served.histogram import RATIO, Histogram, bin_index

energies = st.lists(st.floats(1e-3, 50.0), min_size=1, max_size=60)
days = st.floats(0, 100)


def served(mean, deviation, count=400, seed=0, day=0.0):
    """Return energies distributed like those of models: positive, with a longer right tail."""
    spread = math.sqrt(math.log1p((deviation / mean) ** 2))
    draws = np.random.default_rng(seed).lognormal(math.log(mean) - spread**2 / 2, spread, count)
    return Histogram.from_values(draws.tolist(), day)


@given(st.floats(1e-4, 1e3))
def test_the_error_of_a_bin_is_at_most_one_percent(energy):
    assert RATIO ** bin_index(energy) == pytest.approx(energy, rel=0.0101)


@pytest.mark.parametrize("odd", [0.0, -3.0, math.inf, -math.inf])
def test_extreme_energies_are_in_an_outer_bin(odd):
    assert bin_index(odd) in (bin_index(1e-4), bin_index(1e6))


@pytest.mark.parametrize(("mean", "deviation"), [(0.19, 0.12), (0.15, 0.08), (1.0, 0.3)])
def test_mean_and_deviation_are_those_of_the_energies(mean, deviation):
    found = served(mean, deviation, count=20_000).alignment()
    assert found.mean == pytest.approx(mean, rel=0.02)
    assert found.deviation == pytest.approx(deviation, rel=0.08)  # a long tail is shortened a little


@given(energies, energies, energies, days, days, days)
def test_merging_is_commutative(first, second, third, one, two, three):
    parts = [Histogram.from_values(values, day) for values, day in ((first, one), (second, two), (third, three))]

    def together(order):
        total = Histogram()
        for i in order:
            total += parts[i]
        return total

    forth, back = together((0, 1, 2)), together((2, 1, 0))
    # A bin that faded below a thousandth may have been dropped on one way and not on the other.
    assert forth.count == pytest.approx(back.count, abs=0.2)
    for number in forth.bins:
        assert forth.bins[number] == pytest.approx(back.bins.get(number, 0.0), abs=0.004)


@given(energies, energies)
def test_counts_of_two_processes_on_one_day_are_added(first, second):
    apart = Histogram.from_values(first, 1.0) + Histogram.from_values(second, 1.0)
    assert apart == Histogram.from_values(first + second, 1.0)


@given(st.lists(st.floats(0.05, 0.5), min_size=20, max_size=80), st.floats(0, 1e12), st.integers(1, 3))
def test_outliers_move_mean_and_deviation_by_a_bounded_amount(values, wild, count):
    """Up to three of twenty values can be anywhere: they count as if at the fences, so the bound always holds."""
    clean = Histogram.from_values(values, 0.0)
    before, after = (
        clean.alignment(),
        (clean + Histogram.from_values([wild] * count, 0.0)).alignment(),
    )
    if before is None or after is None:
        return
    # All values lie in [0.05, 0.5]: quartiles do too, so the fences lie within 0.5 + 3·0.45.
    assert 0 < after.mean < 0.5 + 0.15 * 1.36
    assert after.deviation < 0.7


@given(energies, days)
def test_old_counts_decay(values, later):
    running = Histogram.from_values(values, 0.0)
    decayed = running.decayed(later)
    expected = len(values) * 0.5 ** (later / 7)
    assert decayed.count == pytest.approx(expected, abs=1e-3 * len(values) + 1e-9)


def test_setting_the_clock_back_does_not_raise_counts():
    running = Histogram.from_values([0.1, 0.2], 10.0)
    assert running.decayed(3.0) == running


@pytest.mark.parametrize("values", [[], [0.3], [0.3] * 50])
def test_energies_that_do_not_differ_have_no_alignment(values):
    assert Histogram.from_values(values, 0.0).alignment() is None
