"""`odar traces` and `odar feedback`: list, show, export and mark recorded traces."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path as FilePath
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape

from odar.calibration_file import load_calibration
from odar.cli.explain import WIDTH, document_facts, print_document, text_of
from odar.cli.options import Finite, UserPath, settings_options
from odar.cli.terminal import plain_table
from odar.errors import InputError
from odar.policy.certificate import InstalledCertificate
from odar.settings import Settings
from odar.store.archive import Archive
from odar.store.database import Database
from odar.store.overview import warnings_of
from odar.store.record import MARKS, PATHS, STATUSES, UNMARKED, Cursor, Filter

F = TypeVar("F", bound=Callable[..., Any])
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_ID = 8
_COLUMNS = (
    ("trace", _ID),
    ("started", 14),
    ("path", 6),
    ("d", 4),
    ("calls", 5),
    ("cost", 10),
    ("time", 7),
    ("", 2),
)
"""Columns that are never cut; the names of the models get the rest."""


def filter_options(command: F) -> F:
    """Adds the filters; the command receives `wanted`."""

    @click.option("--since", metavar="TIME", help="Started at or after: 2026-11-15, 2026-11-15T10:30, 24h, 7d.")
    @click.option("--until", metavar="TIME", help="Started before.")
    @click.option("--path", type=click.Choice(PATHS), help="With this path.")
    @click.option("--status", type=click.Choice(STATUSES), help="With this status.")
    @click.option("--degraded/--whole", default=None, help="With or without degradations.")
    @click.option("--model", metavar="NAME", help="With a call to this model.")
    @click.option("--key", metavar="ID", help="Of this API key.")
    @click.option("--min-cost", type=Finite(min=0), metavar="USD", help="Cost at least this much.")
    @click.option("--max-cost", type=Finite(min=0), metavar="USD", help="Cost at most this much.")
    @click.option("--feedback", type=click.Choice([*MARKS, UNMARKED]), help="With this feedback.")
    @click.option("--text", metavar="TEXT", help="Contained in question or answer; needs store.content = true.")
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
@click.option("--after", metavar="CURSOR", help="Continue after the last list.")
@click.option("--summary", is_flag=True, help="Print totals instead of a list: paths, spending, savings.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object with traces and the next cursor.")
@settings_options
@click.pass_context
def command(
    context: click.Context,
    wanted: Filter,
    limit: int,
    after: str | None,
    summary: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """List recorded traces, newest first; or show one, or export them.

    \b
    odar traces --path hard --since 24h
    odar traces --summary --since 7d
    odar traces show 3f2a
    odar traces export --out traces.jsonl

    Times are UTC. d is the difficulty. Marks: E failed, C cancelled, D degraded, + marked right, - marked wrong.
    """
    if context.invoked_subcommand is not None:
        return
    if summary:
        _summarise(wanted, settings, as_json=as_json)
        return
    cursor = None if after is None else Cursor.parse(after)
    with _archive(settings) as archive:
        page = archive.page(wanted, cursor, limit)
    if as_json:
        following = None if page.next is None else str(page.next)
        click.echo(json.dumps({"traces": page.traces, "next": following}, ensure_ascii=False))
        return
    if page.traces:
        print_list(page.traces)
    else:
        click.echo("odar: no traces" + (" match" if wanted != Filter() else " yet; try: odar ask"), err=True)
        if wanted.text is not None and not settings.store.content:
            click.echo("odar: --text finds only what was stored with store.content = true", err=True)
    if page.next is not None:
        click.echo(f"odar: more with --after {page.next}", err=True)


def _summarise(wanted: Filter, settings: Settings, *, as_json: bool) -> None:
    with _archive(settings) as archive:
        view = archive.overview(wanted)
    warnings = warnings_of(view, settings)
    if as_json:
        click.echo(json.dumps({**view, "warnings": warnings}, ensure_ascii=False))
    elif view["queries"]:
        print_summary(view, warnings)
    else:
        click.echo("odar: no traces" + (" match" if wanted != Filter() else " yet; try: odar ask"), err=True)


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

    print_trace(found)


@command.command("export")
@filter_options
@click.option("--out", type=UserPath(), metavar="FILE", help="Append to FILE. Default: standard output.")
@click.option("--from", "from_", metavar="ID", help="Continue after this trace.")
@settings_options
def export(wanted: Filter, out: str | None, from_: str | None, settings: Settings) -> None:
    """Write traces as JSON, one per line, oldest first, with everything that is stored of them.

    \b
    odar traces export --since 7d --out week.jsonl
    odar traces export --from 3f2a --out week.jsonl

    An interrupted export prints how to continue it.
    """
    last = None
    with _archive(settings) as archive, _writer(out) as file:
        try:
            for count, trace in enumerate(archive.export(wanted, from_), start=1):
                file.write(json.dumps(trace, ensure_ascii=False) + "\n")
                last = trace["id"], count
        except BaseException:
            if last is not None:
                click.echo(f"odar: interrupted; continue with --from {last[0]}", err=True)
            raise
    if out is not None:
        click.echo(f"odar: {0 if last is None else last[1]} traces to {out}", err=True)


def parse_time(text: str, now: datetime | None = None) -> str:
    """A time as ISO 8601; "36h" is 36 hours ago.

    >>> parse_time("36h", datetime(2026, 11, 15, 12, tzinfo=UTC))
    '2026-11-14T00:00:00+00:00'
    """
    if match := re.fullmatch(r"(\d+)([mhdw])", text):
        try:
            span = timedelta(**{_UNITS[match[2]]: int(match[1])})
            return ((now or datetime.now(UTC)) - span).isoformat()
        except OverflowError:
            raise InputError(f"time {text!r} is too long ago") from None
    return text


@contextmanager
def _archive(settings: Settings) -> Iterator[Archive]:
    with Database(settings.store) as database:
        yield Archive(database)


def _writer(out: str | None) -> Any:
    if out is None:
        return nullcontext(sys.stdout)
    try:
        return FilePath(out).open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {out!r} cannot be written: {error.strerror or error}") from None


def print_list(traces: Sequence[dict[str, Any]]) -> None:
    """A line for each trace."""
    table = plain_table()
    for title, width in _COLUMNS:
        figures = title in ("d", "calls", "cost", "time")
        table.add_column(title, min_width=width, no_wrap=True, justify="right" if figures else "left")
    table.add_column("models", no_wrap=True, overflow="ellipsis", ratio=1)
    for trace in traces:
        table.add_row(
            escape(trace["id"][:_ID]),
            f"{trace['started_at'][5:10]} {trace['started_at'][11:19]}",
            trace["path"] or "-",
            _figure(trace["difficulty"], "{:.2f}"),
            str(trace["calls"]),
            _figure(trace["cost_usd"], "${:.5f}", "unknown"),
            f"{trace['seconds']:.2f}s",
            _marks(trace),
            escape(", ".join(trace["models"])),
        )
    Console(width=WIDTH, highlight=False).print(table)


def print_trace(trace: dict[str, Any]) -> None:
    """Print one trace."""
    print_document(trace["document"], _facts(trace, trace["document"]))


def _facts(trace: dict[str, Any], document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "trace", trace["id"]
    yield "started", trace["started_at"]
    yield "profile", trace["profile"]
    if trace["status"] != "ok":
        yield trace["status"], trace["error"] or "no reason given"
    yield "question", text_of(document["query"], "text")
    if document["answer"] is not None:
        yield "answer", text_of(document["answer"], "answer")
    yield from document_facts(document)
    if trace["key_id"] is not None:
        yield "key", trace["key_id"]
    if (said := trace["feedback"]) is not None:
        note = f": {said['note']}" if said["note"] else ""
        yield "feedback", ("right" if said["correct"] else "wrong") + note


def _figure(value: float | None, form: str, unknown: str = "-") -> str:
    return unknown if value is None else form.format(value)


def _marks(trace: dict[str, Any]) -> str:
    status = {"error": "E", "cancelled": "C"}.get(trace["status"], "")
    said = trace["feedback"]
    return status + ("D" if trace["degraded"] else "") + ("" if said is None else "+" if said["correct"] else "-")


def print_summary(view: dict[str, Any], warnings: Sequence[str]) -> None:
    """Sums over many traces: paths, spending, what was saved, cut-off answers."""
    found = view["savings"]
    slow, hard = found["always_slow"], found["always_hard"]
    table = plain_table("", "dollars", "calls", "slow calls")
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("actual", _dollars(found["cost_usd"]), str(found["calls"]), str(found["slow_calls"]))
    for name, each in (("saved against always slow", slow), ("saved against always hard", hard)):
        calls, fewer = _figure(each["calls_saved"], "{:+,.0f}"), each.get("slow_calls_saved")
        table.add_row(name, _dollars(each["usd_saved"], "+"), calls, _figure(fewer, "{:+,.0f}"))
    shares = ", ".join(f"{name} {path['queries'] / view['queries']:.0%}" for name, path in view["paths"].items())
    console = Console(width=WIDTH, highlight=False, markup=False)
    console.print(f"{view['queries']:,} questions ({shares}), {view['calls_per_query']:.2f} calls each")
    unknown = f"; the cost of {view['cost_unknown']:,} is unknown" if view["cost_unknown"] else ""
    console.print(
        f"spent {_dollars(view['cost_usd'])}{unknown}; {view['errors']} failed, {view['degraded']} degraded"
    )
    console.print()
    console.print(table)
    changed = (
        "no question" if found["changed"] is None else f"{found['changed']:.0%} of {found['compared']:,} answers"
    )
    console.print(f"\nchanged by the slow model: {changed}")
    for role, each in view["cut_off"].items():
        share = f" ({each['cut_off'] / each['answers']:.0%})" if each["answers"] else ""
        console.print(f"{role} answers cut off: {each['cut_off']:,} of {each['answers']:,}{share}")
    console.print(f"\n{found['assumption']}", style="dim")
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow")


def _dollars(value: float | None, sign: str = "") -> str:
    return "unknown" if value is None else f"{value:{sign}.4f}"


@click.command("feedback")
@click.argument("trace")
@click.argument("verdict", type=click.Choice(MARKS))
@click.option("--note", metavar="TEXT", help="A note, stored unchanged.")
@settings_options
def feedback(trace: str, verdict: str, note: str | None, settings: Settings) -> None:
    """Mark the answer of TRACE right or wrong. The beginning of its id is enough; the last mark counts.

    \b
    odar feedback 3f2a right
    odar feedback 3f2a wrong --note "it is 43"

    Calibration learns from it; with routing.learn = true the thresholds do at once (odar calibrate --history).
    `odar traces --feedback wrong` lists answers marked wrong.
    """
    made = load_calibration(settings.calibration).made if settings.routing.learn else {}
    certificate = InstalledCertificate.of(made.get("certificate"))
    with Database(settings.store) as database:
        full = Archive(database).mark(trace, verdict == "right", note, certificate=certificate)
    click.echo(f"{full} {verdict}")
