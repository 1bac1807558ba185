from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import ToolCall
from odar.errors import InputError, ProviderError
from odar.providers.base import Completion, Delta, Message, Provider, Reply
from odar.providers.replay import ReplayProvider, digest, load_replies, record
from odar.types import Image, Token, Usage
from support.requests import ask

counts = st.none() | st.integers(0, 10**6)
tokens = st.builds(Token, st.text(), st.none() | st.floats(-100, 0), st.booleans())
calls = st.builds(ToolCall, st.text(), st.text(), st.text())
completions = st.builds(
    Completion,
    st.text(),
    st.lists(tokens, max_size=3).map(tuple),
    st.sampled_from(["stop", "length", "tool_calls"]),
    st.lists(calls, max_size=2).map(tuple),
)
replies = st.builds(
    Reply,
    st.lists(completions, min_size=1, max_size=3).map(tuple),
    st.builds(Usage, counts, counts, counts, counts),
    st.text(),
)


def said(*texts: str) -> Reply:
    return Reply(tuple(Completion(text) for text in texts))


@given(st.text(), replies)
def test_recorded_replies_are_replayed(tmp_path_factory: pytest.TempPathFactory, text: str, reply: Reply) -> None:
    request, path = ask(text), tmp_path_factory.mktemp("recording") / "run.jsonl"
    path.write_text(record(request, reply), encoding="utf-8")
    assert load_replies(path) == [("m", reply, digest(request.messages))]


async def test_replies_are_replayed_in_order(tmp_path: Path) -> None:
    one, two = ask("one"), ask("two")
    lines = [record(one, said("1a")), record(two, said("2")), "", record(one, said("1b"))]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    provider: Provider = ReplayProvider("tape", load_replies(path))
    assert await provider.check() == "3 recordings"
    texts = [(await provider.complete(request)).completions[0].text for request in (two, one, one)]
    assert texts == ["2", "1a", "1b"]
    with pytest.raises(ProviderError, match=digest(one.messages)) as caught:
        await provider.complete(one)
    assert (caught.value.code, caught.value.retryable) == ("no_recording", False)
    await provider.close()


async def test_recordings_without_a_digest_match_any_request() -> None:
    provider = ReplayProvider("tape", [("m", said("any"), None), ("other", said("no"), None)])
    assert (await provider.complete(ask("whatever"))).completions[0].text == "any"
    with pytest.raises(ProviderError, match="model 'm'"):
        await provider.complete(ask("whatever"))


async def test_a_missing_recording_does_not_quote_the_prompt() -> None:
    with pytest.raises(ProviderError) as caught:
        await ReplayProvider("tape", []).complete(ask("my secret question"))
    assert "secret" not in str(caught.value)


async def test_n_completions_and_on_text() -> None:
    provider = ReplayProvider("tape", [("m", said("a", "b", "c"), None)] * 2)
    texts: list[str] = []
    assert len((await provider.complete(ask(n=2), lambda delta: texts.append(delta.text))).completions) == 2
    assert texts == []
    assert len((await provider.complete(ask(), lambda delta: texts.append(delta.text))).completions) == 1
    assert texts == ["a"]


async def test_tool_calls_are_streamed() -> None:
    parts: list[Delta] = []
    reply = Reply((Completion("Let me see.", tool_calls=(ToolCall("1", "look_up", "{}"),)),))
    await ReplayProvider("tape", [("m", reply, None)]).complete(ask(), parts.append)
    assert [(part.text, [call.name for _, call in part.tool_calls]) for part in parts] == [
        ("Let me see.", ["look_up"])
    ]


def test_images_are_part_of_the_digest() -> None:
    variants = [(), (Image("image/png", b"a"),), (Image("image/png", b"b"),), (Image("image/png", url="u"),)]
    assert len({digest([Message("user", "?", images)]) for images in variants}) == 4


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        "{}",
        '{"model": "m"}',
        '{"model": "m", "completions": [{"text": "a", "tokens": [[]]}]}',
    ],
)
def test_a_bad_line_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(record(ask(), said("a")) + "\n" + line, encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.jsonl, line 2"):
        load_replies(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl cannot be read"):
        load_replies(tmp_path / "nowhere.jsonl")
