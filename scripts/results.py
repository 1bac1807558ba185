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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.evidence import RIGHT, evidence_of, fit_statistics
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.routing_fit import Goal, RoutingOption, fit_by_gain
from odar.calibration.setup import PathOutcomes
from odar.calibration_file import Calibration
from odar.config import load_settings
from odar.evals.replay.arrays import PanelArrays, load_arrays, with_calibration
from odar.evals.replay.policies import run
from odar.evals.replay.simulate import Setting, always, odar, posterior_of, prior_of
from odar.policy.alignment import Source, StatisticsTable
from odar.policy.path import HARD, MEDIUM, SIMPLE, Route, Routing, Thresholds
from odar.policy.rules import Array
from odar.policy.target import ThresholdPath
from odar.recording.files import open_recording
from odar.recording.schema import RecordedItem
from odar.types import Step

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "runs/local-pair/recording.jsonl.gz"
PAGE = ROOT / "docs/results.md"
FIGURE = ROOT / "docs/images/results.svg"
MAX_CALLS = 3.0
"""Half of the six calls that the Hard path may take."""
TARGETS = (2.0, 4.0)
"""Further targets, in mean calls per question."""
GOAL = 0.9
"""The share of always-hard's gain that ODAR should keep within MAX_CALLS."""
MODES = ("posterior", "prior")
PRICES = {"qwen2.5-coder-0.5b": 0.049, "qwen2.5-coder-1.5b": 0.154}
"""US dollars per million tokens, in proportion to the parameters (0.49 and 1.54 billion): the models are free."""
RESAMPLES = 4000
FIELDS = ("score", "calls", "cost")


@dataclass(frozen=True)
class Half:
    """One half of the recording under settings that do not depend on it."""

    arrays: PanelArrays
    setting: Setting
    by_path: Mapping[str, Array]
    """(N, 3): score, calls and cost of each item on each path."""
    prior: Array
    posterior: Array
    chosen: Mapping[str, Routing]
    """By mode: what `odar calibrate --goal accuracy --max-calls 3` chooses on the other half."""

    def routing(self, mode: str, thresholds: Thresholds) -> Routing:
        """The routing with these thresholds for all experts."""
        return Routing(thresholds, self.setting.n, mode == "posterior", self.setting.clearly_hard)

    def route(self, routing: Routing) -> Route:
        """The path of each item."""
        return routing.route(self.prior, self.posterior, self.arrays.items.expert)


@dataclass(frozen=True)
class Rows:
    """One policy over some items."""

    name: str
    score: Array
    calls: Array
    cost: Array
    mix: Array | None = None


def halves_of(recording: Path) -> dict[str, Half]:
    """Both halves, each under statistics and thresholds that were fitted to the other."""
    settings = load_settings(profile="local", calibration="")
    items = {split: list(open_recording(recording).items(split)) for split in ("calibrate", "judge")}
    plain = {split: priced(load_arrays(recording, split=split), items[split]) for split in items}
    tables = {split: statistics(plain[split], items[split], settings.fusion.varentropy_weight) for split in items}
    own = {split: half(plain[split], tables[split], settings) for split in items}
    fitted = {split: fit_modes(own[split]) for split in items}
    other = {"judge": "calibrate", "calibrate": "judge"}
    found = {split: half(plain[split], tables[other[split]], settings) for split in items}
    return {split: replace(each, chosen=fitted[other[split]]) for split, each in found.items()}


def priced(arrays: PanelArrays, items: Sequence[RecordedItem]) -> PanelArrays:
    """The recording with tokens priced by the size of the model; other models keep their recorded prices."""
    models = [source["model"] for source in arrays.header.sources]
    if not set(models) <= set(PRICES):
        return arrays
    price = np.array([PRICES[model] / 1e6 for model in models])[arrays.answers.source]
    prompts = np.array([[attempt.usage.input or 0 for attempt in item.attempts] for item in items])
    answers = replace(arrays.answers, output_usd=price * arrays.answers.output, prompt_usd=price * prompts)
    return replace(arrays, answers=answers)


def statistics(arrays: PanelArrays, items: Sequence[RecordedItem], weight: float) -> StatisticsTable:
    """μ, σ and quantiles of each source of the recording, from the answers of these items."""
    fitted = dict(
        zip((Step.ANSWER, Step.VERIFY, Step.SOLVE), fit_statistics(evidence_of(items, weight)), strict=True)
    )
    names = ("model", "prompt_md5", "temperature", "top_p", "max_tokens")
    entries = {}
    for source in arrays.header.sources:
        if (known := fitted[Step(source["step"])]) is not None:
            entries[Source(**{name: source[name] for name in names}, varentropy_weight=weight)] = known
    return StatisticsTable(entries)


def half(arrays: PanelArrays, table: StatisticsTable, settings) -> Half:
    """One half under these statistics and the settings of the profile."""
    current = {name: asdict(getattr(settings, name)) for name in ("routing", "fusion")}
    header = replace(arrays.header, settings={**arrays.header.settings, **current})
    arrays = replace(arrays, header=with_calibration(header, Calibration(table)))
    setting = Setting.of(arrays.header)
    runs = [always(arrays, setting, path) for path in (SIMPLE, MEDIUM, HARD)]
    by_path = {name: np.stack([getattr(each, name) for each in runs], axis=1) for name in FIELDS}
    prior = prior_of(arrays, setting)
    found = Half(arrays, setting, by_path, prior, posterior_of(arrays, setting, prior), {})
    shipped = rows_of([found], lambda each: each.route(Routing.configured(settings.routing)).path, "")
    assert np.array_equal(shipped.score, odar(arrays, setting).score), "choosing a path is all that routing does"
    return found


def fit_modes(each: Half) -> dict[str, Routing]:
    """By mode, and as "best" of both: thresholds, by expert too, that are most accurate within MAX_CALLS."""
    size = len(each.prior)
    outcomes = PathOutcomes(each.by_path["score"] >= RIGHT, each.by_path["calls"].astype(int), np.zeros((size, 3)))
    goal, common = Goal("accuracy", max_calls=MAX_CALLS), Thresholds(each.setting.tau1, each.setting.tau2)
    fusion = FusionFit(each.setting.beta, 0.0, np.ones(3))
    options = {
        mode: RoutingOption(None, None, each.route(each.routing(mode, common)).difficulty, fusion, outcomes)
        for mode in MODES
    }
    experts = np.array(each.arrays.items.expert)
    found = {}
    for mode, option in options.items():
        thresholds, by_expert = fit_by_gain(option, common, experts, goal)
        found[mode] = replace(each.routing(mode, thresholds), by_expert=by_expert)
    found["best"] = max(found.values(), key=lambda routing: option.under(each.route(routing).path)[0].mean())
    return found


def rows_of(halves: Sequence[Half], choose: Callable[[Half], Array], name: str) -> Rows:
    """The items of some halves on the paths that `choose` gives each."""
    paths = [choose(each) for each in halves]
    columns = [
        np.concatenate(
            [each.by_path[field][np.arange(len(path)), path] for each, path in zip(halves, paths, strict=True)]
        )
        for field in FIELDS
    ]
    return Rows(name, *columns, np.bincount(np.concatenate(paths), minlength=3) / len(columns[0]))


def policy(halves: Sequence[Half], spec: str, name: str = "") -> Rows:
    """A policy of `odar eval replay` over the items of some halves."""
    runs = [run(each.arrays, spec) for each in halves]
    columns = [np.concatenate([getattr(each, field) for each in runs]) for field in FIELDS]
    path = np.concatenate([each.path for each in runs])
    return Rows(name or spec, *columns, np.bincount(path, minlength=3) / len(path) if path.min() >= 0 else None)


def curve(halves: Sequence[Half], mode: str) -> list[Rows]:
    """ODAR from always Simple to always Hard, through the thresholds that were chosen on the other half."""
    ways = {}
    for each in halves:
        thresholds = each.chosen[mode].thresholds
        ways[id(each)] = ThresholdPath.through((thresholds.tau1, thresholds.tau2))

    def at(each: Half, t: float) -> Array:
        return each.route(each.routing(mode, Thresholds(*ways[id(each)].thresholds(t)))).path

    return [rows_of(halves, lambda each, t=t: at(each, t), "") for t in np.linspace(0, 1, 101)]


def nearest(rows: Sequence[Rows], field: str, target: float, name: str) -> Rows:
    """The point of a curve whose mean calls or cost comes closest to a target; no score is looked at."""
    return replace(min(rows, key=lambda each: abs(getattr(each, field).mean() - target)), name=name)


def matched(halves: Sequence[Half], ours: Rows, name: str, *, by_length: bool) -> Rows:
    """ODAR's mix of paths given out by the length of the question, or at random (the exact expectation)."""
    table = {field: np.concatenate([each.by_path[field] for each in halves]) for field in FIELDS}
    weights = np.tile(ours.mix, (len(table["score"]), 1))
    if by_length:
        lengths = np.concatenate([[len(text) for text in each.arrays.items.query] for each in halves])
        rank = np.argsort(np.argsort(lengths, kind="stable"))
        edges = np.cumsum(np.round(ours.mix * len(lengths)))[:2]
        weights = np.eye(3)[np.searchsorted(edges, rank, side="right")]
    return Rows(name, *((table[field] * weights).sum(axis=1) for field in FIELDS), ours.mix)


def share_kept(ours: Rows, hard: Rows, fast: Rows) -> Interval:
    """Share of always-hard's gain over single-fast that ODAR keeps; the ratio is resampled by question."""
    gains = np.stack([ours.score - fast.score, hard.score - fast.score])
    draws = np.random.default_rng(0).integers(0, gains.shape[1], (RESAMPLES, gains.shape[1]))
    kept, whole = gains[0][draws].mean(axis=1), gains[1][draws].mean(axis=1)
    if gains[1].mean() <= 0 or (whole <= 0).mean() > 0.025:
        return Interval(float("nan"), float("nan"), float("nan"))  # a ratio to a gain that may be nothing
    low, high = np.percentile(kept[whole > 0] / whole[whole > 0], [2.5, 97.5])
    return Interval(float(gains[0].mean() / gains[1].mean()), float(low), float(high))


def difference(first: Rows, second: Rows, own: Array | slice = slice(None)) -> Interval:
    """The paired difference of two policies with its interval."""
    return bootstrap_mean((first.score - second.score)[own], shares=False)


def verdict(found: Interval) -> str:
    """What an interval of a difference shows."""
    return "**better**" if found.low > 0 else "**worse**" if found.high < 0 else "no difference shown"


@dataclass(frozen=True)
class Study:
    """Every policy on the same items."""

    fast: Rows
    slow: Rows
    hard: Rows
    default: Rows
    within: Rows
    by_question: Rows
    equal_dollars: Rows
    targets: Sequence[Rows]
    baselines: Sequence[Rows]
    oracles: Sequence[Rows]
    random: Rows
    length: Rows
    curves: Mapping[str, Sequence[Rows]]
    sets: Array


def study(halves: Sequence[Half]) -> Study:
    """Run every policy on some halves."""
    curves = {mode: curve(halves, mode) for mode in MODES}
    slow, ours = policy(halves, "single-slow"), curves["posterior"]
    within = rows_of(halves, lambda each: each.route(each.chosen["best"]).path, "**ODAR within 3 calls**")
    shipped, most = halves[0].setting, min(5, halves[0].arrays.samples)
    return Study(
        fast=policy(halves, "single-fast"),
        slow=slow,
        hard=policy(halves, "always-hard"),
        default=policy(halves, "odar", f"**ODAR, default** (τ {shipped.tau1:g} and {shipped.tau2:g})"),
        within=within,
        by_question=rows_of(
            halves,
            lambda each: each.route(each.chosen["prior"]).path,
            "ODAR within 3 calls, by the question alone",
        ),
        equal_dollars=nearest(ours, "cost", float(slow.cost.mean()), "ODAR at single-slow's dollars"),
        targets=[nearest(ours, "calls", target, f"ODAR, target {target:g} calls") for target in TARGETS],
        baselines=[
            policy(halves, spec) for spec in (f"self-consistency:k={most}", f"best-of-n:n={most}", "always-medium")
        ],
        oracles=[policy(halves, "oracle-router"), policy(halves, "oracle")],
        random=matched(halves, within, "random, mix of ODAR within 3 calls", by_length=False),
        length=matched(halves, within, "by length, mix of ODAR within 3 calls", by_length=True),
        curves=curves,
        sets=np.concatenate([[key.set for key in each.arrays.items.keys] for each in halves]),
    )


def tables(found: Study, halves: Sequence[Half]) -> list[str]:
    """The policies, the comparisons and every set, as Markdown."""
    fast, slow, hard, within = found.fast, found.slow, found.hard, found.within
    rows = [
        fast, slow, *found.baselines, hard, found.random, found.length, within, found.by_question, found.default,
        *found.targets, found.equal_dollars, *found.oracles,
    ]  # fmt: skip
    lines = ["| policy | accuracy | calls | $ per 1,000 | simple / medium / hard |", "|---|---|---|---|---|"]
    for row in rows:
        mix = "–" if row.mix is None else " / ".join(f"{share:.0%}" for share in row.mix)
        figures = f"{row.calls.mean():.2f} | {1000 * row.cost.mean():.4f} | {mix}"
        lines.append(f"| {row.name} | {bootstrap_mean(row.score)} | {figures} |")
    lines += ["", "| at equal calls or dollars | difference in accuracy | |", "|---|---|---|"]
    pairs = [("ODAR within 3 calls − random, same mix", within, found.random),
             ("ODAR within 3 calls − by length, same mix", within, found.length),
             ("by the question alone − random, same mix", found.by_question,
              matched(halves, found.by_question, "", by_length=False)),
             ("ODAR at single-slow's dollars − single-slow", found.equal_dollars, slow),
             ("ODAR, default − always-hard", found.default, hard)]  # fmt: skip
    for name, first, second in pairs:
        gap = difference(first, second)
        lines.append(f"| {name} | {gap.signed()} | {verdict(gap)} |")
    lines += ["", "| share of always-hard's gain kept | share | calls |", "|---|---|---|"]
    for row in (within, found.by_question, found.default, *found.targets):
        kept = share_kept(row, hard, fast)
        text = "–" if np.isnan(kept.value) else str(kept)
        lines.append(f"| {row.name} | {text} | {row.calls.mean():.2f} of {hard.calls.mean():.2f} |")
    return [*lines, "", *by_set(found)]


def by_set(found: Study) -> list[str]:
    """Every set: each agent, always-hard, ODAR, and whether ODAR's choice of questions was better than chance."""
    columns = [found.fast, found.slow, found.hard, found.within]
    lines = [
        "| set | items | fast | slow | always-hard | ODAR within 3 calls | its calls | ODAR − fast | ODAR − random |"
    ]
    lines.append("|---" * 9 + "|")
    for name in sorted(set(found.sets)):
        own = found.sets == name
        figures = " | ".join(f"{column.score[own].mean():.3f}" for column in columns)
        gaps = [difference(found.within, other, own) for other in (found.fast, found.random)]
        shown = " | ".join(gap.signed() if own.sum() >= 10 else "too few items" for gap in gaps)
        lines.append(f"| {name} | {own.sum()} | {figures} | {found.within.calls[own].mean():.2f} | {shown} |")
    return lines


def summary(found: Study) -> list[str]:
    """What the cross-fitted figures show, in words."""
    kept, alone, default = (
        share_kept(row, found.hard, found.fast) for row in (found.within, found.by_question, found.default)
    )
    random, length = (difference(found.within, other) for other in (found.random, found.length))
    reached = "reached" if max(kept.value, alone.value) >= GOAL else "**not reached**"
    worse = [
        name
        for name in sorted(set(found.sets))
        if found.slow.score[found.sets == name].mean() <= found.fast.score[found.sets == name].mean()
    ]
    where = f"It cannot pay on {', '.join(worse)}: there the slow model is not better." if worse else ""
    return [
        "",
        f"**In short**, cross-fitted over {len(found.sets)} items: within three calls ODAR keeps {kept} of always-hard's gain over the fast model",
        f"at {found.within.calls.mean():.2f} calls; routed by the question alone, {alone} at {found.by_question.calls.mean():.2f}. The goal of {GOAL} at three calls is {reached}.",
        f"Against the same mix of paths at random it is {random.signed()} ({verdict(random)}), against the same mix by length of the question",
        f"{length.signed()} ({verdict(length)}). As shipped it keeps {default} at {found.default.calls.mean():.2f} calls. {where}",
        "Reasons are in the [lab notes](lab-notes.md).",
    ]


def draw(found: Study) -> None:
    """Accuracy against calls and against dollars, legible on light and dark pages."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "odar", "svg.fonttype": "none", "font.size": 11})
    grey, blue, green = "#808080", "#2f7ed8", "#3a9d5d"
    figure, both = plt.subplots(2, 1, figsize=(6.4, 7.6))
    shown = [found.fast, found.slow, found.hard, *found.baselines, found.oracles[0]]
    for axes, field, unit, label in zip(
        both, ("calls", "cost"), (1, 1000), ("calls per question", "nominal $ per 1,000 questions"), strict=True
    ):
        for mode, colour, name in (
            ("posterior", blue, "ODAR, any target"),
            ("prior", green, "ODAR by the question alone"),
        ):
            points = sorted({(unit * getattr(row, field).mean(), row.score.mean()) for row in found.curves[mode]})
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=2, label=name)
        ends = [(unit * getattr(row, field).mean(), row.score.mean()) for row in (found.fast, found.hard)]
        axes.plot(*zip(*ends, strict=True), color=grey, linestyle=":", label="random between the ends")
        default = unit * getattr(found.default, field).mean(), found.default.score.mean()
        axes.plot(*default, "D", color=blue)
        axes.annotate("default", default, (-5, -15), textcoords="offset points", ha="right", color=blue)
        for row in shown:
            point = unit * getattr(row, field).mean(), row.score.mean()
            axes.plot(*point, "o", color=grey)
            right = point[0] > 0.7 * unit * getattr(found.hard, field).mean()  # such labels grow to the left
            down = row.name.startswith(("best", "always-medium"))
            axes.annotate(
                row.name.partition(":")[0],
                point,
                (-6 if right else 6, -12 if down else 5),
                textcoords="offset points",
                ha="right" if right else "left",
                color=grey,
                fontsize=9,
            )
        axes.margins(x=0.14, y=0.12)
        axes.set_xlabel(label, color=grey)
        axes.set_ylabel("accuracy", color=grey)
        axes.tick_params(colors=grey)
        for side in axes.spines.values():
            side.set_color(grey)
        axes.patch.set_alpha(0)
    both[0].legend(frameon=False, labelcolor=grey, loc="lower right")
    figure.patch.set_alpha(0)
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


LARGE_TITLE = "## Recorded pairs of large models"
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
        "Free text, Llama-3.1-8B → GPT-5, token F1",
        "--fast {d}/freetext_cascade/outcomes.jsonl.gz --slow {d}/freetext_cascade/outcomes.jsonl.gz --map id=row "
        "--fast-map text=fast.1.text --fast-map mean_logprob=fast.1.mean_logprob --slow-map text=slow.0.text --score-by f1",
    ),
)
"""Recorded pairs of large models, and how `odar eval import` reads them."""


def large_pairs(data: Path) -> list[str]:
    """A table for each recorded pair of large models and each set, by `odar eval import`."""
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
            lines += ["", f"{name}{', ' * bool(name)}{found['items']:,} questions:", "", *pair_table(found)]
    return lines


def pair_table(body: Mapping) -> list[str]:
    """One pair on one set: accuracy, what is kept of the slow model's gain, and against random escalation."""
    rows = {row["name"]: row for row in body["rows"]}
    fast, slow = (rows[name]["accuracy"]["value"] for name in ("always fast", "always slow"))
    lines = [
        "| | accuracy | share of the gain | calls | $ per 1,000 | against random, same calls |",
        "|---|---|---|---|---|---|",
    ]
    verdicts = set()
    for name, row in rows.items():
        accuracy, gap = Interval(**row["accuracy"]), Interval(**row["over_random"])
        kept = f"{(accuracy.value - fast) / (slow - fast):.0%}" if slow > fast else "–"
        dollars = "unknown" if row["cost_usd"] is None else f"{1000 * row['cost_usd']:.3f}"
        if name.startswith("ODAR posterior"):
            verdicts.add(verdict(gap))
        against = gap.signed() if name.startswith("ODAR") or name == "oracle" else "–"
        lines.append(f"| {name} | {accuracy} | {kept} | {row['calls']:.2f} | {dollars} | {against} |")
    if slow <= fast:
        said = "It does not pay: the slow model is not better on this set."
    else:
        said = f"Against random escalation at the same calls, ODAR posterior is: {', '.join(sorted(verdicts))}."
    ranks = ", ".join(f"{name} {value:.3f}" for name, value in body["apgr"].items())
    return [*lines, "", said + (f" APGR: {ranks}." if ranks else "")]


def page(recording: Path, data: Path | None) -> str:
    """The whole page."""
    halves = halves_of(recording)
    judged, crossed = [halves["judge"]], [halves["judge"], halves["calibrate"]]
    both = study(crossed)
    draw(both)
    lines = [
        "# Results",
        "",
        "What ODAR gains on recorded pairs of models, and where it does not. Written by `python scripts/results.py --data DIR`",
        "from [the recording of the local pair](../runs/local-pair/README.md), without a single call. Intervals are 95%.",
        "",
        "## The local pair",
        "",
        'Qwen2.5-Coder-0.5B-Instruct (fast) and Qwen2.5-Coder-1.5B-Instruct (slow), both Q4_K_M, with the prompts and budgets of the profile `local`. "Within 3 calls": the most',
        "accurate thresholds with at most three calls per question on the other half, half of the six that the Hard path may take; it stops early, so always-hard takes fewer.",
        "Targets are points of the curve in the figure. Dollars are nominal: the models are free, so tokens are priced in proportion to parameters ($0.049 and $0.154 per million).",
        *summary(both),
        "",
        "![Accuracy against calls and dollars](images/results.svg)",
    ]
    parts = (
        (
            "Judged half",
            study(judged),
            judged,
            "Statistics and thresholds are fitted to the calibration half, as the profile ships them.",
        ),
        (
            "Both halves, cross-fitted",
            both,
            crossed,
            "Each half under statistics and thresholds that were fitted to the other half.",
        ),
    )
    for title, found, own, about in parts:
        lines += ["", f"### {title}", "", f"{about} {len(found.sets)} items.", "", *tables(found, own)]
    if data is None:  # what was written with --data stays
        _, title, rest = PAGE.read_text(encoding="utf-8").partition(LARGE_TITLE) if PAGE.exists() else ("", "", "")
        lines += ["", title + rest.rstrip()] if title else []
    else:
        lines += [
            "",
            LARGE_TITLE,
            "",
            "One fast and one slow answer each: where ODAR escalates, the slow answer is returned and both calls are paid. There are no further samples, so self-consistency, best-of-5",
            "and the Medium path cannot be shown. Nothing is fitted to these scores; the posterior is the shipped one.",
            *large_pairs(data),
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--data", type=Path, help="folder with the recorded pairs of large models")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; its figure goes to docs/images")
    options = parser.parse_args()
    options.out.write_text(page(options.recording, options.data), encoding="utf-8")
