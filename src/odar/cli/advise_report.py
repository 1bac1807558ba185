"""The report of `odar advise`: tables for a terminal, plain data, one HTML page, and lines for odar.toml."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import click

from odar.cli.terminal import print_columns, print_text
from odar.errors import plural
from odar.lab.calibration.advice import Advice, percent
from odar.lab.replay.outcomes import Outcomes


def report_body(
    advice: Advice, about: str, seconds: Mapping[str, float], one_call: Mapping[str, Any] | None, calibration: str
) -> dict[str, Any]:
    """Everything that is shown as plain data.

    `about` says what the log holds, `seconds` what each second agent is worth, `one_call` what requests cost that
    have no comparable answer; `calibration` is the file.
    """
    settings = advice.table.settings
    best = advice.best
    lines = [f"policy = {json.dumps(best.settings['policy'])}"]
    lines += [f"calibration = {json.dumps(calibration)}"] if best.is_cascade else []
    lines += settings.agent_lines()
    lines += ["", "[routing]", f"dial = {json.dumps(best.settings['routing.dial'])}"] if best.is_cascade else []
    parts = advice.by_kind().items()
    kinds = {kind: {"questions": len(part.strata), "choices": part.choice_rows()} for kind, part in parts}
    return {
        "recommendation": advice.sentence(),
        "toml": "\n".join(lines) + "\n",
        "log": about,
        "questions": len(advice.strata),
        "left_out": advice.left_out,
        "score": advice.score_name,
        "asked_twice": advice.repeats,
        "models": settings.default_models,
        "nominal_prices": advice.table.nominal,
        "choices": advice.choice_rows(),
        "kinds": kinds,
        "one_call": one_call,
        "seconds": dict(seconds),
    }


def print_report(advice: Advice, body: Mapping[str, Any]) -> None:
    print_text(f"{_about(body)}; 95% intervals")
    click.echo()
    choices = body["choices"]
    marks = ["→" if row["best"] else "" for row in choices]
    left = ("choice", body["score"], "saving", "slow itself")
    print_columns({"": marks, **_choice_columns(body)}, left=left, gap=2)
    if len(body["kinds"]) > 1:
        click.echo(f"\n{_shown(advice).name}, by kind of question\n")
        print_columns(_kind_columns(advice, body), left=left, gap=2)
    click.echo()
    for note in _notes(advice, body):
        print_text(note)
    click.echo()
    print_text(body["recommendation"])
    click.echo("\nodar.toml:\n")
    click.echo("".join(f"    {line}\n" if line else "\n" for line in body["toml"].splitlines()), nl=False)


def _about(body: Mapping[str, Any]) -> str:
    models = ", ".join(f"{agent} {model}" for agent, model in body["models"].items())
    return f"{plural(body['questions'], 'question')}; {models}"


def _shown(advice: Advice) -> Outcomes:
    """The choice that is shown by kind of question: the recommended one, or a cascade if that is slow."""
    return advice.best if advice.best is not advice.slow else next(c for c in advice.choices if c.is_cascade)


def _choice_columns(body: Mapping[str, Any]) -> dict[str, list[str]]:
    rows = body["choices"]
    return {
        "choice": [row["choice"] for row in rows],
        "$/1000": [f"{row['usd_per_1000']:.4g}" for row in rows],
        body["score"]: [percent(row["score"]) for row in rows],
        "saving": [percent(row["saving"], 0) for row in rows],
        "calls": [f"{row['calls']:.2f}" for row in rows],
    }


def _kind_columns(advice: Advice, body: Mapping[str, Any]) -> dict[str, list[str]]:
    """The cells of the table by kind of question, beside how often slow repeats itself."""
    kinds = body["kinds"].values()
    rows = [each["choices"][advice.choices.index(_shown(advice))] for each in kinds]
    slow = [each["choices"][advice.choices.index(advice.slow)] for each in kinds]
    return {
        "kind": [kind or "unknown" for kind in body["kinds"]],
        "questions": [str(each["questions"]) for each in kinds],
        body["score"]: [percent(row["score"]) for row in rows],
        **({} if advice.labelled else {"slow itself": [percent(row["score"]) for row in slow]}),
        "saving": [percent(row["saving"], 0) for row in rows],
    }


def _notes(advice: Advice, body: Mapping[str, Any]) -> list[str]:
    """What a reader must know to read the tables."""
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
    if (one_call := body["one_call"]) is not None:
        to = ", ".join(f"{count} to {agent}" for agent, count in one_call["to"].items())
        notes.append(
            f"{plural(one_call['requests'], 'request')} without a comparable answer (open-ended, tool calls) take "
            f"one call, {to}: about ${one_call['usd_per_1000']:.4g} per 1,000 at the usual length, "
            f"${one_call['slow_usd_per_1000']:.4g} if all go to slow. They are in no figure above."
        )
    if body["seconds"]:
        worth = ", ".join(f"{name} {points:+.1f}" for name, points in body["seconds"].items())
        notes.append(f"Second, by what the best cascade with it is worth beyond one slow call, in points: {worth}.")
    return notes


def html_page(advice: Advice, body: Mapping[str, Any]) -> str:
    """One page with the plot, without scripts and network access."""
    style = resources.files("odar.lab.report").joinpath("page.css").read_text(encoding="utf-8")
    kinds = f"<h2>{_shown(advice).name}, by kind of question</h2>{_html_table(_kind_columns(advice, body))}"
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in _notes(advice, body))
    parts = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ODAR: advice</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{style}</style></head><body><main><header><h1>What ODAR would save</h1>",
        f'<p class="lead">{html.escape(body["recommendation"])}</p>',
        f"<p>{html.escape(_about(body))}; 95% intervals.</p></header>",
        f'<figure><figcaption id="frontier">Cost against {body["score"]}</figcaption>',
        f"{_plot(body)}</figure>{_html_table(_choice_columns(body))}{notes}",
        f"<h2>odar.toml</h2><pre>{html.escape(body['toml'])}</pre>",
        kinds if len(body["kinds"]) > 1 else "",
        "</main></body></html>\n",
    )
    return "".join(parts)


def _plot(body: Mapping[str, Any]) -> str:
    """Cost against score as an SVG element; figures with matplotlib would need another package."""
    rows = [row for row in body["choices"] if row["score"].value == row["score"].value]
    most = 1.25 * max(float(row["usd_per_1000"]) for row in rows)
    least = max(0.0, min(float(row["score"].low) for row in rows) - 0.02)

    def x(usd: float) -> float:
        return 50 + 490 * usd / most

    def y(share: float) -> float:
        return 310 - 290 * (share - least) / (1 - least)

    parts = []
    for share in (least + (1 - least) * step / 4 for step in range(5)):
        parts.append(f'<line x1="50" x2="540" y1="{y(share):.1f}" y2="{y(share):.1f}" stroke="var(--grid)"/>')
        parts.append(
            f'<text x="44" y="{y(share) + 4:.1f}" text-anchor="end" fill="var(--muted)">{share:.0%}</text>'
        )
    for usd in (most * step / 4 for step in range(5)):
        parts.append(f'<text x="{x(usd):.1f}" y="328" text-anchor="middle" fill="var(--muted)">{usd:.2g}</text>')
    parts.append('<text x="295" y="350" text-anchor="middle" fill="var(--muted)">$ per 1,000 questions</text>')
    for number, row in enumerate(rows):
        colour = "var(--accent)" if row["settings"]["policy"] == "cascade" else "var(--other)"
        left = x(row["usd_per_1000"])
        value, low, high = row["score"]
        parts.append(f'<path d="M{left:.1f} {y(low):.1f}V{y(high):.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{left:.1f}" cy="{y(value):.1f}" r="4" fill="{colour}"/>')
        below = y(value) + (-8, 16, 30, 44)[number % 4]  # neighbours are often at nearly the same point
        name = html.escape(row["choice"].removeprefix("cascade "))
        parts.append(f'<text x="{left + 8:.1f}" y="{below:.1f}" fill="{colour}">{name}</text>')
    return f'<svg viewBox="0 0 560 360" role="img" aria-labelledby="frontier" font-size="12">{"".join(parts)}</svg>'


def _html_table(columns: Mapping[str, Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title in columns)
    rows = ""
    for name, *figures in zip(*columns.values(), strict=True):
        cells = "".join(f"<td>{figure}</td>" for figure in figures)
        rows += f"<tr><th>{html.escape(name)}</th>{cells}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
