"""Accuracy against what it costs (SPEC 7.5)."""

from __future__ import annotations

from typing import Any

from odar.evals.report.draw import Rows
from odar.evals.report.figures.common import label
from odar.evals.report.findings import Findings, frontier
from odar.evals.report.palette import Palette
from odar.evals.standing import known_mean


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
        best = [points[i] for i in frontier(points)]
        axes.step(*zip(*best, strict=True), where="post", color=palette.grid, linewidth=2, zorder=1)
        spread = max(x for x, _ in points) - min(x for x, _ in points)
        placed: list[tuple[float, float]] = []
        for name, (x, y) in sorted(zip(names, points, strict=True), key=lambda each: each[1][1]):
            ours = name == "odar"
            axes.scatter(x, y, s=70 if ours else 34, color=palette.accent if ours else palette.other, zorder=3)
            near = sum(abs(px - x) < 0.16 * spread and abs(py - y) < 0.02 for px, py in placed)
            placed.append((x, y))
            left = x > min(costs.values()) + 0.72 * spread
            axes.annotate(
                label(name), (x, y), xytext=(-6 if left else 6, 3 + 9 * near), textcoords="offset points",
                ha="right" if left else "left", fontsize=8, color=palette.accent if ours else palette.ink,
                fontweight="bold" if ours else "normal",
            )  # fmt: skip
        axes.set_xlabel(title)
        axes.set_xlim(left=0)
        axes.margins(y=0.14)
    canvas.axes[0].set_ylabel("accuracy")


def pareto_rows(findings: Findings) -> Rows:
    """Policy, accuracy and each price."""
    panels = _costs(findings)
    head: Rows = [("policy", "accuracy", *(key for _, key, _ in panels))]
    names = list(panels[0][2])
    return head + [
        (name, float(findings.outcomes[name].score.mean()), *(costs[name] for _, _, costs in panels))
        for name in names
    ]
