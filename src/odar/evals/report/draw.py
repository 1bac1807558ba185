"""Figures: drawn by matplotlib without its global state, saved as SVG that follows the page, as PNG and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odar.errors import InputError
from odar.evals.report.findings import Findings
from odar.evals.report.palette import DAY, PLACEHOLDERS, Palette, fill_in

Rows = list[Sequence[Any]]
"""A table with its heading first."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the report."""

    slug: str
    title: str
    caption: str
    size: tuple[float, float]
    """Inches."""
    draw: Callable[[Any, Findings, Palette], None]
    """Draws on a matplotlib figure."""
    rows: Callable[[Findings], Rows]
    """The numbers behind it."""


def to_svg(figure: Figure, findings: Findings) -> str:
    """The figure as an SVG element whose colours and fonts are the page's."""
    buffer = io.StringIO()
    with _style(PLACEHOLDERS, figure.slug):
        canvas = _drawn(figure, findings, PLACEHOLDERS)
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # names that nothing refers to, the same in every figure
    svg = re.sub(r"<svg ([^>]*?)>", _opening(figure), svg, count=1, flags=re.DOTALL)
    return fill_in(svg)


def to_png(figure: Figure, findings: Findings, path: Path) -> None:
    """The figure as a PNG file, by day."""
    with _style(DAY, figure.slug):
        _drawn(figure, findings, DAY).savefig(path, format="png", dpi=160, facecolor=DAY.surface)


def to_csv(figure: Figure, findings: Findings, path: Path) -> None:
    """The numbers behind the figure as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(figure.rows(findings))


def _drawn(figure: Figure, findings: Findings, palette: Palette) -> Any:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=figure.size, layout="constrained")
    figure.draw(canvas, findings, palette)
    return canvas


def _opening(figure: Figure) -> Callable[[re.Match[str]], str]:
    """Size is the page's business; what it shows is said to those who cannot see it."""

    def replace(match: re.Match[str]) -> str:
        box = re.search(r'viewBox="[^"]*"', match.group(1))
        assert box is not None
        label = f'role="img" aria-labelledby="title-{figure.slug}"'
        return (
            f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg" {box[0]} {label}>'
        )

    return replace


def _style(palette: Palette, salt: str) -> Any:
    try:
        import matplotlib
    except ImportError:
        raise InputError("figures need matplotlib; install odar[evals]") from None
    return matplotlib.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": salt,
            "font.family": "DejaVu Sans",
            "font.size": 9,
            "axes.edgecolor": palette.grid,
            "axes.labelcolor": palette.muted,
            "axes.titlecolor": palette.ink,
            "axes.titlesize": 9.5,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.grid": True,
            "axes.facecolor": "none",
            "grid.color": palette.grid,
            "grid.linewidth": 0.8,
            "text.color": palette.ink,
            "xtick.color": palette.grid,
            "ytick.color": palette.grid,
            "xtick.labelcolor": palette.muted,
            "ytick.labelcolor": palette.muted,
            "legend.frameon": False,
            "legend.labelcolor": palette.ink,
            "legend.fontsize": 8.5,
        }
    )
