"""Parsing addresses and writing requests."""

from __future__ import annotations

import base64

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.providers.connection import Address


@pytest.mark.parametrize(
    ("url", "host", "port", "secure", "path", "authority"),
    [
        ("http://localhost", "localhost", 80, False, "", "localhost"),
        ("https://api.example.com/v1", "api.example.com", 443, True, "/v1", "api.example.com"),
        ("http://h:8080/a/b/", "h", 8080, False, "/a/b", "h:8080"),
        ("http://[::1]:9/v1", "::1", 9, False, "/v1", "[::1]:9"),
        ("HTTPS://UPPER.example/V1", "upper.example", 443, True, "/V1", "upper.example"),
        ("http://bücher.example/ä b", "xn--bcher-kva.example", 80, False, "/%C3%A4%20b", "xn--bcher-kva.example"),
    ],
)
def test_an_address_is_parsed(url: str, host: str, port: int, secure: bool, path: str, authority: str) -> None:
    address = Address.parse(url)
    assert (address.host, address.port, address.secure, address.path) == (host, port, secure, path)
    assert address.authority == authority


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://x/v1", "http://", "http://[::1", "http://h:99999", "http://h:x", "//h/v1"]
)
def test_invalid_addresses_are_rejected(url: str) -> None:
    with pytest.raises(ValueError):
        Address.parse(url)


def test_credentials_of_an_address_become_a_header() -> None:
    address = Address.parse("http://me:s%40crets@h/v1")
    basic = base64.b64encode(b"me:s@crets").decode()
    assert f"authorization: Basic {basic}".encode() in address.head("GET", "/x", {})
    assert b"Basic" not in address.head("GET", "/x", {"authorization": "Bearer k"})
    assert b"crets" not in address.head("GET", "/x", {}).replace(basic.encode(), b"")
    assert address.authority == "h"


def test_the_query_of_the_address_follows_the_path() -> None:
    address = Address.parse("https://azure.example/openai?api-version=2026-01-01")
    assert address.head("POST", "/chat", {}).startswith(b"POST /openai/chat?api-version=2026-01-01 HTTP/1.1\r\n")


class Read:
    """A request as read by a server."""

    def __init__(self, request: bytes) -> None:
        self.headers: dict[str, str] = {}
        self.url = self.body = b""
        self.whole = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(request)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = True


@given(st.text(max_size=30), st.binary(max_size=200))
def test_any_path_gives_one_valid_request(path: str, body: bytes) -> None:
    path = "/" + path.encode("utf-8", "replace").decode()
    read = Read(Address.parse("http://h:1/v1").head("POST", path, {"x-a": "b"}, len(body)) + body)
    assert read.whole
    assert (read.parser.get_method(), read.body) == (b"POST", body)
    assert read.headers == {"host": "h:1", "x-a": "b", "content-length": str(len(body))}
    assert read.url.startswith(b"/v1/")
