"""The ablation matrix: what each part of ODAR is worth (SPEC 7.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from odar.evals.replay.policies import POSTERIOR
from odar.evals.report.draw import Rows
from odar.evals.report.figures.groups import group_means
from odar.evals.report.findings import Findings
from odar.evals.report.palette import Palette

ABLATIONS = {
    "always-hard": "no estimator: always Hard",
    "always-medium": "rules only: always Medium",
    "single-fast": "no slow agent",
    "odar:rule=none": "no fusion: first slow answer",
    "odar:dispatch=off": "dispatch off",
    "odar:mode=prior": "prior routing",
    "odar:mode=posterior": "posterior routing",
    POSTERIOR: "posterior by the panel's μ and σ",
    "odar:stop=none": "every sample, no early stop",
    "odar:stop=0.8": "early stop",
    "odar:estimator=length": "difficulty by length",
    "odar:without=lexical": "no lexical features",
    "odar:without=structural": "no structural features",
    "odar:without=semantic": "no semantic features",
}


def ablation_rows(findings: Findings) -> Rows:
    """Ablation, change of accuracy in each group and over all, calls an item."""
    base = np.array([*group_means(findings, findings.odar), findings.odar.score.mean()])
    head: Rows = [("ablation", *findings.group_names, "all", "calls")]
    rows: Rows = []
    for outcome in findings.suite("ablations"):
        values = np.array([*group_means(findings, outcome), outcome.score.mean()]) - base
        rows.append((ABLATIONS.get(outcome.name, outcome.name), *map(float, values), float(outcome.calls.mean())))
    return head + rows


def draw_ablations(canvas: Any, findings: Findings, palette: Palette) -> None:
    """A matrix: change of accuracy against ODAR, in points, and what it costs."""
    head, *rows = ablation_rows(findings)
    axes = canvas.subplots()
    values = np.array([row[1:-1] for row in rows], dtype=np.float64)
    most = max(float(np.abs(values).max()), 0.01)
    from matplotlib.patches import Rectangle

    for y, row in enumerate(values):
        for x, value in enumerate(row):
            colour = palette.good if value > 0 else palette.bad
            box = Rectangle(
                (x - 0.48, y - 0.46), 0.96, 0.92, color=colour, alpha=0.75 * abs(value) / most, linewidth=0
            )
            axes.add_patch(box)
            text = "0" if round(100 * value, 1) == 0 else f"{100 * value:+.1f}".replace("-", "−")
            axes.text(x, y, text, ha="center", va="center", fontsize=8)
        axes.text(len(row), y, f"{rows[y][-1]:.2f}", ha="center", va="center", fontsize=8, color=palette.muted)
    axes.set_xticks(range(len(head) - 1), head[1:], rotation=30, ha="left")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.tick_params(length=0, labelcolor=palette.ink)
    axes.set_xlim(-0.55, len(head) - 1.45)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
