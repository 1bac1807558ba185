"""ODAR inside a LiteLLM proxy (SPEC 11.2): LiteLLM keeps keys and providers, ODAR decides which model to ask.

`handler` is a custom provider of LiteLLM, set in its `config.yaml`. The model of a deployment lists the agents, by
names of the proxy's own `model_list`:

    model_list:
      - {model_name: odar, litellm_params: {model: "odar/gpt-4.1-nano>gemini-flash-lite>gpt-4.1"}}
    litellm_settings:
      custom_provider_map: [{provider: odar, custom_handler: odar.litellm_plugin.handler}]

Every call goes through the proxy's router, with its fallbacks and callbacks, and is charged to the client's key;
the request itself costs nothing more. Prices, context lengths and abilities are those that LiteLLM knows. ODAR's
own settings, such as `routing.dial` or a calibration, come from `odar.toml` and ODAR_* variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from odar.background import CURRENT_KEY
from odar.catalogue import ModelCard
from odar.config import load_settings
from odar.engine import Odar
from odar.errors import OdarError, ProviderError, ProviderProtocolError, ProviderTimeout, SettingsError, one_line
from odar.options import AskOptions
from odar.providers.base import Delta, OnDelta, Provider, Reply, Request
from odar.providers.openai import StreamedReply, chat_body, read_reply
from odar.serving.errors import ApiError, api_error_of
from odar.serving.protocols.chat import ChatWriter, read_chat
from odar.serving.protocols.chat_request import ChatRequest
from odar.serving.protocols.reply import openai_usage
from odar.types import FAST, SECOND, SLOW, Answer

PROVIDER = "litellm"
_TIMEOUT_STATUSES = (408, 504)
Chunk = dict[str, Any]
"""A `GenericStreamingChunk` of LiteLLM."""
_PARAMS: ContextVar[Mapping[str, Any]] = ContextVar("odar_litellm_params")
"""LiteLLM's own parameters of the request."""
_LITELLM_ONLY = frozenset({"stream", "max_retries"})
"""Parameters of a request that are for LiteLLM itself."""


class RequestFailed(Exception):
    """An error whose status LiteLLM sends to the client, like its own `CustomLLMError`."""

    def __init__(self, error: Exception) -> None:
        found = api_error_of(error)
        super().__init__(found.message)
        self.status_code = found.status
        self.message = found.message


class OdarLLM:
    """Answers requests to models of provider `odar` by a cascade of other models; has the methods of a `CustomLLM`.

    Args:
        router: a `litellm.Router`; None takes the proxy's.
        settings: settings of ODAR, as for `load_settings`, such as `routing__dial="economy"`.
    """

    def __init__(self, router: Any = None, **settings: Any) -> None:
        self._router = router
        self._settings = settings
        self._engines: dict[str, Odar] = {}
        self._opening = asyncio.Lock()

    @property
    def router(self) -> Any:
        if self._router is None:
            from litellm.proxy import proxy_server

            return proxy_server.llm_router
        return self._router

    async def acompletion(self, **fields: Any) -> Any:
        request = _read_request(fields)
        answer = await self._ask(request, fields)
        reply = type(fields["model_response"])(**ChatWriter(request, answer.trace.id).body(answer))
        reply._hidden_params["response_cost"] = 0.0  # every call has been charged already
        return reply

    async def astreaming(self, **fields: Any) -> AsyncIterator[Chunk]:
        """Answer a request; text is streamed while it is generated if no other stage can follow."""
        request = _read_request(fields)
        parts: asyncio.Queue[Delta | None] = asyncio.Queue()
        work = asyncio.create_task(self._ask(request, fields, parts.put_nowait))
        work.add_done_callback(lambda _: parts.put_nowait(None))
        streamed = False
        try:
            while (part := await parts.get()) is not None:
                streamed = streamed or bool(part.text or part.tool_calls)
                for chunk in _chunks(part):
                    yield chunk
            answer = await work
        finally:
            work.cancel()
        winner = answer.trace.winner
        writer = ChatWriter(request, answer.trace.id)
        for part in () if streamed else writer.deltas(winner):
            for chunk in _chunks(part):
                yield chunk
        usage = {name: value for name, value in (openai_usage(answer.trace.spend) or {}).items() if name != "cost"}
        last = _chunk(finish_reason=winner.finish, is_finished=True, usage=usage or None)  # LiteLLM would charge it
        yield last | {"provider_specific_fields": {"odar": writer.odar_object(answer)}}

    async def _ask(
        self, request: ChatRequest, fields: Mapping[str, Any], on_delta: OnDelta | None = None
    ) -> Answer:
        """Answer the request; ODAR's errors get the status that its gateway would send."""
        params = fields.get("litellm_params") or {}
        key = str(_metadata(params).get("user_api_key_hash") or "")
        old_params = _PARAMS.set(params)
        old_key = CURRENT_KEY.set(key)  # of shared statistics, each key has a part
        try:
            odar = await self._engine(request.model)
            limits = request.odar
            timeout = fields.get("timeout")
            deadlines = [each for each in (limits.deadline_s, timeout) if isinstance(each, int | float)]
            ledger = odar.agents.ledger(limits.max_calls, limits.max_cost_usd, min(deadlines, default=None))
            options = AskOptions(
                path=limits.path,
                dial=limits.read_dial(),
                scope=f"request of key {key}" if key else "request",
                ledger=ledger,
                on_delta=on_delta,
            )
            return await odar.aask(request.query, options)
        except (OdarError, ApiError) as error:
            raise RequestFailed(error) from None
        finally:
            _PARAMS.reset(old_params)
            CURRENT_KEY.reset(old_key)

    async def _engine(self, model: str) -> Odar:
        """The engine whose agents a model names; opened with the first request to it."""
        async with self._opening:
            if model not in self._engines:
                self._engines[model] = await asyncio.to_thread(self._open, model)
            return self._engines[model]

    def _open(self, model: str) -> Odar:
        listed = (each["litellm_params"]["model"] for each in self.router.get_model_list() or ())
        if f"odar/{model}" not in listed:  # a client must not name models that its key may not use
            raise SettingsError(f"no deployment of the model_list has the model 'odar/{model}'")
        groups = [name.strip() for name in model.split(">")]
        if len(groups) not in (2, 3) or not all(groups):
            raise SettingsError(
                f"model 'odar/{model}' must name two or three models: odar/FAST>SLOW or odar/FAST>SECOND>SLOW"
            )
        agents = dict(zip((FAST, SECOND, SLOW) if len(groups) == 3 else (FAST, SLOW), groups, strict=True))
        agent_settings: dict[str, Any] = {f"{agent}__model": name for agent, name in agents.items()}
        settings = load_settings(
            "custom",
            models={name: self._card(name) for name in groups},
            providers={PROVIDER: {"kind": "openai", "base_url": "http://litellm.invalid"}},
            **agent_settings,
            **self._settings,
        )
        if others := set(settings.agent_names) - set(agents):
            raise SettingsError(f"{', '.join(sorted(others))} of ODAR's settings has no place in 'odar/{model}'")
        return Odar(settings, providers={PROVIDER: RouterProvider(self.router)})

    def _card(self, name: str) -> dict[str, Any]:
        """What LiteLLM knows about a model of its list, as settings of ODAR."""
        deployments = self.router.get_model_list(name)
        info = self.router.get_model_group_info(name) if deployments else None
        if info is None:
            raise SettingsError(f"LiteLLM's model_list has no model {name!r}")
        params = info.supported_openai_params or ()
        first = deployments[0]["litellm_params"]["model"]
        if first.startswith("odar/"):
            raise SettingsError(f"model {name!r} is a cascade itself; name models of providers")
        shipped = load_settings("tiny", environ={})
        known = first.rpartition("/")[2]
        card = {
            "provider": PROVIDER,
            "scores": dict(shipped.card(known).scores) if known in shipped.models else {},
            "images": info.supports_vision,
            "logprobs": "logprobs" in params,
            "n": "n" in params,
            "family": ModelCard(name, info.providers[0], first).model_family,
        }
        if info.max_input_tokens:
            card["context"] = int(info.max_input_tokens)
        if info.input_cost_per_token is not None and info.output_cost_per_token is not None:
            card["price"] = {"input": info.input_cost_per_token * 1e6, "output": info.output_cost_per_token * 1e6}
        return card


class RouterProvider(Provider):
    """Reaches models through LiteLLM's router, which has the keys and does retries and fallbacks."""

    name = PROVIDER

    def __init__(self, router: Any) -> None:
        self._router = router

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request; parameters that a model does not take are dropped."""
        on_delta = on_delta if request.n == 1 else None
        body = chat_body(request, stream=on_delta is not None)
        try:
            response = await self._router.acompletion(
                **body, **_caller(_PARAMS.get()), drop_params=True, timeout=request.timeout_s
            )
            if on_delta is None:
                return read_reply(response.model_dump(), alternatives=request.parameters.top_logprobs is not None)
            reply = StreamedReply()
            async for event in response:
                on_delta(reply.feed(event.model_dump()))
            return reply.reply()
        except Exception as error:  # LiteLLM's are those of all providers' packages
            status = getattr(error, "status_code", None)
            if status in _TIMEOUT_STATUSES or isinstance(error, TimeoutError):
                kind: type[ProviderError] = ProviderTimeout
            else:  # without a status, reading the response failed
                kind = ProviderProtocolError if status is None else ProviderError
            billed = kind is not ProviderError
            raise kind(one_line(error), provider=self.name, status=status, may_be_billed=billed) from None


def _read_request(fields: Mapping[str, Any]) -> ChatRequest:
    """The request of a client, which LiteLLM passes in parts."""
    given = {name: value for name, value in fields["optional_params"].items() if name not in _LITELLM_ONLY}
    try:
        return read_chat({**given, "model": fields["model"], "messages": fields["messages"]})
    except ApiError as error:
        raise RequestFailed(error) from None


def _caller(params: Mapping[str, Any]) -> dict[str, Any]:
    """The part of LiteLLM's metadata that says who calls, for one call: the router adds to it."""
    known = {
        name: value for name, value in _metadata(params).items() if name.startswith("user_api_") or name == "tags"
    }
    return {"metadata": known, "litellm_trace_id": params.get("litellm_trace_id")}


def _metadata(params: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = params.get("metadata") or params.get("litellm_metadata") or {}
    return metadata


def _chunk(text: str = "", **more: Any) -> Chunk:
    return {
        "text": text,
        "is_finished": False,
        "finish_reason": "",
        "usage": None,
        "index": 0,
        "tool_use": None,
    } | more


def _chunks(part: Delta) -> Iterator[Chunk]:
    if part.text:
        yield _chunk(part.text)
    for index, call in part.tool_calls:
        function = {"name": call.name or None, "arguments": call.arguments}
        yield _chunk(tool_use={"id": call.id or None, "type": "function", "index": index, "function": function})


handler = OdarLLM()
"""For `custom_handler` in LiteLLM's config.yaml."""
