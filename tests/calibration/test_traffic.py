from __future__ import annotations

import pytest

from odar.calibration.traffic import fast_is_wrong


def document(winner, *answers, content=True, steps=("answer", "solve", "solve")):
    candidates = [
        {"step": step, **({"answer": answer} if content else {})}
        for step, answer in zip(steps, answers, strict=False)
    ]
    return {"candidates": candidates, "verdict": {"winner": winner}, "content": content}


@pytest.mark.parametrize(
    ("trace", "correct", "wrong"),
    [
        (document(0, "4", "5"), True, False),  # it was chosen
        (document(0, "4", "5"), False, True),
        (document(1, "4", "4.0"), True, False),  # it is the same as the chosen one
        (document(1, "4", "4.0"), False, True),
        (document(1, "4", "5"), True, True),  # another one is right
        (document(1, "4", "5"), False, None),  # both may be wrong
        (document(0, "4", "5", content=False), False, True),
        (document(1, "4", "4", content=False), True, None),  # nobody knows what they said
        (document(0, "4", steps=("solve",)), True, None),  # the fast agent was down
    ],
)
def test_what_feedback_on_the_chosen_answer_says_of_the_fast_one(trace, correct, wrong):
    assert fast_is_wrong(trace, correct) is wrong
