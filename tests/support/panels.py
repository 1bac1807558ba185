"""Recordings for tests: collected from random agents, or written directly."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from odar.calibration_file import Calibration, Statistics
from odar.config import load_settings
from odar.difficulty.features import FEATURES
from odar.engine import Odar
from odar.lab.recording.files import write_recording
from odar.lab.recording.header import Header, header_of
from odar.lab.recording.schema import Attempt, ItemKey, RecordedItem, sort_attempts
from odar.lab.runs.collect import Job, collect_work, make_items
from odar.lab.runs.executor import run
from odar.lab.runs.journal import Journal
from odar.lab.selection import select_tasks
from odar.policy.equivalence import equivalent
from odar.policy.signals import AnswerKind, QuantileTables
from odar.providers.base import Completion
from odar.types import Estimate, Query, Step, Token, Usage
from support.benchmarks import sums
from support.scripted import ScriptedProvider, step_of

MODELS = {
    "quick": {"provider": "fast", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "slow", "logprobs": True, "n": True, "price": {"input": 3, "output": 15}},
}


class Spread:
    """An estimator with difficulties in [0, 1] by the number in the question, and with features."""

    name = "spread"

    def estimate(self, query: Query) -> Estimate:
        number = next((int(word) for word in query.text.split() if word.isdigit()), 0)
        shown = tuple((name, float((number + i) % 7), 0.0) for i, name in enumerate(FEATURES))
        return Estimate(number * 37 % 100 / 100, self.name, shown)


def number_of(request: Any) -> int:
    return int(request.messages[-1].text.split("What is ")[-1].split()[0])


class RandomAgent:
    """A provider that is mostly right, with several spellings and random or missing log-probabilities."""

    def __init__(self, seed: int, silent: float = 0.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.silent = silent

    def __call__(self, request: Any, index: int) -> list[Completion]:
        return [self.completion(number_of(request), step_of(request)) for _ in range(request.n)]

    def completion(self, number: int, step: str) -> Completion:
        rng = self.rng
        value = number if rng.random() < 0.55 else number + int(rng.integers(1, 3))
        answer = [f"{value}", f"{value}.0", f"{value} km", f"{value} m"][rng.choice(4, p=[0.6, 0.2, 0.15, 0.05])]
        verdict = rng.choice(["Judgment: CORRECT\n", "Judgment: INCORRECT\n", ""]) if step == "verify" else ""
        words = [f"{verdict}Answer:", f" {answer}", *[" so"] * int(rng.integers(0, 4))]
        silent = rng.random(len(words)) < (0.9 if rng.random() < self.silent else 0.02)
        values = np.round(-rng.gamma(1.0, 0.5, len(words)), 1)  # rounded: exact ties happen
        tokens = [Token(w, None if s else float(v)) for w, v, s in zip(words, values, silent, strict=True)]
        return Completion("".join(words[:2]), (*tokens, Token("</s>", -3.0, True)))


def settings(folder: Path | None = None, **overrides: Any) -> Any:
    base = {
        "models": MODELS,
        "providers": {"fast": {"kind": "openai"}, "slow": {"kind": "openai"}},
        "prompts": "paper",
        "fast__model": "quick",
        "slow__model": "deep",
        "calibration": calibration(folder) if folder else "",
    }
    return load_settings("tiny", environ={}, **{**base, **overrides})


QUANTILES = QuantileTables.fit(
    {
        (kind.value, name): np.linspace(low, high, 60)
        for kind in AnswerKind
        for name, low, high in (("answer_logprob", -2.0, 0.0), ("mean_logprob", -2.0, 0.0), ("length", 5.0, 40.0))
    }
).to_dict()


BY_KIND = {"number": 0.45, "short answer": 0.4, "yes/no": 0.6}


def calibration(folder: Path) -> str:
    """A calibration of the three sources."""
    plain = Odar(settings())
    rows = {
        plain.agents.source("quick", "fast", Step.ANSWER): Statistics(
            0.4, 0.3, 50, 0.5, 0.5, QUANTILES, accuracy_by_kind=BY_KIND
        ),
        plain.agents.source("deep", "slow", Step.VERIFY): Statistics(0.25, 0.15, 50, 0.8, 0.6, QUANTILES),
        plain.agents.source("deep", "slow", Step.SOLVE): Statistics(0.35, 0.2, 50, 1.0, 0.7, QUANTILES),
    }
    file = folder / "calibration.json"
    file.write_text(Calibration(rows).to_json())
    return str(file)


def opened(odar: Odar, make_work: Any = collect_work) -> Any:
    """Return work that uses an existing engine."""
    return lambda: nullcontext(make_work(odar))


async def collect_panel(
    folder: Path, *, items: int = 40, samples: int = 7, seed: int = 0, silent: float = 0.15, **overrides: Any
) -> Path:
    """Collect a panel from random agents; the Hard path uses 5 of its samples."""
    speak = RandomAgent(seed, silent)
    providers = {name: ScriptedProvider(speak, name) for name in ("fast", "second", "slow")}
    made = settings(folder, **{"routing__samples": samples, **overrides})
    async with Odar(made, providers=providers, estimator=Spread()) as odar:
        source = sums(items)
        drawn = select_tasks(list(source.load()))
        jobs = [Job(source, task, fold, 42) for task, fold in drawn]
        path = folder / "recording.jsonl"
        with Journal(path, header_of(odar, 5).to_row()) as journal:
            work = make_items(odar, jobs)
            done = await run(work, opened(odar), journal, concurrency=1)
            assert (done.done, done.failed) == (items, 0)
    return path


def synthetic_panel(
    folder: Path,
    items: int,
    samples: int = 5,
    seed: int = 0,
    *,
    benchmarks: Sequence[tuple[str, str]] = (("alpha", "Mathematics"), ("beta", "Knowledge"), ("gamma", "Coding")),
) -> Path:
    """Write a large panel: slow is better than fast, and confidence is slightly informative."""
    rng = np.random.default_rng(seed)
    header = header_of(Odar(settings(routing__samples=samples)), min(5, samples))
    path = folder / "recording.jsonl"
    write_recording(
        path, header, (_synthetic(rng, i, samples, *benchmarks[i % len(benchmarks)]) for i in range(items))
    )
    return path


def header(samples: int = 5) -> Header:
    return header_of(Odar(settings(routing__samples=samples)), min(5, samples))


def _synthetic(rng: np.random.Generator, i: int, samples: int, benchmark: str, category: str) -> RecordedItem:
    hardness = float(rng.beta(1.6, 2.2))
    steps = [(Step.ANSWER, 0, 0.85), (Step.VERIFY, 0, 1.0), *((Step.SOLVE, k, 1.05) for k in range(samples))]
    attempts = [
        _attempt(rng, step, k, float(rng.random() < np.clip(ease - hardness, 0.02, 0.98)))
        for step, k, ease in steps
    ]
    return RecordedItem(
        key=ItemKey(benchmark, str(i), 42), category=category, metric="accuracy", stratum=f"s{i % 4}", fold=i % 5,
        query=_sum_question(rng), gold="4", effort=None, features=tuple(rng.random(24)),
        difficulty=float(np.clip(hardness + rng.normal(0, 0.2), 0, 1)), expert="math", attempts=tuple(attempts),
    )  # fmt: skip


def _sum_question(rng: np.random.Generator) -> str:
    return f"What is {' + '.join(str(n) for n in rng.integers(1, 100, int(rng.integers(2, 60))))}?"


def _attempt(rng: np.random.Generator, step: Step, index: int, score: float) -> Attempt:
    answer = "4" if score else str(rng.integers(5, 9))
    count = int(rng.integers(3, 12))
    logprobs = tuple(np.round(-rng.gamma(1.0, 0.2 if score else 0.35, count), 4).tolist())
    tokens = ("Answer:", *[" so"] * (count - 2), f" {answer}")
    model = "quick" if step is Step.ANSWER else "deep"
    price = (1e-6, 4e-6) if model == "quick" else (3e-6, 15e-6)
    return Attempt(
        agent="fast" if model == "quick" else "slow", step=step, index=index, model=model, text="".join(tokens), answer=answer,
        judgment=bool(rng.random() < 0.8) if step is Step.VERIFY else None, finish="stop", score=score,
        tokens=tuple(map(Token, tokens, logprobs)), request=min(2, list(Step).index(step)),
        usage=Usage(60, 0, count, None), prompt_usd=60 * price[0], output_usd=count * price[1],
        seconds=float(rng.gamma(3.0, 0.3 if model == "quick" else 1.0)),
    )  # fmt: skip


def handmade_panel(
    folder: Path,
    answers: Sequence[Sequence[str]],
    energies: Sequence[Sequence[float]],
    *,
    right: str = "4",
    difficulty: Sequence[float] = (),
    judgments: Sequence[bool | None] = (),
    n: bool = True,
) -> Path:
    """Write a panel of given items: per item the fast answer, the verification and the samples.

    Every answer is one token of ten characters, so that E is what `energies` says and V is 0. Prompts cost $1 (fast)
    and $10 (slow), answers $0.1 and $2; seconds are 1 (fast), 2 (verification), 3 (samples).
    """
    samples = len(answers[0]) - 2
    models = {name: {**card, "n": n} for name, card in MODELS.items()}
    made = header_of(Odar(settings(routing__samples=samples, policy="paper", models=models)), min(5, samples))
    path = folder / "recording.jsonl"
    entries = [
        RecordedItem(
            key=ItemKey("hand", str(i), 42), category="Mathematics", metric="accuracy", stratum="s", fold=i % 5,
            query="?" * (i + 1), gold=right, effort=None, features=(0.0,) * 24,
            difficulty=difficulty[i] if difficulty else 0.5, expert="math",
            attempts=tuple(
                _written(k, said, energies[i][k], right, judgments[i] if judgments else None, n=n)
                for k, said in enumerate(row)
            ),
        )
        for i, row in enumerate(answers)
    ]  # fmt: skip
    write_recording(path, made, entries)
    return path


def _written(place: int, said: str, energy: float, right: str, judgment: bool | None, *, n: bool) -> Attempt:
    step = (Step.ANSWER, Step.VERIFY)[place] if place < 2 else Step.SOLVE
    index = max(0, place - 2)
    fast = step is Step.ANSWER
    return Attempt(
        agent="fast" if fast else "slow", step=step, index=index, model="quick" if fast else "deep", text=f"{said}·{place}", answer=said,
        judgment=judgment if step is Step.VERIFY else None, finish="stop", score=float(said == right),
        tokens=(Token("x" * 10, round(-10 * energy, 4)),), request=min(place, 2) if n else place,
        usage=Usage(100, 0, 7, None), prompt_usd=1.0 if fast else 10.0, output_usd=0.1 if fast else 2.0,
        seconds=float(min(place, 2) + 1),
    )  # fmt: skip


def samples_recording(folder: Path, rows: Sequence[dict[str, Any]], name: str = "samples.jsonl") -> Path:
    """A recording of candidates alone: each row has gold and candidates with answer, tokens, and maybe agent, model."""
    items = [
        RecordedItem(
            key=ItemKey("samples", str(i), 42), category="", metric="accuracy", stratum="", fold=i % 5,
            query=row.get("query", "?"), gold=row["gold"], effort=None, features=(0.0,) * 24, difficulty=0.5,
            expert="general", attempts=tuple(sort_attempts(_sample(k, row, c) for k, c in enumerate(row["candidates"]))),
        )
        for i, row in enumerate(rows)
    ]  # fmt: skip
    path = folder / name
    write_recording(path, header(), items)
    return path


def _sample(index: int, row: dict[str, Any], candidate: dict[str, Any]) -> Attempt:
    gold = row["gold"] if isinstance(row["gold"], list) else [row["gold"]]
    fast, tokens, answer = candidate.get("agent") == "fast", candidate.get("tokens", []), str(candidate["answer"])
    return Attempt(
        agent="fast" if fast else "slow", step=Step.ANSWER if fast else Step.SOLVE, index=0 if fast else index,
        model=candidate.get("model", "quick" if fast else "deep"),
        text=candidate.get("text", "".join(text for text, _ in tokens)), answer=answer,
        score=float(any(equivalent(answer, right) for right in gold)), tokens=tuple(Token(*token) for token in tokens),
    )  # fmt: skip
