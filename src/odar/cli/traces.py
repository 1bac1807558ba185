"""`odar traces` and `odar feedback`: list, show, export and mark recorded traces."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

import click

from odar.cli.explain import document_facts, print_document, text_of
from odar.cli.options import FILE, USD, json_option, settings_options
from odar.cli.terminal import format_known, notice, print_columns, print_json, print_text
from odar.errors import InputError, plural
from odar.settings import Settings
from odar.traces.archive import Archive
from odar.traces.database import Database
from odar.traces.filter import Filter, Mark, PathName, Status
from odar.traces.observations import agreement_lines, interval_text
from odar.traces.overview import warnings_of
from odar.traces.story import spend_line

F = TypeVar("F", bound=Callable[..., Any])


def filter_options(command: F) -> F:
    """Add the options of a `Filter`; the command receives `conditions`."""

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
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in Filter.__struct_fields__ if name in kwargs}
        return command(*args, conditions=Filter(**given), **kwargs)

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


@contextmanager
def open_archive(settings: Settings) -> Iterator[Archive]:
    with Database(settings.store) as database:
        yield Archive(database)


def _print_list(traces: Sequence[dict[str, Any]]) -> None:
    columns = {
        "trace": [trace["id"][:8] for trace in traces],
        "started": [f"{trace['started_at'][5:10]} {trace['started_at'][11:19]}" for trace in traces],
        "path": [trace["path"] or "-" for trace in traces],
        "d": [format_known(trace["difficulty"], "{:.2f}", "-") for trace in traces],
        "calls": [str(trace["calls"]) for trace in traces],
        "cost": [spend_line(trace["cost_usd"], None, "unknown") for trace in traces],
        "time": [f"{trace['seconds']:.2f}s" for trace in traces],
        "": [_marks(trace) for trace in traces],
        "models": [", ".join(trace["models"]) for trace in traces],
    }
    print_columns(columns, left=("started", "path", ""), folds=True)


def _trace_facts(trace: dict[str, Any], *, verbose: bool) -> Iterator[tuple[str, str]]:
    document = trace["document"]
    yield "trace", trace["id"]
    yield "started", trace["started_at"]
    yield "profile", document["profile"]
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
    savings = overview["savings"]
    queries = overview["queries"]
    # paths and spending
    shares = ", ".join(f"{name} {path['queries'] / queries:.0%}" for name, path in overview["paths"].items())
    spent = f"spent {spend_line(overview['cost_usd'], None, 'unknown')}"
    if overview["cost_unknown"]:
        known = f"{spent}; the" if overview["cost_usd"] else "the"
        spent = f"{known} cost of {overview['cost_unknown']:,} is unknown"
    print_text(f"{plural(queries, 'question')} ({shares}), {overview['calls_per_query']:.2f} calls each")
    print_text(f"{spent}; {overview['errors']} failed, {overview['degraded']} degraded")
    click.echo()
    # against asking slow every time
    dollars = [format_known(savings[name], "{:.4f}") for name in ("cost_usd", "always_slow_usd")]
    columns = {
        "": ["actual", "always slow", "saved"],
        "dollars": [*dollars, format_known(savings["usd_saved"], "{:+.4f}")],
        "calls": [f"{savings['calls']:,}", f"{savings['questions']:,}", f"{savings['calls_saved']:+,}"],
        "slow calls": [
            f"{savings['slow_calls']:,}",
            f"{savings['questions']:,}",
            f"{savings['slow_calls_saved']:+,}",
        ],
    }
    if savings["questions"]:
        print_columns(columns)
    else:
        print_text("no question whose path ODAR chose: nothing to compare with always asking slow")
    if savings["unpriced"]:
        print_text(f"without {savings['unpriced']:,} questions of unknown cost")
    # what was asked, and what was cut off
    changed = format_known(
        savings["changed"], f"{{:.0%}} of {plural(savings['compared'], 'answer')}", "no question"
    )
    click.echo(f"\nfast answer changed by another agent: {changed}")
    for stages, count in overview["stages"].items():
        print_text(f"asked {stages.replace(',', ', ')}: {count:,}")
    for agent, each in overview["cut_off"].items():
        share = f" ({each['cut_off'] / each['answers']:.0%})" if each["answers"] else ""
        print_text(f"{agent} answers cut off: {each['cut_off']:,} of {each['answers']:,}{share}")
    # what to know about these figures
    if savings["questions"]:
        click.echo()
        print_text(savings["assumption"], dim=True)
    for warning in overview["warnings"]:
        print_text(f"warning: {warning}", fg="yellow")
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
