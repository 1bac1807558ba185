"""Ctrl-C during commands that cost money: they end at once, say so, and keep paid replies."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter

import pytest

from odar.lab.benchmarks.base import BENCHMARKS
from support.benchmarks import sums
from support.scripted import completion

ITEMS = 36
PRICE, FREE = "price = { input = 1, output = 2 }", "price = { input = 0, output = 0 }"
COMMANDS = {
    "batch": ("batch", "data.jsonl", "out.jsonl", "--concurrency", "1"),
    "eval collect of a file": ("eval", "collect", "qa.jsonl", "--out", "out.jsonl", "--concurrency", "1"),
    "calibrate": ("calibrate", "qa.jsonl", "--statistics-only", "--concurrency", "1"),
    "eval collect": ("eval", "collect", "sums", "--out", "panel.jsonl", "--concurrency", "1"),
}


@pytest.fixture
def ctrl_c(provider, tmp_path, monkeypatch):
    """Write data for every command; return a function that interrupts request `at`, counted from 0."""
    rows = [{"query": f"What is {i} + 0 ?", "answer": i} for i in range(ITEMS)]
    (tmp_path / "qa.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "data.jsonl").write_text("\n".join(json.dumps({"query": row["query"]}) for row in rows))
    monkeypatch.setitem(BENCHMARKS._objects, "sums", sums(ITEMS))
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path / "cache"))  # where calibration keeps its recording
    toml = tmp_path / "odar.toml"
    toml.write_text(toml.read_text().replace(PRICE, FREE))

    def press(at: int | None) -> None:
        def speak(request, index):
            if index == at:
                os.kill(os.getpid(), signal.SIGINT)
            number = int(request.messages[-1].text.split()[2])
            return [completion(f"Judgment: CORRECT\nAnswer: {number}", -0.1 - 0.01 * i) for i in range(request.n)]

        provider.script = speak

    return press


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("at", [0, 17])
def test_an_interrupted_command_can_be_resumed(odar, provider, ctrl_c, name, at):
    ctrl_c(at)
    result = odar(*COMMANDS[name])
    assert result.code == 130
    assert result.err.strip().endswith("odar: interrupted")
    assert "the same command continues from here" in result.err
    asked = len(provider.requests)
    assert at < asked <= at + 2  # nobody was asked after it but who was being asked
    ctrl_c(None)
    assert odar(*COMMANDS[name]).code == 0
    twice = [how for how, count in Counter(map(repr, provider.requests)).items() if count > 1]
    assert len(twice) <= asked - at  # only what was under way is asked again
    assert odar(*COMMANDS[name]).code == 0
    assert len(provider.requests) == len(set(map(repr, provider.requests))) + len(twice)  # and then nobody


def test_an_interrupted_question_prints_no_answer(odar, provider, ctrl_c):
    ctrl_c(0)
    result = odar("ask", "--path", "hard", "What is 2 + 2 ?")
    assert (result.code, result.out, result.err.strip()) == (130, "", "odar: interrupted")
    assert provider.closed or provider.in_flight == 0


def test_an_interrupted_json_command_prints_nothing(odar, ctrl_c):
    ctrl_c(0)
    result = odar("ask", "--json", "What is 2 + 2 ?")
    assert (result.code, result.out) == (130, "")
