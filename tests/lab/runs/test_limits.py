from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.config import load_settings
from odar.errors import SettingsError
from odar.lab.runs.limits import REQUESTS, TOKENS, WINDOW_S, RateLimiter, check_needs, rates_of


def amounts(requests, tokens=0, provider="p"):
    return {(provider, REQUESTS): requests, (provider, TOKENS): tokens}


RATE = amounts(5, 100)


@st.composite
def schedules(draw):
    """Items that arrive one after another: (need, share of it that is used, how long it runs, pause before)."""
    need = st.tuples(st.integers(1, 5), st.integers(0, 100))
    item = st.tuples(need, st.floats(0, 1), st.floats(0, 90), st.floats(0, 30))
    return draw(st.lists(item, min_size=1, max_size=25))


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def limiter_at(clock, rate=RATE):
    return RateLimiter(rate, clock)


@given(schedules())
def test_no_window_of_a_minute_exceeds_the_limit(schedule):
    """Calls can happen at any time between the start and the end of an item; here they all happen at the end."""
    clock = Clock()
    limiter = limiter_at(clock)
    running, calls = [], []

    def end(until):
        for ticket, used, ends in sorted((x for x in running if x[2] <= until), key=lambda x: x[2]):
            clock.now = ends
            limiter.settle(ticket, amounts(*used))
            calls.append((ends, used))  # at the very end
            running.remove((ticket, used, ends))
        clock.now = until

    for need, share, lasts, pause in schedule:
        end(clock.now + pause)
        while (wait := limiter.wait_s(amounts(*need))) > 0:
            # A waiting item is woken when another one settles, or when its time has come.
            end(min([clock.now + wait, *(ends for _, _, ends in running)]))
        used = [round(each * share) for each in need]
        running.append((limiter.reserve(amounts(*need)), used, clock.now + lasts))
    end(float("inf"))
    for start, _ in calls:
        inside = [used for at, used in calls if start <= at < start + WINDOW_S]
        assert sum(requests for requests, _ in inside) <= 5
        assert sum(tokens for _, tokens in inside) <= 100


def test_unused_reservations_are_free_immediately():
    limiter = limiter_at(Clock())
    ticket = limiter.reserve(amounts(5))
    assert limiter.wait_s(amounts(1)) == math.inf
    limiter.settle(ticket, {})
    assert limiter.wait_s(amounts(5)) == 0


def test_an_item_above_the_token_limit_runs_alone():
    clock = Clock()
    limiter = limiter_at(clock)
    ticket = limiter.reserve(amounts(1, 10))
    assert limiter.wait_s(amounts(1, 500)) == math.inf
    limiter.settle(ticket, amounts(1, 10))
    clock.now = 1.0
    assert limiter.wait_s(amounts(1, 500)) == pytest.approx(59.0)
    clock.now = 60.0
    assert limiter.wait_s(amounts(1, 500)) == 0


async def test_settling_an_item_wakes_a_waiting_one():
    limiter = RateLimiter({("p", REQUESTS): 2})
    first = await limiter.acquire(amounts(2) | amounts(99, provider="unlimited"))
    second = asyncio.create_task(limiter.acquire(amounts(1)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not second.done()
    limiter.settle(first, amounts(1))
    assert await asyncio.wait_for(second, 60) > first


async def test_an_item_can_start_when_the_window_has_passed():
    now = 0.0
    limiter = RateLimiter({("p", REQUESTS): 1}, clock=lambda: now)
    limiter.settle(await limiter.acquire(amounts(1)), amounts(1))
    waiting = asyncio.create_task(limiter.acquire(amounts(1)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    now = 60.0
    await asyncio.wait_for(limiter.acquire(amounts(1)), 60)


def test_a_limit_below_the_requests_of_one_item_is_rejected():
    with pytest.raises(SettingsError, match=r"providers\.p\.requests_per_min = 3 .* may take 6 requests"):
        check_needs(amounts(6, 10) | amounts(6, provider="q"), {("p", REQUESTS): 3})
    check_needs(amounts(6, 10_000), amounts(6, 10))


def test_limits_come_from_the_settings():
    providers = {"vllm": {"kind": "openai", "base_url": "http://x", "requests_per_min": 7}}
    assert rates_of(load_settings("tiny", environ={}, providers=providers)) == {("vllm", REQUESTS): 7}
    assert rates_of(load_settings("tiny", environ={})) == {}
