"""Recordings → one HTML file: no script, nothing fetched. The layout is in `page.html`, a Jinja2 template."""

from __future__ import annotations

import base64
import csv
import io
import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from odar import __version__
from odar.calibration.bootstrap import Interval
from odar.errors import InputError
from odar.evals.replay.arrays import load_panels
from odar.evals.report import analyses, results
from odar.evals.report.draw import DAY, NIGHT, Column, Exhibit, to_png, to_svg
from odar.evals.report.findings import KINDS, Findings, gather, missing_commands
from odar.evals.statistics import Standing, show_p
from odar.files import atomic_write
from odar.policy.fusion import FAST
from odar.recording.files import open_recording
from odar.types import Step

LIBRARIES = ("numpy", "scipy", "matplotlib", "pyarrow")
LONGEST, LONGEST_ANSWER = 280, 120
"""Characters of a question and of an answer in an example; the recording has the rest."""
WORDS = {
    "Ablations": "From the same answers; what needs others is listed below, with the command that records them.",
    "Errors": "E1 to E4 are ODAR's own. E5 and E6: no recorded answer was right; the kind of set decides which.",
    "How sure": "The same figures by other routes.",
}


def exhibits(findings: Findings) -> dict[str, list[Exhibit]]:
    """Every table and figure, by section."""
    f = findings
    found = {
        "Main results": [results.main_table(f), results.policy_table(f), *results.pareto(f), results.published()],
        "By benchmark": [results.accuracy_figure(f), results.mix_figure(f), results.strata_table(f)],
        "Ablations": [*analyses.ablations(f), analyses.fusion_table(f), *analyses.features(f)],
        "Samples and settings": [analyses.curve_figure(f), *analyses.sweeps(f)],
        "Robustness": [*analyses.attacks(f), *analyses.transfer(f)],
        "Cost and time": [analyses.stability_table(f), *analyses.latency(f), analyses.oracle_table(f)],
        "Errors": [analyses.errors_figure(f)],
        "Router quality": analyses.routers(f),
        "How sure": [analyses.sureness_table(f)],
    }
    found["By benchmark"] += results.details(f)
    return {section: parts for section, parts in found.items() if parts}


def write_report(
    places: Sequence[str],
    out: Path,
    command: str,
    figures: Path | None = None,
    calibration: str | None = None,
    split: str = "",
    train: str = "Mathematics",
) -> list[Findings]:
    """Write the page; with `figures`, each figure as PNG and each table as CSV into that folder too.

    Raises:
        InputError: there is no recording, or the files cannot be written.
    """
    parts = gather(load_panels(places, calibration, split), train)
    shown = [exhibits(findings) for findings in parts]
    text = render(parts, shown, places, command)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(out) as draft:
            draft.write_text(text, encoding="utf-8")
        if figures is not None:
            for number, sections in enumerate(shown, start=1):
                folder = figures if len(shown) == 1 else figures / str(number)
                folder.mkdir(parents=True, exist_ok=True)
                for each in (exhibit for section in sections.values() for exhibit in section):
                    (folder / f"{each.slug}.csv").write_text(to_csv(each), encoding="utf-8")
                    if each.draw is not None:
                        to_png(each.draw, each.size, folder / f"{each.slug}.png")
    except OSError as error:
        raise InputError(f"the report cannot be written: {error}") from None
    return parts


def render(
    parts: Sequence[Findings], shown: Sequence[Mapping[str, list[Exhibit]]], places: Sequence[str], command: str
) -> str:
    """Return the whole page."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise InputError("reports need jinja2; install odar[evals]") from None
    files = resources.files("odar.evals.report")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters.update(csv=csv_link, cell=cell, heat=heat, svg=to_svg)
    template = environment.from_string(files.joinpath("page.html").read_text(encoding="utf-8"))
    root = f":root{{{DAY.css()}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{NIGHT.css()}}}}}\n"
    return template.render(
        style=root + files.joinpath("page.css").read_text(encoding="utf-8"),
        words=WORDS,
        date=datetime.now(UTC).date().isoformat(),
        parts=[
            {
                "id": f"part-{number}",
                "findings": findings,
                "title": ", ".join(findings.benchmarks),
                "about": _about(findings),
                "verdict": _verdict(findings),
                "tiles": _tiles(findings),
                "sections": sections,
                "missing": missing_commands(findings),
                "left_out": findings.left_out,
                "examples": _examples(findings, places),
                "origin": _origin(findings, command),
                "reasons": [
                    each
                    for each in (findings.routers, findings.features, findings.transfer)
                    if isinstance(each, str)
                ],
            }
            for number, (findings, sections) in enumerate(zip(parts, shown, strict=True), start=1)
        ],
    )


def to_csv(exhibit: Exhibit) -> str:
    """Return the numbers of an exhibit as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(exhibit.csv_rows())
    return text.getvalue()


def csv_link(exhibit: Exhibit) -> str:
    """Return the CSV of an exhibit as the address of a link, inside the page itself."""
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(to_csv(exhibit).encode()).decode()


def cell(value: Any, column: Column) -> tuple[str, str]:
    """Return a cell as it is read, and its interval.

    >>> cell(-0.5, Column("x")), cell(Interval(0.5, 0.25, 0.75), Column("x", ".2f")), cell(None, Column("x"))
    (('−0.500', ''), ('0.50', '0.25 to 0.75'), ('–', ''))
    """
    if isinstance(value, Interval):
        known = not np.isnan(value.low)
        return number(value.value, column.form), (
            f"{number(value.low, column.form)} to {number(value.high, column.form)}" if known else ""
        )
    if value is None or isinstance(value, str):
        return value or ("" if value == "" else "–"), ""
    if column.form == "p":
        return show_p(value), ""
    return number(value, column.form), ""


def number(value: float, form: str = ".3f") -> str:
    """Return a figure with a real minus sign; unknown is a dash, never 0.

    >>> number(-0.5), number(-0.0001, "+.3f"), number(float("nan"))
    ('−0.500', '0.000', '–')
    """
    if np.isnan(value):
        return "–"
    text = f"{value:{form or 'g'}}"
    if not text.strip("+-0.%"):
        text = f"{0.0 if form != 'd' else 0:{form}}".lstrip("+")  # nothing has no sign
    return text.replace("-", "−")


def heat(value: Any, rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> str:
    """Return the background of a cell by its sign and size, as a share of the largest."""
    values = [abs(row[i]) for row in rows for i, column in enumerate(columns) if column.heat]
    share = round(60 * abs(value) / max(max(values), 1.0))
    return f"background:color-mix(in srgb,var(--{'good' if value > 0 else 'bad'}) {share}%,transparent)"


def _about(findings: Findings) -> str:
    arrays = findings.arrays
    seeds = ", ".join(str(seed) for seed in sorted({key.seed for key in arrays.items.keys}))
    models = " → ".join(dict.fromkeys(names[0] for names in arrays.header.models.values()))
    return f"{len(arrays)} items · {models} · seed {seeds}"


def _tiles(findings: Findings) -> list[tuple[str, str]]:
    rows = {row.name: row for row in findings.main}
    ours, fast, hard = rows["odar"], rows["single-fast"], rows["always-hard"]
    return [
        (number(ours.accuracy.value), f"ODAR's accuracy at {ours.calls:.2f} calls an item"),
        (number(fast.accuracy.value), "the fast agent alone, 1 call"),
        (number(hard.accuracy.value), f"the Hard path for all, {hard.calls:.2f} calls"),
        (number(rows["oracle-router"].accuracy.value), "the right path known in hindsight"),
    ]


def _verdict(findings: Findings) -> str:
    """Say what the numbers show, in words that claim no more than they do."""
    rows = {row.name: row for row in findings.main}
    ours, fast, hard = rows["odar"], rows["single-fast"], rows["always-hard"]

    def against(other: Standing, name: str) -> str:
        assert other.gain is not None, "only the reference has no gain, and that is ODAR"
        gap = other.gain.interval
        change = number(-gap.value, "+.3f")
        if other.gain.p is None:
            return f"{change} against {name} ({len(findings.arrays)} items are too few for an interval)"
        if not (gap.low > 0 or gap.high < 0):
            return f"no difference from {name} can be shown ({change}, {other.gain.p_text})"
        better = "better" if gap.high < 0 else "worse"
        span = f"95%: {number(-gap.high, '+.3f')} to {number(-gap.low, '+.3f')}"
        return f"{number(abs(gap.value))} {better} than {name} ({span})"

    parts = [against(fast, "the fast agent alone"), against(hard, "the Hard path for all")]
    text = f"ODAR takes {ours.calls:.2f} calls an item: {'; '.join(parts)}."
    return f"{text} The Hard path for all takes {hard.calls / ours.calls:.1f} times as many calls."


def _examples(findings: Findings, places: Sequence[str]) -> list[dict[str, str]]:
    """Two examples of each kind of error, in the words of the recording."""
    rows = {
        findings.arrays.items.keys[row]: (row, kind) for kind in KINDS for row in findings.errors.examples(kind)
    }
    found = {entry.key: entry for place in places for entry in open_recording(place).items(keys=set(rows))}
    shown = []
    for key, (row, kind) in rows.items():
        if key not in found:
            continue
        entry, path = found[key], results.PATHS[int(findings.odar.path[row])]
        winner = int(findings.odar.winner[row])
        given = entry.attempts[winner if findings.arrays.verified or winner == FAST else winner - 1]
        judged = next((each.judgment for each in entry.attempts if each.step is Step.VERIFY), None)
        said = {True: ", verifier: CORRECT", False: ", verifier: INCORRECT", None: ""}[
            judged if path == "Medium" else None
        ]
        gold = entry.gold if isinstance(entry.gold, list) else [entry.gold]
        shown.append(
            {
                "kind": kind,
                "where": f"{key.set} {key.id}, {path}{said}",
                "query": _short(entry.query),
                "answer": _short(given.answer, LONGEST_ANSWER),
                "gold": _short(" or ".join(map(str, gold))),
            }
        )
    return shown


def _origin(findings: Findings, command: str) -> list[tuple[str, str]]:
    header, setting = findings.arrays.header, findings.setting
    stop = "every sample" if setting.stop is None else f"stops at {setting.stop:g}"
    versions = {
        "odar": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }
    return [
        ("command", command),
        ("recording", f"{findings.name}, {findings.arrays.samples} slow samples an item, made by {header.made_by}"),
        ("profile", str(header.settings["profile"])),
        (
            "routing",
            f"τ {setting.tau1:g} and {setting.tau2:g}, {setting.mode}, {setting.estimator} d, n = {setting.n}",
        ),
        ("fusion", f"{setting.rule}, β = {setting.beta:g}, λ = {setting.lam:g}, {stop}"),
        *((role, _agent(header.settings[role], header.models[role])) for role in ("fast", "slow")),
        ("prompts", ", ".join(f"{step} {md5}" for step, md5 in header.prompts.items())),
        ("calibration", str(header.settings["calibration"] or "none")),
        ("versions", ", ".join(f"{name} {number}" for name, number in versions.items())),
        ("collected with", ", ".join(f"{name} {number}" for name, number in header.versions.items())),
    ]


def _agent(agent: Mapping[str, Any], models: Sequence[str]) -> str:
    others = f", or {', '.join(models[1:])}" if models[1:] else ""
    return (
        f"{models[0]}{others}: T = {agent['temperature']:g}, top-p {agent['top_p']:g}, {agent['max_tokens']} tokens"
    )


def _short(text: str, longest: int = LONGEST) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"


def to_json(parts: Sequence[Findings]) -> str:
    """Return every table of a report as JSON: by part, section and exhibit, a list of rows by column name.

    `missing` are commands that record what further ablations need.
    """
    found = []
    for findings in parts:
        tables = {
            each.slug: [dict(zip(each.csv_rows()[0], row, strict=True)) for row in each.csv_rows()[1:]]
            for section in exhibits(findings).values()
            for each in section
        }
        missing = dict(missing_commands(findings))
        about = {"recording": findings.name, "items": len(findings.arrays)}
        found.append({**about, "tables": tables, "missing": missing})
    return json.dumps(found, ensure_ascii=False, default=float)
