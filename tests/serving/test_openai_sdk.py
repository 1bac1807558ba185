"""The openai SDK with the gateway, which must behave like the OpenAI API."""

from __future__ import annotations

import base64
import json

import openai
import pytest
from pydantic import BaseModel

from support.fault_server import FaultServer, answer, echo_n, events, ok, status, trickle
from support.gateway import PNG, call_events, call_payload, turn
from support.payloads import chat_payload

PATHS = ["odar-simple", "odar-medium", "odar-hard", "quick"]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "How is the weather?",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": True,
    },
}


@pytest.fixture(autouse=True)
def behaviour(up: FaultServer, slow: FaultServer) -> None:
    up.behave(ok("It is four."))
    slow.behave(echo_n("It is four."))


@pytest.mark.parametrize("model", ["odar", *PATHS])
async def test_a_chat_completion_is_answered(live, model):
    reply = await live.openai.chat.completions.create(model=model, messages=turn())
    (choice,) = reply.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == (
        "assistant",
        "It is four.",
        "stop",
    )
    assert choice.logprobs is None
    assert reply.model == model
    calls = {"odar-simple": 1, "odar-medium": 2, "odar-hard": 6}.get(model, reply.model_extra["odar"]["calls"])
    assert reply.usage.prompt_tokens == (20 if calls > 1 else 10)  # one request for the five slow samples
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.odar["calls"] == calls
    costs = {"odar-simple": 20e-6, "quick": 20e-6, "odar-medium": 220e-6, "odar-hard": 620e-6}
    assert reply.odar["cost_usd"] == pytest.approx(costs.get(model, reply.odar["cost_usd"]))
    assert reply.odar["cost_usd"] > 0


async def test_headers_and_extras(live):
    raw = await live.openai.chat.completions.with_raw_response.create(
        model="odar", messages=turn(), extra_body={"odar": {"path": "medium", "explain": True}}
    )
    reply = raw.parse()
    assert raw.headers["x-odar-path"] == "medium"
    assert float(raw.headers["x-odar-difficulty"]) < 0.3
    assert raw.headers["x-odar-calls"] == "2"
    assert raw.headers["x-odar-trace"] == reply.odar["trace_id"] == live.memory_store.entries[0].trace.id
    assert float(raw.headers["x-odar-cost-usd"]) > 0
    assert len(reply.odar["explanation"]["candidates"]) == 2


@pytest.mark.parametrize("model", ["odar", *PATHS])
async def test_a_chat_completion_is_streamed(live, model):
    stream = await live.openai.chat.completions.create(
        model=model, messages=turn(), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "It is four."
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens >= 10
    assert all(chunk.usage is None for chunk in chunks[:-1])
    # after the slow answer no other call is worth its price; for the paper's other paths a further stage follows
    known = {"odar": "medium", "odar-simple": "simple", "quick": "direct"}
    assert stream.response.headers.get("x-odar-path") == known.get(model)


async def test_a_stream_has_usage_only_on_request(live):
    stream = await live.openai.chat.completions.create(model="odar", messages=turn(), stream=True)
    chunks = [chunk async for chunk in stream]
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


async def test_the_simple_path_streams_tokens(live, up):
    up.behave(trickle("one two three four", every_s=0.05, stream=True))
    stream = await live.openai.chat.completions.create(model="odar-simple", messages=turn(), stream=True)
    pieces = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices[0].delta.content]
    assert pieces == ["one ", "two ", "three ", "four"]
    assert (await live.entry()).http_status == 200, "the end of the response is no disconnect"


@pytest.mark.parametrize("model", PATHS)
async def test_tools_can_be_called(live, up, slow, model):
    up.behave(answer(call_payload('{"city": "Rome"}')))
    slow.behave(answer(call_payload('{"city":"Rome"}')))
    reply = await live.openai.chat.completions.create(
        model=model, messages=turn("Weather in Rome?"), tools=[WEATHER], tool_choice="auto"
    )
    (choice,) = reply.choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "weather")
    assert json.loads(call.function.arguments) == {"city": "Rome"}
    assert up.requests[0].json["tools"] == [WEATHER]
    assert up.requests[0].json["tool_choice"] == "auto"
    up.behave(ok("Sunny."))
    slow.behave(echo_n("Sunny."))
    conversation = [
        *turn("Weather in Rome?"),
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    reply = await live.openai.chat.completions.create(model=model, messages=conversation, tools=[WEATHER])
    assert reply.choices[0].message.content == "Sunny."
    sent = up.requests[-1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[2]["tool_call_id"] == call.id


@pytest.mark.parametrize("model", PATHS)
async def test_tool_calls_are_streamed(live, up, slow, model):
    async def behave(exchange):
        if exchange.json.get("stream"):
            await exchange.send_events(call_events(['{"ci', 'ty": "Rome"}']))
        else:
            await exchange.send_json(call_payload('{"city": "Rome"}'))

    up.behave(behave)
    slow.behave(behave)
    stream = await live.openai.chat.completions.create(model=model, messages=turn(), tools=[WEATHER], stream=True)
    name, arguments, finish = "", "", None
    async for chunk in stream:
        for call in chunk.choices[0].delta.tool_calls or ():
            assert call.index == 0
            name += call.function.name or ""
            arguments += call.function.arguments or ""
        finish = chunk.choices[0].finish_reason or finish
    assert (name, json.loads(arguments), finish) == ("weather", {"city": "Rome"}, "tool_calls")


async def test_images_reach_the_model_unchanged(live, up):
    data = "data:image/png;base64," + base64.b64encode(PNG).decode()
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": data, "detail": "low"}},
        {"type": "text", "text": "Be brief."},
    ]
    await live.openai.chat.completions.create(model="odar-simple", messages=[{"role": "user", "content": content}])
    assert up.requests[0].json["messages"][-1]["content"] == content
    assert live.memory_store.entries[0].query.images[0].data == PNG


class City(BaseModel):
    city: str


@pytest.mark.parametrize("model", PATHS)
async def test_a_json_schema_is_forwarded_and_checked(live, up, slow, model):
    up.behave(ok('{"city": "Rome"}'))
    slow.behave(echo_n('{"city": "Rome"}'))
    reply = await live.openai.chat.completions.parse(model=model, messages=turn(), response_format=City)
    assert reply.choices[0].message.parsed == City(city="Rome")
    assert up.requests[0].json["response_format"]["json_schema"]["strict"] is True


async def test_an_answer_that_does_not_fit_the_schema_loses(live, up, slow):
    up.behave(ok('{"city": "Rome"}'))
    slow.behave(echo_n("I would say Rome."))
    reply = await live.openai.chat.completions.parse(model="odar-hard", messages=turn(), response_format=City)
    assert reply.choices[0].message.parsed == City(city="Rome")


@pytest.mark.parametrize("model", PATHS)
async def test_n_choices_are_returned(live, up, slow, model):
    up.behave(echo_n("four"))
    reply = await live.openai.chat.completions.create(model=model, messages=turn(), n=3)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    stream = await live.openai.chat.completions.create(model=model, messages=turn(), n=2, stream=True)
    texts = {0: "", 1: ""}
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert all(texts.values())


@pytest.mark.parametrize("model", PATHS)
async def test_logprobs_are_returned(live, model):
    reply = await live.openai.chat.completions.create(model=model, messages=turn(), logprobs=True, top_logprobs=2)
    content = reply.choices[0].logprobs.content
    assert "".join(entry.token for entry in content) == "It is four."
    stream = await live.openai.chat.completions.create(model=model, messages=turn(), logprobs=True, stream=True)
    entries = [
        entry async for chunk in stream if chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content
    ]
    assert "".join(entry.token for entry in entries) == "It is four."


async def test_every_requested_option_is_forwarded(start, up):
    live = await start(providers__f__forward=["my_field"])
    await live.openai.chat.completions.create(
        model="quick",
        messages=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi", "name": "ann"}],
        temperature=0.5,
        top_p=0.8,
        max_completion_tokens=9,
        stop=["X"],
        seed=3,
        user="ann",
        presence_penalty=0.1,
        parallel_tool_calls=False,
        tools=[WEATHER],
        extra_body={"my_field": {"a": 1}, "odar": {"max_calls": 1}},
    )
    (request,) = up.requests
    assert request.json == {
        "model": "quick",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hi", "name": "ann"},
        ],
        "temperature": 0.5,
        "top_p": 0.8,
        "max_completion_tokens": 9,
        "stop": ["X"],
        "seed": 3,
        "user": "ann",
        "presence_penalty": 0.1,
        "parallel_tool_calls": False,
        "tools": [WEATHER],
        "my_field": {"a": 1},
    }


async def test_a_plain_pass_through_adds_nothing(live, up):
    await live.openai.chat.completions.create(model="quick", messages=turn())
    assert up.requests[0].json == {"model": "quick", "messages": turn()}


async def test_additional_provider_fields_are_kept(live, up):
    payload = chat_payload("four")
    payload["choices"][0]["message"] |= {"reasoning_content": "2 and 2", "annotations": [{"a": 1}]}
    up.behave(answer(payload))
    reply = await live.openai.chat.completions.create(model="quick", messages=turn())
    assert reply.choices[0].message.reasoning_content == "2 and 2"
    assert reply.choices[0].message.annotations is not None


async def test_a_follow_up_is_not_sent_to_the_weakest_model(live):
    hard = "word " * 200
    conversation = [*turn(hard), {"role": "assistant", "content": "Done."}, *turn("commit it")]
    reply = await live.openai.chat.completions.create(
        model="odar", messages=conversation, extra_body={"odar": {"explain": True}}
    )
    assert reply.odar["stages"] == ["slow"]
    assert reply.odar["difficulty"] > 0.5


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_upstream_errors_keep_status_and_body(live, up, code, kind, stream):
    body = {"error": {"message": "the upstream's own words", "type": "t", "param": "p", "code": "c"}}
    up.behave(status(code, body=body, retry_after=7))
    with pytest.raises(kind) as caught:
        await live.openai.chat.completions.create(model="quick", messages=turn(), stream=stream)
    error = caught.value
    assert (error.status_code, error.code, error.param, error.type) == (code, "c", "p", "t")
    assert "the upstream's own words" in error.message
    assert error.response.headers["retry-after"] == "7"


class TestResponses:
    @pytest.mark.parametrize("model", PATHS)
    async def test_a_response_is_answered(self, live, up, model):
        reply = await live.openai.responses.create(model=model, input="What is 2 + 2?", instructions="Be brief.")
        assert reply.output_text == "It is four."
        assert reply.status == "completed"
        assert reply.usage.input_tokens >= 10
        assert up.requests[0].json["messages"][0] == {"role": "system", "content": "Be brief."}

    @pytest.mark.parametrize("model", PATHS)
    async def test_a_response_is_streamed(self, live, model):
        async with live.openai.responses.stream(model=model, input=turn()) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert final.output_text == "It is four."
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert "response.output_text.delta" in kinds

    @pytest.mark.parametrize("model", PATHS)
    async def test_function_calls(self, live, up, slow, model):
        async def behave(exchange):
            if exchange.json.get("stream"):
                await exchange.send_events(call_events(['{"city": ', '"Rome"}']))
            else:
                await exchange.send_json(call_payload('{"city": "Rome"}'))

        up.behave(behave)
        slow.behave(behave)
        tools = [{"type": "function", **WEATHER["function"]}]
        reply = await live.openai.responses.create(model=model, input="Rome?", tools=tools)
        (call,) = reply.output
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather", {"city": "Rome"})
        async with live.openai.responses.stream(model=model, input="Rome?", tools=tools) as stream:
            final = await stream.get_final_response()
        assert json.loads(final.output[-1].arguments) == {"city": "Rome"}
        up.behave(ok("Sunny."))
        slow.behave(echo_n("Sunny."))
        again = [
            {"role": "user", "content": "Rome?"},
            {"type": "function_call", "call_id": call.call_id, "name": "weather", "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
        ]
        reply = await live.openai.responses.create(model=model, input=again, tools=tools)
        assert reply.output_text == "Sunny."
        assert [m["role"] for m in up.requests[-1].json["messages"]] == ["user", "assistant", "tool"]

    async def test_json_schema_and_images(self, live, up):
        up.behave(ok('{"city": "Rome"}'))
        content = [
            {"type": "input_text", "text": "Where is this?"},
            {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
        ]
        reply = await live.openai.responses.parse(
            model="odar-simple", input=[{"role": "user", "content": content}], text_format=City
        )
        assert reply.output_parsed == City(city="Rome")
        assert up.requests[0].json["response_format"]["type"] == "json_schema"
        assert up.requests[0].json["messages"][0]["content"][1]["image_url"]["url"] == "https://example.com/a.png"


async def test_a_truncated_answer_has_finish_reason_length(live, up):
    payload = chat_payload("It is")
    payload["choices"][0]["finish_reason"] = "length"
    up.behave(answer(payload))
    reply = await live.openai.chat.completions.create(model="odar-simple", messages=turn())
    assert reply.choices[0].finish_reason == "length"
    response = await live.openai.responses.create(model="odar-simple", input="2 + 2?")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_a_non_streamed_upstream_answer_is_streamed(live, up):
    up.behave(answer(chat_payload("It is four.")))
    stream = await live.openai.chat.completions.create(model="odar", messages=turn(), stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "It is four."


async def test_thinking_is_kept_out_of_the_text(live, up):
    up.behave(events([{"choices": [{"index": 0, "delta": {"content": t}}]} for t in ("<think>hm</think>", "four")]
        + [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]))  # fmt: skip
    stream = await live.openai.chat.completions.create(model="odar-simple", messages=turn(), stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "four"
