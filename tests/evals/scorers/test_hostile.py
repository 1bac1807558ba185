"""Long texts that make careless patterns slow: every scorer takes time in proportion to the text, and raises nothing."""

from __future__ import annotations

import time
from functools import partial

import pytest

from odar.evals.scorers import (
    bigbench,
    choice,
    grids,
    ifeval,
    livebench,
    numeric,
    programs,
    proof,
    spans,
    swebench,
    verdict,
)
from odar.policy.answers import last_boxed

LENGTH = 20_000
SECONDS = 3.0
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
SCORERS = {
    "numeric": partial(numeric.numeric, "1"),
    "choice": lambda text: choice.choice("A", text, ["x", "y"]),
    "verdict": partial(verdict.verdict, True),
    "spans": partial(spans.f1, ["a b"]),
    "bigbench": partial(bigbench.bigbench, "(A)"),
    "grids": partial(grids.grid_match, [[1]]),
    "boxed": partial(last_boxed, bare=True),
    "program": programs.extract_program,
    "patch": swebench.extract_patch,
    "grade": lambda text: proof.read_grade(text, 3),
    "proof": lambda text: proof.prompt("P", ["claim"], text),
    **{f"ifeval {name}": partial(ifeval.follow, [name], [ARGUMENTS]) for name in ifeval.CHECKS},
    **{
        f"livebench {task}": lambda text, task=task: livebench.livebench(task, "He came. He saw. a, b", text, "")
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
    "livebench tablereformat": lambda text: livebench.livebench("tablereformat", "a,b\n1,2", text, ""),
}


@pytest.mark.parametrize("name", SCORERS)
def test_no_text_is_slow(name):
    for piece in PIECES:
        text = piece * (LENGTH // len(piece))
        started = time.process_time()
        SCORERS[name](text)
        assert time.process_time() - started < SECONDS, f"{piece!r}"
