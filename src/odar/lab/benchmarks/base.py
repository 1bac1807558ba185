"""Benchmarks: their rows on the hub or in a folder, tasks, scores, and the registry of benchmarks by name."""

from __future__ import annotations

import pkgutil
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from odar.errors import GradedElsewhere, InputError
from odar.files import install_command
from odar.formats import load_json
from odar.lab.graders.mathematics import Verifier, proof_score
from odar.lab.recording.collect import TaskSet
from odar.lab.recording.files import read_table, report_damage
from odar.lab.recording.schema import Task as Task
from odar.registry import Registry


@dataclass(frozen=True, slots=True)
class BenchmarkInfo:
    """Source, size, licence and requirements of a benchmark; None or empty if unknown."""

    source: str
    """Origin of the data: `hub:owner/name (config, split)`, or a file."""
    size: int | None = None
    """Number of tasks in the official split."""
    licence: str = ""
    gated: bool = False
    """Whether the hub requires accepted terms and a token."""
    needs: str = ""
    """Requirements of scoring besides a response: a verifier, a harness report; empty for most."""
    note: str = ""
    """Differences between the official data and the paper's table, and limitations."""
    plain: bool = False
    """Whether the form of the response is scored, so that prompts must not ask for a form of their own."""


class Benchmark(TaskSet, Protocol):
    """A named set of tasks with its official metric; the category is one of the paper's eight."""

    @property
    def about(self) -> BenchmarkInfo:
        """Source, size and licence, as shown by `odar eval list`."""
        ...

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """Return the tasks, from a local folder or else from the hub.

        Raises:
            InputError: the data is missing, gated or invalid; the message names the remedy.
        """
        ...


@dataclass(frozen=True, slots=True)
class CustomBenchmark:
    """A benchmark made of two functions, which load the tasks and score a response."""

    name: str
    category: str
    metric: str
    about: BenchmarkInfo
    load: Callable[..., Iterator[Task]]
    score: Callable[[Task, str, str], float]


Row = dict[str, Any]
PARQUET_BRANCH = "refs/convert/parquet"
"""The branch with the Parquet copy that the hub makes of a dataset."""
_ROWS = "odar.lab.benchmarks.rows"


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a Parquet, CSV, JSON or JSONL file.

    Raises:
        InputError: the file cannot be read, or its content does not match its suffix.
    """
    if path.suffix in (".parquet", ".csv", ".jsonl"):
        yield from read_table(path)
        return
    with report_damage(path, f"is damaged or not {path.suffix[1:]}", remedy=""):
        body = load_json(path.read_text(encoding="utf-8"))
        yield from body["examples"] if isinstance(body, dict) else body  # BIG-bench has an object, others a list


@dataclass(frozen=True, slots=True)
class Hub:
    """Some splits of a dataset on the hub.

    >>> Hub("openai/gsm8k", ("main",)).patterns("main")
    ('main/test/*.parquet',)
    """

    id: str
    configs: tuple[str, ...] = ("default",)
    splits: tuple[str, ...] = ("test",)
    files: tuple[str, ...] = ()
    """Files of the dataset itself, if the hub has no Parquet copy of it."""
    gated: bool = False

    def __str__(self) -> str:
        configs = self.configs[0] if len(self.configs) == 1 else f"{len(self.configs)} configs"
        return f"hub:{self.id} ({configs}, {'+'.join(self.splits)})"

    def patterns(self, config: str) -> tuple[str, ...]:
        return self.files or tuple(f"{config}/{split}/*.parquet" for split in self.splits)

    def download(self) -> Path:
        """Download the files that are not in the cache, and return their folder.

        Raises:
            InputError: the dataset is gated, unknown or unreachable; the message names the remedy.
        """
        try:
            from huggingface_hub import snapshot_download
        except ModuleNotFoundError:
            raise InputError(f"loading {self.id} from the hub needs: {install_command('evals')}") from None
        wanted = [pattern for config in self.configs for pattern in self.patterns(config)]
        revision = None if self.files else PARQUET_BRANCH
        try:
            return Path(snapshot_download(self.id, repo_type="dataset", revision=revision, allow_patterns=wanted))
        except Exception as error:  # its own errors, and those of its HTTP library
            by_hand = f"on a machine that reaches the hub, run `{self.command('DIR/NAME')}`, and load from DIR"
            hint = f"{self.terms}; {by_hand}" if self.gated else by_hand
            raise InputError(f"{self.id} cannot be downloaded ({type(error).__name__}): {hint}") from error

    @property
    def terms(self) -> str:
        """The steps that give access to a gated dataset."""
        return f"accept its terms at huggingface.co/datasets/{self.id}, then set HF_TOKEN"

    def command(self, target: str) -> str:
        """Return the command that downloads the files into a folder.

        >>> Hub("a/b").command("DIR/b")
        "hf download a/b --repo-type dataset --revision refs/convert/parquet --include '*/test/*' --local-dir DIR/b"
        """
        branch = "" if self.files else f" --revision {PARQUET_BRANCH}"
        config = self.configs[0] if len(self.configs) == 1 and self.configs != ("default",) else "*"
        wanted = self.files or tuple(f"{config}/{split}/*" for split in self.splits)
        includes = "".join(f" --include '{pattern}'" for pattern in wanted)
        return f"hf download {self.id} --repo-type dataset{branch}{includes} --local-dir {target}"

    def find(self, root: Path) -> list[tuple[str, Path]]:
        """The files of a downloaded folder, each with its config, in a fixed order."""
        pairs = [(config, pattern) for config in self.configs for pattern in self.patterns(config)]
        return [(config, path) for config, pattern in pairs for path in sorted(root.glob(pattern))]


class RowPosition(NamedTuple):
    """The config or file of a row, and its number there; as text, the id of rows without one."""

    group: str
    number: int

    def __str__(self) -> str:
        return f"{self.group}-{self.number}"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A benchmark of benchmarks.toml: the places of its rows, and the names of functions for tasks and scores."""

    name: str
    category: str
    metric: str
    hubs: tuple[Hub, ...]
    """Datasets with its rows, read one after another."""
    about: BenchmarkInfo
    tasks: str
    """The function of rows.py that returns the task, or a list of tasks, of a row and its position."""
    compare: str = ""
    """The function of odar.lab.graders that scores an answer by its gold; empty if there is none."""
    scorer: str = ""
    """The function of rows.py that scores by task, response and answer; empty if `compare` is enough."""
    local: tuple[str, ...] = ()
    """Patterns of local files with the rows, in another layout than the hub's."""
    elsewhere: str = ""
    """Instructions for importing results of its own harness; empty if answers can be scored here."""
    verifier: Verifier | None = None
    """The model that grades proofs against a checklist."""

    @classmethod
    def from_table(cls, name: str, table: dict[str, Any]) -> Dataset:
        values: dict[str, Any] = {"name": name, "tasks": name}
        values |= {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}

        def values_of(kind: type[Any]) -> dict[str, Any]:
            return {each.name: values[each.name] for each in fields(kind) if each.name in values}

        ids = values["hub"] if isinstance(values["hub"], tuple) else (values["hub"],)
        hubs = tuple(Hub(each, **values_of(Hub)) for each in ids)
        about = BenchmarkInfo("; ".join(map(str, hubs)), **values_of(BenchmarkInfo))
        return cls(hubs=hubs, about=about, **values_of(cls))

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """Yield the tasks, from FOLDER/NAME (the hub's layout), from local files in FOLDER, or else from the hub.

        Raises:
            InputError: no files, no access, or rows that lack a field; the message names the remedy.
        """
        seen: set[str] = set()
        numbers: Counter[str] = Counter()
        for group, path in self._files(folder):
            for row in read_rows(path):
                position = RowPosition(group, numbers[group])
                numbers[group] += 1
                for task in self._tasks_of(row, position, path):
                    if task.id in seen:
                        raise InputError(f"{self.name}: two tasks have the id {task.id!r} (the second in {path})")
                    seen.add(task.id)
                    yield task
        if not seen:
            raise InputError(f"{self.name}: its files hold no tasks ({folder or self.about.source})")

    def score(self, task: Task, response: str, answer: str) -> float:
        """Return the score of a response, from 0 to 1.

        Raises:
            GradedElsewhere: the benchmark has its own harness; the message says how to import its results.
        """
        if self.verifier is not None:
            return proof_score(task.gold["problem"], task.gold["checklist"], response, self.verifier)
        if self.compare:
            return float(pkgutil.resolve_name(f"odar.lab.graders.{self.compare}")(task.gold, answer))
        if self.scorer:
            return float(pkgutil.resolve_name(f"{_ROWS}:{self.scorer}")(task, response, answer))
        raise GradedElsewhere(self.elsewhere)

    def with_verifier(self, verifier: Verifier) -> Dataset:
        """Scores by the share of a proof's checklist that this model confirms."""
        return replace(self, verifier=verifier, elsewhere="")

    def _files(self, folder: Path | None) -> list[tuple[str, Path]]:
        if folder is None:
            return [pair for hub in self.hubs for pair in hub.find(hub.download())]
        roots = {hub: folder / (self.name if len(self.hubs) == 1 else hub.id) for hub in self.hubs}
        if found := [pair for hub, root in roots.items() for pair in hub.find(root)]:
            return found
        for patterns in (self.local, (f"{self.name}/*.parquet",), (f"{self.name}/*.jsonl",)):
            if found := [(path.stem, path) for pattern in patterns for path in sorted(folder.glob(pattern))]:
                return found
        hub, root = next(iter(roots.items()))
        looked = [*(f"{self.name}/{pattern}" for pattern in hub.patterns(hub.configs[0])), *self.local]
        first = f"{hub.terms}, then " if hub.gated else ""
        raise InputError(
            f"{self.name} is not in {folder} (looked for {', '.join(looked)}): "
            f"{first}fetch it with `{hub.command(str(root))}`"
        )

    def _tasks_of(self, row: Row, position: RowPosition, path: Path) -> list[Task]:
        try:
            tasks = pkgutil.resolve_name(f"{_ROWS}:{self.tasks}")(row, position)
            return tasks if isinstance(tasks, list) else [tasks]
        except (InputError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            what = f"has no field {error}" if isinstance(error, KeyError) else f"does not fit: {error}"
            raise InputError(
                f"{self.name}: row {position.number} of {path} {what}; is it another version?"
            ) from error


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
        from odar.lab.adversarial import attack_benchmark  # imports this module

        return attack_benchmark(benchmark, attack)


BENCHMARKS = Benchmarks("benchmark", {"starter": "odar.lab.benchmarks.rows:STARTER"}, "odar.benchmarks")
"""Benchmarks by name."""
_TABLES = tomllib.loads(resources.files("odar.lab.benchmarks").joinpath("benchmarks.toml").read_text("utf-8"))
NAMES = (*_TABLES, "starter")
"""The benchmarks that ship with ODAR, in the order of the paper's table."""
for _name, _table in _TABLES.items():
    BENCHMARKS.add(_name, Dataset.from_table(_name, _table))
