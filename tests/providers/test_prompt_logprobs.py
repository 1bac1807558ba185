from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import ProviderError
from odar.providers.anthropic import AnthropicProvider
from odar.providers.base import Message, Request
from odar.providers.breaker import Breaker, GuardedProvider
from odar.providers.openai import OpenAIProvider, read_scores, score_body
from support.fault_server import FaultServer, answer, no_logprobs, status
from support.vllm import entry, prompt_payload, scorer

ASK = Request("m", (Message("system", "Be brief."), Message("user", "2 + 2?")))


def test_the_text_is_sent_as_an_unfinished_turn():
    body = score_body(ASK, " It is 4.\n")
    assert body["messages"][-1] == {"role": "assistant", "content": "It is 4."}
    assert [body[name] for name in ("prompt_logprobs", "add_generation_prompt", "continue_final_message")] == [
        0,
        False,
        True,
    ]
    assert (body["max_tokens"], body["temperature"], "logprobs" in body, "stream" in body) == (1, 0.0, False, False)


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=40).filter(str.strip)


@given(texts, st.integers(1, 4), st.text("ab\n: ", max_size=12))
def test_scored_tokens_join_to_the_text(text, width, template):
    """For any tokenizer, including splits inside characters."""
    text = text.strip()
    if "\ufffd" in text:
        return
    reply = read_scores(prompt_payload(template, text, width), text)
    tokens = reply.completions[0].tokens
    read = "".join(token.text for token in tokens)
    assert [char for char in read if char.isascii()] == [char for char in text if char.isascii()]
    assert len(tokens) == len(prompt_payload("", text, width)["prompt_logprobs"][1:])
    assert all(token.logprob is not None for token in tokens)


def test_a_token_shared_with_the_template_counts_for_the_text():
    payload = {"prompt_logprobs": [None, entry("\n\nIt", -0.5), entry(" is", -0.25)]}
    assert read_scores(payload, "It is").completions[0].tokens == (("It", -0.5, False), (" is", -0.25, False))


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"prompt_logprobs": None},
        {"prompt_logprobs": []},
        {"prompt_logprobs": [None, entry("something else", -1.0)]},
        {"prompt_logprobs": [None]},
    ],
)
def test_scores_of_another_text_are_rejected(payload: dict[str, Any]):
    with pytest.raises(ValueError, match="prompt_logprobs"):
        read_scores(payload, "It is 4.")


async def test_a_server_with_prompt_logprobs_scores_a_text():
    async with FaultServer() as server:
        server.behave(scorer())
        provider = OpenAIProvider("vllm", server.url)
        reply = await provider.score(ASK, "It is 4.")
        assert [token.text for token in reply.completions[0].tokens] == ["It ", "is ", "4."]
        assert reply.usage.input == 8
        await provider.close()


async def test_a_server_without_prompt_logprobs_is_named():
    async with FaultServer() as server:
        provider = OpenAIProvider("other", server.url)
        server.behave(no_logprobs())
        with pytest.raises(ProviderError, match="cannot score a given text"):
            await provider.score(ASK, "It is 4.")
        server.behave(status(400))
        with pytest.raises(ProviderError, match="HTTP 400"):
            await provider.score(ASK, "It is 4.")
        await provider.close()


async def test_a_provider_without_scores_raises():
    with pytest.raises(ProviderError, match="anthropic cannot score a given text") as caught:
        await AnthropicProvider("anthropic").score(ASK, "4")
    assert not caught.value.may_be_billed


async def test_an_open_breaker_rejects_scoring():
    async with FaultServer() as server:
        server.behave(answer({"error": {"message": "down"}}, 503))
        inner = OpenAIProvider("vllm", server.url)
        provider = GuardedProvider(inner, Breaker(failures=1, cooldown_s=60))
        for message in ("HTTP 503", "no request is sent"):
            with pytest.raises(ProviderError, match=message):
                await provider.score(Request("m", ASK.messages, retry_billed=False, timeout_s=0.3), "4")
        await provider.close()
