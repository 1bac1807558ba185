"""Attacks of one client that take slots, threads, descriptors or time from the others (issue 36)."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from collections import Counter
from typing import Any

import aiohttp
from attack.availability import CHAT, MARK, again_and_again, marked, question, status_of
from attack.scene import Scene, attack
from chaos.gateway import worker_count

from support.fault_server import Exchange


@attack(36.01, "text for regular expressions", brief=True)
async def regular_expressions(scene: Scene) -> None:
    """Questions of 200,000 newlines, spaces, digits, brackets, quotes or tags, which must be read in linear time."""
    tags = "\n".join(f"<a{number}>" for number in range(200_000))
    texts = [
        piece * 200_000 for piece in ("\n", " ", "\t", "1", "(", '"', "://", "?", "A.\n", "give\n", "<task>\n")
    ]
    turns = itertools.cycle([tags, *texts, "<task>\n" * 200_000 + "</task>"])
    seen = await again_and_again(
        scene, 2, lambda: status_of(scene, CHAT, question("odar", f"{MARK}\n{next(turns)} 2 + 2?"))
    )
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) <= {200, 400, 413}, f"got {dict(seen)}")


@attack(
    36.03,
    "slow bodies of a key with limits",
    keys={"narrow": ("--parallel", "1", "--rate", "6/min"), "free": ()},
    settings={"gateway.max_in_flight": 40},
    brief=True,
)
async def slow_bodies(scene: Scene) -> None:
    """A key of one request at a time, and one without limits, each send 60 requests whose bodies never end."""
    heads = {
        name: (
            f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {scene.keys[name]}\r\n"
            "content-length: 1000\r\n\r\n{"
        ).encode()
        for name in ("narrow", "free")
    }
    opened = []
    refused: Counter[str] = Counter()
    try:
        for name in ("narrow", "free"):
            for _ in range(60):
                reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
                writer.write(heads[name])
                opened.append((name, reader, writer))
        await asyncio.sleep(scene.seconds / 2)
        for name, reader, _ in opened:
            refused[name] += bool(reader._buffer)  # type: ignore[attr-defined]
        held = await scene.gateway.metric("odar_in_flight")
    finally:
        for _, _, writer in opened:
            writer.transport.abort()
    scene.say(f"{refused['narrow']} and {refused['free']} of 60 were refused at the headers")
    # each worker waits for as many bodies as the key may send at once; the store then counts for all of them
    workers = worker_count()
    most = 20 if workers == 1 else 24  # an even part of half the slots, as connections are not spread quite evenly
    waited_for, slots = 60 - refused["narrow"], 60 - refused["free"]
    scene.check(waited_for <= workers, f"{waited_for} bodies of the narrow key are waited for")
    scene.check(slots <= most, f"{slots} of 40 slots are held by one key")
    scene.check(held < 30, f"{held:.0f} of 40 slots are in use")


@attack(36.10, "requests that call no model", keys={"busy": ("--rate", "1000000/min")}, brief=True)
async def modelless(scene: Scene) -> None:
    """One key counts tokens of 10 MB, reads the dashboard and sends feedback, 24 requests at once."""
    large = json.dumps(question("quick", "word " * 2_000_000)).encode()
    overview = "/dashboard/api/overview"
    work = itertools.cycle(("/v1/messages/count_tokens", overview, "/v1/feedback"))
    before = scene.gateway.memory_mb()

    async def request() -> int:
        path = next(work)
        data = large if path.endswith("tokens") else json.dumps({"trace_id": "none", "correct": True}).encode()
        method = "GET" if path == overview else "POST"
        options = {"data": None if method == "GET" else io.BytesIO(data), "headers": scene.auth("busy")}
        async with scene.http.request(method, scene.url + path, **options) as response:
            await response.read()
            return response.status

    seen = await again_and_again(scene, 24, request)
    peak = scene.gateway.memory_mb("VmHWM") - before
    scene.say(f"{seen.total()} requests, {seen[429]} of them refused")
    scene.check(set(seen) <= {200, 404, 429}, f"got {dict(seen)}")
    scene.check(peak < 400, f"the memory grew by {peak:.0f} MB")


@attack(36.09, "offers of an upgrade", brief=True)
async def upgrade_offers(scene: Scene) -> None:
    """Questions that offer HTTP/2 or a WebSocket, as Java's client does: each is answered, and none opens a gap."""
    body = json.dumps(question()).encode()
    lines = "POST {} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, http2-settings\r\nupgrade: {}\r\n"
    seen: Counter[bytes] = Counter()

    async def ask(protocol: str) -> None:
        head = (lines.format(CHAT, protocol) + f"content-length: {len(body)}\r\n\r\n").encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        for part in (head, body[:10], body[10:] + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"):
            writer.write(part)
            await asyncio.sleep(0.01)
        for _ in range(2):
            answer = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            seen[answer[9:12]] += 1
        writer.close()

    for _ in range(20):
        await asyncio.gather(ask("h2c"), ask("websocket"), ask("anything"))
    scene.say(f"{seen.total()} answers")
    scene.check(set(seen) == {b"200"}, f"got {dict(seen)}")


@attack(36.12, "few file descriptors", prefix=("prlimit", "--nofile=128:300"), healthy=False, brief=True)
async def few_descriptors(scene: Scene) -> None:
    """1,000 idle connections to a gateway that may open 300 files; another address still gets its answers."""
    opened = []
    try:
        for _ in range(1000):
            opened.append(await asyncio.open_connection("127.0.0.1", scene.port))
        await asyncio.sleep(scene.seconds / 2)
        refused = sum(reader.at_eof() or bool(reader._buffer) for reader, _ in opened)  # type: ignore[attr-defined]
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.9", 0))
        async with aiohttp.ClientSession(connector=connector) as other:
            ask = other.post(scene.url + CHAT, json=question(), timeout=aiohttp.ClientTimeout(20))
            async with ask as response:
                status = response.status
    finally:
        for _, writer in opened:
            writer.transport.abort()
    scene.say(f"{refused} of 1000 were refused")
    most = 60 * worker_count()  # each process may open half of its descriptors, and one address half of these
    scene.check(1000 - refused <= most, f"only {refused} were refused")
    scene.check(status == 200, f"another address got {status}")


@attack(36.13, "the store is lost", keys={"only": ()}, healthy=False, brief=True)
async def lost_store(scene: Scene) -> None:
    """The store is overwritten while the gateway runs; /readyz and every key get 503, and the log has a line of each worker."""

    async def status(path: str) -> int:
        async with scene.http.get(scene.url + path, headers=scene.auth("only")) as response:
            return response.status

    scene.check(await status("/v1/models") == 200, "the key does not work")
    for suffix in ("-wal", ""):
        (scene.folder / f"traces.db{suffix}").write_bytes(b"no database " * 10_000)
    for _ in range(100):
        await asyncio.sleep(0.1)
        if (seen := await status("/v1/models")) != 200:
            break
    await asyncio.sleep(max(2.0, scene.seconds / 2))
    lines = (scene.folder / "log").read_text().count("every request that needs a key is refused")
    ready = await status("/readyz")
    scene.say(f"status {seen}, /readyz {ready}, {lines} line in the log")
    scene.check((seen, ready, await status("/healthz")) == (503, 503, 200), "no 503")
    scene.check(1 <= lines <= worker_count(), f"{lines} lines in the log")


@attack(
    36.14,
    "odd heads, times and statuses",
    keys={"simple": ("--max-path", "simple"), "metered": ("--tokens", "5000")},
    settings={"store.responses": "true"},
    brief=True,
)
async def oddities(scene: Scene) -> None:
    """Lengths of 5,000 digits, HTTP/2.0, no Host or two, year 1, status 999, 10¹² tokens, the slow model by its name."""

    async def raw(head: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        writer.write(head.encode())
        answer = await reader.readline()
        writer.close()
        return answer[9:12]

    async def get(path: str) -> int:
        options = {"headers": scene.auth("simple"), "allow_redirects": False}
        async with scene.http.get(scene.url + path, **options) as response:
            return response.status

    async def ask(key: str, **more: Any) -> int:
        return (await scene.post(CHAT, question(**more), headers=scene.auth(key)))[0]

    async def odd_status(exchange: Exchange) -> None:
        await exchange.send_json({"error": {"message": "odd"}}, 999)

    async def odd_usage(exchange: Exchange) -> None:
        usage = {"prompt_tokens": 10**12, "completion_tokens": 10**12}
        message = {"role": "assistant", "content": "4"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        await exchange.send_json({"model": "served", "choices": [choice], "usage": usage})

    authorization = f"authorization: Bearer {scene.keys['simple']}\r\n"
    post = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\n{authorization}content-length: {'0' * 5000}"
    seen = {
        "a length of zeros": await raw(f"{post}\r\n\r\n") == b"400",
        "a length of nines": await raw(f"{post}{'9' * 18}\r\n\r\n") == b"413",
        "no Host": await raw("GET /healthz HTTP/1.1\r\n\r\n") == b"400",
        "two Hosts": await raw("GET /healthz HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n") == b"400",
        "HTTP/2.0": await raw("GET /healthz HTTP/2.0\r\nhost: a\r\n\r\n") == b"505",
        "year 1": await get("/dashboard/api/traces?since=0001-01-01T00:00:00%2B23:59") == 400,
        "a slash at the end": await get("/healthz/") == 404,
        "the slow model by name": await ask("simple", model="deep") == 403,
    }
    marked(scene.fast, odd_status)
    seen["status 999"] = await ask("simple", model="quick") == 502
    marked(scene.fast, odd_usage)
    seen["10¹² tokens"] = await ask("metered", model="quick", max_tokens=10) == 200
    await asyncio.sleep(1.0)
    seen["the next request"] = await ask("metered", model="quick", max_tokens=10) == 200
    scene.say(f"{len(seen)} requests")
    for name, held in seen.items():
        scene.check(held, f"{name} was not answered as it should be")
