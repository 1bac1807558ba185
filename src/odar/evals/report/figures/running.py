"""How long answers take, and why some are wrong (SPEC 7.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from odar.evals.report.draw import Rows
from odar.evals.report.figures.common import PATHS, patch
from odar.evals.report.findings import Findings
from odar.evals.report.palette import Palette
from odar.evals.taxonomy import KINDS


def latency_rows(findings: Findings) -> Rows:
    """Path and seconds of every item."""
    odar = findings.odar
    head: Rows = [("path", "seconds")]
    return head + [(PATHS[path], float(seconds)) for path, seconds in zip(odar.path, odar.seconds, strict=True)]


def draw_latency(canvas: Any, findings: Findings, palette: Palette) -> None:
    """How long answers take, by path."""
    axes, odar = canvas.subplots(), findings.odar
    edges = np.linspace(0, max(float(odar.seconds.max()), 0.1), 31)
    parts = [odar.seconds[odar.path == path] for path in range(3)]
    axes.hist(parts, bins=edges, stacked=True, color=[palette.simple, palette.medium, palette.hard])
    median, tail = np.percentile(odar.seconds, [50, 95])
    for value, text, down in ((median, f"median {median:.1f} s", -10), (tail, f"95% {tail:.1f} s", -22)):
        axes.axvline(value, color=palette.ink, linewidth=1, linestyle=(0, (3, 2)))
        place = {"xycoords": ("data", "axes fraction"), "xytext": (4, down), "textcoords": "offset points"}
        axes.annotate(text, (value, 1), fontsize=8, **place)
    axes.set_xlabel("seconds")
    axes.set_ylabel("items")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="x", visible=False)
    handles = [patch(colour) for colour in (palette.simple, palette.medium, palette.hard)]
    canvas.legend(handles, PATHS, loc="outside lower center", ncols=3)


def error_rows(findings: Findings) -> Rows:
    """Kind of error and how many."""
    head: Rows = [("kind", "errors")]
    return head + list(findings.errors.counts.items())


def draw_errors(canvas: Any, findings: Findings, palette: Palette) -> None:
    """How many errors of each kind."""
    axes = canvas.subplots()
    counts = findings.errors.counts
    total = max(1, sum(counts.values()))
    for y, (kind, count) in enumerate(reversed(counts.items())):
        axes.barh(y, count, 0.62, color=palette.other if kind in ("E5", "E6") else palette.accent)
        text = f"{count} ({count / total:.0%})"
        axes.annotate(text, (count, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(counts)), [f"{kind} {KINDS[kind].partition(':')[0]}" for kind in reversed(counts)])
    axes.tick_params(axis="y", labelcolor=palette.ink, length=0)
    axes.margins(x=0.18)
    axes.set_xlabel("errors")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", visible=False)
    handles = [patch(palette.accent), patch(palette.other)]
    canvas.legend(handles, ["ODAR's own", "the models'"], loc="outside lower center", ncols=2)
