"""Main results of a report: accuracy and cost by benchmark, category and policy (SPEC 7.5, 7.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from odar.lab.intervals import Interval
from odar.lab.replay.outcomes import Outcomes, equal_accuracy_cost, upper_hull
from odar.lab.report.draw import PATH_COLOURS, Colour, name_rows, path_legend
from odar.lab.report.exhibit import TEXTS, Exhibit, exhibit, policy_label
from odar.lab.report.findings import Findings
from odar.lab.router_quality import pearson
from odar.lab.statistics import (
    benjamini_hochberg,
    binomial_margin,
    fold_interval,
    mean_over_sets,
    summarize_policies,
)
from odar.policy.arrays import Array, Bools

STRATA = (("at least 90%", 0.9, 1.01), ("70 to 90%", 0.7, 0.9), ("below 70%", 0.0, 0.7))
"""Name and range of the accuracy of the fast agent, by which the paper groups benchmarks."""
CATEGORIES = (
    "Mathematics", "Commonsense", "Knowledge QA", "Multi-Hop", "Multimodal", "Advanced Cognition", "Coding",
    "Instruction",
)  # fmt: skip
"""The paper's eight categories, in its order; ARC-AGI-2 is outside them."""


def main_table(findings: Findings) -> list[Exhibit]:
    """A row for each benchmark, the mean of each category, and the mean over benchmarks (SPEC 7.7)."""
    names = [*findings.compared[1:], "odar"]
    masks = findings.benchmarks
    rows: list[list[Any]] = []
    for category, members in findings.categories.items():
        rows += [_benchmark_row(findings, names, name, [masks[name]], category) for name in members]
        if 1 < len(members) < len(masks):
            rows.append(_benchmark_row(findings, names, f"mean of {category}", [masks[name] for name in members]))
    if len(masks) > 1:
        rows.append(_benchmark_row(findings, names, "mean of benchmarks", list(masks.values())))
    words = {"policies": "; ".join(map(policy_label, names)), "consistency": policy_label(findings.consistency)}
    return [exhibit("main", rows, words=words)]


def _benchmark_row(
    findings: Findings, policies: Sequence[str], name: str, masks: Sequence[Bools], category: str = ""
) -> list[Any]:
    odar = findings.odar
    means = [float(np.mean([findings.outcomes[each].score[mask].mean() for mask in masks])) for each in policies]
    gains: list[Interval | float] = []
    for other in (findings.outcomes["single-fast"], findings.outcomes[findings.consistency]):
        own = [findings.gain(odar, other, mask).interval for mask in masks]
        gains.append(own[0] if len(own) == 1 else float(np.mean([each.value for each in own])))
    mix = np.mean([odar.rows(mask).mix for mask in masks], axis=0)
    calls = float(np.mean([odar.calls[mask].mean() for mask in masks]))
    return [name, category, int(np.sum(masks)), *means, *gains, calls, _mix(mix)]


def _mix(shares: Iterable[float]) -> str:
    return " / ".join(f"{100 * share:.0f}" for share in shares)


def dataset_table(findings: Findings) -> list[Exhibit]:
    """Each benchmark with margins of error and tests, and the mean over benchmarks (the paper's appendix Y).

    p-values of both policies are adjusted together, over all benchmarks.
    """
    masks = findings.benchmarks
    other = findings.outcomes[findings.consistency]
    shown = [findings.odar, findings.outcomes["paper"]]
    gains = [[findings.gain(each, other, mask) for mask in masks.values()] for each in shown]
    adjusted = iter(benjamini_hochberg([gain.p for own in gains for gain in own]))
    by_policy = [[(gain.interval, next(adjusted)) for gain in own] for own in gains]
    folds = np.array(findings.table.column("fold"))
    rows: list[list[Any]] = []
    for (name, mask), ours, paper in zip(masks.items(), *by_policy, strict=True):
        scores = findings.odar.score[mask]
        spread = fold_interval(scores, folds[mask])
        accuracy = float(scores.mean())
        paper_accuracy = float(shown[1].score[mask].mean())
        margins = [spread.high - spread.value, binomial_margin(accuracy, len(scores))]
        rows.append([name, len(scores), accuracy, *margins, *ours, paper_accuracy, *paper])
    if len(masks) > 1:
        accuracies = [mean_over_sets(findings.means(each)) for each in shown]
        over = [mean_over_sets([gain.interval.value for gain in own]) for own in gains]
        figures = [accuracies[0], None, None, over[0], None, accuracies[1], over[1], None]
        rows.append(["mean of benchmarks", len(findings.table), *figures])
    return [exhibit("datasets", rows, words={"consistency": policy_label(findings.consistency)})]


def policy_table(findings: Findings) -> list[Exhibit]:
    rows = []
    for row in findings.main:
        gain = row.gain and row.gain.interval
        figures = [row.accuracy, gain, row.adjusted, row.over_fixed, row.calls, row.tokens, 1000 * row.cost_usd]
        rows.append([policy_label(row.name), *figures, row.median_s, row.tail_s, row.efficiency, _mix(row.mix)])
    notes = [f"{policy_label(row.name)}: {row.note}." for row in findings.main if row.note]
    if findings.table.nominal:
        notes.append("Prices are nominal: that of a model without a price is set by its size.")
    return [exhibit("policies", rows, notes=notes)]


def frontier_table(findings: Findings) -> list[Exhibit]:
    """The cascade at several dials: against the fixed choices at equal dollars, and against slow alone.

    The paper's policy, the agents alone and self-consistency follow.
    """
    slow = findings.outcomes["single-slow"]
    curve = findings.suite("curve")
    shown = [*curve, *(findings.outcomes[name] for name in findings.compared[1:])]
    rows: list[list[Any]] = []
    for row in summarize_policies(findings.table, shown, slow):
        name = policy_label(row.name).removeprefix("cascade, ")
        figures = [row.accuracy.value, 1000 * row.cost_usd, row.cost_usd / slow.mean_usd, row.over_fixed]
        rows.append([name, *figures, row.gain and row.gain.interval])
    sentence = equal_accuracy_cost(curve, slow)
    return [exhibit("frontier", rows, notes=[f"{sentence[0].upper()}{sentence[1:]}."])]


def pareto(findings: Findings) -> list[Exhibit]:
    """Accuracy against calls, and against cost."""
    return [
        _pareto(findings, "calls", "calls per item", lambda outcome: outcome.calls),
        _pareto(findings, "money", "US$ per 1,000 items", lambda outcome: 1000 * outcome.cost_usd),
    ]


def _pareto(findings: Findings, key: str, axis: str, price: Callable[[Outcomes], Array]) -> Exhibit:
    def place(outcome: Outcomes) -> tuple[float, float]:
        return float(price(outcome).mean()), outcome.mean_score

    points = {row.name: place(findings.outcomes[row.name]) for row in findings.main if row.name != "oracle"}
    curve = sorted({place(outcome) for outcome in findings.suite("curve")})
    rows = [[policy_label(name), y, x] for name, (x, y) in points.items()]
    rows += [["ODAR, other dials", y, x] for x, y in curve]

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        hull = upper_hull([place(outcome) for outcome in findings.suite("fixed")])
        edge = [*hull, (1.12 * max(x for x, _ in points.values()), hull[-1][1])]
        axes.plot(*zip(*edge, strict=True), color=Colour.GRID, linewidth=2.5, zorder=1)
        axes.plot(*zip(*curve, strict=True), color=Colour.ACCENT, linewidth=1.5, alpha=0.7, zorder=2)
        for number, (name, point) in enumerate(points.items()):
            ours = name == "odar"
            colour = Colour.ACCENT if ours else Colour.OTHER
            filled = "none" if name == "oracle-router" else colour  # it needs the scores
            axes.scatter(
                *point, s=70 if ours else 40, color=filled, edgecolor=colour, marker=MARKERS[number % len(MARKERS)],
                label=policy_label(name), zorder=4 if ours else 3,
            )  # fmt: skip
        axes.set(xlabel=axis, ylabel="accuracy")
        axes.locator_params(axis="x", nbins=6)  # more figures would touch each other on a phone
        axes.set_xlim(left=0)
        axes.margins(y=0.12)
        canvas.legend(loc="outside lower center", ncols=3)

    return exhibit(f"pareto-{key}", rows, words={"price": key}, draw=draw, size=(4.9, 4.4))


MARKERS = "osD^v<>pP*XhdH8"
"""Shapes of the points, in the order of the policies."""


def published(_: Findings) -> list[Exhibit]:
    """The figures that only the paper has, of methods without available weights (SPEC 7.2)."""
    return [exhibit("published", TEXTS["published"]["rows"], folded=True)]


def accuracy_figure(findings: Findings) -> list[Exhibit]:
    """Accuracy by category, with a radar chart of the paper's eight if three of them were recorded."""
    shown = findings.compared
    means = [dict(zip(findings.benchmarks, findings.means(findings.outcomes[each]), strict=True)) for each in shown]
    rows: list[list[Any]] = [
        [category, len(members), *(float(np.mean([own[name] for name in members])) for own in means)]
        for category, members in findings.categories.items()
    ]
    missing = [category for category in CATEGORIES if category not in findings.categories]

    def draw(canvas: Any) -> None:
        colours = (Colour.ACCENT, Colour.HARD, Colour.OTHER, Colour.MEDIUM, Colour.SIMPLE)
        styles: dict[str, Any] = {"single-fast": (0, (4, 2)), "single-slow": (0, (1, 1.5))}
        axes = canvas.add_subplot(projection="polar")
        # a closed line for each policy
        angles = np.linspace(0, 2 * np.pi, len(CATEGORIES), endpoint=False)
        known = {row[0]: row[2:] for row in rows}
        for number, policy in reversed(list(enumerate(shown))):
            values = [known[category][number] if category in known else np.nan for category in CATEGORIES]
            closed = ([*angles, angles[0]], [*values, values[0]])  # a category without answers is a gap
            line = {"linewidth": 2.2 if policy == "odar" else 1.4, "linestyle": styles.get(policy, "-")}
            axes.plot(*closed, color=colours[number], label=policy_label(policy), marker="o", markersize=3, **line)
            if policy == "odar" and not missing:
                axes.fill(*closed, color=colours[number], alpha=0.12, linewidth=0)
        # the names of the categories around the circle, and the scale
        axes.set_xticks(angles, [name + "\n(not recorded)" * (name in missing) for name in CATEGORIES])
        axes.tick_params(axis="x", labelcolor=Colour.INK, pad=6)
        for text, angle in zip(axes.get_xticklabels(), angles, strict=True):
            side = int(np.sign(round(float(np.sin(angle)), 6)))  # names extend away from the circle
            text.set_horizontalalignment(("center", "left", "right")[side])
        most = max(0.1, *(max(values) for category, values in known.items() if category in CATEGORIES))
        axes.set_ylim(0, most)
        axes.set_yticks([most / 2, most], [f"{most / 2:.2f}", f"{most:.2f}"])
        axes.spines["polar"].set_color(Colour.GRID)
        axes.set_theta_offset(np.pi / 2)
        axes.set_theta_direction(-1)
        canvas.legend(loc="outside lower center", ncols=2)

    drawn = draw if len(CATEGORIES) - len(missing) >= 3 else None
    return [
        exhibit(
            "accuracy", rows, words={"policies": "; ".join(map(policy_label, shown))}, draw=drawn, size=(4.9, 4.4)
        )
    ]


def mix_figure(findings: Findings) -> list[Exhibit]:
    odar = findings.odar
    by_benchmark = [(name, odar.rows(mask)) for name, mask in findings.benchmarks.items()]
    shown = [("all", odar), *by_benchmark, ("all, by the paper's policy", findings.outcomes["paper"])]
    rows: list[list[Any]] = [[name, *each.mix, each.calls.mean()] for name, each in shown]

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        inks = ("#1b2330", "#ffffff", "#ffffff")
        for y, row in enumerate(rows):
            start = 0.0
            for share, colour, ink in zip(row[1:4], PATH_COLOURS.values(), inks, strict=True):
                axes.barh(y, share, 0.62, left=start, color=colour)
                if share >= 0.1:
                    place = {"ha": "center", "va": "center", "fontsize": 8.5, "color": ink}
                    axes.text(start + share / 2, y, f"{share:.0%}", **place)
                start += share
        name_rows(axes, [row[0] for row in rows])
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
        axes.grid(visible=False)
        path_legend(canvas)

    # whether harder benchmarks get more calls
    notes = []
    for name, outcome in (("ODAR", odar), ("the paper's policy", findings.outcomes["paper"])):
        if found := correlations_with_errors(findings, outcome):
            by_hard, by_calls = (f"{r:.2f}".replace("-", "−") for r in found)
            notes.append(
                f"Over benchmarks, r of the fast agent's error rate with the share of Hard is {by_hard}, "
                f"and with calls {by_calls} ({name})."
            )
    return [exhibit("mix", rows, draw=draw, size=(4.9, 1.3 + 0.32 * len(rows)), notes=notes)]


def correlations_with_errors(findings: Findings, outcome: Outcomes) -> tuple[float, float] | None:
    """Over benchmarks, r of the fast agent's error rate with the share of Hard and with calls.

    None for fewer than three benchmarks, and where all have the same calls.
    """
    masks = findings.benchmarks.values()
    calls = [float(outcome.calls[mask].mean()) for mask in masks]
    if len(calls) < 3 or len(set(calls)) == 1:
        return None
    failed = [1 - mean for mean in findings.means(findings.outcomes["single-fast"])]
    return pearson(failed, [outcome.rows(mask).mix[2] for mask in masks]), pearson(failed, calls)


def strata_table(findings: Findings) -> list[Exhibit]:
    """The gain by accuracy of the fast agent (the paper's difficulty strata)."""
    names = ["single-fast", "single-slow", "paper", findings.consistency, "odar"]
    means = np.array([findings.means(findings.outcomes[name]) for name in names])  # policies × benchmarks
    rows: list[list[Any]] = []
    for name, low, high in (*STRATA, ("all", 0.0, 1.01)):
        own = means[:, (means[0] >= low) & (means[0] < high)]
        if own.size:
            accuracy = own.mean(axis=1).tolist()
            rows.append([name, own.shape[1], *accuracy, accuracy[-1] - accuracy[0]])
    if len(rows) == 2:  # all benchmarks are in one stratum
        del rows[0]
    words = {"policies": "; ".join(map(policy_label, names))}
    return [exhibit("strata", rows, words=words, folded=means.shape[1] < 2)]
