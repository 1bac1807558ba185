"""A model of inspect_ai that is ODAR: every generation goes through the engine and leaves its trace in the log.

| model | |
|---|---|
| odar/default | adapts: the difficulty decides |
| odar/simple, odar/medium, odar/hard | one path, whatever the difficulty |

Settings come from odar.toml and `ODAR_*` as everywhere; `-M profile=paper`, `-M config=FILE` and any setting as
`-M fast__model=NAME` override them. As in the gateway, prompts leave the form of an answer to the task.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Literal

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    Content,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelAPI,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolFunction, ToolInfo

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import InputError, ProviderError, UnknownName
from odar.formats import load_json
from odar.gateway.chat import read_chat
from odar.gateway.errors import ApiError
from odar.gateway.reply import calls_of, choices
from odar.gateway.service import for_chat
from odar.inputs import load_image
from odar.settings import Settings
from odar.summary import summary
from odar.types import Answer, Candidate, Path, Query, Spend

ADAPTIVE = "default"
StopReason = Literal["stop", "max_tokens", "tool_calls", "content_filter", "unknown"]
_STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class OdarModel(ModelAPI):
    """One engine, behind the interface of inspect_ai."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - inspect_ai's own signature
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        names = (ADAPTIVE, *Path)
        if model_name not in names:
            raise UnknownName("model", f"odar/{model_name}", (f"odar/{name}" for name in names))
        if base_url is not None or api_key is not None:
            raise InputError("odar/… runs in this process: addresses and keys belong into odar.toml")
        self._path = None if model_name == ADAPTIVE else Path(model_name)
        profile, file = model_args.pop("profile", None), model_args.pop("config", None)
        self._settings = load_settings(profile, config=file, **model_args)
        self._odar = Odar(for_chat(self._settings))

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """One answer, or `num_choices` of them; `metadata["odar"]` is what `odar ask --json` prints."""
        query = read_query(input, tools, tool_choice, config)
        answer = await self._odar.aask(query, path=self._path)
        return write_output(answer, query)

    async def aclose(self) -> None:
        """Close connections and unload models."""
        await self._odar.aclose()

    def max_connections(self) -> int:
        """The local model takes one request at a time."""
        return 1 if _uses_local_model(self._settings) else super().max_connections()

    def should_retry(self, ex: Exception) -> bool:
        """What the provider calls temporary; the engine has tried already, so inspect_ai waits longer."""
        return isinstance(ex, ProviderError) and ex.retryable

    def connection_key(self) -> str:
        """All paths share the same providers."""
        return "odar"


def read_query(
    messages: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
) -> Query:
    """What inspect_ai asks, read as the gateway reads a request.

    Raises:
        InputError: it holds what ODAR cannot pass on, such as sound.
    """
    body: dict[str, Any] = {
        "model": "odar",
        "messages": [_turn(message) for message in messages],
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_tokens": config.max_tokens,
        "stop": config.stop_seqs,
        "seed": config.seed,
        "n": config.num_choices,
        "logprobs": config.logprobs or None,
        "top_logprobs": config.top_logprobs if config.logprobs else None,
        "parallel_tool_calls": config.parallel_tool_calls,
        "response_format": _format(config),
        **(config.extra_body or {}),
    }
    if tools:
        body["tools"] = [{"type": "function", "function": _described(tool)} for tool in tools]
        body["tool_choice"] = (
            {"type": "function", "function": {"name": tool_choice.name}}
            if isinstance(tool_choice, ToolFunction)
            else _TOOL_CHOICES[tool_choice]
        )
    try:
        return read_chat(body).query
    except ApiError as refusal:
        raise InputError(f"inspect_ai asked what ODAR cannot answer: {refusal.message}") from None


def write_output(answer: Answer, query: Query) -> ModelOutput:
    """The answer as inspect_ai wants it, with the trace beside it."""
    trace, wanted = answer.trace, query.options
    return ModelOutput(
        model=trace.candidates[trace.verdict.winner].model,
        choices=[_choice(each, wanted.top_logprobs is not None) for each in choices(answer, wanted.n)],
        usage=_usage(trace.spend),
        time=trace.spend.seconds,
        metadata={"odar": summary(answer)},
        response_id=trace.id,
    )


def _turn(message: ChatMessage) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": _content(message.content)}
    if isinstance(message, ChatMessageTool):
        turn["tool_call_id"] = message.tool_call_id
        if message.error is not None:
            turn["content"] = f"Error: {message.error.message}"
    if isinstance(message, ChatMessageAssistant) and message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function, "arguments": json.dumps(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return turn


def _content(content: str | list[Content]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, ContentText):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, ContentImage):
            parts.append({"type": "image_url", "image_url": {"url": _address(part.image)}})
        elif not isinstance(part, ContentReasoning):  # what another model thought is not part of the conversation
            raise InputError(f"inspect_ai asked with content of type {part.type}, which ODAR cannot pass on")
    return parts


def _address(image: str) -> str:
    """An image as an address; a file becomes one that holds its bytes."""
    if image.startswith(("http://", "https://", "data:")):
        return image
    loaded = load_image(image)
    return f"data:{loaded.media_type};base64,{base64.b64encode(loaded.data).decode()}"


def _described(tool: ToolInfo) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters.model_dump(exclude_none=True),
    }


def _format(config: GenerateConfig) -> dict[str, Any] | None:
    wanted = config.response_schema
    if wanted is None:
        return None
    schema = wanted.json_schema.model_dump(exclude_none=True)
    return {"type": "json_schema", "json_schema": {"name": wanted.name, "schema": schema}}


def _choice(candidate: Candidate, with_logprobs: bool) -> ChatCompletionChoice:
    calls = [_call(call.id, call.name, call.arguments) for call in calls_of(candidate)]
    told = [
        Logprob(token=token.text, logprob=token.logprob)
        for token in candidate.tokens
        if with_logprobs and token.logprob is not None and not token.control
    ]
    return ChatCompletionChoice(
        message=ChatMessageAssistant(
            content=candidate.text, tool_calls=calls or None, model=candidate.model, source="generate"
        ),
        stop_reason=_STOPS.get(candidate.finish, "unknown"),
        logprobs=Logprobs(content=told) if told else None,
    )


def _call(call_id: str, name: str, arguments: str) -> ToolCall:
    """A tool call; arguments that are no JSON object are the model's fault, and are reported to it."""
    try:
        parsed = load_json(arguments or "{}")
        if not isinstance(parsed, dict):
            raise ValueError("they are not an object")
    except ValueError as error:
        return ToolCall(call_id, name, {}, parse_error=f"the arguments of {name} cannot be read: {error}")
    return ToolCall(call_id, name, parsed)


def _usage(spend: Spend) -> ModelUsage | None:
    """All that was spent, over all calls; None where a provider did not say, which is not 0."""
    usage = spend.usage
    if usage.input is None or usage.output is None:
        return None
    return ModelUsage(
        input_tokens=usage.input - (usage.cached or 0),
        output_tokens=usage.output,
        total_tokens=usage.input + usage.output,
        input_tokens_cache_read=usage.cached,
        reasoning_tokens=usage.reasoning,
        total_cost=spend.cost_usd,
    )


def _uses_local_model(settings: Settings) -> bool:
    models = (*settings.fast.alternatives, settings.fast.model, settings.slow.model, *settings.slow.alternatives)
    return any(settings.providers[settings.card(model).provider].kind == "local" for model in models)
