"""What the agents did with each item, kept line by line: collected once, fitted and replayed as often as one likes.

A record is appended and flushed to disk when its item is finished, so that a killed run loses at most the items
that were in flight; a half-written last line is dropped when the file is opened again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from odar.calibration.items import Item
from odar.errors import InputError
from odar.types import Candidate, Step

FORMAT = "odar-records-1"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate, reduced to what fitting needs."""

    step: Step
    model: str
    answer: str
    correct: bool
    energy: float | None
    varentropy: float | None
    tokens: int
    """Generated tokens."""
    judgment: bool | None = None
    cost_usd: float | None = None
    """This sample's share of its call."""


@dataclass(frozen=True, slots=True)
class Record:
    """One item with the fast answer, the slow verification and the slow samples."""

    id: str
    query: str
    difficulty: float
    """The prior estimate at the time."""
    fast: Attempt
    verify: Attempt
    solves: tuple[Attempt, ...]
    effort: float | None = None


def attempt(item: Item, candidate: Candidate, cost_usd: float | None) -> Attempt:
    """A candidate as it is recorded."""
    return Attempt(
        step=candidate.step,
        model=candidate.model,
        answer=candidate.answer,
        correct=item.is_right(candidate.answer),
        energy=candidate.energy.energy if candidate.energy else None,
        varentropy=candidate.energy.varentropy if candidate.energy else None,
        tokens=sum(not token.control for token in candidate.tokens),
        judgment=candidate.judgment,
        cost_usd=cost_usd,
    )


class RecordFile:
    """Records in a JSONL file; the first line says what made them.

    Args:
        path: the file; made if it is not there.
        made_by: what the records depend on (models, prompts, sampling). A file made by something else is refused.
    """

    def __init__(self, path: Path, made_by: str) -> None:
        self.path = path
        self.records: list[Record] = []
        header = {"format": FORMAT, "made_by": made_by}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            whole = text[
                : text.rfind("\n") + 1
            ]  # a last line without its end was being written when we were killed
            lines = whole.splitlines()
            if lines and json.loads(lines[0]) != header:
                raise InputError(
                    f"{path} was made with other models, prompts or settings; move it away, or go back to those"
                )
            found = [_record(json.loads(line)) for line in lines[1:]]
            self.records = list({record.id: record for record in found}.values())  # two runs may have met here
            if not lines or whole != text:
                self._write(whole or json.dumps(header) + "\n")
        except OSError as error:
            raise InputError(f"{path} cannot be used: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not a file of records ({error!r}); move it away to start anew") from None

    def append(self, record: Record) -> None:
        """Add a record; it is on the disk when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.records.append(record)

    def missing(self, items: Iterable[Item]) -> list[Item]:
        """The items that have no record yet."""
        done = {record.id for record in self.records}
        return [item for item in items if item.id not in done]

    def _write(self, text: str) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(self.path)


def _record(row: dict[str, Any]) -> Record:
    attempts = {name: _attempt(row[name]) for name in ("fast", "verify")}
    solves: Sequence[Any] = row["solves"]
    return Record(**{**row, **attempts, "solves": tuple(map(_attempt, solves))})


def _attempt(row: dict[str, Any]) -> Attempt:
    return Attempt(**{**row, "step": Step(row["step"])})
