"""Replies in prose compared with short answers (SPEC 10.1)."""

from __future__ import annotations

import pytest

from odar.conversation import ToolCall
from odar.policy.similarity import answer_in_reply, same_reply
from odar.types import Candidate, Step


def reply(text: str, *calls: ToolCall) -> Candidate:
    return Candidate(Step.SOLVE, "slow", "big", text, text, tool_calls=calls)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Paris", "The capital of France is Paris.", True),
        ("Lyon", "The capital of France is Paris.", False),
        ("18", "She sells 9 eggs at $2. So she makes 9 * 2 = $18 every day.", True),
        ("17", "She sells 9 eggs at $2. So she makes 9 * 2 = $18 every day.", False),
        ("Altogether they ate 12 of the apples.", "All in all that makes 12 apples.", True),
        ("Altogether they ate 12 of the apples.", "All in all that makes 13 apples.", False),
        ("4", "It is 4.", True),
        ("5", "It is 4.", False),
        ("$4", "It's $4. You save $2 and lose 3%.", True),
        ("no", "No, 91 is 7 times 13.", True),
        ("yes", "No, 91 is 7 times 13.", False),
        ("B", "The correct option is (B), because it rains.", True),
        ("A", "A fact to note first. The correct option is (B).", False),
        ("the Nile", "**Answer:** Nile", True),
        ("Jane Austen", "*Emma* was written by **Jane Austen** in 1815. It is a novel.", True),
        ("Seeds pass through your body unharmed.", "The seeds pass through your body unharmed.", True),
        ("Seeds grow into a tree in you quickly.", "Nothing happens when they are eaten by people.", False),
        ("", "The capital of France is Paris.", False),
    ],
)
def test_same_reply(one: str, other: str, same: bool) -> None:
    assert same_reply(reply(one), reply(other)) is same
    assert same_reply(reply(other), reply(one)) is same


def test_tool_calls_are_compared_by_name_and_arguments() -> None:
    call = ToolCall("1", "weather", '{"city": "Rome", "days": 1}')
    other = ToolCall("2", "weather", '{"days": 1, "city": "Rome"}')
    assert same_reply(reply("", call), reply("Let me look.", other))
    assert not same_reply(reply("", call), reply("It rains."))
    assert not same_reply(reply("", call), reply("", ToolCall("3", "weather", '{"city": "Oslo"}')))


def test_a_reply_gives_one_of_several_answers() -> None:
    assert answer_in_reply("It was Rome, of course.", ["Oslo", "Rome"]) == "Rome"
    assert answer_in_reply("I do not know.", ["Oslo", "Rome"]) is None
