"""Log lines: one per question, consistent ids, no texts of users."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings

import aiohttp
import pytest

from odar.config import load_settings
from odar.serving.logs import CURRENT_REQUEST, MAX_QUEUED_LINES, Logs, descriptor_writer
from support import fault_server as faults
from support.entries import entry
from support.gateway import turn
from support.gateway_process import Process
from support.spans import SpanBook
from support.waiting import until

CHAT = "/v1/chat/completions"
SECRET = "xyzzy-plugh-4711"


class Page:
    """A log that tests can read."""

    def __init__(self, form="json", **options):
        self.stream = io.StringIO()
        self.logs = Logs(self.stream.write, form, **options)

    def text(self):
        self.logs.close()
        return self.stream.getvalue()

    def lines(self):
        return [json.loads(line) for line in self.text().splitlines()]


async def test_one_log_line_per_question(start):
    page = Page()
    live = await start(app_options={"logs": page.logs})
    body = {"model": "odar-hard", "messages": turn(f"What is {SECRET}?")}
    _, headers, reply = await live.post(CHAT, body, headers={"x-request-id": "req-1"})
    await live.entry()
    (line,) = page.lines()
    assert headers["x-request-id"] == line["request_id"] == "req-1"
    assert line["trace_id"] == reply["odar"]["trace_id"] == headers["x-odar-trace"]
    assert (line["level"], line["message"], line["status"], line["path"]) == ("info", "request", 200, "hard")
    assert (line["calls"], line["model"], line["endpoint"]) == (6, "odar-hard", "chat.completions")
    assert line["cost_usd"] == pytest.approx(reply["odar"]["cost_usd"])
    assert line["seconds"] > 0
    assert SECRET not in page.text()


async def test_a_request_without_an_id_gets_the_trace_id(start):
    page = Page()
    live = await start(app_options={"logs": page.logs})
    for bad in (None, "a b", "x" * 200, SECRET + "\t"):
        headers = {} if bad is None else {"x-request-id": bad}
        _, headers, _ = await live.post(CHAT, {"model": "quick", "messages": turn()}, headers=headers)
        assert headers["x-request-id"] == headers["x-odar-trace"] or headers["x-request-id"] == SECRET
    assert len(page.lines()) == 4


async def test_the_sdk_finds_the_request_id(start):
    live = await start()
    reply = await live.openai.chat.completions.create(
        model="quick", messages=turn(), extra_headers={"x-request-id": "req-2"}
    )
    assert reply._request_id == "req-2"


async def test_rejected_requests_are_logged_without_user_text(start, up, slow):
    page = Page()
    live = await start(app_options={"logs": page.logs})
    key = {"authorization": f"Bearer {SECRET}"}
    await live.post(CHAT, {"model": SECRET, "messages": turn()}, headers=key)
    await live.post(CHAT, {"model": "odar", "messages": turn(SECRET), "n": SECRET}, headers=key)
    for server in (up, slow):
        server.behave(faults.status(500, message=f"cannot answer {SECRET}"))
    await live.post(CHAT, {"model": "odar-simple", "messages": turn(f"Tell me about {SECRET}")}, headers=key)
    unknown, bad, failed = page.lines()
    assert (unknown["status"], unknown["error"], unknown["model"]) == (404, "HTTP 404 (model_not_found)", "other")
    assert bad["status"] == 400
    assert (failed["status"], failed["level"]) == (500, "error")
    assert failed["error"] == "f: HTTP 500"
    assert failed["calls"] > 0
    assert SECRET not in page.text()


async def test_an_unexpected_error_is_logged_with_ids_and_location_but_without_its_message(start, monkeypatch):
    page = Page()
    page.logs.install()
    live = await start(app_options={"logs": page.logs})

    async def broken(*args, **kwargs):
        raise RuntimeError(SECRET) from KeyError(SECRET)

    monkeypatch.setattr(live.service.odar, "aask", broken)
    status, headers, _ = await live.post(
        CHAT, {"model": "quick", "messages": turn()}, headers={"x-request-id": "r9"}
    )
    assert status == 500
    await live.entry()
    error, line = page.lines()
    assert (error["request_id"], error["trace_id"]) == ("r9", headers["x-odar-trace"])
    assert error["exception"].startswith("RuntimeError at ")
    assert "test_logs.py" in error["exception"]
    assert "; after KeyError" in error["exception"]
    assert line["request_id"] == "r9"
    assert SECRET not in page.text()


async def test_with_spans_a_log_line_has_its_span_id(start):
    page, book = Page(), SpanBook()
    observer = book.observer(load_settings("tiny", environ={}))
    live = await start(app_options={"logs": page.logs, "observer": observer})
    await live.post(CHAT, {"model": "quick", "messages": turn()})
    await live.entry()
    context = book.one(f"POST {CHAT}").context
    _, trace_id, span_id, _ = page.lines()[0]["traceparent"].split("-")
    assert (int(trace_id, 16), int(span_id, 16)) == (context.trace_id, context.span_id)


@pytest.fixture(autouse=True)
def quiet_root():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def test_lines_of_other_loggers_are_formatted():
    page = Page()
    page.logs.install()
    CURRENT_REQUEST.set({"request_id": "r", "trace_id": "t"})
    logging.getLogger("uvicorn.error").warning("careful\n%s", SECRET)
    logging.getLogger("uvicorn.error").info("not worth a line")
    warnings.showwarning("old", DeprecationWarning, "old.py", 1)
    first, second = page.lines()
    assert (first["logger"], first["message"], first["request_id"]) == ("uvicorn.error", "careful", "r")
    assert second["logger"] == "py.warnings"


def test_request_lines_can_be_disabled():
    page = Page(requests=False)
    page.logs.request(entry())
    page.logs.info("hello")
    assert [line["message"] for line in page.lines()] == ["hello"]


def test_a_blocked_log_reader_does_not_block_requests():
    read, write = os.pipe()
    logs = Logs(descriptor_writer(write), "json")
    for _ in range(3 * MAX_QUEUED_LINES):
        logs.request(entry())
    assert len(logs._waiting) <= MAX_QUEUED_LINES
    text = bytearray()

    def read_on():
        while data := os.read(read, 1 << 16):
            text.extend(data)

    reader = threading.Thread(target=read_on)
    reader.start()
    logs.close()
    os.close(write)
    reader.join(10)
    os.close(read)
    lines = [json.loads(line) for line in text.decode().splitlines()]
    written = sum(line["message"] == "request" for line in lines)
    dropped = sum(line["lines"] for line in lines if "dropped" in line["message"])
    assert dropped > 0
    assert written + dropped == 3 * MAX_QUEUED_LINES


def test_a_blocked_log_reader_does_not_block_shutdown(tmp_path):
    """The process must end although a thread is blocked in writing."""
    code = (
        "import sys; from odar.serving.logs import Logs, descriptor_writer\n"
        "logs = Logs(descriptor_writer(2))\n"
        "for _ in range(5000): logs.info('x' * 100)\n"
        "logs.close()\n"
    )
    read, write = os.pipe()
    try:
        assert subprocess.run([sys.executable, "-c", code], stderr=write, timeout=30).returncode == 0
    finally:
        os.close(read)
        os.close(write)


def test_a_closed_log_pipe_is_tolerated():
    read, write = os.pipe()
    os.close(read)
    logs = Logs(descriptor_writer(write), "json")
    logs.info("hello")
    logs.close()
    os.close(write)


async def test_the_server_logs_json(tmp_path, up):
    """Every line of standard error is JSON."""
    process = await Process.start(tmp_path, up, "--log-format", "json")
    first = [json.loads(line) for line in process.said.splitlines()]
    assert [line["message"].split()[0] for line in first] == ["listening", "no"]
    url = process.url
    async with aiohttp.ClientSession() as http:
        async with http.post(url + CHAT, json={"model": "m", "messages": turn(SECRET)}) as response:
            assert response.status == 200
        async with http.get(url + "/metrics") as response:
            shown = await response.text()
    process.process.terminate()
    rest = (await asyncio.wait_for(process.process.stderr.read(), 60)).decode()
    await process.process.wait()
    lines = [json.loads(line) for line in rest.splitlines()]
    (line,) = [line for line in lines if "status" in line]  # "ready" may come late
    assert (line["status"], line["model"]) == (200, "m")
    assert SECRET not in rest
    assert "odar_store_queue" in shown
    assert "odar_store_up 1.0" in shown


async def test_the_last_log_line_is_written(tmp_path, up):
    """The line of a request that ends just before the process is written."""
    up.behave(faults.ok(delay_s=1.0))
    process = await Process.start(tmp_path, up)
    async with aiohttp.ClientSession() as http:
        asked = asyncio.ensure_future(
            http.post(process.url + CHAT, json={"model": "m", "messages": turn()}, headers={"connection": "close"})
        )
        await until(lambda: up.busy)
        process.process.terminate()
        async with await asked as response:
            assert response.status == 200
            await response.read()
    rest = (await asyncio.wait_for(process.process.stderr.read(), 60)).decode()
    assert await process.process.wait() == 128 + signal.SIGTERM
    assert rest.count("INFO odar.request request ") == 1
