"""Messages and errors of `odar serve` before it serves; see also tests/serving/test_server.py."""

from __future__ import annotations

import socket
from contextlib import closing

import click
import pytest

from odar.cli.options import settings_options
from odar.cli.serve import _bind, _startup_messages
from odar.errors import SettingsError
from odar.serving.access import AccessPolicy
from odar.serving.keys import KeyCache
from odar.settings import GatewaySettings
from support.live_gateway import api_key


def said(bound, keys=(), **settings):
    ring = KeyCache()
    ring.load(keys)
    return list(_startup_messages(bound, AccessPolicy(ring, GatewaySettings(**settings))))


def test_the_start_message_names_address_and_access():
    with closing(_bind("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        listening = f"listening on http://127.0.0.1:{port} (open it in a browser for the dashboard)"
        assert said(bound, [api_key("k", "secret")]) == [listening]
        assert said(bound) == [
            listening,
            "no key is configured: only this machine can connect (make keys with `odar keys`)",
        ]
        assert said(bound, require_keys=True) == [
            listening,
            "no key exists yet, and one is required: every request is refused until `odar keys create`",
        ]


def test_an_ipv6_address_is_shown_in_brackets():
    try:
        bound = _bind("::1", 0)
    except SettingsError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with closing(bound):
        assert said(bound, [api_key("k", "secret")])[0].startswith(
            f"listening on http://[::1]:{bound.getsockname()[1]} "
        )


def test_a_port_in_use_is_a_one_line_error(odar, provider):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        result = odar("serve", "--port", str(port))
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"odar: gateway.port = {port} on 127.0.0.1 cannot be used: Address already in use; choose another --port\n"
    )


def test_an_unknown_host_is_a_one_line_error(odar, provider):
    result = odar("serve", "--host", "no such host")
    assert (result.code, result.out) == (2, "")
    assert len(result.err.strip().splitlines()) == 1


def test_without_keys_a_public_address_is_rejected(odar, provider):
    result = odar("serve", "--host", "0.0.0.0", "--port", "0")
    assert result.code == 2
    assert "no key is configured; make one with `odar keys`" in result.err


def test_options_override_settings(monkeypatch):
    seen = []

    @click.command()
    @click.option("--port", "setting_gateway__port", type=int)
    @click.option("--host", "setting_gateway__host")
    @settings_options
    def probe(settings):
        seen.append(settings.gateway)

    given = ("--profile", "tiny", "--set", "gateway.port=1234")
    probe.main([*given, "--host", "127.0.0.2"], standalone_mode=False)
    probe.main([*given, "--port", "0"], standalone_mode=False)
    assert [(gateway.host, gateway.port) for gateway in seen] == [("127.0.0.2", 1234), ("127.0.0.1", 0)]
