"""One limiter for a whole cluster: on its own, and as an actor that is really killed."""

from __future__ import annotations

import asyncio

import pytest

from odar.recording.limits import NAME, NAMESPACE, WINDOW_S, Amount, Rate, RayLimiter, SharedLimiter
from support.ray_cluster import needs_ray, of_ray

pytestmark = of_ray
RATES = {"p": Rate(requests=4, tokens=100)}


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


async def waits(limiter, needs):
    """Whether an item with these needs would have to wait; it takes nothing."""
    taking = asyncio.create_task(limiter.take(needs))
    await asyncio.sleep(0.02)
    if not taking.done():
        taking.cancel()
        return True
    await limiter.settle(taking.result(), {})
    return False


class TestShared:
    async def test_the_last_word_on_a_provider_counts(self):
        limiter = SharedLimiter()
        await limiter.enter({"p": Rate(requests=2), "q": Rate(requests=9)}, 10.0)
        await limiter.enter({"p": Rate(requests=3)}, 10.0)
        assert limiter.rates == {"p": Rate(requests=3), "q": Rate(requests=9)}

    async def test_it_is_closed_when_the_last_one_has_left(self):
        limiter = SharedLimiter()
        assert await limiter.enter(RATES, 10.0) == []
        assert await limiter.enter(RATES, 10.0) == []
        assert await limiter.leave() == 1
        assert await limiter.enter(RATES, 10.0) == []
        assert [await limiter.leave(), await limiter.leave()] == [1, 0]
        assert await limiter.enter(RATES, 10.0) is None

    async def test_the_longest_lease_holds(self):
        clock = Clock()
        limiter = SharedLimiter(clock)
        await limiter.enter(RATES, 5000.0)
        await limiter.enter(RATES, 10.0)
        await limiter.take({"p": Amount(4)})
        clock.now = 5000.0 + WINDOW_S - 1
        assert await waits(limiter, {"p": Amount(1)})
        clock.now += 1
        assert not await waits(limiter, {"p": Amount(1)})

    async def test_after_a_loss_it_begins_as_if_all_had_just_been_used(self):
        clock = Clock()
        limiter = SharedLimiter(clock)
        await limiter.enter(RATES, 10.0, lost=True)
        assert await waits(limiter, {"p": Amount(1)})
        assert not await waits(limiter, {"unlimited": Amount(1)})
        clock.now = WINDOW_S
        assert not await waits(limiter, {"p": Amount(4)})

    @pytest.mark.parametrize("rate", [Rate(requests=4), Rate(tokens=100)])
    async def test_a_limit_on_one_thing_alone_is_kept_as_well(self, rate):
        limiter = SharedLimiter(Clock())
        await limiter.enter({"p": rate}, 10.0, lost=True)
        assert await waits(limiter, {"p": Amount(1, 1)})

    async def test_what_is_under_way_is_held_whether_it_fits_or_not(self):
        clock = Clock()
        limiter = SharedLimiter(clock)
        tickets = await limiter.enter(RATES, 1000.0, [{"p": Amount(3)}, {"p": Amount(3)}, {"q": Amount(1)}], True)
        assert len(set(tickets)) == 3
        clock.now = WINDOW_S  # what had been used before counts no more
        assert await waits(limiter, {"p": Amount(1)})
        await limiter.settle(tickets[0], {"p": Amount(0)})
        assert not await waits(limiter, {"p": Amount(1)})
        assert await waits(limiter, {"p": Amount(2)})

    async def test_what_is_settled_counts_although_nothing_was_held(self):
        """An item may have fallen back on a provider that nobody had asked yet."""
        limiter = SharedLimiter(Clock())
        await limiter.enter({**RATES, "q": Rate(requests=1)}, 10.0)
        await limiter.settle(await limiter.take({"p": Amount(1)}), {"q": Amount(1), "unlimited": Amount(5)})
        assert await waits(limiter, {"q": Amount(1)})


@pytest.fixture
def ray(cluster):
    """Connected to the cluster, without a limiter of earlier tests."""
    import ray

    ray.init(cluster.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    yield ray
    if exists(ray):
        ray.kill(ray.get_actor(NAME, NAMESPACE))
    ray.shutdown()


def exists(ray):
    return any(each["name"] == NAME for each in ray.util.list_named_actors(all_namespaces=True))


async def until_gone(ray):
    async with asyncio.timeout(60):
        while exists(ray):
            await asyncio.sleep(0.05)


@needs_ray
async def test_without_limits_no_limiter_is_started(ray):
    limiter = RayLimiter(ray, RATES, 10.0)
    assert await limiter.take({"unlimited": Amount(9)}) == 0
    await limiter.settle(0, {"unlimited": Amount(9)})
    await limiter.close()
    assert not exists(ray)


@needs_ray
async def test_two_batches_share_one_and_the_last_ends_it(ray):
    first, second = RayLimiter(ray, RATES, 10.0), RayLimiter(ray, RATES, 10.0)
    ticket = await first.take({"p": Amount(3)})
    other = await second.take({"p": Amount(1)})
    waiting = asyncio.create_task(second.take({"p": Amount(2)}))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await first.settle(ticket, {"p": Amount(1)})
    third = await asyncio.wait_for(waiting, 60)
    await first.close()
    assert exists(ray)
    await second.settle(other, {})
    await second.settle(third, {})
    await second.close()
    await until_gone(ray)


@needs_ray
async def test_a_lost_limiter_is_replaced_and_the_limit_holds(ray):
    """Killed while one item is under way and another waits: nothing fails, and nothing starts too early."""
    limiter = RayLimiter(ray, RATES, 1000.0)
    ticket = await limiter.take({"p": Amount(4)})
    waiting = asyncio.create_task(limiter.take({"p": Amount(1)}))
    await asyncio.sleep(0.5)
    ray.kill(ray.get_actor(NAME, NAMESPACE))
    await limiter.settle(ticket, {"p": Amount(1)})
    await asyncio.sleep(2.0)
    assert exists(ray)
    assert not waiting.done()  # for a minute from the loss, all that is allowed counts as used
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await limiter.close()
    await until_gone(ray)


@needs_ray
async def test_leaving_a_limiter_that_is_gone_is_no_error(ray):
    limiter = RayLimiter(ray, RATES, 10.0)
    await limiter.take({"p": Amount(1)})
    ray.kill(ray.get_actor(NAME, NAMESPACE))
    await limiter.close()


@needs_ray
async def test_one_whose_last_user_left_without_ending_it_is_replaced(ray):
    """Its last user was killed between leaving and ending it."""
    left = RayLimiter(ray, RATES, 10.0)
    await left.settle(await left.take({"p": Amount(4)}), {"p": Amount(4)})
    assert await ray.get_actor(NAME, NAMESPACE).leave.remote() == 0
    limiter = RayLimiter(ray, RATES, 10.0)
    ticket = await asyncio.wait_for(limiter.take({"p": Amount(4)}), 60)
    await limiter.settle(ticket, {})
    await limiter.close()
    await until_gone(ray)
