"""Long texts that make bad regular expressions slow: every grader takes linear time and does not raise."""

from __future__ import annotations

from functools import partial

import pytest

from odar.lab.graders import ifeval, livebench, mathematics
from odar.lab.graders import text as texts
from odar.policy.answers import last_boxed

LENGTH = 20_000
PIECES = [
    *("a", ".", "(", " ", "\n", "1", "1 ", "a.", "a. ", "*", "`", "[", "{", "[[1]]", "\\boxed{", "**a", "<<", "$1", "1,", "-"),
    *("<solution>", "<patch>", "```python\n", "yes ", "(A) ", "the answer is ", "*** ", "P.", '" ', "\\text{", "1: YES\n"),
]  # fmt: skip
ARGUMENTS = {
    "keywords": ["x"], "keyword": "x", "frequency": 1, "forbidden_words": ["x"], "letter": "x", "let_frequency": 1,
    "language": "de", "num_sentences": 2, "num_words": 2, "num_paragraphs": 2, "nth_paragraph": 1, "first_word": "x",
    "num_placeholders": 2, "postscript_marker": "P.P.S", "num_bullets": 2, "num_highlights": 3, "num_sections": 2,
    "section_spliter": "SECTION", "prompt_to_repeat": "x", "end_phrase": "x", "capital_frequency": 2,
}  # fmt: skip
GRADERS = {
    "numeric": partial(mathematics.number_match, "1"),
    "choice": lambda text: texts.chosen_letter(text, ["x", "y"]),
    "verdict": partial(texts.yes_no_match, True),
    "spans": partial(texts.f1, ["a b"]),
    "bigbench": partial(texts.bigbench, "(A)"),
    "grids": partial(texts.grid_match, [[1]]),
    "boxed": partial(last_boxed, bare=True),
    "grade": lambda text: mathematics.proof_score("P", ["claim"] * 3, "proof", lambda _: text),
    "proof": lambda text: mathematics.proof_prompt("P", ["claim"], text),
    **{f"ifeval {name}": partial(ifeval.check_instructions, [name], [ARGUMENTS]) for name in ifeval.CHECKS},
    **{
        f"livebench {task}": lambda text, task=task: livebench.ground_truth_score(
            task, "He came. He saw. a, b", text, ""
        )
        for task in (
            "typos",
            "plot_unscrambling",
            "connections",
            "zebra_puzzle",
            "cta",
            "olympiad",
            "tablejoin",
            "new",
        )
    },
    "livebench tablereformat": lambda text: livebench.ground_truth_score("tablereformat", "a,b\n1,2", text, ""),
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", GRADERS)
def test_graders_take_linear_time(name):
    """A pattern with quadratic backtracking would exceed the timeout of the test run."""
    for piece in PIECES:
        GRADERS[name](piece * (LENGTH // len(piece)))
