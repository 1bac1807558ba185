"""What an exhibit of a report is: a table with a title and a caption, and sometimes a figure."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from odar.lab.intervals import Interval

Draw = Callable[[Any], None]
"""A function that draws on a matplotlib figure."""
SHORT_NAMES = {"self-consistency": "SC", "best-of-n": "BoN"}


@dataclass(frozen=True, slots=True)
class Column:
    """The name and number format of a column. `heat` colours the cells by sign and size."""

    name: str
    form: str = ".3f"
    heat: bool = False


def parse_columns(text: str) -> list[Column]:
    """The columns of a text: `name | form`, `name` for three digits, `name |` for texts.

    >>> parse_columns("policy |; accuracy; calls | .2f")[2]
    Column(name='calls', form='.2f', heat=False)
    """
    parts = [part.partition(" |") for part in text.split("; ")]
    return [Column(name, form.strip() if bar else ".3f") for name, bar, form in parts]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A table, with a figure if `draw` is given."""

    slug: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    """Texts, numbers, intervals, None for unknown."""
    draw: Draw | None = None
    size: tuple[float, float] = (4.9, 3.6)
    """Inches; the width is that of a phone, so that texts are readable there."""
    notes: Sequence[str] = ()
    folded: bool = False
    """Whether the table is collapsed."""

    @property
    def marked(self) -> list[int]:
        """Indices of highlighted rows: those of ODAR, of all items, and of means."""
        names = [str(row[0]) for row in self.rows]
        return [i for i, name in enumerate(names) if name in ("ODAR", "all") or name.startswith("mean of ")]

    def records(self) -> list[dict[str, Any]]:
        """Rows by column name, with a column for each bound of an interval; unknown is an empty text."""
        records: list[dict[str, Any]] = [{} for _ in self.rows]
        for i, column in enumerate(self.columns):
            cells = [row[i] for row in self.rows]
            has_bounds = any(isinstance(cell, Interval) for cell in cells)
            for record, cell in zip(records, cells, strict=True):
                values = cell if isinstance(cell, Interval) else (cell, None, None)
                for value, name in zip(values, ("", " low", " high") if has_bounds else ("",), strict=False):
                    record[column.name + name] = value if _is_known(value) else ""
        return records


TEXTS = tomllib.loads(resources.files("odar.lab.report").joinpath("exhibits.toml").read_text("utf-8"))
"""Title, caption and columns of each exhibit, and words below the titles of sections."""


def exhibit(
    slug: str,
    rows: Sequence[Sequence[Any]],
    *,
    columns: Sequence[Column] | None = None,
    words: Mapping[str, str] | None = None,
    **more: Any,
) -> Exhibit:
    """An exhibit with title, caption and, by default, columns of exhibits.toml.

    `words` are filled into these texts; a slug with a suffix, such as sweep-beta, has the texts of sweep. Columns
    without a known value are left out.
    """
    texts = TEXTS.get(slug) or TEXTS[slug.partition("-")[0]]
    title, caption, form = (texts.get(name, "").format(**words or {}) for name in ("title", "caption", "columns"))
    columns = columns or parse_columns(form)
    known = [i for i in range(len(columns)) if not rows or any(_is_known(row[i]) for row in rows)]
    rows = [[row[i] for i in known] for row in rows]
    return Exhibit(slug, title, caption, [columns[i] for i in known], rows, **more)


def _is_known(value: Any) -> bool:
    return not (value is None or (isinstance(value, float) and np.isnan(value)))


def policy_label(spec: str) -> str:
    """A short name of a policy for tables and figures.

    >>> [policy_label(spec) for spec in ("self-consistency:k=5", "odar:rule=none", "cascade:dial=economy")]
    ['SC-5', 'no fusion', 'cascade, economy']
    """
    name, _, options = spec.partition(":")
    if spec == "odar:rule=none":
        return "no fusion"
    if name == "odar":
        return options or "ODAR"
    if name in SHORT_NAMES:
        return f"{SHORT_NAMES[name]}-{options.partition('=')[2]}"
    return name.replace("-", " ") + (f", {options.removeprefix('dial=')}" if options else "")
