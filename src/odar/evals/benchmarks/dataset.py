"""A benchmark whose tasks come from files: on the hub, or in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from odar.errors import InputError
from odar.evals.benchmarks.base import About, Task
from odar.evals.benchmarks.files import Row, read_rows
from odar.evals.benchmarks.hub import Hub


class Place(NamedTuple):
    """Where a row stands: its config or file, and its number there. As text it is the id of a row that has none."""

    group: str
    number: int

    def __str__(self) -> str:
        return f"{self.group}-{self.number}"


Decoder = Callable[[Row, Place], Iterator[Task]]
Scorer = Callable[[Task, str, str], float]
Figures = Callable[[Task, str, str], Mapping[str, Sequence[float]]]
"""Further figures of a response, each some scores that are pooled over all responses."""


def by_answer(compare: Callable[[Any, str], float]) -> Scorer:
    """A scorer that compares the gold with the parsed answer, whatever else the response says."""
    return partial(_compared, compare)


def _compared(compare: Callable[[Any, str], float], task: Task, response: str, answer: str) -> float:
    return compare(task.gold, answer)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A benchmark: where its rows are, how a row becomes tasks, how a response is scored."""

    name: str
    category: str
    metric: str
    hub: Hub
    tasks: Decoder
    """The tasks of a row: one as a rule, none for a row that is not part of the benchmark."""
    scorer: Scorer
    local: tuple[str, ...] = ()
    """Files of a folder that hold the rows in another layout than the hub's."""
    size: int | None = None
    licence: str = ""
    needs: str = ""
    note: str = ""
    plain: bool = False
    """As in `About`."""
    figures: Figures | None = None
    """What is published beside the main metric."""

    @property
    def about(self) -> About:
        """Source, size, licence."""
        where = str(self.hub)
        return About(where, self.size, self.licence, self.hub.gated, self.needs, self.note, self.plain)

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """The tasks, from FOLDER/NAME (the hub's layout), the folder's own files, or else from the hub.

        Raises:
            InputError: nothing there, no access, or rows that lack a field; says what to do.
        """
        seen: set[str] = set()
        numbers: dict[str, int] = {}
        for group, path in self._files(folder):
            for row in read_rows(path):
                place = Place(group, numbers.setdefault(group, 0))
                numbers[group] += 1
                for task in self._decode(row, place, path):
                    if task.id in seen:
                        raise InputError(f"{self.name}: two tasks have the id {task.id!r} (the second in {path})")
                    seen.add(task.id)
                    yield task
        if not seen:
            raise InputError(f"{self.name}: its files hold no tasks ({folder or self.hub.id})")

    def score(self, task: Task, response: str, answer: str) -> float:
        """How right a response is."""
        return self.scorer(task, response, answer)

    def _files(self, folder: Path | None) -> list[tuple[str, Path]]:
        if folder is None:
            found = list(self.hub.find(self.hub.fetch()))
            if not found:
                raise InputError(f"{self.hub.id} has none of {', '.join(self.hub.patterns(self.hub.configs[0]))}")
            return found
        if found := list(self.hub.find(folder / self.name)):
            return found
        for patterns in (self.local, (f"{self.name}/*.parquet",), (f"{self.name}/*.jsonl",)):
            found = [(path.stem, path) for pattern in patterns for path in sorted(folder.glob(pattern))]
            if found:
                break
        else:
            looked = [f"{self.name}/{pattern}" for pattern in self.hub.patterns(self.hub.configs[0])]
            first = f"{self.hub.terms}, then " if self.hub.gated else ""
            command = self.hub.command(str(folder / self.name))
            raise InputError(
                f"{self.name} is not in {folder} (looked for {', '.join([*looked, *self.local])}): "
                f"{first}fetch it with `{command}`"
            )
        return found

    def _decode(self, row: Row, place: Place, path: Path) -> Iterator[Task]:
        try:
            yield from self.tasks(row, place)
        except (InputError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            what = f"has no field {error}" if isinstance(error, KeyError) else f"does not fit: {error}"
            raise InputError(f"{self.name}: row {place.number} of {path} {what}; is it another version?") from error
