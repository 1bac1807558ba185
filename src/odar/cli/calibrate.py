"""`odar calibrate`: fit ODAR to your own models and questions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odar.cli.local import fetch_weights
from odar.cli.options import Finite, UserPath, announce_profile, command_line, settings_options
from odar.errors import InputError
from odar.files import cache_folder, written_whole
from odar.settings import Settings

if TYPE_CHECKING:
    from odar.calibration.evidence import Evidence
    from odar.calibration.fit import Fitted
    from odar.calibration.items import Item
    from odar.calibration.provenance import Provenance
    from odar.calibration.records import Record
    from odar.engine import Odar

FEWEST = 30
"""Fewer items than this say nothing about thresholds."""


@click.command("calibrate")
@click.argument("data", type=UserPath(), required=False)
@click.option("--from-traces", is_flag=True, help="Fit to recorded traffic with feedback; calls nobody.")
@click.option(
    "--out",
    type=UserPath(),
    metavar="FILE",
    default="calibration.json",
    show_default=True,
    help="Where the result is written.",
)
@click.option(
    "--records", type=UserPath(), metavar="FILE", help="Where answers are kept. Default: in ODAR's cache."
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=160, show_default=True, help="Starter questions to use."
)
@click.option("--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Items at a time.")
@click.option("--budget", type=Finite(min=0), metavar="USD", help="Stop before this is spent.")
@click.option("--yes", is_flag=True, help="Do not ask before spending money.")
@click.option(
    "--tolerance",
    type=Finite(min=0, max=1),
    default=0.05,
    show_default=True,
    help="Accuracy that a clear saving may cost, at worst.",
)
@click.option("--force", is_flag=True, help="Write the result even if it is worse.")
@click.option("--statistics-only", is_flag=True, help="Measure μ and σ; leave everything else as it is.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@settings_options
def command(
    data: str | None, from_traces: bool, limit: int, as_json: bool, settings: Settings, **options: Any
) -> int:
    """Run both agents on questions with known answers, and fit ODAR to them.

    DATA is a JSONL file with query and answer on each line (optionally id, accept, time, reasoning, image);
    without it, ODAR's own starter questions are used. Fitted are the estimator, the posterior, τ1 and τ2, μ and
    σ, β and skills; each takes the place of what is in use only where it is clearly better on questions it was
    not fitted to. Interrupt it whenever you like: the same command goes on from there.

    The whole is judged on questions it was not fitted to, and written unless it is worse: clearly less often right
    (the 95% interval of the difference ends below 0); less often right and not clearly cheaper; less often right
    and, at the low end of the interval, by more than --tolerance; or dearer and not clearly more often right.
    Cheaper means fewer dollars, or fewer calls where nothing is charged.

    The local model runs once on each core; for it --concurrency does not count.

    \b
    odar calibrate questions.jsonl --budget 5
    odar calibrate                       # the local model, for nothing
    odar calibrate --from-traces         # after `odar feedback`
    """
    if from_traces:
        from odar.cli.calibrate_traces import calibrate_from_traces

        if data:
            raise InputError(f"--from-traces reads the store; it does not go together with {data}")
        return calibrate_from_traces(settings, options["out"], as_json=as_json)
    from odar.calibration.items import load_items, starter_items

    items = load_items(data) if data else starter_items(limit)
    if len(items) < FEWEST:  # before anybody is paid to answer them
        raise InputError(f"{len(items)} items are too few; at least {FEWEST} are needed to fit anything")
    if not as_json:
        announce_profile(settings)
    fetch_weights(settings, quiet=as_json)
    return _run(settings, items, data or "starter", as_json=as_json, **options)


def _run(
    settings: Settings,
    items: list[Item],
    data: str,
    *,
    out: str,
    records: str | None,
    concurrency: int,
    budget: float | None,
    yes: bool,
    tolerance: float,
    force: bool,
    statistics_only: bool,
    as_json: bool,
) -> int:
    from odar.calibration.install import report, statistics_alone, to_calibration
    from odar.cli.calibrate_view import show
    from odar.engine import Odar

    odar = Odar(settings)  # opens nothing: says what an item may take, and is what is fitted
    kept = _collect(odar, items, records, concurrency, budget, yes, quiet=as_json)
    if len(kept) < FEWEST:
        raise InputError(f"{len(kept)} items have answers; at least {FEWEST} are needed to fit anything")
    evidence, fitted = _fit(odar, kept, tolerance)
    made = {"command": command_line(), "data": data, "items": len(kept)}
    refused = bool(fitted.worse) and not force and not statistics_only
    if statistics_only:
        calibration = statistics_alone(odar, evidence, fitted, made)
    else:
        calibration = to_calibration(odar, fitted, made)
    if as_json:
        click.echo(json.dumps({**report(fitted), "written": None if refused else out}, ensure_ascii=False))
    else:
        show(odar, fitted, len(kept))
    if refused:
        click.echo(f"odar: not written: {fitted.worse} (--force writes it anyway)", err=True)
        return 1
    with written_whole(Path(out)) as draft:
        draft.write_text(calibration.to_json(), encoding="utf-8")
    if not as_json:
        click.echo(f'\nwritten to {out}; to use it, in odar.toml:\n\n    calibration = "{out}"')
    return 0


def _collect(
    odar: Odar,
    items: list[Item],
    records: str | None,
    concurrency: int,
    budget: float | None,
    yes: bool,
    *,
    quiet: bool,
) -> list[tuple[Item, Record]]:
    """The items that were answered, now or earlier, with what was said."""
    from odar.calibration.collect import record, work_items
    from odar.calibration.provenance import provenance
    from odar.calibration.records import FORMAT, record_of
    from odar.cli.collecting import collect, confirm
    from odar.recording.journal import Journal
    from odar.types import Step

    settings, made_by = odar.settings, provenance(odar)
    samples, fusion = settings.routing.samples, settings.fusion
    at_least = min(fusion.first_wave if fusion.stop_confidence else samples, samples)
    calls = f"{2 + samples}" if at_least == samples else f"{2 + at_least} to {2 + samples}"
    work = work_items(odar, items, ((Step.ANSWER, 1), (Step.VERIFY, 1), (Step.SOLVE, samples)), scored=True)
    file = _records_path(records, made_by)
    with Journal(file, made_by.header(FORMAT), made_by.since) as journal:
        todo = journal.missing(work)
        confirm(settings, todo, len(items), "items", f"{calls} calls each, ", budget, yes=yes)
        collect(settings, record, work, journal, concurrency, budget, quiet=quiet)
        known = {row["id"]: record_of(row) for row in journal.rows(item.key for item in work)}
    return [(item, known[item.id]) for item in items if item.id in known]


def _fit(odar: Odar, kept: list[tuple[Item, Record]], tolerance: float) -> tuple[Evidence, Fitted]:
    from odar.calibration.evidence import evidence_of
    from odar.calibration.fit import fit
    from odar.calibration.install import incumbents
    from odar.difficulty.training import extract

    today = incumbents(odar)
    queries = [item.query for item, _ in kept]
    records = [
        replace(record, difficulty=odar.estimator.estimate(query).difficulty)
        for query, (_, record) in zip(queries, kept, strict=True)
    ]
    features = None if today.estimator is None else extract(queries)
    evidence = evidence_of(records, odar.settings.fusion.varentropy_weight, features)
    return evidence, fit(evidence, today, tolerance=tolerance)


def _records_path(named: str | None, made_by: Provenance) -> Path:
    """The file named, or the one for these settings in ODAR's cache; where that is new, what is left is told."""
    if named:
        return Path(named)
    from odar.calibration.provenance import latest, told

    folder = cache_folder() / "calibration"
    file = folder / f"{made_by.digest}.jsonl"
    if not file.exists() and (found := latest(folder)):
        before, by = found
        click.echo(
            f"odar: the answers in {before} were made with other models, prompts or settings{told(made_by, by)}; "
            "beginning anew",
            err=True,
        )
    return file
