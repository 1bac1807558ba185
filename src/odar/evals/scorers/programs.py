"""Code: pass@1 by running a model's program against tests, in the sandbox only; and SWE-bench predictions.

SWE-bench's tests run in a Docker image per issue, by the official harness and never by ODAR: write predictions, run
`python -m swebench.harness.run_evaluation --predictions_path FILE`, then score with the report it writes.
"""

from __future__ import annotations

import ast
import json
import pickletools
import re
import zlib
from base64 import b64decode
from collections.abc import Iterable, Sequence
from pathlib import Path
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
_FENCED_PATCH = re.compile(r"```(?:diff|patch)[ \t]*\n(.*?)```", re.DOTALL)
_BARE = re.compile(r"^(?:diff --git |--- a/|--- /dev/null).*", re.DOTALL | re.MULTILINE)


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


class Prediction(NamedTuple):
    """A model's patch for an issue."""

    instance_id: str
    model_patch: str


def extract_patch(response: str) -> str:
    """The patch in a response: the last tagged or fenced one, else from the first diff header on; empty where none.

    >>> extract_patch("Here:\\n```diff\\n--- a/x\\n+++ b/x\\n```")
    '--- a/x\\n+++ b/x\\n'
    """
    end = response.rfind("</patch>")
    start = response.rfind("<patch>", 0, max(end, 0))
    fenced = _FENCED_PATCH.findall(response)
    if start != -1:
        return response[start + len("<patch>") : end].strip("\n") + "\n"
    if fenced:
        return str(fenced[-1]).strip("\n") + "\n"
    bare = _BARE.search(response)
    return f"{bare[0].rstrip().removesuffix('```').rstrip()}\n" if bare else ""


def write_predictions(path: Path, model: str, predictions: Iterable[Prediction]) -> int:
    """A predictions file as the harness reads it, one JSON object a line; gives the number of lines."""
    lines = [
        json.dumps({"instance_id": p.instance_id, "model_name_or_path": model, "model_patch": p.model_patch})
        for p in predictions
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


class Report(NamedTuple):
    """What the harness found: which issues were run to an end, and which of them are resolved."""

    submitted: frozenset[str]
    resolved: frozenset[str]

    def passed(self, instance_id: str) -> float:
        """pass@1 of an issue. An empty patch, or one whose run failed, is not resolved.

        Raises:
            InputError: the harness was not given this issue.
        """
        if instance_id not in self.submitted:
            raise InputError(f"the SWE-bench report says nothing about {instance_id!r}: run the harness on it too")
        return float(instance_id in self.resolved)


def read_report(path: Path) -> Report:
    """The report that the harness leaves as MODEL.RUN_ID.json.

    Raises:
        InputError: it is missing or not such a report.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        return Report(frozenset(body["submitted_ids"]), frozenset(body["resolved_ids"]))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no report of the SWE-bench harness: {type(error).__name__} {error}") from None
