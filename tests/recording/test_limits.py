from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.config import load_settings
from odar.errors import SettingsError
from odar.recording.limits import NOTHING, WINDOW_S, Amount, LocalLimiter, Rate, Window, check_needs, rates_of

RATE = Rate(requests=5, tokens=100)


@st.composite
def schedules(draw):
    """Items that arrive one after another: (need, share of it that is used, how long it runs, pause before)."""
    need = st.builds(Amount, st.integers(1, 5), st.integers(0, 100))
    item = st.tuples(need, st.floats(0, 1), st.floats(0, 90), st.floats(0, 30))
    return draw(st.lists(item, min_size=1, max_size=25))


@given(schedules())
def test_no_minute_sees_more_than_the_limit(schedule):
    """Calls may happen at any time between an item's start and its end: put them where they hurt most."""
    window, now = Window(), 0.0
    running, calls = [], []

    def end(until):
        for ticket, used, ends in sorted((x for x in running if x[2] <= until), key=lambda x: x[2]):
            window.settle(ticket, used, ends)
            calls.append((ends, used))  # at the very end
            running.remove((ticket, used, ends))

    for ticket, (need, share, lasts, pause) in enumerate(schedule):
        now += pause
        end(now)
        while (wait := window.wait_s(need, RATE, now)) > 0:
            # Whoever waits is woken when something settles, or when the time has come.
            now = min([now + wait, *(ends for _, _, ends in running)])
            end(now)
        window.hold(ticket, need, until=now + 1000)
        used = Amount(round(need.requests * share), round(need.tokens * share))
        running.append((ticket, used, now + lasts))
    end(float("inf"))
    for start, _ in calls:
        inside = [used for at, used in calls if start <= at < start + WINDOW_S]
        assert sum(used.requests for used in inside) <= RATE.requests
        assert sum(used.tokens for used in inside) <= RATE.tokens


@given(schedules())
def test_starts_count_as_well_as_ends(schedule):
    """The same with every call at the start of its item."""
    window, now, calls = Window(), 0.0, []
    for ticket, (need, _, lasts, pause) in enumerate(schedule):
        now += pause
        now += window.wait_s(need, RATE, now)
        assert window.wait_s(need, RATE, now) < 1e-9  # what floating point leaves of it
        window.hold(ticket, need, until=now + 1000)
        calls.append((now, need))
        now += lasts
        window.settle(ticket, need, now)
    for start, _ in calls:
        inside = [used for at, used in calls if start <= at < start + WINDOW_S]
        assert sum(used.requests for used in inside) <= RATE.requests


def test_what_was_not_used_is_free_at_once():
    window = Window()
    window.hold(1, Amount(5), until=1000)
    assert window.wait_s(Amount(1), RATE, 0.0) > 0
    window.settle(1, NOTHING, now=1.0)
    assert window.wait_s(Amount(5), RATE, 1.0) == 0


def test_a_ticket_of_a_dead_process_is_given_up():
    window = Window()
    window.hold(1, Amount(5), until=100.0)
    assert window.wait_s(Amount(1), RATE, 99.0) == pytest.approx(1.0)
    assert window.wait_s(Amount(1), RATE, 100.0) == 0


def test_more_tokens_than_a_minute_has_wait_until_they_are_alone():
    window = Window()
    window.hold(1, Amount(1, 10), until=1000)
    assert window.wait_s(Amount(1, 500), RATE, 0.0) > 0
    window.settle(1, Amount(1, 10), now=0.0)
    assert window.wait_s(Amount(1, 500), RATE, 1.0) == pytest.approx(59.0)
    assert window.wait_s(Amount(1, 500), RATE, 60.0) == 0


async def test_a_waiting_item_is_woken_by_the_one_that_ends():
    limiter = LocalLimiter({"p": Rate(requests=2)})
    first = await limiter.take({"p": Amount(2), "unlimited": Amount(99)})
    second = asyncio.create_task(limiter.take({"p": Amount(1)}))
    await asyncio.sleep(0.05)
    assert not second.done()
    await limiter.settle(first, {"p": Amount(1)})
    assert await asyncio.wait_for(second, 60) > first


async def test_time_lets_items_through_too():
    now = 0.0
    limiter = LocalLimiter({"p": Rate(requests=1)}, clock=lambda: now)
    await limiter.settle(await limiter.take({"p": Amount(1)}), {"p": Amount(1)})
    waiting = asyncio.create_task(limiter.take({"p": Amount(1)}))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()
    now = 60.0
    await asyncio.wait_for(limiter.take({"p": Amount(1)}), 60)


def test_a_limit_that_one_item_may_pass_is_refused_by_name():
    with pytest.raises(SettingsError, match=r"providers\.p\.requests_per_min = 3 .* may take 6 requests"):
        check_needs({"p": Amount(6, 10), "q": Amount(6)}, {"p": Rate(requests=3)})
    check_needs({"p": Amount(6, 10_000)}, {"p": Rate(requests=6, tokens=10)})


def test_limits_come_from_the_settings():
    providers = {"vllm": {"kind": "openai", "base_url": "http://x", "requests_per_min": 7}}
    assert rates_of(load_settings("tiny", environ={}, providers=providers)) == {"vllm": Rate(7, None)}
    assert rates_of(load_settings("tiny", environ={})) == {}
