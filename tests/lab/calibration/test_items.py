"""Which items are used, and what counts as right without labels."""

from __future__ import annotations

from dataclasses import replace

from odar.lab.calibration.items import scored_items, usable_items
from odar.types import SLOW, Step
from support.population import population, settings, table


def slow_answers(item):
    return [each for each in item.attempts if each.agent == SLOW and each.step is Step.SOLVE]


def test_items_without_an_answer_of_every_agent_are_left_out():
    items = population(6)
    items[0] = replace(items[0], attempts=items[0].attempts[1:])  # no fast answer
    items[1] = replace(items[1], attempts=items[1].attempts[:-1])  # four slow samples
    items[2] = replace(items[2], attempts=tuple(replace(each, model="quick") for each in items[2].attempts))
    items[3] = replace(items[3], attempts=(*items[3].attempts[:-1], replace(items[3].attempts[-1], model="gone")))
    used = usable_items(items, settings(), 5)
    assert [item.key.id for item in used] == ["2", "4", "5"]  # any default model is known, an alternative is not
    assert [item.key.id for item in usable_items(items, settings(), 4)] == ["1", "2", "4", "5"]


def test_labels_are_used_if_every_item_has_them():
    items = population(10)
    scored = scored_items(items)
    assert scored.labelled and scored.items == tuple(items) and scored.score_name == "right"


def test_without_labels_slow_is_the_reference_and_its_row_is_how_often_it_repeats_itself():
    items = population(60, labels=False)
    scored = scored_items(items)
    assert not scored.labelled and scored.slow_repeats and scored.score_name == "same answer as slow"
    for before, after in zip(items, scored.items, strict=True):
        reference, *others = slow_answers(before)
        assert len(slow_answers(after)) == len(others)
        assert [each.score for each in slow_answers(after)] == [
            float(each.answer == reference.answer) for each in others
        ]
    repeats = table(scored.items).scores(SLOW).mean()
    assert 0.6 < repeats < 0.95  # not 1: slow differs from itself


def test_one_unlabelled_item_makes_slow_the_reference_of_all():
    items = population(10)
    assert not scored_items([*items[1:], replace(items[0], gold=[])]).labelled


def test_a_slow_model_that_answered_once_is_always_the_same_as_itself():
    scored = scored_items(population(10, labels=False, samples=1))
    assert not scored.slow_repeats
    assert all(each.score == 1.0 for item in scored.items for each in slow_answers(item))


def test_a_reference_that_was_cut_off_is_no_reference():
    items = population(10, labels=False)
    first = slow_answers(items[0])[0]
    cut = tuple(replace(each, finish="length") if each is first else each for each in items[0].attempts)
    assert len(scored_items([replace(items[0], attempts=cut), *items[1:]])) == 9
