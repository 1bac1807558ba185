from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import ProviderError, summary_of
from odar.providers.errors import BODY_CHARS, ErrorFactory, error_of, retry_after
from support.requests import KEY

FAILURES = ErrorFactory("up", key_hint="set UP_API_KEY", secrets=(KEY,))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_an_exhausted_quota_is_not_retryable() -> None:
    body = json.dumps({"error": {"message": "no money left", "code": "insufficient_quota"}})
    error = FAILURES.from_status(429, {}, body)
    assert (error.retryable, error.code) == (False, "insufficient_quota")


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(401, "set UP_API_KEY"), (403, "set UP_API_KEY"), (402, "credit"), (404, "base_url"), (302, "base_url")],
)
def test_messages_name_the_remedy(status: int, remedy: str) -> None:
    assert remedy in str(FAILURES.from_status(status, {}, ""))
    assert "check the API key" in str(ErrorFactory("up").from_status(401, {}, ""))


@given(st.text(), st.text(), st.sampled_from([400, 401, 429, 500]))
def test_a_key_echoed_by_the_server_is_redacted(before: str, after: str, status: int) -> None:
    payload = {"error": {"message": before + KEY + after, "code": KEY}}
    for error in (FAILURES.from_status(status, {}, json.dumps(payload)), FAILURES.from_payload(payload)):
        assert_no_key(error)
        assert "\n" not in str(error)


def test_a_key_at_the_end_of_a_truncated_body_is_redacted() -> None:
    body = "x" * (BODY_CHARS - 5) + KEY
    error = FAILURES.from_status(500, {}, body)
    assert error.body is not None
    assert len(error.body) == BODY_CHARS
    assert "sk-" not in error.body


def test_a_placeholder_key_is_not_redacted() -> None:
    assert ErrorFactory("up", secrets=("", "none")).redact("none of this") == "none of this"


def test_secrets_are_not_in_the_repr() -> None:
    assert KEY not in repr(FAILURES)


@given(st.text(), st.integers(400, 599))
def test_messages_are_one_short_line(said: str, status: int) -> None:
    message = str(FAILURES.from_status(status, {}, json.dumps({"error": said * 100})))
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize("code", [None, "What should I ask?", "context_length_exceeded"])
def test_a_summary_holds_nothing_that_the_server_said_except_its_code(code: str | None) -> None:
    body = json.dumps({"error": {"message": "cannot parse input 'What should I ask?' at 7", "code": code}})
    error = FAILURES.from_status(400, {}, body)
    assert "cannot parse" in str(error)
    assert error.body == body
    known = " (context_length_exceeded)" if code == "context_length_exceeded" else ""
    assert summary_of(error) == f"{FAILURES.provider}: HTTP 400{known}"


@pytest.mark.parametrize(
    ("payload", "status", "retryable"),
    [
        ({"error": {"type": "overloaded_error", "message": "busy"}}, 529, True),
        ({"error": {"code": 502, "message": "bad gateway"}}, 502, True),
        ({"error": {"code": "context_length_exceeded", "message": "too long"}}, None, False),
        ({"error": {"type": "invalid_request_error", "message": "no"}}, 400, False),
        ({"error": "out of memory"}, None, False),
    ],
)
def test_errors_in_a_payload_are_classified(
    payload: dict[str, object], status: int | None, retryable: bool
) -> None:
    error = FAILURES.from_payload(payload)
    assert (error.status, error.retryable) == (status, retryable)


@given(json_values)
def test_any_body_can_be_explained(value: object) -> None:
    assert all(isinstance(each, str) for each in error_of(value))


def test_a_body_nested_too_deeply_has_no_explanation() -> None:
    assert str(FAILURES.from_status(400, {}, "[" * 100_000)) == "up: HTTP 400"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "20", "retry-after": "1"}, 0.02),
        *(({"retry-after": value}, None) for value in ("nan", "inf", "-inf", "", "Thu, 99 Nov 2026 12:00:00 GMT")),
    ],
)
def test_retry_after_is_read_in_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


@given(st.text())
def test_retry_after_is_never_negative(value: str) -> None:
    wait = retry_after({"retry-after": value})
    assert wait is None or wait >= 0


def assert_no_key(error: ProviderError) -> None:
    shown = [str(error), repr(error), error.body or "", error.code or ""]
    assert not any(KEY in text for text in shown)
