"""The contents of a log line, and that no text can split it."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import ProviderError, ProviderUnreachable, summary_of
from odar.serving.errors import ApiError
from odar.serving.logs import as_json, as_text, log_record_line, request_line
from odar.types import Query
from support.entries import entry

WORDS = "xyzzy plugh 4711"
HEAD = {"time": 0.0, "level": "info", "logger": "odar", "message": "ready"}


def failure(error: BaseException | None, message: str = "it failed") -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("odar.x", logging.ERROR, "x.py", 1, message, (), info)


@given(st.text(), st.text(), st.text())
def test_a_log_record_is_always_one_line(message, name, model):
    line = {**HEAD, "message": message, "name": name, "model": model}
    (text,) = as_text(line).splitlines() or [""]
    assert text.isprintable()
    if name.isascii() and name.isalnum():
        assert f" name={name} " in text
    (parsed,) = map(json.loads, as_json(line).rstrip("\n").split("\n"))
    assert parsed == line | {"time": "1970-01-01T00:00:00.000Z"}


def test_text_log_lines_cannot_be_forged():
    asked = entry(
        model='m"\n2026 INFO forged',
        http_status=502,
        error="x",
        error_summary="ProviderError: two words",
        query=Query("q"),
    )
    (line,) = as_text(request_line(asked)).splitlines()
    assert ' model="m\\"\\n2026 INFO forged" ' in line
    assert " ERROR odar.request request request_id=" in line
    assert line.endswith('error="ProviderError: two words"')


def test_unknown_values_are_omitted_in_text_and_null_in_json():
    line = request_line(entry(stream=True))
    assert " key_id=" not in as_text(line)
    assert " stream=true " in as_text(line)
    assert json.loads(as_json(line))["key_id"] is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ApiError(400, f"n: {WORDS} is not a number", "invalid_value", "n"), "HTTP 400 (invalid_value)"),
        (RuntimeError(WORDS), "RuntimeError"),
        (ProviderError(f"f: HTTP 502: cannot answer {WORDS}", provider="f", status=502), "f: HTTP 502"),
        (ProviderUnreachable(f"f: no route to {WORDS}", provider="f"), "f: unreachable"),
    ],
)
def test_a_line_has_kind_status_and_code_of_an_error_without_its_message(error, said):
    asked = entry(http_status=502, error=str(error), error_summary=summary_of(error), query=Query(WORDS))
    assert request_line(asked)["error"] == said
    assert WORDS not in as_json(request_line(asked))


def test_only_the_first_line_of_a_message_is_logged():
    assert log_record_line(failure(None, f"failed\n{WORDS}"))["message"] == "failed"
