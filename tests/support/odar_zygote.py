"""A process that has imported everything and forks for each command, which makes commands start quickly.

    python odar_zygote.py SOCKET FOLDER    listens, and writes FOLDER/odar, which runs a command in a fork

The fork gets the caller's arguments, folder, environment and standard streams, so that nothing but time differs from
the installed command.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import signal
import socket
import stat
import sys
import threading
import traceback
from pathlib import Path

STREAMS = 3
SHIM = """#!{python} -IS
import array, json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
call = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
streams = array.array("i", [0, 1, 2])
server.sendmsg([len(call).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
server.sendall(call)
answers = server.makefile()
child = int(answers.readline())
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: os.kill(child, number))
sys.exit(int(answers.readline() or 1))
"""


def preload() -> None:
    """Import what commands share, and load the estimator; start no thread."""
    import importlib

    import click

    from odar.cli.main import COMMANDS, cli
    from odar.difficulty.base import open_estimator
    from odar.types import Query

    for name in COMMANDS:
        cli.get_command(click.Context(cli), name)
    for name in ("odar.engine", "odar.serving.app", "odar.traces.database", "odar.providers.openai", "sqlalchemy"):
        importlib.import_module(name)
    open_estimator("learned").estimate(Query("Ready?"))


def serve(address: str, folder: Path) -> None:
    """Fork for every connection, until it is killed."""
    preload()
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    shim = folder / "odar"
    shim.write_text(SHIM.format(python=sys.executable, address=address))
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            _wait_for_command(connection)
        connection.close()
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _wait_for_command(connection: socket.socket) -> None:
    """In the first fork: run the command in a second one, and tell its exit code."""
    head, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(STREAMS * 4))
    streams = array.array("i", ancillary[0][2])
    body = connection.makefile("rb").read(int.from_bytes(head, "big"))
    if (child := os.fork()) == 0:
        connection.close()
        _run(json.loads(body), streams)
    connection.sendall(f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status) % 256}\n".encode())
    os._exit(0)


def _run(call: tuple[list[str], str, dict[str, str]], streams: array.array[int]) -> None:
    arguments, folder, environment = call
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in enumerate(("r", "w", "w")))
    sys.argv = ["odar", *arguments]
    code = 1
    try:
        from odar.cli.main import main

        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
