"""What the HTTP providers share: a connection pool, a deadline over all attempts, and retries.

Every failure leaves this module as a `ProviderError`. Errors of aiohttp are never chained to ours: some
of them carry the request's headers, and with them the key.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import aiohttp

from odar.errors import ProviderError, SettingsError
from odar.formats import dump_json
from odar.observer import outgoing_headers
from odar.providers.base import CallDelta, Completion, OnText, Piece, Reply, Request
from odar.providers.failures import Failures
from odar.providers.response import Collector, Payload, Response
from odar.secrets import is_secret, secrets_in
from odar.types import Usage

_MAX_ERROR_BYTES = 64 * 2**10
_CHECK_TIMEOUT_S = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait in between: exponential backoff with full jitter.

    >>> RetryPolicy(base_s=1.0, max_s=3.0, rng=random.Random(0)).wait_s(retry=5, retry_after=None) <= 3.0
    True
    """

    attempts: int = 3
    base_s: float = 0.5
    max_s: float = 8.0
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def wait_s(self, retry: int, retry_after: float | None) -> float:
        """Seconds before retry number `retry`, counted from 0."""
        # What the server asks for is the least; the jitter on top of it keeps callers that were
        # refused together from coming back together.
        jitter = self.rng.uniform(0.0, min(self.max_s, self.base_s * 2.0**retry))
        return jitter + (retry_after or 0.0)


class HttpClient:
    """Requests to one server. Use it from one event loop at a time, and close it there.

    Args:
        name: the provider's name, for messages.
        base_url: what paths are appended to.
        headers: sent with every request.
        secrets: values that must never show in an error.
        retry: when to try again.
        key_hint: what to do about a refused key.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        headers: Mapping[str, str],
        secrets: Sequence[str] = (),
        retry: RetryPolicy | None = None,
        key_hint: str = "",
    ) -> None:
        for header, value in headers.items():
            if not (header + value).isprintable():
                raise SettingsError(f"provider {name}: header {header!r} holds a line break or control character")
        self._base_url = base_url.rstrip("/")
        self._headers = {"content-type": "application/json", **headers}
        self._failures = Failures(name, key_hint, (*secrets, *_secrets_of(headers), *secrets_in(base_url)))
        self._retry = retry or RetryPolicy()
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def complete(
        self,
        path: str,
        body: Payload,
        request: Request,
        interpret: Callable[[Payload], Reply],
        collect: Callable[[], Collector],
        on_text: OnText | None,
    ) -> Reply:
        """POST a completion request; read the reply whole, or as a stream where there is an `on_text`."""
        handed_over = False

        def hand_over(text: str) -> None:
            nonlocal handed_over
            handed_over = True
            if on_text is not None:
                on_text(text)

        async def read(response: Response) -> Reply:
            if on_text is not None and response.content_type == "text/event-stream":
                return await response.stream(collect(), hand_over)
            reply = await response.whole(interpret)
            if on_text is not None:  # a server that cannot stream
                hand_over(_whole(reply.completions[0]))
            return reply

        reply, failed = await self._call(
            "POST",
            path,
            read,
            data=dump_json(body, odd="backslashreplace"),
            timeout_s=request.timeout_s,
            prompts=[message.text for message in request.messages if message.text],
            may_retry=lambda error: not handed_over and (request.retry_billed or not error.may_be_billed),
        )
        # An attempt that broke off was perhaps billed, and nobody says how much: then the sum is unknown.
        billed = any(error.may_be_billed for error in failed)
        return (
            reply if not failed else replace(reply, retries=len(failed), usage=Usage() if billed else reply.usage)
        )

    async def get(self, path: str, interpret: Callable[[Payload], T]) -> T:
        """GET a JSON object, within a few seconds."""

        async def read(response: Response) -> T:
            return await response.whole(interpret)

        result, _ = await self._call("GET", path, read, timeout_s=_CHECK_TIMEOUT_S)
        return result

    async def close(self) -> None:
        """Close the connections. Idempotent; the next request opens new ones."""
        session, self._session = self._session, None
        if session is None:
            return
        if self._loop is asyncio.get_running_loop() or (self._loop is not None and self._loop.is_closed()):
            await session.close()
        else:  # only the loop that owns the connections can close them
            session.detach()

    async def _call(
        self,
        method: str,
        path: str,
        read: Callable[[Response], Awaitable[T]],
        *,
        timeout_s: float,
        data: bytes | None = None,
        prompts: Sequence[str] = (),
        may_retry: Callable[[ProviderError], bool] = lambda error: True,
    ) -> tuple[T, list[ProviderError]]:
        """What `read` makes of the answer, and the errors of the attempts before."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        failed: list[ProviderError] = []
        try:
            async with asyncio.timeout_at(deadline) as limit:
                while True:
                    try:
                        return await self._attempt(method, path, data, read, prompts), failed
                    except ProviderError as error:
                        wait = self._retry.wait_s(len(failed), error.retry_after)
                        failed.append(error)
                        out_of_time = asyncio.get_running_loop().time() + wait >= deadline
                        exhausted = len(failed) >= self._retry.attempts
                        if not error.retryable or exhausted or out_of_time or not may_retry(error):
                            error.may_be_billed = any(each.may_be_billed for each in failed)
                            error.reached = any(each.reached for each in failed)
                            error.retries = len(failed) - 1
                            raise
                    await asyncio.sleep(wait)
        except TimeoutError:
            if not limit.expired():  # not our deadline: an `on_text` of the caller's
                raise
        late = self._failures.timeout(timeout_s, failed[-1] if failed else None)
        late.retries = len(failed)
        raise late

    async def _attempt(
        self,
        method: str,
        path: str,
        data: bytes | None,
        read: Callable[[Response], Awaitable[T]],
        prompts: Sequence[str],
    ) -> T:
        session = await self._session_of_this_loop()
        try:
            # Redirects are not followed: they would carry the key to wherever the server points.
            async with session.request(
                method, self._base_url + path, data=data, headers=outgoing_headers(), allow_redirects=False
            ) as raw:
                if not 200 <= raw.status < 300:
                    body = (await _read_up_to(_MAX_ERROR_BYTES, raw)).decode("utf-8", errors="replace")
                    raise self._failures.from_status(raw.status, raw.headers, body, prompts)
                return await read(Response(raw, self._failures, prompts))
        except aiohttp.ClientError as exc:
            failure = _connection_failure(exc, self._failures)
        raise failure

    async def _session_of_this_loop(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            await self.close()
            self._loop = loop
            self._session = aiohttp.ClientSession(
                # No limit: how many calls run at once is decided above; a queue here would pass for slowness.
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),  # the deadline is ours, over all attempts
            )
        return self._session


def _whole(completion: Completion) -> Piece:
    """A whole completion as if it had come in one piece."""
    calls = (CallDelta(i, c.id, c.name, c.arguments) for i, c in enumerate(completion.tool_calls))
    return Piece(completion.text, tuple(calls))


def model_count(payload: Payload) -> str:
    """One line for `check`, from a list of models.

    >>> model_count({"data": [{"id": "a"}, {"id": "b"}]})
    '2 models'
    """
    count = len(payload["data"])
    return f"{count} model{'' if count == 1 else 's'}"


async def _read_up_to(limit: int, raw: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while len(body) < limit and (chunk := await raw.content.readany()):
        body += chunk
    return bytes(body[:limit])


def _connection_failure(exc: aiohttp.ClientError, failures: Failures) -> ProviderError:
    match exc:
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return failures.unconnected("base_url is not a valid http(s) address", retryable=False)
        case aiohttp.ClientSSLError():
            return failures.unconnected(f"no trusted TLS connection to {exc.host}:{exc.port}", retryable=False)
        case aiohttp.ClientConnectorError():
            why = exc.os_error.strerror or type(exc.os_error).__name__
            return failures.unconnected(f"cannot connect to {exc.host}:{exc.port} ({why}); check base_url")
        case aiohttp.ClientPayloadError():
            return failures.unreachable("the answer broke off before it was whole")
        case aiohttp.ClientResponseError():
            return failures.malformed("the answer is not HTTP; check base_url")
        case _:
            return failures.unreachable(f"the connection broke off ({type(exc).__name__})")


def _secrets_of(headers: Mapping[str, str]) -> list[str]:
    """Values of headers that look like credentials, without a leading scheme such as Bearer."""
    return [value.split()[-1] for header, value in headers.items() if value.strip() and is_secret(header)]
