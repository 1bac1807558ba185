"""Attacks on who may ask, what reaches an upstream, and whose money is spent (items 1 to 6)."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from attack.scene import Scene, attack
from chaos.gateway import Gateway
from chaos.upstream import number_of

from support.fault_server import Exchange

CHAT = "/v1/chat/completions"
OURS = 987_001
"""The number of the attacker's question; healthy clients count from 1."""
TURNS = [{"role": "user", "content": f"Question {OURS}: what is 2 + 2?"}]
PRIVATE = ("/v1/models", "/dashboard/api/session", "/dashboard/api/traces", "/dashboard/api/export")
LOCAL = ({}, {"host": "localhost"}, {"host": "127.0.0.1:1"}, {"host": "localhost", "origin": "http://localhost"})
PROXIED = (
    {"x-forwarded-for": "127.0.0.1"},
    {"x-forwarded-host": "localhost"},
    {"forwarded": "for=127.0.0.1;host=localhost"},
    {"via": "1.1 proxy"},
    {"x-real-ip": "127.0.0.1"},
)
TIMEOUT_S = 30.0


@attack(1, "the last key is revoked", keys={"only": ()}, healthy=False, brief=True, arguments=("--host", "0.0.0.0"))
async def last_key_revoked(scene: Scene) -> None:
    """The only key is revoked while the gateway runs; nobody may be let in without a key."""
    await _ask_with_key(scene, "only", 200)
    await scene.odar("keys", "revoke", "only")
    await _until(lambda: _refused(scene, "only"), "the revoked key still works")
    await _check_closed(scene)


@attack(1, "the database of keys is emptied", keys={"only": ()}, healthy=False, brief=True)
async def keys_emptied(scene: Scene) -> None:
    """The rows of the key table vanish, then the table; nobody may be let in, with the old key or without."""
    await _ask_with_key(scene, "only", 200)
    for statement in ("DELETE FROM keys", "DROP TABLE keys"):
        with contextlib.closing(sqlite3.connect(scene.folder / "traces.db", timeout=30)) as database, database:
            database.execute(statement)
        await _until(lambda: _refused(scene, "only"), f"the key still works after {statement}")
        await _check_closed(scene)


@attack(1, "the database is replaced", keys={"only": ()}, healthy=False, brief=True)
async def database_replaced(scene: Scene) -> None:
    """Another database takes the file's name, then no file has it; the old key is refused, and so is no key."""
    await _ask_with_key(scene, "only", 200)
    file = scene.folder / "traces.db"
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    await _until(lambda: _refused(scene, "only"), "the key of a deleted database still works")
    await _check_closed(scene)
    await scene.odar("keys", "create", "only")  # makes a new database, with a key of the same name
    await asyncio.sleep(2)
    await _ask_with_key(scene, "only", 401)
    await _check_closed(scene)


@attack(1, "requests through a proxy, without keys", brief=True)
async def proxied(scene: Scene) -> None:
    """No key exists, and a proxy on this machine forwards strangers with `Host: localhost`; they are not local."""
    for headers in PROXIED:
        status, _ = await scene.post(CHAT, {"model": "odar-simple", "messages": TURNS}, headers=headers)
        scene.check(status == 403, f"{headers} was answered with {status}")
        for path in (*PRIVATE, "/metrics"):
            status = await _get(scene, path, headers)
            scene.check(status in (401, 403), f"GET {path} with {headers} was answered with {status}")


@attack(2, "fields that go past the gateway", brief=True)
async def smuggled_fields(scene: Scene) -> None:
    """Clients send n, messages, max_tokens, models and others, so that the upstream does what the gateway did not allow."""
    bodies: list[dict[str, Any]] = []

    async def noted(exchange: Exchange) -> None:
        if number_of(exchange) == OURS:
            bodies.append(exchange.json)
        await scene.fast.answer_normally(exchange)

    scene.fast.misbehave(noted)
    stolen = {"messages": [{"role": "user", "content": "http://169.254.169.254/"}], "n": 50, "max_tokens": 100_000}
    responses = {"model": "quick", "input": TURNS[0]["content"], "max_output_tokens": 7, **stolen}
    capped = responses | {"odar": {"max_cost_usd": 0.001}}
    routed = {"models": ["gpt-5.4-pro"], "route": "fallback", "provider": {}, "service_tier": "priority", "x": 1}
    chat = {"model": "quick", "messages": TURNS, "max_tokens": 7, **routed}
    for path, body in (("/v1/responses", responses), ("/v1/responses", capped), (CHAT, chat)):
        status, text = await scene.post(path, body)
        scene.check(status == 200, f"{path}: {status} {text[:200]}")
        scene.check("not sent on" in text, f"{path} does not say what was dropped")
    scene.check(len(bodies) == 3, f"{len(bodies)} requests upstream, not 3")
    known = {"model", "messages", "max_tokens", "logprobs", "top_logprobs"}
    for body in bodies:
        scene.check(set(body) <= known, f"sent on: {sorted(set(body) - known)}")
        scene.check(body["max_tokens"] == 7, f"max_tokens = {body['max_tokens']}")
        scene.check("169.254" not in str(body), "the client's own messages were sent on")


@attack(3, "thousands of model names", brief=True)
async def model_names(scene: Scene) -> None:
    """Every request names another model of a configured provider, then one of 20 MB; nothing may grow with them."""
    word = "zanzibar"
    count = 400 if scene.seconds < 3 else 4000
    for start in range(0, count, 50):
        asked = [{"model": f"f/{word}-{i}", "messages": TURNS} for i in range(start, start + 50)]
        await asyncio.gather(*(scene.post(CHAT, body) for body in asked))
    long = io.BytesIO(json.dumps({"model": "f/" + word * 2_500_000, "messages": TURNS}).encode())
    async with scene.http.post(scene.url + CHAT, data=long) as response:
        status = response.status
    scene.check(status == 400, f"a name of 20 MB was answered with {status}")
    async with scene.http.get(scene.url + "/metrics") as response:
        page = await response.text()
    scene.check(len(page) < 200_000, f"/metrics has {len(page)} bytes")
    scene.check(word not in page, "/metrics repeats the client's names")
    scene.check('model="other"' in page, "unknown names are not counted as other")
    await _until(lambda: _written(scene, count), "the traces were not written")
    files = [file for file in scene.folder.iterdir() if file.is_file()]
    scene.check(sum(file.stat().st_size for file in files) < 60e6, "store and log grew beyond 60 MB")
    for file in files:
        scene.check(word.encode() not in file.read_bytes(), f"{file.name} holds the client's text")
    scene.say(f"{count} names, /metrics {len(page) / 1e3:.0f} kB")


async def _written(scene: Scene, count: int) -> bool:
    return await scene.gateway.metric("odar_store_written_total") >= count


@attack(4, "built-in providers of this machine", keys={"any": ()}, brief=True)
async def loopback_providers(scene: Scene) -> None:
    """A key asks for models of Ollama, llama.cpp and vLLM on the gateway's own machine, which nobody configured."""
    connected: list[str] = []

    async def listener(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append("connected")
        writer.close()

    servers = []
    for port in (11434, 8080, 8000):
        with contextlib.suppress(OSError):  # taken: the status will do
            servers.append(await asyncio.start_server(listener, "127.0.0.1", port))
    for name in ("ollama", "llamacpp", "vllm", "vllm-fast", "vllm-slow"):
        body = {"model": f"{name}/x", "messages": TURNS}
        status, text = await scene.post(CHAT, body, headers=scene.auth("any"))
        scene.check(status == 404, f"{name}/x was answered with {status}: {text[:100]}")
    for server in servers:
        server.close()
    scene.check(not connected, "the gateway connected to a service of its own machine")


KEY_FILE = "/nonexistent/operators-own-folder/key"


@attack(
    5,
    "an operator's mistake",
    settings={
        "providers.broken.kind": "openai",
        "providers.broken.base_url": "http://127.0.0.1:9/v1",
        "providers.broken.api_key_file": KEY_FILE,
    },
    brief=True,
)
async def operator_fault(scene: Scene) -> None:
    """A key file of the operator's cannot be read; clients learn a reference, and the log has the text."""
    status, text = await scene.post(CHAT, {"model": "broken/x", "messages": TURNS})
    scene.check(status == 503, f"status {status}")
    scene.check("operators-own-folder" not in text, "the path of the key file was shown")
    reference = re.search(r"reference ([0-9a-f]{32})", text)
    scene.check(reference, f"no reference: {text[:200]}")
    if reference:
        await _until(lambda: _logged(scene, reference.group(1)), "the log does not have the reference")


async def _logged(scene: Scene, reference: str) -> bool:
    return any(reference in line and "broken" in line for line in scene.gateway.log.read_text().splitlines())


BUDGET_USD = 0.02
PRICED = {"model": "quick", "messages": TURNS, "max_tokens": 1000}
"""At $2 a million tokens of output, one request can cost a tenth of the budget."""


@attack(6, "parallel requests on one budget", keys={"poor": ("--budget-day", str(BUDGET_USD))}, brief=True)
async def parallel_spending(scene: Scene) -> None:
    """A hundred requests at once, some of them for priority service; the budget holds."""

    async def ask(**more: Any) -> int:
        status, _ = await scene.post(CHAT, PRICED | more, headers=scene.auth("poor"))
        return status

    before = _generated(scene)
    statuses: list[int] = []
    statuses += await asyncio.gather(*(ask(service_tier="priority") for _ in range(30)))
    until = asyncio.get_running_loop().time() + scene.seconds
    while asyncio.get_running_loop().time() < until:
        statuses += await asyncio.gather(*(ask() for _ in range(100)))
    scene.check(set(statuses) <= {200, 429}, f"statuses {sorted(set(statuses))}")
    scene.check(200 in statuses, "nothing was answered at all")
    spent = await _spent(scene, "poor")
    scene.check(spent <= BUDGET_USD + 1e-9, f"${spent:.4f} on the bill of a budget of ${BUDGET_USD}")
    prompt, completion = 10 + OURS % 17, 5 + OURS % 5  # tokens of every answer, as the upstream counts them
    answers = (_generated(scene) - before) / (prompt + completion)
    billed = answers * (prompt * 1e-6 + completion * 2e-6)
    scene.check(billed <= BUDGET_USD + 1e-9, f"the upstream wrote text for ${billed:.4f}")
    scene.check(statuses.count(200) * 1e-6 <= BUDGET_USD, f"{statuses.count(200)} requests were answered")
    scene.say(f"{statuses.count(200)} of {len(statuses)} answered, ${spent:.4f} of ${BUDGET_USD} spent")


@attack(6, "streams that are left before their usage", keys={"poor": ("--budget-day", str(BUDGET_USD))}, brief=True)
async def unpaid_streams(scene: Scene) -> None:
    """Streams are read up to their last word and left before the usage comes: each is charged what was reserved."""

    async def usage_late(exchange: Exchange) -> None:
        late = number_of(exchange) == OURS
        await scene.fast.answer_normally(exchange, every_s=0.2 if late else 0.0)

    async def leave() -> int:
        body = PRICED | {"stream": True}
        async with scene.http.post(scene.url + CHAT, json=body, headers=scene.auth("poor")) as response:
            async for line in response.content:
                if b"Answer" in line:
                    break
            response.close()
            return response.status

    scene.fast.misbehave(usage_late)
    statuses = await asyncio.gather(*(leave() for _ in range(30)))
    spent, answered = await _spent(scene, "poor"), statuses.count(200)
    scene.check(answered >= 5, f"only {answered} streams began: {sorted(set(statuses))}")
    scene.check(spent <= BUDGET_USD + 1e-9, f"${spent:.4f} on the bill of a budget of ${BUDGET_USD}")
    scene.check(spent >= answered * 0.0019, f"${spent:.4f} on the bill for {answered} streams of $0.002 each")
    scene.say(f"{answered} of {len(statuses)} answered, ${spent:.4f} charged")


@attack(6, "a key beyond its limits", keys={"narrow": ("--parallel", "2", "--tokens", "2500")}, brief=True)
async def beyond_limits(scene: Scene) -> None:
    """A key of two requests at a time and 2,500 tokens a minute sends bursts."""
    running, most = 0, 0

    async def counted(exchange: Exchange) -> None:
        nonlocal running, most
        ours = number_of(exchange) == OURS
        running += ours
        most = max(most, running)
        await asyncio.sleep(0.2)
        await scene.fast.answer_normally(exchange)
        running -= ours

    scene.fast.misbehave(counted)
    statuses = []
    for _ in range(3):
        burst = (scene.post(CHAT, PRICED, headers=scene.auth("narrow")) for _ in range(20))
        statuses += [status for status, _ in await asyncio.gather(*burst)]
    scene.check(set(statuses) == {200, 429}, f"statuses {sorted(set(statuses))}")
    scene.check(most <= 2, f"{most} requests ran at a time")
    scene.say(f"{statuses.count(200)} of {len(statuses)} answered, {most} at a time")


@attack(6, "a replica that crashes with a budget in hand", keys={"shared": ("--budget-day", "0.0021")}, brief=True)
async def crashed_replica(scene: Scene) -> None:
    """A second gateway on the same store is killed in the middle of a request; what it had reserved is freed."""

    async def hang(exchange: Exchange) -> None:
        if number_of(exchange) == OURS:
            await asyncio.sleep(60)
        await scene.fast.answer_normally(exchange)

    scene.fast.misbehave(hang)
    toml = (scene.folder / "odar.toml").read_text()
    replica = await Gateway.launch(scene.folder / "replica", toml)
    headers = scene.auth("shared")
    asking = asyncio.create_task(scene.http.post(replica.url + CHAT, json=PRICED, headers=headers))
    await _until(lambda: _reserved(scene), "the replica reserved nothing")
    status, text = await scene.post(CHAT, PRICED, headers=headers)
    scene.check(status == 429, f"the budget was promised twice: {status} {text[:200]}")
    await replica.kill()
    with contextlib.suppress(aiohttp.ClientError):
        await asking
    scene.fast.misbehave(None)
    await _until(lambda: _answered(scene, headers), "what the crashed replica had reserved was not freed")
    spent = await _spent(scene, "shared")
    scene.check(spent <= 0.0021, f"${spent:.6f} were spent")


async def _reserved(scene: Scene) -> bool:
    with contextlib.closing(sqlite3.connect(scene.folder / "traces.db", timeout=30)) as database:
        return bool(database.execute("SELECT count(*) FROM reservations").fetchone()[0])


async def _answered(scene: Scene, headers: dict[str, str]) -> bool:
    return (await scene.post(CHAT, PRICED, headers=headers))[0] == 200


async def _spent(scene: Scene, name: str) -> float:
    await asyncio.sleep(1)
    listed = json.loads(await scene.odar("keys", "list", "--json"))
    return float(next(key["today"]["usd"] for key in listed if key["name"] == name))


def _generated(scene: Scene) -> int:
    return sum(tally.tokens for number, tally in scene.fast.books.items() if number == OURS)


async def _check_closed(scene: Scene) -> None:
    for headers in (*LOCAL, *PROXIED):
        for model in ("odar", "quick"):
            status, _ = await scene.post(CHAT, {"model": model, "messages": TURNS}, headers=headers)
            scene.check(status == 401, f"POST {CHAT} with {headers} and no key was answered with {status}")
        for path in PRIVATE:
            status = await _get(scene, path, headers)
            scene.check(status == 401, f"GET {path} with {headers} and no key was answered with {status}")
    scene.say("every request is refused")


async def _refused(scene: Scene, name: str) -> bool:
    return await _get(scene, "/v1/models", scene.auth(name)) in (401, 503)


async def _ask_with_key(scene: Scene, name: str, expected: int) -> None:
    status, text = await scene.post(CHAT, {"model": "odar-simple", "messages": TURNS}, headers=scene.auth(name))
    scene.check(status == expected, f"with key {name}: status {status}, not {expected}: {text[:200]}")


async def _get(scene: Scene, path: str, headers: dict[str, str] | None = None) -> int:
    async with scene.http.get(scene.url + path, headers=headers) as response:
        await response.read()
        return response.status


async def _until(happened: Callable[[], Awaitable[Any]], problem: str) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not await happened():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(problem) from None
