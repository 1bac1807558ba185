"""`odar serve`: the gateway."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from odar.cli.local import prepare_models
from odar.cli.options import agent_options, settings_options, warn_of_foreign_calibration
from odar.cli.terminal import notice
from odar.errors import SettingsError
from odar.settings import LOG_FORMATS, Settings

if TYPE_CHECKING:
    from odar.serving.access import AccessPolicy

_PORT = click.IntRange(0, 65535)
_SEND_BUFFER_BYTES = 128 * 2**10


@click.command("serve")
@click.option(
    "--host", "setting_gateway__host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1."
)
@click.option("--port", "setting_gateway__port", type=_PORT, help="Port; 0 takes a free one. Default: 8088.")
@click.option(
    "--workers",
    "setting_gateway__workers",
    type=click.IntRange(1, 64),
    help="Processes that answer. Default: one per core up to 4, or 1 if a model runs in the process.",
)
@agent_options
@click.option(
    "--observe",
    "setting_observe__enabled",
    is_flag=True,
    default=None,
    help="Pass every request to the slow model, and watch what the cascade would do.",
)
@click.option("--log-format", "setting_gateway__log_format", type=click.Choice(LOG_FORMATS), help="Default: text.")
@settings_options
def command(settings: Settings) -> None:
    """Answer over HTTP with OpenAI's and Anthropic's APIs: change base_url, keep your client.

    \b
    odar serve
    odar serve --fast ollama/qwen3:4b --slow ollama/qwen3:32b
    odar serve --observe                       # change nothing, see what it saves
    curl http://127.0.0.1:8088/v1/chat/completions -d \\
      '{"model": "odar", "messages": [{"role": "user", "content": "Hi"}]}'

    Models: odar, odar-economy and odar-quality (as many calls as a question is worth), odar-simple, odar-medium and
    odar-hard (the paper's paths), and every model of `odar models` by its own name, passed through. Without keys it
    listens on this machine only. SIGTERM and SIGHUP let running requests finish; SIGTERM to one worker restarts it.
    It prints which models answer, and `ready` when they are loaded.

    It logs a line for every question to standard error, without texts; /dashboard shows the traces.
    """
    from odar.served.alignment import alignment_file
    from odar.serving.access import AccessPolicy, check_binding
    from odar.serving.app import create_app
    from odar.serving.keys import read_keys
    from odar.serving.logs import Logs, as_json, as_text, descriptor_writer, make_line
    from odar.serving.server import make_server
    from odar.serving.store import Store
    from odar.serving.workers import STARTED, Workers, worker_count

    # check who may connect, take the address, and load the models
    gateway = settings.gateway
    workers = Workers(worker_count(settings), gateway.sessions)
    keys = read_keys(settings.store)
    check_binding(keys, gateway)
    AccessPolicy(keys, gateway, workers)  # keys that exist now are required as long as the gateway runs
    bound = _bind(gateway.host, gateway.port)
    log_is_text = gateway.log_format == "text"
    if log_is_text:
        warn_of_foreign_calibration(settings)
    prepare_models(settings, quiet=not log_is_text)  # before the first request
    bound.listen(2048)  # from now on clients wait instead of being refused
    # start the workers
    write = descriptor_writer(sys.stderr.fileno(), shared=workers.count > 1)

    def log_supervision(message: str) -> None:
        line = make_line(message, "warning", "odar.serving")
        write(as_text(line) if log_is_text else as_json(line))

    workers.fork(log_supervision)  # from here on in each worker
    logs = Logs(write, gateway.log_format, requests=gateway.log_requests)
    logs.install()

    def announce(line: str) -> None:
        if log_is_text:
            notice(line)
        else:
            logs.info(line, profile=settings.profile)

    store = Store(settings, workers.owner if workers.count > 1 else "")
    served = alignment_file(settings.store)
    announce_once = announce if workers.is_first else None
    app = create_app(settings, store=store, logs=logs, served=served, announce=announce_once, workers=workers)
    server = make_server(app, gateway)
    workers.mark(STARTED)
    if workers.is_first:
        for line in _startup_messages(bound, app.state.service.access, workers.count):
            announce(line)
    # After draining, the server sends itself the signal again: exit only after logs and spans are written.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # ignored under nohup
        signal.signal(signal.SIGHUP, lambda _, frame: server.handle_exit(signal.SIGTERM, frame))
    try:
        server.run(sockets=[bound])
    finally:
        logs.close()


def _startup_messages(bound: socket.socket, access: AccessPolicy, workers: int = 1) -> Iterator[str]:
    """Yield the address, and who can connect if that needs attention."""
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    processes = f"; {workers} workers" if workers > 1 else ""
    yield f"listening on http://{shown}:{port} (open it in a browser for the dashboard){processes}"
    if not access.keys_required:
        yield "no key is configured: only this machine can connect (make keys with `odar keys`)"
    elif not len(access.keys):
        yield "no key exists yet, and one is required: every request is refused until `odar keys create`"


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket; an address in use is thus reported before anything else is done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol, asyncio does not set TCP_NODELAY, and each answer waits 40 ms for an acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it: it limits the kernel's memory for a client that does not read.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        reason = f"cannot be used: {error.strerror or error}; choose another --port"
        raise SettingsError(f"gateway.port = {port} on {host} {reason}") from None
    return bound
