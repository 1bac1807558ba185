"""Comparing free text by similarity does not change questions whose answers have an exact form (SPEC 5.15)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from odar.lab.recording.files import open_recording
from odar.lab.recording.schema import RecordedItem
from odar.policy.energy import measure_energy
from odar.policy.fusion import Fusion
from odar.types import Step

ROOT = Path(__file__).parents[2]
RECORDINGS = [
    *sorted((ROOT / "docs" / "data").glob("embedded-*.jsonl.gz")),
    ROOT / "runs" / "local-pair" / "recording.jsonl.gz",
]
FREE_TEXT = ("truthfulqa_text", "starter")
"""Sets whose answers have no exact form."""


def answers(item: RecordedItem, similarity: str) -> list[str]:
    """Return the answers of Medium and Hard."""
    fusion = Fusion(beta=0.25, similarity=similarity)
    by_step = {
        step: [
            replace(each, energy=measure_energy(each.tokens, 0.1, None))
            for each in item.attempts
            if each.step is step
        ]
        for step in Step
    }
    asked = [[*by_step[Step.ANSWER], *by_step[step]] for step in (Step.VERIFY, Step.SOLVE)]
    return [each[fusion.choose(each, item.query).winner].answer for each in asked if each]


def exact_items(path: Path) -> Iterator[RecordedItem]:
    return (item for item in open_recording(path).items() if item.key.set not in FREE_TEXT and item.attempts)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_exact_answers_are_the_same_with_and_without_similarity(path):
    changed = [item.key for item in exact_items(path) if answers(item, "lexical") != answers(item, "none")]
    assert not changed


def test_there_are_exact_answers_to_compare():
    assert sum(1 for path in RECORDINGS for _ in exact_items(path)) > 500
