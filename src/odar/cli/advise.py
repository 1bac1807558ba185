"""`odar advise`: what ODAR would save on your own traffic, and how often it would answer as the slow model does."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import click

from odar.calibration.advice import Advice, advise, best_second, kind_of, one_call_costs, percent, with_second
from odar.calibration.install import provenance, without_prompts
from odar.cli.collecting import RunOptions, confirm_run, record_items, run_options, with_long_timeouts
from odar.cli.eval_import import parse_columns, parse_prices
from odar.cli.local import fetch_weights
from odar.cli.options import COUNT, FILE, announce_profile, command_line, json_option, settings_options
from odar.cli.terminal import fitting_columns, plain_table, print_json, print_table, print_text
from odar.engine import Odar
from odar.errors import InputError, plural
from odar.evals.selection import select_tasks
from odar.files import atomic_write, cache_folder, user_path
from odar.planning import call_prices
from odar.recording.collect import Job, make_items
from odar.recording.files import open_recording, read_table
from odar.recording.header import digest_json, header_of
from odar.recording.importers import COLUMNS, ImportOptions, read_models
from odar.recording.joining import import_models
from odar.recording.journal import Journal
from odar.recording.questions import QuestionSet
from odar.recording.schema import RecordedItem, Task, item_from_json
from odar.recording.traffic import NOT_COMPARED, Traffic, read_traffic
from odar.settings import Settings
from odar.types import FAST, SECOND, SLOW, Ask, Query, Step

AUTO = "auto"
SEED = 42
TWICE = 3
"""Of so many questions, one is asked of slow twice."""
_SET = QuestionSet("log")


@dataclass(frozen=True, slots=True)
class Answers:
    """Recorded answers to a sample of the log."""

    items: list[RecordedItem]
    settings: Settings
    prompts: Mapping[Step, str]
    candidates: Mapping[str, str]
    """Agents that may be the second, and their models."""
    others: Sequence[Task] = ()
    """Requests without a comparable answer."""
    imported: bool = False
    about: str = ""
    code: int = 0
    """Exit code of the collection."""


@click.command("advise")
@click.argument("log", type=FILE)
@click.option("--limit", type=COUNT, default=300, help="Requests of a log to sample.")
@run_options(concurrency=4, engine=False)
@click.option("--dial", "setting_routing__dial", metavar="DIAL", help="economy, balanced, quality, or points.")
@click.option("--fast", metavar="NAME", help="Fast model. Default: as configured; of a table, the cheapest.")
@click.option("--second", metavar="NAME", help="Second model; auto tries those that are configured.")
@click.option("--slow", metavar="NAME", help="Slow model, the reference. Default: of a table, the most expensive.")
@click.option("--price", "prices", multiple=True, metavar="NAME=IN,OUT", help="Of a table: dollars per 10⁶ tokens.")
@click.option("--map", "columns", multiple=True, metavar="FIELD=COLUMN", help="A column of a table; repeatable.")
@click.option("--out", type=FILE, default="advice.json", metavar="FILE", help="Calibration for the cascade.")
@click.option("--html", "page", type=FILE, metavar="FILE", help="Write one page with the plot.")
@json_option("Print one JSON object.")
@settings_options
def command(
    log: str, run: RunOptions, as_json: bool, settings: Settings, out: str, page: str | None, **options: Any
) -> int:
    """Show what ODAR would save on the requests of LOG, and how often it gives the slow model's answer.

    LOG is a JSONL file of chat bodies, an export of LiteLLM or OpenAI, ODAR's own traces (`odar traces export`,
    with store.content), or questions. A random sample, stratified by kind and length, is answered by your agents:
    the cost is shown first, --budget is never exceeded, and the same command continues after Ctrl-C. A table with
    the answers of several models (a column `model`), or a recording, needs no call.

    Without right answers the slow model is the reference. A third of the questions is asked of it twice, so that
    every figure can be compared with how often slow gives its own answer again. Requests without a comparable
    answer (writing, advice, tool calls) take one call; they are priced, and never counted as agreement.

    It ends with a sentence and lines for odar.toml, or with the model to use alone.

    \b
    odar advise requests.jsonl --budget 5
    odar advise traces.jsonl --second auto --html advice.html
    odar advise answers.parquet --slow gpt-4.1 --price mini=0.15,0.6
    """
    given = {agent: options[agent] for agent in (FAST, SECOND, SLOW)}
    first = _first_row(log)
    if str(first.get("format", "")).startswith("odar-recording"):
        answers = _from_recording(log, settings)
    elif options["columns"] or _is_table(first):
        answers = _from_table(log, settings, given, options)
    else:
        named = {agent: name for agent, name in given.items() if name and name != AUTO}
        answers = _from_log(
            log, _with_models(settings, named), run, given[SECOND] == AUTO, options["limit"], quiet=as_json
        )
    fitted_dial = settings.origins.get(("routing", "dial"), "").startswith("calibration")  # to other questions
    advice, seconds = _advise(answers, "balanced" if fitted_dial else settings.routing.dial, given[SECOND])
    estimator = Odar(settings).estimator
    one_call = None
    if answers.others:
        one_call = one_call_costs(advice, answers.others, lambda query: estimator.estimate(query).difficulty)
    lines = _toml(advice, out)
    if advice.best.is_cascade:
        made = provenance({"command": command_line(), "data": log, "items": len(advice.kinds)})
        fitted = replace(advice.calibration, settings=dict(advice.best.settings), made=made)
        fitted = without_prompts(fitted) if answers.imported else fitted
        with atomic_write(Path(out)) as draft:
            draft.write_text(fitted.to_json(), encoding="utf-8")
    body = _body(advice, answers, seconds, one_call, lines)
    if page:
        with atomic_write(Path(page)) as draft:
            draft.write_text(_html(advice, body), encoding="utf-8")
    if as_json:
        print_json(body)
    else:
        _print(advice, body)
        if written := [file for file in (out if advice.best.is_cascade else "", page) if file]:
            click.echo(f"\nwritten: {', '.join(written)}")
    return answers.code


# --- what the log holds ----------------------------------------------------------------------------------------


def _first_row(log: str) -> Mapping[str, Any]:
    """Return the first row of a file, or nothing if it is none: that is reported when all is read."""
    path = user_path(log)
    try:
        return next(read_table(path), {}) if path.is_file() and path.suffix != ".json" else {}
    except InputError:
        return {}


def _is_table(first: Mapping[str, Any]) -> bool:
    """Return whether rows are answers of several models: with a column for the model, and one for the answer."""
    names = {field for field in ("model", "text", "answer", "score") for name in COLUMNS[field] if name in first}
    is_text = all(not isinstance(first.get(name), dict | list) for name in (*COLUMNS["text"], *COLUMNS["query"]))
    return "model" in names and len(names) > 1 and is_text and not {"messages", "body", "request"} & first.keys()


def _from_recording(log: str, configured: Settings) -> Answers:
    recording = open_recording(log)
    header = recording.header
    settings = header.to_settings()
    items = [
        item
        for item in recording.items("calibrate", tokens=False)
        if {each.agent for each in item.attempts} >= set(settings.agent_names)
    ]
    prompts = _prompts(configured) if header.imported else header.prompt_md5s()
    return _recorded(items, settings, prompts, imported=header.imported)


def _from_table(
    log: str, settings: Settings, given: Mapping[str, str | None], options: Mapping[str, Any]
) -> Answers:
    models = read_models([log], ImportOptions("table"), lambda name: parse_columns(options["columns"], name))
    digest = hashlib.sha256(user_path(log).read_bytes()).hexdigest()
    roles = {agent: None if name == AUTO else name for agent, name in given.items()}
    imported = import_models(
        Odar(settings), models, parse_prices(options["prices"]), roles, Path(log).stem, {Path(log).name: digest}
    )
    for warning in imported.warnings:
        click.echo(f"odar: {warning}", err=True)
    if imported.left_out:
        click.echo(f"odar: {imported.left_out} questions left out: not all models answered them", err=True)
    return _recorded(imported.items, imported.header.to_settings(), _prompts(settings), imported=True)


def _recorded(
    items: Sequence[RecordedItem], settings: Settings, prompts: Mapping[Step, str], *, imported: bool
) -> Answers:
    """Return all recorded answers: they cost nothing, so that there is no need for a sample."""
    compared = [item for item in items if kind_of(item) not in NOT_COMPARED]
    others = [Task(each.key.id, Query(each.query), []) for each in items if kind_of(each) in NOT_COMPARED]
    if not compared:
        raise InputError("there are no recorded questions with comparable answers of all agents")
    candidates = {name: settings.agent(name).model for name in settings.agent_names if name not in (FAST, SLOW)}
    return Answers(compared, settings, prompts, candidates, others, imported, f"{len(items)} recorded questions")


def _from_log(log: str, settings: Settings, run: RunOptions, auto: bool, limit: int, *, quiet: bool) -> Answers:
    """Sample the requests of a log, and let the agents answer those whose answers can be compared."""
    traffic = read_traffic(log, _read_chat)
    tasks = [task for task, _ in select_tasks(traffic.compared, limit=limit)]
    about = _describe(traffic, len(tasks))
    click.echo(f"odar: {about}", err=True)
    if not tasks:
        raise InputError(
            f"{log}: no request has a comparable answer; open-ended requests and tool calls take one call each, "
            "whatever the cascade"
        )
    if not quiet:
        announce_profile(settings)
    fetch_weights(settings, quiet=quiet)
    further = _cheap_models(settings) if auto else []
    settings = replace(settings, dispatch=replace(settings.dispatch, models=False), agents={})
    is_labelled = all(task.gold for task in tasks)
    cheap = [Ask(agent) for agent in settings.agent_names if agent != SLOW]

    def asks(task: Task) -> tuple[Ask, ...]:
        twice = not is_labelled and int(task.id, 16) % TWICE == 0
        return (*cheap, Ask(SLOW, 2 if twice else 1))

    code, items = _collect(settings, [(task, asks(task)) for task in tasks], log, run, quiet=quiet)
    candidates = {SECOND: settings.second.model} if settings.second else {}
    for name in further:
        click.echo(f"odar: {name} as the second", err=True)
        tried = replace(
            settings, fast=replace(settings.fast, model=name, alternatives=(), fallbacks=()), second=None
        )
        worse, found = _collect(tried, [(task, (Ask(FAST),)) for task in tasks], log, run, quiet=quiet)
        agent = f"second-{len(candidates)}"
        candidates[agent] = name
        code = code or worse
        extra = {item.key: replace(item.attempts[0], agent=agent) for item in found}
        items = [replace(i, attempts=(*i.attempts, extra[i.key])) for i in items if i.key in extra]
    return Answers(items, settings, _prompts(settings), candidates, traffic.others, False, about, code)


def _prompts(settings: Settings) -> dict[Step, str]:
    """Return the MD5 of the prompts in use, by which a calibration knows its agents."""
    return {step: prompt.md5 for step, prompt in Odar(settings).agents.prompts.exact.items()}


def _cheap_models(settings: Settings) -> list[str]:
    """Return the configured models that could be the second, besides the one that is."""
    named = [*settings.fast.alternatives, *settings.fast.fallbacks]
    named += [agent.model for agent in settings.agents.values()]
    taken = {settings.fast.model, settings.slow.model, settings.second.model if settings.second else ""}
    return [name for name in dict.fromkeys(named) if name not in taken]


def _collect(
    settings: Settings, asked: Sequence[tuple[Task, tuple[Ask, ...]]], log: str, run: RunOptions, *, quiet: bool
) -> tuple[int, list[RecordedItem]]:
    """Record the answers that are missing; return the exit code, and the items that have all answers."""
    settings = replace(settings, routing=replace(settings.routing, samples=1))
    odar = Odar(settings)  # makes no call
    header = header_of(odar)
    items = make_items(odar, [Job(_SET, task, 0, SEED, asks) for task, asks in asked])
    name = f"{header.made_by}-{digest_json(str(user_path(log).absolute()))[:8]}.jsonl"
    with Journal(cache_folder() / "advice" / name, header.to_row()) as journal:
        todo = journal.missing(items)
        confirm_run(
            run, settings, todo, len(items), "requests", _expected(settings, [each.payload for each in todo])
        )
        code = record_items(run, with_long_timeouts(settings), items, journal, quiet=quiet)
        keys = [item.key for item in items if item.key in journal.entries and not journal.entries[item.key].failed]
        return code, [item_from_json(row).measured() for row in journal.rows(keys)]


def _expected(settings: Settings, jobs: Sequence[Job]) -> str:
    """Return the calls of some jobs, and their cost at the usual length."""
    cards = {agent: settings.card(settings.agent(agent).model) for agent in settings.agent_names}
    calls = sum(ask.samples for job in jobs for ask in job.asks)
    if unknown := [card.name for card in cards.values() if card.price is None]:
        return f'{calls} calls; set [models."{unknown[0]}"] price to know what they cost: '
    prices = [(job, call_prices(cards, job.task.query.estimated_tokens)[0]) for job in jobs]
    cost = sum(price[ask.agent] * ask.samples for job, price in prices for ask in job.asks)
    return f"{calls} calls, about ${cost:.4f} at the usual length, "


def _read_chat(body: Mapping[str, Any]) -> Query:
    from odar.gateway.chat import read_chat
    from odar.gateway.errors import ApiError

    try:
        return read_chat({"model": "odar", **body}).query
    except ApiError as error:
        raise ValueError(error.message) from None


def _with_models(settings: Settings, models: Mapping[str, str]) -> Settings:
    """Return the settings with other models of some agents."""
    for agent, name in models.items():
        settings.card(name)  # an unknown model is reported before anything is read
        own = settings.agent(agent) if agent in settings.agent_names else settings.fast
        changed: dict[str, Any] = {agent: replace(own, model=name, alternatives=(), fallbacks=())}
        settings = replace(settings, **changed)
    return settings


def _describe(traffic: Traffic, sampled: int) -> str:
    """Return what the log holds in one line."""
    found = len(traffic.tasks)
    of = f"{plural(found, 'request')} of {plural(traffic.rows, 'row')}"
    notes = [f"{plural(sampled, 'question')} sampled"]
    if traffic.others:
        notes.append(f"{len(traffic.others)} without a comparable answer")
    if traffic.repeated:
        notes.append(f"{traffic.repeated} repeated")
    if traffic.skipped:
        reason, _ = max(traffic.skipped.items(), key=lambda each: each[1])
        notes.append(f"{plural(sum(traffic.skipped.values()), 'row')} skipped ({reason})")
    return f"{of}: {', '.join(notes)}"


# --- the advice ------------------------------------------------------------------------------------------------


def _advise(answers: Answers, dial: str, second: str | None) -> tuple[Advice, dict[str, float]]:
    """Return the advice with the configured or the best second, and what each candidate is worth."""

    def with_candidate(agent: str | None) -> Advice:
        model = "" if agent is None else answers.candidates[agent]
        return advise(*with_second(answers.items, answers.settings, agent, model), answers.prompts, dial)

    if second == AUTO or len(answers.candidates) > 1:
        advice, points = best_second(list(answers.candidates), with_candidate)
        return advice, {answers.candidates.get(name, name): worth for name, worth in points.items()}
    return with_candidate(next(iter(answers.candidates), None)), {}


def _toml(advice: Advice, calibration: str) -> list[str]:
    """Return the lines for odar.toml."""
    best = advice.best
    lines = [f"policy = {json.dumps(best.settings['policy'])}"]
    lines += [f"calibration = {json.dumps(calibration)}"] if best.is_cascade else []
    for agent in advice.settings.agent_names:
        lines += ["", f"[{agent}]", f"model = {json.dumps(advice.settings.agent(agent).model)}"]
    if best.is_cascade:
        lines += ["", "[routing]", f"dial = {json.dumps(best.settings['routing.dial'])}"]
    return lines


def _body(
    advice: Advice,
    answers: Answers,
    seconds: Mapping[str, float],
    one_call: Mapping[str, Any] | None,
    lines: Sequence[str],
) -> dict[str, Any]:
    """Return everything that is shown as plain data."""
    settings = advice.settings
    kinds = {
        kind: {"questions": int(rows.sum()), "choices": advice.to_rows(rows)}
        for kind, rows in advice.by_kind().items()
    }
    return {
        "recommendation": advice.sentence(),
        "toml": "\n".join(lines) + "\n",
        "log": answers.about,
        "questions": len(advice.kinds),
        "left_out": advice.left_out,
        "score": advice.score_name,
        "asked_twice": advice.repeats,
        "models": {agent: settings.agent(agent).model for agent in settings.agent_names},
        "nominal_prices": advice.table.nominal,
        "choices": advice.to_rows(),
        "kinds": kinds,
        "one_call": one_call,
        "seconds": dict(seconds),
    }


def _print(advice: Advice, body: Mapping[str, Any]) -> None:
    models = ", ".join(f"{agent} {model}" for agent, model in body["models"].items())
    print_text(f"{plural(body['questions'], 'question')}; {models}; 95% intervals")
    click.echo()
    same = body["score"].replace(" ", "_")
    title = "right" if advice.labelled else "same answer as slow"
    columns: dict[str, list[str]] = {
        "": ["→" if row["best"] else "" for row in body["choices"]],
        "choice": [row["choice"] for row in body["choices"]],
        "$/1000": [f"{row['usd_per_1000']:.4g}" for row in body["choices"]],
        title: [_share(row[same]) for row in body["choices"]],
        "saving": [percent(row["saving"], 0) for row in body["choices"]],
        "calls": [f"{row['calls']:.2f}" for row in body["choices"]],
    }
    _print_columns(columns)
    shown = advice.best if advice.best is not advice.slow else next(c for c in advice.choices if c.is_cascade)
    number = advice.choices.index(shown)
    slow = advice.choices.index(advice.slow)
    if len(body["kinds"]) > 1:
        click.echo(f"\n{shown.name}, by kind of question\n")
        kinds = body["kinds"]
        rows = [each["choices"][number] for each in kinds.values()]
        table = {
            "kind": [kind or "unknown" for kind in kinds],
            "questions": [str(each["questions"]) for each in kinds.values()],
            title: [_share(row[same]) for row in rows],
            "slow itself": [_share(each["choices"][slow][same]) for each in kinds.values()],
            "saving": [percent(row["saving"], 0) for row in rows],
        }
        _print_columns(table if not advice.labelled else {n: v for n, v in table.items() if n != "slow itself"})
    click.echo()
    for note in _notes(advice, body):
        print_text(note)
    click.echo()
    print_text(body["recommendation"])
    click.echo("\nodar.toml:\n")
    click.echo("".join(f"    {line}\n" if line else "\n" for line in body["toml"].splitlines()), nl=False)


def _print_columns(columns: Mapping[str, Sequence[str]]) -> None:
    shown = fitting_columns(columns)
    table = plain_table(*shown, gap=2, right={"$/1000", "calls", "questions"} & set(shown), no_wrap=True)
    for cells in zip(*(columns[name] for name in shown), strict=True):
        table.add_row(*cells)
    print_table(table)


def _share(interval: Any) -> str:
    return "–" if interval.value != interval.value else percent(interval)


def _notes(advice: Advice, body: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know to read the tables."""
    notes = []
    if not advice.labelled and advice.repeats:
        notes.append(
            f"The row of slow is how often it gives its own answer again, on {advice.repeats} questions that it "
            "was asked twice. Agreement is not accuracy."
        )
    elif not advice.labelled:
        notes.append(
            "Slow answered each question once, so how often it would repeat itself is unknown, and every "
            "difference counts against the cascade. Agreement is not accuracy."
        )
    if advice.left_out:
        notes.append(f"{plural(advice.left_out, 'question')} left out: slow's answer was cut off or empty.")
    if body["nominal_prices"]:
        notes.append("A price is unknown or zero: prices are nominal, by size or role. Set [models.NAME] price.")
    if (one := body["one_call"]) is not None:
        to = ", ".join(f"{count} to {agent}" for agent, count in one["to"].items())
        notes.append(
            f"{plural(one['requests'], 'request')} without a comparable answer (open-ended, tool calls) take one "
            f"call, {to}: about ${one['usd_per_1000']:.4g} per 1,000 at the usual length, "
            f"${one['slow_usd_per_1000']:.4g} if all go to slow. They are in no figure above."
        )
    if body["seconds"]:
        worth = ", ".join(f"{name} {points:+.1f}" for name, points in body["seconds"].items())
        notes.append(f"Second, by what the best cascade with it is worth beyond one slow call, in points: {worth}.")
    return notes


# --- the page --------------------------------------------------------------------------------------------------


def _html(advice: Advice, body: Mapping[str, Any]) -> str:
    """Return one page with the plot, without scripts and network access."""
    from odar.evals.report.draw import Colour, to_svg

    score = body["score"].replace(" ", "_")

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        known = [row for row in body["choices"] if row[score].value == row[score].value]
        for number, row in enumerate(known):
            colour = Colour.ACCENT if row["settings"]["policy"] == "cascade" else Colour.OTHER
            x, y = row["usd_per_1000"], 100 * row[score].value
            bounds = [[y - 100 * row[score].low], [100 * row[score].high - y]]
            axes.errorbar(x, y, bounds, fmt="o", color=colour, markersize=5, elinewidth=1)
            below = (14, -14, -28)[number % 3]  # neighbours are often at nearly the same point
            name = row["choice"].removeprefix("cascade ")
            axes.annotate(name, (x, y), (8, below), textcoords="offset points", fontsize=8.5, color=colour)
        axes.set(xlabel="$ per 1,000 questions", ylabel=f"{body['score']}, %")
        axes.margins(x=0.2, y=0.15)
        axes.set_xlim(left=0)

    def table(rows: Sequence[Mapping[str, Any]]) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("choice", "$ per 1,000", body["score"], "saving", "calls"))
        cells = ""
        for row in rows:
            figures = (
                f"{row['usd_per_1000']:.4g}",
                _share(row[score]),
                percent(row["saving"], 0),
                f"{row['calls']:.2f}",
            )
            cells += f"<tr{' class=ours' if row['best'] else ''}><th>{html.escape(row['choice'])}</th>"
            cells += "".join(f"<td>{figure}</td>" for figure in figures) + "</tr>"
        return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{cells}</tbody></table></div>'

    style = resources.files("odar.evals.report").joinpath("page.css").read_text(encoding="utf-8")
    models = ", ".join(f"{agent} {model}" for agent, model in body["models"].items())
    kinds = "".join(
        f"<h3>{html.escape(kind or 'unknown')}, {each['questions']} questions</h3>{table(each['choices'])}"
        for kind, each in body["kinds"].items()
    )
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in _notes(advice, body))
    parts = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ODAR: advice</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{style}</style></head><body><main><header><h1>What ODAR would save</h1>",
        f'<p class="lead">{html.escape(body["recommendation"])}</p>',
        f"<p>{body['questions']} questions; {html.escape(models)}; 95% intervals.</p></header>",
        f'<figure><figcaption id="frontier">Cost against {body["score"]}</figcaption>',
        f"{to_svg(draw, (5.6, 3.8), 'frontier')}</figure>{table(body['choices'])}{notes}",
        f"<h2>odar.toml</h2><pre>{html.escape(body['toml'])}</pre>",
        f"<h2>By kind of question</h2>{kinds}</main></body></html>\n",
    )
    return "".join(parts)
