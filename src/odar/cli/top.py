"""`odar top`: a running gateway, live in a terminal."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import click

from odar.cli.options import Finite, settings_options
from odar.errors import InputError
from odar.settings import Settings

if TYPE_CHECKING:
    from odar.cli.top_figures import Sample
    from odar.cli.top_view import Page
    from odar.providers.connections import Connections

KEY_VARIABLE = "ODAR_API_KEY"
_TIMEOUT_S = 5.0
_HISTORY = 120


@click.command("top")
@click.argument("url", required=False)
@click.option("--every", type=Finite(0.1, 60), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--window", type=Finite(1, 3600), default=30.0, show_default=True, help="Seconds summed up.")
@click.option("--once", is_flag=True, help="Look twice, print, and leave.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print a JSON object.")
@settings_options
def command(url: str | None, every: float, window: float, once: bool, as_json: bool, settings: Settings) -> None:
    """Watch a running gateway: requests, paths, latencies, calls, money, errors, breakers, the store.

    \b
    odar top                                 # the gateway of your settings
    odar top http://10.0.0.5:8088            # another one
    odar top --once --json | jq .now         # for machines

    Reads /metrics, which holds figures only. A gateway on another machine wants a key: set ODAR_API_KEY.
    q or Ctrl-C leaves.
    """
    if as_json and not once:
        raise InputError("--json goes with --once: a live view is for people")
    gateway = settings.gateway
    host = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
    address = (url or f"http://{host}:{gateway.port}").rstrip("/")
    address = address if "://" in address else f"http://{address}"
    if once or not sys.stdout.isatty():
        asyncio.run(_print(address, every, as_json))
    else:
        asyncio.run(_watch(address, every, window))


class Gateway:
    """What a gateway says about itself."""

    def __init__(self, url: str, connections: Connections, headers: Mapping[str, str]) -> None:
        self.url = url
        self._connections = connections
        self._headers = headers

    async def look(self) -> Sample:
        """Its figures now.

        Raises:
            InputError: nothing listens there, or not a gateway.
        """
        from odar.cli.top_figures import Sample

        status, text = await self._get("/metrics")
        if status in (401, 403):
            raise InputError(f"{self.url}/metrics wants a key (status {status}); set {KEY_VARIABLE}")
        with suppress(ValueError):  # text in another form
            if status == 200 and "odar_in_flight" in text:
                return Sample.parse(text, time.monotonic())
        raise InputError(f"{self.url}/metrics is not that of an odar gateway (status {status}); check the address")

    async def status(self) -> str:
        """Ready or draining; where something in front of it says neither, what it says."""
        status, text = await self._get("/readyz")
        try:
            return str(json.loads(text)["status"])
        except (ValueError, KeyError, TypeError):
            return f"/readyz answers with status {status}"

    async def _get(self, path: str) -> tuple[int, str]:
        from odar.providers.connection import Broken, NotHttp
        from odar.providers.connections import Unconnected

        try:
            async with asyncio.timeout(_TIMEOUT_S), self._connections.asked("GET", path, self._headers) as answer:
                return answer.status, (await answer.all()).decode("utf-8", errors="replace")
        except (Unconnected, Broken, NotHttp, TimeoutError) as error:
            why = str(error) or f"silent for {_TIMEOUT_S:g} s"
        raise InputError(
            f"no gateway answers at {self.url} ({why}); start one with `odar serve`, or name its address"
        )


@asynccontextmanager
async def _gateway(url: str) -> AsyncIterator[Gateway]:
    from odar.providers.address import Address
    from odar.providers.connections import Connections

    key = os.environ.get(KEY_VARIABLE, "").strip()
    try:
        connections = Connections(Address.parse(url))
    except ValueError:
        raise InputError(f"{url} is not an address; write it like http://127.0.0.1:8088") from None
    try:
        yield Gateway(url, connections, {"authorization": f"Bearer {key}"} if key else {})
    finally:
        connections.close()


async def _print(url: str, every: float, as_json: bool) -> None:
    """One look after another, and what happened in between."""
    from rich.console import Console

    from odar.cli.top_figures import figures
    from odar.cli.top_view import Page, page

    async with _gateway(url) as gateway:
        before = await gateway.look()
        await asyncio.sleep(every)
        after, status = await gateway.look(), await gateway.status()
    now, whole = figures(after, before), figures(after)
    if as_json:
        told = {
            "url": url,
            "status": status,
            "now": dataclasses.asdict(now),
            "since_start": dataclasses.asdict(whole),
        }
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    console = Console(highlight=False)
    console.print(page(Page(url, status, now, live=False), console.width, 1000))


async def _watch(url: str, every: float, window: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from odar.cli.top_view import page

    console = Console(highlight=False)
    stop = asyncio.Event()
    async with _gateway(url) as gateway:
        history = _History(gateway, window)
        shown = await history.next()  # before the screen is taken: an error is better read on an ordinary one
        with (
            _keys(stop),
            Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
        ):

            def draw() -> None:
                live.update(page(shown, *console.size), refresh=True)

            with _signals(stop, draw):
                while not stop.is_set():
                    draw()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), every)
                    if not stop.is_set():
                        shown = await history.next()


class _History:
    """Looks of the last seconds; a gateway that has gone is waited for."""

    def __init__(self, gateway: Gateway, window: float) -> None:
        self._gateway = gateway
        self._window = window
        self._looks: deque[Sample] = deque()
        self._rates: deque[float] = deque(maxlen=_HISTORY)
        self._gone = False

    async def next(self) -> Page:
        """The page after one more look."""
        from odar.cli.top_figures import figures
        from odar.cli.top_view import Page

        try:
            look, status = await self._gateway.look(), await self._gateway.status()
        except Exception:  # whatever it is, a view that goes on is of more use than its message
            if not self._looks:
                raise
            self._gone = True
            last = figures(self._looks[-1], self._looks[0] if len(self._looks) > 1 else None)
            return Page(self._gateway.url, "gives no answer", last, tuple(self._rates))
        if self._gone:  # one that comes back may have been started anew, and counts from 0
            self._looks.clear()
            self._gone = False
        if self._looks:
            self._rates.append(figures(look, self._looks[-1]).requests_per_s or 0.0)
        self._looks.append(look)
        while len(self._looks) > 2 and look.at - self._looks[0].at > self._window:
            self._looks.popleft()
        before = self._looks[0] if len(self._looks) > 1 else None
        return Page(self._gateway.url, status, figures(look, before), tuple(self._rates))


@contextmanager
def _keys(stop: asyncio.Event) -> Iterator[None]:
    """Single keys while inside; the terminal is as it was afterwards, whatever happens."""
    try:
        import termios
        import tty
    except ImportError:  # Windows: Ctrl-C remains
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def pressed() -> None:
        if os.read(descriptor, 64) in (b"q", b"Q", b"\x03", b"\x04", b""):
            stop.set()

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, pressed)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _signals(stop: asyncio.Event, draw: Callable[[], object]) -> Iterator[None]:
    """Leave on Ctrl-C and SIGTERM as on q; draw again when the window changes."""
    loop = asyncio.get_running_loop()
    wanted: dict[str, Callable[[], object]] = {
        "SIGINT": stop.set,
        "SIGTERM": stop.set,
        "SIGHUP": stop.set,
        "SIGWINCH": draw,
    }
    known = {getattr(signal, name): what for name, what in wanted.items() if hasattr(signal, name)}
    try:
        for number, what in known.items():
            with suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, what)
        yield
    finally:
        for number in known:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
