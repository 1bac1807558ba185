"""What ODAR gained: by benchmark, category and policy, against what it costs (SPEC 7.5, 7.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from odar.evals.replay.simulate import PolicyOutcome
from odar.evals.report.draw import Column, Exhibit, Palette, colour_legend, columns_of, label, name_rows
from odar.evals.report.findings import STRATA, Findings, facets, frontier, macro
from odar.evals.router_quality import pearson
from odar.evals.statistics import known_mean
from odar.policy.path import path_shares
from odar.policy.rules import Array, Bools

PATHS = ("Simple", "Medium", "Hard")
PUBLISHED = (
    ("TOPS", "95.5", "92.5", "90.5", "3.4×"),
    ("Stop Spinning", "94.8", "92.0", "90.2", "4.1×"),
    ("ODAR, the paper's own", "98.2", "95.4", "94.2", "2.55×"),
)
"""MATH, BBH, MMLU-Pro and cost as the paper prints them: methods whose weights are not available (SPEC 7.2)."""
RADAR = ("odar", "single-fast", "single-slow", "always-hard")
MOST_SPOKES = 12
"""Benchmarks in a radar chart; bars if there are more, or fewer than three."""


def main_table(findings: Findings) -> Exhibit:
    """A row for each benchmark, the mean of each category, and the mean over benchmarks (SPEC 7.7)."""
    names = ["single-fast", "single-slow", "length-adaptive", findings.consistency, "odar"]
    columns = columns_of("benchmark |; category |; items | d")
    columns += [Column(label(name), ".3f") for name in names]
    columns += [Column("gain on fast", "+.3f"), Column(f"gain on {label(findings.consistency)}", "+.3f")]
    columns += [Column("calls", ".2f"), Column("S / M / H", "")]
    masks = findings.benchmarks
    rows: list[list[Any]] = [_benchmark_row(findings, names, [name], [mask]) for name, mask in masks.items()]
    marked: list[int] = []
    if len(masks) > 1:
        categories: dict[str, list[str]] = {}
        for name in masks:
            categories.setdefault(findings.category(name), []).append(name)
        ordered: list[list[Any]] = []
        for category, members in categories.items():
            ordered += [row for row in rows if row[0] in members]
            if len(members) > 1:
                marked.append(len(ordered))
                ordered.append(
                    _benchmark_row(findings, names, [f"mean of {category}"], [masks[m] for m in members])
                )
        marked.append(len(ordered))
        rows = [*ordered, _benchmark_row(findings, names, ["mean of benchmarks"], list(masks.values()))]
    caption = (
        "Accuracy of the fast and the slow agent alone, of other ways to use them, and of ODAR, with 95% intervals "
        "of the gains. Means are over benchmarks, each counting the same. Fewer than 10 items support no interval."
    )
    return Exhibit("main", "Every benchmark", caption, columns, rows, marked)


def _benchmark_row(
    findings: Findings, names: Sequence[str], name: Sequence[str], masks: Sequence[Bools]
) -> list[Any]:
    odar, single = findings.odar, len(masks) == 1 and not name[0].startswith("mean of")
    scores = [[findings.outcomes[each].score[mask] for mask in masks] for each in names]
    means = [float(np.mean([part.mean() for part in parts])) for parts in scores]
    gains = []
    for other in (findings.outcomes["single-fast"], findings.outcomes[findings.consistency]):
        if single:
            gains.append(findings.gain(odar, other, masks[0]).interval)
        else:
            gains.append(macro([odar.score[mask] - other.score[mask] for mask in masks]))
    together = np.logical_or.reduce(masks)
    mix = np.mean([path_shares(odar.path[mask]) for mask in masks], axis=0)
    calls = float(np.mean([odar.calls[mask].mean() for mask in masks]))
    category = findings.category(name[0]) if single else ""
    return [name[0], category, int(together.sum()), *means, *gains, calls, _mix(mix)]


def _mix(shares: Iterable[float]) -> str:
    return " / ".join(f"{100 * share:.0f}" for share in shares)


def policy_table(findings: Findings) -> Exhibit:
    """Every baseline beside ODAR, over all items."""
    money = any(row.cost_usd for row in findings.main)
    columns = columns_of("policy |; accuracy; gain on ODAR | +.3f; p, BH | p; calls | .2f; tokens | .0f")
    columns += columns_of("$/1000; " * money + "p50, s | .1f; p95, s | .1f; efficiency | +.2f; S / M / H |")
    rows = []
    for row in findings.main:
        price = [None if row.cost_usd is None else 1000 * row.cost_usd] if money else []
        gain = None if row.gain is None else row.gain.interval
        mix = "–" if np.isnan(row.mix[0]) else _mix(row.mix)
        rows.append(
            [
                label(row.name), row.accuracy, gain, row.adjusted, row.calls, row.tokens, *price, row.median_s,
                row.tail_s, row.efficiency, mix,
            ]
        )  # fmt: skip
    notes = [f"{label(row.name)}: {row.note}." for row in findings.main if row.note]
    caption = (
        "Over all items. p-values are adjusted together (Benjamini-Hochberg); efficiency is points of accuracy "
        "above the fast agent for each call."
    )
    return Exhibit("policies", "Every policy", caption, columns, rows, [0], notes=notes)


HINDSIGHT = "oracle-router"
"""Shown, but not part of the frontier: it needs the scores."""
AREA = (270.0, 205.0)
"""Typographic points that a plot takes up, roughly: only for placing labels."""
OFFSETS = [
    (reach * dx, dy, side)
    for reach in (7, 9)
    for dy in (6, -7, 15, -16, 24, -25)
    for dx, side in ((1, "left"), (-1, "right"))
]
"""Where a label may stand beside its point, the best places first."""


def pareto(findings: Findings) -> list[Exhibit]:
    """Accuracy against calls, and against money, or tokens where nothing costs or prices are unknown."""
    shown = [row.name for row in findings.main if row.name not in ("oracle", "cot")]
    prices: list[tuple[str, str, Callable[[PolicyOutcome], Array]]] = [
        ("calls", "calls an item", lambda o: o.calls)
    ]
    money = [known_mean(findings.outcomes[name].cost) for name in shown]
    if None not in money and any(money):
        prices.append(("money", "US$ per 1,000 items", lambda o: 1000 * o.cost))
    elif None not in [known_mean(findings.outcomes[name].tokens) for name in shown]:
        prices.append(("tokens", "generated tokens an item", lambda o: o.tokens))
    return [_pareto(findings, shown, *price) for price in prices]


def _pareto(
    findings: Findings, shown: list[str], key: str, axis: str, price: Callable[[PolicyOutcome], Array]
) -> Exhibit:
    def place(outcome: PolicyOutcome) -> tuple[float, float]:
        return float(price(outcome).mean()), float(outcome.score.mean())

    points = [place(findings.outcomes[name]) for name in shown]
    curve = sorted({place(outcome) for outcome in findings.suite("curve")})
    rows = [[label(name), y, x] for name, (x, y) in zip(shown, points, strict=True)]
    rows += [["ODAR, other τ", y, x] for x, y in curve]

    def draw(canvas: Any, palette: Palette) -> None:
        axes = canvas.subplots()
        real = [point for name, point in zip(shown, points, strict=True) if name != HINDSIGHT]
        best = [real[i] for i in frontier(real)]
        right = 1.12 * max(x for x, _ in points)
        edge = [*best, (right, best[-1][1])]
        axes.step(*zip(*edge, strict=True), where="post", color=palette.grid, linewidth=2.5, zorder=1)
        axes.plot(*zip(*curve, strict=True), color=palette.accent, linewidth=1.5, alpha=0.7, zorder=2)
        for name, (x, y) in zip(shown, points, strict=True):
            ours, hollow = name == "odar", name == HINDSIGHT
            colour = palette.accent if ours else palette.other
            axes.scatter(x, y, s=70 if ours else 30, color="none" if hollow else colour, edgecolor=colour, zorder=3)
        low, high = min(y for _, y in points), max(y for _, y in points)
        bottom, top = low - 0.12 * (high - low) - 0.01, high + 0.12 * (high - low) + 0.01

        def scaled(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
            return [(AREA[0] * x / right, AREA[1] * (y - bottom) / (top - bottom)) for x, y in places]

        members: dict[tuple[int, int], list[int]] = {}
        for i, (x, y) in enumerate(scaled(points)):
            members.setdefault((round(x / 4), round(y / 4)), []).append(i)
        firsts = [points[own[0]] for own in members.values()]
        texts = [_shared_label([label(shown[i]) for i in own]) for own in members.values()]
        for own, text, (dx, dy, side) in zip(
            members.values(), texts, place_labels(scaled(firsts), texts, scaled(curve)), strict=True
        ):
            ours, point = "odar" in [shown[i] for i in own], points[own[0]]
            axes.annotate(
                text, point, xytext=(dx, dy), textcoords="offset points", ha=side, va="center", fontsize=8.5,
                color=palette.accent if ours else palette.ink, fontweight="bold" if ours else "normal",
            )  # fmt: skip
        axes.set(xlabel=axis, ylabel="accuracy", xlim=(0, right), ylim=(bottom, top))

    caption = (
        "The grey line joins what nothing cheaper matches; the thin line is ODAR with other thresholds, from "
        "Simple for all to Hard for all. CoT is the slow agent alone; the oracle router knows the scores. "
        "Policies at the same point share a label."
    )
    columns = [*columns_of("policy |; accuracy"), Column(key, ".3f")]
    return Exhibit(f"pareto-{key}", f"Accuracy against {key}", caption, columns, rows, [0], draw)


def _shared_label(names: Sequence[str]) -> str:
    """Return the label of policies at the same point.

    >>> _shared_label(["ODAR"]), _shared_label(["ODAR", "always hard"]), _shared_label(["a", "b", "c"])
    ('ODAR', 'ODAR = always hard', 'a and 2 more')
    """
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 2 else " = ".join(names)


def place_labels(
    points: Sequence[tuple[float, float]], names: Iterable[str], line: Sequence[tuple[float, float]] = ()
) -> list[tuple[float, float, str]]:
    """Offset and side of each label, such that as few as possible lie on one another, on a point or on a line.

    Args:
        points: in typographic points.
        names: the labels.
        line: the corners of a line, from left to right.
    """
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    if line:
        steps = np.linspace(line[0][0], line[-1][0], 60)
        heights = np.interp(steps, [x for x, _ in line], [y for _, y in line])
        taken += [(x - 3, y - 1, x + 3, y + 1) for x, y in zip(steps.tolist(), heights.tolist(), strict=True)]
    found = []
    for (x, y), name in zip(points, names, strict=True):
        width = 5.2 * len(name)
        best: tuple[float, tuple[float, float, str], tuple[float, float, float, float]] | None = None
        for dx, dy, side in OFFSETS:
            start = x + dx - {"left": 0.0, "right": width}[side]
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


def published() -> Exhibit:
    """What only others have measured."""
    columns = [*columns_of("published only |"), *(Column(n, "") for n in ("MATH", "BBH", "MMLU-Pro", "cost"))]
    caption = (
        "As the paper prints them: trained methods whose weights are not available, with other models than here."
    )
    return Exhibit("published", "Published figures", caption, columns, PUBLISHED, folded=True)


def accuracy_figure(findings: Findings) -> Exhibit:
    """Accuracy by benchmark; a radar chart if there are a few of them."""
    names, shown = list(findings.benchmarks), [name for name in RADAR if name in findings.outcomes]
    values = {name: findings.means(findings.outcomes[name]) for name in shown}
    rows = [[name, *(values[policy][i] for policy in shown)] for i, name in enumerate(names)]

    def draw(canvas: Any, palette: Palette) -> None:
        colours = dict(zip(RADAR, (palette.accent, palette.other, palette.medium, palette.hard), strict=True))
        if not 3 <= len(names) <= MOST_SPOKES:
            axes, count = canvas.subplots(), len(shown)
            for i, policy in enumerate(shown):
                places = np.arange(len(names)) + 0.8 * (i - (count - 1) / 2) / count
                axes.barh(places, values[policy], 0.7 / count, color=colours[policy], label=label(policy))
            name_rows(axes, palette, names)
            axes.set_xlabel("accuracy")
        else:
            axes = canvas.add_subplot(projection="polar")
            turns = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
            for policy in reversed(shown):
                ours, around = policy == "odar", ([*turns, turns[0]], [*values[policy], values[policy][0]])
                style: Any = {"single-fast": (0, (4, 2)), "single-slow": (0, (1, 1.5))}.get(policy, "-")
                width = 2.2 if ours else 1.4
                axes.plot(*around, color=colours[policy], linewidth=width, linestyle=style, label=label(policy))
                if ours:
                    axes.fill(*around, color=colours[policy], alpha=0.12, linewidth=0)
            axes.set_xticks(turns, names)
            axes.tick_params(axis="x", labelcolor=palette.ink, pad=6)
            for text, turn in zip(axes.get_xticklabels(), turns, strict=True):
                side = round(float(np.sin(turn)), 6)  # names grow away from the circle
                text.set_horizontalalignment("left" if side > 0 else "right" if side < 0 else "center")
            most = max(max(each) for each in values.values())
            top = next(limit for limit in (0.25, 0.5, 0.75, 1.0) if most <= limit)
            axes.set_ylim(0, top)
            axes.set_yticks([top / 2, top], [f"{top / 2:g}", f"{top:g}"])
            axes.spines["polar"].set_color(palette.grid)
            axes.set_theta_offset(np.pi / 2)
            axes.set_theta_direction(-1)
        canvas.legend(loc="outside lower center", ncols=2)

    columns = [*columns_of("benchmark |"), *(Column(label(policy)) for policy in shown)]
    caption = "ODAR beside its two agents alone and the Hard path for all."
    height = 4.4 if 3 <= len(names) <= MOST_SPOKES else 1.5 + 0.5 * len(names)
    return Exhibit("accuracy", "Accuracy by benchmark", caption, columns, rows, draw=draw, size=(4.9, height))


def mix_figure(findings: Findings) -> Exhibit:
    """The share of each path by benchmark, and how it follows difficulty."""
    odar, masks = findings.odar, findings.benchmarks
    rows: list[list[Any]] = [["all", *odar.mix, float(odar.calls.mean())]]
    for name, mask in masks.items():
        rows.append([name, *path_shares(odar.path[mask]), float(odar.calls[mask].mean())])

    def draw(canvas: Any, palette: Palette) -> None:
        axes = canvas.subplots()
        colours, inks = (palette.simple, palette.medium, palette.hard), ("#1b2330", "#ffffff", "#ffffff")
        for y, row in enumerate(rows):
            start = 0.0
            for share, colour, ink in zip(row[1:4], colours, inks, strict=True):
                axes.barh(y, share, 0.62, left=start, color=colour)
                if share >= 0.1:
                    axes.text(
                        start + share / 2, y, f"{share:.0%}", ha="center", va="center", fontsize=8.5, color=ink
                    )
                start += share
        name_rows(axes, palette, [row[0] for row in rows])
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
        axes.grid(visible=False)
        colour_legend(canvas, colours, PATHS)

    notes = []
    if len(masks) > 2:
        failed = [1 - float(findings.outcomes["single-fast"].score[mask].mean()) for mask in masks.values()]
        hard, calls = [row[3] for row in rows[1:]], [row[4] for row in rows[1:]]
        by_hard, by_calls = pearson(failed, hard), pearson(failed, calls)
        notes = [
            f"Over benchmarks, r of the fast agent's error rate with the share of Hard is {by_hard:.2f}, "
            f"and with calls {by_calls:.2f}."
        ]
    columns = [*columns_of("benchmark |"), *(Column(path, ".0%") for path in PATHS), *columns_of("calls | .2f")]
    return Exhibit(
        "mix", "Paths by benchmark", "What share of each benchmark took which path.", columns, rows, [0], draw,
        (4.9, 1.3 + 0.32 * len(rows)), notes,
    )  # fmt: skip


def strata_table(findings: Findings) -> Exhibit:
    """Benchmarks by how often the fast agent is right on them (the paper's difficulty strata)."""
    fast, odar = findings.means(findings.outcomes["single-fast"]), findings.means(findings.odar)
    rows: list[list[Any]] = []
    for name, low, high in STRATA:
        places = [i for i, value in enumerate(fast) if low <= value < high]
        if places:
            base, ours = (float(np.mean([values[i] for i in places])) for values in (fast, odar))
            rows.append([name, len(places), base, ours, ours - base])
    base, ours = float(np.mean(fast)), float(np.mean(odar))
    rows.append(["all", len(fast), base, ours, ours - base])
    columns = columns_of("fast agent right |; benchmarks | d; fast; ODAR; gain | +.3f")
    caption = "Benchmarks by the accuracy of the fast agent, each counting the same."
    return Exhibit("strata", "By difficulty", caption, columns, rows, [len(rows) - 1], folded=len(fast) < 2)


def details(findings: Findings) -> list[Exhibit]:
    """Each benchmark by its own subjects or levels, on demand."""
    found = []
    for name, mask in findings.benchmarks.items():
        strata = [stratum for stratum, own in zip(findings.arrays.items.stratum, mask, strict=True) if own]
        for number, column in enumerate(facets(strata)):
            values = sorted(set(column))
            if len(values) < 2:
                continue
            rows = []
            for value in values:
                places = np.flatnonzero(mask)[[each == value for each in column]]
                means = [
                    float(findings.outcomes[p].score[places].mean()) for p in ("single-fast", "single-slow", "odar")
                ]
                mix = path_shares(findings.odar.path[places])
                rows.append([value, len(places), *means, float(findings.odar.calls[places].mean()), _mix(mix)])
            columns = [Column(name, ""), Column("items", "d"), Column("fast"), Column("slow"), Column("ODAR")]
            columns += [Column("calls", ".2f"), Column("S / M / H", "")]
            kind = f"{name}-{number + 1}"
            found.append(
                Exhibit(
                    f"by-{kind}",
                    f"{name}, {len(values)} groups",
                    "By subject or level.",
                    columns,
                    rows,
                    folded=True,
                )
            )
    return found
