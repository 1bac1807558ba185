from __future__ import annotations

from dataclasses import replace

import pytest

from odar.errors import InputError
from odar.evals.fusion_study import apply_rules, load_fusion_items, oracle_accuracy
from odar.recording.files import open_recording, write_recording
from odar.types import Step
from support.panels import collect_panel, header, samples_recording


def row(gold, *answers, lps=None):
    candidates = [
        {"model": "m", "answer": a, "tokens": [["So", lp], [f" {a}", lp]]}
        for a, lp in zip(answers, lps or [-0.5] * len(answers), strict=True)
    ]
    return {"gold": gold, "candidates": candidates}


def write(tmp_path, *rows):
    return samples_recording(tmp_path, rows)


def test_accuracy_of_each_rule_on_hand_made_items(tmp_path):
    questions = load_fusion_items(
        write(
            tmp_path,
            row("1", "1", "1", "2", lps=[-0.5, -0.5, -0.1]),  # the vote is right, the surest is wrong
            row("2", "1", "1", "2", lps=[-0.5, -0.5, -0.1]),  # the other way round
            row("1", "1", "1", "1"),
            row(["3", "three"], "three", "4", "5", lps=[-0.1, -0.9, -0.9]),
        ),
        0.1,
    )
    results = {result.rule: result for result in apply_rules(questions, 0.0, seed=0)}
    assert results["fep β=0"].accuracy == results["majority"].accuracy
    assert results["fep β=0"].against_majority.value == 0.0
    assert results["fep β=inf (argmin)"].accuracy.value == 0.75
    assert results["majority"].accuracy.value == 0.75
    assert oracle_accuracy(questions) == 1.0


async def test_verifications_of_a_recording_are_not_read(tmp_path):
    path = await collect_panel(tmp_path, items=12, samples=5)
    items = load_fusion_items(path, 0.1)
    assert {len(item.candidates) for item in items} == {6}
    assert {candidate.step for item in items for candidate in item.candidates} == {Step.ANSWER, Step.SOLVE}
    recorded = list(open_recording(path).items())
    assert [item.correct[0] for item in items] == [item.attempts[0].score == 1 for item in recorded]


def test_items_can_be_limited_to_a_split(tmp_path):
    path = write(tmp_path, row("1", *"112"), row("2", *"122"))
    items = list(open_recording(path).items())
    write_recording(path, header(), [replace(items[0], split="judge"), replace(items[1], split="calibrate")])
    assert len(load_fusion_items(path, 0.1)) == 2
    assert [item.correct for item in load_fusion_items(path, 0.1, "judge")] == [(True, True, False)]
    with pytest.raises(InputError, match="holds no items with candidates"):
        load_fusion_items(write(tmp_path), 0.1)
