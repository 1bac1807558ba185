"""The engine, calibration and replay make the same decision for any recorded question.

Questions are generated with everything that has ever made them differ: missing log-probabilities, ties, answers that
were cut off or not stated, free text, fewer samples than asked for, β = 0, 0.25 and ∞, skills, a surrogate.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from odar.calibration.evidence import evidence_of
from odar.calibration.install import current_parts
from odar.calibration_file import Calibration
from odar.config import load_settings
from odar.difficulty.features import FEATURES
from odar.engine import Odar
from odar.errors import ProviderError
from odar.evals.replay.arrays import load_arrays
from odar.evals.replay.policies import run_policy
from odar.policy.alignment import Statistics
from odar.policy.fusion import SOLVE
from odar.policy.path import PATHS
from odar.providers.base import Completion, Provider, Reply
from odar.recording.files import write_recording
from odar.recording.header import header_of
from odar.recording.schema import ItemKey, RecordedItem, SurrogateScore, attempts_of
from odar.types import Candidate, Estimate, Query, Step, Token, Usage

INF = math.inf
MODELS = {
    "quick": {"provider": "fast", "logprobs": True, "n": False, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "slow", "logprobs": True, "n": False, "price": {"input": 3, "output": 15}},
    "judge": {"provider": "scores", "prompt_logprobs": True, "price": {"input": 1, "output": 1}},
}
limits = hypothesis.settings(max_examples=60, suppress_health_check=list(hypothesis.HealthCheck))
SKILLS = {Step.ANSWER: 0.5, Step.VERIFY: 0.8, Step.SOLVE: 1.0}


@dataclass(frozen=True)
class Said:
    """One recorded answer."""

    answer: str
    logprob: float | None = -0.1
    filler: int = 0
    """Tokens before the answer."""
    silent: int = 0
    """How many of them have no log-probability."""
    stated: bool = True
    finish: str = "stop"
    score: float = -0.3
    """The log-probability that the surrogate gives each of its words."""
    listed: bool = True
    """Whether the provider lists tokens at all."""

    @property
    def completion(self) -> Completion:
        said = self.answer.split()
        words = ["So"] * self.filler + (["Answer:", *said] if self.stated else ["perhaps", *said])
        marks = [None if i < self.silent else self.logprob for i in range(len(words))]
        tokens = [
            Token(w if i == 0 else f" {w}", mark) for i, (w, mark) in enumerate(zip(words, marks, strict=True))
        ]
        return Completion(" ".join(words), tuple(tokens) if self.listed else (), self.finish)


@dataclass(frozen=True)
class Question:
    """The answers of the agents; samples beyond those listed fail."""

    fast: Said
    verify: Said
    solves: tuple[Said, ...]
    prior: float = 0.9


@dataclass(frozen=True)
class Setting:
    """Settings of ODAR."""

    beta: float = INF
    samples: int = 5
    stop: float | None = None
    mode: str = "prior"
    calibrated: bool = True
    surrogate: bool = False


ISSUE = Question(Said("A"), Said("A", None), tuple(Said(answer, None) for answer in "AABBB"))
"""The paper's own profile: a slow model without log-probabilities. Three of five samples say B."""

PROSE = (
    "Swallowed seeds pass through your body unharmed.",
    "Unharmed, swallowed seeds pass through your body.",
    "Seeds pass through the body and nothing happens.",
    "A watermelon grows in your stomach after that.",
    "Nothing happens.",
)
"""Free text, which is compared by similarity (SPEC 5.15)."""
LOGPROBS = (None, -0.125, -0.125, -0.25, -0.5, -2.0)
"""Exact in single precision, so that ties stay ties in a recording."""
said = st.builds(
    Said,
    answer=st.sampled_from(["4", "4.0", "5", "5 km", "6"]) | st.sampled_from(PROSE),
    logprob=st.sampled_from(LOGPROBS),
    filler=st.integers(0, 4),
    silent=st.sampled_from([0, 0, 0, 1, 3]),
    stated=st.sampled_from([True, True, True, False]),
    finish=st.sampled_from(["stop", "stop", "stop", "length"]),
    score=st.sampled_from([-0.125, -0.25, -0.25, -1.0]),
    listed=st.sampled_from([True, True, True, False]),
)
said_prose = st.builds(
    Said,
    answer=st.sampled_from(PROSE),
    logprob=st.sampled_from(LOGPROBS),
    filler=st.integers(0, 2),
    listed=st.sampled_from([True, True, True, False]),
)
questions = st.builds(
    Question,
    fast=said,
    verify=said,
    solves=st.lists(said, min_size=1, max_size=5).map(tuple),
    prior=st.sampled_from([0.1, 0.45, 0.55, 0.75, 0.95]),
)
settings = st.builds(
    Setting,
    beta=st.sampled_from([0.0, 0.25, INF]),
    samples=st.sampled_from([1, 3, 5]),
    stop=st.sampled_from([None, 0.8, 1.0]),
    mode=st.sampled_from(["prior", "posterior"]),
    calibrated=st.booleans(),
    surrogate=st.booleans(),
)


class FixedEstimator:
    """An estimator that returns `value`."""

    name = "fixed"
    value = 0.5

    def estimate(self, query: Query) -> Estimate:
        return Estimate(self.value, self.name, tuple((feature, 0.0, 0.0) for feature in FEATURES))


class Speaker(Provider):
    """A provider that returns the recorded answers."""

    name = "speaker"
    question = ISSUE
    first_seed = 0

    async def complete(self, request: Any, on_text: Any = None) -> Reply:
        system = request.messages[0].text
        if "proposed" in system:
            found = self.question.verify
        elif "care" in system:
            index = request.sampling.seed - self.first_seed
            if index >= len(self.question.solves):
                raise ProviderError("gone", provider=self.name)
            found = self.question.solves[index]
        else:
            found = self.question.fast
        return Reply((found.completion,), Usage(10, 0, 5, 0))

    async def score(self, request: Any, text: str) -> Reply:
        every = [self.question.fast, self.question.verify, *self.question.solves]
        value = next(each.score for each in every if each.completion.text == text)
        return Reply(
            (Completion(text, tuple(Token(f" {word}", value) for word in text.split())),), Usage(10, 0, 1, 0)
        )

    async def check(self, model: str = "") -> str:
        return "ready"

    async def close(self) -> None:
        return None


@cache
def engine(setting: Setting) -> tuple[Odar, Speaker, FixedEstimator]:
    """Build the engine of a setting; cached, because Hypothesis repeats settings often."""
    speaker, estimator = Speaker(), FixedEstimator()
    names = ("fast", "slow", "scores")

    def build(calibration: str = "") -> Odar:
        loaded = load_settings(
            "tiny",
            environ={},
            models=MODELS,
            providers={name: {"kind": "openai"} for name in names},
            prompts="default",
            fast__model="quick",
            slow__model="deep",
            calibration=calibration,
            fusion__beta=setting.beta,
            fusion__stop_confidence=setting.stop,
            fusion__surrogate="judge" if setting.surrogate else "",
            limits__continue_cut_off=False,  # a recording holds answers as they came
            routing__samples=setting.samples,
            routing__mode=setting.mode,
            alignment__running=False,
        )
        return Odar(loaded, providers=dict.fromkeys(names, speaker), estimator=estimator)

    odar = build()
    speaker.first_seed = odar.settings.seed or 0
    if not setting.calibrated:
        return odar, speaker, estimator
    rows = {
        odar.source(model, step, scorer): Statistics(mean + shift, 0.25, 50, SKILLS[step])
        for scorer, shift in (("", 0.0), ("judge", 0.125))
        for model, step, mean in (
            ("quick", Step.ANSWER, 0.3),
            ("deep", Step.VERIFY, 0.2),
            ("deep", Step.SOLVE, 0.25),
        )
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(Calibration(rows).to_json())
        file.flush()
        return build(file.name), speaker, estimator


Decisions = list[tuple[str, int, str]]
"""Path, calls and answer of each question."""


def by_engine(setting: Setting, asked: Sequence[Question]) -> Decisions:
    odar, speaker, estimator = engine(setting)
    found = []
    for question in asked:
        speaker.question, estimator.value = question, question.prior
        answer = asyncio.run(odar.aask("How many?"))
        found.append((str(answer.path), answer.trace.spend.calls, answer.answer))
    return found


async def candidates_of(odar: Odar, samples: int) -> tuple[list[Candidate], list[Candidate], Any]:
    """Return all candidates of a question, and the same with scores of the surrogate."""
    team = odar.team(Query("How many?"), odar.ledger())
    fast = await team.answer()
    said = [*fast, *await team.verify(fast[0]), *await team.solve(samples)]
    surrogate = odar.judge.surrogate
    return said, await surrogate.score(said, team) if surrogate else [], team


def recorded(setting: Setting, asked: Sequence[Question]) -> list[RecordedItem]:
    """Return the questions as items of a recording."""
    odar, speaker, estimator = engine(setting)
    items = []
    for i, question in enumerate(asked):
        speaker.question, estimator.value = question, question.prior
        said, scored, _ = asyncio.run(candidates_of(odar, setting.samples))
        used = Usage(10, 0, 5, 0)
        places = [max(0, place - SOLVE) for place in range(len(said))]
        kept = [attempts_of([each], k, 0, used, None, 0.1)[0] for k, each in zip(places, said, strict=True)]
        energies = [each.energy for each in scored] or [None] * len(said)
        scores = [each and SurrogateScore("judge", each.energy, each.varentropy, 0.0) for each in energies]
        attempts = [
            dataclasses.replace(each, score=0.0, surrogate=score) for each, score in zip(kept, scores, strict=True)
        ]
        items.append(
            RecordedItem(
                key=ItemKey("set", str(i), 42),
                category="c",
                metric="m",
                stratum="s",
                fold=0,
                query="How many?",
                gold="4",
                effort=None,
                features=(0.0,) * 24,
                difficulty=question.prior,
                expert="general",
                attempts=tuple(attempts),
            )
        )
    return items


def by_calibration(setting: Setting, asked: Sequence[Question]) -> Decisions:
    odar, _, _ = engine(setting)
    items = recorded(setting, asked)
    weight, features = odar.settings.fusion.varentropy_weight, np.zeros((len(asked), len(FEATURES)))
    setup, evidence = current_parts(odar).setup, evidence_of(items, weight, features)
    simulated = setup.simulate(evidence, setup.route(evidence.fast).path)
    return [
        (str(PATHS[path]), int(calls), item.attempts[winner].answer)
        for path, calls, winner, item in zip(simulated.path, simulated.calls, simulated.winner, items, strict=True)
    ]


def by_replay(setting: Setting, asked: Sequence[Question]) -> Decisions:
    odar, _, _ = engine(setting)
    items = recorded(setting, asked)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.jsonl"
        write_recording(path, header_of(odar, setting.samples), items)
        found = run_policy(load_arrays(path), "odar")
    return [
        (str(PATHS[path]), int(calls), item.attempts[winner].answer)
        for path, calls, winner, item in zip(found.path, found.calls, found.winner, items, strict=True)
    ]


@given(settings, st.lists(questions, min_size=1, max_size=5))
@limits
@example(Setting(), [ISSUE])
def test_calibration_decides_as_the_engine_does(setting, asked):
    assert by_calibration(setting, asked) == by_engine(setting, asked)


@given(
    settings.map(lambda each: dataclasses.replace(each, surrogate=False)),
    st.lists(questions, min_size=1, max_size=5),
)
@limits
@example(Setting(), [ISSUE])
def test_replay_decides_as_the_engine_does(setting, asked):
    whole = [replace_solves(question, setting.samples) for question in asked]
    assert by_replay(setting, whole) == by_engine(setting, whole)


def replace_solves(question: Question, samples: int) -> Question:
    """Return the question with exactly `samples` samples, as in a panel."""
    return dataclasses.replace(question, solves=(question.solves * samples)[:samples])


@given(
    settings.filter(lambda each: each.beta < INF),
    st.lists(
        st.builds(
            Question,
            fast=said_prose,
            verify=said_prose,
            solves=st.lists(said_prose, min_size=5, max_size=5).map(tuple),
            prior=st.sampled_from([0.1, 0.55, 0.95]),
        ),
        min_size=1,
        max_size=3,
    ),
)
@limits
def test_engine_calibration_and_replay_agree_on_free_text(setting, asked):
    setting = dataclasses.replace(setting, surrogate=False)
    whole = [replace_solves(question, setting.samples) for question in asked]
    found = by_engine(setting, whole)
    assert by_calibration(setting, whole) == found
    assert by_replay(setting, whole) == found


def test_engine_calibration_and_replay_stop_sampling_on_agreeing_free_text():
    alike = Question(Said(PROSE[3]), Said(PROSE[3]), tuple(Said(PROSE[i]) for i in (0, 1, 0, 3, 3)))
    setting = Setting(beta=0.25, stop=0.8)
    for decide in (by_engine, by_calibration, by_replay):
        path, calls, answer = decide(setting, [alike])[0]
        assert (path, calls) == ("hard", 4)
        assert answer in PROSE[:2]


def test_the_paper_profile_returns_the_majority_of_slow_samples():
    """Three of five slow samples say B; the fast answer and two samples say A, and only the fast one has log-probs."""
    for decide in (by_engine, by_calibration, by_replay):
        assert decide(Setting(), [ISSUE]) == [("hard", 6, "B")]
