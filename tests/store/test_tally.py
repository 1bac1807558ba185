from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.store.record import Charge
from odar.store.tally import Spent, Tally

DAYS = ("2026-10-31", "2026-11-01", "2026-11-15")
charges = st.lists(
    st.builds(Charge, st.sampled_from(["a", "b"]), st.sampled_from(DAYS), st.one_of(st.none(), st.floats(0, 10))),
    max_size=30,
)


def expected(made: list[Charge], key: str, period: str) -> Spent:
    mine = [charge for charge in made if charge.key_id == key and charge.day.startswith(period)]
    known = [charge.cost_usd for charge in mine if charge.cost_usd is not None]
    return Spent(sum(known), len(mine) - len(known))


def check(tally: Tally, made: list[Charge]) -> None:
    for key in ("a", "b", "c"):
        for period in (*DAYS, "2026-10", "2026-11", "2026-12"):
            found, wanted = tally.of(key, period), expected(made, key, period)
            assert found.usd == pytest.approx(wanted.usd, abs=1e-9)
            assert found.unknown == wanted.unknown


@given(charges, st.data())
def test_a_request_counts_once_whether_it_is_on_its_way_or_there(made, data):
    tally = Tally()
    for charge in made:
        tally.charge(charge)
    check(tally, made)
    settled = data.draw(st.integers(0, len(made)))
    tally.settle(made[:settled])
    check(tally, made)
    tally.settle(made[settled:])
    check(tally, made)


@given(charges, charges, st.integers(0, 30))
def test_what_others_spent_is_added_to_what_is_on_its_way(ours, theirs, settled):
    """What the database says holds all that was settled, ours and other processes'; the rest is still pending."""
    tally = Tally()
    for charge in ours:
        tally.charge(charge)
    tally.settle(ours[:settled])
    there = [*theirs, *ours[:settled]]
    stored = {
        (key, period): expected(there, key, period)
        for key in ("a", "b")
        for period in (*DAYS, "2026-10", "2026-11")
    }
    tally.rebase(stored, "2026-10")
    check(tally, [*theirs, *ours])
    tally.rebase(stored, "2026-10")
    check(tally, [*theirs, *ours])  # whatever was dropped was nothing


def test_a_month_that_is_over_is_forgotten():
    tally = Tally()
    tally.charge(Charge("a", "2026-10-31", 1.0))
    tally.charge(Charge("a", "2026-11-01", 2.0))
    tally.rebase({}, "2026-11")
    assert tally.of("a", "2026-10") == Spent()
    assert tally.of("a", "2026-11") == Spent(2.0, 0)


def test_the_rounding_of_a_sum_is_not_kept_for_ever():
    tally = Tally()
    made = [Charge("a", "2026-11-01", 0.1) for _ in range(10)] + [Charge("a", "2026-11-01", 0.7)]
    for charge in made:
        tally.charge(charge)
    tally.settle(reversed(made))
    tally.rebase({}, "2026-11")
    assert tally._pending == {}


def test_threads_that_charge_at_once_lose_nothing():
    tally = Tally()

    def spend() -> None:
        for _ in range(500):
            tally.charge(Charge("a", "2026-11-01", 0.5))

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.of("a", "2026-11") == Spent(1000.0, 0)
