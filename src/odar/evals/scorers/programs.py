"""Code: pass@1 by running a model's program against tests, in the sandbox only."""

from __future__ import annotations

import ast
import json
import pickletools
import re
import zlib
from base64 import b64decode
from collections.abc import Sequence
from typing import NamedTuple

from odar.errors import InputError
from odar.evals.scorers.sandbox import SandboxLimits, run_python

_FENCE = re.compile(r"```[ \t]*(?:python|python3|py)?[ \t]*\r?\n(.*?)```", re.DOTALL | re.IGNORECASE)
_LARGEST = 256 * 1024**2
_HARMLESS = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}
"""What a pickled string has around it."""
_CALL = """\
import json, sys
from program import *
import program
_case = json.load(sys.stdin)
_owner = program.Solution() if hasattr(program, "Solution") else program
_function = getattr(_owner, _case["name"])
_result = _function(*_case["arguments"])
print("\\x00" + json.dumps(_result))
"""


class Test(NamedTuple):
    """One test: what goes in, what must come out; by standard input, or as arguments of a function."""

    input: str
    output: str
    function: str = ""


def passes(program: str, tests: Sequence[Test], limits: SandboxLimits | None = None) -> float:
    """1 where a program passes every test; it stops at the first that fails.

    A test by standard input compares the output line by line, trailing white space aside, and then word by word, as
    numbers where both are numbers. A test of a function calls it, or the method of that name of a class `Solution`,
    with one JSON argument a line, and compares the JSON result (tuples are lists). Without program or tests: 0.

    >>> passes("print(int(input()) + 1)", [Test("1", "2"), Test("41", "42")])
    1.0
    """
    return float(bool(program.strip() and tests) and all(_passes(program, test, limits) for test in tests))


def passes_script(program: str, script: str) -> float:
    """1 where a script of assertions or unittest cases runs through after the program (HumanEval, BigCodeBench).

    The script is given in full: the calls that start it are part of it. A program that ends the process early, even
    with status 0, has not passed: the script must reach its end.

    >>> passes_script("def double(x): return 2 * x", "assert double(2) == 4")
    1.0
    """
    if not program.strip():
        return 0.0
    ending = '\nprint("\\x00reached")\n'
    tests = f"{script}\n{_UNITTEST if 'unittest' in script else ''}{ending}"
    files = {"program.py": program, "main.py": f"from program import *\nimport program\n{tests}"}
    outcome = run_python(files, "main.py")
    return float(outcome.ok and outcome.stdout.endswith("\x00reached\n"))


_UNITTEST = """
import unittest as _unittest
_cases = [_unittest.defaultTestLoader.loadTestsFromTestCase(c) for c in list(globals().values())
          if isinstance(c, type) and issubclass(c, _unittest.TestCase)]
_result = _unittest.TestResult()
_unittest.TestSuite(_cases).run(_result)
assert _result.testsRun and _result.wasSuccessful(), _result
"""


def extract_program(response: str, starter: str = "") -> str:
    """The program in a response: its last fenced block, else the whole of it where that is Python.

    `starter` is a beginning that the model was to complete: it is put before a program that does not repeat it.

    >>> extract_program("Sure:\\n```python\\nprint(1)\\n```\\nDone.")
    'print(1)\\n'
    >>> extract_program("I cannot do that.")
    ''
    """
    blocks = [block for block in _FENCE.findall(response) if block.strip()]
    program = blocks[-1] if blocks else response
    if not blocks and not _parses(starter + "\n" + program):
        return ""
    return program if not starter or program.startswith(starter.rstrip()) else f"{starter}\n{program}"


def read_tests(text: str, function: str = "") -> list[Test]:
    """Tests as LiveCodeBench stores them: JSON, or JSON that was pickled, compressed and written in base 64.

    Such a pickle is read for the one string in it, and never unpickled: that could run code.

    Raises:
        InputError: neither.
    """
    try:
        try:
            cases = json.loads(text)
        except ValueError:
            packed = zlib.decompressobj().decompress(b64decode(text), _LARGEST)
            cases = json.loads(_pickled_string(packed))
        return [
            Test(case["input"], case["output"], function * (case["testtype"] == "functional")) for case in cases
        ]
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise InputError(f"tests cannot be read: {type(error).__name__}: {error}") from None


def _pickled_string(data: bytes) -> str:
    """The string that was pickled, where that is all there is."""
    steps = [(step.name, value) for step, value, _ in pickletools.genops(data)]
    strings = [str(value) for name, value in steps if "UNICODE" in name]
    other = {name for name, _ in steps if "UNICODE" not in name} - _HARMLESS
    if other or len(strings) != 1:
        raise ValueError(f"a pickle of something other than a string ({', '.join(sorted(other)) or 'several'})")
    return strings[0]


def _passes(program: str, test: Test, limits: SandboxLimits | None) -> bool:
    if not test.function:
        outcome = run_python({"main.py": program}, "main.py", test.input, limits)
        return outcome.ok and _same_output(test.output, outcome.stdout)
    arguments = [json.loads(line) for line in test.input.split("\n") if line.strip()]
    case = json.dumps({"name": test.function, "arguments": arguments})
    outcome = run_python({"program.py": program, "main.py": _CALL}, "main.py", case, limits)
    if not outcome.ok or "\x00" not in outcome.stdout:
        return False
    try:
        return bool(json.loads(outcome.stdout.rpartition("\x00")[2]) == json.loads(test.output))
    except ValueError:
        return False


def _same_output(wanted: str, given: str) -> bool:
    first, second = ([line.split() for line in text.strip().split("\n")] for text in (wanted, given))
    return len(first) == len(second) and all(
        len(a) == len(b) and all(map(_same_word, a, b)) for a, b in zip(first, second, strict=True)
    )


def _same_word(a: str, b: str) -> bool:
    if a == b:
        return True
    try:
        return float(a) == float(b)
    except ValueError:
        return False


def _parses(text: str) -> bool:
    try:
        return bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
