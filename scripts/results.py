"""Write docs/results.md: gains of ODAR on recorded pairs of models, including pairs without a gain.

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
from odar.calibration.evidence import evidence_of
from odar.calibration.fit import fit_setup
from odar.calibration.install import calibration_of, current_parts
from odar.calibration.routing_fit import Goal
from odar.calibration_file import Calibration
from odar.config import load_settings
from odar.engine import Odar
from odar.evals.replay.arrays import PanelArrays, load_arrays, with_calibration
from odar.evals.replay.policies import run_policy
from odar.evals.replay.simulate import Setting, posterior_of, prior_of, simulate_odar, simulate_one_path
from odar.policy.arrays import Array
from odar.policy.path import HARD, MEDIUM, SIMPLE, Routing, Thresholds
from odar.policy.target import ThresholdPath
from odar.recording.files import open_recording
from odar.recording.schema import RecordedItem

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "runs/local-pair/recording.jsonl.gz"
PAGE = ROOT / "docs/results.md"
FIGURE = ROOT / "docs/images/results.svg"
MAX_CALLS = 3.0
"""Half of the six calls that the Hard path may take."""
TARGETS = (1.5, 2.0, 4.0)
"""Further targets, in mean calls per question."""
SEED = 42
SHIPPED = {"math": Thresholds(0.0, 0.0, "math")}
"""What the profile `local` adds to its calibration."""
GOAL = 0.9
"""The share of always-hard's gain that ODAR should keep within MAX_CALLS."""
MODES = ("posterior", "prior")
PRICES = {"qwen2.5-coder-0.5b": 0.049, "qwen2.5-coder-1.5b": 0.154}
"""US dollars per million tokens, in proportion to the parameters (0.49 and 1.54 billion): the models are free."""
RESAMPLES = 4000
FIELDS = ("score", "calls", "cost")


@dataclass(frozen=True)
class Half:
    """One half of the recording under a calibration that does not depend on it."""

    arrays: PanelArrays
    setting: Setting
    given_paths: Mapping[str, Array]
    """(N, 3): score, calls and cost of each item on each path."""
    prior: Array
    posterior: Array

    def paths(
        self, thresholds: Thresholds | None = None, by_expert: Mapping[str, Thresholds] | None = None
    ) -> Array:
        """The path of each item under the calibration, or with other thresholds, for all or for single experts."""
        setting = self.setting
        own = by_expert or ({} if thresholds else setting.experts)
        thresholds = thresholds or Thresholds(setting.tau1, setting.tau2)
        looks = setting.mode == "posterior"
        routing = Routing(thresholds, setting.n, looks, setting.clearly_hard, by_expert=own)
        return routing.route(self.prior, self.posterior, self.arrays.items.expert).path


@dataclass(frozen=True)
class Rows:
    """One policy over some items."""

    name: str
    score: Array
    calls: Array
    cost: Array
    mix: Array | None = None


def halves_of(recording: Path, mode: str) -> dict[str, Half]:
    """Both halves, each under what `odar calibrate --goal accuracy --max-calls 3` fits to the other."""
    settings = load_settings(profile="local", calibration="")
    plain = replace(settings.routing, mode=mode, tau1_by_expert={}, tau2_by_expert={})
    engine = Odar(replace(settings, routing=plain))
    items = {split: list(open_recording(recording).items(split)) for split in ("calibrate", "judge")}
    fitted = {split: calibrated(engine, items[split]) for split in items}
    other = {"judge": "calibrate", "calibrate": "judge"}
    return {split: half(recording, split, items[split], engine, fitted[other[split]]) for split in items}


def calibrated(engine: Odar, items: Sequence[RecordedItem]) -> Calibration:
    """What `odar calibrate --goal accuracy --max-calls 3` fits to these items."""
    features = np.array([item.features for item in items])
    evidence = evidence_of(items, engine.settings.fusion.varentropy_weight, features)
    setup, _ = fit_setup(evidence, current_parts(engine), SEED, Goal("accuracy", max_calls=MAX_CALLS))
    return calibration_of(engine, setup, choose_mode=True)


def half(
    recording: Path, split: str, items: Sequence[RecordedItem], engine: Odar, calibration: Calibration
) -> Half:
    """One half under the settings of the profile and a calibration."""
    arrays = priced(load_arrays(recording, split=split), items)
    current = {name: asdict(getattr(engine.settings, name)) for name in ("routing", "fusion")}
    header = replace(arrays.header, settings={**arrays.header.settings, **current})
    arrays = replace(arrays, header=with_calibration(header, calibration))
    setting = Setting.from_header(arrays.header)
    runs = [simulate_one_path(arrays, setting, path) for path in (SIMPLE, MEDIUM, HARD)]
    given_paths = {name: np.stack([getattr(each, name) for each in runs], axis=1) for name in FIELDS}
    prior = prior_of(arrays, setting)
    found = Half(arrays, setting, given_paths, prior, posterior_of(arrays, setting, prior))
    calibrated_rows = rows_of([found], lambda each: each.paths(), "")
    assert np.array_equal(calibrated_rows.score, simulate_odar(arrays, setting).score), (
        "a path is all that routing chooses"
    )
    return found


def priced(arrays: PanelArrays, items: Sequence[RecordedItem]) -> PanelArrays:
    """The recording with tokens priced by the size of the model; other models keep their recorded prices."""
    models = [source["model"] for source in arrays.header.sources]
    if not set(models) <= set(PRICES):
        return arrays
    price = np.array([PRICES[model] / 1e6 for model in models])[arrays.answers.source]
    prompts = np.array([[attempt.usage.input or 0 for attempt in item.attempts] for item in items])
    answers = replace(arrays.answers, output_usd=price * arrays.answers.output, prompt_usd=price * prompts)
    return replace(arrays, answers=answers)


def rows_of(halves: Sequence[Half], choose: Callable[[Half], Array], name: str) -> Rows:
    """The items of some halves on the paths that `choose` gives each."""
    paths = [choose(each) for each in halves]
    columns = [
        np.concatenate(
            [each.given_paths[field][np.arange(len(path)), path] for each, path in zip(halves, paths, strict=True)]
        )
        for field in FIELDS
    ]
    return Rows(name, *columns, np.bincount(np.concatenate(paths), minlength=3) / len(columns[0]))


def policy(halves: Sequence[Half], spec: str, name: str = "") -> Rows:
    """A policy of `odar eval replay` over the items of some halves."""
    runs = [run_policy(each.arrays, spec) for each in halves]
    columns = [np.concatenate([getattr(each, field) for each in runs]) for field in FIELDS]
    path = np.concatenate([each.path for each in runs])
    return Rows(name or spec, *columns, np.bincount(path, minlength=3) / len(path) if path.min() >= 0 else None)


def curve(halves: Sequence[Half]) -> list[Rows]:
    """ODAR from always Simple to always Hard, through the thresholds that were fitted to the other half."""

    def at(each: Half, t: float) -> Array:
        way = ThresholdPath.medium_first(each.setting.tau1, each.setting.tau2)
        return each.paths(Thresholds(*way.thresholds(t)))

    return [rows_of(halves, lambda each, t=t: at(each, t), "") for t in np.linspace(0, 1, 101)]


def nearest(rows: Sequence[Rows], field: str, target: float, name: str) -> Rows:
    """The point of a curve whose mean calls or cost comes closest to a target; no score is looked at."""
    return replace(min(rows, key=lambda each: abs(getattr(each, field).mean() - target)), name=name)


def matched(halves: Sequence[Half], ours: Rows, name: str, *, by_length: bool) -> Rows:
    """ODAR's mix of paths given out by the length of the question, or at random (the exact expectation)."""
    table = {field: np.concatenate([each.given_paths[field] for each in halves]) for field in FIELDS}
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


def study(halves: Sequence[Half], by_question: Sequence[Half]) -> Study:
    """Run every policy on some halves; `by_question` are the same halves, routed by the question alone."""
    curves = {"posterior": curve(halves), "prior": curve(by_question)}
    slow, ours = policy(halves, "single-slow"), curves["posterior"]
    within = rows_of(halves, lambda each: each.paths(), "**ODAR**")
    most = min(5, halves[0].arrays.samples)
    return Study(
        fast=policy(halves, "single-fast"),
        slow=slow,
        hard=policy(halves, "always-hard"),
        default=rows_of(
            halves, lambda each: each.paths(by_expert=SHIPPED), "**ODAR as shipped**: mathematics always Hard"
        ),
        within=within,
        by_question=rows_of(by_question, lambda each: each.paths(), "ODAR by the question alone"),
        equal_dollars=nearest(ours, "cost", float(slow.cost.mean()), "ODAR at single-slow's dollars"),
        targets=[nearest(ours, "calls", target, f"ODAR, target {target:g} calls") for target in TARGETS],
        baselines=[
            policy(halves, spec) for spec in (f"self-consistency:k={most}", f"best-of-n:n={most}", "always-medium")
        ],
        oracles=[policy(halves, "oracle-router"), policy(halves, "oracle")],
        random=matched(halves, within, "random, ODAR's mix of paths", by_length=False),
        length=matched(halves, within, "by length of the question, ODAR's mix", by_length=True),
        curves=curves,
        sets=np.concatenate([[key.set for key in each.arrays.items.keys] for each in halves]),
    )


def tables(found: Study, halves: Sequence[Half], by_question: Sequence[Half]) -> list[str]:
    """The policies, the comparisons and every set, as Markdown."""
    fast, slow, hard, within = found.fast, found.slow, found.hard, found.within
    rows = [
        fast, slow, *found.baselines, hard, found.random, found.length, within, found.default, found.by_question,
        *found.targets, found.equal_dollars, *found.oracles,
    ]  # fmt: skip
    lines = ["| policy | accuracy | calls | $ per 1,000 | simple / medium / hard |", "|---|---|---|---|---|"]
    for row in rows:
        mix = "–" if row.mix is None else " / ".join(f"{share:.0%}" for share in row.mix)
        figures = f"{row.calls.mean():.2f} | {1000 * row.cost.mean():.4f} | {mix}"
        lines.append(f"| {row.name} | {bootstrap_mean(row.score)} | {figures} |")
    lines += ["", "| at equal calls or dollars | difference in accuracy | |", "|---|---|---|"]
    pairs = [("ODAR − random, same mix", within, found.random),
             ("ODAR − by length, same mix", within, found.length),
             ("ODAR − always-hard", within, hard),
             ("ODAR − single-slow", within, slow),
             ("ODAR as shipped − always-hard", found.default, hard),
             ("ODAR as shipped − random, same mix", found.default,
              matched(halves, found.default, "", by_length=False)),
             ("ODAR as shipped − by length, same mix", found.default,
              matched(halves, found.default, "", by_length=True)),
             ("by the question alone − random, same mix", found.by_question,
              matched(by_question, found.by_question, "", by_length=False)),
             ("ODAR at single-slow's dollars − single-slow", found.equal_dollars, slow)]  # fmt: skip
    for name, first, second in pairs:
        gap = difference(first, second)
        lines.append(f"| {name} | {gap.signed()} | {verdict(gap)} |")
    lines += ["", "| share of always-hard's gain kept | share | calls |", "|---|---|---|"]
    for row in (within, found.default, found.by_question, *found.targets):
        kept = share_kept(row, hard, fast)
        text = "–" if np.isnan(kept.value) else str(kept)
        lines.append(f"| {row.name} | {text} | {row.calls.mean():.2f} of {hard.calls.mean():.2f} |")
    return [*lines, "", *by_set(found)]


def by_set(found: Study) -> list[str]:
    """Every set: each agent, always-hard, ODAR, and whether ODAR's choice of questions was better than chance."""
    columns = [found.fast, found.slow, found.hard, found.within]
    lines = ["| set | items | fast | slow | always-hard | ODAR | its calls | ODAR − fast | ODAR − random |"]
    lines.append("|---" * 9 + "|")
    for name in sorted(set(found.sets)):
        own = found.sets == name
        figures = " | ".join(f"{column.score[own].mean():.3f}" for column in columns)
        gaps = [difference(found.within, other, own) for other in (found.fast, found.random)]
        shown = " | ".join(gap.signed() if own.sum() >= 10 else "too few items" for gap in gaps)
        lines.append(f"| {name} | {own.sum()} | {figures} | {found.within.calls[own].mean():.2f} | {shown} |")
    return lines


def summary(found: Study) -> list[str]:
    """The main cross-fitted figures."""
    kept, alone, default = (
        share_kept(row, found.hard, found.fast) for row in (found.within, found.by_question, found.default)
    )
    random, length = (difference(found.within, other) for other in (found.random, found.length))
    reached = "reached" if kept.value >= GOAL else "**not reached**"
    worse = [
        name
        for name in sorted(set(found.sets))
        if found.slow.score[found.sets == name].mean() <= found.fast.score[found.sets == name].mean()
    ]
    rows = [
        ("**ODAR**", kept, found.within),
        ("**ODAR as shipped**: mathematics always Hard", default, found.default),
        ("ODAR by the question alone", alone, found.by_question),
        ("always-hard", 1, found.hard),
    ]
    return [
        "",
        f"**In short**, cross-fitted over {len(found.sets)} items:",
        "",
        "| | share of always-hard's gain over the fast model | calls per question |",
        "|---|---|---|",
        *(f"| {name} | {share} | {row.calls.mean():.2f} |" for name, share, row in rows),
        "",
        f"- The goal of {GOAL} at three calls is {reached}.",
        f"- ODAR against the same mix of paths at random: {random.signed()} ({verdict(random)}); by length of the question: {length.signed()} ({verdict(length)}).",
        *([f"- It cannot gain on {', '.join(worse)}: there the slow model is not better."] if worse else []),
        "- Reasons are in the [lab notes](lab-notes.md#local-models).",
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
        axes.annotate("ODAR as shipped", default, (-5, -15), textcoords="offset points", ha="right", color=blue)
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
    halves, by_question = (halves_of(recording, mode) for mode in MODES)
    sides = {"judge": ("judge",), "crossed": ("judge", "calibrate")}
    chosen = {
        name: ([halves[split] for split in splits], [by_question[split] for split in splits])
        for name, splits in sides.items()
    }
    both = study(*chosen["crossed"])
    draw(both)
    lines = [
        "# Results",
        "",
        "What ODAR gains on recorded pairs of models, and where it does not. Written by `python scripts/results.py --data DIR`",
        "from [the recording of the local pair](../runs/local-pair/README.md), without a single call. Intervals are 95%.",
        "",
        "## The local pair",
        "",
        "Qwen2.5-Coder-0.5B-Instruct (fast) and Qwen2.5-Coder-1.5B-Instruct (slow), both Q4_K_M, with the prompts and budgets of the profile `local`. ODAR is calibrated on",
        "one half of the items with `odar calibrate --goal accuracy --max-calls 3` and judged on the other. Three calls are half of the six that the Hard path may take. Targets are points of the",
        "curve in the figure. Dollars are nominal: the models are free, so tokens are priced in proportion to parameters ($0.049 and $0.154 per million).",
        *summary(both),
        "",
        "![Accuracy against calls and dollars](images/results.svg)",
    ]
    parts = (
        ("Judged half", "judge", "Everything is fitted to the calibration half."),
        (
            "Both halves, cross-fitted",
            "crossed",
            "Each half under a calibration that was fitted to the other half.",
        ),
    )
    for title, name, about in parts:
        found = both if name == "crossed" else study(*chosen[name])
        lines += ["", f"### {title}", "", f"{about} {len(found.sets)} items.", "", *tables(found, *chosen[name])]
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
