from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from odar.cli.main import main
from odar.config import load_settings
from odar.defaults import models_of_servers, parameter_count
from support.stub_vendors import llamacpp_models, ollama_pages, stub_server, vllm_models

KEYS = ("OPENAI", "ANTHROPIC", "DEEPSEEK", "GEMINI", "DASHSCOPE", "MISTRAL", "OPENROUTER", "TOGETHER")


def chosen(*vendors):
    settings = load_settings(config="/dev/null", environ={f"{name}_API_KEY": "sk" for name in vendors})
    return settings.profile, settings.fast.model, settings.slow.model


@pytest.mark.parametrize(
    ("vendors", "expected"),
    [
        ((), ("local", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")),
        (("OPENAI",), ("custom", "gpt-5.6-luna", "gpt-5.6-sol")),
        (("ANTHROPIC",), ("custom", "claude-haiku-5-5", "claude-sonnet-5-5")),
        (("DEEPSEEK",), ("custom", "deepseek-v4-flash", "deepseek-v4-pro")),
        # several: the cheapest, with log-probabilities if there is one, and the most expensive of the strong ones
        (("OPENAI", "ANTHROPIC"), ("custom", "gpt-5.6-luna", "gpt-5.6-sol")),
        (("ANTHROPIC", "DEEPSEEK"), ("custom", "claude-haiku-5-5", "claude-sonnet-5-5")),
        (("MISTRAL", "DEEPSEEK"), ("custom", "mistral-small-latest", "deepseek-v4-pro")),
        (("OPENROUTER",), ("custom", "openrouter/openai/gpt-5.6-luna", "openrouter/openai/gpt-5.6-sol")),
        (("OPENROUTER", "OPENAI"), ("custom", "gpt-5.6-luna", "gpt-5.6-sol")),
        (("TOGETHER",), ("local", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")),
    ],
)
def test_keys_choose_the_models(vendors, expected):
    assert chosen(*vendors) == expected


def test_several_keys_choose_a_second_model_of_another_family():
    keys = {"OPENAI_API_KEY": "sk", "ANTHROPIC_API_KEY": "sk"}
    settings = load_settings(config="/dev/null", environ=keys)
    assert settings.second is not None and settings.second.temperature == settings.fast.temperature
    fast, second = settings.card(settings.fast.model), settings.card(settings.second.model)
    assert (fast.model_family, second.model_family) == ("gpt", "claude")
    alone = {"OPENAI_API_KEY": "sk", "OPENROUTER_API_KEY": "sk"}  # both have gpt
    assert load_settings(config="/dev/null", environ=alone).second is None


@pytest.mark.parametrize(("named", "other"), [("fast", "slow"), ("slow", "fast")])
def test_one_named_agent_gets_the_default_model_of_a_key_beside_it(named, other):
    default = load_settings(config="/dev/null", environ={"OPENAI_API_KEY": "sk"})
    environ = {"OPENAI_API_KEY": "sk", f"ODAR_{named.upper()}_MODEL": "deepseek-v4-flash"}
    settings = load_settings(config="/dev/null", environ=environ)
    assert (settings.agent(named).model, settings.second) == ("deepseek-v4-flash", None)
    assert settings.agent(other).model == default.agent(other).model
    assert settings.origins[other, "model"] == "chosen"


def test_every_default_model_is_in_the_catalogue_with_a_price():
    settings = load_settings("local", config="/dev/null", environ={})
    for name, provider in settings.providers.items():
        assert bool(provider.cheap) == bool(provider.strong)
        if provider.cheap:
            cheap, strong = settings.card(provider.cheap), settings.card(provider.strong)
            assert {cheap.provider, strong.provider} == {name}
            assert cheap.price.output < strong.price.output


def test_the_reason_names_the_keys_and_never_shows_them():
    keys = {"OPENAI_API_KEY": "sk-1", "MISTRAL_API_KEY": "sk-2"}
    assert load_settings(environ=keys, config="/dev/null").profile_reason == (
        "OPENAI_API_KEY and MISTRAL_API_KEY are set"
    )
    unknown = load_settings(environ={"TOGETHER_API_KEY": "sk-3"}, config="/dev/null")
    assert unknown.profile_reason == "TOGETHER_API_KEY is set, but there is no default model: name together/MODEL"


def test_what_the_user_names_wins_over_keys(tmp_path):
    keys = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}
    assert load_settings("paper", config="/dev/null", environ=keys).fast.model == "gpt-5.1"
    named = load_settings(config="/dev/null", environ=keys, fast__model="gpt-4.1-nano", slow__model="gpt-4.1")
    assert (named.profile, named.fast.model) == ("custom", "gpt-4.1-nano")
    toml = tmp_path / "odar.toml"
    toml.write_text('[providers.openai]\ncheap = "gpt-4.1-nano"\n')
    assert load_settings(config=toml, environ=keys).fast.model == "gpt-4.1-nano"


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def provider(address: str) -> dict[str, str]:
    return {"kind": "openai", "base_url": f"{address}/v1"}


def test_a_local_servers_smallest_and_largest_models_are_taken():
    pages = ollama_pages({"llama3:latest": "8.0B", "nomic-embed-text:latest": "137M", "qwen3:4b": "4B"})
    with ExitStack() as stack:
        ollama = stack.enter_context(stub_server(pages))
        vllm = stack.enter_context(stub_server({"/v1/models": vllm_models("Qwen/Qwen3-32B")}))
        llamacpp = stack.enter_context(stub_server({"/v1/models": llamacpp_models("model.gguf", 600_000_000)}))
        refused = provider(closed_port())
        by_ollama = models_of_servers({"ollama": provider(ollama.address), "vllm": refused})
        assert by_ollama is not None
        assert by_ollama[:3] == (
            "ollama/qwen3:4b",
            "ollama/llama3:latest",
            f"ollama at {ollama.address}/v1 answers",
        )
        one = models_of_servers({"llamacpp": provider(llamacpp.address)})
        assert one is not None and one.fast == one.slow == "llamacpp/model.gguf"
        servers = {"ollama": ollama, "vllm": vllm, "llamacpp": llamacpp}
        all_of_them = models_of_servers({name: provider(server.address) for name, server in servers.items()})
        assert all_of_them is not None
        assert all_of_them[:2] == ("llamacpp/model.gguf", "vllm/Qwen/Qwen3-32B")
        assert (
            all_of_them.reason.startswith("llamacpp at http://127.0.0.1") and " and vllm at " in all_of_them.reason
        )
    assert models_of_servers({"ollama": refused}) is None


@pytest.mark.parametrize("page", [{}, [], {"data": None}, {"data": [None, {"id": 5}, {}]}, "text"])
def test_a_server_that_is_something_else_is_ignored(page):
    with stub_server({"/v1/models": page}) as server:
        assert models_of_servers({"x": provider(server.address)}) is None


def test_a_server_that_needs_a_key_or_does_not_reply_is_ignored(monkeypatch):
    monkeypatch.setattr("odar.defaults.TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert models_of_servers({"x": provider(address)}) is None
    with stub_server({"/v1/models": vllm_models("m-7b")}) as server:
        assert models_of_servers({"x": provider(server.address) | {"api_key_env": "KEY"}}) is None


def test_sizes_in_names():
    names = ("Qwen3-30B-A3B", "gemma3:270m", "gpt-oss:20b", "phi-4", "mixtral-8x7b", "model-v2.5b-x")
    assert [parameter_count(name) for name in names] == [30.0, 0.27, 20.0, 0.0, 7.0, 0.0]


@pytest.fixture
def user(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command as a new user: an empty home, these keys, these servers."""
    for name in KEYS:
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(*arguments, toml="", **keys):
        (tmp_path / "odar.toml").write_text(f'[store]\nurl = "{tmp_path / "odar.db"}"\n{toml}')
        for name, value in keys.items():
            monkeypatch.setenv(name, value)
        code = 0
        try:
            main(list(arguments))
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_one_key_is_enough(user):
    with stub_server() as server:
        toml = f'[providers.openai]\nbase_url = "{server.address}/v1"\n'
        code, out, err = user("ask", "--path", "medium", "What is 2 + 2?", toml=toml, OPENAI_API_KEY="sk-planted")
    assert (code, out) == (0, "gpt-5.6-luna says four.\nAnswer: 4\n")
    assert [(request["model"], request["key"]) for request in server.requests] == [
        ("gpt-5.6-luna", "sk-planted"),
        ("gpt-5.6-sol", "sk-planted"),
    ]
    assert all("stop" not in request for request in server.requests)
    chosen_models = "odar: fast gpt-5.6-luna, slow gpt-5.6-sol (OPENAI_API_KEY is set); name others in odar.toml"
    assert err.splitlines()[0] == chosen_models
    assert "sk-planted" not in err


def test_one_key_of_anthropic_is_enough(user):
    with stub_server() as server:
        toml = f'[providers.anthropic]\nbase_url = "{server.address}"\n'
        code, out, _ = user("ask", "--path", "medium", "What is 2 + 2?", toml=toml, ANTHROPIC_API_KEY="sk-planted")
    assert (code, out) == (0, "claude-sonnet-5-5 says four.\nAnswer: 4\n")
    assert [request["model"] for request in server.requests] == ["claude-haiku-5-5", "claude-sonnet-5-5"]


def test_a_local_server_is_enough(user):
    with stub_server(ollama_pages({"qwen3:4b": "4B", "qwen3:32b": "32B"})) as server:
        toml = f'[providers.ollama]\nbase_url = "{server.address}/v1"\n'
        code, out, err = user("ask", "--path", "medium", "What is 2 + 2?", toml=toml)
    assert (code, out) == (0, "qwen3:32b says four.\nAnswer: 4\n")
    assert err.startswith("odar: fast ollama/qwen3:4b, slow ollama/qwen3:32b (ollama at http://127.0.0.1:")
