"""POST /v1/embeddings and /v1/completions: requests are forwarded to the model that they name, without routing.

Keys, budgets and limits apply as to questions. `odar.forwarding` lists the fields that are forwarded.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from odar.agents.ledger import Ledger
from odar.catalogue import ModelCard
from odar.conversation import ChatParameters, Wire
from odar.errors import BudgetExceeded, plural
from odar.formats import dump_json
from odar.forwarding import select_body
from odar.providers.base import Message, Request, Sampling
from odar.serving.endpoint import Endpoint, RequestState
from odar.serving.errors import bad_field
from odar.serving.exchange import EVENT_STREAM_HEADERS, JSON_HEADERS
from odar.serving.protocols.chat import DONE
from odar.serving.protocols.chat_request import ChatRequest, RequestBody
from odar.serving.protocols.json_body import MAX_INTEGER, convert
from odar.serving.protocols.reply import spend_headers
from odar.types import DIRECT, Ask, Query

MAX_INPUTS = 2048
"""Largest number of texts in a request, as at OpenAI."""
_DEFAULT_TOKENS = 16
"""Default of `max_tokens` as OpenAI documents it; sent because other servers have other defaults or none."""
Tokens = Annotated[list[int], Meta(min_length=1)]
Texts = str | Annotated[list[str | int | Tokens], Meta(min_length=1)]
"""A text, a list of texts, a list of tokens, or a list of such lists."""


class EmbeddingsBody(RequestBody, kw_only=True):
    """The body of a request for embeddings; `odar.forwarding` lists the further fields that are forwarded."""

    input: Texts


class CompletionsBody(RequestBody, kw_only=True):
    """The body of a request to continue texts; `odar.forwarding` lists the further fields that are forwarded."""

    prompt: Texts
    suffix: str | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=MAX_INTEGER)] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=128)] | None = None


def read_embeddings(body: Any) -> ChatRequest:
    """Read a request for embeddings; `body_fields` is the body to forward."""
    request = convert(body, EmbeddingsBody)
    return request.chat_request(_priced_query(_read_texts(request.input, "input"), 0, 1), body_fields=body)


def read_completions(body: Any) -> ChatRequest:
    """Read a request for completions; `body_fields` is the body to forward, always with `max_tokens`."""
    request = convert(body, CompletionsBody)
    prompts = [prompt + (request.suffix or "") for prompt in _read_texts(request.prompt, "prompt")]
    max_tokens = _DEFAULT_TOKENS if request.max_tokens is None else request.max_tokens
    n = request.n or 1
    best_of = request.best_of or n
    if best_of < n:
        raise bad_field("best_of", f"{best_of} is less than n = {n}")
    query = _priced_query(prompts, len(prompts) * max_tokens, best_of)
    return request.chat_request(query, body_fields={**body, "max_tokens": max_tokens})


def _priced_query(texts: list[str], max_tokens: int, samples: int) -> Query:
    """A query that costs at least as much as the request: all texts are read once for each sample."""
    messages = tuple(Message("user", text) for text in texts)
    return Query.from_messages(messages, ChatParameters(max_tokens=max_tokens, n=samples))


def _read_texts(texts: Texts, name: str) -> list[str]:
    """A list of texts; tokens are written as numbers."""
    if isinstance(texts, str):
        return [texts]
    if all(isinstance(token, int) for token in texts):
        return [" ".join(map(str, texts))]
    if len(texts) > MAX_INPUTS:
        raise bad_field(name, f"has {len(texts)} texts; the limit is {MAX_INPUTS}")
    if any(isinstance(text, int) for text in texts):
        raise bad_field(name, "must be a string, a list of strings, a list of tokens or a list of such lists")
    return [" ".join(map(str, text)) if isinstance(text, list) else str(text) for text in texts]


class ForwardEndpoint(Endpoint):
    """An endpoint that forwards requests."""

    def _make_request(self, value: Any) -> ChatRequest:
        return self._read(value)

    async def _answer(self, state: RequestState) -> None:
        service = self._service
        await self._receive(state)
        card = self._card(state)
        ledger = await self._open_ledger(state)
        query = state.request.query
        self._check_limits(ledger, card, query)
        # what the provider gets
        provider = service.settings.providers.get(card.provider)
        request = Request(
            model=card.id,
            messages=query.messages,
            sampling=Sampling(max_tokens=query.parameters.max_tokens),
            n=query.parameters.n,
            timeout_s=service.odar.settings.fast.timeout_s,
            retry_rate_limit=False,
            unlisted_model=card.name not in service.settings.models,
        )
        body, note = select_body(
            {**state.request.body_fields, "model": card.id},
            self._name,
            forward=() if provider is None else provider.forward,
            dropped=card.drop,
            cost_limited=ledger.max_cost_usd is not None,
        )
        # forward it, and charge the key
        providers = service.odar.agents.providers
        _ = providers[card.provider]  # one that cannot be opened is not billed
        forward = partial(providers.forward, card.provider, f"/{self._name}", body)
        with state.exchange.cancel_on_disconnect():
            reply = await ledger.bill(Ask(DIRECT), card, request, query.messages, forward)
        await self._charge(state)
        # the reply, with its cost
        spend = ledger.spend()
        payload = dict((reply.completions[0].wire or Wire("openai", {})).value)
        if isinstance(usage := payload.get("usage"), dict):
            payload["usage"] = {**usage, "cost": spend.cost_usd}
        payload["odar"] = {
            "trace_id": state.trace_id,
            "calls": spend.calls,
            "cost_usd": spend.cost_usd,
            "degraded": False,
            "degradations": [],
            "notes": [note] if note else [],
        }
        headers = [(b"x-odar-trace", state.trace_id.encode()), *spend_headers(spend)]
        data = await asyncio.to_thread(dump_json, payload)
        content_headers = JSON_HEADERS
        if state.request.stream and "choices" in payload:  # the whole answer in one event
            data = b"data: %b\n\n%b" % (data, DONE)
            content_headers = EVENT_STREAM_HEADERS
        await state.exchange.respond(200, data, [*content_headers, *headers])

    def _card(self, state: RequestState) -> ModelCard:
        """The model of a request; raises ApiError if its server cannot have this endpoint."""
        if state.options.model is None:
            raise bad_field("model", f"{state.request.model!r} is for questions only; send the name of one model")
        card = self._service.settings.card(state.options.model)
        provider = self._service.settings.providers.get(card.provider)
        if provider is not None and provider.kind != "openai":
            kind = f"{card.provider} is of kind {provider.kind}"
            raise bad_field("model", f"{kind}; /v1/{self._name} needs a provider of kind openai")
        return card

    def _check_limits(self, ledger: Ledger, card: ModelCard, query: Query) -> None:
        """Raise BudgetExceeded unless the limits allow all of the request."""
        n = query.parameters.n
        calls = len(query.messages) * n if self._name == "completions" else 1
        if ledger.max_calls is not None and calls > ledger.max_calls:
            needed = plural(calls, "call")
            raise BudgetExceeded(f"max_calls = {ledger.max_calls}, but this request needs {needed}")
        if ledger.affordable(card, query.messages, query.parameters.max_tokens, n) < n:
            raise BudgetExceeded(f"the limits do not allow all {n} samples; lower best_of or n")
