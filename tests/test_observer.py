"""The observer hook: which events it gets, in which order, and that it costs nothing without an observer."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest

from odar.observer import observed, outgoing_headers, tell


class Witness:
    def __init__(self):
        self.seen = []
        self.fields = {}

    @contextmanager
    def watch(self, step, fields):
        self.seen.append(f"<{step}")
        self.fields[step] = dict(fields)
        try:
            yield
        except ValueError:
            self.seen.append(f"!{step}")
            raise
        finally:
            self.seen.append(f"{step}>")

    def tell(self, fact):
        self.seen.append(fact)

    def headers(self):
        return {"traceparent": "00-1-1-01"}


class Work:
    def __init__(self, observer=None):
        self.observer = observer

    @observed("whole", outermost=True)
    async def run(self, fail=False):
        """Everything."""
        return await self.part(1) + self.quick(2, fail)

    @observed("part")
    async def part(self, x):
        tell({"x": x})
        await asyncio.sleep(0)
        return x

    @observed("quick")
    def quick(self, x, fail):
        if fail:
            raise ValueError
        return x


async def test_observers_see_nested_steps_and_results():
    witness = Witness()
    assert await Work(witness).run() == 3
    assert witness.seen == ["<whole", "<part", {"x": 1}, 1, "part>", "<quick", 2, "quick>", 3, "whole>"]
    assert witness.fields["part"].keys() == {"self", "x"}
    assert witness.fields["quick"] | {"self": None} == {"self": None, "x": 2, "fail": False}


async def test_exceptions_reach_observer_and_caller():
    witness = Witness()
    with pytest.raises(ValueError):
        await Work(witness).run(fail=True)
    assert witness.seen[-4:] == ["!quick", "quick>", "!whole", "whole>"]


async def test_results_are_the_same_without_an_observer():
    work = Work()
    assert await work.run() == 3
    assert await work.part(5) == 5
    assert outgoing_headers() is None
    assert work.run.__doc__ == "Everything."
    step = work.run()
    assert step.cr_code.co_name == "run", "the coroutine itself, without a wrapper"
    await step


async def test_observation_ends_with_the_outermost_step():
    witness = Witness()

    class Caller(Work):
        @observed("whole", outermost=True)
        async def run(self):
            return outgoing_headers()

    assert await Caller(witness).run() == {"traceparent": "00-1-1-01"}
    assert outgoing_headers() is None
    await Work().part(1)
    assert witness.seen == ["<whole", {"traceparent": "00-1-1-01"}, "whole>"]


async def test_concurrent_calls_have_separate_observers():
    one, two = Witness(), Witness()
    await asyncio.gather(Work(one).run(), Work(two).run(), Work().run())
    assert one.seen == two.seen
    assert len(one.seen) == 10
