"""Golden decisions: what the engine did with hundreds of recorded questions of every kind, frozen in `decisions.tsv`.

The groups before `cascade` are the paper's policy and fusion rules. The engine wrote them before there was a cascade
(874bf0d with routing.mode = prior and no early stopping), and they never change.

A line holds the case, the question, the path, the calls, the rule that decided, the winner, its answer and the free
energies that were compared. A change of behaviour shows as a changed line: run `python tests/golden/test_decisions.py`
to write the file again, look at the difference, and explain each changed line in the commit message.
"""

from __future__ import annotations

import asyncio
import functools
import json
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odar.config import load_settings
from odar.difficulty.features import FEATURES
from odar.engine import Odar
from odar.lab.recording.files import open_recording
from odar.providers.base import Completion, Provider, Reply
from odar.types import Estimate, Query, Step, Token, Usage

DATA = Path(__file__).parents[2] / "docs" / "data"
GOLDEN = Path(__file__).with_name("decisions.tsv")
MODELS = {
    "quick": {"provider": "fast", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "slow", "logprobs": True, "n": True, "price": {"input": 3, "output": 15}},
}
SOURCES = {
    ("quick", Step.ANSWER): (0.21, 0.16, 0.5),
    ("deep", Step.VERIFY): (0.19, 0.14, 0.8),
    ("deep", Step.SOLVE): (0.24, 0.17, 1.0),
}
"""μ, σ and skill of each source."""


@dataclass(frozen=True)
class Question:
    """The answers of every agent to a question."""

    id: str
    text: str
    fast: Completion
    verify: Completion
    solves: tuple[Completion, ...]

    def changed(self, change: Callable[[Completion, int], Completion]) -> Question:
        """With every completion changed; the fast answer is number 0, the verification 1."""
        return replace(
            self,
            fast=change(self.fast, 0),
            verify=change(self.verify, 1),
            solves=tuple(change(each, 2 + i) for i, each in enumerate(self.solves)),
        )


def recorded(name: str, count: int) -> Iterator[Question]:
    """Questions with real answers of a small model; its first slow sample is also the verification."""
    for item in islice(open_recording(DATA / f"embedded-{name}.jsonl.gz").items(), count):
        said = [Completion("".join(token.text for token in each.tokens), each.tokens) for each in item.attempts]
        judged = Token(("Judgment: CORRECT\n", "Judgment: INCORRECT\n", "")[number(item.key.id) % 3], -0.05)
        verify = Completion(judged.text + said[1].text, (judged, *said[1].tokens))
        yield Question(item.key.id, item.query, said[0], verify, tuple(said[1:]))


def made_up(count: int) -> Iterator[Question]:
    """Questions with units, ties and several spellings of an answer."""
    for i in range(count):
        rng = np.random.default_rng(i)

        def say(*, verdict: str = "", rng: np.random.Generator = rng) -> Completion:
            value = 4 if rng.random() < 0.5 else int(rng.integers(5, 7))
            answer = (f" {value}", f" {value}.0", f" {value} km", f" {value} m")[int(rng.integers(4))]
            words = [f"{verdict}Answer:", answer, *[" so"] * int(rng.integers(0, 4))]
            values = np.round(-rng.gamma(1.0, 0.5, len(words)), 1)  # rounded, so that exact ties happen
            tokens = [Token(word, float(value)) for word, value in zip(words, values, strict=True)]
            return Completion("".join(words[:2]), (*tokens, Token("</s>", -3.0, True)))

        verdict = str(rng.choice(["Judgment: CORRECT\n", "Judgment: INCORRECT\n", ""]))
        yield Question(
            f"made-{i}", f"How far is it, number {i}?", say(), say(verdict=verdict), tuple(say() for _ in range(5))
        )


def number(text: str) -> int:
    """Return a number that depends only on the text, in every process."""
    return zlib.crc32(text.encode())


def silent(*places: int) -> Callable[[Completion, int], Completion]:
    """Remove the log-probabilities of some candidates."""
    return lambda said, i: (
        replace(said, tokens=tuple(t._replace(logprob=None) for t in said.tokens)) if i in places else said
    )


def listed_nowhere(said: Completion, i: int) -> Completion:
    """A provider that returns no tokens, as Anthropic's."""
    return replace(said, tokens=()) if i else said


def half_silent(said: Completion, i: int) -> Completion:
    """Every second token without a log-probability, in some candidates."""
    if number(said.text) % 3:
        return said
    return replace(
        said, tokens=tuple(t._replace(logprob=None if k % 2 else t.logprob) for k, t in enumerate(said.tokens))
    )


def cut_off(said: Completion, i: int) -> Completion:
    """Some candidates end at the limit of tokens, before they state an answer."""
    if (number(said.text) + i) % 3:
        return said
    text = "Let me think step by step about"
    return Completion(text, tuple(Token(f" {word}", -0.02) for word in text.split()), "length")


def unstated(said: Completion, i: int) -> Completion:
    """Some candidates never mark an answer."""
    return replace(said, text=said.text.replace("Answer:", "It is")) if (number(said.text) + i) % 2 else said


class Spread:
    """A difficulty anywhere in [0, 1], by the text of the question, with its features."""

    name = "spread"

    def estimate(self, query: Query) -> Estimate:
        seed = number(query.text)
        shown = tuple((name, float((seed + i) % 7), 0.0) for i, name in enumerate(FEATURES))
        return Estimate(seed % 1000 / 1000, self.name, shown)


@dataclass
class Player(Provider):
    """A provider that returns the recorded answers; slow samples come in their order."""

    question: Question | None = None
    handed_out: int = 0
    name: str = "player"

    async def complete(self, request: Any, on_text: Any = None) -> Reply:
        assert self.question is not None
        system = request.messages[0].text
        if "proposed" in system:
            said = [self.question.verify]
        elif "care" in system:
            start = self.handed_out
            self.handed_out += request.n
            said = list(self.question.solves[start : start + request.n])
        else:
            said = [self.question.fast]
        return Reply(tuple(said), Usage(10, 0, 5 * len(said), 0), request.model)

    async def check(self, model: str = "") -> str:
        return "recorded"

    async def close(self) -> None:
        return None


@dataclass(frozen=True)
class Case:
    """Some questions and the settings of the engine."""

    questions: list[Question]
    settings: dict[str, Any] = field(default_factory=dict)
    ask: dict[str, Any] = field(default_factory=dict)
    calibrated: bool = True


PAPER = {"policy": "paper"}
INF = {**PAPER, "fusion__beta": float("inf")}
HARD = {"path": "hard"}


@functools.cache
def cases() -> dict[str, Case]:
    """Every kind of decision."""
    words, school = list(recorded("words", 40)), list(recorded("school", 60))
    sums, numbers = list(recorded("sums", 60)), list(recorded("numbers", 40))
    units = list(made_up(40))
    few = [*school[:12], *units[:12]]
    return {
        "default": Case([*words, *school, *units], PAPER),
        "paper": Case([*sums, *numbers], INF),
        "beta-0": Case(few, {**PAPER, "fusion__beta": 0.0}),
        "uncalibrated": Case(few, PAPER, calibrated=False),
        "majority": Case(few, {"fusion__rule": "majority"}, HARD),
        "max-confidence": Case(few, {"fusion__rule": "max_confidence"}, HARD),
        "mean-logprob": Case(few, {"fusion__rule": "mean_logprob"}, HARD),
        "deepconf": Case(few, {"fusion__rule": "deepconf"}, HARD),
        "slow-silent": Case([q.changed(silent(*range(1, 7))) for q in few], INF),
        "slow-lists-nothing": Case([q.changed(listed_nowhere) for q in few], INF),
        "half-silent": Case([q.changed(half_silent) for q in few], PAPER),
        "medium-silent": Case([q.changed(silent(1)) for q in few], {}, {"path": "medium"}),
        "three-calls": Case(few, {}, {"max_calls": 3, **HARD}),
        "cut-off": Case([q.changed(cut_off) for q in few], {"policy": "paper"}, HARD),
        "cut-off-silent": Case(
            [q.changed(cut_off).changed(silent(*range(7))) for q in few], {"policy": "paper"}, HARD
        ),
        "unstated": Case([q.changed(unstated) for q in few], PAPER),
        "rules-only": Case(few, {**PAPER, "routing__tau1": 0.0, "routing__tau2": 1.0}),
        "cascade": Case([*words[:20], *units[:20]]),
        "cascade-quality": Case(few, {"routing__dial": "quality"}),
        "cascade-economy": Case(few, {"routing__dial": "economy"}),
        "cascade-silent": Case([q.changed(silent(*range(7))) for q in few]),
        "cascade-three-calls": Case(few, {}, {"max_calls": 3}),
        "self-consistency": Case(few, {"policy": "slow*5", "fusion__rule": "majority"}),
    }


def calibration(odar: Odar, folder: Path) -> str:
    """A calibration file with statistics, lengths and skills of the three sources."""
    rows = [
        {**asdict_source(odar, *key), "mean": mean, "deviation": deviation, "count": 50, "skill": skill}
        for key, (mean, deviation, skill) in SOURCES.items()
    ]  # fmt: skip
    body = {
        "format": "odar-calibration-2",
        "made": {},
        "report": {},
        "settings": {},
        "belief": None,
        "estimator": None,
        "sources": rows,
    }
    file = folder / "calibration.json"
    file.write_text(json.dumps(body))
    return str(file)


def asdict_source(odar: Odar, model: str, step: Step) -> dict[str, Any]:
    source = odar.agents.source(model, "fast" if step is Step.ANSWER else "slow", step)
    return {name: getattr(source, name) for name in source.__slots__}


def engines(case: Case, player: Player, folder: Path) -> Callable[[], Odar]:
    """Make a new engine for each question."""
    base = {
        "models": MODELS,
        "providers": {name: {"kind": "openai"} for name in ("fast", "slow")},
        "prompts": "paper",
        "fast__model": "quick",
        "slow__model": "deep",
        "calibration": "",
        **case.settings,
    }
    providers = dict.fromkeys(("fast", "slow"), player)

    def build(**more: Any) -> Callable[[], Odar]:
        settings = load_settings("tiny", environ={}, **{**base, **more})
        return lambda: Odar(settings, providers=providers, estimator=Spread())

    return build(calibration=calibration(build()(), folder)) if case.calibrated else build()


async def decisions(name: str, case: Case, folder: Path) -> list[str]:
    """Return a line for every question of a case."""
    lines, player = [], Player()
    build = engines(case, player, folder)
    for question in case.questions:
        player.question, player.handed_out = question, 0
        async with build() as odar:
            trace = (await odar.aask(question.text, **case.ask)).trace
        energies = [None if c.energy is None else c.energy.aligned for c in trace.candidates]
        if None in energies:
            energies = [None if c.energy is None else c.energy.free_energy for c in trace.candidates]
        shown = " ".join("-" if value is None else f"{value:.4f}" for value in energies)
        winner = trace.candidates[trace.verdict.winner]
        place = f"{winner.step}-{[c for c in trace.candidates if c.step is winner.step].index(winner)}"
        parts = (
            name, question.id, trace.path, trace.spend.calls, trace.verdict.rule, place,
            json.dumps(winner.answer, ensure_ascii=False)[:40], shown,
        )  # fmt: skip
        lines.append("\t".join(map(str, parts)))
    return lines


NAMES = sorted({line.split("\t")[0] for line in GOLDEN.read_text().splitlines()})


@pytest.mark.parametrize("name", NAMES)
async def test_decisions_equal_the_recorded_ones(name, tmp_path):
    frozen = [line for line in GOLDEN.read_text().splitlines() if line.split("\t")[0] == name]
    found = await decisions(name, cases()[name], tmp_path)
    assert len(found) == len(frozen) >= 20
    for was, now in zip(frozen, found, strict=True):
        assert now == was


def test_the_recorded_decisions_cover_every_path_and_rule():
    lines = [line.split("\t") for line in GOLDEN.read_text().splitlines()]
    assert {line[0] for line in lines} == set(cases())
    assert {line[2] for line in lines} == {"simple", "medium", "hard"}
    rules = {line[4] for line in lines}
    assert {"only", "fep", "fep (uncalibrated)", "agreement", "judgment", "slow", "majority", "deepconf"} <= rules


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        every = [asyncio.run(decisions(name, case, Path(place))) for name, case in cases().items()]
    GOLDEN.write_text("".join(f"{line}\n" for lines in every for line in lines))
