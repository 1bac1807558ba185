from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import (
    AllAgentsFailed,
    BudgetExceeded,
    DeadlineExceeded,
    InputError,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    ProviderUnreachable,
    SettingsError,
    StoreError,
    UnknownName,
    UsageError,
    WeightsError,
)
from odar.serving.errors import ApiError, anthropic_body, api_error_of, bad_field, openai_body

OWN = json.dumps({"error": {"message": "too long", "type": "context_error", "code": "c42", "param": "messages"}})


def all_failed(*causes: Exception) -> AllAgentsFailed:
    return AllAgentsFailed([str(cause) for cause in causes], causes)


ERRORS = [
    (InputError("empty"), 400, "invalid_value", "messages"),
    (UsageError("no"), 503, "unavailable", None),
    (UnknownName("provider", "x", ["y"]), 503, "unavailable", None),
    (SettingsError("providers.x: /etc/key cannot be read"), 503, "unavailable", None),
    (BudgetExceeded("the next call would pass max_calls = 1"), 422, "budget_exceeded", None),
    (DeadlineExceeded("3 s have passed"), 504, "deadline", None),
    (BudgetExceeded("the price of deadline-7b is unknown"), 422, "budget_exceeded", None),
    (StoreError("disk full"), 503, "unavailable", None),
    (WeightsError("not there"), 503, "unavailable", None),
    (ProviderTimeout("late"), 504, "timeout", None),
    (ProviderUnreachable("closed"), 502, "upstream_failed", None),
    (ProviderProtocolError("garbage", status=200), 502, "upstream_failed", None),
    (ProviderError("moved", status=302), 502, "upstream_failed", None),
    (ProviderError("slow down", status=429), 429, None, None),
    (ProviderError("no key", status=401, code="bad_key"), 401, "bad_key", None),
    (ProviderError("broken", status=500), 500, None, None),
    (all_failed(ProviderTimeout("late"), ProviderTimeout("late too")), 504, "timeout", None),
    (all_failed(ProviderTimeout("late"), ProviderUnreachable("closed")), 502, "upstream_failed", None),
    (all_failed(ProviderUnreachable("closed"), ProviderError("busy", status=429)), 429, None, None),
    (all_failed(StoreError("odd")), 502, "upstream_failed", None),
    (ApiError(418, "a teapot", "teapot"), 418, "teapot", None),
    (ValueError("sk-secret in a bug"), 500, "internal_error", None),
    (RuntimeError("sk-secret in a bug"), 500, "internal_error", None),
]


@pytest.mark.parametrize(
    ("error", "status", "code", "param"), ERRORS, ids=[f"{type(e[0]).__name__}-{e[1]}-{e[2]}" for e in ERRORS]
)
def test_every_error_has_its_status_and_a_body_in_both_formats(error, status, code, param):
    refusal = api_error_of(error)
    assert (refusal.status, refusal.code, refusal.param) == (status, code, param)
    for body in (openai_body(refusal), anthropic_body(refusal)):
        text = json.dumps(body)
        assert body["error"]["message"] and body["error"]["type"]
        assert "sk-secret" not in text  # what nobody foresaw gives nothing away
    assert set(openai_body(refusal)["error"]) >= {"message", "type", "param", "code"}
    assert anthropic_body(refusal)["type"] == "error"


def test_a_message_is_one_line():
    assert api_error_of(InputError("one\n  two\tthree")).message == "one two three"
    assert str(bad_field("n", "is 0")) == "n: is 0"


def test_an_upstream_error_message_is_passed_on():
    refusal = api_error_of(ProviderError("HTTP 400", status=400, body=OWN, provider="up"))
    assert openai_body(refusal)["error"] == {
        "message": "too long",
        "type": "context_error",
        "code": "c42",
        "param": "messages",
        "provider": "up",
    }
    error = anthropic_body(refusal)["error"]
    assert error["type"] == "invalid_request_error"  # Anthropic's clients know only their own types
    assert error["message"] == "too long"


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (None, {"provider": "up"}),
        ("", {"provider": "up"}),
        ("<html>", {"provider": "up", "upstream": "<html>"}),
        ("[1, 2]", {"provider": "up", "upstream": [1, 2]}),
        ('{"detail": "no"}', {"provider": "up", "upstream": {"detail": "no"}}),
        ('{"error": "no"}', {"provider": "up", "upstream": {"error": "no"}}),
        ('{"error": {"code": null, "message": "m"}}', {"provider": "up", "message": "m"}),
        ("[" * 3000, {"provider": "up", "upstream": "[" * 3000}),
    ],
)
def test_a_body_of_another_format_is_kept(body, kept):
    refusal = api_error_of(ProviderError("HTTP 500", status=500, body=body, provider="up"))
    error = openai_body(refusal)["error"]
    assert {name: error[name] for name in kept} == kept


def test_the_first_upstream_status_counts_and_the_message_names_all_causes():
    refusal = api_error_of(
        all_failed(
            ProviderUnreachable("closed port", provider="a"),
            ProviderError("busy", status=429, body=OWN, provider="b", retry_after=7.2),
        )
    )
    error = openai_body(refusal)["error"]
    assert "closed port" in error["message"] and "busy" in error["message"]
    assert (refusal.status, refusal.headers) == (429, [(b"retry-after", b"8")])
    assert (error["provider"], error["code"]) == ("b", "c42")


@given(st.floats(0, 1e9))
def test_retry_after_is_rounded_up_to_whole_seconds(seconds):
    ((name, value),) = ApiError(429, "no", retry_after=seconds).headers
    assert name == b"retry-after"
    assert int(value) >= max(1, seconds)
    assert int(value) - seconds < 1 or int(value) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.one_of(
        st.text(max_size=40), json_values.map(json.dumps), json_values.map(lambda v: json.dumps({"error": v}))
    ),
    st.one_of(st.none(), st.integers(100, 599)),
)
def test_any_upstream_error_becomes_a_valid_error_body(body, status):
    refusal = api_error_of(ProviderError("no", status=status, body=body, provider="up"))
    assert 400 <= refusal.status <= 599
    for shape in (openai_body, anthropic_body):
        error = json.loads(json.dumps(shape(refusal)))["error"]
        assert {"type", "message"} <= set(error)


@pytest.mark.parametrize(
    "error", [SettingsError("/etc/key is open to all"), StoreError("store /var/odar.db: full")]
)
def test_a_configuration_error_is_logged_and_only_referenced_to_the_client(error, caplog):
    told = api_error_of(error)
    assert str(error) not in told.message
    reference = told.message.rpartition(" ")[2]
    assert len(reference) == 32
    assert f"{reference}: {type(error).__name__}: {error}" in caplog.text
