"""`odar certify`: the cheapest dial that loses at most so much accuracy, with a guarantee."""

from __future__ import annotations

import click

from odar.cli.calibrate import measure, out_option
from odar.cli.options import FILE, Finite, json_option, settings_options
from odar.cli.runs import RunOptions, run_options
from odar.errors import InputError, plural
from odar.lab.calibration.compare import Goal
from odar.lab.calibration.fit import fit_calibration
from odar.lab.calibration.guarantee import Certificate, certified_calibration, fit_and_certify
from odar.lab.replay.outcomes import Outcomes
from odar.settings import Settings
from odar.types import SLOW

SHARE = Finite(min=0, max=1, min_open=True, max_open=True)
LEVEL = Finite(min=0.5, max=1, max_open=True)


@click.command("certify")
@click.argument("data", type=FILE)
@click.option("--at-most-worse", type=SHARE, metavar="SHARE", default=0.05, help="Largest loss of accuracy.")
@click.option("--confidence", type=LEVEL, metavar="SHARE", default=0.95, help="Confidence level.")
@click.option("--against", default=SLOW, metavar="STAGE", help="The reference: slow, slow*5, …")
@out_option
@run_options(concurrency=4, engine=False)
@json_option("Print the report as JSON.")
@settings_options
def command(
    data: str,
    at_most_worse: float,
    confidence: float,
    against: str,
    out: str,
    run: RunOptions,
    as_json: bool,
    settings: Settings,
) -> None:
    """Find the cheapest dial that loses at most so much accuracy, with a guarantee.

    DATA is as for `odar calibrate`, with right answers. One half of the questions is used to fit, the other to
    test, from the most expensive dial down. The certificate holds for later questions that are exchangeable
    with these, and for these models and settings; traces, `odar doctor` and the dashboard say when it ends.

    \b
    odar certify questions.jsonl --budget 5
    odar certify runs/mine.jsonl --at-most-worse 0.02 --against "slow*5"
    """
    measured = measure(data, 0, run, settings)
    if not measured.scored.labelled:
        raise InputError("a certificate needs right answers: agreement with slow is not accuracy")
    goal = Goal(measured.odar.settings.routing.dial, measured.table.reference_usd)
    fitted, certificate, choice, reference = fit_and_certify(
        measured.table, goal, at_most_worse=at_most_worse, confidence=confidence, against=against
    )
    if choice is None or choice.cost_usd.mean() >= reference.cost_usd.mean():
        calibration = fit_calibration(measured.table, belief=False)
    else:
        sources = measured.odar.agents.sources().values()
        calibration = certified_calibration(fitted, certificate, choice.settings, sources)
    sentence = certificate_sentence(certificate, choice, reference)
    measured.write(calibration, sentence, out, {"certificate": certificate.to_dict()}, as_json=as_json)


def certificate_sentence(certificate: Certificate, choice: Outcomes | None, reference: Outcomes) -> str:
    """The result of a test in one sentence."""
    against = certificate.against
    claim = f"at most {certificate.at_most_worse:g} less accurate than {against}"
    claim += f", {certificate.confidence:.0%} confidence"
    more = "; more questions would not help"
    if certificate.more_items is not None:
        questions = plural(certificate.more_items, "more test question")
        more = f"; to certify the next cheaper dial takes about {questions}"
    tested = f"on {certificate.test_items} questions that nothing was fitted to"
    if choice is None:
        return f"Nothing is certified to be {claim} {tested}: statistics are written, the policy stays{more}."
    cost = choice.cost_usd.mean() / reference.cost_usd.mean()
    figures = f"{choice.score.mean():.3f} against {reference.score.mean():.3f} {tested}, at {cost:.2f} of its cost"
    if cost >= 1:
        return f"No dial cheaper than {against} is certified to be {claim}: the cheapest has {figures}{more}."
    return (
        f"Certified: the cascade at dial {certificate.points:g} is {claim}, for questions like these: "
        f"{figures}{more}."
    )
