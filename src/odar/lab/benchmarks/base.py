"""Benchmarks: their rows on the hub or in a folder, tasks, scores, and the registry of benchmarks by name."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from odar.errors import GradedElsewhere, InputError, UnknownName
from odar.files import install_command
from odar.formats import load_json
from odar.lab.adversarial import ATTACKS
from odar.lab.benchmarks.rows import TASKS_AND_GRADERS, MakeTasks, Row
from odar.lab.graders.mathematics import Verifier, proof_score
from odar.lab.recording.files import read_table, report_damage
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

        return replace(self, score=score, elsewhere="")


def _refuse_to_score(elsewhere: str, task: Task, response: str, answer: str) -> float:
    raise GradedElsewhere(elsewhere)


PARQUET_BRANCH = "refs/convert/parquet"
"""The branch with the Parquet copy that the hub makes of a dataset."""


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
    """Some files of a dataset on the hub."""

    id: str
    files: Sequence[str] = ("default/test/*.parquet",)
    """Patterns, `config/split/*.parquet` in the Parquet copy that the hub makes of a dataset."""
    converted: bool = True
    """Whether the hub has such a copy; otherwise the patterns are of the dataset's own files."""
    gated: bool = False

    def __str__(self) -> str:
        return f"hub:{self.id} ({', '.join(self.files)})"

    def download(self) -> Path:
        """Download the files that are not in the cache, and return their folder.

        Raises:
            InputError: the dataset is gated, unknown or unreachable; the message names the remedy.
        """
        try:
            from huggingface_hub import snapshot_download
        except ModuleNotFoundError:
            raise InputError(f"loading {self.id} from the hub needs: {install_command('evals')}") from None
        revision = PARQUET_BRANCH if self.converted else None
        try:
            found = snapshot_download(self.id, repo_type="dataset", revision=revision, allow_patterns=[*self.files])
        except Exception as error:  # its own errors, and those of its HTTP library
            by_hand = f"on a machine that reaches the hub, run `{self.command('DIR/NAME')}`, and load from DIR"
            hint = f"{self.terms}; {by_hand}" if self.gated else by_hand
            raise InputError(f"{self.id} cannot be downloaded ({type(error).__name__}): {hint}") from error
        return Path(found)

    @property
    def terms(self) -> str:
        """The steps that give access to a gated dataset."""
        return f"accept its terms at huggingface.co/datasets/{self.id}, then set HF_TOKEN"

    def command(self, target: str) -> str:
        """The command that downloads the files into a folder.

        >>> Hub("a/b", ["c.csv"], converted=False).command("b")
        "hf download a/b --repo-type dataset --include 'c.csv' --local-dir b"
        """
        branch = f" --revision {PARQUET_BRANCH}" if self.converted else ""
        includes = "".join(f" --include '{pattern}'" for pattern in self.files)
        return f"hf download {self.id} --repo-type dataset{branch}{includes} --local-dir {target}"

    def find(self, root: Path) -> list[tuple[str, Path]]:
        """The files of a downloaded folder, each with its config, in a fixed order."""
        paths = [path for pattern in self.files for path in sorted(root.glob(pattern))]
        return [(path.relative_to(root).parts[0], path) for path in paths]


def _load_rows(
    name: str, hubs: Sequence[Hub], local: Sequence[str], make_tasks: MakeTasks, folder: Path | None = None
) -> Iterator[Task]:
    """Yield tasks, from FOLDER/NAME (the hub's layout), from local files in FOLDER, or else from the hub.

    Raises:
        InputError: no files, no access, or rows that lack a field; the message names the remedy.
    """
    seen: set[str] = set()
    numbers: Counter[str] = Counter()
    for group, path in _find_files(name, hubs, local, folder):
        for row in read_rows(path):
            number = numbers[group]
            numbers[group] += 1
            try:
                made = make_tasks(row, group, number)
            except (InputError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
                what = f"has no field {error}" if isinstance(error, KeyError) else f"does not fit: {error}"
                message = f"{name}: row {number} of {path} {what}; is it another version?"
                raise InputError(message) from error
            for task in made if isinstance(made, list) else [made]:
                if task.id in seen:
                    raise InputError(f"{name}: two tasks have the id {task.id!r} (the second in {path})")
                seen.add(task.id)
                yield task
    if not seen:
        raise InputError(f"{name}: its files hold no tasks ({folder or '; '.join(map(str, hubs))})")


def _find_files(
    name: str, hubs: Sequence[Hub], local: Sequence[str], folder: Path | None
) -> list[tuple[str, Path]]:
    """The files of a benchmark, each with its config or its name."""
    if folder is None:
        return [pair for hub in hubs for pair in hub.find(hub.download())]
    roots = [folder / (name if len(hubs) == 1 else hub.id) for hub in hubs]
    if found := [pair for hub, root in zip(hubs, roots, strict=True) for pair in hub.find(root)]:
        return found
    for patterns in (local, (f"{name}/*.parquet",), (f"{name}/*.jsonl",)):
        if found := [(path.stem, path) for pattern in patterns for path in sorted(folder.glob(pattern))]:
            return found
    looked = [*(f"{name}/{pattern}" for pattern in hubs[0].files), *local]
    first = f"{hubs[0].terms}, then " if hubs[0].gated else ""
    raise InputError(
        f"{name} is not in {folder} (looked for {', '.join(looked)}): "
        f"{first}fetch it with `{hubs[0].command(str(roots[0]))}`"
    )


def _from_table(name: str, table: Mapping[str, Any]) -> Benchmark:
    """The benchmark that a table of benchmarks.toml describes."""
    make_tasks, score = TASKS_AND_GRADERS[name]
    ids = table["hub"] if isinstance(table["hub"], list) else [table["hub"]]
    hubs = [
        Hub(each, **{key: table[key] for key in ("files", "converted", "gated") if key in table}) for each in ids
    ]
    return Benchmark(
        name=name,
        load=partial(_load_rows, name, hubs, table.get("local", ()), make_tasks),
        score=score or partial(_refuse_to_score, str(table["elsewhere"])),
        source="; ".join(map(str, hubs)),
        **{key: value for key, value in table.items() if key not in ("hub", "files", "converted", "local")},
    )


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
"""Benchmarks by name."""
NAMES = tuple(_SHIPPED)
"""The benchmarks that ship with ODAR, in the order of the paper's table."""
