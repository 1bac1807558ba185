"""Alignment by served answers in the engine: learned, used, marked and reported."""

from __future__ import annotations

import itertools
import random

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.types import Path
from support.scripted import ScriptedProvider, completion, step_of


def talker(level):
    """Return a script whose answers have log-probs around `level`."""
    numbers = itertools.count()

    def talk(request, index):
        level_now = level * random.Random(next(numbers)).uniform(0.5, 1.5)
        text = "Judgment: CORRECT\nAnswer: 4" if step_of(request) == "verify" else "Answer: 4"
        return [completion(text, level_now) for _ in range(request.n)]

    return talk


def engine(level=-0.3, served=None, **overrides) -> Odar:
    settings = load_settings(
        profile="tiny",
        models={"m": {"provider": "p", "logprobs": True, "n": True}},
        providers={"p": {"kind": "openai"}},
        prompts="default",
        fast__model="m",
        slow__model="m",
        calibration="",
        **overrides,
    )
    provider = ScriptedProvider(talker(level), "p")
    return Odar(settings, providers={"p": provider}, estimator=ConstantEstimator(0.5), served=served)


async def test_an_uncalibrated_pair_is_aligned_by_served_answers(tmp_path):
    served = tmp_path / "served.json"
    async with engine(served=served) as odar:
        first = await odar.aask("What is 2 + 2?", path=Path.MEDIUM)
        for _ in range(60):
            await odar.aask("What is 2 + 2?", path=Path.MEDIUM)
    assert first.trace.verdict.scorer == "fep (uncalibrated)"
    async with engine(served=served) as odar:  # as in another process
        answer = await odar.aask("What is 2 + 2?", path=Path.MEDIUM)
    assert answer.trace.verdict.scorer == "fep (running)"
    assert answer.trace.verdict.reason == "lowest free energy; m aligned by served traffic"
    assert {candidate.energy.origin for candidate in answer.trace.candidates} == {"running"}
    assert all(abs(candidate.energy.aligned) < 5 for candidate in answer.trace.candidates)


async def test_the_paper_profile_learns_nothing(tmp_path):
    served = tmp_path / "served.json"
    off = load_settings(profile="paper").alignment.running
    async with engine(served=served, alignment__running=off) as odar:
        for _ in range(60):
            await odar.aask("What is 2 + 2?", path=Path.MEDIUM)
        odar.alignment.sync()
        answer = await odar.aask("What is 2 + 2?", path=Path.MEDIUM)
    assert answer.trace.verdict.scorer == "fep (uncalibrated)"
    assert not served.exists()


async def test_the_library_writes_no_file_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    async with engine() as odar:
        await odar.aask("What is 2 + 2?")
    assert list(tmp_path.iterdir()) == []


async def test_the_report_names_model_and_step(tmp_path):
    odar = engine()
    for _ in range(60):
        await odar.aask("What is 2 + 2?", path=Path.MEDIUM)
    odar.alignment.sync()
    rows = odar.alignment_report()
    assert sorted((row.model, row.step, row.used, row.seen) for row in rows) == [
        ("m", "answer", "running", 60),
        ("m", "verify", "running", 60),
    ]
