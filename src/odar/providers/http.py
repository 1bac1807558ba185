"""Base class of the HTTP providers: connections, one deadline for all attempts, retries, unsupported parameters.

Every failure leaves this module as a `ProviderError`.
"""

from __future__ import annotations

import asyncio
import random
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from odar.background import MAX_INLINE_BYTES, run_by_size
from odar.errors import ProviderError, ProviderTimeout, SettingsError, drop_traceback
from odar.formats import dump_json, json_size
from odar.observer import outgoing_headers
from odar.providers.base import OnDelta, Provider, Reply, Request
from odar.providers.connection import Address, Connections
from odar.providers.errors import ErrorFactory
from odar.providers.response import Collector, Payload, Response, str_or_empty
from odar.secrets import secrets_in
from odar.types import Usage

if TYPE_CHECKING:
    from ssl import SSLContext

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
ATTEMPTS = 3
FIRST_PAUSE_S = 0.5
"""Maximum wait before the first retry; doubled for each further one."""
MAX_PAUSE_S = 8.0
T = TypeVar("T")
NO_HEADERS: Mapping[str, str] = {}


class HttpProvider(Provider):
    """Base of providers behind an HTTP server. Use one from one event loop at a time, and close it there.

    Args:
        name: the name it is configured under.
        base_url: prefix of all paths, such as https://api.openai.com/v1.
        key_hint: remedy in the error for a rejected key.
        tls: trusted certificates and our own; None for the system's CAs.
    """

    models_path = "/models"
    max_retry_after_s = 60.0
    """A server that asks for a longer wait gets no retry."""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None = None,
        *,
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
        asked = request.parameters
        plain = not (asked.effort or asked.extra or asked.tools or asked.format or asked.n > 1)
        if plain and len(self._unsupported) < _MAX_REMEMBERED_MODELS:
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
        request = Request(model, (), timeout_s=_CHECK_TIMEOUT_S)
        names, _ = await self._call(request, lambda response: response.read(_model_ids), "GET", self.models_path)
        forms = (f"{model}:", f"{model}-")
        if model and not any(n == model or n.startswith(forms) or n.endswith(f"/{model}") for n in names):
            shown = ", ".join(sorted(names)[:_SHOWN_MODELS]) + (", …" if len(names) > _SHOWN_MODELS else "")
            reason = f"{self.name} answers, but does not list {model!r}; it has {shown or 'no model'}"
            raise ProviderError(reason, provider=self.name, may_be_billed=False)
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

        async def read(response: Response) -> Reply:
            if on_delta and create_collector and response.content_type == "text/event-stream":
                return await response.stream(create_collector(), on_delta)
            reply = await response.read(interpret, unread)
            if on_delta is not None:  # a server that cannot stream
                response.passed_on = True
                on_delta(reply.completions[0].delta)
            return reply

        reply, failed = await self._call(request, read, "POST", path, data, headers)
        if not failed:
            return reply
        # An interrupted attempt may have been billed by an unknown amount: then the sum is unknown.
        billed = any(error.may_be_billed for error in failed)
        return replace(reply, retries=len(failed), usage=Usage() if billed else reply.usage)

    async def _call(
        self,
        request: Request,
        read: Callable[[Response], Awaitable[T]],
        method: str,
        path: str,
        data: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[T, list[ProviderError]]:
        """Send a request until an attempt succeeds: what `read` returned, and the errors of earlier attempts."""
        headers = {**self._headers, **(outgoing_headers() or {}), **headers}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout_s
        failed: list[ProviderError] = []
        response: Response | None = None
        try:
            async with asyncio.timeout_at(deadline) as limit:
                while True:
                    try:
                        async with self._open_connections().request(method, path, headers, data) as connection:
                            response = Response(connection, self._errors)
                            await response.check_head()
                            return await read(response), failed
                    # another one, if the limits and the time allow it
                    except ProviderError as error:
                        wait = backoff_s(len(failed), error.retry_after)
                        failed.append(error)
                        # After a part of the answer has been passed on, a second attempt would repeat it.
                        final = response is not None and response.passed_on
                        in_time = loop.time() + wait < deadline
                        if final or not in_time or not self._allows_retry(request, failed):
                            error.may_be_billed = any(attempt.may_be_billed for attempt in failed)
                            error.reached = any(attempt.reached for attempt in failed)
                            error.retries = len(failed) - 1
                            failed.clear()  # its traceback refers to this list
                            raise
                        drop_traceback(error)
                        response = None
                    await asyncio.sleep(wait)
        except TimeoutError:
            if not limit.expired():  # raised by the caller's `on_delta`
                raise
        before = f" (the attempt before: {failed[-1]})" if failed else ""
        reason = f"no answer within {request.timeout_s:g} s{before}"
        late = response is not None and connection.complete  # only reading it took too long
        raise self._errors.create(ProviderTimeout, reason, retries=len(failed), local=late)

    def _allows_retry(self, request: Request, failed: Sequence[ProviderError]) -> bool:
        """Whether the limits and the request allow another attempt after these errors."""
        error = failed[-1]
        return (
            error.retryable
            and len(failed) < ATTEMPTS
            and (error.retry_after or 0.0) <= self.max_retry_after_s
            and (request.retry_rate_limit or error.status != 429)
            and (request.retry_billed or not error.may_be_billed)
            and request.take_retry()
        )

    def _open_connections(self) -> Connections:
        if self._connections is None or self._connections.loop is not asyncio.get_running_loop():
            try:
                address = Address.parse(self._base_url)
            except ValueError:
                raise self._errors.not_sent("base_url is not a valid http(s) address", retryable=False) from None
            self._connections = Connections(address, self._errors, self._tls)
        return self._connections


def backoff_s(number: int, retry_after: float | None) -> float:
    """The seconds before retry `number`, counted from 0: exponential backoff with full jitter.

    The jitter comes on top of `retry_after`, so that callers that were refused together do not return together.
    """
    jitter = random.uniform(0.0, min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0**number))  # noqa: S311 - not a secret
    return jitter + (retry_after or 0.0)


def _model_ids(payload: Payload) -> list[str]:
    return [str_or_empty(entry["id"]) for entry in payload["data"]]


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


def _rejected_parameters(request: Request, error: ProviderError) -> frozenset[str]:
    """The names of added parameters that were sent and that the error mentions."""
    if error.status not in (400, 422):
        return frozenset()
    sent = _added_parameters(request).difference(request.drop, () if request.logprobs else ("logprobs",))
    message = error.body or str(error)
    return frozenset(name for name in sent if re.search(rf"\b(top_)?{name}\b", message))


def _without(request: Request, parameters: frozenset[str]) -> Request:
    drop = (*request.drop, *sorted(parameters))
    return replace(request, drop=drop, logprobs=request.logprobs and "logprobs" not in parameters)
