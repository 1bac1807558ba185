"""A panel on the disk: finished items in `panel.parquet`, the others in `journal.jsonl`, one writer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from odar.batch.journal import Journal
from odar.errors import InputError
from odar.evals.panel.entry import Entry, entry_of, key_of
from odar.evals.panel.header import FORMAT, Header, refuse_other
from odar.evals.panel.parquet import read_costs, read_entries, read_header, read_keys, write_panel
from odar.files import user_path

_OLD_JOURNAL = b'{"calibration": '
"""How a journal began when its first line was the panel's whole header."""


class PanelFolder:
    """The items of a panel, wherever they are kept. Open it with `open_folder`, which holds the journal's lock.

    An item is in the Parquet file or in the journal; one that a crash left in both counts once.
    """

    def __init__(self, path: Path, header: Header, journal: Journal) -> None:
        self.path = path
        self.header = header
        self.journal = journal
        self.compacted = read_keys(path)
        """The items of the Parquet file."""

    def spent(self) -> float | None:
        """What the items of the Parquet file have cost; None where a price was unknown."""
        costs = list(read_costs(self.path)) if self.path.exists() else []
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def entries(self) -> Iterator[Entry]:
        """The items that the journal has finished, one at a time."""
        return map(entry_of, self.journal.rows())

    def compact(self) -> int:
        """Move what the journal has finished into the Parquet file; returns how many items that file holds.

        The journal is cut when the file is safely there: a kill in between leaves items in both, never in none.
        """
        finished = {name: key_of(name) for name, entry in self.journal.entries.items() if not entry.failed}
        new = set(finished.values()) - self.compacted
        if new:
            old = read_entries(self.path) if self.path.exists() else iter(())
            fresh = (entry for entry in self.entries() if entry.key in new)
            write_panel(self.path, self.header, chain(old, fresh))
            self.compacted |= new
        if finished:
            self.journal.drop(finished)
        return len(self.compacted)


@contextmanager
def open_folder(folder: Path, header: Header) -> Iterator[PanelFolder]:
    """A panel to write to; refused while another process writes to it, or where it was made by something else."""
    panel, path = folder / "panel.parquet", folder / "journal.jsonl"
    if panel.exists():
        refuse_other(read_header(panel), header, panel)
    _retire_old(path)
    with Journal(path, {"format": f"{FORMAT}-journal-2", "made_by": header.made_by}) as journal:
        yield PanelFolder(panel, header, journal)


def _retire_old(path: Path) -> None:
    """Remove a journal of an older version that holds nothing more than its first line; refuse any other."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        first, more = file.readline(), file.readline()
    if first.startswith(_OLD_JOURNAL):
        if more:
            raise InputError(
                f"{path} was written by an older version and holds answers that are not in panel.parquet yet: run "
                "that version's `odar eval collect` once more, or move the file away to have them asked again"
            )
        path.unlink()


def panel_file(place: str | Path) -> Path:
    """The Parquet file of a panel that was named by its folder or by the file itself."""
    path = user_path(place)
    path = path / "panel.parquet" if path.is_dir() else path
    if not path.exists():
        raise InputError(f"{place} holds no panel; make one with: odar eval collect BENCHMARK --out {place}")
    return path
