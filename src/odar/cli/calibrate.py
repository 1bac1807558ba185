"""`odar calibrate`: fit ODAR to your own models and questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from odar.agents.prompts import load_prompts
from odar.calibration.bootstrap import to_plain_data
from odar.calibration.evidence import Evidence, evidence_of, is_complete_item
from odar.calibration.fit import fit
from odar.calibration.guarantee import AGAINST, LossBound, guarantee
from odar.calibration.install import (
    current_parts,
    posterior_document,
    provenance,
    report,
    statistics_calibration,
    statistics_table,
    to_calibration,
)
from odar.calibration.judge_fit import ORDERS, JudgeTrial, judge_items, judge_trial, judge_work
from odar.calibration.routing_fit import GOALS, Goal
from odar.calibration.setup import Setup
from odar.calibration.traffic import fit_traffic, read_traffic
from odar.calibration_file import Calibration, load_calibration
from odar.cli.calibrate_report import (
    print_certificate,
    print_fit,
    print_judge,
    print_prompts,
    print_traffic,
    prompt_rows,
    traffic_report,
)
from odar.cli.collecting import RunOptions, confirm_run, record_items, run_options, with_long_timeouts
from odar.cli.local import fetch_weights
from odar.cli.options import (
    COUNT,
    FILE,
    USD,
    Finite,
    announce_profile,
    command_line,
    json_option,
    settings_options,
)
from odar.cli.terminal import print_json
from odar.engine import Odar
from odar.errors import InputError
from odar.evals.selection import select_tasks
from odar.files import atomic_write, cache_folder
from odar.policy.certificate import InstalledCertificate
from odar.policy.cut_off import cut_off_warnings
from odar.recording.collect import Job, make_items
from odar.recording.files import open_recording
from odar.recording.header import describe_changes, digest_json, facts_of, header_of, pair_facts
from odar.recording.journal import Journal
from odar.recording.questions import Question, QuestionSet, load_questions, starter_questions
from odar.recording.schema import RecordedItem, item_from_json, row_id
from odar.settings import Settings
from odar.store.archive import Archive
from odar.store.database import Database
from odar.store.learning import history, undo
from odar.store.record import Filter
from odar.types import Query, Role, Step

SEED = 42
MIN_ITEMS = 30
"""Minimum number of items for fitting thresholds."""
_SHARE = Finite(min=0, max=1)


@click.command("calibrate")
@click.argument("data", type=FILE, required=False)
@click.option("--from", "source", type=FILE, metavar="RECORDING", help="Fit to recorded answers; no call is made.")
@click.option("--from-traces", is_flag=True, help="Fit to recorded traffic with feedback; no call is made.")
@click.option("--difficulty", type=FILE, metavar="ROWS", help="Only train the difficulty estimator on these rows.")
@click.option(
    "--out", type=FILE, metavar="FILE", help="Default: calibration.json; for --difficulty estimator.json."
)
@click.option("--recording", type=FILE, metavar="FILE.jsonl", help="Record answers here. Default: in ODAR's cache.")
@click.option("--limit", type=COUNT, default=160, help="Starter questions to use.")
@run_options(concurrency=4, engine=False)
@click.option(
    "--goal", type=click.Choice(GOALS), default="balanced", help="What τ1 and τ2 are chosen for; see above."
)
@click.option("--max-calls", type=Finite(min=1), metavar="CALLS", help="Maximum for the mean calls of a question.")
@click.option("--max-cost", type=USD, metavar="USD", help="Maximum for the mean cost of a question.")
@click.option("--at-most-worse", type=_SHARE, metavar="SHARE", help="Certify this largest loss of accuracy.")
@click.option("--confidence", type=_SHARE, default=0.95, help="Confidence level of that certificate.")
@click.option("--against", type=click.Choice(AGAINST), default=AGAINST[0], help="Reference of the certificate.")
@click.option("--judge", is_flag=True, help="Test the slow model as judge of free-text answers: two calls an item.")
@click.option("--prompts", metavar="SET", multiple=True, help="Only compare prompt sets or folders; repeatable.")
@click.option("--history", "show_history", is_flag=True, help="List the changes of the thresholds by feedback.")
@click.option("--undo", type=COUNT, metavar="N", help="Return to the thresholds before change N.")
@click.option(
    "--statistics-only", is_flag=True, help="Measure only μ, σ and quantiles; needs no reference answers."
)
@click.option("--force", is_flag=True, help="Write the result even if it is worse.")
@json_option("Print the report as JSON.")
@settings_options
def command(
    data: str | None,
    source: str | None,
    from_traces: bool,
    difficulty: str | None,
    out: str | None,
    recording: str | None,
    run: RunOptions,
    as_json: bool,
    settings: Settings,
    **options: Any,
) -> int:
    """Run both agents on questions with known answers, and fit ODAR to them.

    DATA is a JSONL file with query and answer on each line (optionally id, accept, time, reasoning, image);
    without it, ODAR's own starter questions are used. It fits the estimator, the posterior, τ1 and τ2, μ and σ, β
    and skills; each replaces the current one only if it is significantly better on questions it was not fitted to.
    You can interrupt it at any time: the same command continues. Local models ignore --concurrency. With --from,
    recorded answers are used instead of new ones; if the recording has a split, only the items to calibrate with.

    The result is rejected if, on questions it was not fitted to, its accuracy is significantly lower (the 95%
    interval of the difference ends below 0); lower and not significantly cheaper; possibly lower by more than 0.05;
    or if it costs more and is not significantly more accurate. Then only μ, σ and quantiles are written.

    --goal: accuracy per cost (balanced), the most accuracy within --max-calls or --max-cost (accuracy), or the
    least cost without losing accuracy (cost).

    --at-most-worse fits to one half of the questions and tests on the other, from always Hard downwards: it
    installs the cheapest setting that loses at most so much against the Hard path, or against one slow answer. It
    holds for later questions that are exchangeable with these, and for these models and settings.

    --judge asks the slow model which of an item's recorded free-text answers is best, in two opposite orders, and
    switches `fusion.judge` on only if significantly more answers are right with it.

    --prompts runs each prompt set on the questions, with one slow sample each, and shows accuracy, tokens, and how
    many answers were cut off or not stated; nothing is written.

    --difficulty reads a JSONL file with query on each line, and either difficulty (0 to 1) or correct: whether the
    fast model was right, or how often. With correct, time (a person's) or reasoning (a worked solution) counts
    half. The estimator is trained from the shipped weights on and compared with them on held-out folds.

    \b
    odar calibrate questions.jsonl --budget 5
    odar calibrate                       # with the local models, free
    odar calibrate --from runs/mine.jsonl
    odar calibrate --from-traces         # after `odar feedback`
    odar calibrate --difficulty rows.jsonl
    odar calibrate questions.jsonl --prompts default --prompts my-prompts/
    odar calibrate --history             # of routing.learn; see --undo
    """
    if options["undo"] is not None:
        _undo_change(settings, options["undo"])
    if options["show_history"] or options["undo"] is not None:
        _print_history(settings, as_json=as_json)
        return 0
    sources = {"DATA": data, "--from": source, "--from-traces": from_traces, "--difficulty": difficulty}
    given = [name for name, value in sources.items() if value]
    if recording and not data:
        given.append("--recording")
    if len(given) > 1:
        raise InputError(f"{given[1]} does not go together with {given[0]}")
    if difficulty:
        from odar.cli.calibrate_difficulty import train_difficulty

        out = out or "estimator.json"
        return train_difficulty(difficulty, settings, out, force=options["force"], as_json=as_json)
    options["out"] = out or "calibration.json"
    if from_traces:
        return _from_traces(settings, options["out"], as_json=as_json)
    if source:
        odar, items = _from_recording(settings, source)
        return _fit_and_write(odar, items, source, run, options, as_json=as_json)
    labelled = not options["statistics_only"]
    questions = load_questions(data, answers=labelled) if data else starter_questions(options["limit"])
    if any(question.by_benchmark for question in questions):
        raise InputError(
            "calibrate compares answers: give the right one as answer, or record with `odar eval collect`"
        )
    data = data or "starter"
    if options["prompts"]:
        return _compare_prompts(settings, questions, data, run, options["prompts"], as_json=as_json)
    if len(questions) < MIN_ITEMS:  # before any call is paid for
        raise InputError(f"{len(questions)} items are too few; at least {MIN_ITEMS} are needed to fit anything")
    if not as_json:
        announce_profile(settings)
    fetch_weights(settings, quiet=as_json)
    odar, items = _collect(settings, questions, data, recording, run, quiet=as_json)
    return _fit_and_write(odar, items, data, run, options, as_json=as_json)


def _undo_change(settings: Settings, number: int) -> None:
    """Return to the thresholds before a change by feedback."""
    made = load_calibration(settings.calibration).made
    certificate = InstalledCertificate.from_dict(made.get("certificate"))
    if certificate is None:
        raise InputError("--undo needs the certificate that the change was made under; set calibration")
    with Database(settings.store) as database:
        undo(database, certificate, number)


def _print_history(settings: Settings, *, as_json: bool) -> None:
    """Print all changes of the thresholds by feedback."""
    with Database(settings.store) as database:
        rows = history(database)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        mark = {True: "right", False: "wrong", None: ""}[row["correct"]]
        change = f"t {row['t_before']:.4f} → {row['t_after']:.4f}  τ1 {row['tau1']:.3f}  τ2 {row['tau2']:.3f}"
        cause = f"{row['kind']} {mark} {(row['trace_id'] or '')[:8]} {row['key_id'] or ''}"
        click.echo(f"{row['number']:>5}  {row['at'][:19]}  {change}  {' '.join(cause.split())}")
    if not rows:
        click.echo("odar: feedback has not moved the thresholds; it does with routing.learn = true", err=True)


def _from_traces(settings: Settings, out: str, *, as_json: bool) -> int:
    """Fit to the traces of the store, print the result, and write it if anything changed; return the exit code."""
    if not settings.store.enabled:
        raise InputError("store.enabled is false: there are no traces to fit to")
    odar = Odar(settings)
    current = current_parts(odar)
    sources = {step: (odar.cards[step.role][0].name, odar.prompts[step].md5) for step in Step}
    with Database(settings.store) as database:
        rows = Archive(database).export(Filter(status="ok"))
        traffic = read_traffic(rows, sources, current.estimator, settings.fusion.varentropy_weight)
    if not traffic.traces:
        models = " and ".join(sorted({model for model, _ in sources.values()}))
        raise InputError(f"the store holds no trace of {models} with the prompts in use")
    fitted = fit_traffic(traffic, current)
    report, setup = traffic_report(traffic, fitted), fitted.setup
    if as_json:
        print_json({**report, "written": out if fitted.changed else None})
    else:
        print_traffic(settings, traffic, fitted)
    if not fitted.changed:
        click.echo("odar: not written: nothing that could be fitted is better than what is in use", err=True)
        return 1
    now, fitted_thresholds = settings.routing, setup.thresholds
    changes = {}
    if (fitted_thresholds.tau1, fitted_thresholds.tau2) != (now.tau1, now.tau2):
        changes = {"routing.tau1": fitted_thresholds.tau1, "routing.tau2": fitted_thresholds.tau2}
    calibration = Calibration(
        statistics=statistics_table(odar, setup.statistics),
        settings={**odar.calibration.settings, **changes},
        posterior=posterior_document(odar, setup.posterior),
        estimator=setup.estimator.to_dict() if setup.estimator else odar.calibration.estimator,
        made=provenance({"command": command_line(), "data": "traces", "items": len(traffic.fast)}),
        report=report,
    )
    _write_calibration(calibration, out, quiet=as_json)
    return 0


def _fit_and_write(
    odar: Odar, items: list[RecordedItem], data: str, run: RunOptions, options: Mapping[str, Any], *, as_json: bool
) -> int:
    """Fit, print the result, write it or, if it is rejected, only its statistics, and return the exit code."""
    if len(items) < MIN_ITEMS:
        raise InputError(f"{len(items)} items have answers; at least {MIN_ITEMS} are needed to fit anything")
    for warning in _cut_off_warnings(odar, items):
        click.echo(f"odar: {warning}", err=True)
    out, made = options["out"], {"command": command_line(), "data": data, "items": len(items)}
    current = current_parts(odar)
    prior = np.array([odar.estimator.estimate(Query(item.query)).difficulty for item in items])
    features = None if current.estimator is None else np.array([item.features for item in items])
    evidence = evidence_of(items, odar.settings.fusion.varentropy_weight, features, prior, odar.fusion.similarity)
    if options["statistics_only"]:
        calibration = statistics_calibration(odar, evidence, made)
        _print_statistics(calibration, out, as_json=as_json)
        _write_calibration(calibration, out, quiet=as_json)
        return 0
    fitted = fit(evidence, current, goal=Goal(options["goal"], options["max_calls"], options["max_cost"]))
    certificate = None
    if options["at_most_worse"] is not None:
        bound = LossBound(options["at_most_worse"], options["confidence"], options["against"])
        setup, certificate = guarantee(evidence, current, bound)
        fitted = replace(fitted, setup=setup, setting_found=True)
    if certificate is not None:
        rejected, statistics_only = False, not certificate.cheaper
    else:
        rejected = statistics_only = bool(fitted.rejection) and not options["force"]
    if statistics_only:
        setup, calibration = current.setup, statistics_calibration(odar, evidence, made, fitted)
    else:
        setup, calibration = fitted.setup, to_calibration(odar, fitted, made, certificate)
    trial = None
    if options["judge"]:
        trial = _try_judge(odar, items, evidence, setup, run, quiet=as_json)
        if trial.rejection_reason() is None:
            calibration = replace(calibration, settings={**calibration.settings, "fusion.judge": Role.SLOW.value})
    if as_json:
        body: dict[str, Any] = {**report(fitted), "written": out, "statistics_only": statistics_only}
        if trial is not None:
            body["judge"] = {**to_plain_data(trial), "rejected": trial.rejection_reason()}
        if certificate is not None:
            body["certificate"] = certificate.to_dict()
        print_json(body)
    else:
        if certificate is not None:
            print_certificate(certificate)
        else:
            print_fit(odar, fitted, len(items))
        if trial is not None:
            print_judge(trial)
    _write_calibration(calibration, out, quiet=as_json or rejected)
    if rejected:
        click.echo(f"odar: not installed: {fitted.rejection} (--force writes it anyway)", err=True)
        click.echo(f"odar: only μ, σ and quantiles are written to {out}", err=True)
    return 1 if rejected else 0


def _print_statistics(calibration: Calibration, out: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"written": out, "statistics_only": True})
        return
    for source, known in calibration.statistics.items():
        click.echo(f"{source.model}: μ = {known.mean:.4f}, σ = {known.deviation:.4f} of {known.count} answers")


def _try_judge(
    odar: Odar, items: list[RecordedItem], evidence: Evidence, setup: Setup, run: RunOptions, *, quiet: bool
) -> JudgeTrial:
    """Ask the judge about the items it would see, unless already recorded, and return the comparison."""
    settings = replace(odar.settings, fusion=replace(odar.settings.fusion, judge=Role.SLOW.value, synthesis=False))
    judged = judge_items(Odar(settings), items, evidence, setup)
    name = f"judge-{digest_json([facts_of(odar), [item.digest for item in judged]])}.jsonl"
    with Journal(cache_folder() / "calibration" / name) as journal:
        confirm_run(run, settings, journal.missing(judged), len(judged), "items", f"{ORDERS} calls each, ")
        record_items(run, with_long_timeouts(settings), judged, journal, quiet=quiet, make_work=judge_work)
        rows = {row["id"]: row for row in journal.rows(item.key for item in judged)}
    return judge_trial(evidence, setup, [row_id(item.key) for item in items], judged, rows)


def _write_calibration(calibration: Calibration, out: str, *, quiet: bool) -> None:
    """Write the file and, unless `quiet`, print how to use it."""
    with atomic_write(Path(out)) as draft:
        draft.write_text(calibration.to_json(), encoding="utf-8")
    if not quiet:
        click.echo(f'\nwritten to {out}; to use it, in odar.toml:\n\n    calibration = "{out}"')


def _cut_off_warnings(odar: Odar, items: list[RecordedItem]) -> list[str]:
    """Return a warning for each agent with more than 20% of its recorded answers cut off."""
    counts = {}
    for role in Role:
        finishes = [each.finish for item in items for each in item.attempts if each.step.role is role]
        counts[role] = len(finishes), finishes.count("length")
    return cut_off_warnings(counts, {role: odar.settings.agent(role).max_tokens for role in Role})


def _collect(
    settings: Settings,
    questions: list[Question],
    data: str,
    recording: str | None,
    run: RunOptions,
    *,
    quiet: bool,
) -> tuple[Odar, list[RecordedItem]]:
    """Record the answers that are missing, and return all items that have them."""
    # Only the default pair is fitted: alternatives that dispatch may choose have statistics of their own.
    recorded = replace(settings, dispatch=replace(settings.dispatch, models=False))
    odar = Odar(recorded)  # makes no call
    header = header_of(odar)
    drawn = select_tasks(questions)
    folds = {task.id: fold for task, fold in zip(drawn.tasks, drawn.folds, strict=True)}
    source = QuestionSet(Path(data).stem)
    items = make_items(odar, [Job(source, each, folds.get(each.id, 0), SEED) for each in questions])
    path = Path(recording) if recording else cache_folder() / "calibration" / f"{header.made_by}.jsonl"
    with Journal(path, header.to_row()) as journal:
        calls = f"{2 + settings.routing.samples} calls each, "
        confirm_run(run, settings, journal.missing(items), len(items), "items", calls)
        record_items(run, with_long_timeouts(recorded), items, journal, quiet=quiet)
        rows = [item_from_json(row) for row in journal.rows(item.key for item in items)]
    return Odar(settings), rows


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
        click.echo(f"odar: prompts {name}", err=True)
        _, items = _collect(tried, questions, data, None, run, quiet=as_json)
        rows += prompt_rows(name, items)
    if as_json:
        print_json(rows)
    else:
        print_prompts(rows)
    return 0


def _from_recording(settings: Settings, place: str) -> tuple[Odar, list[RecordedItem]]:
    """Read the items of a recording that can be used to calibrate these settings.

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
    pair = {cards[0].name for cards in odar.cards.values()}
    complete = [item for item in recording.items("calibrate") if is_complete_item(item)]
    return odar, [item for item in complete if {each.model for each in item.attempts} <= pair]
