"""Requests of coding agents (Claude Code 2.1.197, Codex 0.166) and the expected replies."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

from odar.serving.protocols.chat import read_chat
from odar.serving.protocols.chat_request import OdarOptions, with_headers
from support.fault_server import answer, events
from support.live_gateway import api_key
from support.payloads import chat_payload, message_payload
from support.waiting import until

REMINDER = "<system-reminder>\nToday is Tuesday.\n</system-reminder>\n\n"
BASH = {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
CODE = {
    "model": "odar-simple",
    "max_tokens": 32000,
    "stream": False,
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "metadata": {"user_id": json.dumps({"device_id": "d" * 64, "session_id": "s"})},
    "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
    "tools": [BASH, {"type": "web_search_20250305", "name": "web_search"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": REMINDER}, {"type": "text", "text": "Show it."}]},
        {"role": "system", "content": "Agent types: Explore."},
    ],
}
BETAS = "claude-code-20250219,context-management-2025-06-27,fast-mode-2026-02-01"
THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
CODEX_TOOLS = (
    {"type": "function", "name": "exec_command", "parameters": {"type": "object", "properties": {}}},
    {
        "type": "namespace",
        "name": "agents",
        "tools": [{"type": "function", "name": "close", "parameters": None}],
    },
    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "definition": "start: x"}},
    {"type": "web_search", "external_web_access": True},
)
CODEX = {
    "model": "odar-simple",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be an agent."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Show it."}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_1"},
    ],
    "tools": list(CODEX_TOOLS),
    "tool_choice": "auto",
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "client_metadata": {"session_id": "s"},
}


def message_stream(*blocks):
    """Return the events of a message with these blocks."""
    start = {"type": "message", "model": "claude", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}
    out = [{"type": "message_start", "message": start}]
    for index, block in enumerate(blocks):
        if block["type"] == "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        out.append({"type": "content_block_start", "index": index, "content_block": empty})
        out += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        out.append({"type": "content_block_stop", "index": index})
    out.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}})
    return [*out, {"type": "message_stop"}]


@pytest.fixture
async def claude(start):
    """A gateway with Claude as its slow agent."""
    return await start(slow_kind="anthropic", models__deep__logprobs=False)


class TestClaudeCode:
    async def test_its_request_is_served_by_an_openai_provider(self, live, up):
        up.behave(answer(chat_payload("Done.")))
        status, _, reply = await live.post("/v1/messages", CODE, headers={"anthropic-beta": BETAS})
        assert (status, reply["content"]) == (200, [{"type": "text", "text": "Done."}])
        sent = up.requests[0].json
        assert [turn["role"] for turn in sent["messages"]] == ["system", "user", "user"]
        assert sent["messages"][2]["content"] == "<system-reminder>\nAgent types: Explore.\n</system-reminder>"
        assert [tool["function"]["name"] for tool in sent["tools"]] == ["Bash"]
        assert len(sent["user"]) == 64  # as long a name as OpenAI takes
        assert not {"reasoning_effort", "thinking", "context_management"} & sent.keys()
        (note,) = reply["odar"]["notes"]
        assert (reply["odar"]["degraded"], reply["odar"]["degradations"]) == (False, [])
        assert "context_management, reasoning_effort, thinking" in note
        assert note.endswith("tools that run at a provider were left out, offer functions instead: web_search")

    async def test_its_request_is_served_by_an_anthropic_provider(self, claude, slow):
        slow.behave(answer(message_payload("Done.")))
        status, _, _ = await claude.post(
            "/v1/messages", CODE | {"model": "deep"}, headers={"anthropic-beta": BETAS}
        )
        (seen,) = slow.requests
        assert (status, seen.json["messages"], seen.json["system"]) == (200, CODE["messages"], CODE["system"])
        assert seen.json["context_management"] == CODE["context_management"]
        assert seen.json["output_config"] == {"effort": "high"}
        assert seen.headers["anthropic-beta"] == "claude-code-20250219,context-management-2025-06-27"

    async def test_a_preview_feature_that_is_not_listed_is_not_sent(self, claude, slow):
        slow.behave(answer(message_payload("Done.")))
        body = CODE | {"model": "deep"}
        await claude.post("/v1/messages", body, headers={"anthropic-beta": "x" * 9000})
        assert "anthropic-beta" not in slow.requests[0].headers

    async def test_tokens_are_counted_without_a_server(self, live, up):
        counted = await live.anthropic.messages.count_tokens(
            model="odar", messages=[{"role": "user", "content": "Is Paris the capital of France?"}], tools=[BASH]
        )
        assert 20 < counted.input_tokens < 60
        assert not up.requests

    async def test_errors_below_messages_have_the_anthropic_format(self, live):
        with pytest.raises(anthropic.APIStatusError) as caught:
            await live.anthropic.post("/v1/messages/batches", cast_to=object, body={})
        assert caught.value.status_code == 501
        assert caught.value.body["type"] == "error"
        with pytest.raises(anthropic.NotFoundError) as caught:
            await live.anthropic.models.retrieve("no-such")
        assert caught.value.body["error"]["type"] == "not_found_error"


class TestThinking:
    @pytest.mark.parametrize("model", ["deep", "odar-medium", "odar-hard"])
    @pytest.mark.parametrize("stream", [False, True])
    async def test_thinking_is_kept_on_every_path(self, claude, up, slow, model, stream):
        up.behave(answer(chat_payload("It is there.")))
        plain = answer(message_payload("", content=[THOUGHT, USE], stop_reason="tool_use"))
        slow.behave(events(message_stream(THOUGHT, USE), done=False) if stream and model == "deep" else plain)
        wanted = {"model": model, "max_tokens": 99, "tools": [BASH], "thinking": {"type": "adaptive"}}
        ask = {**wanted, "messages": [{"role": "user", "content": "Show it."}], "tool_choice": {"type": "any"}}
        if stream:
            async with claude.anthropic.messages.stream(**ask) as got:
                said = await got.get_final_message()
        else:
            said = await claude.anthropic.messages.create(**ask)
        kinds = [(block.type, getattr(block, "signature", "")) for block in said.content]
        # Before them may come what ODAR shows while agents work: thinking that nobody signed.
        assert kinds[-2:] == [("thinking", "c2ln"), ("tool_use", "")]

    async def test_a_client_of_another_protocol_need_not_return_thinking(self, start, slow):
        gateway = await start(slow_kind="anthropic", models__deep__extra={"thinking": {"type": "adaptive"}})
        slow.behave(answer(message_payload("", content=[THOUGHT, USE], stop_reason="tool_use")))
        tool = {"type": "function", "function": {"name": "Bash", "parameters": BASH["input_schema"]}}
        turns = [{"role": "user", "content": "Show it."}]
        ask = {"model": "odar-hard", "tools": [tool], "tool_choice": "required"}
        reply = await gateway.openai.chat.completions.create(messages=turns, **ask)
        said = reply.choices[0].message
        call = {"id": "toolu_1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "ls"}'}}
        turns += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        turns += [{"role": "tool", "tool_call_id": "toolu_1", "content": "a.txt"}]
        await gateway.openai.chat.completions.create(messages=turns, **ask)
        assert said.tool_calls[0].id == "toolu_1" or said.content
        assert slow.requests[-1].json["messages"][1]["content"] == [THOUGHT, USE]

    async def test_unsigned_thinking_is_not_sent_to_anthropic(self, claude, slow):
        slow.behave(answer(message_payload("Done.")))
        unsigned = {"type": "thinking", "thinking": "hm", "signature": ""}
        turns = [
            {"role": "user", "content": "Show it."},
            {"role": "assistant", "content": [unsigned, USE]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}]},
        ]
        manual = {"type": "enabled", "budget_tokens": 2000}
        body = {"model": "deep", "max_tokens": 4000, "messages": turns, "tools": [BASH], "thinking": manual}
        status, _, _ = await claude.post("/v1/messages", body)
        sent = slow.requests[0].json
        assert (status, sent["messages"][1]["content"]) == (200, [USE])
        assert "thinking" not in sent  # the API refuses it in a tool loop that began without


class TestCodex:
    async def test_its_request_is_served_with_supported_tools(self, live, up):
        up.behave(answer(chat_payload("Done.")))
        status, _, reply = await live.post("/v1/responses", CODEX)
        sent = up.requests[0].json
        names = [tool["function"]["name"] for tool in sent["tools"]]
        assert (status, names) == (200, ["exec_command", "agents__close", "apply_patch"])
        (note,) = reply["odar"]["notes"]
        assert (reply["odar"]["degraded"], reply["odar"]["degradations"]) == (False, [])
        assert note.endswith("instead: web_search; items of the conversation were left out: web_search_call")

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("name", "arguments", "item"),
        [
            ("exec_command", {"cmd": "ls"}, {"type": "function_call", "arguments": '{"cmd": "ls"}'}),
            ("agents__close", {}, {"type": "function_call", "name": "close", "namespace": "agents"}),
            ("apply_patch", {"input": "*** x"}, {"type": "custom_tool_call", "input": "*** x"}),
        ],
    )
    async def test_calls_have_the_item_types_of_the_client(self, live, up, name, arguments, item, stream):
        call = {"id": "call_1", "function": {"name": name, "arguments": json.dumps(arguments)}}
        payload = chat_payload("")
        payload["choices"][0] |= {"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
        chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
        up.behave(events([chunk]) if stream else answer(payload))
        status, text = await live.text("/v1/responses", CODEX | {"stream": stream})
        data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        reply = json.loads(data[-1])["response"] if stream else json.loads(text)
        (said,) = reply["output"]
        assert (status, {field: said[field] for field in item}) == (200, item)
        if stream:
            done = [json.loads(each) for each in data if '"response.output_item.done"' in each]
            assert done[0]["item"] == said

    async def test_its_calls_and_results_are_sent_as_functions(self, live, up):
        up.behave(answer(chat_payload("Done.")))
        made = [
            {"type": "function_call", "call_id": "c1", "namespace": "agents", "name": "close", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "closed"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** x"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
        ]
        status, _, _ = await live.post("/v1/responses", CODEX | {"input": [*CODEX["input"][:2], *made]})
        turns = up.requests[0].json["messages"][2:]
        calls = [turn["tool_calls"][0]["function"] for turn in turns[::2]]
        assert status == 200
        assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
            ("agents__close", {}),
            ("apply_patch", {"input": "*** x"}),
        ]
        assert [turn["content"] for turn in turns[1::2]] == ["closed", "ok"]


class TestHeaders:
    async def test_headers_replace_body_fields(self, live, up):
        up.behave(answer(chat_payload("Done.")))
        ask = {"model": "odar", "messages": [{"role": "user", "content": "Hi"}]}
        status, headers, reply = await live.post(
            "/v1/chat/completions", ask, headers={"x-odar-path": "simple", "x-odar-max-calls": "1"}
        )
        assert (status, headers["x-odar-path"], reply["odar"]["reason"]) == (
            200,
            "simple",
            "asked for by the caller",
        )

    def test_a_limit_of_zero_in_the_body_is_not_replaced_by_a_header(self):
        request = read_chat(
            {"model": "odar", "messages": [{"role": "user", "content": "Hi"}], "odar": {"max_cost_usd": 0}}
        )
        assert with_headers(
            request, [(b"x-odar-max-cost-usd", b"5"), (b"x-odar-max-calls", b"2")]
        ).odar == OdarOptions(max_cost_usd=0.0, max_calls=2)

    @pytest.mark.parametrize(
        ("header", "value"),
        [
            ("x-odar-path", "up"),
            ("x-odar-max-cost-usd", "much"),
            ("x-odar-max-cost-usd", "-1"),
            ("x-odar-target-calls", "x"),
        ],
    )
    async def test_an_invalid_header_is_named(self, live, header, value):
        ask = {"model": "odar", "messages": [{"role": "user", "content": "Hi"}]}
        status, _, reply = await live.post("/v1/chat/completions", ask, headers={header: value})
        assert (status, reply["error"]["param"]) in ((400, f"header {header}"), (400, "odar"))


class TestModels:
    async def test_a_key_sees_the_models_it_can_use(self, start, up):
        gateway = await start(keys=[api_key("k", "sk-test", models=("odar", "quick"))])
        assert [model.id async for model in gateway.openai.models.list()] == ["odar", "quick"]
        assert (await gateway.openai.models.retrieve("quick")).owned_by == "f"
        with pytest.raises(openai.PermissionDeniedError):
            await gateway.openai.models.retrieve("deep")

    async def test_a_path_outside_the_scope_is_not_listed(self, start):
        gateway = await start(keys=[api_key("k", "sk-test", max_path="simple")])
        assert "odar-hard" not in [model.id async for model in gateway.openai.models.list()]
        with pytest.raises(openai.PermissionDeniedError):
            await gateway.openai.models.retrieve("odar-hard")

    async def test_models_of_an_unreachable_server_are_not_listed(self, start):
        gateway = await start(providers__s__base_url="http://127.0.0.1:1/v1")
        listed = [model.id async for model in gateway.openai.models.list()]
        assert {"odar", "odar-hard", "quick"} <= set(listed)
        assert "deep" not in listed

    async def test_listed_models_are_accepted_by_chat(self, live, up):
        up.behave(answer(chat_payload("Hi")))
        for name in ("odar-hard", "quick", "f/any-model"):
            assert (await live.openai.models.retrieve(name)).id == name
            await live.openai.chat.completions.create(model=name, messages=[{"role": "user", "content": "Hi"}])
        with pytest.raises(openai.NotFoundError):
            await live.openai.models.retrieve("nowhere/model")

    async def test_startup_messages_name_the_models(self, start, up, slow):
        up.behave(answer({"data": [{"id": "quick"}]}))
        slow.behave(answer({"data": [{"id": "another"}]}))
        lines: list[str] = []
        await start(app_options={"announce": lines.append}, observe__share=0.5)
        await until(lambda: lines and lines[-1].startswith("ready after"))
        assert (
            "the cascade answers; a share of 0.5 is answered by deep too, for at most $1 a day (odar observe)"
            in lines
        )
        assert lines[0] == "fast agent: quick answers (f: 1 model)"
        assert lines[1].startswith(
            "slow agent: deep cannot be used: s answers, but does not list 'deep'; it has another"
        )


class TestUnsupportedFields:
    async def test_rejected_logprobs_are_requested_once(self, start, up):
        def behave(exchange):
            refused = "logprobs" in exchange.json
            error = {"error": {"message": "Unsupported parameter: 'logprobs' is not supported with this model."}}
            return (answer(error, 400) if refused else answer(chat_payload("It is four.")))(exchange)

        up.behave(behave)
        gateway = await start(fast__model="f/novel")
        ask = {"model": "odar-simple", "messages": [{"role": "user", "content": "Hi"}]}
        for _ in range(2):
            reply = await gateway.openai.chat.completions.create(**ask)
            assert reply.choices[0].message.content == "It is four."
        assert ["logprobs" in seen.json for seen in up.requests] == [True, False, False]
        with pytest.raises(openai.BadRequestError):  # what the client itself asks for is not taken away
            await gateway.openai.chat.completions.create(**ask | {"model": "f/novel"}, logprobs=True)

    async def test_fields_are_translated_for_a_claude_chosen_by_name(self, start, slow):
        slow.behave(answer(message_payload("Done.")))
        gateway = await start(
            slow_kind="anthropic", models__deep__drop=["temperature"], models__deep__efforts=["low", "high"]
        )
        reply = await gateway.openai.chat.completions.create(
            model="deep",
            messages=[{"role": "user", "content": "Hi"}],
            max_completion_tokens=77,
            temperature=0.5,
            reasoning_effort="minimal",
            verbosity="low",
        )
        sent = slow.requests[0].json
        assert (sent["max_tokens"], sent["output_config"]) == (77, {"effort": "low"})
        assert not {"max_completion_tokens", "temperature", "verbosity", "reasoning_effort"} & sent.keys()
        assert reply.odar["notes"] == [
            "s: fields of the request were not sent on: verbosity",
            "deep takes no temperature",
        ]

    async def test_n_is_forwarded_to_an_unknown_model(self, live, up):
        up.behave(answer(chat_payload("a", "b", "c")))
        turns = [{"role": "user", "content": "Hi"}]
        reply = await live.openai.chat.completions.create(model="f/novel", messages=turns, n=3)
        assert (len(reply.choices), len(up.requests), up.requests[0].json["n"]) == (3, 1, 3)
