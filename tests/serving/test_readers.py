"""Reading requests of the three protocols: every field, and the field named by an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import ToolChoice
from odar.serving.errors import ApiError
from odar.serving.openapi import Feedback
from odar.serving.protocols.chat import read_chat
from odar.serving.protocols.chat_request import ChatRequest, OdarOptions
from odar.serving.protocols.json_body import convert, read_json
from odar.serving.protocols.messages import read_messages
from odar.serving.protocols.responses import read_responses

READERS = {"chat": read_chat, "messages": read_messages, "responses": read_responses}
TURN = {"role": "user", "content": "Hi"}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def chat(**fields) -> ChatRequest:
    return read_chat({"model": "odar", "messages": [TURN], **fields})


def messages(**fields) -> ChatRequest:
    return read_messages({"model": "odar", "max_tokens": 9, "messages": [TURN], **fields})


def responses(**fields) -> ChatRequest:
    return read_responses({"model": "odar", "input": "Hi", **fields})


def said(*blocks, role="user"):
    return {"messages": [{"role": role, "content": list(blocks)}]}


# ── Anthropic's messages ────────────────────────────────────────────────────────────────────────────────────


def test_every_field_of_messages_is_read():
    ask = messages(
        system=[{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        temperature=0.5,
        top_p=0.9,
        stop_sequences=["END"],
        metadata={"user_id": "ann"},
        tools=[{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
        top_k=7,
        stream=True,
    )
    parameters, (system, user) = ask.query.parameters, ask.query.messages
    assert (system.role, system.text, user.text) == ("system", "Be brief.\n\nBe kind.", "Hi")
    assert (parameters.temperature, parameters.top_p, parameters.max_tokens, parameters.stop) == (
        0.5,
        0.9,
        9,
        ("END",),
    )
    assert (parameters.user, parameters.tools[0].name, parameters.tool_choice) == (
        "ann",
        "f",
        ToolChoice("required"),
    )
    assert (parameters.parallel_tools, parameters.format.schema) == (False, {"type": "object"})
    assert (parameters.protocol, parameters.extra, ask.stream) == ("anthropic", {"top_k": 7}, True)


@pytest.mark.parametrize(
    ("given_", "choice", "parallel"),
    [
        (None, None, None),
        ({"type": "auto"}, ToolChoice("auto"), None),
        ({"type": "none"}, ToolChoice("none"), None),
        ({"type": "tool", "name": "f", "disable_parallel_tool_use": False}, ToolChoice("tool", "f"), True),
    ],
)
def test_messages_tool_choice_is_read(given_, choice, parallel):
    parameters = messages(tool_choice=given_).query.parameters
    assert (parameters.tool_choice, parameters.parallel_tools) == (choice, parallel)


def test_tool_results_become_separate_turns():
    ask = messages(
        **said(
            {"type": "text", "text": "Here."},
            {"type": "tool_result", "tool_use_id": "a"},
            {"type": "tool_result", "tool_use_id": "b", "content": "21 °C"},
            {
                "type": "tool_result",
                "tool_use_id": "c",
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Li4u"}},
                    {"type": "document", "title": "d"},
                ],
            },
        )
    )
    *results, rest = ask.query.messages
    assert [(turn.role, turn.tool_call_id, turn.text) for turn in results] == [
        ("tool", "a", ""),
        ("tool", "b", "21 °C"),
        ("tool", "c", "x"),
    ]
    assert (results[2].images[0].data, results[2].untranslated) == (b"...", ("document",))
    assert (rest.role, rest.text) == ("user", "Here.")
    assert [block["type"] for block in rest.wire.value["content"]] == ["text"]


def test_a_turn_of_only_results_adds_no_empty_turn():
    ask = messages(**said({"type": "tool_result", "tool_use_id": "a", "content": "1"}))
    assert [turn.role for turn in ask.query.messages] == ["tool"]


def test_assistant_text_thinking_and_calls_are_read():
    ask = messages(
        **said(
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"city": "Köln"}},
            {"type": "tool_use", "id": "u", "name": "g", "input": None},
            {"type": "server_tool_use", "id": "v"},
            role="assistant",
        )
    )
    (turn,) = ask.query.messages
    assert [(call.name, json.loads(call.arguments)) for call in turn.tool_calls] == [
        ("f", {"city": "Köln"}),
        ("g", {}),
    ]
    assert "Köln" in turn.tool_calls[0].arguments
    assert turn.untranslated == ("server_tool_use",)  # thoughts are nobody else's, and not missed


# ── OpenAI's responses ──────────────────────────────────────────────────────────────────────────────────────


def test_every_field_of_responses_is_read():
    ask = responses(
        instructions="Be brief.",
        temperature=1.5,
        max_output_tokens=9,
        top_logprobs=3,
        reasoning={"effort": "low"},
        metadata={"a": "b"},
        user="ann",
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        tools=[{"type": "function", "name": "f", "parameters": {}}],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
        store=True,
        truncation="auto",
        novelty=1,
    )
    parameters = ask.query.parameters
    assert [turn.role for turn in ask.query.messages] == ["system", "user"]
    assert (parameters.temperature, parameters.max_tokens, parameters.top_logprobs) == (1.5, 9, 3)
    assert (parameters.format.name, parameters.tool_choice, parameters.parallel_tools) == (
        "n",
        ToolChoice("tool", "f"),
        False,
    )
    assert (parameters.extra, parameters.effort) == ({"novelty": 1}, "low")
    assert (ask.body_fields["metadata"], ask.body_fields["parallel_tool_calls"]) == ({"a": "b"}, False)


def test_response_items_become_turns():
    ask = responses(
        input=[
            {"role": "developer", "content": "Be kind."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "See"},
                                                            {"type": "input_image", "image_url": PIXEL}]},
            {"type": "reasoning", "summary": []},
            {"role": "assistant", "content": [{"type": "output_text", "text": "I"}, {"type": "refusal", "refusal": "no"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "g"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]},
            {"type": "function_call", "call_id": "c", "name": "h", "arguments": "{}"},
        ]
    )  # fmt: skip
    turns = ask.query.messages
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert len(turns[1].images) == 1
    assert (turns[2].text, [call.id for call in turns[2].tool_calls]) == ("I\nno", ["a", "b"])
    assert [turn.text for turn in turns[3:5]] == ["1", "2"]
    assert [call.name for call in turns[5].tool_calls] == ["h"]


@pytest.mark.parametrize(
    ("text", "schema"),
    [(None, None), ({}, None), ({"format": {"type": "text"}}, None), ({"format": {"type": "json_object"}}, "any")],
)
def test_response_formats_of_responses(text, schema):
    form = responses(text=text).query.parameters.format
    assert (form is None) == (schema is None)
    assert form is None or form.schema is None


@pytest.mark.parametrize("choice", [None, "auto", "none", "required"])
def test_responses_tool_choice_is_read(choice):
    found = responses(tool_choice=choice).query.parameters.tool_choice
    assert found == (None if choice is None else ToolChoice(choice))


# ── chat completions ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("tool", "f")),
    ],
)
def test_chat_tool_choice_is_read(choice, found):
    assert chat(tool_choice=choice).query.parameters.tool_choice == found


def test_the_developer_role_is_read_as_system():
    ask = chat(messages=[{"role": "developer", "content": "Be brief."}, TURN])
    assert [turn.role for turn in ask.query.messages] == ["system", "user"]
    assert ask.query.messages[0].wire.value["role"] == "developer"


# ── the field that is at fault ──────────────────────────────────────────────────────────────────────────────

IMAGE = "messages[0].content[0].source"
RESULT = {"type": "tool_result", "tool_use_id": "a"}


def item(content) -> dict:
    return {"input": [{"role": "user", "content": content}]}


FAULTS = {
    messages: [
        ({"model": None}, "model"),
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "system", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        (said({"text": "x"}), "messages[0].content[0].type"),
        (said({"type": "text"}), "messages[0].content[0].text"),
        (said({"type": "image"}), IMAGE),
        (said({"type": "image", "source": {"type": "ftp"}}), f"{IMAGE}.type"),
        (said({"type": "image", "source": {"type": "url", "url": "x"}}), f"{IMAGE}.url"),
        (said({"type": "image", "source": {"type": "base64"}}), f"{IMAGE}.media_type"),
        (said({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "!"}}), f"{IMAGE}.data"),
        (said({"type": "tool_use", "name": "f"}), "messages[0].content[0].id"),
        (said({"type": "tool_result"}), "messages[0].content[0].tool_use_id"),
        (said(RESULT | {"content": 7}), "messages[0].content[0].content"),
        (said(RESULT | {"content": [{}]}), "messages[0].content[0].content[0].type"),
        ({"system": [{"type": "text"}]}, "system[0].text"),
        ({"temperature": 1.5}, "temperature"),
        ({"tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "thing"}}}}, "output_config.format.schema"),
    ],
    responses: [
        ({"input": []}, "input"),
        (item(None), "input[0].content"),
        (item(7), "input[0].content"),
        (item([{"type": "input_audio"}]), "input[0].content[0].type"),
        (item([{"type": "refusal"}]), "input[0].content[0].refusal"),
        (item([{"type": "input_image"}]), "input[0].content[0].image_url"),
        ({"input": [{"type": "novel_call"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "a"}]}, "input[0].output"),
        ({"previous_response_id": "r"}, "previous_response_id"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ],
    chat: [
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].tool_call_id"),
        (said({"type": "image_url"}), "messages[0].content[0].image_url"),
        (said({"type": "image_url", "image_url": {"url": 7}}), "messages[0].content[0].image_url.url"),
        (said({"type": "image_url", "image_url": {"url": "data:text/html;base64,AA=="}}), "messages[0].content[0].image_url.url"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
        ({"n": True}, "n"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stop": [1]}, "stop[0]"),
        ({"odar": {"path": "harder"}}, "odar.path"),
        ({"odar": {"deadline_s": 0}}, "odar.deadline_s"),
        ({"odar": {"max_cost_usd": "1"}}, "odar.max_cost_usd"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("read", "fields", "param"), [(read, *each) for read in FAULTS for each in FAULTS[read]])
def test_errors_name_the_field(read, fields, param):
    with pytest.raises(ApiError) as refused:
        read(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


# ── what a refusal says ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": None}, "model: is missing"),
        ({"n": "s3cret"}, "n: must be an integer, not a string"),
        ({"n": 1.5}, "n: must be an integer, not a fraction"),
        ({"n": 129}, "n: must be an integer <= 128"),
        ({"stop": 7}, "stop: must be a string or a list, not an integer"),
        ({"messages": []}, "messages: must be a list of length >= 1"),
        (
            {"messages": [{"role": "s3cret", "content": "x"}]},
            "messages[0].role: is not one of: assistant, developer, system, tool, user",
        ),
        ({"tool_choice": "s3cret"}, "tool_choice: is not one of: auto, none, required"),
        (
            {"odar": {"paths": "s3cret"}},
            "odar.paths: is unknown; known are path, max_calls, max_cost_usd, deadline_s, explain, dial, value_usd, target_calls, "
            "target_cost_usd",
        ),
        ({"odar": {"target_calls": 0.5}}, "odar.target_calls: must be a number >= 1.0"),
        ({"odar": []}, "odar: must be a JSON object, not a list"),
    ],
)  # fmt: skip
def test_an_error_names_allowed_values_and_never_quotes_the_input(fields, message):
    with pytest.raises(ApiError) as refused:
        chat(**fields)
    assert refused.value.message == message


@pytest.mark.parametrize("name", ["x` - at `$.zzz", "x` - at `$.note[7].a`", "`", "", "a\nb", "x" * 999])
def test_unusual_field_names_do_not_break_error_messages(name):
    for value, kind in (({"trace_id": "t", "correct": True, name: 1}, Feedback), ({name: 1}, OdarOptions)):
        with pytest.raises(ApiError, match="is unknown") as refused:
            convert(value, kind)
        assert (refused.value.status, "\n" in refused.value.message) == (400, False)
        assert len(refused.value.message) < 200


def test_a_body_that_is_not_an_object_is_rejected():
    with pytest.raises(ApiError, match="body: must be a JSON object, not a list"):
        read_chat([])


def test_integers_may_be_written_with_a_decimal_point():
    assert read_json(b'{"n": 2.0, "t": 2.5, "big": 1e300}') == {"n": 2, "t": 2.5, "big": 1e300}
    assert isinstance(read_json(b"2.0"), int)


# ── whatever is sent ────────────────────────────────────────────────────────────────────────────────────────

WORDS = st.sampled_from(
    ["model", "messages", "input", "role", "user", "assistant", "tool", "content", "type", "text", "image_url", "url",
     "tool_calls", "function", "name", "arguments", "tool_result", "tool_use_id", "source", "base64", "data", "id",
     "system", "tools", "max_tokens", "stream", "odar", "path", "hard", "metadata", "n", "json_schema", PIXEL]
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=25,
)


@given(ANYTHING, st.sampled_from(sorted(READERS)))
def test_any_body_is_read_or_rejected(body, protocol):
    known = {"model": "odar", "messages": [TURN], "input": "Hi", "max_tokens": 9}
    for given_ in (body, {**known, **body} if isinstance(body, dict) else known):
        try:
            ask = READERS[protocol](given_)
        except ApiError as refusal:
            assert 400 <= refusal.status < 500
            assert refusal.param
        else:
            assert ask.query.messages
