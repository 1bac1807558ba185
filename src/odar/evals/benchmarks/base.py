"""What every benchmark is, and where to find them by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from odar.recording.schema import Task as Task
from odar.registry import Registry


@dataclass(frozen=True, slots=True)
class About:
    """What a user wants to know before loading a benchmark; unknown is None or empty."""

    source: str
    """Where the data comes from: `hub:owner/name (config, split)`, or a file."""
    size: int | None = None
    """Tasks in the official split."""
    licence: str = ""
    gated: bool = False
    """Whether the hub wants its terms accepted and a token."""
    needs: str = ""
    """What scoring takes beside a response: a verifier, a harness report, a sandbox; empty for most."""
    note: str = ""
    """Where the official data differs from the paper's table, and what is not covered."""
    plain: bool = False
    """Whether the response is scored as its reader sees it: our prompts may then ask for no form of their own."""


class Benchmark(Protocol):
    """A named set of tasks with its official metric."""

    @property
    def name(self) -> str:
        """As users type it: `gsm8k`."""
        ...

    @property
    def category(self) -> str:
        """One of the paper's eight."""
        ...

    @property
    def metric(self) -> str:
        """What a score of 1 means: accuracy, EM, F1, pass@1, similarity, proof."""
        ...

    @property
    def about(self) -> About:
        """Source, size, licence: what `odar eval list` shows."""
        ...

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """The tasks, from a local folder or else from the hub.

        Raises:
            InputError: the data is not there, is gated, or is not what it should be; says what to do.
        """
        ...

    def score(self, task: Task, response: str, answer: str) -> float:
        """How right a response is, from 0 to 1; `answer` is the final answer that was parsed from it."""
        ...


NAMES = (
    *("math", "gsm8k", "imo_2025", "mathvista"),
    *("arc_challenge", "openbookqa", "boolq", "strategyqa"),
    *("mmlu_pro", "gpqa"),
    *("hotpotqa", "musique"),
    *("scienceqa", "aokvqa", "mmmu_pro"),
    *("bbh", "bbeh", "truthfulqa", "hle"),
    *("swe_bench", "livebench"),
    "ifeval",
    "arc_agi_2",
    "truthfulqa_text",
    "starter",
)
"""Those that ship with ODAR: the 23 of the paper's table in its order (SPEC 7.1), a row a category, and our own."""


class Benchmarks(Registry[Benchmark]):
    """Benchmarks by name; NAME+injection and NAME+masking are those under attack (odar.evals.adversarial).

    >>> BENCHMARKS["starter+masking"].name
    'starter+masking'
    """

    def __getitem__(self, name: str) -> Benchmark:
        base, plus, attack = name.partition("+")
        benchmark = super().__getitem__(base)
        if not plus:
            return benchmark
        from odar.evals.adversarial import attacked  # which builds on this module

        return attacked(benchmark, attack)


_MODULES = {
    "choices": ("arc_challenge", "openbookqa", "mmlu_pro", "gpqa", "truthfulqa", "scienceqa", "aokvqa", "mmmu_pro"),
    "short_answers": ("boolq", "strategyqa", "hotpotqa", "musique", "truthfulqa_text", "hle", "starter"),
    "mathematics": ("gsm8k", "math", "mathvista", "imo_2025"),
    "exact_answers": ("bbh", "bbeh", "arc_agi_2"),
    "verified": ("ifeval", "livebench", "swe_bench"),
}
"""The benchmarks of each module, which are grouped by the kind of answer."""
_PLACES = {
    name: f"odar.evals.benchmarks.{module}:{name.upper()}" for module, names in _MODULES.items() for name in names
}
BENCHMARKS = Benchmarks("benchmark", {name: _PLACES[name] for name in NAMES}, group="odar.benchmarks")
"""Benchmarks by name."""
