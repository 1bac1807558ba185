"""Errors of model servers: from an HTTP status, from an error inside a response, or from a failed connection.

API keys are redacted from everything in an error. Its message is one line; the redacted body of the response is
its `body`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from odar.errors import ProviderError, ProviderUnreachable, one_line
from odar.formats import load_json

E = TypeVar("E", bound=ProviderError)
MAX_ERROR_BYTES = 64 * 2**10
"""Largest error that is read, or kept as the body of a `ProviderError`; of a larger one, only its message is."""
BODY_CHARS = 8_000
"""Length to which the body of an error is cut."""
_MESSAGE_CHARS = 200
_SHORTEST_SECRET = 5
"""Shorter values are placeholders such as "none"; redacting them would garble messages."""
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
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
_REMEDIES = {
    402: "check the account's credit",
    404: "check base_url and the model name",
    **dict.fromkeys(range(300, 400), "redirects are not followed, check base_url"),
}
_OUT_OF_QUOTA = "insufficient_quota"
"""A code that comes with a retryable status although a retry cannot succeed."""
_PROXY_TIMEOUTS = frozenset({502, 504, 524})
"""Statuses of a proxy: the model may have answered, and billed. Other errors cost nothing."""


@dataclass(frozen=True, slots=True)
class ErrorFactory:
    """Creates the errors of one provider.

    >>> errors = ErrorFactory("openai", key_hint="set OPENAI_API_KEY", secrets=("sk-secret",))
    >>> error = errors.from_status(401, {}, '{"error": {"message": "bad key sk-secret", "code": "key"}}')
    >>> print(error)
    openai: HTTP 401 (key): bad key [redacted]; set OPENAI_API_KEY
    >>> error.retryable
    False
    """

    provider: str
    key_hint: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def redact(self, text: str) -> str:
        """The text with this provider's secrets replaced."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "[redacted]")
        return text

    def from_status(self, status: int, headers: Mapping[str, str], body: str) -> ProviderError:
        """The error for an HTTP status that is not a success."""
        payload = None
        with suppress(ValueError):
            payload = load_json(body)
        return self._from_body(f"HTTP {status}", payload, body, status, retry_after(headers))

    def from_payload(self, payload: Mapping[str, Any], *, quote: bool = True) -> ProviderError:
        """The error inside a response with a success status, such as one in the middle of a stream."""
        body = json.dumps(payload, ensure_ascii=False) if quote else ""
        return self._from_body("error in the answer", payload, body)

    def create(
        self, kind: type[E], reason: str, *, body: str | None = None, retryable: bool = True, **more: Any
    ) -> E:
        """An error without a status: no connection, an interrupted one, or an invalid response."""
        return kind(
            f"{self.provider}: {_short(self.redact(reason))}",
            provider=self.provider,
            retryable=retryable,
            body=None if body is None else self.redact(body)[:BODY_CHARS],
            **more,
        )

    def not_sent(self, reason: str, *, retryable: bool = True, local: bool = False) -> ProviderUnreachable:
        """The error for a request that could not be sent."""
        return self.create(
            ProviderUnreachable, reason, retryable=retryable, may_be_billed=False, reached=False, local=local
        )

    def _from_body(
        self, what: str, payload: Any, body: str, sent_status: int | None = None, wait: float | None = None
    ) -> ProviderError:
        code, text = (self.redact(part[:MAX_ERROR_BYTES]) for part in error_of(payload))
        status = sent_status
        if status is None:
            # OpenRouter's code is the status of its upstream provider.
            is_status = len(code) == 3 and code.isdecimal() and code[0] in "45"
            status = int(code) if is_status else _STATUS_OF_TYPE.get(code)
        message = f"{self.provider}: {what}"
        if code:
            message += f" ({_short(code)})"
        if text:
            message += f": {_short(text)}"
        if status in (401, 403):
            message += f"; {self.key_hint or 'check the API key'}"
        elif status in _REMEDIES:
            message += f"; {_REMEDIES[status]}"
        elif wait is not None:
            message += f"; retry after {wait:g} s"
        return ProviderError(
            message,
            provider=self.provider,
            status=status,
            code=code or None,
            retry_after=wait,
            retryable=status in _RETRYABLE_STATUSES and code != _OUT_OF_QUOTA,
            may_be_billed=sent_status is None or sent_status in _PROXY_TIMEOUTS,
            body=self.redact(body)[:BODY_CHARS],
        )


def error_of(payload: Any) -> tuple[str, str]:
    """The code and the message of an error, in any of the formats that servers use; empty if missing.

    >>> error_of({"error": {"message": "no such model", "code": None, "type": "not_found_error"}})
    ('not_found_error', 'no such model')
    >>> error_of({"error": "model not loaded"}), error_of({"detail": "Not Found"}), error_of(None)
    (('', 'model not loaded'), ('', 'Not Found'), ('', ''))
    """
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if not isinstance(error, dict):
        return "", error if isinstance(error, str) else ""
    code = error.get("code") or error.get("type")
    text = error.get("message") or error.get("detail")
    return (str(code) if isinstance(code, str | int) else ""), (text if isinstance(text, str) else "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of `retry-after-ms` or `retry-after`; None if missing or a date.

    >>> retry_after({"retry-after": "1.5"}), retry_after({"retry-after-ms": "250"}), retry_after({})
    (1.5, 0.25, None)
    """
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) / unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    return None


def _short(text: str) -> str:
    return one_line(text[: 4 * _MESSAGE_CHARS], _MESSAGE_CHARS)
