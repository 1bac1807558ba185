"""A panel on the disk: finished items in `panel.parquet`, the others in `journal.jsonl`, one writer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from filelock import FileLock, Timeout

from odar.errors import InputError
from odar.evals.panel.entry import Attempt, Entry, Key
from odar.evals.panel.header import Header
from odar.evals.panel.journal import Journal, refuse_other
from odar.evals.panel.parquet import read_costs, read_entries, read_header, read_keys, read_rows, sound, write_panel


class PanelFolder:
    """The items of a panel, wherever they are kept. Open it with `open_folder`, which holds the lock.

    An item is in the Parquet file or in the journal; one that a crash left in both counts once.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.path = folder / "panel.parquet"
        self.header = header
        if self.path.exists():
            refuse_other(read_header(self.path), header, self.path)
        self.journal = Journal(folder / "journal.jsonl", header)
        self._compacted = read_keys(self.path)

    @property
    def finished(self) -> set[Key]:
        """Every item that needs nothing more."""
        return self._compacted | self.journal.finished

    def attempts(self, key: Key) -> list[Attempt]:
        """The answers so far to an item that is not finished."""
        return self.journal.attempts(key)

    def spent(self) -> float | None:
        """What everything in here has cost; None where a price was unknown."""
        costs = [self.journal.spent()]
        if self.path.exists():
            costs += read_costs(self.path)
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def compact(self) -> int:
        """Move what the journal has finished into the Parquet file; returns how many items that file holds.

        The journal is cut when the file is safely there: a kill in between leaves items in both, never in none.
        """
        new = self.journal.finished - self._compacted
        if new:
            old = read_entries(self.path) if self.path.exists() else iter(())
            fresh: Iterator[Entry] = (entry for entry in self.journal.entries() if entry.key in new)
            write_panel(self.path, self.header, chain(old, fresh))
            self._compacted |= new
        if self.journal.finished:
            self.journal.drop(self._compacted)
        return len(self._compacted)


@contextmanager
def open_folder(folder: Path, header: Header) -> Iterator[PanelFolder]:
    """A panel to write to; refused while another process writes to it.

    The lock is the system's own: a process that is killed lets go of it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock", timeout=0):
            yield PanelFolder(folder, header)
    except Timeout:
        raise InputError(f"{folder} is being written by another `odar eval collect`; wait for it to end") from None
    except OSError as error:
        raise InputError(f"{folder} cannot be used: {error.strerror or error}") from None


def panel_file(place: str | Path) -> Path:
    """The Parquet file of a panel that was named by its folder or by the file itself."""
    path = Path(place).expanduser()
    path = path / "panel.parquet" if path.is_dir() else path
    if not path.exists():
        raise InputError(f"{place} holds no panel; make one with: odar eval collect BENCHMARK --out {place}")
    return path


def seeds_of(path: Path) -> list[int]:
    """The seeds a panel was collected with."""
    with sound(path):
        return sorted({row["key"]["seed"] for row in read_rows(path, ["key"])})
