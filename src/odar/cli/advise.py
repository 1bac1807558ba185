"""`odar advise`: what ODAR would save on your own traffic, and how often it would answer as the slow model does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from odar.catalogue import Price
from odar.cli.advise_report import html_page, print_report, report_body
from odar.cli.calibrate import write_calibration
from odar.cli.local import prepare_models
from odar.cli.options import COUNT, FILE, dial_option, json_option, parse_column_map, parse_prices, settings_options
from odar.cli.runs import SEED, RunOptions, read_chat_body, record_in_cache, run_options
from odar.cli.terminal import notice, print_json
from odar.engine import Odar
from odar.errors import InputError, plural
from odar.files import atomic_write, user_path
from odar.lab.calibration.advice import advise, advise_second, kind_of, one_call_costs, with_second
from odar.lab.calibration.items import MIN_ITEMS
from odar.lab.recording.files import open_recording, read_table
from odar.lab.recording.header import Header, current_prompt_md5s, digest_json
from odar.lab.recording.importers import COLUMNS, read_models
from odar.lab.recording.joining import Imported, import_models
from odar.lab.recording.questions import question_set
from odar.lab.recording.schema import RecordedItem, Task
from odar.lab.recording.traffic import NOT_COMPARED, Traffic, read_traffic
from odar.lab.runs.collect import Job
from odar.lab.selection import select_tasks
from odar.settings import Settings
from odar.types import FAST, SECOND, SLOW, Ask, Query, Step

AUTO = "auto"
REPEAT_EVERY = 3
"""One of so many questions is asked of slow twice."""
_SET = question_set("log")


@dataclass(frozen=True, slots=True)
class RecordedAnswers:
    """The answers in a file, or those of the agents to a sample of its requests."""

    items: list[RecordedItem]
    settings: Settings
    prompts: Mapping[Step, str]
    """The MD5 of each step's prompt."""
    candidates: Mapping[str, str]
    """Agents that may be the second, and their models."""
    others: Sequence[Task] = ()
    """Requests without a comparable answer."""
    imported: bool = False
    about: str = ""
    """What the log holds, for readers."""
    code: int = 0
    """Exit code of the collection."""


@click.command("advise")
@click.argument("log", type=FILE)
@click.option("--limit", type=COUNT, default=300, help="Requests of a log to sample.")
@run_options(concurrency=4, engine=False)
@dial_option
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
    tries_seconds = options[SECOND] == AUTO
    models = {agent: options[agent] for agent in (FAST, SECOND, SLOW) if options[agent] not in (None, AUTO)}
    # the answers that the file holds, or those of the agents to a sample of its requests
    first = _first_row(log)
    if str(first.get("format", "")).startswith("odar-recording"):
        recording = open_recording(log)
        answers = _recorded(settings, recording.header, recording.items("calibrate", tokens=False))
    elif options["columns"] or _is_table(first):
        imported = _import(log, settings, models, options["columns"], parse_prices(options["prices"]))
        answers = _recorded(settings, imported.header, imported.items)
    else:
        chosen = _with_models(settings, models)
        answers = _from_log(log, chosen, run, tries_seconds, options["limit"])
    # the advice with the configured or the best second
    fitted_dial = settings.origins.get(("routing", "dial"), "").startswith("calibration")  # to other questions
    dial = "balanced" if fitted_dial else settings.routing.dial
    seconds: dict[str, float] = {}
    if tries_seconds or len(answers.candidates) > 1:
        advice, seconds = advise_second(answers.items, answers.settings, answers.prompts, dial, answers.candidates)
    else:
        agent, model = next(iter(answers.candidates.items()), (None, ""))
        items, used = with_second(answers.items, answers.settings, agent, model)
        advice = advise(items, used, answers.prompts, dial)
    estimator = Odar(settings).estimator
    one_call = None
    if answers.others:
        one_call = one_call_costs(advice, answers.others, lambda query: estimator.estimate(query).difficulty)
    # write and show it
    if advice.best.is_cascade:
        calibration = replace(advice.table.calibration, settings=dict(advice.best.settings))
        write_calibration(calibration, out, {"data": log, "items": len(advice.strata)}, imported=answers.imported)
    body = report_body(advice, answers.about, seconds, one_call, out)
    if page:
        with atomic_write(Path(page)) as draft:
            draft.write_text(html_page(advice, body), encoding="utf-8")
    if as_json:
        print_json(body)
    else:
        print_report(advice, body)
        if written := [file for file in (out if advice.best.is_cascade else "", page) if file]:
            click.echo(f"\nwritten: {', '.join(written)}")
    return answers.code


# --- what the log holds ----------------------------------------------------------------------------------------


def _first_row(log: str) -> Mapping[str, Any]:
    """The first row of a file; empty if it cannot be read, which is reported when the whole file is."""
    path = user_path(log)
    try:
        return next(read_table(path), {}) if path.is_file() and path.suffix != ".json" else {}
    except InputError:
        return {}


def _is_table(first: Mapping[str, Any]) -> bool:
    """Whether rows are answers of several models: with a column for the model, and one for the answer."""
    names = {field for field in ("model", "text", "answer", "score") for name in COLUMNS[field] if name in first}
    is_text = all(not isinstance(first.get(name), dict | list) for name in (*COLUMNS["text"], *COLUMNS["query"]))
    return "model" in names and len(names) > 1 and is_text and not {"messages", "body", "request"} & first.keys()


def _import(
    log: str, settings: Settings, roles: Mapping[str, str], columns: Sequence[str], prices: Mapping[str, Price]
) -> Imported:
    models = read_models([log], lambda name: parse_column_map(columns, name), "table")
    path = user_path(log)
    imported = import_models(Odar(settings), models, prices, roles, path.stem, [path])
    for warning in imported.warnings:
        notice(warning)
    if imported.left_out:
        notice(f"{imported.left_out} questions left out: not all models answered them")
    return imported


def _recorded(configured: Settings, header: Header, found: Iterable[RecordedItem]) -> RecordedAnswers:
    """All recorded answers: they cost nothing, so that there is no need for a sample."""
    settings = header.to_settings()
    items = [item for item in found if {each.agent for each in item.attempts} >= set(settings.agent_names)]
    compared = [item for item in items if kind_of(item) not in NOT_COMPARED]
    if not compared:
        raise InputError("there are no recorded questions with comparable answers of all agents")
    return RecordedAnswers(
        compared,
        settings,
        prompts=current_prompt_md5s(Odar(configured)) if header.imported else header.prompt_md5s(),
        candidates={agent: model for agent, model in settings.default_models.items() if agent not in (FAST, SLOW)},
        others=[Task(each.key.id, Query(each.query), []) for each in items if kind_of(each) in NOT_COMPARED],
        imported=header.imported,
        about=f"{len(items)} recorded questions",
    )


def _from_log(log: str, settings: Settings, run: RunOptions, tries_seconds: bool, limit: int) -> RecordedAnswers:
    """Sample the requests of a log, and let the agents answer those whose answers can be compared.

    With `tries_seconds` every configured cheap model answers them too, as a candidate for the second agent.
    """
    traffic = read_traffic(log, read_chat_body)
    tasks = [task for task, _ in select_tasks(traffic.compared, limit=limit)]
    about = _describe(traffic, len(tasks))
    notice(about)
    if not tasks:
        raise InputError(
            f"{log}: no request has a comparable answer; open-ended requests and tool calls take one call each, "
            "whatever the cascade"
        )
    prepare_models(settings, quiet=run.quiet)
    cheap_models = _cheap_models(settings) if tries_seconds else []
    settings = replace(settings.with_default_models(), agents={})
    # the agents answer
    is_labelled = all(task.gold for task in tasks)
    cheap = [Ask(agent) for agent in settings.agent_names if agent != SLOW]

    def asks(task: Task) -> tuple[Ask, ...]:
        twice = not is_labelled and int(task.id, 16) % REPEAT_EVERY == 0
        return (*cheap, Ask(SLOW, 2 if twice else 1))

    code, items, spent_usd = _collect(settings, [(task, asks(task)) for task in tasks], log, run)
    # further models answer as candidates for the second
    candidates = {SECOND: settings.second.model} if settings.second else {}
    for name in cheap_models:
        notice(f"{name} as the second")
        tried = replace(settings, fast=settings.fast.with_model(name), second=None)
        answered = {item.key.id for item in items}
        asked = [(task, (Ask(FAST),)) for task in tasks if task.id in answered]
        rest = run if run.budget is None else replace(run, budget=run.budget - spent_usd)
        further_code, found, cost_usd = _collect(tried, asked, log, rest)
        spent_usd += cost_usd
        code = code or further_code
        if len(found) < min(MIN_ITEMS, len(items)):
            notice(f"{name} is left out: it answered {plural(len(found), 'question')}")
            continue
        agent = f"second-{len(candidates)}"
        candidates[agent] = name
        extra = {item.key: replace(item.attempts[0], agent=agent) for item in found}
        items = [replace(i, attempts=(*i.attempts, extra[i.key])) for i in items if i.key in extra]
    return RecordedAnswers(
        items, settings, current_prompt_md5s(Odar(settings)), candidates, traffic.others, False, about, code
    )


def _cheap_models(settings: Settings) -> list[str]:
    """The configured models that could be the second, besides the one that is."""
    named = [*settings.fast.alternatives, *settings.fast.fallbacks]
    named += [agent.model for agent in settings.agents.values()]
    taken = {settings.fast.model, settings.slow.model, settings.second.model if settings.second else ""}
    return [name for name in dict.fromkeys(named) if name not in taken]


def _collect(
    settings: Settings, asked: Sequence[tuple[Task, tuple[Ask, ...]]], log: str, run: RunOptions
) -> tuple[int, list[RecordedItem], float]:
    """Record the answers that are missing; return the exit code, the complete items, and what was spent."""
    settings = replace(settings, routing=replace(settings.routing, samples=1))
    jobs = [Job(_SET, task, 0, SEED, asks) for task, asks in asked]
    name = f"advice/{{}}-{digest_json(str(user_path(log).absolute()))[:8]}.jsonl"
    code, items, spent_usd = record_in_cache(run, settings, jobs, name)
    return code, [item.without_tokens() for item in items], spent_usd


def _with_models(settings: Settings, models: Mapping[str, str]) -> Settings:
    """The settings with other models of some agents."""
    agents = {name: settings.agent(name) for name in settings.agent_names}
    for agent, model in models.items():
        settings.card(model)  # an unknown model is reported before anything is read
        agents[agent] = agents.get(agent, settings.fast).with_model(model)
    return settings.with_agents(agents)


def _describe(traffic: Traffic, sampled: int) -> str:
    found = len(traffic.compared) + len(traffic.others)
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
