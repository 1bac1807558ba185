from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import pytest

from odar.errors import ProviderTimeout
from support.scripted import completion
from support.upstream import Upstream, read_jsonl, sums, write_jsonl
from support.waiting import until

CODE = "from odar.cli.main import main; main()"


@pytest.fixture
def questions(tmp_path, provider):
    return write_jsonl(tmp_path / "in.jsonl", sums(6))


def test_every_question_gets_a_row_in_order(odar, questions, tmp_path, provider):
    result = odar("batch", "in.jsonl", "out.jsonl", "--yes")
    assert result.code == 0
    assert "6 of 6 questions to answer, at most $" in result.err
    assert "6 of 6 answered, 6 of them now, for $" in result.out
    rows = read_jsonl(tmp_path / "out.jsonl")
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(6)]
    assert [(row["path"], row["final"]) for row in rows[:3]] == [("simple", "4"), ("medium", "4"), ("hard", "4")]
    asked = len(provider.requests)
    again = odar("batch", "in.jsonl", "out.jsonl")
    assert (again.code, len(provider.requests)) == (0, asked)
    assert "6 of 6 answered, 0 of them now" in again.out


def test_the_summary_is_json_on_request(odar, questions):
    result = odar("batch", "in.jsonl", "out.jsonl", "--yes", "--json")
    body = json.loads(result.out)
    assert (body["total"], body["done"], body["failed"], body["asked"]) == (6, 6, 0, 6)
    assert body["cost_usd"] == pytest.approx(
        sum(row["cost_usd"] for row in read_jsonl(questions.parent / "out.jsonl"))
    )
    assert (body["errors"], body["stopped"], body["out"]) == ({}, None, "out.jsonl")


def test_conversations_are_read_as_the_gateway_reads_them(odar, tmp_path, provider):
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    write_jsonl(tmp_path / "in.jsonl", [{"messages": turns}])
    assert odar("batch", "in.jsonl", "out.jsonl", "--yes").code == 0
    assert any(message.text == "Be brief." for message in provider.requests[0].messages)
    write_jsonl(tmp_path / "in.jsonl", [{"messages": turns}, {"messages": [{"role": "cat", "content": "x"}]}])
    bad = odar("batch", "in.jsonl", "other.jsonl", "--yes")
    assert (bad.code, "line 2: messages[0].role" in bad.err) == (2, True)


def test_a_batch_with_a_cost_needs_consent(odar, questions, provider):
    result = odar("batch", "in.jsonl", "out.jsonl", stdin=b"")
    assert (result.code, "add --budget USD or --yes" in result.err) == (2, True)
    assert provider.requests == []


def test_a_budget_stops_the_batch_before_it_is_exceeded(odar, questions, tmp_path):
    result = odar("batch", "in.jsonl", "out.jsonl", "--budget", "0.002", "--concurrency", "1")
    assert result.code == 4
    assert "odar: stopped: the budget of $0.002 does not cover the next" in result.err
    rows = read_jsonl(tmp_path / "out.jsonl")
    assert 0 < len(rows) < 6
    assert sum(row["cost_usd"] for row in rows) <= 0.002
    more = odar("batch", "in.jsonl", "out.jsonl", "--budget", "1")
    assert (more.code, f"{6 - len(rows)} of 6 questions to answer" in more.err) == (0, True)


def test_failed_rows_name_the_error_and_are_retried(odar, questions, tmp_path, provider):
    works = provider.script

    def sometimes(request, index):
        fails = "What is 1 " in request.messages[-1].text
        return ProviderTimeout("no answer", retryable=True) if fails else works(request, index)

    provider.script = sometimes
    result = odar("batch", "in.jsonl", "out.jsonl", "--yes")
    assert result.code == 3
    assert "5 of 6 answered" in result.out
    assert "1 failed with AllAgentsFailed, the first (q1): " in result.err
    assert "no answer" in read_jsonl(tmp_path / "out.jsonl")[1]["error"]["message"]
    provider.script = works
    again = odar("batch", "in.jsonl", "out.jsonl", "--yes")
    assert (again.code, "6 of 6 answered, 1 of them now" in again.out) == (0, True)
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 6


def test_a_row_can_have_its_own_limit(odar, tmp_path, provider):
    write_jsonl(tmp_path / "in.jsonl", [{"query": "x", "max_cost_usd": 0}, {"query": "y"}])
    result = odar("batch", "in.jsonl", "out.jsonl", "--yes", "--json")
    assert (result.code, json.loads(result.out)["errors"]) == (4, {"BudgetExceeded": 1})


def test_a_file_with_other_settings_is_rejected(odar, questions):
    odar("batch", "in.jsonl", "out.jsonl", "--yes")
    result = odar("batch", "in.jsonl", "out.jsonl", "--yes", "--set", "fast.temperature=1")
    assert (result.code, "with other settings" in result.err) == (2, True)


def test_empty_replies_are_retried(odar, tmp_path, provider):
    write_jsonl(tmp_path / "in.jsonl", sums(1, ("simple",)))
    works, provider.script = provider.script, lambda request, index: [completion("")]
    assert odar("batch", "in.jsonl", "out.jsonl", "--yes").code == 3
    provider.script = works
    assert odar("batch", "in.jsonl", "out.jsonl", "--yes").code == 0


# ── with a real process, a real server, and a real kill ─────────────────────────────────────────────────────


async def start(folder, *arguments):
    command = [sys.executable, "-c", CODE, "batch", "in.jsonl", "out.jsonl", "--yes", "--seed", "7", *arguments]
    environ = {**os.environ, "ODAR_STORE_ENABLED": "false"}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, cwd=folder, env=environ, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize("free", [1, 17])
async def test_resuming_after_kill_9_pays_for_no_reply_twice(tmp_path, free):
    """9 questions are 27 calls. The process is killed when the server has answered `free` of them."""
    async with Upstream() as server:
        server.configure(tmp_path)
        write_jsonl(tmp_path / "in.jsonl", sums(9))
        server.free = free
        process = await start(tmp_path, "--concurrency", "4")
        await until(lambda: server.busy >= 4 and server.free == 0)
        parts = tmp_path / "out.jsonl.parts"
        await until(lambda: parts.exists() and len(parts.read_text().splitlines()) == free)
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert sum(server.paid.values()) == free
        server.free = None
        again = await start(tmp_path, "--concurrency", "4")
        out, err = await again.communicate()
        assert again.returncode == 0, err.decode()
        assert b"9 of 9 answered" in out
        rows = read_jsonl(tmp_path / "out.jsonl")
        assert [(row["id"], row["final"]) for row in rows] == [(f"q{i}", str(i + 1)) for i in range(9)]
        assert sum(row["calls"] for row in rows) == 27
        assert (len(server.paid), set(server.paid.values())) == (27, {1})
        assert not parts.exists()


async def test_requests_per_minute_are_limited(tmp_path):
    async with Upstream() as server:
        server.configure(tmp_path, "requests_per_min = 4")
        write_jsonl(tmp_path / "in.jsonl", sums(9, ("simple",)))
        process = await start(tmp_path)
        await until(lambda: len(server.requests) == 3)
        await asyncio.sleep(1.0)
        # A simple question may take two requests, so a fourth question could exceed the limit.
        assert len(server.requests) == 3
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert len(read_jsonl(tmp_path / "out.jsonl")) == 3
