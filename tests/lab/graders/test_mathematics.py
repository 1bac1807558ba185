from __future__ import annotations

import os
import threading

import pytest

pytest.importorskip("math_verify", reason="the evals extra is not installed: pip install 'odar[evals]'")

from odar.lab.graders.mathematics import _WORKER, Worker, math_equal

EQUAL = [
    ("x+1", "1+x"),
    ("\\frac{1}{2}", "0.5"),
    ("\\dfrac{3}{4}", "\\frac34"),
    ("\\sqrt{8}", "2\\sqrt{2}"),
    ("5", "x=5"),
    ("\\{1,2\\}", "\\{2, 1\\}"),
    ("[0,1)", "[0, 1)"),
    ("(1,2)", "(1, 2)"),
    ("90^\\circ", "90"),
    ("\\text{even}", "even"),
    ("1,000", "1000"),
    ("-\\frac13", "-1/3"),
    ("3\\frac12", "7/2"),
    ("(x+1)(x-1)", "x^2-1"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"),
]
DIFFERENT = [
    ("(0,1)", "[0,1]"),
    ("(1,2)", "(2,1)"),
    ("2", "3"),
    ("x+1", "x-1"),
    ("2", ""),
    ("2", "I do not know"),
    ("1", "\\frac{1}{0}"),
    ("2", "2" * 1_001),
    ("2", "\\int\\sum" * 100),
    ("2", "\\frac" * 150),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal_expressions_score_one(gold, answer):
    assert math_equal(gold, answer) == 1.0


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different_expressions_score_zero(gold, answer):
    assert math_equal(gold, answer) == 0.0


def test_an_expensive_expression_times_out_and_the_worker_is_replaced():
    """Uses the worker of `math_equal`, because a process takes seconds to start."""
    assert not _WORKER.equal("2", "9^{9^{9^{9^9}}}", 1.0)
    assert _WORKER.equal("4", "2+2", 60.0)


def test_threads_share_one_worker():
    results = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(math_equal(f"x+{i}", f"{i}+x"))) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1.0] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_its_own_worker():
    assert math_equal("x+1", "1+x") == 1.0
    child = os.fork()
    if child == 0:
        os._exit(0 if math_equal("x+2", "2+x") == 1.0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert math_equal("x+3", "3+x") == 1.0


def test_a_dead_worker_is_replaced():
    assert _WORKER.equal("4", "2+2", 60.0)
    first = _WORKER._process
    first.kill()
    first.wait()
    assert _WORKER.equal("4", "2+2", 60.0)
    assert _WORKER._process is not first


@pytest.mark.parametrize(("gold", "answer"), [("(1, 2]", "(1,  2]"), ("\\{a\\}", " \\{a\\} ")])
def test_identical_texts_are_equal_without_a_worker(gold, answer, monkeypatch):
    monkeypatch.setattr(Worker, "equal", lambda *_: pytest.fail("asked"))
    assert math_equal(gold, answer) == 1.0
