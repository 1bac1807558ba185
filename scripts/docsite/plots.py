"""Draw the figures of the concept pages as SVG, in colours for light and dark backgrounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from docsite.figures import FIGURES, Data, digest
from docsite.markdown import ROOT

FOLDER = ROOT / "docs" / "images" / "concepts"
INK = "#80808a"
BLUE, ORANGE, GREEN, PURPLE = "#4c8df6", "#e2803b", "#2fa574", "#a273e8"
TAU1, TAU2 = 0.3, 0.7
STYLE = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "odar",
    "font.family": ["sans-serif"],
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def write_plots() -> Iterator[str]:
    """Draw every figure whose numbers have changed; yields their names."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, numbers in FIGURES.items():
        path, data = FOLDER / f"{name}.svg", numbers()
        if not path.exists() or drawn_from(path.read_text(encoding="utf-8")) != digest(data):
            with matplotlib.rc_context(STYLE):
                figure = DRAWINGS[name](data)
                figure.savefig(
                    path, metadata={"Date": None, "Creator": None, "Description": f"odar {digest(data)}"}
                )
            path.write_text(
                "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()) + "\n"
            )
            yield str(path.relative_to(ROOT))


def drawn_from(svg: str) -> str:
    """The digest of the numbers that a drawing was made from."""
    found = re.search(r"odar ([0-9a-f]{16})", svg)
    return found[1] if found else ""


def _difficulty(data: Data) -> Figure:
    figure = Figure(figsize=(8, 3.1))
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    names = list(data["difficulty"])[::-1]
    values = [data["difficulty"][name] for name in names]
    _paths(left, vertical=True)
    left.hlines(range(len(names)), 0, values, colors=INK, linewidth=1, alpha=0.5)
    left.scatter(values, range(len(names)), color=[_path_colour(v) for v in values], zorder=3, s=42)
    left.set_yticks(range(len(names)), names)
    left.set(xlim=(0, 1), ylim=(-0.6, len(names) - 0.1), xlabel="difficulty d(x)", title="Six questions")
    parts = list(data["contributions"].items())[::-1]
    right.barh([n for n, _ in parts], [v for _, v in parts], color=[ORANGE if v > 0 else BLUE for _, v in parts])
    right.axvline(0, color=INK, linewidth=1)
    right.set(xlabel="W·φ: easier ← 0 → harder")
    right.set_title("What moves the equation", loc="right")
    return figure


def _free_energy(data: Data) -> Figure:
    figure = Figure(figsize=(8, 2.9))
    for axes, (name, each) in zip(figure.subplots(1, 2, sharey=False), data.items(), strict=True):
        edges = [i * 0.04 for i in range(21)]
        for kind, colour in (("wrong", ORANGE), ("right", BLUE)):
            axes.hist(
                [min(f, 0.799) for f in each[kind]],
                bins=edges,
                density=True,
                color=colour,
                alpha=0.55,
                label=f"{kind} ({len(each[kind])})",
            )
        axes.set(
            xlabel="free energy F (the last bar: all above)",
            yticks=[],
            title=f"{name}: 200 questions, 6 candidates each",
        )
        axes.spines["left"].set_visible(False)
        axes.legend()
    return figure


def _tokens(data: Data) -> Figure:
    figure = Figure(figsize=(8, 4.0))
    for axes, (name, colour) in zip(figure.subplots(2, 1), (("right", BLUE), ("wrong", ORANGE)), strict=True):
        each = data[name]
        texts = [text.replace("\n", "⏎").strip() or "␣" for text, _ in each["tokens"]]
        axes.bar(range(len(texts)), [-value for _, value in each["tokens"]], color=colour, width=0.8)
        axes.set_xticks(range(len(texts)), texts, fontsize=8)
        title = f"{name} answer: E = {each['E']:.3f}, V = {each['V']:.2f}, F = E + 0.1·V = {each['F']:.3f}"
        axes.set(ylabel="−log p", ylim=(0, 4), title=title)
    return figure


def _answer_energy(data: Data) -> Figure:
    figure = Figure(figsize=(8, 3.1))
    left, right = figure.subplots(1, 2)
    places = list(range(len(data["betas"]) + 1))
    labels = [f"{beta:g}" for beta in data["betas"]]
    shares = data["share of the answer three agree on"]
    left.plot(places[:-1], shares, color=BLUE, marker="o", label="the answer three agree on")
    left.plot(places[:-1], [1 - share for share in shares], color=ORANGE, marker="o", label="the surest candidate")
    left.axhline(0.5, color=INK, linewidth=1, linestyle=":")
    left.set_xticks(places[:-1], labels)
    left.set(xlabel="β", ylabel="weight", ylim=(0, 1.1), title="One vote, seen by different β")
    left.legend(loc="upper left", fontsize=9)
    for (name, values), colour in zip(data["accuracy"].items(), (GREEN, PURPLE), strict=True):
        right.plot(places, values, color=colour, marker="o", label=f"{name} (200 questions)")
    right.set_xticks(places, [*labels, "∞"])
    right.set(
        xlabel="β (0: majority, ∞: the paper's argmin)",
        ylabel="accuracy",
        ylim=(0.3, 0.7),
        title="Recorded answers, local model",
    )
    right.legend(loc="upper left")
    return figure


def _paths(axes: Axes, *, vertical: bool) -> None:
    """The three paths as bands."""
    span = axes.axvspan if vertical else axes.axhspan
    for low, high, colour, name in (
        (0, TAU1, GREEN, "simple"),
        (TAU1, TAU2, BLUE, "medium"),
        (TAU2, 1, ORANGE, "hard"),
    ):
        span(low, high, color=colour, alpha=0.12, linewidth=0)
        middle: tuple[Any, ...] = ((low + high) / 2, 1.0) if vertical else (1.01, (low + high) / 2)
        transform = axes.get_xaxis_transform() if vertical else axes.get_yaxis_transform()
        axes.text(
            *middle,
            name,
            transform=transform,
            ha="center" if vertical else "left",
            va="top" if vertical else "center",
            fontsize=9,
        )


def _path_colour(value: float) -> str:
    return GREEN if value < TAU1 else BLUE if value < TAU2 else ORANGE


DRAWINGS: dict[str, Callable[[Data], Figure]] = {
    "answer-energy": _answer_energy,
    "difficulty": _difficulty,
    "free-energy": _free_energy,
    "tokens": _tokens,
}
