from __future__ import annotations

import pytest

from odar.recording.collect import Job
from odar.recording.schema import Attempt
from odar.types import Step, Usage
from support.benchmarks import Sums
from support.engine import engine, settings
from support.scripted import completion
from support.scripts import script

measure_prompts = script("measure_prompts")


def answers_by_prompt(request, index):
    """Right with the default prompts; with those of `tiny`, wrong, long and cut off."""
    number = request.messages[-1].text.split()[2]
    if any(turn.role == "assistant" for turn in request.messages):  # worked examples: the prompts of `tiny`
        return [completion("I would say " * 9, finish="length")] * request.n
    return [completion(f"Judgment: CORRECT\nAnswer: {number}")] * request.n


async def test_each_prompt_set_is_tried_on_every_question():
    sums = Sums(4)
    jobs = [Job(sums, task, 0, 42) for task in sums.load()]
    made = []

    def make(tried):
        made.append(tried.prompts)
        return engine(fast=answers_by_prompt, slow=answers_by_prompt, prompts=tried.prompts, routing__samples=2)[0]

    found = [
        row
        async for row in measure_prompts.compare_prompts(settings(), ["default", "tiny"], jobs, make_engine=make)
    ]
    assert made == ["default", "tiny"]
    assert [(row.prompts, row.step) for row in found] == [(name, step) for name in made for step in Step]
    assert [row.answers for row in found] == [4, 4, 8] * 2
    assert {row.accuracy for row in found[:3]} == {1.0} and {row.accuracy for row in found[3:]} == {0.0}
    assert {(row.cut_off, row.unstated) for row in found[:3]} == {(0.0, 0.0)}
    assert {(row.cut_off, row.unstated) for row in found[3:]} == {(1.0, 1.0)}


def test_accuracy_per_100_tokens():
    attempts = [
        Attempt(step=Step.ANSWER, model="m", text="4", answer="4", score=score, usage=Usage(10, 0, tokens, None))
        for score, tokens in ((1.0, 30), (0.0, 50), (1.0, 40))
    ]
    found = measure_prompts.summarise("p", Step.ANSWER, attempts)
    assert (found.accuracy, found.tokens) == (pytest.approx(2 / 3), 40)
    assert found.accuracy_per_100_tokens == pytest.approx(5 / 3)
    assert measure_prompts.summarise("p", Step.SOLVE, []).accuracy_per_100_tokens == 0.0
