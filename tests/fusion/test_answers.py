from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.fusion.answers import extract_answer, extract_judgment, find_answer


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
def test_the_answer_is_found_however_it_is_written(text, expected):
    assert extract_answer(text) == expected


@pytest.mark.parametrize("text", ["", "no mark here", "unanswerable: yes", "reanswer: 4"])
def test_no_mark_no_answer(text):
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
def test_the_judgment_is_found_however_it_is_written(text, expected):
    assert extract_judgment(text) is expected


@given(st.text(max_size=200))
def test_extraction_is_total(text):
    assert isinstance(extract_answer(text), str)
    assert extract_judgment(text) in (True, False, None)


@given(st.text(alphabet="\\boxed{}Answer: \n*`<>", max_size=80))
def test_extraction_is_total_on_markup(text):
    extract_answer(text)


@given(st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=20))
def test_whatever_follows_the_mark_comes_back(answer):
    assert extract_answer(f"Some steps.\nAnswer: {answer}") == answer


@pytest.mark.parametrize(
    "piece", ["*", " ", "\n", "Answer:", "\\boxed{", "{", "the answer is ", "Judgment: ", "` "]
)
def test_extraction_takes_linear_time(piece):
    """A hostile upstream may send megabytes: ten times the text must not cost a hundred times the work."""
    text = piece * (400_000 // len(piece))
    extract_answer(text)
    extract_judgment(text)
