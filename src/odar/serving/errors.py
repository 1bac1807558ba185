"""ODAR's errors as HTTP statuses, and as bodies in the format that the client's SDK expects."""

from __future__ import annotations

import dataclasses
import logging
import math
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from odar.errors import (
    AllAgentsFailed,
    BudgetExceeded,
    DeadlineExceeded,
    InputError,
    KeyRefused,
    OdarError,
    ProviderError,
    ProviderTimeout,
    one_line,
)
from odar.formats import load_json
from odar.serving.budgets import RateLimit
from odar.serving.logs import CURRENT_REQUEST

LOG = logging.getLogger("odar.serving")
STATUSES = {
    400: "A field is missing or invalid; `param` names it.",
    401: "No key, or a wrong one.",
    403: "The key does not allow this model or path, or the request is not from this machine and no keys exist.",
    404: "No such model, trace or address.",
    408: "The request took too long to arrive.",
    413: "The body is larger than gateway.max_body_mb.",
    422: "The limits in `odar` do not allow one call.",
    429: "Too many requests here or at the provider, or the key's rate or budget is used up; see retry-after.",
    502: "The provider disconnected, or its answer is invalid.",
    503: "Shutdown, an open circuit breaker (see retry-after), or an error of settings or store (see the log).",
    504: "The provider timed out.",
}
"""What an error means. A provider's own error keeps its status; 499 is in metrics and traces: the client left."""
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(eq=False)
class ApiError(Exception):
    """The error response to a request."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None
    upstream: dict[str, Any] = field(default_factory=dict)
    """The upstream's own error object, if it sent one."""
    more_headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def __str__(self) -> str:
        return self.message

    @property
    def type(self) -> str:
        default = "invalid_request_error" if self.status < 500 else "api_error"
        return _ERROR_TYPES.get(self.status, default)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the response: `retry-after` if a time is known, and further ones."""
        if self.retry_after is None:
            return self.more_headers
        return [(b"retry-after", str(max(1, math.ceil(self.retry_after))).encode()), *self.more_headers]


SHUTDOWN_TIMEOUT = ApiError(503, "the gateway shut down before the answer was ready", "shut_down", retry_after=1.0)
"""Graceful shutdown timed out."""


def bad_field(param: str, message: str) -> ApiError:
    """A 400 error that names the field."""
    return ApiError(400, one_line(f"{param}: {message}"), "invalid_value", param)


def api_error_of(error: BaseException) -> ApiError:
    """The error response for an exception; an unexpected one is logged and becomes a 500 without details."""
    match error:
        case ApiError():
            return error
        case AllAgentsFailed():
            return _all_agents_failed(error)
        case ProviderError():
            return _provider_failed(error)
        case DeadlineExceeded():
            return ApiError(504, one_line(error), "deadline")
        case BudgetExceeded():
            return ApiError(422, one_line(error), "budget_exceeded")
        case InputError():
            return ApiError(400, one_line(error), "invalid_value", "messages")
        case KeyRefused():
            headers = rate_headers(error.rates)
            return ApiError(429, str(error), "key_limit", retry_after=error.retry_after, more_headers=headers)
        case OdarError():
            return operator_error(error)
    LOG.error("unexpected error", exc_info=error)
    return ApiError(500, "internal error; the server's log has the details", "internal_error")


def rate_headers(rates: Iterable[RateLimit]) -> list[tuple[bytes, bytes]]:
    """A key's limits per minute as the headers of OpenAI's API.

    >>> rate_headers([("requests", 60, 59)])[2]
    (b'x-ratelimit-reset-requests', b'1.000s')
    """
    headers = []
    for unit, per_minute, remaining in rates:
        capacity = max(1.0, per_minute)
        until_full_s = max(0.0, capacity - remaining) * 60 / per_minute
        headers += [
            (b"x-ratelimit-limit-%b" % unit.encode(), b"%d" % capacity),
            (b"x-ratelimit-remaining-%b" % unit.encode(), b"%d" % remaining),
            (b"x-ratelimit-reset-%b" % unit.encode(), b"%.3fs" % until_full_s),
        ]
    return headers


def operator_error(error: OdarError) -> ApiError:
    """Log an error that only the operator can fix; return a 503 with a reference to the log."""
    reference = (CURRENT_REQUEST.get() or {}).get("trace_id") or uuid.uuid4().hex
    LOG.error("reference %s: %s: %s", reference, type(error).__name__, one_line(error))
    message = f"the gateway cannot answer this request; tell its operator the reference {reference}"
    return ApiError(503, message, "unavailable")


def openai_body(api_error: ApiError) -> dict[str, Any]:
    """An error in OpenAI's format, with the upstream's own fields."""
    error = {"message": api_error.message, "type": api_error.type, "param": api_error.param, "code": api_error.code}
    return {"error": error | {name: value for name, value in api_error.upstream.items() if value is not None}}


def anthropic_body(api_error: ApiError) -> dict[str, Any]:
    """An error in Anthropic's format, with the upstream's own fields."""
    error = {"type": api_error.type, "message": api_error.message} | api_error.upstream
    error = {name: value for name, value in error.items() if value is not None}
    if error["type"] not in _ERROR_TYPES.values():
        error["type"] = api_error.type
    return {"type": "error", "error": error}


def _all_agents_failed(error: AllAgentsFailed) -> ApiError:
    """The response if all agents failed: the first error that has a status, else 504 or 502."""
    causes = [cause for cause in error.causes if isinstance(cause, ProviderError)]
    if causes and all(isinstance(cause, ProviderTimeout) for cause in causes):
        return ApiError(504, one_line(error), "timeout")
    first = next((cause for cause in causes if cause.status is not None), None)
    if first is None:
        return ApiError(502, one_line(error), "upstream_failed", retry_after=error.retry_after)
    api_error = _provider_failed(first)
    upstream = {name: value for name, value in api_error.upstream.items() if name != "message"}
    return dataclasses.replace(api_error, message=one_line(error), upstream=upstream)


def _provider_failed(error: ProviderError) -> ApiError:
    if isinstance(error, ProviderTimeout):
        return ApiError(504, one_line(error), "timeout", retry_after=error.retry_after)
    # Any other status is the upstream's fault, not the client's: a redirect, or an invalid answer.
    status = error.status if error.status is not None and 400 <= error.status <= 599 else 502
    code = error.code or ("upstream_failed" if status == 502 else None)
    upstream = _upstream_error(error.body, error.provider)
    return ApiError(status, one_line(error), code, retry_after=error.retry_after, upstream=upstream)


def _upstream_error(body: str | None, provider: str) -> dict[str, Any]:
    """The error object in an upstream's body; any other body becomes the field `upstream`."""
    if not body:
        return {"provider": provider} if provider else {}
    try:
        payload = load_json(body)
    except ValueError:
        return {"provider": provider, "upstream": body}
    error = payload.get("error") if isinstance(payload, dict) else None
    if isinstance(error, dict):
        return {**error, "provider": provider}
    return {"provider": provider, "upstream": payload}
