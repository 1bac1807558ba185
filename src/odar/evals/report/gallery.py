"""Which figures a report has, and what is written under each."""

from __future__ import annotations

from odar.evals.report.draw import Figure
from odar.evals.report.figures import ablations, curves, groups, pareto, routers, running
from odar.evals.report.figures.common import HALF, WIDE
from odar.evals.report.findings import Findings, Routers


def gallery(findings: Findings) -> dict[str, Figure]:
    """The figures of this report by slug."""
    taken_out = len(findings.suite("ablations"))
    count = len(findings.group_names)
    found = [
        Figure("pareto", "Accuracy against price",
               "The line joins what nothing cheaper matches. CoT is single-slow; the oracle is left out.",
               WIDE, pareto.draw_pareto, pareto.pareto_rows),
        Figure("mix", "Paths by group", "What share of each group took which path.",
               (4.9, 1.5 + 0.32 * (count + 1)), groups.draw_mix, groups.mix_rows),
        Figure("radar", "Accuracy by group", "ODAR beside its two agents alone and the Hard path for all.",
               (4.9, 4.6), groups.draw_radar, groups.radar_rows),
        Figure("ablations", "Ablations",
               "Change of accuracy against ODAR in points, by group; the last column is calls an item.",
               (9.6, 1.3 + 0.34 * taken_out), ablations.draw_ablations, ablations.ablation_rows),
        Figure("best-of-n", "More samples", "Accuracy by the number of slow samples.",
               HALF, curves.draw_curve, curves.curve_rows),
        Figure("sweeps", "Sweeps",
               "ODAR with one setting changed; λ under prior routing, aligned by the panel itself, without labels.",
               (9.6, 3.1), curves.draw_sweeps, curves.sweep_rows),
        Figure("latency", "How long an answer takes",
               "As recorded at collection; a request for several samples counts with the time of all.",
               HALF, running.draw_latency, running.latency_rows),
        Figure("errors", "Errors by kind", "Every error once, by what went wrong first.",
               HALF, running.draw_errors, running.error_rows),
        Figure("calibration", "Is difficulty what it says?",
               "Bins of equally many items. On the line, 0.3 means that 3 of 10 fast answers are wrong.",
               HALF, routers.draw_reliability, routers.reliability_rows),
    ]  # fmt: skip
    if isinstance(findings.routers, Routers):
        found.append(
            Figure("router", "How well the router chooses",
                   f"Weak is the fast agent, strong is {findings.routers.strong}; the thin line is chance.",
                   HALF, routers.draw_routers, routers.router_rows)
        )  # fmt: skip
    return {figure.slug: figure for figure in found}
