"""Write docs/results.md: what ODAR gains on recorded models, including models without a gain.

    python scripts/results.py                          # the committed recording alone
    python scripts/results.py --data ../shared/data    # and recorded answers of large models

No model is called. The recording of the local pair has two halves. Skills, μ, σ and quantiles of each half are
measured on the other half.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odar.calibration.bootstrap import Interval
from odar.calibration_file import Calibration
from odar.config import with_values
from odar.evals.replay.outcomes import Outcomes, best_mixture, cost_at_accuracy
from odar.evals.replay.policies import run_policy, suites
from odar.evals.replay.table import ReplayTable, load_table
from odar.evals.statistics import PolicySummary, paired_difference, summarize_policies
from odar.policy.arrays import Bools

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "runs/local-pair/recording.jsonl.gz"
PAGE = ROOT / "docs/results.md"
FIGURE = ROOT / "docs/images/results.svg"
ODAR = "cascade:dial=balanced"
HALVES = ("calibrate", "judge")


def crossed(table: ReplayTable) -> dict[str, Outcomes]:
    """The outcome of every policy on both halves, each with what was measured on the other."""
    masks = [np.array([item.split == half for item in table.items]) for half in HALVES]
    parts = [fitted(table, masks[1 - i], masks[i]) for i in range(2)]
    specs = ["paper", *suites(table)["fixed"], *suites(table)["curve"], "oracle-router", "oracle"]
    found = {}
    for spec in specs:
        first, second = (run_policy(part, spec) for part in parts)
        columns = {}
        for name in ("score", "cost_usd", "calls", "seconds", "tokens", "path", "winner", "best"):
            columns[name] = np.empty(len(table), dtype=getattr(first, name).dtype)
            columns[name][masks[0]] = getattr(first, name)
            columns[name][masks[1]] = getattr(second, name)
        found[spec] = Outcomes(**columns, name=spec, note=first.note)
    return found


def fitted(table: ReplayTable, known: Bools, rows: Bools) -> ReplayTable:
    """Some items of a table, with statistics and skills that were measured on others; the rest is as shipped."""
    settings = with_values(table.settings, {"routing.stages": ()})
    calibration = Calibration(statistics=table.fitted_statistics(known))
    return table.replaced(rows=rows, calibration=calibration, settings=settings)


def verdict(found: Interval) -> str:
    """What an interval of a difference shows."""
    return "**better**" if found.low > 0 else "**worse**" if found.high < 0 else "no difference shown"


def main_table(rows: Sequence[PolicySummary]) -> list[str]:
    """Every policy: accuracy, gain over the fixed choices at equal dollars, calls, dollars, paths."""
    lines = [
        "| policy | accuracy | over fixed choices at equal dollars | calls | $ per 1,000 | no slow call / one / several |"
    ]
    lines.append("|---" * 6 + "|")
    for row in rows:
        over = "–" if row.over_fixed is None else row.over_fixed.signed()
        mix = " / ".join(f"{share:.0%}" for share in row.mix)
        dollars = "unknown" if row.cost_usd is None else f"{1000 * row.cost_usd:.4f}"
        lines.append(f"| {row.name} | {row.accuracy} | {over} | {row.calls:.2f} | {dollars} | {mix} |")
    return lines


def over_fixed(table: ReplayTable, outcome: Outcomes, fixed: Sequence[Outcomes]) -> Interval:
    """Gain over the best mixture of fixed choices that costs as much."""
    mixed = best_mixture(fixed, float(outcome.cost_usd.mean()))
    return paired_difference(table, outcome.score, mixed.score).interval


def summary(table: ReplayTable, found: Mapping[str, Outcomes], recording: Path) -> list[str]:
    """The findings in a few lines."""
    fixed = [found[spec] for spec in suites(table)["fixed"]]
    slow = found["single-slow"]
    best = max(fixed, key=lambda each: float(each.score.mean()))
    ours, paper = (over_fixed(table, found[spec], fixed) for spec in (ODAR, "paper"))
    equal = cost_at_accuracy([found[spec] for spec in suites(table)["curve"]], float(slow.score.mean()))
    share = "at no dial" if equal is None else f"at {equal / float(slow.cost_usd.mean()):.2f} of its cost"
    judged = load_table(recording, split="judge")
    shipped = run_policy(judged, "odar")
    gain = over_fixed(judged, shipped, [run_policy(judged, spec) for spec in suites(judged)["fixed"]])
    figures = f"{shipped.score.mean():.3f} at ${1000 * shipped.cost_usd.mean():.3f} per 1,000"
    return [
        f"- The most accurate fixed choice is {best.name}: {best.score.mean():.3f} at ${1000 * best.cost_usd.mean():.3f} per 1,000.",
        f"- The cascade at `balanced` against the best mixture of fixed choices at equal dollars: {ours.signed()} ({verdict(ours)}).",
        f"- The paper's policy against the same: {paper.signed()} ({verdict(paper)}).",
        f"- The cascade is as accurate as the slow model alone {share}.",
        f"- As shipped, calibrated on the other half, on the {len(judged)} items to judge with: {figures}; against the mixture {gain.signed()} ({verdict(gain)}).",
    ]


def by_set(table: ReplayTable, found: Mapping[str, Outcomes]) -> list[str]:
    """Every set: fixed choices, the paper and the cascade."""
    names = ("single-fast", "single-slow", "self-consistency:k=5", "paper", ODAR)
    lines = [
        "| set | items | " + " | ".join(names) + " | its cost, slow = 1 | cascade − slow |",
        "|---" * (len(names) + 4) + "|",
    ]
    for name in sorted(table.sets()):
        own = table.of_set(name)
        figures = " | ".join(f"{found[each].score[own].mean():.3f}" for each in names)
        cost = found[ODAR].cost_usd[own].mean() / found["single-slow"].cost_usd[own].mean()
        rows = np.flatnonzero(own)
        gap = paired_difference(table, found[ODAR].score[own], found["single-slow"].score[own], rows).interval
        lines.append(f"| {name} | {own.sum()} | {figures} | {cost:.2f} | {gap.signed()} |")
    return lines


def draw(table: ReplayTable, found: Mapping[str, Outcomes]) -> None:
    """Accuracy against dollars: fixed choices with their upper hull, the paper, and the cascade at several dials."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "odar"
    import matplotlib.pyplot as plt

    from odar.evals.replay.outcomes import upper_hull

    def place(spec: str) -> tuple[float, float]:
        return 1000 * float(found[spec].cost_usd.mean()), float(found[spec].score.mean())

    grey = "#808080"
    figure, axes = plt.subplots(figsize=(7.2, 4.2))
    fixed = {spec: place(spec) for spec in suites(table)["fixed"]}
    axes.plot(*zip(*upper_hull(list(fixed.values())), strict=True), color=grey, linewidth=2, alpha=0.5)
    curve = [place(spec) for spec in suites(table)["curve"]]
    axes.plot(*zip(*curve, strict=True), color="#3b7dd8", marker="o", markersize=4, label="the cascade, by dial")
    for spec, point in {**fixed, "paper": place("paper")}.items():
        axes.scatter(*point, color="#d8843b" if spec == "paper" else grey, s=28, zorder=3)
        axes.annotate(spec, point, (6, -10), textcoords="offset points", color=grey, fontsize=8)
    axes.set_xlabel("$ per 1,000 questions", color=grey)
    axes.set_ylabel("accuracy", color=grey)
    axes.tick_params(colors=grey)
    axes.margins(x=0.14, y=0.12)
    for side in axes.spines.values():
        side.set_color(grey)
    axes.patch.set_alpha(0)
    axes.legend(frameon=False, labelcolor=grey, loc="lower right")
    figure.patch.set_alpha(0)
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


LARGE_TITLE = "## Recorded answers of large models"
LARGE = (
    (
        "MMLU-Pro, gpt-4.1-nano and gemini-2.0-flash-lite, then gpt-4.1",
        "--answers gpt-4.1-nano={d}/mmlu_pro_outcomes/outcomes.parquet --answers gemini-2.0-flash-lite={d}/mmlu_pro_outcomes/outcomes.parquet "
        "--answers gpt-4.1={d}/mmlu_pro_outcomes/outcomes.parquet --fast gpt-4.1-nano --price gemini-2.0-flash-lite=0.075,0.3 "
        "--questions {d}/mmlu_pro_outcomes/items.jsonl --map id=row --set-name mmlu_pro",
    ),
    (
        "MATH level 5, gpt-4o-mini, then claude-3.5-sonnet",
        "--answers gpt-4o-mini-2024-07-18={d}/math_l5_outputs/outputs.jsonl.gz --answers claude-3-5-sonnet-20241022={d}/math_l5_outputs/outputs.jsonl.gz "
        "--slow claude-3-5-sonnet-20241022 --map text=outputs.{{model}} --score-by math",
    ),
    (
        "Free text, Llama-3.1-8B, then GPT-5, token F1",
        "--answers llama={d}/freetext_cascade/outcomes.jsonl.gz --answers gpt-5={d}/freetext_cascade/outcomes.jsonl.gz --slow gpt-5 --map id=row "
        "--map llama:text=fast.1.text --map llama:mean_logprob=fast.1.mean_logprob --map gpt-5:text=slow.0.text --score-by f1",
    ),
)
"""Recorded answers, and how `odar eval import` reads them."""
SHOWN = (
    "single-fast",
    "second",
    "single-slow",
    "paper",
    "cascade:dial=economy",
    "cascade",
    "cascade:dial=quality",
    "oracle-router",
)


def large_models(data: Path) -> list[str]:
    """A table for each set of recorded answers, by `odar eval import`."""
    lines: list[str] = []
    for title, arguments in LARGE:
        command = ["eval", "import", *arguments.format(d=data).split()]
        done = subprocess.run(  # the same command that a reader types
            [sys.executable, "-c", "from odar.cli.main import main; main()", *command, "--json"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{title}: {done.stderr.strip()[:300]}")
        body = json.loads(done.stdout)
        lines += ["", f"### {title}", "", f"`odar eval import {arguments.format(d='DIR')}`"]
        sets = body["sets"] or {"": body}
        if len(sets) > 1:
            lines += ["", "Each set on its own: they have different scales, so a pooled mean would mislead."]
        for name, found in sets.items():
            lines += ["", f"{name}{', ' * bool(name)}{found['items']:,} questions:", "", *large_table(found)]
    return lines


def large_table(body: Mapping[str, Any]) -> list[str]:
    """One set: accuracy, cost and gain over the fixed choices at equal dollars."""
    rows = {row["name"]: row for row in body["rows"]}
    lines = [
        "| | accuracy | cost, slow = 1 | over fixed choices at equal dollars | calls |",
        "|---|---|---|---|---|",
    ]
    slow = rows["single-slow"]["cost_usd"]
    for name in (name for name in SHOWN if name in rows):
        row = rows[name]
        over = "–" if row["over_fixed"] is None else Interval(**row["over_fixed"]).signed()
        lines.append(
            f"| {name} | {Interval(**row['accuracy'])} | {row['cost_usd'] / slow:.2f} | {over} | {row['calls']:.2f} |"
        )
    said = "The slow model is not better on this set: there is nothing to gain by asking it."
    if body["apgr"] is not None:
        said = f"APGR of the belief after the fast answer: {body['apgr']:.3f} (random 0.5)."
    return [*lines, "", said]


def page(recording: Path, data: Path | None) -> str:
    """The whole page."""
    table = load_table(recording)
    found = crossed(table)
    draw(table, found)
    fixed = [found[spec] for spec in suites(table)["fixed"]]
    rows = summarize_policies(table, list(found.values()), found["single-slow"], fixed)
    lines = [
        "# Results",
        "",
        "What ODAR gains on recorded models, and where it does not. Written by `python scripts/results.py --data DIR` from",
        "[the recording of the local pair](../runs/local-pair/README.md), without a single call. Intervals are 95%.",
        "",
        "## The local pair",
        "",
        f"Qwen2.5-Coder-0.5B-Instruct (fast) and Qwen2.5-Coder-1.5B-Instruct (slow), both Q4_K_M, with the prompts and budgets of the profile `local`; {len(table)} items. Skills and",
        "statistics of each half of the items are measured on the other half. Dollars are nominal: the models are free, so tokens are priced in proportion to parameters.",
        '"Over fixed choices" compares with the best random mixture of fixed choices (each model alone, self-consistency, the paper\'s paths) that costs as much.',
        "",
        "**In short:**",
        "",
        *summary(table, found, recording),
        "- Reasons are in the [lab notes](lab-notes.md#local-models).",
        "",
        "![Accuracy against dollars](images/results.svg)",
        "",
        *main_table(rows),
        "",
        *by_set(table, found),
    ]
    if data is None:  # what was written with --data stays
        _, title, rest = PAGE.read_text(encoding="utf-8").partition(LARGE_TITLE) if PAGE.exists() else ("", "", "")
        lines += ["", title + rest.rstrip()] if title else []
    else:
        lines += [
            "",
            LARGE_TITLE,
            "",
            "One answer of each model: there are no further samples, so self-consistency and the Medium path cannot be shown. Nothing is fitted to these scores; belief and skills are",
            "those that are known without labels.",
            *large_models(data),
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--data", type=Path, help="folder with the recorded answers of large models")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; its figure goes to docs/images")
    options = parser.parse_args()
    options.out.write_text(page(options.recording, options.data), encoding="utf-8")
