"""A few faults of `make chaos`, run briefly; the others take minutes."""

from __future__ import annotations

from collections import Counter

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
