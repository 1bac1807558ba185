"""`odar serve`: the gateway."""

from __future__ import annotations

import dataclasses
import logging
import socket

import click

from odar.cli.embedded import fetch_if_embedded
from odar.cli.options import announce_profile, settings_options
from odar.settings import Settings


@click.command("serve")
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one. Default: 8088.")
@settings_options
def command(host: str | None, port: int | None, settings: Settings) -> None:
    """Answer over HTTP, in OpenAI's and Anthropic's words: change base_url, keep your client.

    \b
    odar serve
    curl http://127.0.0.1:8088/v1/chat/completions -d \\
      '{"model": "odar", "messages": [{"role": "user", "content": "Hi"}]}'

    Models: odar (adaptive), odar-simple, odar-medium, odar-hard, and every model of `odar models` by its own name,
    passed through. Without keys it listens on this machine only. SIGTERM lets running requests finish.
    """
    from odar.gateway.app import create_app
    from odar.gateway.records import StoredKeys, StoredRecord
    from odar.gateway.server import check_binding, make_server
    from odar.store.alignment_file import alignment_file
    from odar.store.store import open_store

    gateway = dataclasses.replace(
        settings.gateway,
        host=settings.gateway.host if host is None else host,
        port=settings.gateway.port if port is None else port,
    )
    settings = dataclasses.replace(settings, gateway=gateway)
    store = open_store(settings)
    keys = StoredKeys(store)
    check_binding(gateway.host, keys)
    bound = _bind(gateway.host, gateway.port)
    announce_profile(settings)
    fetch_if_embedded(settings, quiet=False)  # before anybody can ask, not while the first one waits
    logging.basicConfig(level=logging.WARNING, format="odar: %(levelname)s %(name)s: %(message)s")
    record, served = StoredRecord(store, settings.profile), alignment_file(settings.store)
    app = create_app(settings, keys=keys, recorder=record, traces=store, served=served)
    server = make_server(app, gateway)
    bound.listen(2048)  # from here on a client waits instead of being refused
    address, number = bound.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    click.echo(f"odar: listening on http://{shown}:{number} (open it in a browser for the dashboard)", err=True)
    if keys.empty():
        click.echo(
            "odar: no key is configured: only this machine can connect (make keys with `odar keys`)", err=True
        )
    server.run(sockets=[bound])


def _bind(host: str, port: int) -> socket.socket:
    """A socket at this address, so that one in use is known before anything else is done."""
    from odar.errors import SettingsError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, or asyncio leaves Nagle on and each answer waits 40 ms for an acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        why = error.strerror or error
        raise SettingsError(
            f"gateway.port = {port} on {host} cannot be used: {why}; choose another --port"
        ) from None
    return bound
