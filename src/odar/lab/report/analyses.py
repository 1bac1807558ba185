"""Analyses of a report: ablations, settings, attacks, cost, errors, router quality and uncertainty."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from odar.difficulty.base import ESTIMATORS
from odar.errors import InputError
from odar.lab.adversarial import ATTACKS, WORDING_SCORED
from odar.lab.intervals import Interval
from odar.lab.recording.header import changed_facts
from odar.lab.recording.schema import Task
from odar.lab.replay.policies import SIZES, escalation_score, run_policy
from odar.lab.replay.table import ReplayTable, shared_rows
from odar.lab.report.draw import PATH_COLOURS, Colour, line_chart, name_rows, path_legend
from odar.lab.report.exhibit import TEXTS, Column, Exhibit, exhibit, policy_label
from odar.lab.report.findings import ERROR_KINDS, Findings, error_kinds, experts_matter, wrong_experts
from odar.lab.router_quality import gap_recovered, router_row
from odar.lab.statistics import difference, format_p, length_strata, paired_difference
from odar.policy.arrays import Array
from odar.policy.fusion_rules import RULES
from odar.types import SLOW, Query


def ablations(findings: Findings) -> list[Exhibit]:
    """The effect of each part of ODAR, over all items and by benchmark (SPEC 7.3)."""
    # policies on this recording
    ours = findings.odar
    base = np.array(findings.means(ours))
    ours_calls = float(ours.calls.mean())
    rows: list[list[Any]] = []
    by_benchmark: list[list[Any]] = []
    labels = TEXTS["ablations"]["labels"]
    for outcome in findings.suite("ablations"):
        change = findings.gain(outcome, ours).interval
        calls = float(outcome.calls.mean())
        name = labels.get(outcome.name, outcome.name)
        rows.append([name, change, calls, calls / ours_calls])
        by_benchmark.append([name, *(100 * (np.array(findings.means(outcome)) - base)).tolist(), calls])
    # recordings of the same items with other models or prompts
    for other in findings.others:
        name, change, calls = _variant(findings, other)
        rows.append([name, change, calls, calls / ours_calls])

    names = [textwrap.fill(str(row[0]), 34) for row in rows]
    height = 1.2 + 0.27 * len(rows) + 0.12 * sum("\n" in name for name in names)

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        for y, (_, change, _, ratio) in enumerate(rows):
            value = 100 * change.value
            axes.barh(y, value, 0.6, color=Colour.GOOD if value > 0 else Colour.BAD, alpha=0.85)
            if not np.isnan(change.low):
                axes.plot([100 * change.low, 100 * change.high], [y, y], color=Colour.MUTED, linewidth=1)
            axes.annotate(f"{ratio:.2f}×", (1, y), xycoords=("axes fraction", "data"), xytext=(4, 0),
                          textcoords="offset points", va="center", fontsize=8, color=Colour.MUTED)  # fmt: skip
        axes.axvline(0, color=Colour.MUTED, linewidth=0.8)
        name_rows(axes, names)
        axes.set_xlabel("points of accuracy; right: calls, ODAR = 1")

    exhibits = [exhibit("ablations", rows, draw=draw, size=(4.9, height))]
    if len(findings.benchmarks) > 1:
        heat = [Column(name, "+.1f", heat=True) for name in findings.benchmarks]
        columns = [Column("ablation", ""), *heat, Column("calls", ".2f")]
        exhibits.append(exhibit("matrix", by_benchmark, columns=columns))
    return exhibits


def _variant(findings: Findings, other: ReplayTable) -> tuple[str, Interval, float]:
    """Another recording of the same items: its name, the change of accuracy, and its calls."""
    table = findings.table
    theirs = run_policy(other, "odar")
    shared, picked = shared_rows(table.column("key"), other.column("key"))
    change = paired_difference(table, theirs.score[picked], findings.odar.score[shared], shared)
    assert other.header is not None
    facts = changed_facts(other.header.facts, findings.header.facts)
    # the facts of models follow from those of agents; a set of prompts has a name, its files have only digests
    changes = [f"{fact} = {value}" for fact, _, value in facts if fact.startswith("agents.")]
    if any(fact.startswith("prompts.") for fact, _, _ in facts):
        changes.append(f"prompts = {other.settings.prompts}")
    name = ", ".join(changes or [f"{fact} = {value}" for fact, _, value in facts]) or "other settings"
    return f"{name} ({len(shared)} items)", change.interval, float(theirs.calls[picked].mean())


def fusion_table(findings: Findings) -> list[Exhibit]:
    """The paper's routing with each fusion rule (SPEC 5.9), and without z-scores."""
    table = findings.table
    hard_for_all = "tau1=0,tau2=0"
    majority = run_policy(table, f"paper:rule=majority,{hard_for_all}")
    rows: list[list[Any]] = []
    for name, options in {
        "fep, the paper's argmin": "rule=fep",
        "fep without z-scores": "rule=fep,statistics=none",
        "fep, β = 0.25": "rule=fep,beta=0.25",
        **{rule: f"rule={rule}" for rule in sorted(RULES.names()) if rule != "fep"},
    }.items():
        routed = run_policy(table, f"paper:{options}")
        forced = run_policy(table, f"paper:{options},{hard_for_all}")
        hard = routed.path == 2
        within = float(routed.score[hard].mean()) if hard.any() else None
        against = None if forced.name == majority.name else findings.gain(forced, majority).interval
        rows.append([name, routed.mean_score, within, forced.mean_score, against])
    return [exhibit("fusion", rows)]


def best_of_n_figure(findings: Findings) -> list[Exhibit]:
    sizes = [n for n in SIZES if n <= findings.table.samples(SLOW)]
    lines = {}
    for name, spec, colour in (
        ("the paper", "paper:n", Colour.ACCENT),
        ("self-consistency", "self-consistency:k", Colour.MEDIUM),
        ("best of n", "best-of-n:n", Colour.HARD),
    ):
        lines[name] = ([findings.outcomes[f"{spec}={n}"].mean_score for n in sizes], colour, "-")
    rows = [[n, *(scores[i] for scores, _, _ in lines.values())] for i, n in enumerate(sizes)]
    return [exhibit("best-of-n", rows, draw=line_chart("slow samples, n", "accuracy", sizes, lines))]


def sweeps(findings: Findings) -> list[Exhibit]:
    """The paper's policy with one setting changed."""
    titles = {"beta": "β of the answer free energy", "lambda": "λ of the varentropy", "tau": "τ1 and τ2"}
    exhibits = []
    for sweep, title in titles.items():
        rows: list[list[Any]] = []
        for outcome in findings.suite(f"sweep-{sweep}"):
            value = outcome.name.partition(":")[2].replace("inf", "∞")
            value = value.replace("tau1=", "").replace(",tau2=", ", ").rpartition("=")[2]
            rows.append([value, outcome.mean_score, float(outcome.calls.mean())])
        values, scores, _ = zip(*rows, strict=True)
        chart = line_chart(title, "accuracy", values, {title: (scores, Colour.ACCENT, "-")})
        draw = chart if sweep != "tau" else None
        exhibits.append(exhibit(f"sweep-{sweep}", rows, words={"setting": title}, draw=draw, size=(4.9, 2.7)))
    return exhibits


def attacks(findings: Findings) -> list[Exhibit]:
    """Compare every benchmark with its rewritten forms, on the same items."""
    recorded = findings.recorded
    rows = []
    sets = recorded.sets()
    for name in sets:
        if "+" in name or name in WORDING_SCORED:
            continue
        clean = recorded.replaced(rows=recorded.of_set(name))
        rerouted = _rerouted(clean, [attack for attack in ATTACKS if f"{name}+{attack}" not in sets])
        for attack in ATTACKS:
            if attack in rerouted:
                kind = "routing only"
                before = rerouted[""]
                after = rerouted[attack]
            else:
                attacked = recorded.replaced(rows=recorded.of_set(f"{name}+{attack}"))
                kind = "recorded"
                ids = [[(key.id, key.seed) for key in table.column("key")] for table in (clean, attacked)]
                first, second = shared_rows(*ids)
                before = clean.replaced(rows=first)
                after = attacked.replaced(rows=second)
            if len(before):
                for policy, suffix in (("odar", ""), ("paper", ", paper's policy")):
                    changes = _changes(before, after, policy)
                    rows.append([f"{name}, {attack}{suffix}", len(before), kind, *changes])
    return [exhibit("attacks", rows)] if rows else []


def _rerouted(clean: ReplayTable, attacks: Sequence[str]) -> dict[str, ReplayTable]:
    """The table with the difficulties of the rewritten questions, by attack; empty for no attack.

    Both sides are estimated from the text, since a recorded difficulty may be of a whole conversation. It is empty
    if the texts or the estimator are unknown.
    """
    name = clean.settings.routing.estimator
    texts = clean.column("query")
    if not attacks or not all(texts) or name not in ESTIMATORS.names():
        return {}
    estimator = ESTIMATORS[name]()
    tasks = [Task(key.id, Query(text), None) for key, text in zip(clean.column("key"), texts, strict=True)]
    tables = {}
    for attack in ("", *attacks):
        rewritten = [ATTACKS[attack](task) for task in tasks] if attack else tasks
        difficulty = np.array([estimator.estimate(task.query).difficulty for task in rewritten])
        tables[attack] = clean.replaced(difficulty=difficulty)
    return tables


def _changes(clean: ReplayTable, attacked: ReplayTable, policy: str) -> list[Any]:
    """Difficulty, share of kept paths, accuracy and calls of a policy, before and after an attack."""
    before = run_policy(clean, policy)
    after = run_policy(attacked, policy)
    return [
        clean.difficulty.mean(),
        attacked.difficulty.mean(),
        (before.path == after.path).mean(),
        before.mean_score,
        after.mean_score,
        difference(after.score, before.score).interval,
        before.calls.mean(),
        after.calls.mean(),
        after.calls.mean() / before.calls.mean() - 1,
    ]


def stability_table(findings: Findings) -> list[Exhibit]:
    """Mean, 95th percentile and maximum of the calls and tokens of an item."""
    rows = []
    for name in findings.compared:
        outcome = findings.outcomes[name]
        spreads = [[each.mean(), np.percentile(each, 95), each.max()] for each in (outcome.calls, outcome.tokens)]
        rows.append([policy_label(name), *spreads[0], *spreads[1]])
    return [exhibit("stability", rows)]


def latency(findings: Findings) -> list[Exhibit]:
    """Seconds of an item by path and policy; no exhibit if they were not recorded."""
    ours = findings.odar
    if np.isnan(ours.seconds).any():
        return []
    parts = [ours.seconds[ours.path == path] for path in range(len(PATH_COLOURS))]
    shown = {"all": ours.seconds, **dict(zip(PATH_COLOURS, parts, strict=True))}
    shown |= {f"all, {policy_label(name)}": findings.outcomes[name].seconds for name in findings.compared[1:]}
    rows = [
        [name, len(seconds), *np.percentile(seconds, [50, 95]), seconds.max()]
        for name, seconds in shown.items()
        if len(seconds)
    ]

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        edges = np.linspace(0, max(float(ours.seconds.max()), 0.1), 31)
        axes.hist(parts, bins=edges, stacked=True, color=list(PATH_COLOURS.values()))
        median, tail = np.percentile(ours.seconds, [50, 95])
        for value, text, down in ((median, f"median {median:.1f} s", -10), (tail, f"95% {tail:.1f} s", -22)):
            axes.axvline(value, color=Colour.INK, linewidth=1, linestyle=(0, (3, 2)))
            place = {"xycoords": ("data", "axes fraction"), "xytext": (4, down), "textcoords": "offset points"}
            axes.annotate(text, (value, 1), fontsize=8.5, **place)
        axes.set(xlabel="seconds", ylabel="items")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="x", visible=False)
        path_legend(canvas)

    return [exhibit("latency", rows, draw=draw)]


def oracle_table(findings: Findings) -> list[Exhibit]:
    """The gap between ODAR and the oracle router."""
    best = findings.outcomes["oracle-router"]
    bound = findings.outcomes["oracle"]
    rows = []
    everything = np.ones(len(findings.table), dtype=bool)
    shown = [("all", everything, "odar"), ("all, paper's policy", everything, "paper")]
    shown += [(name, mask, "odar") for name, mask in findings.benchmarks.items()]
    for name, mask, policy in shown:
        ours = findings.outcomes[policy]
        accuracy, router, any_right = (float(each.score[mask].mean()) for each in (ours, best, bound))
        calls, least = (float(each.calls[mask].mean()) for each in (ours, best))
        ratio = accuracy / router if router else None
        rows.append([name, accuracy, router, router - accuracy, ratio, any_right, calls, least, calls - least])
    return [exhibit("oracle", rows)]


def errors_table(findings: Findings) -> list[Exhibit]:
    """Errors of each kind, E1 to E6."""
    table = findings.table
    kinds = error_kinds(table, findings.odar)
    counts = {kind: kinds.count(kind) for kind in ERROR_KINDS}
    total = max(1, sum(counts.values()))
    paper = error_kinds(table, findings.outcomes["paper"])
    rows = [[f"{kind} {ERROR_KINDS[kind]}", n, n / total, paper.count(kind)] for kind, n in counts.items()]

    notes = []
    if not experts_matter(table):
        wrong = int((wrong_experts(table) & ~findings.odar.right).sum())
        notes = [
            f"E2 cannot occur here: the expert was of another field on {wrong} of {sum(counts.values())} errors, "
            "but every agent has one model, and no expert has thresholds of its own."
        ]
    return [exhibit("errors", rows, notes=notes)]


def routers(findings: Findings) -> list[Exhibit]:
    """Difficulty, random scores, length and an oracle as routers (SPEC 7.6).

    Raises:
        InputError: the strong side is no better than the fast agent, or there are too few items.
    """
    table = findings.table
    weak, slow, hard = (findings.outcomes[name] for name in ("single-fast", "single-slow", "always-hard"))
    strong = max((slow, hard), key=lambda each: each.mean_score)
    if strong.mean_score <= weak.mean_score:
        raise InputError(
            f"The strong side ({strong.name}, {strong.mean_score:.3f}) is no better than the fast agent "
            f"({weak.mean_score:.3f}): there is no gap that a router could recover."
        )
    # what each router ranks the questions by
    rng = np.random.default_rng(42)
    scores: dict[str, Array] = {
        "random": rng.random(len(table)),
        "length": np.array([len(text) for text in table.column("query")], dtype=np.float64),
        "difficulty": table.difficulty,
        "belief after fast": escalation_score(table),
        "oracle": strong.score - weak.score,  # knows both outcomes
    }
    try:
        quality = [router_row(name, score, weak.score, strong.score, rng) for name, score in scores.items()]
    except InputError as error:
        raise InputError(f"Router quality cannot be measured here: {error}.") from None
    # the gap recovered at each share of strong calls
    shares = np.linspace(0, 1, 11)
    curves = {name: gap_recovered(score, weak.score, strong.score, shares) for name, score in scores.items()}
    styles: dict[str, tuple[Colour, Any]] = {
        "random": (Colour.MUTED, (0, (1, 3))),
        "length": (Colour.OTHER, (0, (4, 2))),
        "oracle": (Colour.GOOD, (0, (1, 1.5))),
        "belief after fast": (Colour.ACCENT, "-"),
    }
    lines = {name: (values.tolist(), *styles.get(name, (Colour.HARD, "-"))) for name, values in curves.items()}
    draw = line_chart("share of strong calls", "gap recovered", shares.tolist(), lines)
    points = np.column_stack([shares, *curves.values()]).tolist()
    names = "; ".join(f"{name} | .2f" for name in curves)
    return [
        exhibit("routers", quality, words={"strong": policy_label(strong.name)}),
        exhibit("recovered", points, words={"routers": names}, draw=draw),
    ]


def uncertainty_table(findings: Findings) -> list[Exhibit]:
    """Accuracy and gain with several intervals, and the number of items that show a gain."""
    table = findings.table
    ours = findings.main[0]
    fast = findings.outcomes["single-fast"]
    drawn = findings.gain(findings.odar, fast)
    restratified = paired_difference(table, findings.odar.score, fast.score, strata=length_strata(table))
    needed = ", ".join(f"{drawn.items_needed(points):,} for {points}" for points in (2, 5, 10))
    rows: list[list[Any]] = [
        ["accuracy, stratified bootstrap over items", ours.accuracy],
        ["accuracy, t over folds", ours.folds],
        ["accuracy, deviation between seeds", "one seed only" if np.isnan(ours.seeds) else f"{ours.seeds:.3f}"],
        ["gain on single fast, strata as drawn", drawn.interval.signed().replace("-", "−")],
        ["gain on single fast, label-free strata", restratified.interval.signed().replace("-", "−")],
        [f"p of that gain, {drawn.test}", format_p(drawn.p)],
        ["items needed to show a gain on single fast of so many points", needed],
    ]
    return [exhibit("sureness", rows)]
