"""`odar calibrate`: fit ODAR to your own models and questions."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from odar.agents.prompts import load_prompts
from odar.calibration.evidence import Evidence, evidence_of, is_complete_item
from odar.calibration.fit import Expectation, Fitted, fit
from odar.calibration.guarantee import Certificate, Promise, guarantee
from odar.calibration.install import incumbents, judge_report, report, source_list, statistics_alone, to_calibration
from odar.calibration.judge_fit import ORDERS, JudgeTrial, judge_items, judge_trial, judge_work
from odar.calibration.parts import Part
from odar.calibration.prompt_trial import PromptResult, prompt_results
from odar.calibration.routing_fit import Goal
from odar.calibration.setup import Setup
from odar.calibration_file import Calibration, load_calibration
from odar.cli.collecting import confirm, record
from odar.cli.local import fetch_weights
from odar.cli.options import Finite, UserPath, announce_profile, command_line, settings_options
from odar.cli.terminal import plain_table, print_table
from odar.engine import Odar
from odar.errors import InputError
from odar.evals.selection import plan
from odar.files import atomic_write, cache_folder
from odar.policy.certificate import InstalledCertificate
from odar.policy.cut_off import cut_off_warnings
from odar.policy.posterior import PosteriorDifficulty
from odar.recording.collect import Job, make_items
from odar.recording.files import open_recording
from odar.recording.header import describe_changes, digest, facts_of, header_of, pair_facts
from odar.recording.journal import Journal
from odar.recording.questions import Question, QuestionSet, load_questions, starter_questions
from odar.recording.schema import RecordedItem, item_from_json, row_id
from odar.settings import Settings
from odar.store.database import Database
from odar.store.learning import history, undo
from odar.types import Query, Role

SEED = 42
FEWEST = 30
"""Fewer items than this say nothing about thresholds."""


@click.command("calibrate")
@click.argument("data", type=UserPath(), required=False)
@click.option(
    "--from",
    "source",
    type=UserPath(),
    metavar="RECORDING",
    help="Fit to recorded answers; no call is made.",
)
@click.option(
    "--difficulty",
    type=UserPath(),
    metavar="ROWS",
    help="Only train the difficulty estimator on these rows; no call is made.",
)
@click.option("--from-traces", is_flag=True, help="Fit to recorded traffic with feedback; no call is made.")
@click.option(
    "--out",
    type=UserPath(),
    metavar="FILE",
    help="Output file. Default: calibration.json; with --difficulty, estimator.json.",
)
@click.option(
    "--recording",
    type=UserPath(),
    metavar="FILE.jsonl",
    help="Where answers are recorded. Default: in ODAR's cache.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=160, show_default=True, help="Starter questions to use."
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Number of concurrent items."
)
@click.option("--budget", type=Finite(min=0), metavar="USD", help="Stop before this is spent.")
@click.option("--yes", is_flag=True, help="Do not ask before spending money.")
@click.option(
    "--tolerance",
    type=Finite(min=0, max=1),
    default=0.05,
    show_default=True,
    help="Largest accuracy loss that a significant saving may cost.",
)
@click.option(
    "--goal",
    type=click.Choice(("balanced", "accuracy", "cost")),
    default="balanced",
    show_default=True,
    help="Choose τ1 and τ2 for accuracy per cost, for accuracy, or for cost without losing accuracy.",
)
@click.option("--max-calls", type=Finite(min=1), metavar="CALLS", help="Maximum for the mean calls of a question.")
@click.option("--max-cost", type=Finite(min=0), metavar="USD", help="Maximum for the mean cost of a question.")
@click.option(
    "--at-most-worse",
    type=Finite(min=0, max=1),
    metavar="SHARE",
    help="Certify the cheapest setting that loses at most this much accuracy.",
)
@click.option(
    "--confidence",
    type=Finite(min=0, max=1),
    default=0.95,
    show_default=True,
    help="Confidence level of that certificate.",
)
@click.option(
    "--against",
    type=click.Choice(("always-hard", "always-slow")),
    default="always-hard",
    show_default=True,
    help="Reference of the certificate: the Hard path, or one slow answer.",
)
@click.option("--history", "show_history", is_flag=True, help="List the changes of the thresholds by feedback.")
@click.option("--undo", type=click.IntRange(min=1), metavar="N", help="Return to the thresholds before change N.")
@click.option(
    "--prompts",
    metavar="SET",
    multiple=True,
    help="Only compare prompt sets, shipped ones or folders; repeatable. Nothing is written.",
)
@click.option("--judge", is_flag=True, help="Test the slow model as judge of free-text answers: two calls an item.")
@click.option("--force", is_flag=True, help="Write the result even if it is worse.")
@click.option(
    "--statistics-only",
    is_flag=True,
    help="Measure only μ, σ and quantiles; needs no reference answers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@settings_options
def command(
    data: str | None,
    source: str | None,
    difficulty: str | None,
    from_traces: bool,
    out: str | None,
    recording: str | None,
    limit: int,
    as_json: bool,
    settings: Settings,
    **options: Any,
) -> int:
    """Run both agents on questions with known answers, and fit ODAR to them.

    DATA is a JSONL file with query and answer on each line (optionally id, accept, time, reasoning, image);
    without it, ODAR's own starter questions are used. It fits the estimator, the posterior, τ1 and τ2, μ and σ, β
    and skills; each replaces the current one only if it is significantly better on questions it was not fitted to.
    You can interrupt it at any time: the same command continues. With --from, recorded answers are used instead of
    new ones; if the recording has a split, only the items to calibrate with.

    The result is judged on questions it was not fitted to. It is rejected if its accuracy is significantly lower
    (the 95% interval of the difference ends below 0); lower and not significantly cheaper; lower by more than
    --tolerance at the low end of the interval; or if it costs more and is not significantly more accurate. Cheaper
    means fewer dollars, or fewer calls where nothing is charged. If it is rejected, only μ, σ and the quantiles of
    the fast answers are written.

    --judge asks the slow model which of an item's recorded free-text answers is best, in two opposite orders, and
    switches `fusion.judge` on only if significantly more answers are right with it. Its position bias is shown.

    --prompts runs each prompt set on the questions, with one slow sample each, and shows accuracy, tokens, and how
    many answers were cut off or not stated. Use questions that will not judge the result.

    --at-most-worse fits to one half of the questions and tests on the other, from always Hard downwards. The
    certificate holds for later questions that are exchangeable with these, and for these models and settings.

    --difficulty reads a JSONL file with query on each line, and either difficulty (0 to 1) or correct: whether the
    fast model was right, or how often. With correct, time (a person's) or reasoning (a worked solution) counts
    half. The estimator is trained from the shipped weights on and compared with them on held-out folds.

    The local model runs once on each core and ignores --concurrency.

    \b
    odar calibrate questions.jsonl --budget 5
    odar calibrate                       # with the local models, free
    odar calibrate --from runs/mine.jsonl
    odar calibrate --from-traces         # after `odar feedback`
    odar calibrate --difficulty rows.jsonl
    odar calibrate questions.jsonl --prompts default --prompts my-prompts/
    odar calibrate --history             # of routing.learn; see --undo
    """
    if options["show_history"] or options["undo"] is not None:
        return _learned(settings, options["undo"], as_json=as_json)
    if difficulty:
        from odar.cli.calibrate_difficulty import train_difficulty

        if data or source or from_traces or recording:
            raise InputError("--difficulty reads labelled questions; it does not go together with other sources")
        out = out or "estimator.json"
        return train_difficulty(difficulty, settings, out, force=options["force"], as_json=as_json)
    options["out"] = out or "calibration.json"
    if from_traces:
        from odar.cli.calibrate_traces import calibrate_from_traces

        if data:
            raise InputError(f"--from-traces reads the store; it does not go together with {data}")
        return calibrate_from_traces(settings, options["out"], as_json=as_json)
    given = [name for name in (data, source, recording) if name]
    if source and len(given) > 1:
        raise InputError(f"--from reads a recording; it does not go together with {' or '.join(given[:1])}")
    if source:
        odar, items = _from_recording(settings, source)
        return _fit_and_write(odar, items, source, options, as_json=as_json)
    labelled = not options["statistics_only"]
    questions = load_questions(data, answers=labelled) if data else starter_questions(limit)
    if any(question.gold is not None for question in questions):
        raise InputError(
            "calibrate compares answers: give the right one as answer, or record with `odar eval collect`"
        )
    if options["prompts"]:
        return _compare_prompts(settings, questions, data or "starter", options, as_json=as_json)
    if len(questions) < FEWEST:  # before any call is paid for
        raise InputError(f"{len(questions)} items are too few; at least {FEWEST} are needed to fit anything")
    if not as_json:
        announce_profile(settings)
    fetch_weights(settings, quiet=as_json)
    odar, items = _collect(settings, questions, data or "starter", recording, options, quiet=as_json)
    return _fit_and_write(odar, items, data or "starter", options, as_json=as_json)


def _learned(settings: Settings, number: int | None, *, as_json: bool) -> int:
    """Undo a change of the thresholds by feedback, if one is named, and list all changes."""
    with Database(settings.store) as database:
        if number is not None:
            certificate = InstalledCertificate.of(load_calibration(settings.calibration).made.get("certificate"))
            if certificate is None:
                raise InputError("--undo needs the certificate that the change was made under; set calibration")
            undo(database, certificate, number)
        rows = history(database)
    if as_json:
        click.echo(json.dumps(rows))
        return 0
    for row in rows:
        said = {True: "right", False: "wrong", None: ""}[row["correct"]]
        moved = f"t {row['t_before']:.4f} → {row['t_after']:.4f}  τ1 {row['tau1']:.3f}  τ2 {row['tau2']:.3f}"
        who = f"{row['kind']} {said} {(row['trace_id'] or '')[:8]} {row['key_id'] or ''}"
        click.echo(f"{row['number']:>5}  {row['at'][:19]}  {moved}  {' '.join(who.split())}")
    if not rows:
        click.echo("odar: feedback has not moved the thresholds; it does with routing.learn = true", err=True)
    return 0


def _fit_and_write(
    odar: Odar, items: list[RecordedItem], data: str, options: Mapping[str, Any], *, as_json: bool
) -> int:
    """Fit to the items, show the result, and write it unless it is rejected; returns the exit code."""
    if len(items) < FEWEST:
        raise InputError(f"{len(items)} items have answers; at least {FEWEST} are needed to fit anything")
    for warning in _cut_off(odar, items):
        click.echo(f"odar: {warning}", err=True)
    out, made = options["out"], {"command": command_line(), "data": data, "items": len(items)}
    evidence = _evidence(odar, items)
    if options["statistics_only"]:
        calibration = statistics_alone(odar, evidence, made)
        _show_statistics(calibration, out, as_json=as_json)
        write_calibration(calibration, out, quiet=as_json)
        return 0
    goal = Goal(options["goal"], options["max_calls"], options["max_cost"])
    fitted = fit(evidence, incumbents(odar), tolerance=options["tolerance"], goal=goal)
    certificate = None
    if options["at_most_worse"] is not None:
        promise = Promise(options["at_most_worse"], options["confidence"], options["against"])
        setup, certificate = guarantee(evidence, incumbents(odar), promise)
        fitted = replace(fitted, setup=setup, found=True)
    refused = certificate is None and bool(fitted.worse) and not options["force"]
    alone = refused or (certificate is not None and not certificate.cheaper)
    whole = None if alone else to_calibration(odar, fitted, made)
    calibration = whole or statistics_alone(odar, evidence, made, fitted)
    if certificate is not None and not alone:
        sources = [asdict(source) for source in source_list(odar)]
        document = {**certificate.document(), "sources": sources}
        calibration = replace(calibration, made={**calibration.made, "certificate": document})
    trial = None
    if options["judge"]:
        setup = incumbents(odar).setup if alone else fitted.setup
        trial = _try_judge(odar, items, evidence, setup, options, quiet=as_json)
        rejected = trial.rejection_reason(options["tolerance"])
        if rejected is None:
            calibration = replace(calibration, settings={**calibration.settings, "fusion.judge": Role.SLOW.value})
    if as_json:
        told: dict[str, Any] = {"written": out, "statistics_only": alone}
        if trial is not None:
            told["judge"] = {**judge_report(trial), "rejected": rejected}
        if certificate is not None:
            told["certificate"] = certificate.document()
        click.echo(json.dumps({**report(fitted), **told}, ensure_ascii=False))
    elif certificate is not None:
        _show_certificate(certificate)
    else:
        _show(odar, fitted, len(items))
    if trial is not None and not as_json:
        _show_judge(trial, rejected)
    write_calibration(calibration, out, quiet=as_json or refused)
    if refused:
        click.echo(f"odar: not installed: {fitted.worse} (--force writes it anyway)", err=True)
        click.echo(f"odar: only μ, σ and quantiles are written to {out}", err=True)
    return 1 if refused else 0


def _try_judge(
    odar: Odar,
    items: list[RecordedItem],
    evidence: Evidence,
    setup: Setup,
    options: Mapping[str, Any],
    *,
    quiet: bool,
) -> JudgeTrial:
    """Ask the judge about the items it would see, unless already recorded, and return what it changes."""
    settings = replace(odar.settings, fusion=replace(odar.settings.fusion, judge=Role.SLOW.value, synthesis=False))
    asked = judge_items(Odar(settings), items, evidence, setup)
    file = (
        cache_folder() / "calibration" / f"judge-{digest([facts_of(odar), [item.digest for item in asked]])}.jsonl"
    )
    with Journal(file) as journal:
        missing, budget = journal.missing(asked), options["budget"]
        confirm(settings, missing, len(asked), "items", f"{ORDERS} calls each, ", budget, yes=options["yes"])
        record(settings, asked, journal, options["concurrency"], budget, quiet=quiet, make_work=judge_work)
        rows = {row["id"]: row for row in journal.rows(item.key for item in asked)}
    return judge_trial(evidence, setup, [row_id(item.key) for item in items], asked, rows)


def write_calibration(calibration: Calibration, out: str, *, quiet: bool) -> None:
    """Write the file and, unless `quiet`, say how to use it."""
    with atomic_write(Path(out)) as draft:
        draft.write_text(calibration.to_json(), encoding="utf-8")
    if not quiet:
        click.echo(f'\nwritten to {out}; to use it, in odar.toml:\n\n    calibration = "{out}"')


def _show_statistics(calibration: Calibration, out: str, *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"model": source.model, "count": known.count, "mean": known.mean, "deviation": known.deviation}
        for source, known in calibration.statistics.entries.items()
    ]
    if as_json:
        click.echo(json.dumps({"written": out, "statistics_only": True, "sources": rows}, ensure_ascii=False))
        return
    for row in rows:
        click.echo("{model}: μ = {mean:.4f}, σ = {deviation:.4f} of {count} answers".format(**row))


def _cut_off(odar: Odar, items: list[RecordedItem]) -> list[str]:
    """Which agent has more than 20% of its recorded answers cut off, and how many tokens would do."""
    finishes = [(each.step.role, each.finish) for item in items for each in item.attempts]
    counts = {role: (sum(r is role for r, _ in finishes), finishes.count((role, "length"))) for role in Role}
    return cut_off_warnings(counts, {role: odar.settings.agent(role).max_tokens for role in Role})


def _collect(
    settings: Settings,
    questions: list[Question],
    data: str,
    recording: str | None,
    options: dict[str, Any],
    *,
    quiet: bool,
) -> tuple[Odar, list[RecordedItem]]:
    """Record the answers that are missing, and return all items that have them."""
    # Only the default pair is fitted: alternatives that dispatch may choose have statistics of their own.
    recorded = replace(settings, dispatch=replace(settings.dispatch, models=False))
    asking = Odar(recorded)  # opens nothing: says what an item may take
    header = header_of(asking)
    source = QuestionSet(Path(data).stem)
    tasks = [question.task for question in questions]
    drawn = plan(tasks)
    folds = {task.id: fold for task, fold in zip(drawn.tasks, drawn.folds, strict=True)}
    items = make_items(asking, [Job(source, task, folds.get(task.id, 0), SEED) for task in tasks])
    budget, calls = options["budget"], f"{2 + settings.routing.samples} calls each, "
    path = Path(recording) if recording else cache_folder() / "calibration" / f"{header.made_by}.jsonl"
    with Journal(path, header.to_row()) as journal:
        confirm(settings, journal.missing(items), len(items), "items", calls, budget, yes=options["yes"])
        record(recorded, items, journal, options["concurrency"], budget, quiet=quiet)
        found = [item_from_json(row) for row in journal.rows(item.key for item in items)]
    return Odar(settings), found


def _compare_prompts(
    settings: Settings, questions: list[Question], data: str, options: dict[str, Any], *, as_json: bool
) -> int:
    """Run every prompt set on the same questions and show how each did."""
    for name in options["prompts"]:
        load_prompts(name)  # all of them, before any call is paid for
    fetch_weights(settings, quiet=as_json)
    rows: list[PromptResult] = []
    for name in options["prompts"]:
        tried = replace(settings, prompts=name, routing=replace(settings.routing, samples=1))
        click.echo(f"odar: prompts {name}", err=True)
        _, items = _collect(tried, questions, data, None, options, quiet=as_json)
        rows += prompt_results(name, items)
    if as_json:
        found = [{**asdict(row), "accuracy_per_100_tokens": row.accuracy_per_100_tokens} for row in rows]
        click.echo(json.dumps(found, ensure_ascii=False))
        return 0
    titles = ("prompts", "step", "answers", "accuracy", "tokens", "cut off", "unstated", "per 100 tokens")
    table = plain_table(*titles, gap=2, right=titles[2:])
    for row in rows:
        shares = (f"{row.cut_off:.2f}", f"{row.unstated:.2f}", f"{row.accuracy_per_100_tokens:.2f}")
        table.add_row(row.prompts, row.step, str(row.answers), f"{row.accuracy:.3f}", f"{row.tokens:.0f}", *shares)
    print_table(table)
    return 0


def _from_recording(settings: Settings, place: str) -> tuple[Odar, list[RecordedItem]]:
    """Read the items of a recording that may be used to calibrate these settings.

    Raises:
        InputError: its answers come from other models, prompts or sampling, or from another tool.
    """
    odar, recording = Odar(settings), open_recording(place)
    if recording.header.imported:
        raise InputError(
            f"{place} was imported: its answers were made with other prompts, so nothing fitted to them would "
            "hold; record your own with `odar eval collect`"
        )
    changes = describe_changes(pair_facts(facts_of(odar)), pair_facts(recording.header.facts))
    if changes:
        raise InputError(f"{place} was made with other settings{changes}; calibrate with those (--profile, --set)")
    if recording.header.samples < settings.routing.samples:
        raise InputError(
            f"{place} holds {recording.header.samples} slow samples per item, and routing.samples is "
            f"{settings.routing.samples}; add --set routing.samples={recording.header.samples}"
        )
    pair = {card.name for cards in odar.cards.values() for card in cards[:1]}
    found = [item for item in recording.items("calibrate") if is_complete_item(item)]
    return odar, [item for item in found if {each.model for each in item.attempts} <= pair]


def _evidence(odar: Odar, items: list[RecordedItem]) -> Evidence:
    today = incumbents(odar)
    prior = np.array([odar.estimator.estimate(Query(item.query)).difficulty for item in items])
    features = None if today.estimator is None else np.array([item.features for item in items])
    return evidence_of(items, odar.settings.fusion.varentropy_weight, features, prior, odar.fusion.similarity)


def _show(odar: Odar, fitted: Fitted, count: int) -> None:
    """Print accuracy and cost before and after, and what was fitted."""
    click.echo(f"\n{count} items; everything fitted is judged on held-out folds; 95% intervals\n")
    click.echo(f"{'':7} {'accuracy':22} {'calls':>6} {'cost, $':>10}  simple / medium / hard")
    for name, expected in (("before", fitted.before), ("after", fitted.after)):
        figures = f"{expected.accuracy!s:22} {expected.calls.value:>6.2f} {_cost(expected):>10}"
        click.echo(f"{name:7} {figures}  {_mix(expected)}")
    click.echo(f"{'gain':7} {fitted.accuracy_gain.signed()}; calls {fitted.calls_gain.signed(2)}")
    if fitted.price_gain is fitted.cost_gain:
        click.echo(f"{'':7} cost, $ {fitted.cost_gain.signed(6)}")
    click.echo(f"{'':7} {fitted.moved:.0%} of the items take another path\n")
    for name, interval in fitted.baselines.items():
        click.echo(f"{name:15} {interval}")
    click.echo()
    for part in fitted.parts:
        click.echo(part_line(part, taken=_taken(fitted, part)))
    setup, settings = fitted.setup, odar.settings
    skills = ", ".join(
        f"{name} {skill:.2f}" for name, skill in zip(("fast", "verify", "solve"), setup.fusion.skills, strict=True)
    )
    click.echo(
        f"τ1, τ2      {settings.routing.tau1:g}, {settings.routing.tau2:g} → "
        f"{setup.thresholds.tau1:g}, {setup.thresholds.tau2:g}"
    )
    for expert, own in setup.by_expert.items():
        click.echo(f"{'':11} {expert}: {own.tau1:g}, {own.tau2:g}")
    click.echo(f"fusion      β {settings.fusion.beta:g} → {setup.fusion.beta:g}; skills {skills}")
    if fitted.looks_first:
        click.echo(f"mode        {settings.routing.mode} → {'prior' if setup.posterior is None else 'posterior'}")
    if setup.posterior is not None:
        for kind in setup.posterior.weights:
            before, after = (_weights(each, kind) for each in (odar.posterior, setup.posterior))
            click.echo(_wrapped("posterior", f"{kind}: {after}"))
            if after != before:
                click.echo(_wrapped("", f"before: {before}"))


def _wrapped(label: str, text: str) -> str:
    """A line of the report, on several lines where it is too long for a terminal."""
    indent = f"{label:11} "
    return textwrap.fill(text, 80, initial_indent=indent, subsequent_indent=" " * len(indent))


def _show_judge(trial: JudgeTrial, rejected: str | None) -> None:
    """What the judge would change, and its position bias."""
    if trial.items:
        bias = f"{trial.first_place:.0%} ({trial.expected_first:.0%} without bias)"
        click.echo(f"judge       {trial.items} items with several free-text answers, each in two opposite orders")
        click.echo(f"{'':11} accuracy {trial.accuracy_gain.signed()}; calls {trial.calls_gain.signed(2)}")
        click.echo(
            f"{'':11} another choice in the other order: {trial.order_dependent:.0%}; the first shown: {bias}"
        )
        click.echo(f"{'':11} replies that named no answer: {trial.unreadable}")
    click.echo(f"{'judge':11} " + (f"off: {rejected}" if rejected else 'fusion.judge = "slow"'))


def part_line(part: Part[Any], *, taken: bool) -> str:
    """One part: fitted or not, and by how much it was better."""
    if part.gain is None:
        return f"{part.name:11} kept: {part.note}"
    if not part.better:
        verdict = "kept: not significantly better"
    else:
        verdict = "fitted" if taken else "kept: better by itself, but not for routing"
    return f"{part.name:11} {verdict}\n{'':11} {part.measure}, gain {part.gain.signed()}"


def _weights(posterior: PosteriorDifficulty, kind: str) -> str:
    """The weights of the terms for one kind of answer."""
    return ", ".join(f"{term} {weight:.2f}" for term, weight in posterior.weights[kind].items())


def _taken(fitted: Fitted, part: Part[Any]) -> bool:
    return part.model is not None and part.model in (fitted.setup.estimator, fitted.setup.posterior)


def _cost(expected: Expectation) -> str:
    return "unknown" if expected.cost_usd is None else f"{expected.cost_usd.value:.6f}"


def _mix(expected: Expectation) -> str:
    return " / ".join(f"{share:.0%}" for share in expected.mix)


def _show_certificate(found: Certificate) -> None:
    """What was certified, by how many items, and what it takes to certify more."""
    promise, thresholds = found.promise, found.thresholds
    if found.cheaper:
        click.echo(f"certified   τ1, τ2 = {thresholds.tau1:.3g}, {thresholds.tau2:.3g} (t = {found.t:.2f})")
    else:
        click.echo(f"certified   nothing cheaper than {promise.against}; thresholds stay as they are")
    click.echo(f"            at most {promise.at_most_worse:g} less accurate than {promise.against},")
    click.echo(f"            with a confidence of {promise.confidence:.0%}, on {found.items} items of no fit")
    click.echo(f"on these    accuracy {found.accuracy:.3f} against {found.reference:.3f},")
    click.echo(f"            calls {found.calls:.2f} against {found.reference_calls:.2f}")
    if found.more_items is not None:
        click.echo(f"more        the next cheaper setting would take about {found.more_items} more test items")
    elif found.t > 0:
        click.echo("more        the next cheaper setting loses too much; more items would not help")
    click.echo("assumes     that later questions are exchangeable with these, and that models,")
    click.echo("            prompts, thresholds and quantiles stay as they are")
