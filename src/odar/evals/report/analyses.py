"""Why ODAR did so: ablations, settings, robustness, cost, errors, router quality, and how sure all that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from odar.calibration.bootstrap import Interval
from odar.evals.replay.policies import POSTERIOR, SIZES
from odar.evals.replay.simulate import always
from odar.evals.report.draw import Column, Exhibit, Palette, colour_legend, columns_of, label, line_chart, name_rows
from odar.evals.report.findings import KINDS, Findings, Routers
from odar.evals.report.results import PATHS, RADAR
from odar.evals.router_quality import gap_recovered
from odar.evals.statistics import known_mean, show_p
from odar.policy.path import HARD

ABLATIONS = {
    "always-hard": "no estimator: always Hard",
    "always-medium": "rules only: always Medium",
    "single-fast": "no slow agent",
    "odar:rule=none": "no fusion: first slow answer",
    "odar:dispatch=off": "expert and model router off",
    "odar:statistics=panel": "z-score by own μ and σ",
    "odar:statistics=none": "z-score off",
    "odar:mode=prior": "prior routing",
    "odar:mode=posterior": "posterior routing",
    POSTERIOR: "posterior by own μ and σ",
    "odar:stop=none": "every sample, no early stop",
    "odar:stop=0.8": "early stop",
    "odar:estimator=length": "difficulty by length",
}


def ablations(findings: Findings) -> list[Exhibit]:
    """What each part of ODAR is worth: over all items, and by benchmark (SPEC 7.3)."""
    odar = findings.odar
    base = np.array(findings.means(odar))
    rows: list[list[Any]] = []
    by_benchmark: list[list[Any]] = []
    for outcome in findings.suite("ablations"):
        change = findings.gain(outcome, odar).interval
        calls, name = float(outcome.calls.mean()), ABLATIONS.get(outcome.name, outcome.name)
        rows.append([name, change, calls, calls / float(odar.calls.mean())])
        by_benchmark.append([name, *(100 * (np.array(findings.means(outcome)) - base)).tolist(), calls])
    for each in findings.variants:
        ratio = each.calls / float(odar.calls.mean())
        rows.append([f"{each.name} ({each.items} items)", each.change.interval, each.calls, ratio])

    def draw(canvas: Any, palette: Palette) -> None:
        axes = canvas.subplots()
        for y, (_, change, _, ratio) in enumerate(rows):
            value = 100 * change.value
            axes.barh(y, value, 0.6, color=palette.good if value > 0 else palette.bad, alpha=0.85)
            if not np.isnan(change.low):
                axes.plot([100 * change.low, 100 * change.high], [y, y], color=palette.muted, linewidth=1)
            axes.annotate(f"{ratio:.2f}×", (1, y), xycoords=("axes fraction", "data"), xytext=(4, 0),
                          textcoords="offset points", va="center", fontsize=8, color=palette.muted)  # fmt: skip
        axes.axvline(0, color=palette.muted, linewidth=0.8)
        name_rows(axes, palette, [str(row[0])[:34] for row in rows])
        axes.set_xlabel("points of accuracy; right: calls, ODAR = 1")

    columns = columns_of("ablation |; change of accuracy | +.3f; calls | .2f; calls, ODAR = 1 | .2f")
    found = [
        Exhibit(
            "ablations", "What each part is worth",
            "Change of accuracy against ODAR with its 95% interval, and calls as a multiple of ODAR's.",
            columns, rows, draw=draw, size=(4.9, 1.2 + 0.27 * len(rows)),
        )
    ]  # fmt: skip
    if len(findings.benchmarks) > 1:
        heat = [Column("ablation", ""), *(Column(name, "+.1f", heat=True) for name in findings.benchmarks)]
        caption = "Change of accuracy against ODAR in points."
        found.append(Exhibit("matrix", "By benchmark", caption, [*heat, Column("calls", ".2f")], by_benchmark))
    return found


def fusion_table(findings: Findings) -> Exhibit:
    """ODAR's routing with each fusion rule (SPEC 5.9)."""
    rows: list[list[Any]] = []
    for outcome in findings.suite("fusion-rules"):
        hard = outcome.path == 2
        within = float(outcome.score[hard].mean()) if hard.any() else None
        rows.append([outcome.name.partition("=")[2], float(outcome.score.mean()), within])
    for row in rows:
        forced = always(findings.arrays, replace(findings.setting, rule=row[0]), HARD)
        row.append(float(forced.score.mean()))
    marked = [i for i, row in enumerate(rows) if row[0] == findings.setting.rule]
    columns = columns_of("fusion rule |; accuracy; on the Hard path; Hard path for all")
    caption = (
        "ODAR with another rule, over all items, on those that took the Hard path, and with the Hard path for all."
    )
    return Exhibit("fusion", "Fusion rules", caption, columns, rows, marked)


def features(findings: Findings) -> list[Exhibit]:
    """The estimator trained again without each group of features."""
    if isinstance(findings.features, str):
        return []
    rows = [[row.name, row.pearson, row.routing_accuracy, row.accuracy, row.calls] for row in findings.features]
    columns = columns_of("estimator |; r with d* | .2f; routing accuracy | .1%; accuracy; calls | .2f")
    caption = (
        "Routing by the question alone. Each estimator is trained on the other folds of this recording, starting "
        "from the shipped one. Routing accuracy: share of items on the cheapest path that answers best."
    )
    return [Exhibit("features", "Groups of features", caption, columns, rows, [0])]


def curve_figure(findings: Findings) -> Exhibit:
    """Accuracy by the number of slow samples."""
    names = {"ODAR": "odar:n", "self-consistency": "self-consistency:k", "best of n": "best-of-n:n"}
    sizes = [n for n in SIZES if n <= findings.arrays.samples]
    rows = [
        [n, *(each.score.mean() for each in (findings.outcomes[f"{spec}={n}"] for spec in names.values()))]
        for n in sizes
    ]

    colours = ("accent", "medium", "hard")
    lines = {name: ([row[i + 1] for row in rows], colours[i], "-") for i, name in enumerate(names)}
    draw = line_chart("slow samples, n", "accuracy", sizes, lines)
    columns = [*columns_of("n | d"), *(Column(name) for name in names)]
    return Exhibit("best-of-n", "More samples", "Accuracy by the number of slow samples.", columns, rows, draw=draw)


def sweeps(findings: Findings) -> list[Exhibit]:
    """ODAR with one setting changed."""
    titles = {"beta": "β of the answer free energy", "lambda": "λ of the varentropy", "tau": "τ1 and τ2"}
    found = []
    for sweep, title in titles.items():
        rows: list[list[Any]] = []
        for outcome in findings.suite(f"sweep-{sweep}"):
            value = outcome.name.partition(":")[2].replace(",mode=prior,statistics=panel", "").replace("inf", "∞")
            value = value.replace("tau1=", "").replace(",tau2=", ", ").rpartition("=")[2]
            rows.append([value, float(outcome.score.mean()), float(outcome.calls.mean())])
        caption = (
            "By prior routing, with the recording's own μ and σ."
            if sweep == "lambda"
            else "All other settings unchanged."
        )
        columns = [Column(title, ""), Column("accuracy"), Column("calls", ".2f")]
        drawn = (
            None
            if sweep == "tau"
            else line_chart(
                title, "accuracy", [row[0] for row in rows], {title: ([row[1] for row in rows], "accent", "-")}
            )
        )
        found.append(Exhibit(f"sweep-{sweep}", title, caption, columns, rows, draw=drawn, size=(4.9, 2.7)))
    return found


def attacks(findings: Findings) -> list[Exhibit]:
    """Benchmarks under complexity injection and simplicity masking."""
    rows = [
        [
            f"{row.benchmark}, {row.attack}", row.items, "recorded" if row.recorded else "routing only",
            *row.difficulty, row.same_path, *row.accuracy, row.change.interval, *row.calls,
            row.calls[1] / row.calls[0] - 1,
        ]
        for row in findings.attacks
    ]  # fmt: skip
    if not rows:
        return []
    columns = columns_of(
        "benchmark, attack |; items | d; answers |; d | .2f; d attacked | .2f; same path | .0%; accuracy; "
        "attacked; change | +.3f; calls | .2f; attacked calls | .2f; cost | +.0%"
    )
    caption = (
        "Injection makes a question look hard, masking makes it look easy. Routing only: the rewritten questions "
        "were not asked; the recorded answers are replayed on the paths that the rewritten questions take."
    )
    return [Exhibit("attacks", "Adversarial rewrites", caption, columns, rows)]


def transfer(findings: Findings) -> list[Exhibit]:
    """An estimator of one domain on the others."""
    if isinstance(findings.transfer, str):
        return []
    rows = [
        [
            f"{row.trained_on} → {row.applied_to}", row.items, row.own, row.transferred, row.retained,
            row.own_auroc, row.transferred_auroc,
        ]
        for row in findings.transfer
    ]  # fmt: skip
    columns = columns_of(
        "trained → applied |; items | d; own routing acc. | .1%; transferred | .1%; retained | .0%; own AUROC; "
        "transferred AUROC"
    )
    caption = "Own: an estimator that was trained on other items of the domain it routes. By the question alone."
    return [Exhibit("transfer", "Out of domain", caption, columns, rows)]


def stability_table(findings: Findings) -> Exhibit:
    """Mean, 95th percentile and worst case of an item."""
    rows = []
    for name in (name for name in RADAR if name in findings.outcomes):
        cells: list[Any] = [label(name)]
        for values in (findings.outcomes[name].calls, findings.outcomes[name].tokens):
            known = known_mean(values) is not None
            cells += (
                [float(values.mean()), float(np.percentile(values, 95)), float(values.max())]
                if known
                else [None] * 3
            )
        rows.append(cells)
    names = ("calls, mean", "calls, 95%", "calls, max", "tokens, mean", "tokens, 95%", "tokens, max")
    columns = [*columns_of("policy |"), *(Column(name, ".1f") for name in names)]
    return Exhibit("stability", "Cost stability", "What one item may cost.", columns, rows, [0])


def latency(findings: Findings) -> list[Exhibit]:
    """How long answers take, by path; nothing where it was not recorded."""
    odar = findings.odar
    if np.isnan(odar.seconds).any():
        return []
    rows: list[list[Any]] = []
    for number, name in [(None, "all"), *enumerate(PATHS)]:
        seconds = odar.seconds if number is None else odar.seconds[odar.path == number]
        if len(seconds):
            rows.append([name, len(seconds), *map(float, np.percentile(seconds, [50, 95])), float(seconds.max())])

    def draw(canvas: Any, palette: Palette) -> None:
        axes = canvas.subplots()
        edges = np.linspace(0, max(float(odar.seconds.max()), 0.1), 31)
        parts = [odar.seconds[odar.path == path] for path in range(3)]
        axes.hist(parts, bins=edges, stacked=True, color=[palette.simple, palette.medium, palette.hard])
        median, tail = np.percentile(odar.seconds, [50, 95])
        for value, text, down in ((median, f"median {median:.1f} s", -10), (tail, f"95% {tail:.1f} s", -22)):
            axes.axvline(value, color=palette.ink, linewidth=1, linestyle=(0, (3, 2)))
            place = {"xycoords": ("data", "axes fraction"), "xytext": (4, down), "textcoords": "offset points"}
            axes.annotate(text, (value, 1), fontsize=8.5, **place)
        axes.set(xlabel="seconds", ylabel="items")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="x", visible=False)
        colour_legend(canvas, [palette.simple, palette.medium, palette.hard], PATHS)

    columns = columns_of("path |; items | d; p50, s | .1f; p95, s | .1f; max, s | .1f")
    caption = "As recorded at collection; a request for several samples counts with the time of all."
    return [Exhibit("latency", "How long an answer takes", caption, columns, rows, [0], draw)]


def oracle_table(findings: Findings) -> Exhibit:
    """How far ODAR is from what hindsight could do, and what its caution costs."""
    odar, best, bound = findings.odar, findings.outcomes["oracle-router"], findings.outcomes["oracle"]
    rows = []
    everything = np.ones(len(findings.arrays), dtype=bool)
    for name, mask in [("all", everything), *findings.benchmarks.items()]:
        ours, router, any_right = (float(each.score[mask].mean()) for each in (odar, best, bound))
        calls, least = (float(each.calls[mask].mean()) for each in (odar, best))
        ratio = ours / router if router else None
        rows.append([name, ours, router, router - ours, ratio, any_right, calls, least, calls - least])
    columns = columns_of(
        "benchmark |; ODAR; oracle router; gap; optimality | .1%; any answer right; calls | .2f; oracle's | .2f; "
        "safety tax | +.2f"
    )
    caption = "The oracle router takes the cheapest path that answers best, with ODAR's fusion."
    return Exhibit("oracle", "Oracle gap", caption, columns, rows, [0])


def errors_figure(findings: Findings) -> Exhibit:
    """How many errors of each kind, E1 to E6."""
    counts = findings.errors.counts
    total = max(1, sum(counts.values()))
    rows = [[f"{kind} {KINDS[kind]}", count, count / total] for kind, count in counts.items()]

    def draw(canvas: Any, palette: Palette) -> None:
        axes = canvas.subplots()
        for y, (kind, count) in enumerate(counts.items()):
            axes.barh(y, count, 0.62, color=palette.other if kind in ("E5", "E6") else palette.accent)
            text = f"{count} ({count / total:.0%})"
            axes.annotate(text, (count, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5)
        name_rows(axes, palette, [f"{kind} {KINDS[kind].partition(':')[0]}" for kind in counts])
        axes.margins(x=0.2)
        axes.set_xlabel("errors")
        axes.xaxis.get_major_locator().set_params(integer=True)
        colour_legend(canvas, [palette.accent, palette.other], ["ODAR's own", "the models'"])

    columns = columns_of("kind |; errors | d; share | .0%")
    caption = "Every error once, by what went wrong first; by rule, not by reading."
    return Exhibit("errors", "Errors by kind", caption, columns, rows, draw=draw)


def routers(findings: Findings) -> list[Exhibit]:
    """How well difficulty tells which questions need more (SPEC 7.6)."""
    found = findings.routers
    if not isinstance(found, Routers):
        return []
    shares = np.linspace(0, 1, 11)
    curves = {
        name: gap_recovered(score, found.weak, found.strong_score, shares) for name, score in found.scores.items()
    }

    styles: dict[str, tuple[str, Any]] = {
        "random": ("muted", (0, (1, 3))),
        "length": ("other", (0, (4, 2))),
        "oracle": ("good", (0, (1, 1.5))),
        "difficulty, posterior": ("accent", "-"),
    }
    lines = {name: (values.tolist(), *styles.get(name, ("hard", "-"))) for name, values in curves.items()}
    draw = line_chart("share of strong calls", "gap recovered", shares.tolist(), lines)
    rows = [[row.router, row.apgr, row.cpt50, row.cpt80, row.auroc] for row in found.rows]
    columns = columns_of("router |; APGR; CPT(50%) | .0%; CPT(80%) | .0%; AUROC")
    caption = (
        f"Weak is the fast agent, strong is {label(found.strong)}. APGR is the area under "
        "the gap recovered, CPT the share of strong calls that recovers so much of it, as RouteLLM defines them; "
        "AUROC is for telling the fast agent's failures."
    )
    points = [[float(share), *(float(values[i]) for values in curves.values())] for i, share in enumerate(shares)]
    heads = [*columns_of("share | .1f"), *(Column(name, ".2f") for name in curves)]
    return [
        Exhibit("routers", "Routers", caption, columns, rows),
        Exhibit("recovered", "Gap recovered by share of strong calls", "", heads, points, draw=draw),
    ]


def sureness_table(findings: Findings) -> Exhibit:
    """The same figures with other intervals, and how many items would show a difference."""
    drawn, other = findings.restratified
    ours, consistency = findings.main[0], findings.outcomes[findings.consistency]
    against = findings.gain(findings.odar, consistency)
    other_name = label(findings.consistency)
    needed = ", ".join(f"{drawn.items_needed(points):,} for {points}" for points in (2, 5, 10))
    rows: list[list[Any]] = [
        ["accuracy, stratified bootstrap over items", ours.accuracy],
        ["accuracy, t over folds", ours.folds],
        ["accuracy, deviation between seeds", "one seed only" if np.isnan(ours.seeds) else f"{ours.seeds:.3f}"],
        ["gain on single fast, strata as drawn", _signed(drawn.interval)],
        ["gain on single fast, label-free strata", _signed(other.interval)],
        [f"p of that gain, {drawn.test}", show_p(drawn.p)],
        [f"gain on {other_name}", _signed(against.interval)],
        [f"p of the gain on {other_name}, {against.test}", show_p(against.p)],
        ["items needed to show a gain on single fast of so many points", needed],
    ]
    caption = "Needed items are for p < 0.05 with 80% power."
    return Exhibit("sureness", "How sure", caption, columns_of("by |; ODAR"), rows)


def _signed(value: Interval) -> str:
    return value.signed().replace("-", "−")
