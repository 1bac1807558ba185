from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.catalogue import Price
from odar.config import load_settings
from odar.engine import Odar
from odar.errors import InputError
from odar.lab.calibration.advice import advise, advise_second, one_call_costs, percent
from odar.lab.calibration.compare import walk_all
from odar.lab.calibration.items import scored_items, with_one_slow_answer
from odar.lab.intervals import Interval
from odar.lab.recording.importers import ImportedAnswer
from odar.lab.recording.joining import import_models
from odar.lab.recording.schema import Task
from odar.lab.replay.table import ReplayTable
from odar.types import Query, Usage

OPTIONS = "\n".join(f"{letter}. option {letter}" for letter in "ABCDEFGHIJ")


def population(count=1600, slow_noise=0.04, twice=0, seed=0, gold=False):
    """Answers of three models to choices of ten: cheap ones are right together on easy questions."""
    rng = np.random.default_rng(seed)
    models = {"mini": [], "lite": [], "big": []}
    again = []
    for i in range(count):
        right = rng.integers(10)
        easy = rng.random() < 0.75
        chance = {"mini": 0.95 if easy else 0.3, "lite": 0.94 if easy else 0.3, "big": 1 - slow_noise}

        def said(name, i=i, right=right, chance=chance):
            letter = "ABCDEFGHIJ"[right if rng.random() < chance[name] else rng.integers(10)]
            query = f"Question {i}: which is it?\n{OPTIONS}"
            label = {"gold": "ABCDEFGHIJ"[right]} if gold else {}
            usage = Usage(60, 0, int(rng.integers(100, 300)))
            return ImportedAnswer(
                id=str(i), query=query, text=letter, answer=letter, model=name, usage=usage, **label
            )

        for name, own in models.items():
            own.append(said(name))
        if i < twice:
            again.append(said("big"))
    prices = {"mini": Price(0.1, 0.1, 0.4), "lite": Price(0.1, 0.1, 0.3), "big": Price(2.0, 2.0, 8.0)}
    odar = Odar(load_settings("tiny", environ={}, calibration=""))
    models["big"] += again
    imported = import_models(odar, models, prices, {"fast": "mini", "slow": "big"}, "set")
    return imported.items, imported.header.to_settings()


def test_the_intervals_hold_the_truth_and_the_recommendation_is_right():
    # the truth is measured on so many questions of their own that its own error hardly counts
    everything, settings = population(2000, seed=100)
    everything = scored_items(everything).items
    draws = []
    for seed in range(3):
        items, _ = population(300, seed=seed)
        advice = advise(items, settings, {}, "balanced")
        table = ReplayTable(everything, settings, {}, advice.table.calibration)
        truth = list(zip(advice.choices, walk_all(table, [c.settings for c in advice.choices]), strict=True))
        slow = next(real for choice, real in truth if choice is advice.slow).cost_usd.mean()
        for choice, real in truth:
            if choice is not advice.slow:
                draws.append(
                    advice.saving(choice).low <= 1 - real.cost_usd.mean() / slow <= advice.saving(choice).high
                )
                draws.append(advice.score(choice).low <= real.score.mean() <= advice.score(choice).high)
        assert advice.best.is_cascade  # saves more than half, and differs in a few percent
        assert np.mean(draws) >= 0.85
    assert "how often big repeats itself is unknown" in advice.sentence()
    assert np.isnan(advice.score(advice.slow).value)


def test_slow_asked_twice_on_a_part_shows_the_excess():
    items, settings = population(600, slow_noise=0.2, twice=200)
    advice = advise(items, settings, {}, "balanced")
    assert advice.repeats == 200
    itself = advice.score(advice.slow)
    assert itself.low < 0.82**2 + 2 * 0.18 * 0.02 < itself.high  # both right, or both wrong in the same way
    cascade = advice.best
    coupled = advise([with_one_slow_answer(item) for item in items], settings, {}, "balanced")
    same = next(each for each in coupled.choices if each.name == cascade.name)
    assert advice.score(cascade).value < coupled.score(same).value  # slow's own answer is not given for free
    assert "as big itself when asked twice in" in advice.sentence()
    assert advice.gain(cascade).value > -0.02


def test_a_slow_model_that_always_repeats_itself_has_an_interval_all_the_same():
    items, settings = population(120, slow_noise=0.0, twice=30)
    advice = advise(items, settings, {}, "balanced")
    itself = advice.score(advice.slow)
    assert (itself.value, itself.high) == (1.0, 1.0) and 0.85 < itself.low < 0.9  # of 30 questions, not of 120
    once = advice.part(~advice.repeated)
    assert np.isnan(once.score(once.slow).value)


def test_a_lead_that_may_be_chance_is_no_recommendation():
    items, settings = population(300, seed=6)
    advice = advise(items, settings, {}, "balanced")
    assert advice.best is advice.slow
    assert advice.sentence().endswith("it may be chance: try more questions (--limit).")


def test_no_cascade_pays_where_cheap_models_are_useless():
    items, settings = population(400)
    useless = [
        item.__class__(
            **{**{f: getattr(item, f) for f in item.__dataclass_fields__}, "attempts": _shuffled(item, i)}
        )
        for i, item in enumerate(items)
    ]
    advice = advise(useless, settings, {}, "quality")
    assert advice.best is advice.slow
    assert advice.sentence().startswith("No cascade pays here: use big alone. The nearest cascade")


def _shuffled(item, i):
    letters = np.random.default_rng(i).permutation(list("ABCDEFGHIJ"))
    cheap = dict(zip(("fast", "second"), letters, strict=False))
    return tuple(
        replace(each, answer=str(cheap[each.agent]), text=str(cheap[each.agent])) if each.agent in cheap else each
        for each in item.attempts
    )


def test_with_labels_figures_are_right_answers():
    items, settings = population(120, gold=True)
    advice = advise(items, settings, {}, "balanced")
    assert (advice.labelled, advice.score_name) == (True, "right")
    assert advice.score(advice.slow).value == pytest.approx(0.96, abs=0.06)
    assert "right in" in advice.sentence() and "same answer" not in advice.sentence()


def test_the_best_second_is_found():
    items, settings = population(400)
    advice, points = advise_second(items, settings, {}, "balanced", {"second": "lite"})
    assert set(points) == {"lite", "none"} and points["lite"] > points["none"]
    assert advice.table.settings.second.model == "lite"


def test_kinds_have_rows_and_few_items_are_refused():
    items, settings = population(60)
    advice = advise(items, settings, {}, "balanced")
    assert {kind: len(part.strata) for kind, part in advice.by_kind().items()} == {"choice": 60}
    assert [row["choice"] for row in advice.choice_rows() if row["best"]] == [advice.best.name]
    with pytest.raises(InputError, match="20 questions have comparable answers"):
        advise(items[:20], settings, {}, "balanced")
    assert percent(Interval(0.5, 0.4, 0.6)) == "50.0% [40.0, 60.0]"


def test_a_long_request_of_one_call_is_worth_a_slow_call_of_its_own_length():
    items, settings = population(300)
    advice = advise(items, settings, {}, "balanced")
    assert advice.best.is_cascade
    words = "Write a story about a hard day of a physicist who must explain entropy to a hostile jury. "
    tasks = [Task("0", Query(words * count), None) for count in (1, 2000)]
    agents = [set(one_call_costs(advice, [task], lambda _: 0.9)["to"]) for task in tasks]
    assert agents == [{"slow"}, {"slow"}]
