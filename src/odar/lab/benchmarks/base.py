"""Benchmarks: their rows on the hub or in a folder, tasks, scores, and the registry of benchmarks by name."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from odar.errors import GradedElsewhere, InputError, UnknownName
from odar.files import install_command
from odar.lab.adversarial import ATTACKS
from odar.lab.benchmarks.rows import TASKS_AND_GRADERS, MakeTasks
from odar.lab.graders.mathematics import Verifier, proof_score
from odar.lab.recording.files import read_table
from odar.lab.recording.questions import question_set, starter_questions
from odar.lab.recording.schema import Task, TaskSet
from odar.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(TaskSet):
    """A named set of tasks with its official metric; the category is one of the paper's eight."""

    load: Callable[..., Iterator[Task]]
    """Yields the tasks, from a local folder if one is given, or else from the hub.

    Raises InputError if the data is missing, gated or invalid; the message names the remedy."""
    source: str
    """Origin of the data: `hub:owner/name (files)`, or a file."""
    size: int | None = None
    """Number of tasks in the official split."""
    licence: str = ""
    gated: bool = False
    """Whether the hub requires accepted terms and a token."""
    note: str = ""
    """Differences between the official data and the paper's table, and limitations."""

    def with_verifier(self, verifier: Verifier) -> Benchmark:
        """The benchmark, scored by the share of a proof's checklist that this model confirms."""

        def score(task: Task, response: str, answer: str) -> float:
            return proof_score(task.gold["problem"], task.gold["checklist"], response, verifier)

        return replace(self, score=score, how_to_import="")


def _refuse_to_score(how_to_import: str, task: Task, response: str, answer: str) -> float:
    raise GradedElsewhere(how_to_import)


_PARQUET_BRANCH = "refs/convert/parquet"
"""The branch with the Parquet copy that the hub makes of a dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFiles:
    """The files with the rows of a benchmark, and what makes tasks of them."""

    name: str
    make_tasks: MakeTasks
    hub: Sequence[str]
    """Datasets on the hub."""
    files: Sequence[str] = ("default/test/*.parquet",)
    """Patterns, `config/split/*.parquet` in the Parquet copy that the hub makes of a dataset."""
    converted: bool = True
    """Whether the hub has such a copy; otherwise the patterns are of the dataset's own files."""
    gated: bool = False
    local: Sequence[str] = ()
    """Patterns of files in a folder that have another layout than the hub's."""

    @property
    def source(self) -> str:
        return "; ".join(f"hub:{dataset} ({', '.join(self.files)})" for dataset in self.hub)

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """Yield tasks, from FOLDER/NAME (the hub's layout), from local files in FOLDER, or else from the hub.

        Raises:
            InputError: no files, no access, or rows that lack a field; the message names the remedy.
        """
        seen: set[str] = set()
        numbers: Counter[str] = Counter()
        for group, path in self._find(folder) if folder else self._download():
            for row in read_table(path):
                number = numbers[group]
                numbers[group] += 1
                try:
                    made = self.make_tasks(row, group, number)
                except (InputError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
                    what = f"has no field {error}" if isinstance(error, KeyError) else f"does not fit: {error}"
                    message = f"{self.name}: row {number} of {path} {what}; is it another version?"
                    raise InputError(message) from error
                for task in made if isinstance(made, list) else [made]:
                    if task.id in seen:
                        raise InputError(f"{self.name}: two tasks have the id {task.id!r} (the second in {path})")
                    seen.add(task.id)
                    yield task
        if not seen:
            raise InputError(f"{self.name}: its files hold no tasks ({folder or self.source})")

    def _download(self) -> Iterator[tuple[str, Path]]:
        """The files on the hub, each with its config; what is in the cache is not downloaded again."""
        try:
            from huggingface_hub import snapshot_download
        except ModuleNotFoundError:
            raise InputError(f"loading {self.hub[0]} from the hub needs: {install_command('evals')}") from None
        revision = _PARQUET_BRANCH if self.converted else None
        for dataset in self.hub:
            try:
                root = snapshot_download(
                    dataset, repo_type="dataset", revision=revision, allow_patterns=[*self.files]
                )
            except Exception as error:  # its own errors, and those of its HTTP library
                why = f"{dataset} cannot be downloaded ({type(error).__name__})"
                raise InputError(f"{why}: {self._remedy(dataset, 'DIR/NAME')}, and load from DIR") from error
            yield from self._matches(Path(root))

    def _find(self, folder: Path) -> list[tuple[str, Path]]:
        """The files in a folder, each with its config or its name."""
        roots = [folder / (self.name if len(self.hub) == 1 else dataset) for dataset in self.hub]
        if found := [pair for root in roots for pair in self._matches(root)]:
            return found
        for patterns in (self.local, (f"{self.name}/*.parquet",), (f"{self.name}/*.jsonl",)):
            if found := [(path.stem, path) for pattern in patterns for path in sorted(folder.glob(pattern))]:
                return found
        looked = ", ".join([*(f"{self.name}/{pattern}" for pattern in self.files), *self.local])
        remedy = self._remedy(self.hub[0], str(roots[0]))
        raise InputError(f"{self.name} is not in {folder} (looked for {looked}): {remedy}")

    def _matches(self, root: Path) -> list[tuple[str, Path]]:
        paths = [path for pattern in self.files for path in sorted(root.glob(pattern))]
        return [(path.relative_to(root).parts[0], path) for path in paths]

    def _remedy(self, dataset: str, target: str) -> str:
        """How to get the files into a folder, with access to a gated dataset."""
        terms = f"accept its terms at huggingface.co/datasets/{dataset}, then set HF_TOKEN; " if self.gated else ""
        branch = f" --revision {_PARQUET_BRANCH}" if self.converted else ""
        includes = "".join(f" --include '{pattern}'" for pattern in self.files)
        command = f"hf download {dataset} --repo-type dataset{branch}{includes} --local-dir {target}"
        return f"{terms}on a machine that reaches the hub, run `{command}`"


def _from_table(name: str, table: dict[str, Any]) -> Benchmark:
    """The benchmark that a table of benchmarks.toml describes."""
    make_tasks, score = TASKS_AND_GRADERS[name]
    own = {key: table.pop(key) for key in ("hub", "files", "converted", "local") if key in table}
    data = HubFiles(name=name, make_tasks=make_tasks, gated=table.get("gated", False), **own)
    score = score or partial(_refuse_to_score, table["how_to_import"])
    return Benchmark(name=name, load=data.load, score=score, source=data.source, **table)


class Benchmarks(Registry[Benchmark]):
    """Benchmarks by name; NAME+injection and NAME+masking are rewritten ones (odar.lab.adversarial).

    >>> BENCHMARKS["starter+masking"].name
    'starter+masking'
    """

    def __getitem__(self, name: str) -> Benchmark:
        base, plus, attack = name.partition("+")
        benchmark = super().__getitem__(base)
        if not plus:
            return benchmark
        if attack not in ATTACKS:
            raise UnknownName("attack", attack, ATTACKS)
        return replace(benchmark, name=name, load=partial(_load_rewritten, attack, benchmark.load))


def _load_rewritten(attack: str, load: Callable[..., Iterator[Task]], folder: str | None = None) -> Iterator[Task]:
    return map(ATTACKS[attack], load(folder))


def _load_starter(folder: str | None = None) -> Iterator[Task]:
    return iter(starter_questions())


_STARTER = Benchmark(
    name="starter",
    category="Starter",
    metric="accuracy",
    score=question_set("starter").score,
    load=_load_starter,
    source="shipped:odar/data/starter.jsonl",
    size=236,
    licence="Apache-2.0",
    note="our own, not in the paper",
)
"""The original questions over eight domains that ship with ODAR, scored by equivalence."""
_TABLES = tomllib.loads(resources.files("odar.lab.benchmarks").joinpath("benchmarks.toml").read_text("utf-8"))
_SHIPPED = {**{name: _from_table(name, table) for name, table in _TABLES.items()}, "starter": _STARTER}
BENCHMARKS = Benchmarks("benchmark", _SHIPPED, "odar.benchmarks")
NAMES = tuple(_SHIPPED)
"""The benchmarks that ship with ODAR, in the order of the paper's table."""
