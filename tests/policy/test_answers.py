from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import ToolCall
from odar.policy.answers import (
    answer_in_reply,
    extract_answer,
    extract_judgment,
    find_answer,
    last_boxed,
    same_reply,
)
from odar.policy.equivalence import group_answers
from odar.policy.quantities import concluding_number
from odar.types import Candidate, Step


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: Paris", "Paris"),
        ("answer: paris", "paris"),
        ("ANSWER : Paris", "Paris"),
        ("First.\nAnswer: 4\n", "4"),
        ("Answer: 3\nWait.\nAnswer: 4", "4"),
        ("**Answer:** 42", "42"),
        ("**Answer**: 42", "42"),
        ("**Answer: 42**", "42"),
        ("Answer: **42**", "42"),
        ("### Answer: 42", "42"),
        ("> Answer: 42", "42"),
        ("Final Answer: 42", "42"),
        ("The final answer: 42", "42"),
        ("Answer： 巴黎", "巴黎"),
        ("答案：四", "四"),
        ("Réponse : Paris", "Paris"),
        ("Antwort: Paris", "Paris"),
        ("Respuesta: París", "París"),
        ("Ответ: Париж", "Париж"),
        ("Answer: <Paris>", "Paris"),
        ("Answer: `x`", "x"),
        ("Answer: \\boxed{7}", "7"),
        ("Answer: $\\boxed{\\frac{1}{2}}$", "\\frac{1}{2}"),
        ("so \\boxed{5} and then \\boxed{6}", "6"),
        ("unfinished \\boxed{5} and \\boxed{6", "5"),
        ("The answer is 12.", "12"),
        ("9 * 2 = 18 dollars.\n#### 18", "18"),
        ("#### Step 1\nAdd them up.\n#### 18\n", "18"),
        ("#### Step 1\nAdd them up: 18", "#### Step 1\nAdd them up: 18"),
        ("I think the answer is 3.5 metres. Yes.", "3.5 metres"),
        ("Answer:\nParis", "Paris"),
        ("Answer: Paris\n\nLet me know if you need more!", "Paris"),
        ("Answer:\n```python\ndef f():\n\n    return 1\n```\nDone", "```python\ndef f():\n\n    return 1\n```"),
        ("Answer: first\nsecond", "first\nsecond"),
        ("Answer: 4\nAnswer:", "4"),
        ("Paris", "Paris"),
        ("", ""),
        ("Answer:", "Answer:"),
    ],
)
def test_the_answer_is_found_in_every_notation(text, expected):
    assert extract_answer(text) == expected


@pytest.mark.parametrize("text", ["", "no mark here", "unanswerable: yes", "reanswer: 4"])
def test_text_without_a_marker_has_no_answer(text):
    assert find_answer(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Judgment: CORRECT\nAnswer: 4", True),
        ("Judgment: INCORRECT\nAnswer: 4", False),
        ("judgement: incorrect", False),
        ("Judgment: **NOT CORRECT**", False),
        ("This is NOT CORRECT.", None),
        ("**Judgment:** CORRECT", True),
        ("**Judgment: INCORRECT**", False),
        ("Judgment：CORRECT", True),
        ("Judgment: <CORRECT>", True),
        ("Judgment: CORRECT\nhm\nJudgment: INCORRECT", False),
        ("The step is INCORRECT but overall\nJudgment: CORRECT", True),
        ("This is INCORRECT.", False),
        ("that is correct", None),
        ("The incorrect step was fixed", None),
        ("", None),
    ],
)
def test_the_judgment_is_found_in_every_notation(text, expected):
    assert extract_judgment(text) is expected


@given(st.text(max_size=200))
def test_extraction_never_raises(text):
    assert isinstance(extract_answer(text), str)
    assert extract_judgment(text) in (True, False, None)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\\boxed{1} then \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\fbox{7}", "7"),
        ("\\boxed {8}", "8"),
        ("\\boxed{ 9\n}", "9"),
        ("\\boxed{4} and cut off \\boxed{5", "4"),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
        ("\\boxed{\\{}", "\\{"),
        ("\\boxed{outer \\boxed{inner}}", "inner"),
        ("\\boxed{}", ""),
        ("boxed{3}", None),
        ("\\boxes{3}", None),
        ("", None),
    ],
)
def test_the_last_box_is_found(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("$\\boxed 3$", "3"),
        ("\\boxed7.", "7"),
        ("\\boxed{1}, no: \\boxed 2", "2"),
        ("\\boxed 1, no: \\boxed{2}", "2"),
    ],
)
def test_a_box_without_braces_is_read(text, content):
    assert last_boxed(text, bare=True) == content


@pytest.mark.parametrize("text", ["use \\boxed notation", "put it into `\\boxed`", "\\boxed"])
def test_prose_that_mentions_boxes_is_not_a_box(text):
    assert last_boxed(text) is None
    assert last_boxed(f"\\boxed{{4}}. I was told to {text}") == "4"


@given(st.text(alphabet="\\boxed{}1 $", max_size=100), st.booleans())
def test_last_boxed_returns_part_of_any_text(text, bare):
    found = last_boxed(text, bare=bare)
    assert found is None or found in text


@given(st.text(alphabet="ab{}\\ ", max_size=20))
def test_text_before_a_box_does_not_matter(before):
    assert last_boxed(f"{before} \\boxed{{x{{y}}}}") == "x{y}"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She has 9 eggs left.\nSo she makes 9 * $2 = $18 every day.", "$18"),
        ("In all, that is 1,250 sheets of paper.", "1,250"),
        ("The price rose by 12.5% over the year.", "12.5%"),
        ("It gets colder, down to -4 degrees outside.", "-4"),
        ("First 3 apples. Then there are none left.", None),
        ("Version v2 of the H2O paper is out", None),
        ("18", None),
        ("about 18 eggs", None),
        ("", None),
    ],
)
def test_the_final_number_of_prose_is_found(text, number):
    assert concluding_number(text) == number


def test_prose_is_grouped_with_its_final_number():
    prose = "Janet sells 9 eggs at $2 each, so she makes $18 a day."
    assert group_answers(["18", prose, "$18", "20"]) == [0, 0, 0, 1]


def test_prose_without_a_plain_number_answer_is_compared_as_text():
    first, second = "Einstein was born in Ulm in 1879.", "Einstein was born in Berlin in 1879."
    assert group_answers([first, second]) == [0, 1]
    assert group_answers([first, second, "Ulm"]) == [0, 1, 2]


def test_an_answer_is_found_in_endlessly_repeated_instructions():
    assert find_answer("It is scattered light.\n" + "Answer: <response>\n\n" * 2000) == "It is scattered light."
    assert find_answer("Answer: <response>\n" * 5000) is None


def test_only_the_end_of_a_very_long_text_is_read():
    assert find_answer("Answer: 5\n" + "word " * 20_000) is None
    assert find_answer("word " * 2_000_000 + "\nAnswer: 5") == "5"


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
