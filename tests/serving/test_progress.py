"""Streams on Medium and Hard: progress at once, then the winning answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odar.providers.base import Completion, Delta, OnDelta, Provider, Reply, Request
from odar.types import Token, Usage

DRAFT, FINAL = "Four, I think.", "The answer is four."
TOOL = {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}


class Gated(Provider):
    """A model that waits before it answers, so that a test sees the earlier events."""

    def __init__(self, name: str, text: str, logprob: float = -0.1, *, calls: Any = ()) -> None:
        self.name, self.text, self.logprob, self.calls = name, text, logprob, calls
        self.go = asyncio.Event()

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        await self.go.wait()
        if on_delta is not None:
            for word in self.text.split(" "):
                on_delta(Delta(word + " "))
        finish = "tool_calls" if self.calls else "stop"
        each = Completion(self.text, (Token(self.text, self.logprob),), finish, tuple(self.calls))
        return Reply((each,) * request.n, Usage(10, 0, 5, 0), request.model)

    async def check(self) -> str:
        return "ready"

    async def close(self) -> None: ...


@pytest.fixture
async def pair() -> dict[str, Gated]:
    return {"f": Gated("f", DRAFT, -3.0), "s": Gated("s", FINAL, -0.01)}


async def begin(start: Any, pair: dict[str, Gated], **settings: Any) -> Any:
    return await start(app_options={"providers": pair}, **settings)


@pytest.mark.parametrize(("path", "stage"), [("medium", "fast (quick)"), ("hard", "fast (quick), slow*5 (deep)")])
async def test_chat_shows_progress_before_any_model_has_answered_then_draft_and_answer(start, pair, path, stage):
    live = await begin(start, pair)
    messages = [{"role": "user", "content": "2 + 2?"}]
    stream = await live.openai.chat.completions.create(model=f"odar-{path}", messages=messages, stream=True)
    reasoning, text = "", ""
    async for chunk in stream:
        delta = chunk.choices[0].delta
        reasoning += getattr(delta, "reasoning_content", None) or ""
        text += delta.content or ""
        if reasoning and not pair["f"].go.is_set():
            assert reasoning.startswith(f"{stage}: ")
            pair["f"].go.set()
        if DRAFT in reasoning:
            pair["s"].go.set()
    assert DRAFT in reasoning
    assert text == FINAL


async def test_responses_show_progress_as_a_reasoning_summary(start, pair):
    live = await begin(start, pair)
    seen = ""
    async with live.openai.responses.stream(model="odar-medium", input="2 + 2?") as events:
        async for event in events:
            if event.type == "response.reasoning_summary_text.delta":
                seen += event.delta
                for model in pair.values():
                    model.go.set()
        final = await events.get_final_response()
    assert DRAFT in seen
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output_text == FINAL


@pytest.mark.parametrize("asked", [True, False])
async def test_messages_show_progress_as_thinking_only_if_thinking_was_requested(start, pair, asked):
    live = await begin(start, pair)
    thinking: Any = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if asked else {}
    if not asked:
        for model in pair.values():
            model.go.set()
    body = {
        "model": "odar-medium",
        "max_tokens": 2048,
        "messages": [{"role": "user", "content": "2 + 2?"}],
        **thinking,
    }
    async with live.anthropic.messages.stream(**body) as events:
        async for event in events:
            if event.type == "thinking":
                for model in pair.values():
                    model.go.set()
        message = await events.get_final_message()
    assert [block.type for block in message.content] == (["thinking", "text"] if asked else ["text"])
    assert message.content[-1].text == FINAL
    if asked:
        again = [*body["messages"], {"role": "assistant", "content": [b.model_dump() for b in message.content]}]
        body["messages"] = [*again, {"role": "user", "content": "Sure?"}]
        assert (await live.anthropic.messages.create(**body)).content[-1].text == FINAL


async def test_tool_calls_follow_the_progress(start, pair):
    from odar.conversation import ToolCall

    for model in pair.values():
        model.text, model.calls = "", (ToolCall("c1", "add", "{}"),)
        model.go.set()
    live = await begin(start, pair)
    messages = [{"role": "user", "content": "2 + 2?"}]
    body = {"model": "odar-medium", "messages": messages, "tools": [{"type": "function", "function": TOOL}]}
    async with live.openai.chat.completions.stream(**body) as events:
        async for _ in events:
            pass
        message = (await events.get_final_completion()).choices[0].message
    assert [call.function.name for call in message.tool_calls or ()] == ["add"]


async def test_progress_can_be_disabled(start, pair):
    for model in pair.values():
        model.go.set()
    live = await begin(start, pair, gateway__stream_progress=False)
    body = {"model": "odar-medium", "messages": [{"role": "user", "content": "2 + 2?"}], "stream": True}
    _, text = await live.text("/v1/chat/completions", body)
    assert "reasoning_content" not in text
