"""`odar traces`: what was recorded."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odar.cli.options import Finite, UserPath, settings_options
from odar.errors import InputError
from odar.settings import Settings
from odar.store.filters import MARKS, PATHS, STATUSES, UNMARKED, Cursor, Filter

if TYPE_CHECKING:
    from odar.store.archive import Archive

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def filter_options(command: F) -> F:
    """Adds the filters; the command receives `wanted`."""

    @click.option("--since", metavar="TIME", help="Started then or later: 2026-11-15, 2026-11-15T10:30, 24h, 7d.")
    @click.option("--until", metavar="TIME", help="Started before.")
    @click.option("--path", type=click.Choice(PATHS), help="Took this path.")
    @click.option("--status", type=click.Choice(STATUSES), help="Ended so.")
    @click.option("--degraded/--whole", default=None, help="Something failed on the way, or nothing did.")
    @click.option("--model", metavar="NAME", help="This model had a part in it.")
    @click.option("--key", metavar="ID", help="Asked with this API key.")
    @click.option("--min-cost", type=Finite(min=0), metavar="USD", help="Cost that much or more.")
    @click.option("--max-cost", type=Finite(min=0), metavar="USD", help="Cost that much or less.")
    @click.option("--feedback", type=click.Choice([*MARKS, UNMARKED]), help="Was marked so.")
    @click.option("--text", metavar="TEXT", help="Has it in question or answer; needs store.content = true.")
    @functools.wraps(command)
    def wrapper(*args: Any, since: str | None, until: str | None, **kwargs: Any) -> Any:
        names = ("path", "status", "degraded", "model", "key", "min_cost", "max_cost", "feedback", "text")
        rest = {name: kwargs.pop(name) for name in names}
        wanted = Filter(since=since and parse_time(since), until=until and parse_time(until), **rest)
        return command(*args, wanted=wanted, **kwargs)

    return wrapper  # type: ignore[return-value]  # click's decorators do not carry the signature through


@click.group("traces", invoke_without_command=True)
@filter_options
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Traces to show.")
@click.option("--after", metavar="CURSOR", help="Go on where the last list ended.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object with traces and the next cursor.")
@settings_options
@click.pass_context
def command(
    context: click.Context, wanted: Filter, limit: int, after: str | None, as_json: bool, settings: Settings
) -> None:
    """List recorded traces, newest first; or show one, or export them.

    \b
    odar traces --path hard --since 24h
    odar traces show 3f2a
    odar traces export --out traces.jsonl

    Times are UTC. d is the difficulty. Marks: E failed, C cancelled, D degraded, + marked right, - marked wrong.
    """
    if context.invoked_subcommand is not None:
        return
    cursor = None if after is None else Cursor.parse(after)
    with _archive(settings) as archive:
        page = archive.page(wanted, cursor, limit)
    if as_json:
        following = None if page.next is None else str(page.next)
        click.echo(json.dumps({"traces": page.traces, "next": following}, ensure_ascii=False))
        return
    if page.traces:
        from odar.cli.trace_view import print_list

        print_list(page.traces)
    else:
        click.echo("odar: no traces" + (" match" if wanted != Filter() else " yet; try: odar ask"), err=True)
        if wanted.text is not None and not settings.store.content:
            click.echo("odar: --text finds only what was stored with store.content = true", err=True)
    if page.next is not None:
        click.echo(f"odar: more with --after {page.next}", err=True)


@command.command("show")
@click.argument("trace")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as a JSON object.")
@settings_options
def show(trace: str, as_json: bool, settings: Settings) -> None:
    """Show TRACE; the beginning of its id is enough.

    Questions and answers are there only if they were stored with store.content = true.
    """
    with _archive(settings) as archive:
        found = archive.get(trace)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    from odar.cli.trace_view import print_trace

    print_trace(found)


@command.command("export")
@filter_options
@click.option(
    "--out", type=UserPath(), metavar="FILE", help="Write to FILE, or add to it; without, to standard output."
)
@click.option("--from", "from_", metavar="ID", help="Go on after this trace, to continue a broken export.")
@settings_options
def export(wanted: Filter, out: str | None, from_: str | None, settings: Settings) -> None:
    """Write traces as JSON, one a line, oldest first.

    All that is known of them is in it.

    \b
    odar traces export --since 7d --out week.jsonl
    odar traces export --from 3f2a --out week.jsonl

    An export that broke off says how to go on.
    """
    last = None
    with _archive(settings) as archive, _writer(out) as file:
        try:
            for count, trace in enumerate(archive.export(wanted, from_), start=1):
                file.write(json.dumps(trace, ensure_ascii=False) + "\n")
                last = trace["id"], count
        except BaseException:
            if last is not None:
                click.echo(f"odar: broke off; go on with --from {last[0]}", err=True)
            raise
    if out is not None:
        click.echo(f"odar: {0 if last is None else last[1]} traces to {out}", err=True)


def parse_time(text: str, now: datetime | None = None) -> str:
    """A time as ISO 8601: itself, or so long ago.

    >>> parse_time("36h", datetime(2026, 11, 15, 12, tzinfo=UTC))
    '2026-11-14T00:00:00+00:00'
    """
    if match := re.fullmatch(r"(\d+)([mhdw])", text):
        try:
            span = timedelta(**{_UNITS[match[2]]: int(match[1])})
            return ((now or datetime.now(UTC)) - span).isoformat()
        except OverflowError:
            raise InputError(f"time {text!r} is longer ago than there are dates") from None
    return text


@contextmanager
def _archive(settings: Settings) -> Iterator[Archive]:
    from odar.store.archive import Archive
    from odar.store.database import Database

    with Database(settings.store) as database:
        yield Archive(database)


def _writer(out: str | None) -> Any:
    if out is None:
        return nullcontext(sys.stdout)
    try:
        return FilePath(out).open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {out!r} cannot be written: {error.strerror or error}") from None
