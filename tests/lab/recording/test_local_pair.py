"""The recording of the local pair that is in the repository: it can be replayed, and it can be continued."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.lab.recording.files import open_recording
from odar.lab.recording.header import describe_changes, digest_json, facts_of
from odar.lab.recording.questions import load_questions
from odar.types import Step

FOLDER = Path(__file__).parents[3] / "runs" / "local-pair"
SETS = {"gsm8k", "math", "mmlu_pro", "strategyqa", "truthfulqa_text", "starter", "everyday"}
FEWEST = 60
"""Items of a set."""


@pytest.fixture(scope="module")
def recording():
    return open_recording(FOLDER / "recording.jsonl.gz")


@pytest.fixture(scope="module")
def items(recording):
    return list(recording.items())


def test_the_recording_matches_the_current_local_profile(recording):
    """`odar eval collect` appends only if models, weights, prompts, sampling and budgets are still the same."""
    assert describe_changes(facts_of(Odar(load_settings("local"))), recording.header.facts) == ""


def test_every_item_has_all_answers_with_log_probabilities(items):
    for item in items:
        assert [each.step for each in item.attempts] == [Step.ANSWER, Step.VERIFY, *[Step.SOLVE] * 5]
        for each in item.attempts:
            assert each.score is not None
            # llama.cpp reports one log-probability for a character of several tokens; more than this would not be fused
            assert sum(token.logprob is None for token in each.tokens) <= 0.2 * len(each.tokens)
            assert each.tokens or not each.text


def test_every_set_is_split_into_disjoint_halves(items):
    count = Counter((item.key.set, item.split) for item in items)
    assert set(count) == {(name, split) for name in SETS for split in ("calibrate", "held-out")}
    assert min(Counter(item.key.set for item in items).values()) >= FEWEST
    halves = {
        split: {" ".join(item.query.split()) for item in items if item.split == split}
        for split in ("calibrate", "held-out")
    }
    assert not halves["calibrate"] & halves["held-out"]


def test_the_judged_half_of_gsm8k_is_its_test_split(items):
    split_of = {item.key.id.partition("-")[0]: item.split for item in items if item.key.set == "gsm8k"}
    assert split_of == {"train": "calibrate", "test": "held-out"}


def test_items_have_the_digests_of_the_question_files(items):
    """The digest covers question, gold answer and split: with another one, the item would be recorded again."""
    files = [FOLDER / f"{name}.jsonl" for name in ("items", "starter", "everyday")]
    known = [(file.stem, each) for file in files for each in load_questions(file, answers=True)]
    questions = {(each.set or name, each.id): each for name, each in known}
    for item in items:
        task = questions[item.key.set, item.key.id]
        assert item.digest == digest_json([task.query, task.gold, task.split])


def test_the_recording_is_smaller_than_15_mb():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 15_000_000
