"""`odar calibrate`: fit ODAR to your own models and questions, and choose what pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from odar.agents.prompts import load_prompts
from odar.calibration_file import Calibration
from odar.cli.calibrate_report import (
    certificate_sentence,
    print_comparison,
    print_prompts,
    print_statistics,
    prompt_rows,
)
from odar.cli.collecting import RunOptions, confirm_run, record_items, run_options, with_long_timeouts
from odar.cli.local import fetch_weights
from odar.cli.options import COUNT, FILE, USD, Finite, announce_profile, command_line, json_option, settings_options
from odar.cli.terminal import notice, print_json, print_text
from odar.config import with_values
from odar.engine import Odar
from odar.errors import InputError
from odar.files import atomic_write, cache_folder
from odar.lab.calibration.compare import Goal, compare, guarantee
from odar.lab.calibration.guarantee import LossBound
from odar.lab.calibration.install import (
    MIN_CHOICE,
    certified_calibration,
    chosen_calibration,
    recommendation,
    statistics_calibration,
    without_prompts,
)
from odar.lab.calibration.items import ScoredItems, scored_items, usable_items
from odar.lab.recording.collect import Job, make_items, recorded_asks
from odar.lab.recording.files import SUFFIXES, is_recording, open_recording
from odar.lab.recording.header import Header, describe_changes, facts_of, header_of, model_facts
from odar.lab.recording.journal import Journal
from odar.lab.recording.questions import Question, load_questions, question_set, starter_questions
from odar.lab.recording.schema import RecordedItem, item_from_json
from odar.lab.replay.table import ReplayTable
from odar.lab.selection import select_tasks
from odar.policy.cut_off import cut_off_warnings
from odar.settings import Settings
from odar.types import SLOW, Query

SEED = 42
MIN_ITEMS = 30
"""Minimum number of items for statistics."""
_SHARE = Finite(min=0, max=1)


@click.command("calibrate")
@click.argument("data", type=FILE, required=False)
@click.option("--out", type=FILE, metavar="FILE", help="Default: calibration.json; --difficulty: estimator.json.")
@click.option("--limit", type=COUNT, default=160, help="Starter questions to use.")
@run_options(concurrency=4, engine=False)
@click.option("--dial", "setting_routing__dial", metavar="DIAL", help="economy, balanced, quality, or points.")
@click.option("--max-calls", type=Finite(min=1), metavar="CALLS", help="Maximum of the mean calls of a question.")
@click.option("--max-cost", type=USD, metavar="USD", help="Maximum of the mean cost of a question.")
@click.option("--at-most-worse", type=_SHARE, metavar="SHARE", help="Certify this largest loss of accuracy.")
@click.option("--confidence", type=_SHARE, default=0.95, help="Confidence level of that certificate.")
@click.option("--against", default=SLOW, metavar="STAGE", help="Its reference: slow, slow*5, …")
@click.option("--statistics-only", is_flag=True, help="Write only statistics and skills; choose no policy.")
@click.option("--prompts", metavar="SET", multiple=True, help="Only compare prompt sets or folders; repeatable.")
@click.option("--difficulty", is_flag=True, help="Only train the difficulty estimator on the rows of DATA.")
@json_option("Print the report as JSON.")
@settings_options
def command(
    data: str | None, out: str | None, run: RunOptions, as_json: bool, settings: Settings, **options: Any
) -> int:
    """Let all agents answer questions, and find what pays for you: a cascade, or one fixed choice.

    DATA is a JSONL file with query and answer on each line (optionally id, accept, split, image); a recording of
    `odar eval collect` or `odar eval import`, which needs no call; or nothing: ODAR's own starter questions.
    Without answers the slow model is the reference, and every figure says "same answer as slow". You can interrupt
    it at any time: the same command continues.

    It measures the statistics and the skill of each agent, and fits the belief. Then it compares the cascade at
    dials from economy to quality with every fixed choice (each agent alone, several slow samples, the paper), on
    questions that nothing was fitted to, and installs what is worth most at your dial, within --max-calls and
    --max-cost. If no cascade beats the best fixed choice, the fixed one is installed. With fewer than 100 questions
    only statistics are written.

    --at-most-worse fits to one half of the questions and tests on the other, from the most expensive dial down: it
    installs the cheapest dial that loses at most so much against --against. It holds for later questions that are
    exchangeable with these, and for these models and settings.

    --prompts runs each prompt set on the questions, with one slow sample each, and shows accuracy, tokens, and how
    many answers were cut off or not stated; nothing is written.

    --difficulty reads rows with query, and either difficulty (0 to 1) or correct: whether the fast model was right,
    or how often. The estimator is trained from the shipped weights on and compared with them on held-out folds.

    \b
    odar calibrate questions.jsonl --budget 5
    odar calibrate                       # with the local models, free
    odar calibrate runs/mine.jsonl --dial quality
    odar calibrate runs/mine.jsonl --at-most-worse 0.02 --against slow
    """
    if options["difficulty"]:
        from odar.cli.calibrate_difficulty import train_difficulty

        if data is None:
            raise InputError("--difficulty needs DATA: a file of rows with query and difficulty or correct")
        return train_difficulty(data, settings, out or "estimator.json", as_json=as_json)
    settings = _with_plain_dial(settings)
    if data is not None and (is_recording(data) or data.endswith(SUFFIXES[1:])):
        odar, items, imported = _from_recording(settings, data)
    else:
        questions = load_questions(data) if data else starter_questions(options["limit"])
        if any(question.by_benchmark for question in questions):
            raise InputError("these questions are scored by a benchmark; record them with `odar eval collect`")
        name = data or "starter"
        if options["prompts"]:
            return _compare_prompts(settings, questions, name, run, options["prompts"], as_json=as_json)
        if len(questions) < MIN_ITEMS:  # before any call is paid for
            raise InputError(f"{len(questions)} questions are too few; at least {MIN_ITEMS} are needed")
        if not as_json:
            announce_profile(settings)
        fetch_weights(settings, quiet=as_json)
        odar, items = _collect(settings, questions, name, run, quiet=as_json)
        imported = False
    made = {"command": command_line(), "data": data or "starter", "items": len(items)}
    return _calibrate(odar, items, made, out or "calibration.json", imported, options, as_json=as_json)


def _with_plain_dial(settings: Settings) -> Settings:
    """Return the settings without a value in dollars or a target, which would take the place of the dials."""
    none = {"routing.value_usd": None, "routing.target_calls": None, "routing.target_cost_usd": None}
    return with_values(settings, none)


def _calibrate(
    odar: Odar,
    items: list[RecordedItem],
    made: dict[str, Any],
    out: str,
    imported: bool,
    options: dict[str, Any],
    *,
    as_json: bool,
) -> int:
    """Fit, compare, print the result and write it; return the exit code."""
    scored = scored_items(items)
    if len(scored) < MIN_ITEMS:
        raise InputError(f"{len(scored)} items have answers of all agents; at least {MIN_ITEMS} are needed")
    for warning in _cut_off_warnings(odar, items):
        notice(warning)
    prompts = {step: prompt.md5 for step, prompt in odar.agents.prompts.exact.items()}
    difficulty = [odar.estimator.estimate(Query(item.query)).difficulty for item in scored.items]
    table = ReplayTable(scored.items, odar.settings, prompts, Calibration(), difficulty)
    value = odar.settings.dial().value(table.reference_usd)
    goal = Goal(odar.settings.routing.dial, value, options["max_calls"], options["max_cost"])
    report: dict[str, Any] = {"items": len(scored), "score": scored.score_name, "written": out}
    if options["statistics_only"]:
        calibration = statistics_calibration(table, made)
        sentence = "Statistics and skills are measured; no policy was chosen."
        if not as_json:
            print_statistics(calibration)
    elif options["at_most_worse"] is not None:
        calibration, sentence, more = _guarantee(odar, table, scored, goal, options, made)
        report |= more
    else:
        comparison = compare(table, goal)
        sentence = recommendation(scored, comparison, goal)
        if len(scored) >= MIN_CHOICE:
            calibration = chosen_calibration(table, comparison, made)
        else:
            calibration = statistics_calibration(table, made)
            few = f"{len(scored)} questions are too few to choose a policy ({MIN_CHOICE} are needed)"
            sentence = f"{few}: statistics and skills are written, the policy stays."
        frontier = comparison.to_rows(comparison.frontier())
        calibration = replace(
            calibration, report={"recommendation": sentence, "score": scored.score_name, "frontier": frontier}
        )
        report |= {"choices": comparison.to_rows(comparison.choices)}
        if not as_json:
            print_comparison(scored, comparison, nominal=table.nominal)
    calibration = without_prompts(calibration) if imported else calibration
    with atomic_write(Path(out)) as draft:
        draft.write_text(calibration.to_json(), encoding="utf-8")
    if as_json:
        print_json({**report, "recommendation": sentence, "settings": dict(calibration.settings)})
    else:
        print_text(f"\n{sentence}")
        click.echo(f'\nwritten to {out}; to use it, in odar.toml:\n\n    calibration = "{out}"\n')
        click.echo(f'or for one question:\n\n    odar ask --set calibration={out} "…"')
    return 0


def _guarantee(
    odar: Odar, table: ReplayTable, scored: ScoredItems, goal: Goal, options: dict[str, Any], made: dict[str, Any]
) -> tuple[Calibration, str, dict[str, Any]]:
    """Return the certified calibration, or statistics if nothing cheaper is certified; a sentence; the report."""
    bound = LossBound(options["at_most_worse"], options["confidence"], options["against"])
    if not scored.labelled:
        raise InputError("--at-most-worse needs right answers: agreement with slow is not accuracy")
    fitted, certificate, choice, reference = guarantee(table, bound, goal)
    sentence = certificate_sentence(certificate, choice, reference)
    if choice is None or choice.cost_usd.mean() >= reference.cost_usd.mean():
        calibration = statistics_calibration(table, made)
    else:
        sources = odar.agents.sources().values()
        calibration = certified_calibration(fitted, certificate, choice.settings, sources, made)
    return calibration, sentence, {"certificate": certificate.to_dict()}


def _cut_off_warnings(odar: Odar, items: Sequence[RecordedItem]) -> list[str]:
    """Return a warning for each agent with more than 20% of its recorded answers cut off."""
    settings = odar.settings
    counts = {}
    for agent in settings.agent_names:
        finishes = [each.finish for item in items for each in item.attempts if each.agent == agent]
        counts[agent] = len(finishes), finishes.count("length")
    return cut_off_warnings(counts, {agent: settings.agent(agent).max_tokens for agent in counts})


def _collect(
    settings: Settings, questions: list[Question], data: str, run: RunOptions, *, quiet: bool
) -> tuple[Odar, list[RecordedItem]]:
    """Record the answers that are missing, and return all items that have them."""
    recorded = settings.with_default_models()
    odar = Odar(recorded)  # makes no call
    header = header_of(odar)
    folds = {task.id: fold for task, fold in select_tasks(questions)}
    source = question_set(Path(data).stem)
    items = make_items(odar, [Job(source, each, folds.get(each.id, 0), SEED) for each in questions])
    path = cache_folder() / "calibration" / f"{header.made_by}.jsonl"
    with Journal(path, header.to_row()) as journal:
        calls = sum(ask.samples for ask in recorded_asks(settings))
        confirm_run(run, settings, journal.missing(items), len(items), "items", f"{calls} calls each, ")
        record_items(run, with_long_timeouts(recorded), items, journal, quiet=quiet)
        rows = [item_from_json(row) for row in journal.rows(item.key for item in items)]
    return Odar(settings), usable_items(rows, settings, settings.routing.samples)


def _compare_prompts(
    settings: Settings, questions: list[Question], data: str, run: RunOptions, sets: Sequence[str], *, as_json: bool
) -> int:
    """Run every prompt set on the same questions and print the figures of each; return the exit code."""
    for name in sets:
        load_prompts(name)  # reports an unknown set before any call is paid for
    fetch_weights(settings, quiet=as_json)
    rows: list[dict[str, Any]] = []
    for name in sets:
        tried = replace(settings, prompts=name, routing=replace(settings.routing, samples=1))
        notice(f"prompts {name}")
        _, items = _collect(tried, questions, data, run, quiet=as_json)
        rows += prompt_rows(name, items)
    if as_json:
        print_json(rows)
    else:
        print_prompts(rows)
    return 0


def _from_recording(settings: Settings, place: str) -> tuple[Odar, list[RecordedItem], bool]:
    """Read the items of a recording that can be used to calibrate these settings, and whether they were imported.

    Raises:
        InputError: its answers come from other models, prompts or sampling.
    """
    recording = open_recording(place)
    header = recording.header
    if header.imported:
        settings = _with_recorded_models(settings, header)
        odar = Odar(settings)
    else:
        odar = Odar(settings)
        now, before = (model_facts(facts) for facts in (facts_of(odar), header.facts))
        if changes := describe_changes(now, before):
            raise InputError(
                f"{place} was made with other settings{changes}; calibrate with those (--profile, --set)"
            )
    items = usable_items(recording.items("calibrate", tokens=False), settings, header.samples)
    return odar, items, header.imported


def _with_recorded_models(settings: Settings, header: Header) -> Settings:
    """Return the settings with the agents and models of an imported recording, which need no provider."""
    recorded = header.to_settings()
    names = (*settings.agent_names, *recorded.agent_names)
    models = [[s.agent(name).model for name in names if name in s.agent_names] for s in (settings, recorded)]
    if models[0] != models[1]:
        notice("for the models of the recording; to use the result, in odar.toml:")
        click.echo("".join(f"    {line}\n" for line in recorded.agent_lines() if line), nl=False, err=True)
    return replace(
        settings,
        fast=recorded.fast,
        second=recorded.second,
        slow=recorded.slow,
        agents=recorded.agents,
        models={**settings.models, **recorded.models},
    )
