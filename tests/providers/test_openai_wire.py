from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import ChatParameters, Format, Tool, ToolCall, ToolChoice, Wire
from odar.errors import ProviderError
from odar.providers.base import Completion, Delta, Message, Sampling
from odar.providers.openai import StreamedReply, chat_body, read_reply
from odar.types import Image, Token, Usage
from support.payloads import chat_events, chat_payload
from support.requests import ask


def reply_with(message: dict[str, Any], **choice: Any) -> Completion:
    return read_reply({"choices": [{"message": message, **choice}]}).completions[0]


def tokens_of(*entries: dict[str, Any]) -> tuple[Token, ...]:
    return reply_with({"content": "x"}, logprobs={"content": list(entries)}).tokens


class TestBody:
    def test_all_fields(self) -> None:
        sampling = Sampling(temperature=0.6, top_p=0.95, max_tokens=7, stop=("<|eot_id|>",), seed=42)
        request = ask(sampling=sampling, n=5)
        assert chat_body(request, stream=True) == {
            "model": "m",
            "messages": [{"role": "user", "content": "2 + 2?"}],
            "temperature": 0.6,
            "top_p": 0.95,
            "max_tokens": 7,
            "stop": ["<|eot_id|>"],
            "seed": 42,
            "n": 5,
            "logprobs": True,
            "top_logprobs": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def test_unrequested_fields_are_not_sent(self) -> None:
        body = chat_body(ask(logprobs=False))
        assert set(body) == {"model", "messages", "temperature", "top_p", "max_tokens"}

    def test_quirks(self) -> None:
        extra = {"reasoning_effort": "none"}
        drop = ("temperature", "top_p")
        body = chat_body(ask(max_tokens_field="max_completion_tokens", drop=drop, extra=extra, logprobs=False))
        assert set(body) == {"model", "messages", "max_completion_tokens", "reasoning_effort"}

    def test_images(self) -> None:
        images = (Image("image/png", b"..."), Image("image/png", url="https://x/y.png"))
        (message,) = chat_body(ask(messages=(Message("user", "what?", images),)))["messages"]
        assert message["content"] == [
            {"type": "text", "text": "what?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,Li4u"}},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        ]


class TestTokens:
    def test_a_character_split_over_two_tokens_is_joined(self) -> None:
        smile = list("😀".encode())
        tokens = tokens_of(
            {"token": "\\xf0\\x9f", "bytes": smile[:2], "logprob": -1.0},
            {"token": "\\x98\\x80", "bytes": smile[2:], "logprob": -0.5},
            {"token": "!", "bytes": None, "logprob": -0.1},
        )
        assert tokens == (Token("", -1.0), Token("😀", -0.5), Token("!", -0.1))

    @given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.data())
    def test_token_texts_add_up_for_any_split(self, text: str, data: st.DataObject) -> None:
        raw = text.encode()
        edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(raw))))), len(raw)]
        entries = [{"token": "?", "bytes": list(raw[a:b]), "logprob": -1} for a, b in pairwise(edges)]
        assert "".join(token.text for token in tokens_of(*entries)) == text

    @pytest.mark.parametrize(
        ("reported", "kept"),
        [
            (-0.25, -0.25),
            (0, 0.0),
            (-3, -3.0),
            (None, None),
            (float("nan"), None),
            (float("-inf"), None),
            (0.1, None),
            (10**400, None),
            (-9999.0, None),
            ("-0.1", None),
        ],
    )
    def test_invalid_log_probabilities_are_none(self, reported: Any, kept: float | None) -> None:
        assert tokens_of({"token": "a", "logprob": reported}) == (Token("a", kept),)

    @pytest.mark.parametrize(
        "text",
        ["<|eot_id|>", "<|im_end|>", "</s>", "<s>", "<eos>", "<pad>", "<end_of_turn>", "<｜end▁of▁sentence｜>"],
    )
    def test_control_tokens_are_recognised(self, text: str) -> None:
        assert tokens_of({"token": text, "logprob": -0.1})[0].control

    def test_a_token_without_text_is_control(self) -> None:
        assert tokens_of({"token": "", "bytes": [], "logprob": -0.1}) == (Token("", -0.1, True),)

    @pytest.mark.parametrize("text", ["a", "<", "<|", "<div>", " ", "\n", "s>"])
    def test_tokens_that_are_not_control(self, text: str) -> None:
        assert not tokens_of({"token": text, "bytes": list(text.encode()), "logprob": -0.1})[0].control

    def test_the_legacy_logprobs_format_is_read(self) -> None:
        logprobs = {"tokens": ["a", "</s>"], "token_logprobs": [-0.1, None]}
        assert reply_with({"content": "a"}, logprobs=logprobs).tokens == (
            Token("a", -0.1),
            Token("</s>", None, True),
        )

    @pytest.mark.parametrize("logprobs", [None, {}, {"content": None}, {"content": []}])
    def test_no_log_probabilities(self, logprobs: Any) -> None:
        assert reply_with({"content": "a"}, logprobs=logprobs).tokens == ()


class TestText:
    @pytest.mark.parametrize(
        ("message", "text"),
        [
            ({"content": "4"}, "4"),
            ({"content": None}, ""),
            ({}, ""),
            ({"content": None, "refusal": "I cannot."}, "I cannot."),
            ({"content": "4", "reasoning_content": "2 and 2"}, "4"),
            ({"content": None, "reasoning_content": "2 and"}, ""),
            ({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "4"}]}, "4"),
            ({"content": "<think>2 and 2</think>\n\n4"}, "4"),
            ({"content": "<think>2 and"}, ""),
        ],
    )
    def test_reasoning_is_not_part_of_the_answer(self, message: dict[str, Any], text: str) -> None:
        assert reply_with(message, finish_reason="stop").text == text
        assert reply_with(message).text == text

    def test_tokens_of_the_reasoning_are_removed(self) -> None:
        pieces = ["<think>", "hm", "</think>", "\n\n", "It is", " 4", "<|im_end|>"]
        entries = [{"token": piece, "logprob": -0.1} for piece in pieces]
        thought_aloud = reply_with({"content": "".join(pieces[:-1])}, logprobs={"content": entries})
        assert [token.text for token in thought_aloud.tokens] == ["It is", " 4", "<|im_end|>"]
        apart = reply_with({"content": "It is 4", "reasoning_content": "hm"}, logprobs={"content": entries})
        assert apart.tokens == thought_aloud.tokens

    def test_an_answer_of_only_reasoning_has_no_tokens(self) -> None:
        entries = [{"token": "<think>", "logprob": -0.1}]
        assert reply_with({"content": "<think>"}, logprobs={"content": entries}).tokens == ()


class TestUsage:
    @pytest.mark.parametrize(
        ("reported", "usage"),
        [
            (None, Usage()),
            ({}, Usage()),
            ({"prompt_tokens": 9, "completion_tokens": 3}, Usage(9, 0, 3, 0, 0, 0)),
            ({"prompt_tokens": 9}, Usage(9, 0, None, None, 0, 0)),
            ({"prompt_tokens": "9", "completion_tokens": -1}, Usage()),
            ({"prompt_tokens": 9, "completion_tokens": 3, "prompt_cache_hit_tokens": 8}, Usage(9, 8, 3, 0, 0, 0)),
            (
                {
                    "prompt_tokens": 9,
                    "completion_tokens": 3,
                    "prompt_tokens_details": {"cached_tokens": 4},
                    "completion_tokens_details": {"reasoning_tokens": 2},
                },
                Usage(9, 4, 3, 2, 0, 0),
            ),
            (
                {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": None},
                Usage(9, 0, 3, 0, 0, 0),
            ),
        ],
    )
    def test_unreported_usage_is_unknown(self, reported: Any, usage: Usage) -> None:
        assert read_reply(chat_payload("4", usage=reported)).usage == usage

    @pytest.mark.parametrize("name", ["cache_write_tokens", "cache_creation_input_tokens"])
    def test_cache_writes_are_counted_separately(self, name: str) -> None:
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2, name: 6}}
        assert read_reply(chat_payload("4", usage=usage)).usage == Usage(9, 2, 3, 0, 6, 0)

    @pytest.mark.parametrize("where", ["prompt_tokens_details", "completion_tokens_details"])
    def test_audio_tokens_are_unpriced(self, where: str) -> None:
        usage = {"prompt_tokens": 9, "completion_tokens": 3}
        assert read_reply(chat_payload("4", usage=usage | {where: {"audio_tokens": 1}})).usage.unpriced
        assert not read_reply(chat_payload("4", usage=usage | {where: {"audio_tokens": 0}})).usage.unpriced

    @pytest.mark.parametrize(("tier", "unpriced"), [("flex", True), ("priority", True), ("default", False)])
    def test_another_service_tier_is_unpriced(self, tier: str, unpriced: bool) -> None:
        assert read_reply(chat_payload("4", service_tier=tier)).usage.unpriced is unpriced

    def test_uncounted_reasoning_is_unknown(self) -> None:
        assert read_reply(chat_payload("<think>hm</think>4")).usage == Usage(10, 0, 5, None, 0, 0)


class TestReply:
    def test_choices_are_sorted_by_index(self) -> None:
        payload = chat_payload("a", "b", "c")
        payload["choices"].reverse()
        assert [completion.text for completion in read_reply(payload).completions] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("reported", "finish"),
        [
            ("stop", "stop"),
            ("length", "length"),
            ("eos", "stop"),
            ("content_filter", "content_filter"),
            (None, "stop"),
        ],
    )
    def test_finish_reasons(self, reported: str | None, finish: str) -> None:
        assert reply_with({"content": "4"}, finish_reason=reported).finish == finish

    def test_the_served_model_is_read(self) -> None:
        assert read_reply(chat_payload("4")).model == "served"
        assert read_reply(chat_payload("4", model=None)).model == ""

    @pytest.mark.parametrize(
        "payload",
        [{}, {"choices": []}, {"choices": None}, {"choices": [None]}, {"choices": [{"message": None}]}],
    )
    def test_invalid_payloads_are_rejected(self, payload: dict[str, Any]) -> None:
        with pytest.raises((LookupError, TypeError, ValueError, AttributeError)):
            read_reply(payload)


class TestStream:
    def test_a_stream_gives_the_same_reply_as_a_whole_answer(self) -> None:
        text = "one two three"
        usage = {"prompt_tokens": 10, "completion_tokens": 3}
        streamed = StreamedReply()
        assert "".join(streamed.feed(event).text for event in chat_events(text)) == text
        assert streamed.finished
        assert streamed.reply() == read_reply(chat_payload(text, usage=usage))

    def test_reasoning_is_not_streamed_as_text(self) -> None:
        streamed = StreamedReply()
        events = [
            {"choices": [{"delta": {"reasoning_content": "hm"}}]},
            {"choices": [{"delta": {"content": None}}]},
            *chat_events("<think> let us see </think> it is 4"),
        ]
        assert "".join(streamed.feed(event).text for event in events) == "it is 4"
        assert streamed.reply().completions[0].text == "it is 4"
        assert streamed.reply().usage.reasoning is None

    def test_other_choices_are_ignored(self) -> None:
        streamed = StreamedReply()
        assert streamed.feed({"choices": [{"index": 1, "delta": {"content": "no"}}]}) == Delta()

    def test_an_empty_stream_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no choices"):
            StreamedReply().reply()


CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


class TestTools:
    def test_tools_are_sent(self) -> None:
        schema = {"type": "object"}
        parameters = ChatParameters(
            tools=(Tool("weather", "How is it?", schema), Tool("now")),
            tool_choice=ToolChoice("tool", "weather"),
            parallel_tools=False,
            format=Format(schema, "place"),
            user="ann",
            top_logprobs=5,
            extra={"service_tier": "flex"},
        )
        body = chat_body(ask(parameters=parameters))
        assert body["tools"] == [
            {
                "type": "function",
                "function": {"name": "weather", "description": "How is it?", "parameters": schema},
            },
            {"type": "function", "function": {"name": "now"}},
        ]
        assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
        assert body["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "place", "schema": schema},
        }
        assert (body["parallel_tool_calls"], body["user"], body["top_logprobs"]) == (False, "ann", 5)
        assert body["service_tier"] == "flex"

    def test_fields_of_another_protocol_are_not_sent(self) -> None:
        parameters = ChatParameters(protocol="anthropic", extra={"thinking": {"type": "enabled"}})
        assert "thinking" not in chat_body(ask(parameters=parameters))

    def test_turns(self) -> None:
        written = {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}], "name": "ann"}
        messages = (
            Message("user", "", wire=Wire("openai", written), untranslated=("input_audio",)),
            Message("assistant", "", tool_calls=(ToolCall("c1", "weather", '{"city": "Rome"}'),)),
            Message("tool", "sunny", tool_call_id="c1"),
        )
        assert chat_body(ask(messages=messages))["messages"] == [
            written,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
        ]

    def test_untranslatable_content_is_rejected(self) -> None:
        message = Message("user", "", wire=Wire("anthropic", {}), untranslated=("document",))
        with pytest.raises(ProviderError, match="type document") as caught:
            chat_body(ask(messages=(message,)))
        assert caught.value.status == 400

    def test_a_tool_call_is_the_same_whole_and_streamed(self) -> None:
        whole = reply_with({"content": None, "tool_calls": [CALL]}, finish_reason="stop")
        assert whole.tool_calls == (ToolCall("c1", "weather", '{"city": "Rome"}'),)
        assert (whole.text, whole.finish) == ("", "tool_calls")
        assert whole.wire is not None
        streamed = StreamedReply()
        deltas = [
            {"index": 0, "id": "c1", "function": {"name": "weather", "arguments": ""}},
            {"index": 0, "function": {"arguments": '{"city": '}},
            {"index": 0, "function": {"arguments": '"Rome"}'}},
            {"index": 1, "id": "c2", "function": {"name": "now", "arguments": "{}"}},
        ]
        pieces = [streamed.feed({"choices": [{"delta": {"tool_calls": [delta]}}]}) for delta in deltas]
        assert [piece.tool_calls[0][0] for piece in pieces] == [0, 0, 0, 1]
        (completion,) = streamed.reply().completions
        assert completion.tool_calls == (*whole.tool_calls, ToolCall("c2", "now", "{}"))

    def test_arguments_may_be_an_object(self) -> None:
        call = {"id": "c1", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
        assert reply_with({"content": "", "tool_calls": [call]}).tool_calls[0].arguments == '{"city": "Rome"}'
