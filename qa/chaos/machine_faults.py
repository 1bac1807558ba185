"""What goes wrong around the gateway: its disk, its database, its process, its clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from chaos.clock import DAY_S, HOUR_S, MovableClock
from chaos.disk import SmallDisk
from chaos.environment import Environment, Outcome, under_fault
from chaos.gateway import Gateway
from chaos.promises import short

from support import postgres

_DISK_MB = 64
_RESTART_S = 6.0
"""A new estimator is started five seconds after the loss of the last."""


async def try_full_disk(env: Environment) -> Outcome:
    """The disk of the store is full for a while: answers go on, traces wait in the queue."""
    outcome = Outcome("disk full", f"not a byte is left on the store's disk, a tmpfs of {_DISK_MB} MB, for a while")
    disk = SmallDisk(env.folder / "disk", _DISK_MB)
    try:
        gateway = await Gateway.start(
            env.folder / "on-disk", env.fast, env.slow, str(disk.folder / "traces.db"), prefix=disk.prefix
        )
        try:
            await under_fault(env, gateway, outcome, lambda: _fill(env, gateway, disk, outcome))
        finally:
            await gateway.stop()
        outcome.broken += short(gateway.complaints())
        disk.rescue(env.folder / "rescued")
    finally:
        disk.close()
    await env.judge(outcome, str(env.folder / "rescued" / "traces.db"))
    return outcome


async def _fill(env: Environment, gateway: Gateway, disk: SmallDisk, outcome: Outcome) -> None:
    await asyncio.sleep(env.pace)
    disk.fill()
    noticed = False
    until = time.monotonic() + 3 * env.pace
    while time.monotonic() < until:
        noticed = noticed or await gateway.metric("odar_store_up") == 0
        disk.fill()  # what SQLite gives back is taken again
        await asyncio.sleep(0.2)
    if not noticed:
        outcome.broken.append("the store never noticed that its disk was full: the fault did not happen")
    disk.clear()
    await asyncio.sleep(env.pace)


async def try_postgres_restart(env: Environment) -> Outcome:
    """The database server crashes and comes back."""
    outcome = Outcome(
        "PostgreSQL restarts", "the store's server is stopped as by a crash, and started again 2 s later"
    )
    with postgres.cluster() as cluster:
        gateway = await Gateway.start(env.folder / "on-postgres", env.fast, env.slow, cluster.url)

        async def restart() -> None:
            await asyncio.sleep(env.pace)
            await asyncio.to_thread(cluster.stop)
            await asyncio.sleep(2)
            if await gateway.metric("odar_store_up"):
                outcome.broken.append("the store never noticed that its server was gone: the fault did not happen")
            await asyncio.to_thread(cluster.start)
            await asyncio.sleep(env.pace)

        try:
            await under_fault(env, gateway, outcome, restart)
        finally:
            await gateway.stop()
        outcome.broken += short(gateway.complaints())
        await env.judge(outcome, cluster.url)
    return outcome


async def try_kill(env: Environment) -> Outcome:
    """The gateway's process is killed under load, and started again on the same store."""
    outcome = Outcome("kill -9", "the gateway is killed under load and started again on the same SQLite file")
    store, folder = str(env.folder / "killed.db"), env.folder / "killed"
    gateway = await Gateway.start(folder, env.fast, env.slow, store)
    try:
        async with env.load(gateway) as clients:
            await asyncio.sleep(3 + env.pace)
            await gateway.kill()
            killed_at = time.monotonic()
    finally:
        await gateway.kill()
    outcome.asked += clients.asked
    outcome.broken += short(gateway.complaints())
    gateway = await Gateway.start(folder, env.fast, env.slow, store)
    try:
        await under_fault(env, gateway, outcome, lambda: asyncio.sleep(env.pace))
    finally:
        await gateway.stop()
    await env.judge(outcome, store, killed_at=killed_at)
    return outcome


async def try_worker_killed(env: Environment) -> Outcome:
    """Two gateways share one database, as behind a load balancer; one of them is killed."""
    outcome = Outcome("worker killed", "one of two gateways on one PostgreSQL is killed with -9; the other goes on")
    with postgres.cluster() as cluster:
        survivor, victim = await asyncio.gather(
            *(Gateway.start(env.folder / name, env.fast, env.slow, cluster.url) for name in ("survivor", "victim"))
        )
        killed_at = 0.0

        async def strike() -> None:
            nonlocal killed_at
            async with env.load(victim) as clients:
                await asyncio.sleep(3 + env.pace)
                await victim.kill()
                killed_at = time.monotonic()
            outcome.asked += clients.asked
            await asyncio.sleep(env.pace)

        own = Outcome("", "")
        try:
            await under_fault(env, survivor, own, strike)
        finally:
            await victim.kill()
            await survivor.stop()
        outcome.broken += short(survivor.complaints() + victim.complaints())
        outcome.before, outcome.after, outcome.recovered_s = own.before, own.after, own.recovered_s
        await env.judge(own, cluster.url)  # the survivor is excused from nothing
        outcome.broken += [f"the survivor: {why}" for why in own.broken]
        outcome.asked += own.asked
        await env.judge(outcome, cluster.url, killed_at=killed_at)
    return outcome


async def try_clock(env: Environment) -> Outcome:
    """The wall clock jumps to and fro, and is far ahead when the gateway is started again."""
    jumps = (HOUR_S, -HOUR_S, DAY_S, -DAY_S, 0)
    outcome = Outcome(
        "clock jumps",
        "the wall clock jumps by an hour and by a day, forth and back; then the gateway is started again while the clock is "
        "60 days ahead, twice as far as traces are kept",
    )
    clock = MovableClock(env.folder)
    store = str(env.folder / "clock.db")
    gateway = await Gateway.start(env.folder / "clock-gateway", env.fast, env.slow, store, environ=clock.environ)

    async def jump() -> None:
        for seconds in jumps:
            clock.move(seconds)
            await asyncio.sleep(env.pace / 2)

    try:
        await under_fault(env, gateway, outcome, jump)
    finally:
        await gateway.stop()
    outcome.broken += short(gateway.complaints())
    clock.move(60 * DAY_S)
    try:
        again = await Gateway.start(env.folder / "clock-again", env.fast, env.slow, store, environ=clock.environ)
        await asyncio.sleep(2 + env.pace)  # old traces are looked for as soon as the store is open
        await again.stop()
    finally:
        clock.close()
    outcome.broken += short(again.complaints())
    await env.judge(outcome, store)
    return outcome


async def try_cold_start(env: Environment) -> Outcome:
    """Questions from the first moment the gateway listens, while it still loads."""
    outcome = Outcome("cold start", "questions come in as soon as the port is open, before anything is loaded")
    store = str(env.folder / "cold.db")
    gateway = await Gateway.start(env.folder / "cold", env.fast, env.slow, store)
    try:
        async with env.load(gateway) as clients:
            await asyncio.sleep(3 * env.pace)
        outcome.asked += clients.asked
        await under_fault(env, gateway, outcome, lambda: asyncio.sleep(0))
    finally:
        await gateway.stop()
    outcome.broken += short(gateway.complaints())
    await env.judge(outcome, store)
    return outcome


MACHINE_FAULTS: dict[str, Callable[[Environment], Awaitable[Outcome]]] = {
    "cold start": try_cold_start,
    "disk full": try_full_disk,
    "PostgreSQL restarts": try_postgres_restart,
    "kill -9": try_kill,
    "worker killed": try_worker_killed,
    "clock jumps": try_clock,
}
