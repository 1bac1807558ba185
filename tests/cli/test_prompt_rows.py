from __future__ import annotations

import pytest

from odar.cli.eval_prompts import prompt_rows
from odar.lab.recording.schema import Attempt
from odar.types import Step, Usage


class Item:
    def __init__(self, *attempts):
        self.attempts = attempts


def attempt(score, tokens, finish="stop", stated=True):
    usage = Usage(10, 0, tokens, None)
    return Attempt(
        agent="fast", step=Step.ANSWER, model="m", text="4", answer="4", score=score, usage=usage, finish=finish,
        stated=stated,
    )  # fmt: skip


def test_rows_have_accuracy_and_tokens():
    items = [Item(attempt(1.0, 30)), Item(attempt(0.0, 50, "length", stated=False)), Item(attempt(1.0, 40))]
    (found,) = prompt_rows("mine", items)
    assert (found["prompts"], found["step"], found["answers"]) == ("mine", "answer", 3)
    assert (found["accuracy"], found["tokens"]) == (pytest.approx(2 / 3), 40)
    assert found["accuracy_per_100_tokens"] == pytest.approx(5 / 3)
    assert (found["cut_off"], found["unstated"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_steps_without_answers_are_skipped():
    assert prompt_rows("mine", []) == []
