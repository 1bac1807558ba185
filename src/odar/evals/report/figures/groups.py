"""Accuracy and paths by category or subject (SPEC 7.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from odar.evals.replay.simulate import PolicyOutcome
from odar.evals.report.draw import Rows
from odar.evals.report.figures.common import PATHS, label, patch
from odar.evals.report.findings import Findings
from odar.evals.report.palette import Palette

RADAR = ("odar", "single-fast", "single-slow", "always-hard")


def group_means(findings: Findings, outcome: PolicyOutcome) -> list[float]:
    """The accuracy of a policy in each group."""
    return [float(outcome.score[findings.mask(group)].mean()) for group in findings.group_names]


def draw_radar(canvas: Any, findings: Findings, palette: Palette) -> None:
    """Accuracy by group; bars where there are fewer than three."""
    names, shown = findings.group_names, [name for name in RADAR if name in findings.outcomes]
    colours = dict(zip(RADAR, (palette.accent, palette.other, palette.medium, palette.hard), strict=True))
    if len(names) < 3:
        axes = canvas.subplots()
        for i, name in enumerate(shown):
            places = np.arange(len(names)) + 0.8 * (i - (len(shown) - 1) / 2) / len(shown)
            height = group_means(findings, findings.outcomes[name])
            axes.bar(places, height, 0.7 / len(shown), color=colours[name], label=label(name))
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel("accuracy")
    else:
        axes = canvas.add_subplot(projection="polar")
        turns = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
        for name in reversed(shown):
            values, ours = group_means(findings, findings.outcomes[name]), name == "odar"
            around = [*turns, turns[0]], [*values, values[0]]
            style = "-" if ours else (0, (4, 2)) if name == "single-fast" else (0, (1, 1.5))
            axes.plot(
                *around, color=colours[name], linewidth=2.2 if ours else 1.5, linestyle=style, label=label(name)
            )
            if ours:
                axes.fill(*around, color=colours[name], alpha=0.12, linewidth=0)
        axes.set_xticks(turns, names)
        axes.tick_params(axis="x", labelcolor=palette.ink, pad=6)
        for text, turn in zip(axes.get_xticklabels(), turns, strict=True):
            side = round(float(np.sin(turn)), 6)  # names grow away from the circle
            text.set_horizontalalignment("left" if side > 0 else "right" if side < 0 else "center")
        most = max(max(group_means(findings, findings.outcomes[name])) for name in shown)
        top = next(limit for limit in (0.25, 0.5, 0.75, 1.0) if most <= limit)
        axes.set_ylim(0, top)
        axes.set_yticks([top / 2, top], [f"{top / 2:g}", f"{top:g}"])
        axes.spines["polar"].set_color(palette.grid)
        axes.set_theta_offset(np.pi / 2)
        axes.set_theta_direction(-1)
    canvas.legend(loc="outside lower center", ncols=4)


def radar_rows(findings: Findings) -> Rows:
    """Policy by group."""
    shown = [name for name in RADAR if name in findings.outcomes]
    head: Rows = [("policy", *findings.group_names)]
    return head + [(name, *group_means(findings, findings.outcomes[name])) for name in shown]


def draw_mix(canvas: Any, findings: Findings, palette: Palette) -> None:
    """Shares of the paths by group."""
    axes = canvas.subplots()
    rows = mix_rows(findings)[1:]
    colours, inks = (palette.simple, palette.medium, palette.hard), ("#1b2330", "#ffffff", "#ffffff")
    for y, row in enumerate(reversed(rows)):
        start = 0.0
        for share, colour, ink in zip(row[1:4], colours, inks, strict=True):
            axes.barh(y, share, 0.62, left=start, color=colour)
            if share >= 0.08:
                axes.text(start + share / 2, y, f"{share:.0%}", ha="center", va="center", fontsize=8, color=ink)
            start += share
    axes.set_yticks(range(len(rows)), [row[0] for row in reversed(rows)])
    axes.tick_params(axis="y", labelcolor=palette.ink, length=0)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
    axes.grid(visible=False)
    handles = [patch(colour) for colour in colours]
    canvas.legend(handles, PATHS, loc="outside lower center", ncols=3)


def mix_rows(findings: Findings) -> Rows:
    """Group, then shares of Simple, Medium and Hard."""
    path = findings.odar.path
    rows: Rows = [("group", *PATHS), ("all", *findings.odar.mix)]
    for group in findings.group_names:
        shares = np.bincount(path[findings.mask(group)], minlength=3) / findings.mask(group).sum()
        rows.append((group, *map(float, shares)))
    return rows
