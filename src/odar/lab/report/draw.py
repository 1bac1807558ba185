"""Exhibits of a report: tables, and figures that matplotlib draws as SVG, without its global state.

Colours of figures are placeholders, which become variables of page.css: light, dark and print share one SVG.
"""

from __future__ import annotations

import io
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Any

import numpy as np

from odar.errors import InputError
from odar.files import install_command
from odar.lab.intervals import Interval


class Colour(StrEnum):
    """Colours of figures; each is a placeholder for the variable of page.css with its name."""

    INK = "#010110"
    MUTED = "#010111"
    GRID = "#010112"
    ACCENT = "#010113"
    """ODAR."""
    OTHER = "#010114"
    """Baselines."""
    SIMPLE = "#010115"
    MEDIUM = "#010116"
    HARD = "#010117"
    GOOD = "#010118"
    BAD = "#010119"


PATH_COLOURS = {"Simple": Colour.SIMPLE, "Medium": Colour.MEDIUM, "Hard": Colour.HARD}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), Colour.GRID),
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), Colour.MUTED),
    **dict.fromkeys(("axes.titlecolor", "text.color", "legend.labelcolor"), Colour.INK),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.axisbelow", "axes.grid"), True),
    "axes.facecolor": "none",
    "grid.linewidth": 0.8,
    "legend.fontsize": 9,
}
Draw = Callable[[Any], None]
"""A function that draws on a matplotlib figure."""
Line = tuple[Sequence[float], Colour, Any]
"""Values, colour and line style of matplotlib."""
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


def to_svg(draw: Draw, size: tuple[float, float], name: str) -> str:
    """A figure as an SVG element; `name` is the id of its title, and its colours become those of the page."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(f"figures need matplotlib: {install_command('evals')}") from None
    buffer = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        canvas = Figure(figsize=size, layout="constrained")
        draw(canvas)
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # unused ids, the same in every figure
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    namespaces = 'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg"'
    opening = f'<svg {namespaces} {box[0]} role="img" aria-labelledby="{name}">'
    svg = re.sub(r"<svg [^>]*?>", lambda _: opening, svg, count=1, flags=re.DOTALL)
    for colour in Colour:
        svg = svg.replace(colour, f"var(--{colour.name.lower()})")
    return svg


def name_rows(axes: Any, names: Sequence[str]) -> None:
    """Name the rows of a bar chart, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", labelcolor=Colour.INK, length=0)
    axes.grid(axis="y", visible=False)


def path_legend(canvas: Any) -> None:
    """A legend of the paths below the figure."""
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, linewidth=0) for colour in PATH_COLOURS.values()]
    canvas.legend(handles, PATH_COLOURS, loc="outside lower center", ncols=3)


def line_chart(x: str, y: str, points: Sequence[Any], lines: Mapping[str, Line]) -> Draw:
    """Lines by name over the same points, with a legend if there are several."""

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        for name, (values, colour, style) in lines.items():
            marks = {"linestyle": style, "marker": "o", "markersize": 4, "label": name}
            axes.plot(points, values, color=colour, **marks)
        if not isinstance(points[0], float):
            axes.set_xticks(points)
        axes.set(xlabel=x, ylabel=y)
        axes.margins(y=0.2)
        if len(lines) > 1:
            canvas.legend(loc="outside lower center", ncols=2)

    return draw
