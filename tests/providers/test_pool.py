from __future__ import annotations

import json

import pytest

from odar.config import load_settings
from odar.conversation import Message
from odar.errors import UnknownName, UsageError
from odar.providers.anthropic import AnthropicProvider
from odar.providers.base import Reply, Request
from odar.providers.openai import OpenAIProvider
from odar.providers.pool import ProviderPool
from odar.providers.replay import ReplayProvider
from support.requests import ask
from support.scripted import ScriptedProvider, completion


def settings_with(**providers: dict[str, object]):
    return load_settings("tiny", config="/dev/null", environ={}, providers=providers)


@pytest.fixture
def key(tmp_path):
    file = tmp_path / "key"
    file.write_text("sk-planted\n")
    file.chmod(0o600)
    return str(file)


@pytest.mark.parametrize(("kind", "made"), [("openai", OpenAIProvider), ("anthropic", AnthropicProvider)])
async def test_a_provider_is_opened_on_first_use_and_shared(kind, made, key):
    pool = ProviderPool(settings_with(p={"kind": kind, "base_url": "http://127.0.0.1:9/v1", "api_key_file": key}))
    assert pool._open == {}
    first = pool["p"]
    assert isinstance(first, made) and first.name == "p"
    assert pool["p"] is first
    await pool.close()
    assert pool["p"] is not first  # after closing, a new one
    await pool.close()


async def test_a_replay_provider_reads_its_recording(tmp_path):
    file = tmp_path / "replies.jsonl"
    file.write_text(json.dumps({"model": "m", "completions": [{"text": "Answer: 4"}]}) + "\n")
    pool = ProviderPool(settings_with(p={"kind": "replay", "recordings": str(file)}))
    assert isinstance(pool["p"], ReplayProvider)
    reply = await pool["p"].complete(Request("m", (Message("user", "2 + 2?"),)))
    assert [completion.text for completion in reply.completions] == ["Answer: 4"]
    await pool.close()


@pytest.mark.parametrize(
    ("provider", "why"),
    [
        ({"kind": "openai", "base_url": "http://h/v1", "api_key_env": "NO_SUCH_KEY"}, "set NO_SUCH_KEY"),
        ({"kind": "openai", "base_url": "http://h/v1", "api_key_file": "/nowhere/key"}, "cannot be read"),
        ({"kind": "smoke-signals"}, "unknown provider kind 'smoke-signals'"),
        ({"kind": "replay", "recordings": "/nowhere/r.jsonl"}, "/nowhere/r.jsonl"),
    ],
    ids=["no key", "no key file", "no such kind", "no recording"],
)
def test_missing_settings_are_named_on_first_use(provider, why, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    pool = ProviderPool(settings_with(p=provider))
    with pytest.raises(UsageError, match=why):
        pool["p"]
    assert pool._open == {}


def test_an_unknown_provider_gets_a_suggestion():
    with pytest.raises(UnknownName, match=r"unknown provider 'opena'; did you mean 'openai'"):
        ProviderPool(settings_with())["opena"]


async def test_given_providers_are_guarded_and_closed():
    def guard(provider):
        async def answer(request, send):
            return await send() if provider.name == "a" else Reply(())

        return answer

    ready = {name: ScriptedProvider(lambda *_: [completion("4")], name) for name in "ab"}
    pool = ProviderPool(settings_with(), ready, guard)
    assert [len((await pool.complete(name, ask())).completions) for name in "ab"] == [1, 0]
    await pool.close()
    await pool.close()
    assert ready["a"].closed
    assert ready["b"].closed


def test_the_key_is_not_in_the_repr(key):
    pool = ProviderPool(
        settings_with(p={"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "api_key_file": key})
    )
    assert "sk-planted" not in f"{pool['p']!r} {pool['p']} {pool!r}"
