"""Maps a provider's failure to one of ODAR's errors: pure functions of status, headers and body.

Keys are removed from everything that an upstream sent before it is used. Messages are one line and do not quote
prompts; the redacted body of the upstream is available as `body`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from odar.errors import ProviderError, one_line
from odar.formats import load_json

E = TypeVar("E", bound=ProviderError)
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
BODY_CHARS = 8_000
"""How much of an upstream error body is kept."""

_MESSAGE_CHARS = 200
_QUOTE_CHARS = 24
"""This many characters in a row of a prompt count as a quotation of it."""
_SHORTEST_SECRET = 5
"""Shorter values are placeholders such as "none"; redacting them would garble messages."""
_REDACTED = "[redacted]"

_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Status of an error inside a 200 response, whose status line was sent before the error occurred."""

_NEVER_LATER = frozenset({"insufficient_quota"})
"""Codes that come with a retryable status although waiting does not help."""
_GAVE_UP = frozenset({502, 504, 524})
"""Statuses of a proxy that stopped waiting: the model may have answered, and billed. Other errors cost nothing."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Makes the errors of one provider.

    >>> failures = Failures("openai", key_hint="set OPENAI_API_KEY", secrets=("sk-secret",))
    >>> error = failures.from_status(401, {}, '{"error": {"message": "bad key sk-secret", "code": "key"}}')
    >>> print(error)
    openai: HTTP 401 (key): bad key [redacted]; set OPENAI_API_KEY
    >>> error.retryable
    False
    """

    provider: str
    key_hint: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def redact(self, text: str) -> str:
        """The text without any of this provider's secrets."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, _REDACTED)
        return text

    def from_status(
        self, status: int, headers: Mapping[str, str], body: str, prompts: Sequence[str] = ()
    ) -> ProviderError:
        """The error behind an HTTP status that is not a success."""
        refusal = self._refusal(f"HTTP {status}", status, body, prompts, retry_after(headers))
        refusal.may_be_billed = status in _GAVE_UP
        return refusal

    def from_payload(self, payload: Mapping[str, Any], prompts: Sequence[str] = ()) -> ProviderError:
        """Return the error inside a response with a success status, such as one in the middle of a stream."""
        return self._refusal("error in the answer", None, json.dumps(payload, ensure_ascii=False), prompts)

    def error(self, kind: type[E], why: str, *, body: str | None = None, retryable: bool = True, **facts: Any) -> E:
        """An error without a status: no connection, one that broke off, or an answer that is not the protocol."""
        return kind(
            f"{self.provider}: {_short(self.redact(why))}",
            provider=self.provider,
            retryable=retryable,
            body=None if body is None else self.redact(body)[:BODY_CHARS],
            **facts,
        )

    def _refusal(
        self, what: str, status: int | None, body: str, prompts: Sequence[str], wait: float | None = None
    ) -> ProviderError:
        body = self.redact(body)
        code, said = explain(body)
        if status is None and code is not None:
            # OpenRouter puts the status of the provider behind it there.
            own = int(code) if len(code) == 3 and code.isdecimal() and code[0] in "45" else None
            status = _STATUS_OF_TYPE.get(code, own)
        if quotes(said, prompts):
            said = "(upstream message withheld: it quotes the prompt)"
        message = f"{self.provider}: {what}{f' ({_short(code)})' if code else ''}"
        message += f": {_short(said)}" if said else ""
        remedy = self._remedy(status, wait)
        return ProviderError(
            f"{message}; {remedy}" if remedy else message,
            provider=self.provider,
            status=status,
            code=code,
            retry_after=wait,
            retryable=status in RETRYABLE_STATUSES and code not in _NEVER_LATER,
            body=body[:BODY_CHARS],
        )

    def _remedy(self, status: int | None, wait: float | None) -> str:
        if status in (401, 403):
            return self.key_hint or "check the API key"
        if status == 402:
            return "check the account's credit"
        if status == 404:
            return "check base_url and the model name"
        if status is not None and 300 <= status < 400:
            return "redirects are not followed, check base_url"
        return "" if wait is None else f"retry after {wait:g} s"


def explain(body: str) -> tuple[str | None, str]:
    """Return the code and the message of an error body, in any of the formats that servers use.

    >>> explain('{"error": {"message": "no such model", "code": null, "type": "not_found_error"}}')
    ('not_found_error', 'no such model')
    >>> explain('{"error": "model not loaded"}')
    (None, 'model not loaded')
    >>> explain('{"detail": "Not Found"}')
    (None, 'Not Found')
    >>> explain("<html>Bad gateway</html>")
    (None, '')
    """
    try:
        payload = load_json(body)
    except ValueError:
        return None, ""
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if not isinstance(error, dict):
        return None, error if isinstance(error, str) else ""
    code = error.get("code") or error.get("type")
    said = error.get("message") or error.get("detail")
    return (str(code) if isinstance(code, str | int) else None), (said if isinstance(said, str) else "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after`; None for a date, which no model server sends.

    >>> retry_after({"retry-after": "1.5"}), retry_after({"retry-after-ms": "250"}), retry_after({})
    (1.5, 0.25, None)
    """
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) / unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    return None


def quotes(message: str, prompts: Iterable[str]) -> bool:
    """Whether a message repeats part of a prompt.

    >>> quotes("invalid input: 'What is the capital of France?'", ["What is the capital of France?"])
    True
    >>> quotes("the model `gpt-9` does not exist", ["What is the capital of France?"])
    False
    """
    start = message[: 4 * _MESSAGE_CHARS]
    windows = {start[i : i + _QUOTE_CHARS] for i in range(len(start) - _QUOTE_CHARS + 1)}
    return any(
        (_SHORTEST_SECRET <= len(prompt) <= _QUOTE_CHARS and prompt in start) or any(w in prompt for w in windows)
        for prompt in prompts
    )


def _short(text: str) -> str:
    return one_line(text[: 4 * _MESSAGE_CHARS], _MESSAGE_CHARS)
