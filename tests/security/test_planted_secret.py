"""Keys in every place where an operator can put one, and upstreams that echo them, never appear in any output.

The server runs as a process of its own, with everything on that might tell: the texts of traces, debugging of
Python's event loop, spans to a collector. What is searched: both forms of the log, every answer and error on every
protocol, the store's file byte by byte, metrics, dashboard, what the commands print, panels, reports with their
figures and tables, files that remember how they were made, spans, and the process list.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import signal
import sys
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import OdarError
from odar.lab.recording.files import open_recording
from odar.options import AskOptions
from support.constants import odar_code
from support.environment import kept_environment
from support.fault_server import Behaviour, Exchange, FaultServer, answer, echo_n, ok
from support.gateway import turn
from support.planted import (
    ENVIRONMENT_KEY,
    FILE_KEY,
    PASSWORD,
    SHAPES,
    STORE_PASSWORD,
    echoes,
    forms,
    found_in,
)

TOML = """
profile = "tiny"
[providers.up]
kind = "openai"
base_url = "{up}"
api_key_env = "PLANTED_KEY"
[providers.behind]
kind = "openai"
base_url = "{behind}"
[providers.other]
kind = "anthropic"
base_url = "{up}"
api_key_file = "{key_file}"
[models.m]
provider = "up"
logprobs = true
[models.b]
provider = "behind"
[models.a]
provider = "other"
[fast]
model = "m"
[slow]
model = "a"
[store]
url = "{store}"
content = {content}
[gateway]
port = 0
"""
CODE = odar_code(
    {
        "odar.providers.http": "ATTEMPTS = 1",
        "odar.providers.breaker": "FAILURES = 1000",
        "odar.serving.server": "NOTICE_S = 0.0",
        "odar.traces.writer": "FLUSH_INTERVAL_S = 0.05",
    }
)
BODIES = {
    "/v1/chat/completions": {"messages": turn()},
    "/v1/messages": {"messages": turn(), "max_tokens": 64},
    "/v1/responses": {"input": "What is 2 + 2?"},
}


class Operator:
    """An operator with secrets in every possible place."""

    def __init__(self, folder: Path, up: FaultServer, collector: FaultServer, *, content: bool) -> None:
        self.folder = folder
        self.store = folder / "traces.db"
        key_file = folder / "key.txt"
        key_file.write_text(FILE_KEY)
        key_file.chmod(0o600)
        behind = up.url.replace("://", f"://user:{quote(PASSWORD, safe='')}@")
        text = TOML.format(
            up=up.url, behind=behind, key_file=key_file, store=self.store, content=str(content).lower()
        )
        (folder / "odar.toml").write_text(text)
        self.variables = {
            **kept_environment(),
            "HOME": str(folder),
            "PLANTED_KEY": ENVIRONMENT_KEY,
            "PYTHONASYNCIODEBUG": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.origin,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        self.seen: dict[str, bytes] = {}

    def saw(self, where: str, data: bytes | str) -> None:
        """Record text that someone could read."""
        data = data.encode() if isinstance(data, str) else data
        self.seen[where] = self.seen.get(where, b"") + data

    async def odar(self, *arguments: str) -> str:
        """Run a command and record its output."""
        process = await self._start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(), 500)
        self.saw(f"odar {arguments[0]}", out + err)
        return out.decode()

    async def _start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CODE, *arguments), cwd=self.folder, env=self.variables,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def serve(self, form: str) -> tuple[asyncio.subprocess.Process, str]:
        """Start the gateway and return its URL."""
        process = await self._start("serve", "--log-format", form)
        async with asyncio.timeout(60):
            said = b""
            while not (found := re.search(rb"http://127\.0\.0\.1:\d+", said)):
                line = await process.stderr.readline()
                assert line, said
                said += line
        self.saw("log", said)
        return process, found.group().decode()

    def leaks(self) -> dict[str, list[str]]:
        """Return the places where a secret was found."""
        return {where: found for where, data in self.seen.items() if (found := found_in(data))}


async def ask_everything(http: aiohttp.ClientSession, url: str, operator: Operator) -> set[int]:
    """Call every endpoint with every model, whole and streamed; return the statuses."""
    statuses = set()
    for path, body in BODIES.items():
        for model in ("odar-simple", "odar-hard", "m", "b", "a"):
            for stream in ({}, {"stream": True}) if path.startswith("/v1") else ({},):
                async with http.post(url + path, json={**body, "model": model, **stream}) as response:
                    operator.saw("answers", str(response.headers) + await response.text())
                    statuses.add(response.status)
    return statuses


async def look_everywhere(http: aiohttp.ClientSession, url: str, operator: Operator) -> None:
    """Fetch everything that needs no model."""
    api = "/dashboard/api"
    paths = ["/metrics", "/openapi.json", "/v1/models", "/healthz", "/readyz", "/", "/nowhere"]
    paths += [api + "/session", api + "/models", api + "/overview?step=hour", api + "/export"]
    async with http.get(url + api + "/traces?limit=50") as response:
        listed = await response.json()
    operator.saw("dashboard", json.dumps(listed))
    paths += [f"{api}/traces/{trace['id']}" for trace in listed["traces"][:5]]
    for path in paths:
        async with http.get(url + path) as response:
            operator.saw(path.partition("?")[0], str(response.headers) + await response.text())


def process_list(pid: int) -> bytes:
    """Return the command lines of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return b"\n".join(Path(f"/proc/{each}/cmdline").read_bytes() for each in (pid, *children))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("form", "content"), [("text", True), ("json", False)])
async def test_a_gateway_does_not_leak_keys_echoed_by_its_upstream(tmp_path, form, content):
    async with FaultServer() as up, FaultServer() as collector, aiohttp.ClientSession() as http:
        collector.behave(answer({}))
        operator = Operator(tmp_path, up, collector, content=content)
        process, url = await operator.serve(form)
        log = asyncio.create_task(process.stderr.read())
        try:
            operator.saw("process list", process_list(process.pid))
            statuses = set()
            for shape in SHAPES:
                up.behave(echoes(shape=shape))
                statuses |= await ask_everything(http, url, operator)
            up.behave(ok("Answer: 4"))
            statuses |= await ask_everything(http, url, operator)
            assert {200, 401, 502} <= statuses  # it was refused, and it was answered
            assert b"internal_error" not in operator.seen["answers"]  # none was unexpected
            await asyncio.sleep(0.5)
            await look_everywhere(http, url, operator)
        finally:
            process.send_signal(signal.SIGTERM)
            operator.saw("log", await asyncio.wait_for(log, 60))
            await process.wait()
        for file in tmp_path.glob("traces.db*"):
            operator.saw("store", file.read_bytes())
        operator.saw("spans", b"".join(request.body for request in collector.requests))
        await operator.odar("traces", "--json")
        await operator.odar("traces", "export")
        sent = [str(request.headers) for request in up.requests]

    assert all(
        any(form.decode() in each for each in sent for form in forms(key)) for key in (ENVIRONMENT_KEY, FILE_KEY)
    )
    assert any(PASSWORD_HEADER in each for each in sent)  # the secrets did go where they belong
    assert len(operator.seen["spans"]) > 10_000
    assert len(operator.seen["store"]) > 10_000
    assert b"[redacted]" in operator.seen["answers"]  # it was there, and was taken out
    assert operator.leaks() == {}


PASSWORD_HEADER = next(form for form in forms(PASSWORD) if form.startswith(b"dXNlcjp")).decode()


async def test_commands_do_not_leak_keys(tmp_path):
    (tmp_path / "questions.jsonl").write_text('{"query": "What is 2 + 2?", "answer": "4"}\n' * 1)
    async with FaultServer() as up, FaultServer() as collector:
        collector.behave(answer({}))
        operator = Operator(tmp_path, up, collector, content=True)
        up.behave(echoes())
        for model in ("m", "b"):
            pair = ("--set", f"fast.model={model}", "--set", "slow.model=a")
            await operator.odar("ask", "--json", "--path", "hard", "2 + 2?", *pair)
        await operator.odar("doctor", "--json", *pair)
        await operator.odar("batch", "questions.jsonl", "answers.jsonl")
        await operator.odar("eval", "collect", "questions.jsonl", "--yes", "--out", "samples.jsonl")
        await operator.odar("config", "--json")
        shown = await operator.odar("config", "providers")
        await operator.odar("models")
        await operator.odar("traces", "--json")
        for file in (*tmp_path.glob("*.jsonl*"), *tmp_path.glob("traces.db*")):
            operator.saw(file.name, file.read_bytes())
        assert up.requests
    assert "user:***@127.0.0.1" in shown
    assert operator.leaks() == {}


def echoes_keys_sometimes(times: int) -> Behaviour:
    """Answer most questions; at regular intervals fail and echo the headers of the request."""
    asked = itertools.count(1)

    async def behave(exchange: Exchange) -> None:
        turn = next(asked)
        if turn % times == 0:
            await echoes(shape=SHAPES[turn // times % len(SHAPES)])(exchange)
        else:
            await echo_n(f"Answer: {'4' if turn % 2 else 'Paris'}")(exchange)

    return behave


async def test_panels_and_reports_do_not_leak_keys(tmp_path):
    pytest.importorskip("pyarrow.parquet", reason="the evals extra is not installed: pip install 'odar[evals]'")
    async with FaultServer() as up, FaultServer() as collector:
        collector.behave(answer({}))
        operator = Operator(tmp_path, up, collector, content=True)
        up.behave(echoes_keys_sometimes(17))
        pair = ("--set", "fast.model=m", "--set", "slow.model=b")
        await operator.odar("eval", "collect", "starter", "--out", "panel.jsonl", "--limit", "12", "--yes", *pair)
        assert b"failed with Provider" in operator.seen["odar eval"]  # it was shouted at
        await operator.odar("eval", "report", "panel.jsonl", "--out", "report.html")
    for file in (*tmp_path.glob("panel.*"), tmp_path / "report.html"):
        operator.saw(f"report: {file.name}", file.read_bytes())
    assert 0 < len(list(open_recording(tmp_path / "panel.jsonl").items())) < 12
    assert {".jsonl", ".html"} <= {Path(where).suffix for where in operator.seen if "report: " in where}
    assert PASSWORD_HEADER in str([request.headers for request in up.requests])  # they went where they belong
    assert operator.leaks() == {}


async def test_files_do_not_contain_passwords_of_the_command_line(tmp_path):
    """`--set` can contain a password; calibrations, estimators and reports record their command."""
    rows = [{"query": f"What is {i} + {i}?", "answer": str(2 * i), "difficulty": i % 5 / 5} for i in range(60)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    async with FaultServer() as up, FaultServer() as collector:
        collector.behave(answer({}))
        operator = Operator(tmp_path, up, collector, content=True)
        up.behave(echo_n("Answer: 4"))
        typed = up.url.replace("://", f"://user:{quote(PASSWORD, safe='')}@") + f"?api_key={FILE_KEY}"
        also = ("--set", f"providers.behind.base_url={typed}", "--set", "fast.model=b", "--set", "slow.model=b")
        await operator.odar("calibrate", "rows.jsonl", "--statistics-only", "--yes", *also)
        await operator.odar("train", "rows.jsonl", *also)
        for name, command in (("calibration.json", "calibrate"), ("estimator.json", "train")):
            written = (tmp_path / name).read_text()
            assert f"odar {command}" in written and "***@127.0.0.1" in written and "api_key=***" in written
            operator.saw(name, written)
        operator.saw("records", b"".join(file.read_bytes() for file in tmp_path.rglob("*.jsonl")))
    assert operator.leaks() == {}


@pytest.mark.parametrize("shape", SHAPES)
async def test_debug_logs_do_not_contain_keys(shape, caplog, monkeypatch):
    """Log everything of every library at DEBUG, and the error with its causes."""
    caplog.set_level(logging.DEBUG)
    for name in list(logging.root.manager.loggerDict):
        caplog.set_level(logging.DEBUG, logger=name)
    monkeypatch.setenv("PLANTED_KEY", ENVIRONMENT_KEY)
    monkeypatch.setattr("odar.providers.http.ATTEMPTS", 2)
    monkeypatch.setattr("odar.providers.http.FIRST_PAUSE_S", 0.0)
    async with FaultServer() as up:
        up.behave(echoes(shape=shape))
        behind = up.url.replace("://", f"://user:{quote(PASSWORD, safe='')}@")
        settings = load_settings(
            "tiny",
            environ={},
            providers={
                "up": {"kind": "openai", "base_url": up.url, "api_key_env": "PLANTED_KEY"},
                "behind": {"kind": "openai", "base_url": behind},
            },
            models={"m": {"provider": "up"}, "b": {"provider": "behind"}},
            fast__model="m",
            slow__model="b",
        )
        async with Odar(settings) as odar:
            for options in (
                AskOptions(path="hard"),
                AskOptions(path="simple", on_text=print),
                AskOptions(model="m"),
                AskOptions(model="b"),
            ):
                with pytest.raises(OdarError) as raised:
                    await odar.aask("What is 2 + 2?", options)
                chain: BaseException | None = raised.value
                while chain is not None:  # a log formatter prints all of them
                    shown = f"{chain!r} {chain} {getattr(chain, 'body', '')} {getattr(chain, 'code', '')}"
                    assert found_in(shown) == []
                    chain = chain.__cause__ or chain.__context__
        assert found_in(repr(odar.settings.providers["up"])) == []
    text = "\n".join(f"{record.name} {record.getMessage()} {record.exc_info}" for record in caplog.records)
    assert found_in(text) == []


def test_the_password_of_the_store_is_not_shown(tmp_path, capsys):
    from odar.cli.main import main

    for url in (
        f"postgresql://odar:{STORE_PASSWORD}@127.0.0.1:9/odar",
        f"postgresql://127.0.0.1:9/odar?user=odar&password={STORE_PASSWORD}",
    ):
        for command in (
            ["traces"],
            ["config"],
            ["config", "store", "--json"],
            ["keys", "list"],
            ["feedback", "a", "wrong"],
        ):
            with pytest.raises(SystemExit):
                main([*command, "--set", f"store.url={url}", "--config", "/dev/null"])
    said = capsys.readouterr()
    assert "127.0.0.1" in said.out + said.err
    assert found_in(said.out + said.err) == []


def test_the_search_finds_planted_secrets():
    assert found_in(f"Authorization: Bearer {ENVIRONMENT_KEY}") == [ENVIRONMENT_KEY]
    assert found_in(json.dumps({"url": f"http://user:{quote(PASSWORD, safe='')}@host"})) == [PASSWORD]
    assert found_in("nothing") == []
