"""Write docs/results.md: what ODAR gains on recorded pairs of models, and where it does not.

    python scripts/results.py                          # the committed recording alone
    python scripts/results.py --data ../shared/data    # and the recorded pairs of large models

No model is called. The recording of the local pair has two halves. Everything that is fitted is fitted to one half
and judged on the other: "judged" applies what is fitted to the calibration half, which is what the profile `local`
ships; "cross-fitted" does the same in both directions and pools the items.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.evidence import evidence_of, fit_statistics, is_complete_item
from odar.calibration.install import table
from odar.calibration_file import Calibration
from odar.config import load_settings
from odar.engine import Odar
from odar.evals.replay.arrays import PanelArrays, load_arrays, with_calibration
from odar.evals.replay.policies import run
from odar.evals.replay.setting import Setting
from odar.evals.replay.simulate import PolicyOutcome, always, odar
from odar.policy.path import HARD, MEDIUM, SIMPLE
from odar.policy.target import ThresholdPath
from odar.recording.files import open_recording
from odar.recording.schema import RecordedItem

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "runs/local-pair/recording.jsonl.gz"
PAGE = ROOT / "docs/results.md"
FIGURE = ROOT / "docs/images/results.svg"
MAX_CALLS = 3.0
"""Thresholds are chosen for accuracy within this many calls per question: half of always-hard's six."""
GRID = tuple(round(0.05 * i, 2) for i in range(20))
PRICES = {"qwen2.5-coder-0.5b": 0.049, "qwen2.5-coder-1.5b": 0.154}
"""US dollars per million tokens, in proportion to the parameters (0.49 and 1.54 billion): the models are free."""
STEPS = 101
RESAMPLES = 4000


@dataclass(frozen=True)
class Half:
    """One half of the recording under settings that were fitted to the other half."""

    arrays: PanelArrays
    setting: Setting
    path: ThresholdPath


@dataclass(frozen=True)
class Rows:
    """One policy over some items."""

    name: str
    score: np.ndarray
    calls: np.ndarray
    cost: np.ndarray
    mix: tuple[float, float, float] | None = None


def items_of(split: str) -> list[RecordedItem]:
    """The complete items of one half."""
    return [item for item in open_recording(RECORDING).items(split) if is_complete_item(item)]


def fitted_to(split: str, mode: str = "posterior") -> Calibration:
    """Statistics, quantiles and thresholds of the profile `local` from this half alone.

    The thresholds are the most accurate ones of a grid with at most `MAX_CALLS` calls on average.
    """
    engine, items = Odar(load_settings(profile="local", calibration="")), items_of(split)
    evidence = evidence_of(items, engine.settings.fusion.varentropy_weight)
    measured = Calibration(table(engine, fit_statistics(evidence)))
    arrays = at_nominal_prices(load_arrays(RECORDING, split=split), items)
    arrays = PanelArrays(with_calibration(arrays.header, measured), arrays.items, arrays.answers)
    setting = replace(Setting.of(arrays.header), mode=mode, first_wave=engine.settings.fusion.first_wave)
    best = (-1.0, 0.0, 0.0, 0.0)
    for tau1, tau2 in ((a, b) for a in GRID for b in GRID if a <= b):
        found = odar(arrays, replace(setting, tau1=tau1, tau2=tau2))
        if found.calls.mean() <= MAX_CALLS:
            best = max(best, (float(found.score.mean()), -float(found.calls.mean()), tau1, tau2))
    chosen = {"routing.tau1": best[2], "routing.tau2": best[3], "routing.mode": mode}
    return replace(measured, settings=chosen)


def at_nominal_prices(arrays: PanelArrays, items: Sequence[RecordedItem]) -> PanelArrays:
    """The recording with tokens priced by the size of the model."""
    price = np.array([PRICES[source["model"]] / 1e6 for source in arrays.header.sources])[arrays.answers.source]
    prompts = np.array([[attempt.usage.input or 0 for attempt in item.attempts] for item in items])
    answers = replace(arrays.answers, output_usd=price * arrays.answers.output, prompt_usd=price * prompts)
    return PanelArrays(arrays.header, arrays.items, answers)


def half(split: str, calibration: Calibration) -> Half:
    """One half under a calibration, at nominal prices."""
    arrays = at_nominal_prices(load_arrays(RECORDING, split=split), items_of(split))
    arrays = PanelArrays(with_calibration(arrays.header, calibration), arrays.items, arrays.answers)
    first_wave = load_settings(profile="local").fusion.first_wave
    setting = replace(Setting.of(arrays.header), first_wave=first_wave)
    return Half(arrays, setting, ThresholdPath.through((setting.tau1, setting.tau2)))


def with_first_wave(each: Half) -> PanelArrays:
    """The arrays with the profile's first wave in their header, where policies by name read it."""
    fusion = {**each.arrays.header.settings["fusion"], "first_wave": each.setting.first_wave}
    header = replace(each.arrays.header, settings={**each.arrays.header.settings, "fusion": fusion})
    return PanelArrays(header, each.arrays.items, each.arrays.answers)


def joined(name: str, parts: Sequence[PolicyOutcome]) -> Rows:
    """One policy over the items of several halves."""
    join = [
        np.concatenate([getattr(each, field) for each in parts]) for field in ("score", "calls", "cost", "path")
    ]
    mix = np.bincount(join[3], minlength=3) / len(join[3]) if join[3].min() >= 0 else None
    return Rows(name, join[0], join[1], join[2], None if mix is None else tuple(map(float, mix)))


def at(halves: Sequence[Half], t: float) -> list[PolicyOutcome]:
    """ODAR at one point of the path from always Simple (t = 0) to always Hard (t = 1)."""
    found = []
    for each in halves:
        tau1, tau2 = each.path.thresholds(t)
        found.append(odar(each.arrays, replace(each.setting, tau1=tau1, tau2=tau2)))
    return found


def at_target(halves: Sequence[Half], mean: Callable[[Rows], float], target: float, name: str) -> Rows:
    """ODAR where a mean (of calls or dollars) comes closest to a target; no score is looked at."""
    curve = [joined(name, at(halves, t)) for t in np.linspace(0, 1, STEPS)]
    return min(curve, key=lambda rows: abs(mean(rows) - target))


def matched(halves: Sequence[Half], chosen: Rows, name: str, *, by_length: bool) -> Rows:
    """The mix of paths of `chosen`, by the length of the question, or at random (the exact expectation)."""
    assert chosen.mix is not None
    paths = [[always(each.arrays, each.setting, path, name) for path in (SIMPLE, MEDIUM, HARD)] for each in halves]
    table = {
        field: np.concatenate([np.stack([getattr(run, field) for run in runs], axis=1) for runs in paths])
        for field in ("score", "calls", "cost")
    }
    if by_length:
        lengths = np.concatenate([[len(text) for text in each.arrays.items.query] for each in halves])
        order = np.argsort(np.argsort(lengths, kind="stable"))
        edges = np.cumsum(np.round(np.array(chosen.mix) * len(lengths)))[:2]
        weights = np.eye(3)[np.searchsorted(edges, order, side="right")]
    else:
        weights = np.tile(chosen.mix, (len(table["score"]), 1))
    values = {field: (column * weights).sum(axis=1) for field, column in table.items()}
    return Rows(name, values["score"], values["calls"], values["cost"], chosen.mix)


def share_kept(odar_rows: Rows, hard: Rows, fast: Rows) -> Interval:
    """Share of always-hard's gain over single-fast that ODAR keeps; the ratio is resampled by question."""
    rng = np.random.default_rng(0)
    gains = np.stack([odar_rows.score - fast.score, hard.score - fast.score])
    draws = rng.integers(0, gains.shape[1], (RESAMPLES, gains.shape[1]))
    kept, whole = gains[0][draws].mean(axis=1), gains[1][draws].mean(axis=1)
    ratio = np.where(whole > 0, kept / np.where(whole > 0, whole, 1), np.nan)
    low, high = np.nanpercentile(ratio, [2.5, 97.5])
    return Interval(float(gains[0].mean() / gains[1].mean()), float(low), float(high))


def table_of(halves: Sequence[Half], prior: Sequence[Half]) -> tuple[list[Rows], dict[str, str]]:
    """Every policy on the same items, and the comparisons that a reader wants."""

    def policy(spec: str) -> Rows:
        outcomes = []
        for each in halves:
            outcomes.append(run(with_first_wave(each), spec))
        return joined(spec, outcomes)

    fast, slow, hard = policy("single-fast"), policy("single-slow"), policy("always-hard")
    routing = load_settings(profile="local").routing
    shipped = [replace(each.setting, tau1=routing.tau1, tau2=routing.tau2) for each in halves]
    as_shipped = joined("**ODAR**, as shipped", [odar(h.arrays, s) for h, s in zip(halves, shipped, strict=True)])
    default = joined("**ODAR**, within three calls", [odar(each.arrays, each.setting) for each in halves])
    calls = lambda rows: float(rows.calls.mean())  # noqa: E731
    dollars = lambda rows: float(rows.cost.mean())  # noqa: E731
    half_calls = at_target(halves, calls, calls(hard) / 2, "**ODAR**, half of always-hard's calls")
    same_dollars = at_target(halves, dollars, dollars(slow), "**ODAR**, the dollars of single-slow")
    random = matched(halves, default, "random, ODAR's mix of paths", by_length=False)
    length = matched(halves, default, "length of the question, ODAR's mix", by_length=True)
    by_prior = joined("ODAR, routed by the question alone", [odar(each.arrays, each.setting) for each in prior])
    rows = [
        fast, slow, policy("self-consistency:k=5"), policy("best-of-n:n=5"), policy("always-medium"), hard,
        random, length, by_prior, default, half_calls, same_dollars, as_shipped, policy("oracle-router"),
    ]  # fmt: skip
    random_half = matched(halves, half_calls, "", by_length=False)
    length_half = matched(halves, half_calls, "", by_length=True)
    said = {
        "ODAR − random, within three calls": difference(default, random),
        "ODAR − length, within three calls": difference(default, length),
        "ODAR − random, at half of the calls": difference(half_calls, random_half),
        "ODAR − length, at half of the calls": difference(half_calls, length_half),
        "ODAR − single-slow, at equal dollars": difference(same_dollars, slow),
        "ODAR − always-hard, as shipped": difference(as_shipped, hard),
        KEPT + ", as shipped": f"{share_kept(as_shipped, hard, fast)} at {calls(as_shipped):.2f} calls",
        KEPT + " within three calls": f"{share_kept(default, hard, fast)} at {calls(default):.2f} calls",
        "the same, routed by the question alone": f"{share_kept(by_prior, hard, fast)} at {calls(by_prior):.2f} calls",
        KEPT
        + " at half of its calls": f"{share_kept(half_calls, hard, fast)} at {calls(half_calls):.2f} of {calls(hard):.2f} calls",
    }
    return rows, said


KEPT = "share of always-hard's gain kept"


def verdict(signed: str) -> str:
    """Whether an interval such as "+0.010 [-0.020, +0.040]" holds 0."""
    low, high = (float(part) for part in signed.partition("[")[2].rstrip("]").split(","))
    return "above" if low > 0 else "below" if high < 0 else "no significant difference"


def difference(first: Rows, second: Rows) -> str:
    """The paired difference with its interval."""
    return bootstrap_mean(first.score - second.score, shares=False).signed()


def markdown(rows: Sequence[Rows]) -> list[str]:
    """The policies as a table."""
    lines = ["| policy | accuracy | calls | $ per 1,000 | simple / medium / hard |", "|---|---|---|---|---|"]
    for row in rows:
        mix = "–" if row.mix is None else " / ".join(f"{share:.0%}" for share in row.mix)
        lines.append(
            f"| {row.name} | {bootstrap_mean(row.score)} | {row.calls.mean():.2f} | {1000 * row.cost.mean():.4f} | {mix} |"
        )
    return lines


def by_set(halves: Sequence[Half]) -> list[str]:
    """Accuracy by set: each agent, always-hard and ODAR."""
    names = [key.set for each in halves for key in each.arrays.items.keys]
    columns = [
        joined(spec, [run(with_first_wave(each), spec) for each in halves])
        for spec in ("single-fast", "single-slow", "always-medium", "always-hard")
    ] + [joined("ODAR within three calls", [odar(each.arrays, each.setting) for each in halves])]
    lines = ["| set | items | " + " | ".join(each.name for each in columns) + " | ODAR's calls |"]
    lines.append("|---" * (len(columns) + 3) + "|")
    for name in sorted(set(names)):
        own = np.array([each == name for each in names])
        figures = " | ".join(f"{column.score[own].mean():.3f}" for column in columns)
        lines.append(f"| {name} | {own.sum()} | {figures} | {columns[-1].calls[own].mean():.2f} |")
    return lines


def curve(halves: Sequence[Half]) -> list[tuple[float, float]]:
    """Mean calls and accuracy of ODAR along the path from always Simple to always Hard."""
    points = [joined("", at(halves, t)) for t in np.linspace(0, 1, STEPS)]
    return sorted({(float(rows.calls.mean()), float(rows.score.mean())) for rows in points})


def draw(halves: Sequence[Half], rows: Sequence[Rows]) -> None:
    """Accuracy against calls, legible on light and dark pages."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "odar", "font.size": 11})
    grey, blue = "#808080", "#2f7ed8"
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    axes.plot(*zip(*curve(halves), strict=True), color=blue, linewidth=2, label="ODAR, any target")
    fast, hard = rows[0], next(row for row in rows if row.name == "always-hard")
    ends = [(row.calls.mean(), row.score.mean()) for row in (fast, hard)]
    axes.plot(*zip(*ends, strict=True), color=grey, linestyle=":", label="random between the ends")
    for row in rows:
        if row.name in ("single-fast", "single-slow", "always-medium", "always-hard", "self-consistency:k=5"):
            axes.plot(row.calls.mean(), row.score.mean(), "o", color=grey)
            axes.annotate(
                row.name, (row.calls.mean(), row.score.mean()), (4, -12), textcoords="offset points", color=grey
            )
    axes.set_xlabel("calls per question", color=grey)
    axes.set_ylabel("accuracy", color=grey)
    axes.tick_params(colors=grey)
    for side in axes.spines.values():
        side.set_color(grey)
    axes.legend(frameon=False, labelcolor=grey)
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


LARGE = (
    (
        "MMLU-Pro, gpt-4.1-nano → gpt-4.1",
        "--fast {d}/mmlu_pro_outcomes/outcomes.parquet --slow {d}/mmlu_pro_outcomes/outcomes.parquet --fast-model gpt-4.1-nano "
        "--slow-model gpt-4.1 --questions {d}/mmlu_pro_outcomes/items.jsonl --map id=row --set-name mmlu_pro",
    ),
    (
        "MATH level 5, gpt-4o-mini → claude-3.5-sonnet",
        "--fast {d}/math_l5_outputs/outputs.jsonl.gz --slow {d}/math_l5_outputs/outputs.jsonl.gz --map text=outputs.{{model}} "
        "--fast-model gpt-4o-mini-2024-07-18 --slow-model claude-3-5-sonnet-20241022 --score-by math",
    ),
    (
        "free text, Llama-3.1-8B → GPT-5 (token F1)",
        "--fast {d}/freetext_cascade/outcomes.jsonl.gz --slow {d}/freetext_cascade/outcomes.jsonl.gz --map id=row "
        "--fast-map text=fast.1.text --fast-map mean_logprob=fast.1.mean_logprob --slow-map text=slow.0.text --score-by f1",
    ),
)
"""Recorded pairs of large models, and how `odar eval import` reads them."""


def large_pairs(data: Path) -> list[str]:
    """A table for each recorded pair of large models, by `odar eval import`."""
    lines: list[str] = []
    for title, arguments in LARGE:
        command = ["eval", "import", *arguments.format(d=data).split()]
        found = subprocess.run(  # the same command that a reader types
            [sys.executable, "-c", "from odar.cli.main import main; main()", *command, "--json"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if found.returncode:
            print(f"{title}: {found.stderr.strip()[:300]}", file=sys.stderr)
            continue
        body = json.loads(found.stdout)
        rows = {row["name"]: row for row in body["rows"]}
        fast, slow = (rows[name]["accuracy"]["value"] for name in ("always fast", "always slow"))
        lines += ["", f"### {title}", "", f"{body['items']:,} questions.", ""]
        lines += [
            "| | accuracy | gain over fast | share of the gain | calls | $ per 1,000 |",
            "|---|---|---|---|---|---|",
        ]
        for name, row in rows.items():
            accuracy, gain = Interval(**row["accuracy"]), Interval(**row["gain"])
            kept = f"{(accuracy.value - fast) / (slow - fast):.0%}" if slow > fast else "–"
            dollars = "unknown" if row["cost_usd"] is None else f"{1000 * row['cost_usd']:.3f}"
            lines.append(f"| {name} | {accuracy} | {gain.signed()} | {kept} | {row['calls']:.2f} | {dollars} |")
        ranks = ", ".join(f"{name} {value:.3f}" for name, value in body["apgr"].items())
        shown = arguments.format(d="DIR")
        lines += ["", f"APGR: {ranks}.", "", f"`odar eval import {shown}`"]
    return lines


def page(data: Path | None) -> str:
    """The whole page."""
    fits = {split: fitted_to(split) for split in ("calibrate", "judge")}
    judged = [half("judge", fits["calibrate"])]
    crossed = [*judged, half("calibrate", fits["judge"])]
    others = {"judge": "calibrate", "calibrate": "judge"}
    prior = [half(split, fitted_to(other, "prior")) for split, other in others.items()]
    lines = [
        "# Results",
        "",
        "What ODAR gains on recorded pairs of models, and where it does not. Written by `python scripts/results.py --data DIR`",
        "from [the recording of the local pair](../runs/local-pair/README.md), without a single call. Intervals are 95%.",
        "",
        "## The local pair",
        "",
        "Qwen2.5-Coder-0.5B-Instruct (fast) and Qwen2.5-Coder-1.5B-Instruct (slow), both Q4_K_M, with the prompts and budgets of the profile `local`.",
        "Thresholds are the most accurate ones within three calls per question, half of the six that the Hard path may take. Dollars are nominal: the models are free, so tokens are priced in proportion",
        "to parameters ($0.049 and $0.154 per million).",
    ]
    start = len(lines)
    for title, halves, about in (
        (
            "Judged half",
            judged,
            "Fitted to the calibration half, judged on the other. Prompt of the Medium path and size of the first wave were chosen while looking at both halves, so these figures are optimistic.",
        ),
        ("Both halves, cross-fitted", crossed, "Each half under settings fitted to the other half."),
    ):
        rows, said = table_of(halves, prior[: len(halves)])
        lines += [
            "",
            f"### {title}",
            "",
            f"{about} {sum(len(each.arrays) for each in halves)} items.",
            "",
            *markdown(rows),
            "",
        ]
        lines += ["| comparison | difference or share |", "|---|---|"] + [
            f"| {name} | {figure} |" for name, figure in said.items()
        ]
        lines += ["", *by_set(halves)]
        if halves is crossed:
            random, length = (said[f"ODAR − {name}, within three calls"] for name in ("random", "length"))
            summary = [
                "",
                f"**In short**, cross-fitted: within three calls ODAR differs from the same mix of paths at random by {random}",
                f"({verdict(random)}), and from the same mix by length of the question by {length} ({verdict(length)}). Of always-hard's",
                f"gain over the fast model it keeps {said[KEPT + ' within three calls']}; routed by the question alone,",
                f"{said['the same, routed by the question alone']}; as shipped, with thresholds for ordinary questions rather than",
                f"for few calls, {said[KEPT + ', as shipped']}. Our goal is 0.9 at half of the calls. Reasons are in the",
                "[lab notes](lab-notes.md).",
            ]
            lines[start:start] = summary
            draw(halves, rows)
    lines += ["", "![Accuracy against calls](images/results.svg)"]
    if data is not None:
        lines += [
            "",
            "## Recorded pairs of large models",
            "",
            "One fast and one slow answer each: where ODAR escalates, the slow answer is returned and both calls are paid.",
        ]
        lines += ["Nothing is fitted to these scores; the posterior is the shipped one.", *large_pairs(data)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--data", type=Path, help="folder with the recorded pairs of large models")
    parser.add_argument("--stdout", action="store_true", help="print the page instead of writing it")
    arguments = parser.parse_args()
    RECORDING = arguments.recording
    text = page(arguments.data)
    if arguments.stdout:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
