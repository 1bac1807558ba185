"""What the HTTP providers share: connections to a server, a deadline over all attempts, and retries.

Every failure leaves this module as a `ProviderError`.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from odar.errors import ProviderError, ProviderProtocolError, ProviderTimeout, ProviderUnreachable, SettingsError
from odar.formats import dump_json
from odar.observer import outgoing_headers
from odar.providers.base import CallDelta, Delta, OnDelta, Provider, Reply, Request
from odar.providers.connection import Address, Broken, Connections, NotHttp, Unconnected
from odar.providers.response import Collector, Failures, Payload, Response, string
from odar.secrets import is_secret, secrets_in
from odar.types import Usage

if TYPE_CHECKING:
    from ssl import SSLContext

_MAX_ERROR_BYTES = 64 * 2**10
_CHECK_TIMEOUT_S = 10.0
_SHOWN_MODELS = 8
_MOST_REFUSALS = 1_000
"""Models whose refusals are remembered."""
_HEADERS = {
    "accept": "*/*",
    "accept-encoding": "identity",  # answers are short; one that unpacks to gigabytes is no risk then
    "user-agent": "odar",
    "content-type": "application/json",
}

T = TypeVar("T")
NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait in between: exponential backoff with full jitter.

    >>> RetryPolicy(base_s=1.0, max_s=3.0, rng=random.Random(0)).wait_s(retry=5, retry_after=None) <= 3.0
    True
    """

    attempts: int = 3
    base_s: float = 0.5
    max_s: float = 8.0
    max_retry_after_s: float = 60.0
    """A server that asks for a longer wait is not waited for."""
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def wait_s(self, retry: int, retry_after: float | None) -> float:
        """Return seconds before retry number `retry`, counted from 0."""
        # What the server asks for is the least; the jitter on top of it keeps callers that were
        # refused together from coming back together.
        jitter = self.rng.uniform(0.0, min(self.max_s, self.base_s * 2.0**retry))
        return jitter + (retry_after or 0.0)


class HttpProvider(Provider):
    """What providers behind an HTTP server share. Use one from one event loop at a time, and close it there.

    Args:
        name: the name it is configured under.
        base_url: what paths are appended to, such as https://api.openai.com/v1.
        api_key: None for servers without one.
        retry: when to try again.
        headers: sent with every request.
        key_hint: what to tell a user whose key is refused.
        tls: certificates to trust and to identify ourselves with; None for the system's CAs.
    """

    models_path = "/models"

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None = None,
        *,
        retry: RetryPolicy | None = None,
        headers: Mapping[str, str] | None = None,
        key_hint: str = "",
        tls: SSLContext | None = None,
    ) -> None:
        self.name = name
        self.refusals = Refusals()
        key = (api_key or "").strip()  # a key read from a file often ends in a line break
        headers = {**self.auth(key), **(headers or {})}
        for header, value in headers.items():
            if not (header + value).isprintable():
                raise SettingsError(f"provider {name}: header {header!r} holds a line break or control character")
        secrets = [value.split()[-1] for header, value in headers.items() if value.strip() and is_secret(header)]
        self._base_url = base_url
        self._headers = _HEADERS | {header.lower(): value for header, value in headers.items()}
        self._failures = Failures(name, key_hint, (key, *secrets, *secrets_in(base_url)))
        self._retry = retry or RetryPolicy()
        self._tls = tls
        self._connections: Connections | None = None

    def auth(self, key: str) -> dict[str, str]:
        """Return the headers that identify us."""
        return {"authorization": f"Bearer {key}"} if key else {}

    async def check(self, model: str = "") -> str:
        """Return how many models the server lists; ProviderError if this one is not among them.

        A dated or tagged form of the name counts.
        """

        async def attempt() -> list[str]:
            async with self._asked("GET", self.models_path) as response:
                return await response.whole(lambda payload: [string(entry["id"]) for entry in payload["data"]])

        names, _ = await self._retrying(Request(model, (), timeout_s=_CHECK_TIMEOUT_S), attempt)
        forms = (f"{model}:", f"{model}-")
        if model and not any(n == model or n.startswith(forms) or n.endswith(f"/{model}") for n in names):
            shown = ", ".join(sorted(names)[:_SHOWN_MODELS]) + (", …" if len(names) > _SHOWN_MODELS else "")
            why = f"{self.name} answers, but does not list {model!r}; it has {shown or 'no model'}"
            raise ProviderError(why, provider=self.name, may_be_billed=False)
        return f"{len(names)} model{'' if len(names) == 1 else 's'}"

    async def close(self) -> None:
        """Close the connections. Idempotent; the next request opens new ones."""
        connections, self._connections = self._connections, None
        # Only the loop that owns connections can close them; one that is gone has no more use for them.
        if connections is not None and connections.loop is asyncio.get_running_loop():
            connections.close()

    async def post(
        self,
        path: str,
        body: Payload,
        request: Request,
        interpret: Callable[[Payload], Reply],
        collect: Callable[[], Collector],
        on_delta: OnDelta | None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Reply:
        """POST a completion request; read the reply whole, or as a stream where there is an `on_delta`."""
        data = dump_json(body, odd="backslashreplace")
        prompts = [message.text for message in request.messages if message.text]
        handed_over = False

        def hand_over(delta: Delta) -> None:
            nonlocal handed_over
            handed_over = True
            if on_delta is not None:
                on_delta(delta)

        async def attempt() -> Reply:
            async with self._asked("POST", path, data, prompts, headers) as response:
                if on_delta is not None and response.content_type == "text/event-stream":
                    return await response.stream(collect(), hand_over)
                reply = await response.whole(interpret)
            if on_delta is not None:  # a server that cannot stream
                whole = reply.completions[0]
                calls = (CallDelta(i, c.id, c.name, c.arguments) for i, c in enumerate(whole.tool_calls))
                hand_over(Delta(whole.text, tuple(calls)))
            return reply

        reply, failed = await self._retrying(request, attempt, lambda: not handed_over)
        if not failed:
            return reply
        # An interrupted attempt may have been billed by an unknown amount: then the sum is unknown.
        billed = any(error.may_be_billed for error in failed)
        return replace(reply, retries=len(failed), usage=Usage() if billed else reply.usage)

    async def _retrying(
        self, request: Request, attempt: Callable[[], Awaitable[T]], may_retry: Callable[[], bool] = lambda: True
    ) -> tuple[T, list[ProviderError]]:
        """Return the first result within the timeout, and the errors of earlier attempts."""
        loop, retry = asyncio.get_running_loop(), self._retry
        deadline = loop.time() + request.timeout_s
        failed: list[ProviderError] = []
        try:
            async with asyncio.timeout_at(deadline) as limit:
                while True:
                    try:
                        return await attempt(), failed
                    except ProviderError as error:
                        wait = retry.wait_s(len(failed), error.retry_after)
                        failed.append(error)
                        if (
                            not error.retryable
                            or not may_retry()
                            or len(failed) >= retry.attempts
                            or loop.time() + wait >= deadline
                            or (error.retry_after or 0.0) > retry.max_retry_after_s
                            or (error.status == 429 and not request.retry_rate_limit)
                            or (error.may_be_billed and not request.retry_billed)
                            or not request.take_retry()
                        ):
                            error.may_be_billed = any(each.may_be_billed for each in failed)
                            error.reached = any(each.reached for each in failed)
                            error.retries = len(failed) - 1
                            raise
                    await asyncio.sleep(wait)
        except TimeoutError:
            if not limit.expired():  # not our deadline: an `on_delta` of the caller's
                raise
        before = f" (the attempt before: {failed[-1]})" if failed else ""
        late = self._failures.error(ProviderTimeout, f"no answer within {request.timeout_s:g} s{before}")
        late.retries = len(failed)
        raise late

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        data: bytes = b"",
        prompts: Sequence[str] = (),
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> AsyncIterator[Response]:
        """Send one request; yield the answer if its status is good. Every failure is a ProviderError."""
        fail, sent = self._failures, {**self._headers, **(outgoing_headers() or {}), **headers}
        try:
            async with self._connected().asked(method, path, sent, data) as answer:
                # A redirect is an error too: following it would send the key to another host.
                if not 200 <= answer.status < 300:
                    body = (await answer.all(_MAX_ERROR_BYTES)).decode("utf-8", errors="replace")
                    raise fail.from_status(answer.status, answer.headers, body, prompts)
                if packing := answer.headers.get("content-encoding", "").lower().removeprefix("identity"):
                    why = f"the answer is packed ({packing}), although nobody asked for it; check base_url"
                    raise fail.error(ProviderProtocolError, why, retryable=False)
                yield Response(answer, fail, prompts)
        except Unconnected as missing:
            raise fail.error(
                ProviderUnreachable, str(missing), retryable=missing.retryable, may_be_billed=False, reached=False
            ) from None
        except Broken as broken:
            raise fail.error(ProviderUnreachable, str(broken)) from None
        except NotHttp:
            raise fail.error(ProviderProtocolError, "the answer is not HTTP; check base_url") from None

    def _connected(self) -> Connections:
        """Return the connections of this event loop."""
        if self._connections is None or self._connections.loop is not asyncio.get_running_loop():
            try:
                address = Address.parse(self._base_url)
            except ValueError:
                raise Unconnected("base_url is not a valid http(s) address", retryable=False) from None
            self._connections = Connections(address, self._tls)
        return self._connections


class Refusals:
    """Parameters of ODAR's own that models refuse, learned from their errors: asked once, then left out.

    What a client set itself is never left out here: it gets the model's error.
    """

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    async def ask(self, request: Request, send: Callable[[Request], Awaitable[Reply]]) -> Reply:
        """Send it without what the model is known to refuse, and again if it refuses more."""
        known = self._known.get(request.model, frozenset())
        if known:
            request = _leaving_out(request, known & _own_parameters(request))
        try:
            return await send(request)
        except ProviderError as error:
            found = _refused(request, error)
            if not found:
                raise
        reply = await send(_leaving_out(request, found))
        if len(self._known) < _MOST_REFUSALS:
            self._known[request.model] = known | found
        return reply


def _own_parameters(request: Request) -> frozenset[str]:
    """Return what ODAR asks for although the client did not."""
    options = request.options
    own = {"logprobs": options.top_logprobs, "temperature": options.temperature, "top_p": options.top_p}
    own["seed"] = options.seed
    return frozenset(name for name, wish in own.items() if wish is None)


def _refused(request: Request, error: ProviderError) -> frozenset[str]:
    if error.status not in (400, 422):
        return frozenset()
    said = error.body or str(error)
    asked = _own_parameters(request) - {*request.quirks.drop} - (set() if request.logprobs else {"logprobs"})
    return frozenset(name for name in asked if re.search(rf"\b(top_)?{name}\b", said))


def _leaving_out(request: Request, names: frozenset[str]) -> Request:
    if not names:
        return request
    quirks = replace(request.quirks, drop=(*request.quirks.drop, *sorted(names)))
    return replace(request, quirks=quirks, logprobs=request.logprobs and "logprobs" not in names)
