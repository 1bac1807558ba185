"""Base class of the HTTP providers: connections, one deadline for all attempts, retries, unsupported parameters.

Every failure leaves this module as a `ProviderError`.
"""

from __future__ import annotations

import asyncio
import random
import re
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from odar.background import MAX_INLINE_BYTES, run_by_size
from odar.conversation import ChatParameters
from odar.errors import (
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    ProviderUnreachable,
    SettingsError,
    detach,
)
from odar.formats import dump_json, json_size
from odar.observer import outgoing_headers
from odar.providers.base import CallDelta, Delta, OnDelta, Provider, Reply, Request
from odar.providers.connection import Address, ConnectError, Connections, InvalidResponse, ReadError
from odar.providers.response import Collector, ErrorFactory, Payload, Response, str_or_empty
from odar.secrets import secrets_in
from odar.types import Usage

if TYPE_CHECKING:
    from ssl import SSLContext

_MAX_ERROR_BYTES = 64 * 2**10
_CHECK_TIMEOUT_S = 10.0
_SHOWN_MODELS = 8
_MAX_REMEMBERED_MODELS = 1_000
"""Number of models whose unsupported parameters are remembered."""
_HEADERS = {
    "accept": "*/*",
    "accept-encoding": "identity",  # answers are short, and a compressed one could expand to gigabytes
    "user-agent": "odar",
    "content-type": "application/json",
}


@dataclass(frozen=True, slots=True)
class Retry:
    """When failed calls are repeated."""

    attempts: int = 3
    first_pause_s: float = 0.5
    """Doubled each time."""
    max_pause_s: float = 8.0
    max_retry_after_s: float = 60.0
    """A server that asks for a longer wait gets no retry."""


RETRY = Retry()
T = TypeVar("T")
NO_HEADERS: Mapping[str, str] = {}


class HttpProvider(Provider):
    """Base of providers behind an HTTP server. Use one from one event loop at a time, and close it there.

    Args:
        name: the name it is configured under.
        base_url: prefix of all paths, such as https://api.openai.com/v1.
        api_key: None for servers without one.
        retry: number of attempts and pauses; None for `RETRY`.
        key_hint: remedy in the error for a rejected key.
        tls: trusted certificates and our own; None for the system's CAs.
    """

    models_path = "/models"

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None = None,
        *,
        retry: Retry | None = None,
        key_hint: str = "",
        tls: SSLContext | None = None,
    ) -> None:
        self.name = name
        key = (api_key or "").strip()  # a key read from a file often ends in a line break
        if not key.isprintable():
            raise SettingsError(f"provider {name}: the API key contains a line break or control character")
        self._base_url = base_url
        self._headers = _HEADERS | self.auth_headers(key)
        self._errors = ErrorFactory(name, key_hint, (key, *secrets_in(base_url)))
        self.retry = retry or RETRY
        self._tls = tls
        self._connections: Connections | None = None
        self._unsupported: dict[tuple[str, str], frozenset[str]] = {}
        """Names of parameters by model and effort."""

    def auth_headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request without parameters that the model rejects; the first rejection costs a second request.

        Only parameters that ODAR adds are left out. For one that the client set, the client gets the model's error.
        What a client's own parameters provoke is not remembered: some models take `logprobs` or `temperature`, but
        not with tools or with reasoning, and others would go without.
        """
        known = self._unsupported.get((request.model, request.effort), frozenset())
        if known:
            request = _without(request, known & _added_parameters(request))
        try:
            return await self.send(request, on_delta)
        except ProviderError as error:
            rejected = _rejected_parameters(request, error)
            if not rejected:
                raise
        reply = await self.send(_without(request, rejected), on_delta)
        if len(self._unsupported) < _MAX_REMEMBERED_MODELS and _is_plain(request.parameters):
            self._unsupported[request.model, request.effort] = known | rejected
        return reply

    @abstractmethod
    async def send(self, request: Request, on_delta: OnDelta | None) -> Reply:
        """Send a completion request as it is, with `post`."""

    async def check(self, model: str = "") -> str:
        """The number of models that the server lists.

        Raises:
            ProviderError: the server fails, or lists neither this name nor a dated or tagged form of it.
        """

        async def attempt() -> list[str]:
            async with self._request("GET", self.models_path) as response:
                body = await response.read()
                return await response.interpret(body, lambda p: [str_or_empty(entry["id"]) for entry in p["data"]])

        names, _ = await self._call_with_retries(Request(model, (), timeout_s=_CHECK_TIMEOUT_S), attempt)
        forms = (f"{model}:", f"{model}-")
        if model and not any(n == model or n.startswith(forms) or n.endswith(f"/{model}") for n in names):
            shown = ", ".join(sorted(names)[:_SHOWN_MODELS]) + (", …" if len(names) > _SHOWN_MODELS else "")
            why = f"{self.name} answers, but does not list {model!r}; it has {shown or 'no model'}"
            raise ProviderError(why, provider=self.name, may_be_billed=False)
        return f"{len(names)} model{'' if len(names) == 1 else 's'}"

    async def close(self) -> None:
        """Close the connections. Idempotent; the next request opens new ones."""
        connections, self._connections = self._connections, None
        # Only the event loop that owns the connections can close them; without it they are closed already.
        if connections is not None and connections.loop is asyncio.get_running_loop():
            connections.close()

    async def post(
        self,
        path: str,
        body: Payload,
        request: Request,
        interpret: Callable[[Payload], Reply],
        create_collector: Callable[[], Collector] | None = None,
        on_delta: OnDelta | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        unread: str = "",
    ) -> Reply:
        """POST a request; read the reply at once, or as a stream if there are a collector and `on_delta`.

        The field `unread` of the reply is not parsed.
        """
        size = json_size(body, MAX_INLINE_BYTES)
        data = await run_by_size(size, partial(dump_json, body, errors="backslashreplace"))
        started = False
        arrived = False
        """Whether the whole response is here."""

        def pass_on(delta: Delta) -> None:
            nonlocal started
            started = True
            if on_delta is not None:
                on_delta(delta)

        async def attempt() -> Reply:
            nonlocal arrived
            async with self._request("POST", path, data, headers) as response:
                if on_delta and create_collector and response.content_type == "text/event-stream":
                    return await response.stream(create_collector(), pass_on)
                received = await response.read()
                arrived = True
                reply = await response.interpret(received, interpret, unread)
                arrived = False
            if on_delta is not None:  # a server that cannot stream
                only = reply.completions[0]
                calls = (CallDelta(i, c.id, c.name, c.arguments) for i, c in enumerate(only.tool_calls))
                pass_on(Delta(only.text, tuple(calls)))
            return reply

        # After a part of the answer has been passed on, a second attempt would repeat it.
        reply, failed = await self._call_with_retries(request, attempt, lambda: not started, lambda: arrived)
        if not failed:
            return reply
        # An interrupted attempt may have been billed by an unknown amount: then the sum is unknown.
        billed = any(error.may_be_billed for error in failed)
        return replace(reply, retries=len(failed), usage=Usage() if billed else reply.usage)

    async def _call_with_retries(
        self,
        request: Request,
        attempt: Callable[[], Awaitable[T]],
        may_retry: Callable[[], bool] = lambda: True,
        has_arrived: Callable[[], bool] = lambda: False,
    ) -> tuple[T, list[ProviderError]]:
        """The first result within the timeout, and the errors of earlier attempts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout_s
        failed: list[ProviderError] = []
        try:
            async with asyncio.timeout_at(deadline) as limit:
                while True:
                    try:
                        return await attempt(), failed
                    except ProviderError as error:
                        wait = backoff_s(self.retry, len(failed), error.retry_after)
                        failed.append(error)
                        in_time = loop.time() + wait < deadline
                        if not (in_time and may_retry() and self._allows_retry(request, failed)):
                            error.may_be_billed = any(each.may_be_billed for each in failed)
                            error.reached = any(each.reached for each in failed)
                            error.retries = len(failed) - 1
                            failed.clear()  # its traceback refers to this list
                            raise
                        detach(error)
                    await asyncio.sleep(wait)
        except TimeoutError:
            if not limit.expired():  # raised by the caller's `on_delta`
                raise
        before = f" (the attempt before: {failed[-1]})" if failed else ""
        why = f"no answer within {request.timeout_s:g} s{before}"
        raise self._errors.create(ProviderTimeout, why, retries=len(failed), local=has_arrived())

    def _allows_retry(self, request: Request, failed: Sequence[ProviderError]) -> bool:
        """Whether `Retry` and the request allow another attempt after these errors."""
        error = failed[-1]
        return (
            error.retryable
            and len(failed) < self.retry.attempts
            and (error.retry_after or 0.0) <= self.retry.max_retry_after_s
            and (request.retry_rate_limit or error.status != 429)
            and (request.retry_billed or not error.may_be_billed)
            and request.take_retry()
        )

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        data: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> AsyncIterator[Response]:
        """Send one request; yield the response if it is a success. Every failure is a ProviderError."""
        errors = self._errors
        all_headers = {**self._headers, **(outgoing_headers() or {}), **headers}
        try:
            async with self._open_connections().request(method, path, all_headers, data) as connection:
                # A redirect is an error too: following it would send the key to another host.
                if not 200 <= connection.status < 300:
                    body = (await connection.read_all(_MAX_ERROR_BYTES)).decode("utf-8", errors="replace")
                    raise errors.from_status(connection.status, connection.headers, body)
                if encoding := connection.headers.get("content-encoding", "").lower().removeprefix("identity"):
                    why = f"the answer is compressed ({encoding}) although the request forbids it; check base_url"
                    raise errors.create(ProviderProtocolError, why, retryable=False)
                yield Response(connection, errors)
        except ConnectError as error:
            raise errors.create(
                ProviderUnreachable,
                str(error),
                retryable=error.retryable,
                may_be_billed=False,
                reached=False,
                local=error.local,
            ) from None
        except ReadError as error:
            raise errors.create(ProviderUnreachable, str(error)) from None
        except InvalidResponse as error:
            raise errors.create(ProviderProtocolError, f"{error}; check base_url") from None

    def _open_connections(self) -> Connections:
        if self._connections is None or self._connections.loop is not asyncio.get_running_loop():
            try:
                address = Address.parse(self._base_url)
            except ValueError:
                raise ConnectError("base_url is not a valid http(s) address", retryable=False) from None
            self._connections = Connections(address, self._tls)
        return self._connections


def backoff_s(retry: Retry, number: int, retry_after: float | None) -> float:
    """The seconds before retry `number`, counted from 0: exponential backoff with full jitter.

    The jitter comes on top of `retry_after`, so that callers that were refused together do not return together.

    >>> backoff_s(Retry(first_pause_s=1.0, max_pause_s=3.0), 5, retry_after=None) <= 3.0
    True
    """
    jitter = random.uniform(0.0, min(retry.max_pause_s, retry.first_pause_s * 2.0**number))  # noqa: S311 - not a secret
    return jitter + (retry_after or 0.0)


def _added_parameters(request: Request) -> frozenset[str]:
    """The names of parameters that ODAR sets although the client did not."""
    parameters = request.parameters
    clients = {
        "logprobs": parameters.top_logprobs,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "seed": parameters.seed,
    }
    return frozenset(name for name, value in clients.items() if value is None)


def _is_plain(parameters: ChatParameters) -> bool:
    """Whether the client left everything that can make a model reject parameters as it is."""
    return not (parameters.effort or parameters.extra or parameters.tools or parameters.format or parameters.n > 1)


def _rejected_parameters(request: Request, error: ProviderError) -> frozenset[str]:
    """The names of added parameters that were sent and that the error mentions."""
    if error.status not in (400, 422):
        return frozenset()
    sent = _added_parameters(request).difference(request.drop, () if request.logprobs else ("logprobs",))
    message = error.body or str(error)
    return frozenset(name for name in sent if re.search(rf"\b(top_)?{name}\b", message))


def _without(request: Request, parameters: frozenset[str]) -> Request:
    if not parameters:
        return request
    drop = (*request.drop, *sorted(parameters))
    return replace(request, drop=drop, logprobs=request.logprobs and "logprobs" not in parameters)
