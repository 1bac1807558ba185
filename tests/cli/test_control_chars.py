"""Text written by a model must not send control sequences to the user's terminal."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.cli.terminal import strip_control_chars
from odar.config import load_settings
from odar.traces.database import Database
from odar.traces.writer import make_row, write_rows
from support.scripted import completion
from support.traces import make_record

TITLE, CLIPBOARD, CLEAR, EIGHT_BIT = "\x1b]0;pwned\x07", "\x1b]52;c;cHduZWQ=\x07", "\x1b[2J\x1b[H", "\x9b2J"
HOSTILE = f"4{TITLE}{CLIPBOARD}{CLEAR}{EIGHT_BIT}\rrm -rf"


def control_chars_in(text: str) -> set[str]:
    """Return the control characters except newline, tab and ODAR's own dimming sequences."""
    plain = text.replace("\x1b[2m", "").replace("\x1b[0m", "")
    return {c for c in plain if (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0) and c not in "\n\t"}


@given(st.text())
def test_control_characters_are_removed_and_other_text_is_unchanged(text):
    shown = strip_control_chars(text)
    assert control_chars_in(shown) == set() and "\x1b" not in shown
    if not control_chars_in(text) and "\x1b" not in text:
        assert shown == text


@given(st.text(), st.integers(0, 50))
def test_stripping_parts_equals_stripping_the_whole(text, cut):
    assert strip_control_chars(text[:cut]) + strip_control_chars(text[cut:]) == strip_control_chars(text)


def test_output_is_stripped_on_a_terminal_and_unchanged_in_a_pipe(odar, provider, monkeypatch):
    provider.script = lambda request, index: [completion(f"Answer: {HOSTILE.replace(' ', '_')}")] * request.n
    raw = odar("ask", "--path", "hard", "What?").out
    assert "\x1b]0;pwned\x07" in raw
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert control_chars_in(odar("ask", "--path", "hard", "What?").out) == set()


@pytest.mark.parametrize("path", ["simple", "medium", "hard"])
def test_explanations_contain_no_control_characters(odar, provider, path):
    provider.script = lambda request, index: [completion(f"Judgment: CORRECT\nAnswer: {HOSTILE}")] * request.n
    result = odar("ask", "--explain", "--path", path, "What?")
    assert result.code == 0
    assert control_chars_in(result.err) == set()


def test_shown_traces_contain_no_control_characters(odar, tmp_path, monkeypatch):
    monkeypatch.setenv("ODAR_STORE_URL", str(tmp_path / "odar.db"))
    record = make_record(f"What is {CLEAR}?", id="abcd", text=HOSTILE, cue=CLEAR)
    with Database(load_settings("tiny").store) as database, database.write() as connection:
        write_rows(connection, [make_row(record, content=True)])
    shown = odar("traces", "show", "abcd")
    assert (shown.code, "question" in shown.out) == (0, True)
    assert control_chars_in(shown.out) == set()
    assert control_chars_in(odar("traces").out) == set()
