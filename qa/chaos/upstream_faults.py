"""What model servers do wrong. Each is done to the fast agent's server, then to the slow one's, then to both."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

from chaos.environment import Environment, Outcome, under_fault
from chaos.gateway import Footprint, Gateway
from chaos.upstream import CountingUpstream

from support.fault_server import (
    Behaviour,
    Exchange,
    dies_mid_stream,
    empty_choices,
    garbage,
    hang,
    html,
    not_http,
    reset,
    status,
    truncated,
)

Make = Callable[[CountingUpstream], Behaviour]


class UpstreamFault(NamedTuple):
    """One way for a server to misbehave."""

    name: str
    what: str
    make: Make | None
    """The behaviour; None where the server itself comes and goes."""


def always(*behaviours: Behaviour) -> Make:
    """One of these, for each request."""

    def make(upstream: CountingUpstream) -> Behaviour:
        async def behave(exchange: Exchange) -> None:
            await upstream.rng.choice(behaviours)(exchange)

        return behave

    return make


def sometimes(share: float, *behaviours: Behaviour) -> Make:
    """One of these for this share of the requests, a good answer for the others."""

    def make(upstream: CountingUpstream) -> Behaviour:
        async def behave(exchange: Exchange) -> None:
            bad = upstream.rng.random() < share
            await (upstream.rng.choice(behaviours) if bad else upstream.answer_normally)(exchange)

        return behave

    return make


def rate_limited(per_second: float, retry_after: float) -> Make:
    """So many a second are answered, the others refused with 429 and `retry-after`."""

    def make(upstream: CountingUpstream) -> Behaviour:
        room, at = per_second, time.monotonic()

        async def behave(exchange: Exchange) -> None:
            nonlocal room, at
            now = time.monotonic()
            room, at = min(per_second, room + (now - at) * per_second), now
            if room >= 1:
                room -= 1
                await upstream.answer_normally(exchange)
            else:
                await status(429, retry_after=retry_after)(exchange)

        return behave

    return make


def without_logprobs(share: float) -> Make:
    """Answers of which this share has no log-probabilities."""

    def make(upstream: CountingUpstream) -> Behaviour:
        async def behave(exchange: Exchange) -> None:
            await upstream.answer_normally(exchange, logprobs=upstream.rng.random() >= share)

        return behave

    return make


def trickling(every_s: float) -> Make:
    """A good answer, so slowly that only a stream has a chance to be whole in time."""

    def make(upstream: CountingUpstream) -> Behaviour:
        return lambda exchange: upstream.answer_normally(exchange, every_s=every_s)

    return make


def hostile_stream() -> Behaviour:
    """Events that are no JSON, of the wrong shape, half a character, and no end."""
    events = (
        b"data: {\xff]\n\n",
        b'data: {"choices": 7}\n\n',
        b'data: {"choices": [{"delta": 3}]}\n\n',
        b"data: \xf0\x9f",
    )

    async def behave(exchange: Exchange) -> None:
        await exchange.head(200, "text/event-stream", None)
        await exchange.write(b'data: {"choices": [{"index": 0, "delta": {"content": "It"}}]}\n\n')
        await exchange.write(events[len(exchange.body) % len(events)])

    return behave


def wrong_shapes() -> Behaviour:
    """JSON, but not a chat completion."""
    shapes = (
        [],
        {"choices": None},
        {"choices": [{}]},
        {"choices": [{"message": 5}]},
        {"error": {"message": 7}},
        "hi",
    )

    async def behave(exchange: Exchange) -> None:
        await exchange.send(json.dumps(shapes[len(exchange.body) % len(shapes)]).encode())

    return behave


UPSTREAM_FAULTS = (
    UpstreamFault("calm", "nothing: the control", sometimes(0.0, hang())),
    UpstreamFault("hang", "accepts the request and never answers", always(hang())),
    UpstreamFault("flap", "goes away, refusing connections, and comes back, every 0.3 s", None),
    UpstreamFault("trickle", "one byte of a reply, or one event of a stream, every 0.1 s", trickling(0.1)),
    UpstreamFault("reset", "breaks the connection off: before, in the midst of, or after half of an answer", sometimes(0.7, reset(), truncated(), dies_mid_stream("It is 4", after=2))),
    UpstreamFault("garbage", "status 200 with binary, HTML, another protocol, wrong shapes, hostile events", sometimes(0.8, garbage(), html(), not_http(), empty_choices(), wrong_shapes(), hostile_stream())),
    UpstreamFault("rate limit", "10 answers a second, else 429 with retry-after: 0.4", rate_limited(10, 0.4)),
    UpstreamFault("server errors", "500, 502 and 503 to nine requests of ten", sometimes(0.9, status(500), status(502), status(503))),
    UpstreamFault("no log-probs", "half of the answers come without log-probabilities", without_logprobs(0.5)),
)  # fmt: skip
LEAVING = "clients leave"


async def try_upstream(
    env: Environment, gateway: Gateway, store: str, fault: UpstreamFault, before: Footprint | None = None
) -> Outcome:
    """The fault, first to one server, then to the other, then to both."""
    outcome = Outcome(fault.name, fault.what, before=before)
    since = datetime.now(UTC).isoformat(timespec="milliseconds")

    async def happen() -> None:
        for targets in ((env.fast,), (env.slow,), env.upstreams):
            await (_flap(targets, env.pace) if fault.make is None else _misbehave(targets, fault.make, env.pace))

    await under_fault(env, gateway, outcome, happen)
    await env.judge(outcome, store, since=since, may_refuse=fault.make is None)
    return outcome


async def try_leaving(env: Environment, gateway: Gateway, store: str, before: Footprint | None = None) -> Outcome:
    """Clients that do not wait."""
    outcome = Outcome(LEAVING, "two clients of three hang up within 0.3 s, while upstreams are slow", before=before)
    since = datetime.now(UTC).isoformat(timespec="milliseconds")

    def happen() -> Awaitable[None]:
        return _misbehave(env.upstreams, lambda upstream: _slowly(upstream), 3 * env.pace)

    await under_fault(env, gateway, outcome, happen, leaving=0.67)
    await env.judge(outcome, store, since=since)
    return outcome


def _slowly(upstream: CountingUpstream) -> Behaviour:
    async def behave(exchange: Exchange) -> None:
        await asyncio.sleep(0.15)
        await upstream.answer_normally(exchange)

    return behave


async def _misbehave(targets: tuple[CountingUpstream, ...], make: Make, seconds: float) -> None:
    for upstream in targets:
        upstream.misbehave(make(upstream))
    await asyncio.sleep(seconds)
    for upstream in targets:
        upstream.misbehave(None)


async def _flap(targets: tuple[CountingUpstream, ...], seconds: float) -> None:
    for _ in range(max(1, round(seconds / 0.6))):
        for upstream in targets:
            await upstream.stop_listening()
        await asyncio.sleep(0.3)
        for upstream in targets:
            await upstream.listen_again()
        await asyncio.sleep(0.3)
