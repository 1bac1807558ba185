"""Statistics of served answers in the engine: learned, used for ranks, and reported."""

from __future__ import annotations

import itertools
import random
from itertools import pairwise

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.types import Route
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
        prompts="paper",
        fast__model="m",
        slow__model="m",
        calibration="",
        **overrides,
    )
    provider = ScriptedProvider(talker(level), "p")
    return Odar(settings, providers={"p": provider}, estimator=ConstantEstimator(0.5), served=served)


async def test_the_same_question_is_decided_alike_whatever_was_served_before(tmp_path):
    """What was served changes p slowly, and never the energies that are compared."""
    async with engine(served=tmp_path / "served.json", policy="cascade") as odar:
        beliefs, decided = [], set()
        for i in range(70):
            odar.agents.providers["p"].script = talker(
                -0.02 * (i % 30) - 0.01
            )  # answers of very different likelihood
            await odar.aask(f"What is 2 + {i}?", path=Route.MEDIUM)
            odar.alignment.sync()
            odar.agents.providers["p"].script = lambda request, index: [completion("Answer: 4", -0.3)] * request.n
            answer = await odar.aask("What is 2 + 2?")
            beliefs.append(answer.trace.decisions[-1].p)
            decided.add((answer.path, answer.final, answer.trace.candidates[0].energy))
    assert len(decided) == 1
    assert max(abs(a - b) for a, b in pairwise(beliefs)) < 0.05


async def test_the_library_writes_no_file_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    async with engine() as odar:
        await odar.aask("What is 2 + 2?")
    assert list(tmp_path.iterdir()) == []


async def test_the_report_names_model_and_step(tmp_path):
    odar = engine()
    for _ in range(60):
        await odar.aask("What is 2 + 2?", path=Route.MEDIUM)
    odar.alignment.sync()
    rows = odar.alignment.report(odar.agents.prompt_steps())
    assert sorted((row.model, row.step, round(row.count)) for row in rows) == [
        ("m", "answer", 60),
        ("m", "verify", 60),
    ]
