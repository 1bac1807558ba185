"""Figures of a report, which matplotlib draws as SVG, without its global state.

Colours of figures are placeholders, which become variables of page.css: light, dark and print share one SVG.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from odar.errors import InputError
from odar.files import install_command
from odar.lab.report.exhibit import Draw


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
Line = tuple[Sequence[float], Colour, Any]
"""Values, colour and line style of matplotlib."""


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
