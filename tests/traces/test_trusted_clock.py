from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.traces.retention import JUMP_S, TRUST_AFTER_S, TrustedClock

HOUR, DAY = 3600.0, 86_400.0
START = 1_790_000_000.0
"""The true time when the clock is created."""


class Machine:
    """Two clocks: a wall clock that can be set, and a monotonic one."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.true, self.ahead = START, ahead

    def wall(self) -> float:
        return self.true + self.ahead

    def steady(self) -> float:
        return self.true - START + 17.0  # counted from an arbitrary moment

    def trusted_clock(self, newest: float | None = START) -> TrustedClock:
        return TrustedClock(newest, self.wall, self.steady)

    def after(self, clock: TrustedClock, hours: float, ahead: float | None = None) -> float:
        """Return the clock's time after `hours`, with the wall clock set `ahead` seconds ahead."""
        self.true += hours * HOUR
        self.ahead = self.ahead if ahead is None else ahead
        return clock.now().timestamp()


def test_a_steady_clock_is_trusted():
    machine = Machine()
    clock = machine.trusted_clock()
    for hours in (0.0, 1.0, 1.0, 48.0, 1000.0):
        assert machine.after(clock, hours) == pytest.approx(machine.true)


@pytest.mark.parametrize("ahead", [DAY, 40 * DAY, 4000 * DAY])
def test_a_jump_ahead_is_trusted_after_six_hours(ahead):
    machine = Machine()
    clock = machine.trusted_clock()
    assert machine.after(clock, 1.0, ahead) == pytest.approx(machine.true)
    assert machine.after(clock, 5.9) == pytest.approx(machine.true)
    assert machine.after(clock, 0.2) == pytest.approx(machine.true + ahead)
    assert machine.after(clock, 1.0) == pytest.approx(machine.true + ahead)


def test_a_jump_back_is_trusted_at_once():
    machine = Machine()
    clock = machine.trusted_clock()
    assert machine.after(clock, 1.0, -10 * DAY) == pytest.approx(machine.true - 10 * DAY)
    assert machine.after(clock, 7.0) == pytest.approx(machine.true - 10 * DAY)
    assert machine.after(clock, 1.0, 0.0) == pytest.approx(machine.true - 10 * DAY)
    assert machine.after(clock, 6.1) == pytest.approx(machine.true)


def test_small_corrections_are_not_jumps():
    machine = Machine()
    clock = machine.trusted_clock()
    for hour in range(8):
        machine.after(clock, 1.0, ahead=0.9 * JUMP_S * (hour + 1))
    assert clock.now().timestamp() == pytest.approx(machine.wall())


def test_the_start_time_is_taken_from_the_newest_trace():
    machine = Machine(ahead=40 * DAY)
    clock = machine.trusted_clock(newest=START - 2 * DAY)
    assert clock.now().timestamp() == pytest.approx(START - 2 * DAY)
    assert machine.after(clock, 3.0) == pytest.approx(START - 2 * DAY + 3 * HOUR)
    assert machine.after(clock, 3.0) == pytest.approx(machine.wall())


def test_a_trace_from_the_future_does_not_advance_the_clock():
    machine = Machine()
    clock = machine.trusted_clock(newest=START + 300 * DAY)
    assert clock.now().timestamp() == pytest.approx(START)


def test_without_a_trace_the_clock_is_trusted():
    machine = Machine(ahead=9 * DAY)
    assert machine.trusted_clock(newest=None).now().timestamp() == pytest.approx(machine.wall())


def test_a_clock_jump_is_reported_once(caplog):
    machine = Machine()
    clock = machine.trusted_clock()
    with caplog.at_level(logging.WARNING):
        machine.after(clock, 1.0, 2 * HOUR)
        assert caplog.records == []
        machine.after(clock, 1.0, 40 * DAY)
        machine.after(clock, 1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "the clock jumped 40 days ahead; it is not used for deleting traces until it has run for 6 hours"
    ]


hours = st.floats(0.01, 5.0)
offsets = st.one_of(st.just(0.0), st.floats(1.0, 4000.0).map(lambda days: days * DAY))


@given(st.lists(st.tuples(hours, offsets), min_size=1, max_size=12), st.floats(0.0, 60 * DAY))
def test_a_wrong_clock_for_less_than_the_wait_never_advances_the_clock(steps, idle):
    """The clock is never late while each wrong setting of the clock lasts less than six hours."""
    machine = Machine(ahead=steps[0][1])
    clock = machine.trusted_clock(newest=START - idle)
    last = None
    for span, ahead in steps:
        same_setting = last is not None and abs(ahead - last) <= JUMP_S  # less is a correction
        believed = machine.after(clock, span, 0.0 if same_setting else ahead)
        last = machine.ahead
        assert believed <= machine.true + 1e-3
        assert believed <= machine.wall() + 1e-3


@given(st.lists(st.tuples(hours, offsets), max_size=8), st.floats(0.0, 4000 * DAY))
def test_a_clock_that_stays_is_trusted_eventually(steps, idle):
    machine = Machine()
    clock = machine.trusted_clock(newest=START - idle)
    for span, ahead in steps:
        machine.after(clock, span, ahead)
    clock.now()
    assert machine.after(clock, TRUST_AFTER_S / HOUR) == pytest.approx(machine.wall())
