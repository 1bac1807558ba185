"""How well `odar advise` estimates saving and agreement from 300 questions, and whether its recommendation is right.

    python scripts/benchmarks/bench_advise.py --data ../shared/data [--draws 100] [--jobs 1] [--only gpt-4.1-mini]

The MMLU-Pro answers of three models are a user's table, without labels. Each draw gives 300 random questions to
`odar.lab.calibration.advice.advise`; the truth of each choice is its saving and its agreement with slow on all other questions of the table,
with the calibration that the draw fitted. An interval covers if it holds the truth. The best choice is the one that is truly worth most at
the dial; it is clear if it leads the next by 2 points of agreement, or by what 10% of a slow call is worth.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odar.catalogue import Price
from odar.config import load_settings
from odar.engine import Odar
from odar.lab.calibration.advice import LEAD, advise
from odar.lab.calibration.compare import Goal, best_choice, walk_all
from odar.lab.calibration.items import scored_items
from odar.lab.recording.importers import ImportedAnswer
from odar.lab.recording.joining import import_models
from odar.lab.recording.schema import RecordedItem
from odar.lab.replay.table import ReplayTable
from odar.policy.dial import Dial
from odar.settings import Settings
from odar.types import SLOW, Usage

TRIPLES = {
    "gpt-4.1-nano + gemini-2.0-flash-lite → gpt-4.1": {
        "gpt-4.1-nano": (0.1, 0.4), "gemini-2.0-flash-lite": (0.075, 0.3), "gpt-4.1": (2.0, 8.0),
    },
    "gpt-4o-mini + gemini-2.0-flash-lite → gpt-4o": {
        "gpt-4o-mini-2024-07-18": (0.15, 0.6), "gemini-2.0-flash-lite": (0.075, 0.3), "gpt-4o-2024-08-06": (2.5, 10.0),
    },
    "gpt-4.1-mini + gemini-2.0-flash → claude-3.7-sonnet": {
        "gpt-4.1-mini": (0.4, 1.6), "gemini-2.0-flash": (0.1, 0.4), "claude-3-7-sonnet-20250219": (3.0, 15.0),
    },
}  # fmt: skip
"""Models of each table, with their prices."""
QUESTIONS = 300
CLEAR_POINTS = 0.02
CLEAR_COST = 0.1


DIALS = ("economy", "balanced", "quality")


@dataclass(frozen=True)
class Verdict:
    """The recommendation of one draw at one dial."""

    best: str
    true_best: str
    lead: float
    """What the truly best choice is worth beyond the next one, in shares of agreement."""
    covers: tuple[bool, bool]
    """Whether the intervals of its saving and of its agreement hold the truth."""


@dataclass(frozen=True)
class Draw:
    """One draw: for each choice whether its intervals cover the truth, and the recommendation by dial."""

    covers: list[tuple[bool, bool]]
    verdicts: dict[str, Verdict]


def table_of(data: Path, models: dict[str, tuple[float, float]]) -> tuple[list[RecordedItem], Settings]:
    """The answers of these models as recorded items without labels, as `odar advise TABLE` reads them."""
    import pyarrow.parquet

    folder = data / "mmlu_pro_outcomes"
    questions = {}
    for line in (folder / "items.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        options = "".join(f"\n{chr(65 + i)}. {option}" for i, option in enumerate(row["options"]))
        questions[row["row"]] = row["question"] + options
    filters = [("model", "in", list(models))]
    rows = pyarrow.parquet.read_table(folder / "outcomes.parquet", filters=filters).to_pylist()
    answers: dict[str, list[ImportedAnswer]] = {name: [] for name in models}
    for row in rows:
        if row["answer"]:
            written = int(row["response_tokens"] or 0)
            query = questions[row["row"]]
            answers[row["model"]].append(
                ImportedAnswer(
                    id=str(row["row"]), query=query, text=row["answer"], answer=row["answer"], model=row["model"],
                    usage=Usage(len(query) // 4, 0, written),
                )
            )  # fmt: skip
    if missing := [name for name, own in answers.items() if not own]:
        raise SystemExit(f"no answers of {', '.join(missing)}")
    settings = load_settings("tiny", environ={}, calibration="")
    prices = {name: Price(price[0], price[0], price[1]) for name, price in models.items()}
    given = {SLOW: max(models, key=lambda name: models[name][1])}
    imported = import_models(Odar(settings), answers, prices, given, "mmlu_pro")
    return [item.without_tokens() for item in imported.items], imported.header.to_settings()


def judge(items: Sequence[RecordedItem], scored: Sequence[RecordedItem], settings: Settings, seed: int) -> Draw:
    """Advise on a random sample, and compare with the truth on all other questions.

    `scored` are the same items with the score of each answer: whether it is slow's.
    """
    chosen = set(np.random.default_rng(seed).permutation(len(items))[:QUESTIONS].tolist())
    advice = advise([items[i] for i in sorted(chosen)], settings, {}, "balanced")
    rest = [item for i, item in enumerate(scored) if i not in chosen]
    table = ReplayTable(rest, settings, {}, advice.table.calibration)
    truth = {c.name: c for c in walk_all(table, [choice.settings for choice in advice.choices])}
    slow = float(truth[SLOW].cost_usd.mean())
    covers = {
        choice.name: (
            _holds(advice.saving(choice), 1 - float(truth[choice.name].cost_usd.mean()) / slow),
            choice.name == SLOW or _holds(advice.score(choice), float(truth[choice.name].score.mean())),
        )
        for choice in advice.choices
    }
    verdicts = {}
    for dial in DIALS:
        points = Dial.parse(dial).points / 100
        worths = {name: float(c.score.mean() - c.cost_usd.mean() / slow * points) for name, c in truth.items()}
        true_best = max(worths, key=worths.__getitem__)
        goal = Goal(dial, Dial.parse(dial).value(float(advice.slow.cost_usd.mean())))
        best = best_choice(advice.choices, goal, lead=LEAD)
        lead = worths[true_best] - max(worth for name, worth in worths.items() if name != true_best)
        verdicts[dial] = Verdict(best.name, true_best, lead, covers[best.name])
    # slow saves nothing and agrees by definition, so it is not judged
    return Draw([each for name, each in covers.items() if name != SLOW], verdicts)


def _holds(interval: Any, value: float) -> bool:
    return bool(interval.low - 1e-9 <= value <= interval.high + 1e-9)


def report(draws: Sequence[Draw]) -> None:
    """Print coverage and recommendations."""
    saving, agreement = np.mean([each for draw in draws for each in draw.covers], axis=0)
    print(f"  intervals of the saving cover in {saving:.1%}, of the agreement in {agreement:.1%}")
    for dial in DIALS:
        verdicts = [draw.verdicts[dial] for draw in draws]
        right = np.mean([each.best == each.true_best for each in verdicts])
        print(f"  {dial}: recommendation right in {right:.1%} of all draws")
        leads = {"2 points": CLEAR_POINTS, "10% of a slow call": CLEAR_COST * Dial.parse(dial).points / 100}
        for what, least in leads.items():
            clear = [each.best == each.true_best for each in verdicts if each.lead >= least]
            print(
                f"    with a lead of {what}: " + (f"{np.mean(clear):.1%} of {len(clear)}" if clear else "no draw")
            )
        named = [each.covers for each in verdicts if each.best != SLOW]
        if named:
            own = np.mean(named, axis=0)
            print(
                f"    its own intervals cover in {own[0]:.1%} and {own[1]:.1%} of {len(named)} draws that name another than slow"
            )
        for what in ("best", "true_best"):
            names = [getattr(each, what) for each in verdicts]
            counted = ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))
            print(f"    {'recommended' if what == 'best' else 'truly best'}: {counted}", flush=True)


_loaded: list[Any] = []


def _load(items: Sequence[RecordedItem], settings: Settings) -> None:
    """Give a process the table once, not with every draw."""
    scored = scored_items(items).items
    assert len(scored) == len(items)
    _loaded[:] = [items, scored, settings]


def _judge_loaded(seed: int) -> Draw:
    items, scored, settings = _loaded
    return judge(items, scored, settings, seed)


def main() -> None:
    """Judge all triples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="tables with this text in their name")
    options = parser.parse_args()
    for name, models in TRIPLES.items():
        if options.only not in name:
            continue
        items, settings = table_of(options.data, models)
        print(f"{name}, {len(items)} questions, {options.draws} draws of {QUESTIONS}:", flush=True)
        with ProcessPoolExecutor(options.jobs, initializer=_load, initargs=(items, settings)) as pool:
            report(list(pool.map(_judge_loaded, range(options.draws))))


if __name__ == "__main__":
    main()
