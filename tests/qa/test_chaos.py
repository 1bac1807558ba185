"""A few faults of `make chaos`, run briefly; the others take minutes."""

from __future__ import annotations

from collections import Counter

import pytest
from chaos.clock import MovableClock
from chaos.disk import SmallDisk
from chaos.environment import start_environment, until
from chaos.gateway import Gateway
from chaos.load import ANSWER, DEGRADED, ERROR, LEFT
from chaos.upstream_faults import UPSTREAM_FAULTS, try_leaving, try_upstream

BRIEF = ("reset", "garbage", "rate limit")
FAULTS = {fault.name: fault for fault in UPSTREAM_FAULTS}


async def test_promises_hold_while_upstreams_misbehave_and_clients_leave(tmp_path):
    async with start_environment(tmp_path, clients=6, pace=0.4) as env:
        store = str(tmp_path / "traces.db")
        gateway = await Gateway.start(tmp_path / "gateway", env.fast, env.slow, store)
        try:
            before = await env.warm(gateway)
            outcomes = [await try_upstream(env, gateway, store, FAULTS[name], before) for name in BRIEF]
            outcomes.append(await try_leaving(env, gateway, store, before))
        finally:
            await gateway.stop()
    assert {each.fault: each.broken for each in outcomes if each.broken} == {}
    assert gateway.complaints() == []
    kinds = Counter(each.outcome for outcome in outcomes for each in outcome.asked)
    assert kinds[ANSWER]
    assert kinds[DEGRADED] + kinds[ERROR], "no fault was felt: nothing was tested"
    assert kinds[LEFT]
    assert all(outcome.requests and outcome.tokens for outcome in outcomes)


async def test_early_questions_are_answered_or_rejected_in_time(tmp_path):
    async with start_environment(tmp_path, clients=4, pace=0.3) as env:
        gateway = await Gateway.start(tmp_path / "gateway", env.fast, env.slow, str(tmp_path / "traces.db"))
        try:
            assert await gateway.loading(), "it loads beside serving"
            async with env.load(gateway) as clients:
                await until(gateway.loading, "gateways are still loading")
        finally:
            await gateway.kill()
    assert clients.asked
    assert {each.outcome for each in clients.asked} <= {ANSWER, ERROR}
    assert {each.code for each in clients.asked} <= {"", "deadline", "timeout", "timeout_error"}


def test_a_small_disk_can_be_filled_and_emptied(tmp_path):
    try:
        disk = SmallDisk(tmp_path / "disk", megabytes=1)
    except LookupError as reason:
        pytest.skip(str(reason))
    try:
        assert disk.fill() == 2**20
        assert disk.free() == 0
        disk.clear()
        assert disk.free() == 2**20
        assert not any((tmp_path / "disk").iterdir()), "only those inside see it"
    finally:
        disk.close()


def test_the_clock_of_a_process_can_be_set(tmp_path):
    import subprocess
    import sys
    import time

    try:
        clock = MovableClock(tmp_path)
    except LookupError as reason:
        pytest.skip(str(reason))
    clock.move(86_400)
    code = "import time, datetime; print(time.time(), time.monotonic(), datetime.datetime.now().timestamp())"
    said = subprocess.run(
        [sys.executable, "-c", code], env=clock.environ, capture_output=True, text=True, check=True
    )
    clock.close()
    wall, steady, calendar = map(float, said.stdout.split())
    assert wall == pytest.approx(time.time() + 86_400, abs=60)
    assert calendar == pytest.approx(wall, abs=60)
    assert steady == pytest.approx(time.monotonic(), abs=60), "timers are left alone"
