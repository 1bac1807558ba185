"""How accuracy moves with the number of samples and with each setting (SPEC 7.3)."""

from __future__ import annotations

from typing import Any

from odar.evals.replay.policies import SIZES
from odar.evals.report.draw import Rows
from odar.evals.report.figures.common import label
from odar.evals.report.findings import Findings
from odar.evals.report.palette import Palette


def curve_rows(findings: Findings) -> Rows:
    """n, then accuracy of each way to use n samples."""
    names = {"odar": "odar:n", "self-consistency": "self-consistency:k", "best-of-n": "best-of-n:n"}
    sizes = [n for n in SIZES if n <= findings.arrays.samples]
    head: Rows = [("n", *names)]
    return head + [
        (n, *(float(findings.outcomes[f"{spec}={n}"].score.mean()) for spec in names.values())) for n in sizes
    ]


def draw_curve(canvas: Any, findings: Findings, palette: Palette) -> None:
    """Accuracy by the number of slow samples."""
    head, *rows = curve_rows(findings)
    axes = canvas.subplots()
    for i, (name, colour) in enumerate(
        zip(head[1:], (palette.accent, palette.medium, palette.hard), strict=True), start=1
    ):
        axes.plot([row[0] for row in rows], [row[i] for row in rows], "o-", color=colour, label=label(f"{name}:=n"))
    axes.set_xticks([row[0] for row in rows])
    axes.set_xlabel("slow samples, n")
    axes.set_ylabel("accuracy")
    axes.margins(y=0.2)
    canvas.legend(["ODAR (Hard path)", "self-consistency", "best of n"], loc="outside lower center", ncols=3)


def sweep_rows(findings: Findings) -> Rows:
    """Sweep, value, accuracy, calls."""
    rows: Rows = [("sweep", "value", "accuracy", "calls")]
    for sweep in ("beta", "lambda", "tau"):
        for outcome in findings.suite(f"sweep-{sweep}"):
            value = outcome.name.partition(":")[2].replace(",mode=prior,statistics=panel", "")
            rows.append((sweep, value, float(outcome.score.mean()), float(outcome.calls.mean())))
    return rows


def draw_sweeps(canvas: Any, findings: Findings, palette: Palette) -> None:
    """Accuracy by β and by λ, and over the grid of thresholds."""
    from matplotlib.patches import Rectangle

    beta, lam, grid = canvas.subplots(1, 3)
    rows = sweep_rows(findings)[1:]
    for axes, sweep, title in (
        (beta, "beta", "β of the answer free energy"),
        (lam, "lambda", "λ of the varentropy"),
    ):
        mine = [row for row in rows if row[0] == sweep]
        axes.plot(range(len(mine)), [row[2] for row in mine], "o-", color=palette.accent)
        names = [row[1].partition("=")[2].replace("inf", "∞") for row in mine]
        axes.set_xticks(range(len(mine)), names)
        axes.set_title(title)
        axes.margins(y=0.4)
    for _, value, accuracy, calls in (row for row in rows if row[0] == "tau"):
        low, high = (float(part.partition("=")[2]) for part in value.split(","))
        box = Rectangle((low - 0.045, high - 0.042), 0.09, 0.084, color=palette.simple, alpha=0.4, linewidth=0)
        grid.add_patch(box)
        grid.text(low, high, f"{accuracy:.3f}\n{calls:.1f} calls", ha="center", va="center", fontsize=7.5)
    grid.set_title("τ1 across, τ2 up")
    grid.set_xticks([0.2, 0.3, 0.4])
    grid.set_yticks([0.6, 0.7, 0.8])
    grid.set_xlim(0.14, 0.46)
    grid.set_ylim(0.54, 0.86)
    grid.grid(visible=False)
