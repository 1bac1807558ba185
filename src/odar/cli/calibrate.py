"""`odar calibrate`: measure your own models on your questions, and choose what pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from odar.calibration_file import Calibration
from odar.cli.local import prepare_models
from odar.cli.options import COUNT, FILE, USD, Finite, dial_option, json_option, provenance, settings_options
from odar.cli.runs import RunOptions, record_questions, run_options
from odar.cli.terminal import notice, print_columns, print_json, print_text
from odar.engine import Odar
from odar.errors import InputError
from odar.files import atomic_write
from odar.lab.calibration.compare import Comparison, Goal, chosen_calibration, compare
from odar.lab.calibration.fit import fit_calibration, without_prompts
from odar.lab.calibration.items import MIN_ITEMS, ScoredItems, scored_items, usable_items
from odar.lab.recording.files import SUFFIXES, is_recording, open_recording
from odar.lab.recording.header import Header, current_prompt_md5s, describe_changes, facts_of, model_facts
from odar.lab.recording.questions import load_questions, starter_questions
from odar.lab.recording.schema import RecordedItem
from odar.lab.replay.table import ReplayTable
from odar.settings import Settings
from odar.traces.cut_off import cut_off_warnings
from odar.types import Query

MIN_CHOICE = 100
"""Minimum number of items for choosing a policy; with fewer, only statistics are written."""
out_option = click.option("--out", type=FILE, default="calibration.json", metavar="FILE", help="The calibration.")


@click.command("calibrate")
@click.argument("data", type=FILE, required=False)
@out_option
@click.option("--limit", type=COUNT, metavar="N", default=160, help="Starter questions to use.")
@run_options(concurrency=4, engine=False)
@dial_option
@click.option("--max-calls", type=Finite(min=1), metavar="CALLS", help="Maximum of the mean calls of a question.")
@click.option("--max-cost", type=USD, metavar="USD", help="Maximum of the mean cost of a question.")
@click.option("--statistics-only", is_flag=True, help="Write only statistics and skills; choose no policy.")
@json_option("Print the report as JSON.")
@settings_options
def command(
    data: str | None,
    out: str,
    limit: int,
    run: RunOptions,
    max_calls: float | None,
    max_cost: float | None,
    statistics_only: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Let all agents answer questions, and find what pays for you: a cascade, or one fixed choice.

    DATA is a JSONL file with query and answer on each line (optionally id, accept, split, image); a recording of
    `odar eval`, which needs no call; or nothing: ODAR's own starter questions. Without answers the slow model is
    the reference. You can interrupt it at any time: the same command continues.

    It measures each agent's statistics and skill, and compares the cascade at several dials with every fixed
    choice, on questions that nothing was fitted to. What is worth most at your dial, within --max-calls and
    --max-cost, is installed: a single model if no cascade beats it. Under 100 questions only statistics are
    written.

    \b
    odar calibrate questions.jsonl --budget 5
    odar calibrate                             # with the local models, free
    odar calibrate runs/mine.jsonl --dial quality
    """
    measured = measure(data, limit, run, settings)
    table = measured.table
    scored = measured.scored
    if statistics_only:
        calibration = fit_calibration(table, belief=False)
        if not as_json:
            print_statistics(calibration)
        sentence = "Statistics and skills are measured; no policy was chosen."
        measured.write(calibration, sentence, out, {}, as_json=as_json)
        return
    # choose what pays
    goal = Goal(measured.odar.settings.routing.dial, table.reference_usd, max_calls, max_cost)
    comparison = compare(table, goal)
    sentence = comparison.recommendation(scored.score_name)
    if len(scored) >= MIN_CHOICE:
        calibration = chosen_calibration(table, comparison)
    else:
        calibration = fit_calibration(table, belief=False)
        few = f"{len(scored)} questions are too few to choose a policy ({MIN_CHOICE} are needed)"
        sentence = f"{few}: statistics and skills are written, the policy stays."
    # show it, and write it with a report
    frontier = comparison.to_rows(comparison.frontier())
    report = {"recommendation": sentence, "score": scored.score_name, "frontier": frontier}
    if not as_json:
        print_comparison(scored, comparison, nominal=table.nominal)
    choices = comparison.to_rows(comparison.choices)
    measured.write(replace(calibration, report=report), sentence, out, {"choices": choices}, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Measured:
    """Answers of all agents to the questions of a user, of which a calibration is made."""

    odar: Odar
    """An engine with the agents that gave the answers; it makes no call."""
    scored: ScoredItems
    table: ReplayTable
    """The same items, with an empty calibration: it is what will be fitted."""
    made: dict[str, Any]
    """Where they come from, for the calibration file."""
    imported: bool
    """Whether the answers come from another tool, so that their prompts are unknown."""

    def write(
        self, calibration: Calibration, sentence: str, out: str, report: dict[str, Any], *, as_json: bool
    ) -> None:
        """Write the calibration, and print the result."""
        write_calibration(calibration, out, self.made, imported=self.imported)
        if as_json:
            about = {"items": len(self.scored), "score": self.scored.score_name, "written": out, **report}
            print_json({**about, "recommendation": sentence, "settings": dict(calibration.settings)})
        else:
            print_text(f"\n{sentence}")
            click.echo(f'\nwritten to {out}; to use it, in odar.toml:\n\n    calibration = "{out}"')
            settings = self.odar.settings
            named = [name for name in settings.agent_names if settings.origins.get((name, "model")) == "argument"]
            if named:  # the calibration is for these models only
                click.echo("".join(f"    {line}".rstrip() + "\n" for line in settings.agent_lines()), nl=False)
            flags = "".join(f"--{name} {settings.agent(name).model} " for name in named)
            click.echo(f'\nor for one question:\n\n    odar ask --set calibration={out} {flags}"…"')


def measure(data: str | None, limit: int, run: RunOptions, settings: Settings) -> Measured:
    """Read answers from a recording, or let the agents answer; `limit` is the number of starter questions."""
    imported = False
    if data is not None and (is_recording(data) or data.endswith(SUFFIXES[1:])):
        odar, items, imported = _from_recording(settings, data)
    else:
        questions = load_questions(data) if data else starter_questions(limit)
        if len(questions) < MIN_ITEMS:  # before any call is paid for
            raise InputError(f"{len(questions)} questions are too few; at least {MIN_ITEMS} are needed")
        prepare_models(settings, quiet=run.quiet)
        odar = Odar(settings)
        items = record_questions(run, settings, questions, data or "starter")
    made = {"data": data or "starter", "items": len(items)}
    scored = scored_items(items)
    if len(scored) < MIN_ITEMS:
        raise InputError(f"{len(scored)} items have answers of all agents; at least {MIN_ITEMS} are needed")
    for warning in _cut_off_warnings(odar, items):
        notice(warning)
    now = [odar.estimator.estimate(Query(item.query)).difficulty for item in scored.items]
    items = [replace(item, difficulty=d) for item, d in zip(scored.items, now, strict=True)]
    table = ReplayTable(items, odar.settings, current_prompt_md5s(odar))
    return Measured(odar, scored, table, made, imported)


def write_calibration(calibration: Calibration, out: str, made: Mapping[str, Any], *, imported: bool) -> None:
    """Write a calibration file with its origin; `imported` answers say nothing about answers to our prompts."""
    kept = without_prompts(calibration) if imported else calibration
    calibration = replace(kept, made={**provenance(), **made, **calibration.made})
    with atomic_write(Path(out)) as draft:
        draft.write_text(calibration.to_json(), encoding="utf-8")


def _cut_off_warnings(odar: Odar, items: Sequence[RecordedItem]) -> list[str]:
    """A warning for each agent with more than 20% of its recorded answers cut off."""
    settings = odar.settings
    counts = {}
    for agent in settings.agent_names:
        finishes = [each.finish for item in items for each in item.attempts if each.agent == agent]
        counts[agent] = len(finishes), finishes.count("length")
    return cut_off_warnings(counts, {agent: settings.agent(agent).max_tokens for agent in counts})


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
    """The settings with the agents and models of an imported recording, which need no provider.

    If these are other models, the stages of the settings are not for them.
    """
    recorded = header.to_settings()
    if settings.default_models != recorded.default_models:
        notice("for the models of the recording; to use the result, in odar.toml:")
        click.echo("".join(f"    {line}\n" for line in recorded.agent_lines() if line), nl=False, err=True)
        routing = replace(recorded.routing, dial=settings.routing.dial)
        settings = replace(settings, policy=recorded.policy, routing=routing)
    agents = {name: recorded.agent(name) for name in recorded.agent_names}
    return replace(settings.with_agents(agents), models={**settings.models, **recorded.models})


def print_comparison(items: ScoredItems, comparison: Comparison, *, nominal: bool) -> None:
    """Print the frontier: all fixed choices, and the cascades that no other cascade beats."""
    slow = comparison.slow
    click.echo(f"{len(items)} questions, each judged by a fit to other questions; 95% intervals\n")
    score = "right" if items.labelled else "same as slow"
    choices = comparison.frontier()
    columns = {
        "": ["→" if choice is comparison.best else "" for choice in choices],
        "choice": [choice.name for choice in choices],
        score: [str(comparison.score(choice)) for choice in choices],
        "against one slow call": [comparison.gain(choice).signed() for choice in choices],
        "cost": [f"{comparison.cost(choice):.2f}" for choice in choices],
        "calls": [f"{choice.calls.mean():.2f}" for choice in choices],
    }
    print_columns(columns, left=("choice", score, "against one slow call"))
    click.echo()
    notes = [f"cost: one slow call is 1.00, or ${slow.cost_usd.mean():.6f}" + " by nominal prices" * nominal]
    stages = {choice.cascade_name: choice.settings.get("routing.stages") for choice in choices}
    notes += [f"{name}: stages {', '.join(each)}" for name, each in stages.items() if isinstance(each, list)]
    if not items.labelled and items.slow_repeats:
        notes.append("same as slow: as another answer of slow, so the row of slow is how often it repeats itself")
    elif not items.labelled:
        notes.append("slow answered once, so how often it repeats itself is unknown: record --samples 2 or more")
    for note in notes:
        print_text(note)


def print_statistics(calibration: Calibration) -> None:
    for source, known in calibration.statistics.items():
        accuracy = "" if known.accuracy is None else f", accuracy {known.accuracy:.3f}"
        measured = f"μ = {known.mean:.4f}, σ = {known.deviation:.4f} of {known.count} answers"
        click.echo(f"{source.model}: {measured}{accuracy}")
