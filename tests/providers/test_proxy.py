"""Upstream calls through a local proxy, with private CAs and client certificates."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from odar.config import load_settings
from odar.errors import ProviderUnreachable, SettingsError
from odar.providers.base import Message, Request
from odar.providers.connection import Address, proxy_for
from odar.providers.errors import ErrorFactory
from odar.providers.openai import OpenAIProvider
from odar.providers.pool import ProviderPool
from odar.settings import ProviderSettings
from support.fault_server import FaultServer
from support.payloads import chat_payload
from support.proxy_server import ProxyServer, self_signed, tls_front

NAME = "models.corp.test"
"""A name that no resolver knows: only the proxy can reach it."""
ASKED = Request("m", (Message("user", "2 + 2?"),), timeout_s=20)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"), NAME)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("client"), "gateway")


@pytest.fixture
async def port(server: FaultServer) -> AsyncIterator[int]:
    """The port of a model server."""
    server.behave(lambda exchange: exchange.send_json(chat_payload("4")))
    found = urlsplit(server.url).port
    assert found is not None
    yield found


async def ask(base_url: str, **files: str) -> str:
    """Return the answer of a server to a provider with these settings."""
    own = ProviderSettings(kind="openai", base_url=base_url, **files)
    pool = ProviderPool(dataclasses.replace(load_settings(), providers={"p": own}))
    try:
        return (await pool["p"].complete(ASKED)).completions[0].text
    finally:
        await pool.close()


async def test_https_through_a_proxy_with_a_private_ca(
    port: int, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tls_front(port, certificate) as secure:
        proxy = ProxyServer({NAME: secure})
        async with proxy.running() as address:
            monkeypatch.setenv("HTTPS_PROXY", address)
            assert await ask(f"https://{NAME}/v1", ca_file=f"{certificate}.crt") == "4"
    assert proxy.requests == [f"CONNECT {NAME}:443 HTTP/1.1"]


async def test_ssl_cert_file_names_the_ca(port: int, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from odar.providers.connection import default_tls

    async with tls_front(port, certificate) as secure, ProxyServer({NAME: secure}).running() as address:
        monkeypatch.setenv("HTTPS_PROXY", address)
        monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
        default_tls.cache_clear()
        try:
            assert await ask(f"https://{NAME}/v1") == "4"
        finally:
            default_tls.cache_clear()


async def test_a_client_certificate_is_sent(
    port: int, certificate: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, url, ca = Path(f"{own}.crt"), f"https://{NAME}/v1", f"{certificate}.crt"
    async with (
        tls_front(port, certificate, clients) as secure,
        ProxyServer({NAME: secure}).running() as address,
    ):
        monkeypatch.setenv("HTTPS_PROXY", address)
        assert await ask(url, ca_file=ca, client_cert=str(own)) == "4"
        assert await ask(url, ca_file=ca, client_cert=f"{own}.crt", client_key=str(own)) == "4"
        with pytest.raises(ProviderUnreachable):
            await ask(url, ca_file=ca)


async def test_plain_http_through_a_proxy_with_a_login(
    port: int, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = ProxyServer({NAME: port}, login="me:s@crets")
    async with proxy.running() as address:
        monkeypatch.setenv("HTTP_PROXY", address.replace("//", "//me:s%40crets@"))
        assert await ask(f"http://{NAME}:8080/v1") == "4"
    assert proxy.requests == [f"POST http://{NAME}:8080/v1/chat/completions HTTP/1.1"]
    assert server.requests[0].headers["host"] == f"{NAME}:8080"
    assert "proxy-authorization" not in server.requests[0].headers


async def test_a_rejected_proxy_login_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ProxyServer({NAME: 1}, login="me:right").running() as address:
        monkeypatch.setenv("HTTPS_PROXY", address.replace("//", "//me:wrong@"))
        with pytest.raises(ProviderUnreachable, match=r"407.*HTTPS_PROXY") as caught:
            await ask(f"https://{NAME}/v1")
    assert "wrong" not in str(caught.value)


async def test_a_proxy_that_cannot_reach_the_server_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ProxyServer({}).running() as address:
        monkeypatch.setenv("HTTPS_PROXY", address)
        provider = OpenAIProvider("p", f"https://{NAME}/v1")
        with pytest.raises(ProviderUnreachable, match="the proxy answers 502") as caught:
            await provider.complete(ASKED)
    assert caught.value.retryable


async def test_no_proxy_hosts_and_loopback_are_reached_directly(
    port: int, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = ProxyServer({})
    async with proxy.running() as address:
        monkeypatch.setenv("HTTP_PROXY", address)
        assert await ask(server.url) == "4"
    assert proxy.requests == []


@pytest.mark.parametrize(
    ("url", "variables", "found"),
    [
        ("https://api.example.com", {"HTTPS_PROXY": "http://proxy:3128"}, "proxy"),
        ("https://api.example.com", {"https_proxy": "proxy:3128"}, "proxy"),
        ("https://api.example.com", {"HTTP_PROXY": "http://proxy:3128"}, None),
        ("http://api.example.com", {"ALL_PROXY": "http://proxy:3128"}, "proxy"),
        ("https://api.example.com", {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.com"}, None),
        ("https://api.example.com", {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "other.com"}, "proxy"),
        ("https://api.example.com", {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, None),
        ("http://127.0.0.1:8080", {"HTTP_PROXY": "http://proxy:3128"}, None),
        ("http://localhost:11434", {"HTTP_PROXY": "http://proxy:3128"}, None),
        ("http://[::1]:8080", {"HTTP_PROXY": "http://proxy:3128"}, None),
    ],
)
def test_the_proxy_is_chosen_by_the_environment(
    url: str, variables: dict[str, str], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    proxy = proxy_for(Address.parse(url), ErrorFactory("p"))
    assert (proxy and proxy.host) == found


@pytest.mark.parametrize("value", ["socks5://proxy:1080", "https://proxy:3128", "http://me:hidden@"])
async def test_an_invalid_proxy_is_rejected(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(ProviderUnreachable, match="HTTPS_PROXY is not an http://") as caught:
        await ask(f"https://{NAME}/v1")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "files", [{"ca_file": "no-such.pem"}, {"client_cert": "no-such.pem"}, {"client_key": "no-such.pem"}]
)
async def test_an_invalid_certificate_file_is_a_settings_error(files: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=rf"providers\.p\.{next(iter(files))}"):
        await ask(f"https://{NAME}/v1", **files)
