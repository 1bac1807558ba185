"""`odar traces` and `odar feedback`: list, show, export and mark recorded traces."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar, get_args

import click

from odar.cli.explain import document_facts, print_document, text_of
from odar.cli.options import FILE, USD, json_option, settings_options
from odar.cli.terminal import format_known, notice, page_console, plain_table, print_json, print_table
from odar.errors import InputError, plural
from odar.settings import Settings
from odar.traces.archive import Archive
from odar.traces.database import Database
from odar.traces.filter import Filter, Mark, PathName, Status
from odar.traces.observations import agreement_lines, interval_text
from odar.traces.overview import warnings_of
from odar.traces.story import spend_line

F = TypeVar("F", bound=Callable[..., Any])
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COLUMNS = {"trace": 8, "started": 14, "path": 6, "d": 4, "calls": 5, "cost": 10, "time": 6, "": 1}
"""Columns that are never cut, and their least widths; the column of models has the rest of a terminal."""
_RIGHT_ALIGNED = ("d", "calls", "cost", "time")


def filter_options(command: F) -> F:

    @click.option("--since", metavar="TIME", help="Started at or after: 2026-11-15, 2026-11-15T10:30, 24h, 7d.")
    @click.option("--until", metavar="TIME", help="Started before.")
    @click.option("--path", type=click.Choice(get_args(PathName)), help="With this path.")
    @click.option("--status", type=click.Choice(get_args(Status)), help="With this status.")
    @click.option("--degraded/--whole", default=None, help="With or without degradations.")
    @click.option("--model", metavar="NAME", help="With a call to this model.")
    @click.option("--key", metavar="ID", help="Of this API key.")
    @click.option("--min-cost", type=USD, metavar="USD", help="Cost at least this much.")
    @click.option("--max-cost", type=USD, metavar="USD", help="Cost at most this much.")
    @click.option("--feedback", type=click.Choice(get_args(Mark)), help="With this feedback.")
    @click.option("--text", metavar="TEXT", help="Contained in question or answer; needs store.content = true.")
    @functools.wraps(command)
    def wrapper(*args: Any, since: str | None, until: str | None, **kwargs: Any) -> Any:
        others = {name: kwargs.pop(name) for name in Filter.__struct_fields__ if name in kwargs}
        conditions = Filter(since=since and parse_time(since), until=until and parse_time(until), **others)
        return command(*args, conditions=conditions, **kwargs)

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
    conditions: Filter,
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
    with open_archive(settings) as archive:
        if summary:
            found = archive.overview(conditions)
            observed = archive.observations(settings).report(conditions.since, conditions.key)
            found |= {"observation": observed, "warnings": warnings_of(found, settings)}
        else:
            found = archive.page(conditions, after, limit)
    if as_json:
        print_json(found)
    elif not found["queries" if summary else "traces"]:
        notice("no traces" + (" match" if conditions != Filter() else " yet; try: odar ask"))
        if conditions.text is not None and not settings.store.content:
            notice("--text finds only what was stored with store.content = true")
    elif summary:
        _print_summary(found)
    else:
        _print_list(found["traces"])
        if found["next"] is not None:
            notice(f"more with --after {found['next']}")


@command.command("show")
@click.argument("trace")
@json_option("Print all of it as a JSON object.")
@click.option("--verbose", is_flag=True, help="Show difficulty, features and energies too.")
@settings_options
def show(trace: str, as_json: bool, verbose: bool, settings: Settings) -> None:
    """Show TRACE; the beginning of its id is enough.

    Questions and answers are there only if they were stored with store.content = true.
    """
    with open_archive(settings) as archive:
        row = archive.get(archive.full_id(trace))
    if as_json:
        print_json(row)
    else:
        print_document(row["document"], _trace_facts(row, verbose=verbose), verbose=verbose)


@command.command("export")
@filter_options
@click.option("--out", type=FILE, default="-", metavar="FILE", help="Append to FILE; - is standard output.")
@settings_options
def export(conditions: Filter, out: str, settings: Settings) -> None:
    """Write traces as JSON, one per line, oldest first, with everything that is stored of them.

    \b
    odar traces export --since 7d --out week.jsonl
    """
    count = 0
    try:
        file = click.open_file(out, "a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {out!r} cannot be written: {error.strerror or error}") from None
    with open_archive(settings) as archive, file:
        for count, trace in enumerate(archive.export(conditions), start=1):  # noqa: B007 - the last count is printed
            file.write(json.dumps(trace, ensure_ascii=False) + "\n")
    if out != "-":
        notice(f"{plural(count, 'trace')} to {out}")


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
    if not text[:1].isdigit():
        raise InputError(f"time {text!r} is neither an age, such as 36h or 7d, nor ISO 8601, such as 2026-11-15")
    return text


@contextmanager
def open_archive(settings: Settings) -> Iterator[Archive]:
    with Database(settings.store) as database:
        yield Archive(database)


def _print_list(traces: Sequence[dict[str, Any]]) -> None:
    table = plain_table()
    for title, width in _COLUMNS.items():
        justify: Literal["left", "right"] = "right" if title in _RIGHT_ALIGNED else "left"
        table.add_column(title, min_width=width, no_wrap=True, justify=justify)
    table.add_column("models", no_wrap=True, ratio=1)
    table.expand = sys.stdout.isatty()
    rows = (
        (
            trace["id"][: _COLUMNS["trace"]],
            f"{trace['started_at'][5:10]} {trace['started_at'][11:19]}",
            trace["path"] or "-",
            format_known(trace["difficulty"], "{:.2f}", "-"),
            str(trace["calls"]),
            spend_line(trace["cost_usd"], None, "unknown"),
            f"{trace['seconds']:.2f}s",
            _marks(trace),
            ", ".join(trace["models"]),
        )
        for trace in traces
    )
    print_table(table, rows)


def _trace_facts(trace: dict[str, Any], *, verbose: bool) -> Iterator[tuple[str, str]]:
    document = trace["document"]
    for name, key in (("trace", "id"), ("started", "started_at"), ("profile", "profile")):
        yield name, trace[key]
    if trace["status"] != "ok":
        yield trace["status"], trace["error"] or "no reason given"
    yield "question", text_of(document["query"], "text")
    if document["answer"] is not None and document["answer"].get("text") != "":  # else a tool call
        yield "answer", text_of(document["answer"], "text")
    yield from document_facts(document, verbose=verbose)
    if trace["key_id"] is not None:
        yield "key", trace["key_id"]
    if (feedback := trace["feedback"]) is not None:
        note = f": {feedback['note']}" if feedback["note"] else ""
        yield "feedback", ("right" if feedback["correct"] else "wrong") + note


def _marks(trace: dict[str, Any]) -> str:
    """The marks of a trace: E or C, D, and + or -."""
    marks = {"error": "E", "cancelled": "C"}.get(trace["status"], "")
    if trace["degraded"]:
        marks += "D"
    if trace["feedback"] is not None:
        marks += "+" if trace["feedback"]["correct"] else "-"
    return marks


def _print_summary(overview: dict[str, Any]) -> None:
    """Print totals of many traces: paths, spending, savings, cut-off answers, agreement."""
    savings, queries = overview["savings"], overview["queries"]
    columns = ("dollars", "calls", "slow calls")
    table = plain_table("", *columns, right=columns)
    rows = {
        "actual": ("cost_usd", "calls", "slow_calls", ""),
        "always slow": ("always_slow_usd", "questions", "questions", ""),
        "saved": ("usd_saved", "calls_saved", "slow_calls_saved", "+"),
    }
    for name, (usd, calls, slow_calls, sign) in rows.items():
        whole = (f"{savings[key]:{sign},.0f}" for key in (calls, slow_calls))
        table.add_row(name, format_known(savings[usd], f"{{:{sign}.4f}}"), *whole)
    shares = ", ".join(f"{name} {path['queries'] / queries:.0%}" for name, path in overview["paths"].items())
    spent = f"spent {spend_line(overview['cost_usd'], None, 'unknown')}"
    if overview["cost_unknown"]:
        known = f"{spent}; the" if overview["cost_usd"] else "the"
        spent = f"{known} cost of {overview['cost_unknown']:,} is unknown"
    console = page_console()
    console.print(f"{plural(queries, 'question')} ({shares}), {overview['calls_per_query']:.2f} calls each")
    console.print(f"{spent}; {overview['errors']} failed, {overview['degraded']} degraded\n")
    if savings["questions"]:
        console.print(table)
    else:
        console.print("no question whose path ODAR chose: nothing to compare with always asking slow")
    if savings["unpriced"]:
        console.print(f"without {savings['unpriced']:,} questions of unknown cost")
    changed = format_known(savings["changed"], f"{{:.0%}} of {savings['compared']:,} answers", "no question")
    console.print(f"\nfast answer changed by another agent: {changed}")
    for stages, count in overview["stages"].items():
        console.print(f"asked {stages.replace(',', ', ')}: {count:,}")
    for agent, each in overview["cut_off"].items():
        share = f" ({each['cut_off'] / each['answers']:.0%})" if each["answers"] else ""
        console.print(f"{agent} answers cut off: {each['cut_off']:,} of {each['answers']:,}{share}")
    if savings["questions"]:
        console.print(f"\n{savings['assumption']}", style="dim")
    for warning in overview["warnings"]:
        console.print(f"warning: {warning}", style="yellow")
    observed = overview["observation"]
    if observed["total"]["questions"]:
        agreement = interval_text(observed["total"]["agreement"])
        click.echo(f"\nsame answer as slow: {agreement} of {observed['total']['compared']:,} observed")
        click.echo("\n".join(agreement_lines(observed)))


@click.command("feedback")
@click.argument("trace")
@click.argument("verdict", type=click.Choice(["right", "wrong"]))
@click.option("--note", metavar="TEXT", help="A note, stored unchanged.")
@settings_options
def feedback(trace: str, verdict: str, note: str | None, settings: Settings) -> None:
    """Mark the answer of TRACE right or wrong. The beginning of its id is enough; the last mark counts.

    \b
    odar feedback 3f2a right
    odar feedback 3f2a wrong --note "it is 43"

    `odar traces --feedback wrong` lists answers marked wrong.
    """
    with open_archive(settings) as archive:
        trace_id = archive.full_id(trace)
        archive.mark(trace_id, verdict == "right", note)
    click.echo(f"{trace_id} {verdict}")
