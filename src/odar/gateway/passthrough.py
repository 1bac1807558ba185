"""POST /v1/embeddings and /v1/completions: forwarded to the model that the request names, without routing.

Only configured providers are used, with the same keys, budgets and limits as for a question. `odar.forwarding`
lists the fields that are forwarded.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from odar.conversation import Options, Wire
from odar.errors import BudgetExceeded
from odar.formats import dump_json
from odar.forwarding import select_body
from odar.gateway.chat_request import ChatRequest, RequestBody
from odar.gateway.endpoint import Endpoint, RequestState
from odar.gateway.errors import ApiError, bad_field
from odar.gateway.exchange import EVENT_STREAM_HEADERS, JSON_HEADERS, CancelOnDisconnect
from odar.gateway.fields import MAX_INTEGER, convert
from odar.gateway.reply import spend_headers
from odar.providers.base import Message, Reply, Request, Sampling
from odar.types import Path, Query, Spend, Step

MAX_INPUTS = 2048
"""Texts in one request, as many as OpenAI takes."""
_DEFAULT_TOKENS = 16
"""Length of a completion where the client sets none, as OpenAI documents it: servers differ, some have no limit."""


Tokens = Annotated[list[int], Meta(min_length=1)]
Texts = str | Annotated[list[str | int | Tokens], Meta(min_length=1)]
"""A text, several, tokens, or several lists of tokens."""


class EmbeddingsBody(RequestBody, kw_only=True):
    """The body of a request for embeddings; `odar.forwarding` lists the further fields that are sent on."""

    input: Texts


class CompletionsBody(RequestBody, kw_only=True):
    """The body of a request to continue texts; `odar.forwarding` lists the further fields that are sent on."""

    prompt: Texts
    suffix: str | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=MAX_INTEGER)] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=128)] | None = None


def read_embeddings(body: Any) -> ChatRequest:
    """Read a request for embeddings; `echo` is what is sent."""
    request = convert(body, EmbeddingsBody)
    return ChatRequest.of(request, _priced_query(_read_texts(request.input, "input"), 0, 1), echo=body)


def read_completions(body: Any) -> ChatRequest:
    """Read a request for completions; `echo` is what is sent, with `max_tokens` even if the client left it out."""
    request = convert(body, CompletionsBody)
    prompts = [prompt + (request.suffix or "") for prompt in _read_texts(request.prompt, "prompt")]
    max_tokens = _DEFAULT_TOKENS if request.max_tokens is None else request.max_tokens
    n = request.n or 1
    best_of = request.best_of or n
    if best_of < n:
        raise bad_field("best_of", f"{best_of} is less than n = {n}")
    query = _priced_query(prompts, len(prompts) * max_tokens, best_of)
    return ChatRequest.of(request, query, echo={**body, "max_tokens": max_tokens})


def _priced_query(texts: list[str], max_tokens: int, samples: int) -> Query:
    """Return a query that costs at least as much as the request: all texts are read once for each sample."""
    return Query.from_messages(
        tuple(Message("user", text) for text in texts), Options(max_tokens=max_tokens, n=samples)
    )


def _read_texts(given: Texts, name: str) -> list[str]:
    """Return the texts; tokens become text."""
    if isinstance(given, str):
        return [given]
    if all(isinstance(token, int) for token in given):
        return [" ".join(map(str, given))]
    if len(given) > MAX_INPUTS:
        raise bad_field(name, f"{len(given)} texts are more than {MAX_INPUTS}")
    if any(isinstance(text, int) for text in given):
        raise bad_field(name, "must be a string, a list of strings, a list of tokens or a list of such lists")
    return [" ".join(map(str, text)) if isinstance(text, list) else str(text) for text in given]


class PassThrough(Endpoint):
    """An ASGI application for one of these addresses."""

    def _parse(self, value: Any) -> ChatRequest:
        return self._protocol.read(value)

    async def _answer(self, state: RequestState) -> None:
        service = self._service
        chat_request, options = await self._receive(state)
        if "model" not in options:
            raise bad_field("model", f"{chat_request.model!r} routes questions; name the model that this goes to")
        if Path.SIMPLE not in options.get("paths", Path):
            raise ApiError(403, "this key may not use the simple path", "path_not_allowed", "model")
        card = service.settings.card(options["model"])
        provider = service.settings.providers.get(card.provider)
        if provider is not None and provider.kind != "openai":
            kind = f"{card.provider} is of kind {provider.kind}"
            raise bad_field("model", f"{kind}; /v1/{self._protocol.name} needs a provider of kind openai")
        ledger, _ = await self._open_ledger(state, chat_request, options)
        wished = chat_request.query.options
        calls = len(chat_request.query.messages) * wished.n if self._protocol.name == "completions" else 1
        if ledger.limits.calls is not None and calls > ledger.limits.calls:
            raise BudgetExceeded(f"max_calls = {ledger.limits.calls}, and this request asks for {calls}")
        if ledger.affordable(card, chat_request.query.messages, wished.max_tokens, wished.n) < wished.n:
            raise BudgetExceeded(f"only a part of the {wished.n} samples fits the limits; lower best_of or n")
        request = Request(
            model=card.id,
            messages=chat_request.query.messages,
            sampling=Sampling(max_tokens=wished.max_tokens),
            n=wished.n,
            timeout_s=service.odar.settings.fast.timeout_s,
            retry_rate_limit=False,
            unlisted_model=card.name not in service.settings.models,
        )
        sent, note = select_body(
            {**chat_request.echo, "model": card.id},
            self._protocol.name,
            forward=() if provider is None else provider.forward,
            dropped=card.drop,
            cost_limited=ledger.limits.cost_usd is not None,
        )
        to, address = service.odar.providers[card.provider], f"/{self._protocol.name}"

        async def forward(request: Request) -> Reply:
            return await to.forward(address, sent, request)

        with CancelOnDisconnect(state.exchange):
            reply = await ledger.bill(Step.ANSWER, card, request, request.messages, forward)
        await self._respond(state, reply, ledger.spend(), note, stream=chat_request.stream)

    async def _respond(self, state: RequestState, reply: Reply, spend: Spend, note: str, *, stream: bool) -> None:
        payload = dict((reply.completions[0].wire or Wire("openai", {})).value)
        if isinstance(usage := payload.get("usage"), dict):
            payload["usage"] = {**usage, "cost": spend.cost_usd}
        payload["odar"] = {
            "trace_id": state.trace_id,
            "calls": spend.calls,
            "cost_usd": spend.cost_usd,
            "degraded": bool(note),
            "degradations": [note] if note else [],
        }
        headers = [(b"x-odar-trace", state.trace_id.encode()), *spend_headers(spend)]
        data = await asyncio.to_thread(dump_json, payload)
        if stream and "choices" in payload:  # the whole answer in one event
            await state.exchange.respond(
                200, b"data: %b\n\ndata: [DONE]\n\n" % data, [*EVENT_STREAM_HEADERS, *headers]
            )
        else:
            await state.exchange.respond(200, data, [*JSON_HEADERS, *headers])
