"""Accuracy against what it costs (SPEC 7.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from odar.evals.report.draw import Rows
from odar.evals.report.figures.common import label
from odar.evals.report.findings import Findings, frontier
from odar.evals.report.palette import Palette
from odar.evals.standing import known_mean

HINDSIGHT = "oracle-router"
"""No policy that anybody could run: shown, but not part of the frontier."""
AREA = (290.0, 225.0)
"""Typographic points that one of two plots takes up, roughly: only for placing labels."""
OFFSETS = [
    (reach * dx, dy, side)
    for reach in (7, 9)
    for dy in (6, -7, 15, -16, 24, -25)
    for dx, side in ((1, "left"), (-1, "right"))
]
"""Where a label may stand beside its point, the best places first."""


def _costs(findings: Findings) -> list[tuple[str, str, dict[str, float]]]:
    """Accuracy's prices: calls, and money, or generated tokens where nothing costs or nobody knows."""
    shown = [row.name for row in findings.main if row.name not in ("oracle", "cot")]
    by_calls = {name: float(findings.outcomes[name].calls.mean()) for name in shown}
    money = {name: known_mean(findings.outcomes[name].cost) for name in shown}
    tokens = {name: known_mean(findings.outcomes[name].tokens) for name in shown}
    second = []
    if all(value is not None for value in money.values()) and any(money.values()):
        second = [("US$ per 1,000 items", "money", {name: 1000 * (value or 0) for name, value in money.items()})]
    elif all(value is not None for value in tokens.values()):
        second = [("generated tokens an item", "tokens", {name: value or 0.0 for name, value in tokens.items()})]
    return [("calls an item", "calls", by_calls), *second]


def draw_pareto(canvas: Any, findings: Findings, palette: Palette) -> None:
    """Accuracy against each price."""
    panels = _costs(findings)
    for axes, (title, _, costs) in zip(
        canvas.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True
    ):
        names = list(costs)
        points = [(costs[name], float(findings.outcomes[name].score.mean())) for name in names]
        real = [point for name, point in zip(names, points, strict=True) if name != HINDSIGHT]
        best = [real[i] for i in frontier(real)]
        right = 1.12 * max(x for x, _ in points)
        edge = [*best, (right, best[-1][1])]
        axes.step(*zip(*edge, strict=True), where="post", color=palette.grid, linewidth=2.5, zorder=1)
        for name, (x, y) in zip(names, points, strict=True):
            ours, hollow = name == "odar", name == HINDSIGHT
            colour = palette.accent if ours else palette.other
            axes.scatter(x, y, s=70 if ours else 34, color="none" if hollow else colour, edgecolor=colour, zorder=3)
        low, high = min(y for _, y in points), max(y for _, y in points)
        bottom, top = low - 0.12 * (high - low) - 0.01, high + 0.12 * (high - low) + 0.01
        scaled = [(AREA[0] * x / right, AREA[1] * (y - bottom) / (top - bottom)) for x, y in points]
        for name, point, (dx, dy, side) in zip(names, points, place_labels(scaled, map(label, names)), strict=True):
            ours = name == "odar"
            axes.annotate(
                label(name), point, xytext=(dx, dy), textcoords="offset points", ha=side, va="center", fontsize=8,
                color=palette.accent if ours else palette.ink, fontweight="bold" if ours else "normal",
            )  # fmt: skip
        axes.set_xlabel(title)
        axes.set_xlim(0, right)
        axes.set_ylim(bottom, top)
    canvas.axes[0].set_ylabel("accuracy")


def place_labels(points: Sequence[tuple[float, float]], names: Iterable[str]) -> list[tuple[float, float, str]]:
    """Offset and side of each label, such that as few as possible lie on one another or on a point.

    Args:
        points: in typographic points.
        names: the labels.
    """
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    found = []
    for (x, y), name in zip(points, names, strict=True):
        width = 4.9 * len(name)
        best: tuple[float, tuple[float, float, str], tuple[float, float, float, float]] | None = None
        for dx, dy, side in OFFSETS:
            start = x + dx - {"left": 0.0, "right": width, "center": width / 2}[side]
            box = (start, y + dy - 5, start + width, y + dy + 5)
            outside = max(0.0, -box[0]) + max(0.0, box[2] - AREA[0])
            cost = sum(_overlap(box, other) for other in taken) + 10 * outside + 0.1 * abs(dy)
            if best is None or cost < best[0]:
                best = cost, (dx, dy, side), box
        assert best is not None
        found.append(best[1])
        taken.append(best[2])
    return found


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, width) * max(0.0, height)


def pareto_rows(findings: Findings) -> Rows:
    """Policy, accuracy and each price."""
    panels = _costs(findings)
    head: Rows = [("policy", "accuracy", *(key for _, key, _ in panels))]
    names = list(panels[0][2])
    return head + [
        (name, float(findings.outcomes[name].score.mean()), *(costs[name] for _, _, costs in panels))
        for name in names
    ]
