"""How well difficulty tells which questions need more (SPEC 7.6)."""

from __future__ import annotations

from typing import Any

import numpy as np

from odar.evals.report.draw import Rows
from odar.evals.report.findings import Findings, Routers
from odar.evals.report.palette import Palette
from odar.evals.router_quality import gap_recovered


def router_rows(findings: Findings) -> Rows:
    """Share of strong calls, then the gap each router recovers there."""
    if not isinstance(findings.routers, Routers):
        return [("share", "gap recovered")]
    routers, shares = findings.routers, np.linspace(0, 1, 11)
    curves = [gap_recovered(score, routers.weak, routers.strong_score, shares) for score in routers.scores.values()]
    head: Rows = [("share", *routers.scores)]
    return head + [(float(share), *(float(curve[i]) for curve in curves)) for i, share in enumerate(shares)]


def draw_routers(canvas: Any, findings: Findings, palette: Palette) -> None:
    """Performance gap recovered by share of strong calls."""
    head, *rows = router_rows(findings)
    axes = canvas.subplots()
    styles = {
        "random": (palette.grid, "-"),
        "length": (palette.other, (0, (4, 2))),
        "oracle": (palette.good, (0, (1, 1.5))),
    }
    for i, name in enumerate(head[1:], start=1):
        colour, style = styles.get(name, (palette.accent if "posterior" in name else palette.hard, "-"))
        axes.plot(
            [row[0] for row in rows],
            [row[i] for row in rows],
            color=colour,
            linestyle=style,
            linewidth=2,
            label=name,
        )
    axes.plot([0, 1], [0, 1], color=palette.muted, linewidth=0.8)
    axes.set_xlabel("share of strong calls")
    axes.set_ylabel("gap recovered")
    canvas.legend(loc="outside lower center", ncols=3)


def reliability_rows(findings: Findings) -> Rows:
    """Estimate, mean difficulty, share of fast errors, items."""
    head: Rows = [("estimate", "difficulty", "fast_wrong", "items")]
    return head + [(name, *each) for name, bins in findings.reliability.items() for each in bins]


def draw_reliability(canvas: Any, findings: Findings, palette: Palette) -> None:
    """Difficulty against how often the fast answer was wrong."""
    axes = canvas.subplots()
    axes.plot([0, 1], [0, 1], color=palette.grid, linewidth=1.5)
    colours = {"prior": palette.hard, "posterior": palette.accent}
    for name, bins in findings.reliability.items():
        axes.plot([b[0] for b in bins], [b[1] for b in bins], "o-", color=colours[name], label=name)
    axes.set_xlim(0, 1.03)  # with room for a point at the very end
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("difficulty, mean of a bin")
    axes.set_ylabel("share of fast answers that were wrong")
    canvas.legend(loc="outside lower center", ncols=2)
