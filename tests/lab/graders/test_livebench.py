from __future__ import annotations

import pytest

from odar.lab.graders.livebench import ground_truth_score, instruction_score

pytest.importorskip("math_verify", reason="the evals extra is not installed: pip install 'odar[evals]'")


@pytest.mark.parametrize(
    ("task", "gold", "response", "score"),
    [
        ("typos", "their dog ran", "<solution>\nSo their dog  ran away.\n</solution>", 1.0),
        ("typos", "their dog ran", "thier dog ran", 0.0),
        ("plot_unscrambling", "He came. He saw. He won.", "Here: <PLOT_SUMMARY>He came. He saw. He won.", 1.0),
        ("connections", "a, b, c, d, e, f, g, h", "**d, c, b, a, e, f, g, x**", 0.5),
        ("connections", "a, b, c, d, e, f, g, h", "<solution>h, g, f, e, d, c, b, a</solution>", 1.0),
        ("web_of_lies_v2", "yes, no, yes", "So **yes, no, yes**", 1.0),
        ("web_of_lies_v2", "yes, no, yes", "So **yes, yes, yes**", 0.0),
        ("zebra_puzzle", "dentist", "<solution>Dentist</solution>", 1.0),
        ("spatial", "tetrahedron", "It is a **Tetrahedron**.", 1.0),
        ("cta", "Team", "The class is **Team**", 1.0),
        ("cta", "Team", "Steam", 0.0),
        ("math_comp", "B", "Therefore BBBBB", 1.0),
        ("math_comp", "B", "Not BBBBB but CCCCC", 0.0),
        ("math_comp", "073", "the answer is 073", 1.0),
        ("AMPS_Hard", "\\frac{x}{2}", "so $\\boxed{\\frac{1}{2} x}$", 1.0),
        ("AMPS_Hard", "\\frac{x}{2}", "so $\\boxed{2x}$", 0.0),
        ("olympiad", "1,2,3,4", "<solution>1,3,2,4</solution>", 0.5),
        ("olympiad", "1,2,3,4", "I do not know", 0.0),
        ("tablereformat", "a,b\n1,x", "Here:\n```csv\na,b\n1,x\n```\nDone.", 1.0),
        ("tablejoin", "{'a': 'x'}", "{'a': 'y'}", 0.9),
        ("a_task_of_tomorrow", "abcd", "abcx", 0.75),
    ],
)
def test_each_task_by_hand(task, gold, response, score):
    assert ground_truth_score(task, gold, response, "") == score


def test_instructions_average_all_and_each():
    names, arguments = ["punctuation:no_comma", "startend:quotation", "not:ours"], [{}, {}, {}]
    assert instruction_score(names, arguments, '"fine"') == 1.0
    assert instruction_score(names, arguments, "fine") == 0.25  # not all, and half of them
    assert instruction_score(["not:ours"], [{}], "fine") == 0.0
