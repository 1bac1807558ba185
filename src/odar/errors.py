"""The exceptions of ODAR.

    OdarError
    ├── UsageError                   the caller can fix it
    │   ├── SettingsError            a key or value in arguments, ODAR_*, odar.toml or a profile
    │   ├── InputError               the query, an image or a data file
    │   │   └── GradedElsewhere      a benchmark whose own harness grades it: import the results
    │   └── UnknownName              a model, provider, rule or estimator that is not registered
    ├── ProviderError                the model's side failed: status, code, retry_after, retryable
    │   ├── ProviderTimeout          no answer within the time given
    │   ├── ProviderUnreachable      no connection, or it broke off
    │   ├── ProviderProtocolError    the answer is not valid in its protocol
    │   └── AllAgentsFailed          fast and slow both failed; `causes` holds each
    ├── BudgetExceeded               the next step would exceed a limit on calls, money or time
    │   └── DeadlineExceeded         the deadline of the question has passed
    ├── KeyRefused                   a valid API key is over a limit: kind, retry_after
    ├── StoreError                   the database of traces and keys: its disk, its server, its schema
    └── WeightsError                 a local model's weights cannot be downloaded or verified

Messages are one line, name the value at fault and the remedy, and never hold a key. That of a ProviderError quotes
the provider, which may quote the request: logs, and a store without content, keep the `summary_of` it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

_CODE = re.compile(r"[\w.-]{1,64}", re.ASCII)
"""A code that can be logged; anything else is text."""


class OdarError(Exception):
    """Base class of all errors that ODAR raises on purpose.

    Attributes:
        spend: the cost of a failed question so far (an `odar.types.Spend`), or None if no call was started.
    """

    spend: Any = None
    what = ""
    """In a few words, if the name of the class is not enough."""


class UsageError(OdarError):
    """An error that the caller can fix: settings, input, a name."""


class SettingsError(UsageError):
    """A setting is unknown or has an invalid value; the message names key, value and origin."""


class InputError(UsageError):
    """The query or a file given to ODAR cannot be used."""


class GradedElsewhere(InputError):
    """The benchmark has its own harness for grading; the message says how to import its results."""


class UnknownName(UsageError):
    """A name is not in the registry, catalogue or profile.

    >>> str(UnknownName("fusion rule", "majorty", ["fep", "majority"]))
    "unknown fusion rule 'majorty'; did you mean 'majority'? (known: fep, majority)"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str = "") -> None:
        names = sorted(known)
        remedy = remedy or f"known: {', '.join(names) or 'none'}"
        super().__init__(f"unknown {kind} {name!r}{did_you_mean(name, names)} ({remedy})")


class ProviderError(OdarError):
    """A provider refused or failed.

    Attributes:
        provider: the provider's configured name.
        status: the HTTP status, or None if there was none.
        code: the provider's own error code, or None.
        retry_after: seconds to wait, as requested by the provider, or None.
        retryable: whether the same request can succeed later.
        may_be_billed: False only if certainly no token was generated, as with a refusal.
        body: the error body of the provider, for a gateway to pass on.
        reached: False only if certainly no attempt reached the provider, as with a closed port.
        retries: number of retries before this error.
        local: whether a limit of this process caused it, such as that on the size of a reply, and not the provider.
    """

    what = "failed"

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        retryable: bool = False,
        may_be_billed: bool = True,
        body: str | None = None,
        reached: bool = True,
        retries: int = 0,
        local: bool = False,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.retryable = retryable
        self.may_be_billed = may_be_billed
        self.body = body
        self.reached = reached
        self.retries = retries
        self.local = local


class ProviderTimeout(ProviderError):
    """The provider did not answer within the time given."""

    what = "timed out"


class ProviderUnreachable(ProviderError):
    """The connection to the provider failed, or broke off before the answer was complete."""

    what = "unreachable"


class ProviderProtocolError(ProviderError):
    """The provider's answer is not valid in its protocol."""

    what = "invalid answer"


class AllAgentsFailed(ProviderError):
    """Neither agent produced an answer; `causes` holds the error of each."""

    what = "no agent answered"

    def __init__(self, reasons: Iterable[str], causes: Iterable[OdarError]) -> None:
        self.causes = tuple(causes)
        first = next((c for c in self.causes if isinstance(c, ProviderError)), ProviderError(""))
        parts = list(dict.fromkeys(reasons))
        if any(isinstance(c, DeadlineExceeded) for c in self.causes):  # other errors name their own remedy
            parts.append("allow more time (deadline)")
        super().__init__(
            "no agent produced an answer: " + "; ".join(parts),
            provider=first.provider,
            status=first.status,
            code=first.code,
            retry_after=first.retry_after,
            retryable=any(isinstance(c, ProviderError) and c.retryable for c in self.causes),
            body=first.body,
        )


class BudgetExceeded(OdarError):
    """The next step would exceed a limit. Raised before the step."""


class DeadlineExceeded(BudgetExceeded):
    """The deadline of the question has passed."""


class KeyRefused(OdarError):
    """The API key is valid, but one of its limits is used up.

    Attributes:
        kind: the limit that is used up.
        retry_after: seconds until the key may be used again.
        rates: the limits per minute of the key and what remains of them, if the store reported them.
    """

    rates: Sequence[Any] = ()

    def __init__(
        self, message: str, kind: Literal["rate", "budget", "parallel", "tokens", "revoked"], retry_after: float
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after


class StoreError(OdarError):
    """The store cannot be opened, read or written.

    Attributes:
        at_fault: "rows" if the database rejected the data (a retry cannot succeed), "database" if it failed
            (a retry may succeed), "schema" if ODAR's tables are missing.
    """

    def __init__(self, message: str, at_fault: Literal["rows", "database", "schema"] = "database") -> None:
        super().__init__(message)
        self.at_fault = at_fault


class WeightsError(OdarError):
    """A local model's weights cannot be downloaded, or are not the official ones."""


def summary_of(error: BaseException) -> str:
    """Kind, status and code of an error, without its message, which may quote a request or an answer.

    >>> summary_of(ProviderError("f: HTTP 400: bad input 'Who is Ann?'", provider="f", status=400, code="too_long"))
    'f: HTTP 400 (too_long)'
    >>> summary_of(ProviderTimeout("f: no answer within 5 s", provider="f")), summary_of(BudgetExceeded("…"))
    ('f: timed out', 'BudgetExceeded')
    """
    status, code = getattr(error, "status", None), getattr(error, "code", None)
    provider = getattr(error, "provider", "")
    text = f"HTTP {status}" if status else getattr(error, "what", "") or type(error).__name__
    if isinstance(code, str) and _CODE.fullmatch(code):
        text += f" ({code})"
    return f"{provider}: {text}" if provider else text


def drop_traceback(error: BaseException) -> None:
    """Remove the traceback of an error that is kept: its frames hold the request, and often the error itself."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def one_line(message: object, max_length: int | None = None) -> str:
    r"""A message for a log, a terminal or a table: without line breaks and escape sequences.

    >>> one_line("cannot\n  \x1b[31mconnect"), one_line("no such thing", max_length=8)
    ('cannot [31mconnect', 'no such…')
    """
    text = str(message)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(text.split())
    return line if max_length is None or len(line) <= max_length else line[: max_length - 1] + "…"


def plural(count: float, noun: str) -> str:
    """A number and its noun.

    >>> plural(1, "call"), plural(1.5, "call"), plural(2_000, "query")
    ('1 call', '1.5 calls', '2,000 queries')
    """
    if count == 1:
        return f"1 {noun}"
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"
