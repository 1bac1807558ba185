"""Rules for the tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.each import for_each

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))
_MIN_REASON_LENGTH = 10


def skips(file: Path) -> Iterator[tuple[ast.Call, str]]:
    """Yield every call that can skip a test."""
    text = file.read_text()
    if not any(word in text for word in ("skip", "xfail")):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in (
                "pytest.skip",
                "pytest.importorskip",
                "pytest.mark.skip",
                "pytest.mark.skipif",
                "pytest.mark.xfail",
            ):
                yield node, called


@for_each(FILES)
def test_every_skip_has_a_reason(file):
    for call, called in skips(file):
        reasons = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
        reasons += call.args[:1] if called == "pytest.skip" else []
        assert reasons, f"line {call.lineno}: {called} without a reason"
        if isinstance(reasons[0], ast.Constant):
            assert len(str(reasons[0].value)) >= _MIN_REASON_LENGTH, f"line {call.lineno}: {reasons[0].value!r}"


@for_each(FILES)
def test_no_test_is_always_skipped_or_expected_to_fail(file):
    for call, called in skips(file):
        assert called not in ("pytest.mark.skip", "pytest.mark.xfail"), f"line {call.lineno}: fix it or delete it"


@for_each(FILES)
def test_no_test_module_imports_another(file):
    """Shared code belongs in tests/support."""
    found = re.search(r"^\s*(?:from|import) \S*\b(?:test_\w+|conftest)\b", file.read_text(), re.MULTILINE)
    assert found is None, found[0]


def test_the_list_of_shared_fakes_is_complete():
    listed = (TESTS / "support" / "README.md").read_text()
    modules = {file.stem for file in (TESTS / "support").glob("*.py")}
    assert {name for name in modules if not re.search(rf"`{name}[`.]", listed)} == set()
