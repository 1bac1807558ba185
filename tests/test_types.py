"""Behaviour of the value types."""

from __future__ import annotations

import pytest

from odar.conversation import Image
from odar.errors import InputError
from odar.types import CANCELLED, NO_USAGE, Call, Query, Route, Stage, Step, path_of


@pytest.mark.parametrize(
    ("error", "failed"),
    [(None, False), (CANCELLED, False), ("HTTP 500", True), ("", True), ("cancelled by a proxy", True)],
)
def test_a_cancelled_call_is_not_a_failed_one(error, failed):
    assert Call(Step.SOLVE, "slow", "p", "m", 1, NO_USAGE, None, 0.1, error=error).failed is failed


@pytest.mark.parametrize(
    "text", ["", "fast+", "slow*0", "slow*100", "Fast", "slow:check", "fast,slow", "+", "slow**2"]
)
def test_a_stage_that_cannot_be_read_is_named(text):
    with pytest.raises(InputError, match="is not valid"):
        Stage.parse(text)


@pytest.mark.parametrize("text", ["fast", "fast+second", "slow*5", "fast+slow*5", "slow:verify*3"])
def test_a_stage_is_written_as_it_was_read(text):
    assert str(Stage.parse(text)) == text


@pytest.mark.parametrize(
    ("stages", "path"),
    [
        (["fast"], Route.SIMPLE),
        (["fast", "second"], Route.SIMPLE),
        (["slow"], Route.MEDIUM),
        (["fast", "slow:verify"], Route.MEDIUM),
        (["fast", "huge"], Route.MEDIUM),
        (["fast+slow*5"], Route.HARD),
        (["slow", "slow*2"], Route.HARD),
    ],
)
def test_the_path_names_what_happened(stages, path):
    assert path_of(map(Stage.parse, stages)) is path


def test_an_image_counts_in_the_estimated_tokens():
    question = Query("What does this picture show?")
    pictured = Query(question.text, (Image("image/png", b"png"),))
    assert pictured.estimated_tokens - question.estimated_tokens == 1_500
