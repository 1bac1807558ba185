from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from pathlib import Path

import pytest

from odar.errors import InputError
from odar.evals.scorers.programs import Test as Case
from odar.evals.scorers.programs import extract_program, passes, passes_script, read_tests
from odar.evals.scorers.sandbox import SandboxLimits

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no sandbox on this system")
ADD = "def add(a, b):\n    return a + b\n"


def test_by_standard_input():
    program = "a, b = map(int, input().split())\nprint(a + b)"
    assert passes(program, [Case("1 2", "3"), Case("10 5", "15\n")]) == 1.0
    assert passes(program, [Case("1 2", "3"), Case("10 5", "16")]) == 0.0


def test_output_is_compared_by_words():
    assert passes("print('1.0  2 ')", [Case("", "1 2\n")]) == 1.0
    assert passes("print('1\\n2')", [Case("", "1 2")]) == 0.0


def test_by_function_and_by_method():
    cases = [Case("1\n2", "3", "add"), Case("[1]\n[2]", "[1, 2]", "add")]
    assert passes(ADD, cases) == 1.0
    assert passes("class Solution:\n    def add(self, a, b):\n        return a + b", cases) == 1.0
    assert passes("def add(a, b):\n    return (1, 2)", [cases[1]]) == 1.0  # a tuple is a list in JSON
    assert passes("def add(a, b):\n    return a - b", cases) == 0.0
    assert passes("def other(): pass", cases) == 0.0


def test_nothing_passes_nothing():
    assert passes("", [Case("", "")]) == 0.0
    assert passes("print(1)", []) == 0.0


def test_what_a_program_prints_is_not_its_result():
    liar = "def add(a, b):\n    print('\\x003')\n    return 0"
    assert passes(liar, [Case("1\n2", "3", "add")]) == 0.0


def test_by_script():
    assert passes_script(ADD, "assert add(1, 2) == 3") == 1.0
    assert passes_script(ADD, "assert add(1, 2) == 4") == 0.0
    assert passes_script("import sys\nsys.exit(0)", "assert False") == 0.0  # leaving early is not passing
    assert passes_script("import os\nprint('\\x00reached')\nos._exit(1)", "assert False") == 0.0


def test_by_unittest():
    script = (
        "import unittest\nclass TestAdd(unittest.TestCase):\n    def test_sum(self):\n"
        "        self.assertEqual(add(1, 2), 3)\n"
    )
    assert passes_script(ADD, script) == 1.0
    assert passes_script("def add(a, b): return 0", script) == 0.0


def test_a_program_that_never_ends_does_not_pass():
    assert passes("while True: pass", [Case("", "")], SandboxLimits(seconds=0.5)) == 0.0


def test_the_program_in_a_response():
    assert extract_program("First\n```python\nx = 1\n```\nbetter\n```py\nx = 2\n```") == "x = 2\n"
    assert extract_program("```\nprint(1)\n```") == "print(1)\n"
    assert extract_program("print(1)") == "print(1)"
    assert extract_program("I would rather not.") == ""
    assert extract_program("```python\n    return 2\n```", "def f():") == "def f():\n    return 2\n"
    assert extract_program("```python\ndef f():\n    return 2\n```", "def f():") == "def f():\n    return 2\n"


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_tests_plain_and_packed():
    cases = [
        {"input": "1\n2", "output": "3", "testtype": "functional"},
        {"input": "", "output": "x", "testtype": "stdin"},
    ]
    wanted = [Case("1\n2", "3", "add"), Case("", "x")]
    assert read_tests(json.dumps(cases), "add") == wanted
    assert read_tests(packed(json.dumps(cases)), "add") == wanted


class Evil:
    def __reduce__(self):
        return (os.system, ("touch /tmp/odar-evil-pickle",))


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_age_are_read(protocol):
    text = json.dumps([{"input": "1\u00e9\n", "output": "2", "testtype": "stdin"}] * 40)
    data = base64.b64encode(zlib.compress(pickle.dumps(text, protocol))).decode()
    assert read_tests(data)[0].input == "1\u00e9\n"


@pytest.mark.parametrize("thing", [b"bytes", 7, ["a", "b"], ("a",), {"a": 1}, None], ids=repr)
def test_a_pickle_of_anything_else_is_refused(thing):
    with pytest.raises(InputError, match="cannot be read"):
        read_tests(packed(thing))


def test_a_hostile_pickle_runs_nothing(tmp_path):
    with pytest.raises(InputError, match="REDUCE"):
        read_tests(packed(Evil()))
    assert not Path("/tmp/odar-evil-pickle").exists()
    with pytest.raises(InputError, match="cannot be read"):
        read_tests("not base 64 at all!")


def test_a_result_that_is_no_json_is_wrong():
    nan = "def add(a, b):\n    import sys\n    sys.stdout.write('\\x00}')\n    sys.stdout.flush()\n    import os\n    os._exit(0)"
    assert passes(nan, [Case("1\n2", "3", "add")]) == 0.0


def test_words_are_compared_as_numbers_only_where_both_are():
    assert passes("print('1e3')", [Case("", "1000")]) == 1.0
    assert passes("print('one')", [Case("", "1")]) == 0.0


def test_no_program_passes_no_script():
    assert passes_script("  \n", "pass") == 0.0
