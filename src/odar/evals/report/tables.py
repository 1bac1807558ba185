"""The tables of a report (SPEC 7.5)."""

from __future__ import annotations

import numpy as np

from odar.evals.replay.simulate import PolicyOutcome
from odar.evals.report.figures.common import label
from odar.evals.report.figures.groups import group_means
from odar.evals.report.findings import Findings, Routers
from odar.evals.report.markup import Markup, interval, number, p_value, table, tag
from odar.evals.standing import Standing, known_mean

PUBLISHED = (
    ("TOPS", "95.5", "92.5", "90.5", "3.4×"),
    ("Stop Spinning", "94.8", "92.0", "90.2", "4.1×"),
    ("ODAR, the paper's own", "98.2", "95.4", "94.2", "2.55×"),
)
"""MATH, BBH, MMLU-Pro and cost as the paper prints them: trained methods whose weights cannot be had (SPEC 7.2)."""


def main_table(findings: Findings) -> Markup:
    """Every baseline beside ODAR."""
    money = any(row.cost_usd for row in findings.main)
    head = [
        "policy",
        "accuracy, 95%",
        "gain on ODAR, 95%",
        "p, BH",
        "calls",
        "tokens",
        *(["$/1000"] if money else []),
    ]
    head += ["p50, s", "p95, s", "efficiency", "S / M / H"]
    rows = [_main_row(row, money=money) for row in findings.main]
    notes = [f"{label(row.name)}: {row.note}." for row in findings.main if row.note]
    shown = table(head, rows, [row.name == "odar" for row in findings.main])
    return Markup(shown + tag("p", " ".join(notes), class_="note"))


def _main_row(row: Standing, *, money: bool) -> list[str]:
    return [
        label(row.name),
        interval(row.accuracy),
        "–" if row.gain is None else interval(row.gain.interval, "+.3f"),
        p_value(row.adjusted),
        number(row.calls, ".2f"),
        number(row.tokens, ".0f"),
        *([number(None if row.cost_usd is None else 1000 * row.cost_usd)] if money else []),
        number(row.median_s, ".1f"),
        number(row.tail_s, ".1f"),
        number(row.efficiency, "+.2f", "–"),
        "–" if np.isnan(row.mix[0]) else " / ".join(f"{100 * share:.0f}" for share in row.mix),
    ]


def fusion_table(findings: Findings) -> Markup:
    """ODAR's routing with each fusion rule (SPEC 5.9)."""
    rows = []
    for outcome in findings.suite("fusion-rules"):
        hard = outcome.path == 2
        within = number(float(outcome.score[hard].mean()) if hard.any() else None, unknown="–")
        rows.append([outcome.name.partition("=")[2], number(float(outcome.score.mean())), within])
    marked = [row[0] == findings.setting.rule for row in rows]
    return table(["fusion rule", "accuracy", "on the Hard path"], rows, marked)


def group_table(findings: Findings) -> Markup:
    """Every policy of the main table by group, and the mean over groups."""
    head = ["policy", *findings.group_names, "mean of groups"]
    rows = []
    for row in findings.main:
        means = group_means(findings, findings.outcomes[row.name])
        rows.append([label(row.name), *map(number, means), number(float(np.mean(means)))])
    sizes = ["items", *(str(int(findings.mask(group).sum())) for group in findings.group_names), "–"]
    return table(head, [*rows, sizes], [row.name == "odar" for row in findings.main])


def stability_table(findings: Findings) -> Markup:
    """Cost stability: mean, 95th percentile and worst case of an item."""
    names = ["odar", "single-fast", "single-slow", "always-hard"]
    rows = []
    for name in (name for name in names if name in findings.outcomes):
        outcome = findings.outcomes[name]
        cells = [label(name)]
        for values in (outcome.calls, outcome.tokens):
            known = known_mean(values) is not None
            figures = (values.mean(), np.percentile(values, 95), values.max()) if known else (None,) * 3
            cells += [number(figure, ".1f") for figure in figures]
        rows.append(cells)
    head = ["policy", "calls, mean", "95%", "max", "tokens, mean", "95%", "max"]
    return table(head, rows, [True])


def oracle_table(findings: Findings) -> Markup:
    """How far ODAR is from what hindsight could do, and what its caution costs."""
    best, bound = findings.outcomes["oracle-router"], findings.outcomes["oracle"]
    rows = [_oracle_row("all", findings.odar, best, bound, np.ones(len(findings.arrays), dtype=bool))]
    rows += [_oracle_row(g, findings.odar, best, bound, findings.mask(g)) for g in findings.group_names]
    head = [
        "group",
        "ODAR",
        "oracle router",
        "gap",
        "optimality",
        "any answer right",
        "calls",
        "oracle's",
        "safety tax",
    ]
    return table(head, rows, [True])


def _oracle_row(
    name: str, odar: PolicyOutcome, best: PolicyOutcome, bound: PolicyOutcome, mask: np.ndarray
) -> list[str]:
    ours, router, any_right = (float(each.score[mask].mean()) for each in (odar, best, bound))
    calls, least = (float(each.calls[mask].mean()) for each in (odar, best))
    ratio = ours / router if router else float("nan")
    return [
        name, number(ours), number(router), number(router - ours), number(ratio, ".1%", "–"), number(any_right),
        number(calls, ".2f"), number(least, ".2f"), number(calls - least, "+.2f"),
    ]  # fmt: skip


def router_table(routers: Routers) -> Markup:
    """APGR, CPT and AUROC of each router."""
    rows = [
        [
            row.router,
            interval(row.apgr),
            number(row.cpt50, ".0%"),
            number(row.cpt80, ".0%"),
            number(row.auroc),
        ]
        for row in routers.rows
    ]
    return table(["router", "APGR, 95%", "CPT(50%)", "CPT(80%)", "AUROC"], rows)


def sureness_table(findings: Findings) -> Markup:
    """The same figures by other ways to be unsure of them."""
    drawn, other = findings.restratified
    ours = findings.main[0]
    rows = [
        ["accuracy, stratified bootstrap over items", interval(ours.accuracy)],
        ["accuracy, t over folds", interval(ours.folds)],
        ["accuracy, deviation between seeds", number(ours.seeds, unknown="one seed only")],
        ["gain on single fast, strata as drawn", interval(drawn.interval, "+.3f")],
        ["gain on single fast, label-free strata", interval(other.interval, "+.3f")],
        [f"p of that gain, {drawn.test}", p_value(drawn.p)],
    ]
    return table(["how sure", "ODAR"], rows)


def published_table() -> Markup:
    """What only others have measured."""
    return table(["published only", "MATH", "BBH", "MMLU-Pro", "cost"], [list(row) for row in PUBLISHED])
