"""The items of a recording that calibration can use, with labels or with the slow model as the reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from odar.lab.recording.schema import Attempt, RecordedItem
from odar.policy.equivalence import equivalent
from odar.settings import Settings
from odar.types import SLOW, Ask, Step

MIN_ITEMS = 30
"""Minimum number of items for statistics and estimates."""


@dataclass(frozen=True, slots=True)
class ScoredItems:
    """Items whose answers all have a score."""

    items: tuple[RecordedItem, ...]
    labelled: bool
    """Whether the score says that an answer is right; otherwise that it is the slow model's answer (SPEC 10.1)."""
    slow_repeats: bool = True
    """Without labels: whether slow answered twice, so that its agreement with itself is known."""

    def __len__(self) -> int:
        return len(self.items)

    @property
    def score_name(self) -> str:
        """What a score means, for tables."""
        return "right" if self.labelled else "same answer as slow"


def usable_items(items: Iterable[RecordedItem], settings: Settings, samples: int) -> list[RecordedItem]:
    """Items with an answer by the default model of every agent, and this many slow samples; sorted, so that the
    result does not depend on the order in which answers arrived."""
    needed = {agent: samples if agent == SLOW else 1 for agent in settings.agent_names}
    models = {settings.agent(agent).model for agent in needed}

    def is_usable(item: RecordedItem) -> bool:
        own = [(each.agent, each.step) for each in item.attempts]
        enough = all(own.count((agent, Ask(agent).step)) >= count for agent, count in needed.items())
        return enough and {each.model for each in item.attempts} <= models

    return sorted(filter(is_usable, items), key=lambda item: item.key)


def scored_items(items: Iterable[RecordedItem]) -> ScoredItems:
    """The items with a score for every answer: by labels if every item has one, else by the slow model's answer."""
    items = tuple(items)
    if all(item.gold != [] and all(each.score is not None for each in item.attempts) for item in items):
        return ScoredItems(items, labelled=True)
    repeats = all(sum(map(is_slow, item.attempts)) > 1 for item in items)
    scored = [found for item in items if (found := _scored_by_slow(item, repeats)) is not None]
    return ScoredItems(tuple(scored), labelled=False, slow_repeats=repeats)


def is_slow(attempt: Attempt) -> bool:
    """Whether it is an answer of the slow model, and not a verification of another one."""
    return attempt.agent == SLOW and attempt.step is not Step.VERIFY


def with_one_slow_answer(item: RecordedItem) -> RecordedItem:
    """The item with the first of its slow answers only."""
    first = next(filter(is_slow, item.attempts), None)
    return replace(item, attempts=tuple(each for each in item.attempts if each is first or not is_slow(each)))


def _scored_by_slow(item: RecordedItem, repeats: bool) -> RecordedItem | None:
    """The item scored by its first slow answer, the reference; None if that was cut off or is empty.

    If slow answered twice, the reference itself is left out: then the score of slow is its agreement with itself.
    """
    reference = next(filter(is_slow, item.attempts))
    if reference.finish == "length" or not reference.answer.strip():
        return None
    kept = [each for each in item.attempts if not (repeats and each is reference)]
    scored = [replace(each, score=float(equivalent(each.answer, reference.answer))) for each in kept]
    return replace(item, attempts=tuple(scored))
