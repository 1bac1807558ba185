"""Write docs/results.md: what ODAR gains on recorded models, including models without a gain.

    python scripts/benchmarks/results.py                          # the committed recording alone
    python scripts/benchmarks/results.py --data ../shared/data    # and recorded answers of large models

No model is called. Nothing is judged by what was fitted to it: the local pair in five folds, large models on questions that no
calibration has seen.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from odar.calibration_file import Calibration
from odar.config import with_values
from odar.lab.calibration.compare import Goal, compare, walk_all
from odar.lab.calibration.fit import fit_calibration
from odar.lab.intervals import Interval, bootstrap_mean
from odar.lab.replay.outcomes import Outcomes, best_mixture, cost_at_accuracy, mean_outcomes, upper_hull
from odar.lab.replay.policies import run_policy
from odar.lab.replay.table import ReplayTable, load_table
from odar.policy.arrays import Array
from odar.types import SLOW

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "runs/local-pair/recording.jsonl.gz"
PAGE = ROOT / "docs/results.md"
FIGURES = ROOT / "docs/images"
CACHE = Path.home() / ".cache/odar-results"
JUDGED = 1500
"""Questions of a large set that are judged; calibrations see others."""
DRAWS = 4
"""Draws of the questions of a calibration."""
LABELS = (100, 400)
CURVE = ("50", "economy", "16", "balanced", "6", "quality", "1")
NAMED_DIALS = ("economy", "balanced", "quality")
GREY, BLUE, LIGHT, ORANGE = "#808080", "#3b7dd8", "#8fb8ea", "#d8843b"


@dataclass(frozen=True)
class Row:
    """A policy on the judged questions: means over draws for each question."""

    name: str
    outcome: Outcomes
    over_fixed: Array | None = None
    """Difference to the best mixture of fixed choices of the same cost (SPEC 9.9); None for those themselves."""

    @property
    def score(self) -> Array:
        return self.outcome.score

    @property
    def point(self) -> tuple[float, float]:
        """Dollars per 1,000 questions and accuracy."""
        return 1000 * float(self.outcome.cost_usd.mean()), float(self.score.mean())


def row_of(name: str, choices: Sequence[Outcomes], fixed: Sequence[Row]) -> Row:
    """A policy that was fitted to several draws, on the same questions."""
    known = [row.outcome for row in fixed]
    over = [each.score - best_mixture(known, float(each.cost_usd.mean())).score for each in choices if fixed]
    return Row(name, mean_outcomes(choices), np.mean(over, axis=0) if over else None)


def cascade(dial: str, **more: object) -> dict:
    """The settings of a cascade."""
    return {"policy": "cascade", **more, "routing.dial": dial}


def why_paper(table: ReplayTable) -> str:
    """Where the paper's policy loses, by path."""
    paper = run_policy(table, "paper")
    slow = run_policy(table, "single-slow")
    simple, medium = paper.path == 0, paper.path == 1
    return (
        f"It reads the question alone, and stops after the fast model on {simple.mean():.0%} of the items: {paper.score[simple].mean():.3f} right there, where the slow model has "
        f"{slow.score[simple].mean():.3f}. On its Medium path ({medium.mean():.0%}) fusion by free energy gives {paper.score[medium].mean():.3f}, the slow answer alone {slow.score[medium].mean():.3f}."
    )


def table_lines(rows: Sequence[Row], slow: Row, strata: Sequence[str]) -> list[str]:
    """A table of policies."""
    lines = [
        "| | accuracy | $ per 1,000 | slow = 1 | over fixed choices at equal dollars | calls |",
        "|---" * 6 + "|",
    ]
    for row in rows:
        accuracy = bootstrap_mean(row.score, strata=strata)
        over = (
            "–" if row.over_fixed is None else bootstrap_mean(row.over_fixed, strata=strata, shares=False).signed()
        )
        dollars, share = row.point[0], row.point[0] / slow.point[0]
        digits = 3 if slow.point[0] > 0.1 else 4
        lines.append(
            f"| {row.name} | {accuracy} | {dollars:.{digits}f} | {share:.2f} | {over} | {row.outcome.calls.mean():.2f} |"
        )
    return lines


def verdict(found: Interval) -> str:
    """What an interval of a difference shows."""
    return "**better**" if found.low > 0 else "**worse**" if found.high < 0 else "no difference shown"


def share_at_slow(rows: Sequence[Row], slow: Row) -> str:
    """At which share of slow's cost a curve is as accurate as slow, interpolated along the dial."""
    cost = cost_at_accuracy([row.outcome for row in rows], slow.point[1])
    if cost is None:
        return "at no dial as accurate as the slow model"
    return f"as accurate as the slow model at {1000 * cost / slow.point[0]:.2f} of its cost"


# --- the local pair ----------------------------------------------------------------------------------------------


def local_pair(recording: Path) -> list[str]:
    """The local pair: fixed choices, the cascade without labels and calibrated, in five folds; and a figure."""
    table = load_table(recording)
    settings = with_values(table.settings, {"routing.stages": (), "policy": "cascade"})
    plain = table.replaced(calibration=Calibration(), settings=settings)
    strata = [item.key.set for item in table.items]
    found = compare(plain, Goal("balanced", plain.reference_usd))
    choices = {each.name: each for each in found.choices}
    fixed = [row_of(name, [choices[name]], []) for name in ("fast", SLOW, f"{SLOW}*3", f"{SLOW}*5")]
    slow = fixed[1]
    named = [name for name in choices if name.startswith("cascade*5 ")]
    calibrated = [row_of(name.replace("cascade*5", "calibrated,"), [choices[name]], fixed) for name in named]
    calibrated.sort(key=lambda row: row.point[0])
    unlabelled = plain.replaced(calibration=plain.own_calibration())
    without = [
        row_of(f"without labels, {dial}", walk_all(unlabelled, [cascade(dial)]), fixed) for dial in NAMED_DIALS
    ]
    paper = row_of("paper", [run_policy(table, "paper")], fixed)
    shipped = load_table(recording, calibration="local", split="held-out")
    draw(FIGURES / "results.svg", [("the local pair", fixed, paper, without, calibrated)])
    rows = [*fixed, paper, *without, *calibrated]
    gaps = {row.name: bootstrap_mean(row.over_fixed, strata=strata, shares=False) for row in calibrated}
    least = min(gaps.values(), key=lambda each: each.value)
    best = max(fixed, key=lambda row: row.point[1])
    behind = bootstrap_mean(paper.over_fixed, strata=strata, shares=False)
    installed = shipped.settings.policy
    ours = run_policy(shipped, "odar")
    return [
        f"Qwen2.5-Coder-0.5B-Instruct (fast) and Qwen2.5-Coder-1.5B-Instruct (slow), both Q4_K_M, with the prompts and budgets of the profile `local`; {len(table)} items. Dollars are",
        "nominal: the models are free, so tokens are priced in proportion to parameters. `slow` is the mean over its five samples; `slow*5` is five samples of one request, which share",
        "the prompt, and a majority. Calibrated rows are cross-fitted in five folds, stages `fast`, `slow` and `slow*5`, any of which can be skipped.",
        '"Over fixed choices" compares with the best random mixture of `fast`, `slow`, `slow*3` and `slow*5` that costs as much.',
        "",
        "**In short:**",
        "",
        f"- The most accurate fixed choice is {best.name}: {best.point[1]:.3f} at {best.point[0] / slow.point[0]:.2f} of one slow call.",
        f"- The calibrated cascade against the best mixture of fixed choices at equal dollars: from {least.signed()} to",
        f"  {max(gaps.values(), key=lambda each: each.value).signed()} along the dial; {share_at_slow(calibrated, slow)}. It gains by choosing the agent by the kind of question.",
        f"- The paper's policy against the same: {behind.signed()} ({verdict(behind)}). {why_paper(table)}",
        f"- Installed with the profile `local`: `{installed}`, {ours.score.mean():.3f} on the {len(shipped)} judged items at {ours.calls.mean():.2f} calls. One call is quick on two cores; five samples take up to",
        "  a minute.",
        "- Reasons are in the [lab notes](lab-notes.md#local-models).",
        "",
        "![Accuracy against dollars](images/results.svg)",
        "",
        *table_lines(rows, slow, strata),
        "",
        *by_set(table, fixed, [paper, *[row for row in calibrated if row.name.endswith((" balanced", " economy"))]]),
    ]  # fmt: skip


def by_set(table: ReplayTable, fixed: Sequence[Row], others: Sequence[Row]) -> list[str]:
    """Accuracy of policies on each set, and the relative cost of the last of them."""
    rows = [*fixed, *others]
    lines = ["| set | items | " + " | ".join(row.name for row in rows) + " |", "|---" * (len(rows) + 2) + "|"]
    for name in sorted(table.sets()):
        own = table.of_set(name)
        figures = " | ".join(f"{row.score[own].mean():.3f}" for row in rows)
        lines.append(f"| {name} | {own.sum()} | {figures} |")
    return lines


# --- recorded answers of large models ------------------------------------------------------------------------------

LARGE_TITLE = "## Recorded answers of large models"
_MMLU = (
    "--answers {a}={d}/mmlu_pro_outcomes/outcomes.parquet --answers {b}={d}/mmlu_pro_outcomes/outcomes.parquet "
    "--answers {c}={d}/mmlu_pro_outcomes/outcomes.parquet --fast {a} --second {b} --slow {c} "
    "--questions {d}/mmlu_pro_outcomes/items.jsonl --map id=row --set-name mmlu_pro"
)
_MATH = (
    "--answers {a}={d}/math_l5_outputs/outputs.jsonl.gz --answers {b}={d}/math_l5_outputs/outputs.jsonl.gz "
    "--answers {c}={d}/math_l5_outputs/outputs.jsonl.gz --fast {a} --second {b} --slow {c} --map text=outputs.{{model}} "
    "--score-by math"
)
_FREE_TEXT = (
    "--answers {a}={d}/freetext_cascade/outcomes.jsonl.gz --answers {c}={d}/freetext_cascade/outcomes.jsonl.gz --slow {c} "
    "--map id=row --map {a}:text=fast.1.text --map {a}:mean_logprob=fast.1.mean_logprob --map {c}:text=slow.0.text "
    "--score-by f1"
)
TRIPLES = {
    "MMLU-Pro: gpt-4.1-nano and gemini-2.0-flash-lite, then gpt-4.1": (
        _MMLU, {"gpt-4.1-nano": "0.1,0.4", "gemini-2.0-flash-lite": "0.075,0.3", "gpt-4.1": "2,8"}, ""),
    "MMLU-Pro: Qwen3-4B and gemma-3-4b, then Qwen3-32B": (
        _MMLU, {"Qwen3-4B": "0.03,0.03", "gemma-3-4b-it": "0.04,0.08", "Qwen3-32B": "0.1,0.3"}, ""),
    "MMLU-Pro: gpt-4o-mini and claude-3.5-haiku, then claude-3.7-sonnet": (
        _MMLU, {"gpt-4o-mini-2024-07-18": "0.15,0.6", "claude-3-5-haiku-20241022": "0.8,4",
                "claude-3-7-sonnet-20250219": "3,15"}, ""),
    "MATH level 5: gpt-4o-mini and Qwen2.5-32B, then o1-mini": (
        _MATH, {"gpt-4o-mini-2024-07-18": "0.15,0.6", "Qwen2.5-32B-Instruct": "0.36,0.4", "o1-mini-2024-09-12": "1.1,4.4"},
        "The price of Qwen2.5-32B is that of the 72B, an upper bound. The hidden reasoning tokens of o1-mini are not in its recorded length, so slow is too cheap here."),
    "Free text (CoQA, token F1): Llama-3.1-8B, then GPT-5": (
        _FREE_TEXT, {"llama": "0.05,0.08", "gpt-5": "1.25,10"},
        "The set has no question texts, so d(x) is unknown, and prompts cost nothing here."),
}  # fmt: skip
"""Title → command, prices in dollars per million tokens (fast, second, slow), and a remark."""


def import_arguments(pattern: str, prices: Mapping[str, str], data: str) -> str:
    """The arguments of `odar eval import`."""
    fast, *second, slow = prices
    models = pattern.format(a=fast, b="".join(second), c=slow, d=data)
    return " ".join([models, *(f"--price {name}={price}" for name, price in prices.items())])


def imported(arguments: str) -> ReplayTable:
    """The table of imported answers, by the command that a reader types; the recording is kept in `CACHE`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    file = CACHE / f"{hashlib.sha256(arguments.encode()).hexdigest()[:16]}.jsonl.gz"
    if not file.exists():
        command = ["eval", "import", *arguments.split(), "--out", str(file), "--json"]
        run = [sys.executable, "-c", "from odar.cli.main import main; main()", *command]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{arguments}: {done.stderr.strip()[:300]}")
    table = load_table(file)
    first = table.sets()[0]
    return table.replaced(rows=table.of_set(first)) if len(table.sets()) > 1 else table


def split(table: ReplayTable) -> tuple[ReplayTable, ReplayTable]:
    """Random questions to judge, and those to calibrate with."""
    order = np.random.default_rng(42).permutation(len(table))
    judged = min(JUDGED, len(table) - LABELS[-1])
    return table.replaced(rows=np.sort(order[:judged])), table.replaced(rows=np.sort(order[judged:]))


def calibrated_rows(
    judged: ReplayTable, pool: ReplayTable, labels: int, dials: Sequence[str], fixed: Sequence[Row]
) -> list[Row]:
    """The cascade at each dial, calibrated with this many labels; means over draws."""
    plain = pool.replaced(calibration=Calibration())
    found: list[list[Outcomes]] = []
    for seed in range(DRAWS):
        drawn = np.zeros(len(pool), dtype=bool)
        drawn[np.random.default_rng(seed).choice(len(pool), labels, replace=False)] = True
        fitted = judged.replaced(calibration=fit_calibration(plain.replaced(rows=drawn), belief=True))
        found.append(walk_all(fitted, [cascade(dial) for dial in dials]))
    return [
        row_of(f"{labels} labels, {dial}", own, fixed)
        for dial, own in zip(dials, zip(*found, strict=True), strict=True)
    ]


def large_models(data: Path) -> list[str]:
    """A table for each triple, and one figure of all."""
    lines: list[str] = []
    panels = []
    for title, (pattern, prices, remark) in TRIPLES.items():
        print(title, file=sys.stderr, flush=True)
        table = imported(import_arguments(pattern, prices, str(data)))
        judged, pool = split(table)
        fixed = [row_of(name, walk_all(judged, [{"policy": name}]), []) for name in table.agents]
        slow = fixed[-1]
        paper = row_of("paper", [run_policy(judged, "paper")], fixed)
        choices = walk_all(judged, [cascade(dial) for dial in CURVE])
        without = [row_of(f"no labels, {dial}", [each], fixed) for dial, each in zip(CURVE, choices, strict=True)]
        few = calibrated_rows(judged, pool, LABELS[0], NAMED_DIALS, fixed)
        calibrated = calibrated_rows(judged, pool, LABELS[1], CURVE, fixed)
        shown = [row for row in (*without, *few, *calibrated) if row.name.endswith(NAMED_DIALS)]
        panels.append((title.partition(":")[2].strip(), fixed, paper, without, calibrated))
        strata = [""] * len(judged)
        lines += ["", f"### {title}", "", f"`odar eval import {import_arguments(pattern, prices, 'DIR')}`", ""]
        lines += [f"{len(judged):,} judged questions of {len(table):,}. {remark}".strip(), ""]
        lines += [*table_lines([*fixed, paper, *shown], slow, strata), ""]
        lines.append(
            f"Without labels {share_at_slow(without, slow)}; with {LABELS[1]} labels {share_at_slow(calibrated, slow)}. {pays(calibrated, strata)}"
        )
    draw(FIGURES / "results-large.svg", panels[:4])  # the free texts are one line
    return lines


def pays(rows: Sequence[Row], strata: Sequence[str]) -> str:
    """Whether the cascade beats the fixed choices by at least half a point, in one sentence."""
    gains = {row.name: bootstrap_mean(row.over_fixed, strata=strata, shares=False) for row in rows}
    best, found = max(gains.items(), key=lambda each: each[1].low)
    if found.low > 0.005:
        return f"It pays: at best {found.signed()} over the fixed choices at equal dollars ({best})."
    return f"**It does not pay here**: at best {found.signed()} over the fixed choices at equal dollars ({best})."


# --- figures and page --------------------------------------------------------------------------------------------


def draw(file: Path, panels: Sequence[tuple[str, Sequence[Row], Row, Sequence[Row], Sequence[Row]]]) -> None:
    """Accuracy against dollars, a panel for each pair or triple."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "odar"
    import matplotlib.pyplot as plt

    columns = min(2, len(panels))
    count = -(-len(panels) // columns)
    figure, places = plt.subplots(
        count, columns, figsize=(7.2 if columns == 1 else 10, 4.2 if columns == 1 else 3.5 * count), squeeze=False
    )
    for axes, (title, fixed, paper, without, calibrated) in zip(places.flat, panels, strict=False):
        axes.plot(*zip(*upper_hull([row.point for row in fixed]), strict=True), color=GREY, linewidth=2, alpha=0.5)
        axes.plot(
            *zip(*sorted(row.point for row in without), strict=True),
            color=LIGHT,
            marker="o",
            markersize=4,
            label="cascade, no labels",
        )
        axes.plot(
            *zip(*sorted(row.point for row in calibrated), strict=True),
            color=BLUE,
            marker="o",
            markersize=4,
            label="cascade, calibrated",
        )
        for row in (*fixed, paper):
            axes.scatter(*row.point, color=ORANGE if row is paper else GREY, s=28, zorder=3)
            axes.annotate(
                row.name,
                row.point,
                (6, 5 if row is paper else -11),
                textcoords="offset points",
                color=GREY,
                fontsize=8,
            )
        axes.set_title(title, color=GREY, fontsize=9)
        axes.set_xlabel("$ per 1,000 questions", color=GREY, fontsize=8)
        axes.set_ylabel("accuracy", color=GREY, fontsize=8)
        axes.tick_params(colors=GREY, labelsize=8)
        axes.margins(x=0.14, y=0.14)
        for side in axes.spines.values():
            side.set_color(GREY)
        axes.patch.set_alpha(0)
    for axes in places.flat[len(panels) :]:
        axes.axis("off")
    places.flat[0].legend(frameon=False, labelcolor=GREY, loc="lower right", fontsize=8)
    figure.patch.set_alpha(0)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def page(recording: Path, data: Path | None) -> str:
    """The whole page."""
    lines = [
        "# Results",
        "",
        "What ODAR gains on recorded models, and where it does not. Written by `python scripts/benchmarks/results.py --data DIR` from",
        "[the recording of the local pair](../runs/local-pair/README.md) and public recordings, without a single call. Intervals are 95%. Every call is charged.",
        "",
        "## The local pair",
        "",
        *local_pair(recording),
    ]
    if data is None:  # what was written with --data stays
        _, title, rest = PAGE.read_text(encoding="utf-8").partition(LARGE_TITLE) if PAGE.exists() else ("", "", "")
        lines += ["", title + rest.rstrip()] if title else []
    else:
        lines += [
            "",
            LARGE_TITLE,
            "",
            f"One answer of each model, so that self-consistency cannot be shown. `no labels`: skills by the catalogue's scores or by price. `{LABELS[0]} labels`, `{LABELS[1]} labels`: calibrated with so many other",
            f"questions, mean of {DRAWS} draws. Dollars by recorded output lengths, question lengths and the prices in the command. The belief and d(x) were fitted to models and questions of these public sets, these included, so the",
            "rows without labels flatter a little; [peers](peers.md) has all triples with model families and items left out.",
            "",
            "![Accuracy against dollars](images/results-large.svg)",
            *large_models(data),
        ]
    return "\n".join(lines) + "\n"


README = ROOT / "README.md"
README_ROWS = (
    (
        "gpt-4.1-nano and gemini-2.0-flash-lite, then gpt-4.1: MMLU-Pro",
        "MMLU-Pro: gpt-4.1-nano",
        "no labels, balanced",
    ),
    ("the same, calibrated with 400 labels", "MMLU-Pro: gpt-4.1-nano", "400 labels, balanced"),
    (
        "gpt-4o-mini and claude-3.5-haiku, then claude-3.7-sonnet: MMLU-Pro",
        "MMLU-Pro: gpt-4o-mini",
        "no labels, balanced",
    ),
    ("gpt-4o-mini and Qwen2.5-32B, then o1-mini: MATH level 5", "MATH level 5", "no labels, balanced"),
    ("Llama-3.1-8B, then GPT-5: CoQA, calibrated with 400 labels", "Free text (CoQA", "400 labels, balanced"),
    ("Qwen2.5-Coder 0.5B, then 1.5B, both local", "The local pair", "without labels, balanced"),
)
"""Rows of README's table: text, beginning of the section of the page, and row there."""


def readme_table(page_text: str) -> str:
    """README's table, from the tables of the page; bold where ODAR is as accurate as slow, within half a point, for less."""
    sections = {part.partition("\n")[0].strip("# "): part for part in page_text.split("\n##")}
    lines = [
        "| models, questions | slow alone | ODAR, `balanced` | cost, slow alone = 1 | the paper's policy |",
        "|---" * 5 + "|",
    ]
    for text, section, row in README_ROWS:
        part = next(part for title, part in sections.items() if title.startswith(section))
        cells = {
            line.split(" | ")[0].strip("| "): line.split(" | ")
            for line in part.splitlines()
            if line.startswith("| ")
        }
        (slow, _), (ours, cost), (paper, paper_cost) = (
            (float(cells[name][1].split()[0]), float(cells[name][3])) for name in (SLOW, row, "paper")
        )
        mark = "**" if ours >= slow - 0.005 and cost < 0.995 else ""
        lines.append(
            f"| {text} | {slow:.3f} | {mark}{ours:.3f}{mark} | {mark}{cost:.2f}{mark} | {paper:.3f} at {paper_cost:.2f} |"
        )
    return "\n".join(lines)


def write_readme(page_text: str) -> None:
    """Replace the table in README."""
    before, begin, rest = README.read_text(encoding="utf-8").partition(
        "<!-- RESULTS: written by scripts/benchmarks/results.py -->\n"
    )
    _, end, after = rest.partition("<!-- END RESULTS -->")
    README.write_text(f"{before}{begin}\n{readme_table(page_text)}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--data", type=Path, help="folder with the recorded answers of large models")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; its figures go to docs/images")
    options = parser.parse_args()
    text = page(options.recording, options.data)
    options.out.write_text(text, encoding="utf-8")
    if options.out == PAGE:
        write_readme(text)
