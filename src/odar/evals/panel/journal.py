"""The journal of a collection: one line for every answered request, on the disk before the next one is asked.

    {"format": …}                                                       the panel's header
    {"key": ["gsm8k", "17", 42], "attempts": [{…}, …]}                  a request was answered
    {"key": ["gsm8k", "17", 42], "item": {…}}                           all its requests were: the item is finished

A killed run loses only what was in flight. A last line without its end was being written then, and is dropped.
Only where a line begins is held in memory, not what it says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from odar.errors import InputError
from odar.evals.panel.entry import (
    Attempt,
    Entry,
    Key,
    attempt_from_json,
    attempt_to_json,
    entry_from_json,
    entry_to_json,
)
from odar.evals.panel.header import Header
from odar.formats import load_json


class Journal:
    """An append-only file of answered requests.

    Args:
        path: the file; made if it is not there.
        header: what the answers depend on. A journal made by something else is refused.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self.finished: set[Key] = set()
        self._places: dict[Key, list[int]] = {}
        try:
            if not path.exists() or not self._repair():
                self._replace([])
            self._index()
        except OSError as error:
            raise InputError(f"{path} cannot be used: {error.strerror or error}") from None

    def add(self, key: Key, attempts: Iterable[Attempt]) -> None:
        """Keep the answers of a request; they are on the disk when this returns."""
        self._append(key, {"key": key, "attempts": [attempt_to_json(each) for each in attempts]})

    def finish(self, entry: Entry) -> None:
        """Keep the rest of an item all of whose answers are here; it is on the disk when this returns."""
        self._append(entry.key, {"key": entry.key, "item": entry_to_json(entry)})
        self.finished.add(entry.key)

    def attempts(self, key: Key) -> list[Attempt]:
        """The answers so far of one item."""
        return [attempt_from_json(row) for line in self._lines(key) for row in line.get("attempts", ())]

    def entries(self) -> Iterator[Entry]:
        """The finished items, one at a time."""
        for key in self._places:
            if key in self.finished:
                item = next(line["item"] for line in self._lines(key) if "item" in line)
                yield entry_from_json(key, item, self.attempts(key))

    def spent(self) -> float | None:
        """What the answers in here have cost; None where a price was unknown."""
        bills = [bill(self.attempts(key)) for key in self._places]
        return None if None in bills else sum(each for each in bills if each is not None)

    def drop(self, keys: set[Key]) -> None:
        """Forget items that are kept elsewhere by now; atomic, like everything here."""
        kept = [
            json.dumps(line, ensure_ascii=False) for k in self._places if k not in keys for line in self._lines(k)
        ]
        self._replace(kept)
        self._index()

    def _append(self, key: Key, line: dict[str, Any]) -> None:
        with self.path.open("ab") as file:
            self._places.setdefault(key, []).append(file.tell())
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _lines(self, key: Key) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as file:
            for place in self._places.get(key, ()):
                file.seek(place)
                yield load_json(file.readline())

    def _repair(self) -> bool:
        """Cut off a torn last line; False where nothing whole is left."""
        with self.path.open("rb+") as file:
            whole = 0
            for line in file:
                whole += len(line) if line.endswith(b"\n") else 0
            file.truncate(whole)
            file.flush()
            os.fsync(file.fileno())
        return whole > 0

    def _index(self) -> None:
        self.finished, self._places = set(), {}
        with self.path.open("rb") as file:
            found = Header.from_json(file.readline().decode("utf-8", "replace"), str(self.path))
            refuse_other(found, self.header, self.path)
            place, number = file.tell(), 1
            for raw in file:
                number += 1
                try:
                    line = load_json(raw)
                    key = Key(*line["key"])
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(f"{self.path}, line {number} is not a line of a journal: {error!r}") from None
                self._places.setdefault(key, []).append(place)
                if "item" in line:
                    self.finished.add(key)
                place += len(raw)

    def _replace(self, lines: list[str]) -> None:
        part = self.path.with_suffix(".part")
        with part.open("w", encoding="utf-8") as file:
            for line in (self.header.to_json(), *lines):
                file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)
        sync_folder(self.path.parent)


def bill(attempts: Iterable[Attempt]) -> float | None:
    """What answers to one item cost together; None where a price is unknown."""
    return add_up((each.request, each.prompt_usd, each.output_usd) for each in attempts)


def add_up(prices: Iterable[tuple[int, float | None, float | None]]) -> float | None:
    """The sum of (request, price of its prompt, price of the answer): a prompt counts once for each request.

    >>> add_up([(0, 1.0, 0.5), (2, 3.0, 0.25), (2, 3.0, 0.25)])
    5.0
    """
    prompts: dict[int, float] = {}
    total = 0.0
    for request, prompt, answer in prices:
        if prompt is None or answer is None:
            return None
        prompts[request] = prompt
        total += answer
    return total + sum(prompts.values())


def refuse_other(found: Header, wanted: Header, path: Path) -> None:
    """Raise where a file was made with other models, prompts, sampling or number of samples."""
    if found.made_by != wanted.made_by:
        raise InputError(
            f"{path} was made with other models, prompts, sampling or --samples ({found.made_by}, not "
            f"{wanted.made_by}); choose another --out, or go back to those"
        )


def sync_folder(folder: Path) -> None:
    """Make a rename in this folder last through a power cut, where the system lets a folder be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
