"""Attacks on the gateway's time and memory: clients and model servers that waste them (items 7 to 11)."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
from attack.scene import Scene, attack
from chaos.upstream import CountingUpstream

from support.fault_server import Behaviour, Exchange, ok

CHAT = "/v1/chat/completions"
MARK = "mark of the attacker"
"""In the questions of attackers, so that a model server can treat them differently."""


def question(model: str = "odar-simple", text: str = MARK, **more: Any) -> dict[str, Any]:
    """A request of an attacker's."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def marked(upstream: CountingUpstream, behaviour: Behaviour) -> None:
    """Behave like this towards the attacker, and well towards everybody else."""

    async def behave(exchange: Exchange) -> None:
        await (behaviour if MARK.encode() in exchange.body else upstream.answer_normally)(exchange)

    upstream.misbehave(behave)


async def again_and_again(scene: Scene, attackers: int, act: Callable[[], Awaitable[Any]]) -> Counter[Any]:
    """So many attackers at a time, until the time is over; how often each outcome was met."""
    outcomes: Counter[Any] = Counter()
    end = asyncio.get_running_loop().time() + scene.seconds

    async def attacker() -> None:
        while asyncio.get_running_loop().time() < end:
            outcomes[await act()] += 1

    await asyncio.gather(*(attacker() for _ in range(attackers)))
    return outcomes


async def status_of(scene: Scene, path: str, body: Any) -> int | str:
    """The status of one request; the name of the error where there is none."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        async with asyncio.timeout(30), scene.http.post(scene.url + path, data=io.BytesIO(data)) as response:
            await response.read()
            return response.status
    except (aiohttp.ClientError, OSError) as error:
        return type(error).__name__


async def flood(scene: Scene, head: bytes, piece: bytes, most: int) -> tuple[int, bytes]:
    """Send a head and then the piece again and again; bytes that were taken, and what came back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
    sent = 0
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(scene.seconds + 5):
            writer.write(head)
            while sent < most:
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
    answer = b""
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(5):
            answer = await reader.read(4096)
    writer.transport.abort()
    return sent, answer


async def closed_by_server(scene: Scene, count: int, first: bytes, timeout_s: float = 15.0) -> int:
    """Open connections, send this on each and nothing more; how many the gateway closes."""

    async def one() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        try:
            writer.write(first)
            async with asyncio.timeout(timeout_s):
                while await reader.read(4096):
                    pass
            return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        finally:
            writer.transport.abort()

    return sum(await asyncio.gather(*(one() for _ in range(count))))


@attack(0, "nothing", brief=True)
async def nothing(scene: Scene) -> None:
    """No attack at all: the control."""
    await asyncio.sleep(scene.seconds)


@attack(7, "deadlines of 50 ms", brief=True)
async def short_deadlines(scene: Scene) -> None:
    """Questions with `odar.deadline_s` 0.05 to a model that takes 0.3 s; nobody else may be refused for it."""

    async def slowly(exchange: Exchange) -> None:
        await asyncio.sleep(0.3)
        await scene.fast.answer_normally(exchange)

    marked(scene.fast, slowly)
    marked(scene.slow, slowly)
    body = question(odar={"deadline_s": 0.05})
    seen = await again_and_again(scene, 12, lambda: status_of(scene, CHAT, body))
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) == {504}, f"expected 504 alone, got {dict(seen)}")


@attack(7, "models that do not exist")
async def unknown_models(scene: Scene) -> None:
    """Questions to models that the model server does not have, which it answers with 503, as some proxies do."""
    marked(scene.fast, lambda exchange: exchange.send_json({"error": {"message": "no such model"}}, 503))
    names = itertools.count()
    seen = await again_and_again(
        scene, 12, lambda: status_of(scene, CHAT, question(model=f"f/missing-{next(names)}"))
    )
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) <= {503, 404, 403}, f"got {dict(seen)}")


@attack(7, "clients that leave")
async def leaving(scene: Scene) -> None:
    """Clients that hang up while a model server works on their question."""

    async def slowly(exchange: Exchange) -> None:
        await asyncio.sleep(5)

    marked(scene.fast, slowly)

    async def leave() -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await scene.post(CHAT, question())
        return "left"

    scene.say(f"{(await again_and_again(scene, 12, leave)).total()} clients")


@attack(8, "endless headers", brief=True)
async def endless_headers(scene: Scene) -> None:
    """60 MB of headers on each of 4 connections, before any key: many small ones, and one that never ends."""
    head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
    pieces = (b"x-a: " + b"b" * 90 + b"\r\n") * 660, b"c" * 65536
    floods = [flood(scene, head + (b"x-c: " if i % 2 else b""), pieces[i % 2], 60_000_000) for i in range(4)]
    taken = await asyncio.gather(*floods)
    await asyncio.sleep(scene.seconds / 2)
    most = max(sent for sent, _ in taken)
    scene.say(f"at most {most / 1e6:.1f} MB were taken")
    scene.check(most < 10_000_000, f"{most / 1e6:.1f} MB of headers were taken")


@attack(8, "half a head", constants={"odar.serving.connections": "HEADER_TIMEOUT_S = 1.0"}, brief=True)
async def half_open(scene: Scene) -> None:
    """200 connections that send half a head, and nothing more."""
    closed = await closed_by_server(scene, 200, b"POST /v1/chat/completions HTTP/1.1\r\nhost: loc")
    scene.say(f"{closed} of 200 were closed")
    scene.check(closed == 200, f"{200 - closed} connections stay open")


@attack(8, "connections that say nothing", constants={"odar.serving.connections": "HEADER_TIMEOUT_S = 1.0"})
async def silent_connections(scene: Scene) -> None:
    """200 connections that send nothing at all."""
    closed = await closed_by_server(scene, 200, b"")
    scene.say(f"{closed} of 200 were closed")
    scene.check(closed == 200, f"{200 - closed} connections stay open")


@attack(8, "half a body", constants={"odar.serving.exchange": "BODY_TIMEOUT_S = 1.0"})
async def half_bodies(scene: Scene) -> None:
    """200 connections that announce a body and send half of it; half of them to an address that takes none."""
    where = (b"POST /v1/chat/completions", b"GET /healthz")
    heads = [path + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{" for path in where]
    closed = sum(await asyncio.gather(*(closed_by_server(scene, 100, head) for head in heads)))
    scene.say(f"{closed} of 200 were closed")
    scene.check(closed == 200, f"{200 - closed} connections stay open")


@attack(8, "too many connections", constants={"odar.serving.connections": "MAX_CONNECTIONS_PER_PEER = 50"})
async def many_connections(scene: Scene) -> None:
    """One address opens 300 connections, of which it may have 50."""
    await scene.http.close()
    opened = [await asyncio.open_connection("127.0.0.1", scene.port) for _ in range(300)]
    try:
        await asyncio.sleep(1.0)
        refused = sum(reader.at_eof() or bool(reader._buffer) for reader, _ in opened)  # type: ignore[attr-defined]
    finally:
        for _, writer in opened:
            writer.transport.abort()
    scene.say(f"{refused} of 300 were refused")
    scene.check(refused >= 250, f"only {refused} were refused")


@attack(8, "streams that are not read", constants={"odar.serving.exchange": "WRITE_TIMEOUT_S = 1.0"}, brief=True)
async def unread_streams(scene: Scene) -> None:
    """30 clients ask for a stream that fills every buffer and read nothing of it; each must lose its slot."""
    text = "word " * 8_000

    async def endless(exchange: Exchange) -> None:
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", "", ""]
        await exchange.write("\r\n".join(lines).encode())
        event = {"model": "served", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
        chunk = f"data: {json.dumps(event)}\n\n".encode()
        while True:
            await exchange.chunk(chunk)
            await asyncio.sleep(0.1)

    marked(scene.fast, endless)
    body = json.dumps(question(stream=True)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    clients: list[socket.socket] = []
    for _ in range(30):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", scene.port))
        await asyncio.get_running_loop().sock_sendall(
            client, head + b"content-length: %d\r\n\r\n" % len(body) + body
        )
        clients.append(client)
    try:
        async with asyncio.timeout(15):
            while await scene.gateway.metric("odar_in_flight") > 6:  # the healthy clients' own, and a few of these
                await asyncio.sleep(0.1)
            while (refused := await scene.gateway.metric("odar_refused_connections_total")) < 30:
                await asyncio.sleep(0.1)
        scene.say(f"{refused:.0f} of 30 were disconnected")
    except (TimeoutError, AssertionError):
        scene.check(False, "streams that are not read hold their slots and connections for 15 s")
    for client in clients:
        client.close()


@attack(8, "requests ahead of their answers")
async def pipelining(scene: Scene) -> None:
    """One connection asks a question and sends two million further requests while it waits for the answer."""

    async def slowly(exchange: Exchange) -> None:
        await asyncio.sleep(4)

    marked(scene.fast, slowly)
    body = json.dumps(question()).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    piece = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1000
    sent, _ = await flood(scene, head + body, piece, 2000 * len(piece))
    scene.say(f"{sent / 1e6:.1f} MB were taken")
    scene.check(sent < 500 * len(piece), f"{sent / 1e6:.1f} MB were taken")


def _endless(first: bytes, piece: bytes) -> Behaviour:
    """An answer that begins so and goes on like this for ever."""

    async def behave(exchange: Exchange) -> None:
        exchange.keep_alive = False
        await exchange.write(first)
        while True:
            await exchange.write(piece)

    return behave


_CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"
_UPSTREAMS = {
    "trailers": _endless(_CHUNKED + b"0\r\n", b"x-t: value\r\n" * 5000),
    "one trailer": _endless(_CHUNKED + b"0\r\nx-t: ", b"v" * 60_000),
    "headers": _endless(b"HTTP/1.1 200 OK\r\n", b"x-h: value\r\n" * 5000),
    "interim responses": _endless(b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 1000),
    "a chunk extension": _endless(_CHUNKED + b"5;", b"x" * 60_000),
}


@attack(9, "headers of a model server", brief=True)
async def hostile_headers(scene: Scene) -> None:
    """A model server that never ends its headers, trailers, interim responses or chunk extensions."""
    seen: Counter[Any] = Counter()
    for name, behaviour in _UPSTREAMS.items():
        marked(scene.fast, behaviour)
        asked = [status_of(scene, CHAT, question("quick", odar={"deadline_s": 3})) for _ in range(2)]
        statuses = Counter(await asyncio.gather(*asked))
        seen += statuses
        scene.check(set(statuses) <= {502, 503}, f"{name}: got {dict(statuses)} in place of 502")
    scene.say(f"{seen.total()} requests")


@attack(10, "text without spaces", brief=True)
async def unbroken_text(scene: Scene) -> None:
    """Questions of 250,000 characters without a space: Chinese, base64, one letter."""
    texts = itertools.cycle(("汉字" * 125_000, "aGVsbG8x" * 31_250, "a" * 250_000))
    seen = await again_and_again(
        scene, 2, lambda: status_of(scene, CHAT, question("odar", f"{next(texts)} {MARK}"))
    )
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) == {200}, f"expected 200 alone, got {dict(seen)}")


def _large_bodies() -> dict[str, bytes]:
    """Requests within the limit on bytes that take long to read."""
    turn, tool = {"role": "user", "content": ""}, {"type": "function", "function": {"name": "f", "parameters": {}}}
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string", "minLength": i} for i in range(150_000)}}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    bodies = {
        "800,000 messages": question(messages=[turn] * 800_000),
        "800,000 parts": question(messages=[{"role": "user", "content": [{"type": "text", "text": ""}] * 800_000}]),
        "100,000 tools": question(tools=[tool] * 100_000),
        "a schema of 6.9 MB": question(response_format=form),
        "10 million numbers": question(extra=[0] * 10_000_000),
    }
    return {name: json.dumps(body, separators=(",", ":")).encode() for name, body in bodies.items()}


@attack(11, "requests that take long to read")
async def large_requests(scene: Scene) -> None:
    """800,000 messages, 800,000 parts of one, 100,000 tools, a schema of 6.9 MB, 10 million numbers."""
    bodies = await asyncio.to_thread(_large_bodies)
    seen: Counter[Any] = Counter()
    for name, body in bodies.items():
        statuses = Counter(await asyncio.gather(*(status_of(scene, CHAT, body) for _ in range(2))))
        seen += statuses
        scene.check(set(statuses) <= {400, 413}, f"{name}: got {dict(statuses)} in place of 400")
    scene.say(f"{seen.total()} requests")


def _schema_bombs() -> dict[str, dict[str, Any]]:
    """Schemas of a few kilobytes that take minutes to compile or to check."""
    doubling: dict[str, Any] = {"d0": {"type": "string"}}
    unevaluated: dict[str, Any] = {"d0": {"properties": {"a": {"type": "number"}}}}
    for number in range(1, 40):
        before = {"$ref": f"#/$defs/d{number - 1}"}
        doubling[f"d{number}"] = {"anyOf": [before, before]}
        unevaluated[f"d{number}"] = {"allOf": [before], "unevaluatedProperties": False}
    patterns = {f"p{i}": {"pattern": f"((a{{0,300}}){{0,{200 + i}}})"} for i in range(100)}
    return {
        "doubling definitions": {"$ref": "#/$defs/d39", "$defs": doubling},
        "unevaluated properties": {"$ref": "#/$defs/d39", "$defs": unevaluated},
        "large patterns": {"properties": patterns},
    }


@attack(11, "schemas that take long to check", brief=True)
async def schema_bombs(scene: Scene) -> None:
    """Response formats of a few kilobytes: definitions that double the work 39 times, and large patterns."""
    marked(scene.fast, ok('{"a": 1}'))
    seen: Counter[Any] = Counter()
    for name, schema in _schema_bombs().items():
        form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        body, expected = question(response_format=form), 400 if name == "large patterns" else 200
        statuses = Counter(await asyncio.gather(*(status_of(scene, CHAT, body) for _ in range(4))))
        seen += statuses
        scene.check(set(statuses) == {expected}, f"{name}: got {dict(statuses)} in place of {expected}")
    scene.say(f"{seen.total()} requests")
