"""A forward proxy and a TLS server on this machine, with their own certificates."""

from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class ProxyServer:
    """An HTTP proxy with CONNECT that resolves names by its own table, so that only it can reach them.

    Args:
        names: the port on this machine of every name that it knows.
        login: `user:password` that a client must send; empty for everybody.
    """

    def __init__(self, names: Mapping[str, int], login: str = "") -> None:
        self.requests: list[str] = []
        """The request line of every request."""
        self._names = names
        self._login = base64.b64encode(login.encode()).decode()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve, at this address."""
        async with _listening(self._serve) as port:
            yield f"http://127.0.0.1:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            line, *headers = head.decode().split("\r\n")
            self.requests.append(line)
            method, target, _ = line.split()
            if self._login and f"proxy-authorization: Basic {self._login}" not in headers:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 6\r\n\r\nDenied")
                await reader.read()
            elif (port := self._names.get(_host(target))) is None:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\nFailed")
                await reader.read()
            else:
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
                if method == "CONNECT":
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    path = "/" + target.split("/", 3)[3]
                    kept = [each for each in headers if not each.startswith("proxy-")]
                    up_writer.write("\r\n".join([f"{method} {path} HTTP/1.1", *kept]).encode())
                await asyncio.gather(_copy(reader, up_writer), _copy(up_reader, writer))


def _host(target: str) -> str:
    """The host of `http://host:port/path` or `host:port`."""
    return target.removeprefix("http://").partition("/")[0].partition(":")[0]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError):
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
    finally:
        writer.close()


def self_signed(folder: Path, name: str) -> Path:
    """A PEM file with a key and a certificate for a name, which is its own CA (`FILE.crt`)."""
    file = folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run([*command, "-keyout", str(file), "-out", f"{file}.crt"], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@asynccontextmanager
async def tls_front(port: int, certificate: Path, clients: Path | None = None) -> AsyncIterator[int]:
    """A port that speaks TLS before a plain one; only to clients with a certificate of the CA `clients`, if given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, up_writer), _copy(up_reader, writer))

    async with _listening(serve, context) as secure:
        yield secure


@asynccontextmanager
async def _listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve at this port, and leave no task behind."""
    tasks: set[asyncio.Future[None]] = set()

    async def serve_tracked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        tasks.add(task)
        await asyncio.wait([task])
        writer.close()

    server = await asyncio.start_server(serve_tracked, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        while [t for t in asyncio.all_tasks() if t in tasks or "_accept_connection2" in repr(t.get_coro())]:
            await asyncio.sleep(0.01)
