"""`odar traces` and `odar feedback`: list, show, export and mark recorded traces."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape

from odar.calibration_file import load_calibration
from odar.cli.explain import document_facts, print_document, text_of
from odar.cli.options import FILE, USD, json_option, settings_options
from odar.cli.terminal import WIDTH, plain_table, print_json
from odar.errors import InputError
from odar.policy.certificate import InstalledCertificate
from odar.settings import Settings
from odar.store.archive import Archive
from odar.store.database import Database
from odar.store.overview import warnings_of
from odar.store.record import MARKS, PATHS, STATUSES, UNMARKED, Cursor, Filter

F = TypeVar("F", bound=Callable[..., Any])
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COLUMNS = {"trace": 8, "started": 14, "path": 6, "d": 4, "calls": 5, "cost": 10, "time": 7, "": 2}
"""Columns that are never cut, and their widths; the names of the models get the rest."""
_FIGURES = ("d", "calls", "cost", "time")


def filter_options(command: F) -> F:
    """Adds the filters; the command receives `wanted`."""

    @click.option("--since", metavar="TIME", help="Started at or after: 2026-11-15, 2026-11-15T10:30, 24h, 7d.")
    @click.option("--until", metavar="TIME", help="Started before.")
    @click.option("--path", type=click.Choice(PATHS), help="With this path.")
    @click.option("--status", type=click.Choice(STATUSES), help="With this status.")
    @click.option("--degraded/--whole", default=None, help="With or without degradations.")
    @click.option("--model", metavar="NAME", help="With a call to this model.")
    @click.option("--key", metavar="ID", help="Of this API key.")
    @click.option("--min-cost", type=USD, metavar="USD", help="Cost at least this much.")
    @click.option("--max-cost", type=USD, metavar="USD", help="Cost at most this much.")
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
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, help="Traces to show.")
@click.option("--after", metavar="CURSOR", help="Continue after the last list.")
@click.option("--summary", is_flag=True, help="Print totals instead of a list: paths, spending, savings.")
@json_option("Print a JSON object with traces and the next cursor.")
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
    cursor = None if after is None else Cursor.parse(after)
    with _archive(settings) as archive:
        if summary:
            view = archive.overview(wanted)
        else:
            page = archive.page(wanted, cursor, limit)
    if summary:
        warnings, found = warnings_of(view, settings), bool(view["queries"])
        body = {**view, "warnings": warnings}
    else:
        found = bool(page.traces)
        body = {"traces": page.traces, "next": None if page.next is None else str(page.next)}
    if as_json:
        print_json(body)
        return
    if not found:
        click.echo("odar: no traces" + (" match" if wanted != Filter() else " yet; try: odar ask"), err=True)
        if wanted.text is not None and not settings.store.content:
            click.echo("odar: --text finds only what was stored with store.content = true", err=True)
    elif summary:
        print_summary(view, warnings)
    else:
        print_list(page.traces)
        if page.next is not None:
            click.echo(f"odar: more with --after {page.next}", err=True)


@command.command("show")
@click.argument("trace")
@json_option("Print all of it as a JSON object.")
@settings_options
def show(trace: str, as_json: bool, settings: Settings) -> None:
    """Show TRACE; the beginning of its id is enough.

    Questions and answers are there only if they were stored with store.content = true.
    """
    with _archive(settings) as archive:
        found = archive.get(archive.full_id(trace))
    if as_json:
        print_json(found)
    else:
        print_document(found["document"], _facts(found, found["document"]))


@command.command("export")
@filter_options
@click.option("--out", type=FILE, default="-", metavar="FILE", help="Append to FILE; - is standard output.")
@settings_options
def export(wanted: Filter, out: str, settings: Settings) -> None:
    """Write traces as JSON, one per line, oldest first, with everything that is stored of them.

    \b
    odar traces export --since 7d --out week.jsonl
    """
    count = 0
    try:
        file = click.open_file(out, "a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {out!r} cannot be written: {error.strerror or error}") from None
    with _archive(settings) as archive, file:
        for count, trace in enumerate(archive.export(wanted), start=1):  # noqa: B007 - the last number is told
            file.write(json.dumps(trace, ensure_ascii=False) + "\n")
    if out != "-":
        click.echo(f"odar: {count} traces to {out}", err=True)


def parse_time(text: str, now: datetime | None = None) -> str:
    """Return a time as ISO 8601; "36h" is 36 hours ago.

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


def print_list(traces: Sequence[dict[str, Any]]) -> None:
    """A line for each trace."""
    table = plain_table()
    for title, width in _COLUMNS.items():
        table.add_column(title, min_width=width, no_wrap=True, justify="right" if title in _FIGURES else "left")
    table.add_column("models", no_wrap=True, overflow="ellipsis", ratio=1)
    for trace in traces:
        said = trace["feedback"]
        marks = {"error": "E", "cancelled": "C"}.get(trace["status"], "") + ("D" if trace["degraded"] else "")
        table.add_row(
            escape(trace["id"][: _COLUMNS["trace"]]),
            f"{trace['started_at'][5:10]} {trace['started_at'][11:19]}",
            trace["path"] or "-",
            _figure(trace["difficulty"], ".2f", "-"),
            str(trace["calls"]),
            "unknown" if trace["cost_usd"] is None else f"${trace['cost_usd']:.5f}",
            f"{trace['seconds']:.2f}s",
            marks + ("" if said is None else "+" if said["correct"] else "-"),
            escape(", ".join(trace["models"])),
        )
    Console(width=WIDTH, highlight=False).print(table)


def _facts(trace: dict[str, Any], document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, key in (("trace", "id"), ("started", "started_at"), ("profile", "profile")):
        yield name, trace[key]
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


def _figure(value: float | None, form: str, unknown: str = "unknown") -> str:
    return unknown if value is None else format(value, form)


def print_summary(view: dict[str, Any], warnings: Sequence[str]) -> None:
    """Sums over many traces: paths, spending, what was saved, cut-off answers."""
    saved = view["savings"]
    figures = ("dollars", "calls", "slow calls")
    table = plain_table("", *figures, right=figures)
    table.add_row("actual", _figure(saved["cost_usd"], ".4f"), str(saved["calls"]), str(saved["slow_calls"]))
    for name in ("always slow", "always hard"):
        each = saved[name.replace(" ", "_")]
        calls = (_figure(each.get(key), "+,.0f", "-") for key in ("calls_saved", "slow_calls_saved"))
        table.add_row(f"saved against {name}", _figure(each["usd_saved"], "+.4f"), *calls)
    shares = ", ".join(f"{name} {path['queries'] / view['queries']:.0%}" for name, path in view["paths"].items())
    unknown = f"; the cost of {view['cost_unknown']:,} is unknown" if view["cost_unknown"] else ""
    spent = f"spent {_figure(view['cost_usd'], '.4f')}{unknown}"
    console = Console(width=WIDTH, highlight=False, markup=False)
    console.print(f"{view['queries']:,} questions ({shares}), {view['calls_per_query']:.2f} calls each")
    console.print(f"{spent}; {view['errors']} failed, {view['degraded']} degraded\n")
    console.print(table)
    compared = f"{saved['compared']:,} answers"
    changed = "no question" if saved["changed"] is None else f"{saved['changed']:.0%} of {compared}"
    console.print(f"\nchanged by the slow model: {changed}")
    for role, each in view["cut_off"].items():
        share = f" ({each['cut_off'] / each['answers']:.0%})" if each["answers"] else ""
        console.print(f"{role} answers cut off: {each['cut_off']:,} of {each['answers']:,}{share}")
    console.print(f"\n{saved['assumption']}", style="dim")
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow")


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
    certificate = InstalledCertificate.from_dict(made.get("certificate"))
    with Database(settings.store) as database:
        archive = Archive(database)
        full = archive.full_id(trace)
        archive.mark(full, verdict == "right", note, certificate=certificate)
    click.echo(f"{full} {verdict}")
