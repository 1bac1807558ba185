"""The HTML page of a report, without scripts and network access, from the Jinja2 template `page.html`."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from odar import __version__
from odar.errors import InputError
from odar.files import atomic_write, install_command
from odar.lab.intervals import Interval
from odar.lab.report import analyses, estimators, results
from odar.lab.report.draw import to_svg
from odar.lab.report.exhibit import TEXTS, Column, Exhibit
from odar.lab.report.findings import Findings
from odar.lab.statistics import PolicySummary, format_p

SECTIONS: dict[str, tuple[Callable[[Findings], list[Exhibit]], ...]] = {
    "Main results": (
        results.main_table,
        results.policy_table,
        results.frontier_table,
        results.pareto,
        results.published,
    ),
    "By benchmark": (results.accuracy_figure, results.mix_figure, results.strata_table),
    "Ablations": (analyses.ablations, analyses.fusion_table, estimators.features),
    "Samples and settings": (analyses.best_of_n_figure, analyses.sweeps),
    "Robustness": (analyses.attacks, estimators.transfer),
    "Cost and time": (analyses.stability_table, analyses.latency, analyses.oracle_table),
    "Errors": (analyses.errors_table,),
    "Router quality": (analyses.routers,),
    "Uncertainty": (results.dataset_table, analyses.uncertainty_table),
}
LIBRARIES = ("numpy", "matplotlib", "pyarrow")


def exhibits(findings: Findings) -> tuple[dict[str, list[Exhibit]], list[str]]:
    """The exhibits of each section, and the reasons why others cannot be made from this recording."""
    by_section: dict[str, list[Exhibit]] = {section: [] for section in SECTIONS}
    reasons = []
    for section, makers in SECTIONS.items():
        for make in makers:
            try:
                by_section[section] += make(findings)
            except InputError as error:
                reasons.append(str(error))
    return {section: found for section, found in by_section.items() if found}, reasons


def write_report(parts: Sequence[Findings], out: Path, command: str) -> None:
    """Write the page; InputError if a library is missing, or the file cannot be written."""
    text = render(parts, command)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(out) as draft:
            draft.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"the report cannot be written: {error}") from None


def render(parts: Sequence[Findings], command: str) -> str:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise InputError(f"reports need jinja2: {install_command('evals')}") from None
    files = resources.files("odar.lab.report")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters.update(cell=cell, heat=heat, svg=to_svg)
    template = environment.from_string(files.joinpath("page.html").read_text(encoding="utf-8"))
    shown = []
    for number, findings in enumerate(parts, start=1):
        sections, reasons = exhibits(findings)
        shown.append(
            {
                "id": f"part-{number}",
                "findings": findings,
                "title": ", ".join(findings.benchmarks),
                "about": _about(findings),
                "verdict": _verdict(findings),
                "sections": sections,
                "origin": _origin(findings, command),
                "reasons": reasons,
            }
        )
    return template.render(
        style=files.joinpath("page.css").read_text(encoding="utf-8"),
        words=TEXTS["sections"],
        date=datetime.now(UTC).date().isoformat(),
        parts=shown,
    )


def cell(value: Any, column: Column) -> tuple[str, str]:
    """The text of a cell, and of its interval.

    >>> cell(-0.5, Column("x")), cell(Interval(0.5, 0.25, 0.75), Column("x", ".2f")), cell(None, Column("x"))
    (('−0.500', ''), ('0.50', '0.25 to 0.75'), ('–', ''))
    """
    if isinstance(value, Interval):
        shown, low, high = (format_number(each, column.form) for each in value)
        return shown, "" if np.isnan(value.low) else f"{low} to {high}"
    if value is None or isinstance(value, str):
        return "–" if value is None else value, ""
    return format_p(value) if column.form == "p" else format_number(value, column.form), ""


def format_number(value: float, form: str = ".3f") -> str:
    if np.isnan(value):
        return "–"
    text = f"{value:{form or 'g'}}"
    if not text.strip("+-0.%"):
        text = text.lstrip("+-")  # zero has no sign
    return text.replace("-", "−")


def heat(value: Any, rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> str:
    """The CSS background of a cell, by its sign and its size relative to the largest."""
    values = [abs(row[i]) for row in rows for i, column in enumerate(columns) if column.heat]
    share = round(60 * abs(value) / max(max(values), 1.0))
    return f"background:color-mix(in srgb,var(--{'good' if value > 0 else 'bad'}) {share}%,transparent)"


def _about(findings: Findings) -> str:
    table = findings.table
    seeds = ", ".join(str(seed) for seed in sorted({key.seed for key in table.column("key")}))
    models = " → ".join(dict.fromkeys(table.settings.default_models.values()))
    return f"{len(table)} items · {models} · seed {seeds}"


def _verdict(findings: Findings) -> str:
    """The main result in words, as far as it is significant."""
    rows = {row.name: row for row in findings.main}
    ours = rows["odar"]
    hard = rows["always-hard"]

    def against(other: PolicySummary, name: str) -> str:
        assert other.gain is not None, "only the reference has no gain, and that is ODAR"
        gap = other.gain.interval
        change = format_number(-gap.value, "+.3f")
        if other.gain.p is None:
            return f"{change} against {name} ({len(findings.table)} items are too few for an interval)"
        if not (gap.low > 0 or gap.high < 0):
            return f"no difference from {name} can be shown ({change}, {other.gain.p_text})"
        better = "better" if gap.high < 0 else "worse"
        span = f"95%: {format_number(-gap.high, '+.3f')} to {format_number(-gap.low, '+.3f')}"
        return f"{format_number(abs(gap.value))} {better} than {name} ({span})"

    return (
        f"ODAR is right on {ours.accuracy.value:.1%} of the items with {ours.calls:.2f} calls per item: "
        f"{against(rows['single-fast'], 'the fast agent alone')}; {against(rows['single-slow'], 'the slow one')}; "
        f"{against(rows['paper'], 'the policy of the paper')}; {against(hard, 'the Hard path for all')}. "
        f"The Hard path for all takes {hard.calls / ours.calls:.1f} times as many calls."
    )


def _origin(findings: Findings, command: str) -> dict[str, str]:
    settings = findings.table.settings
    routing = settings.routing
    fusion = settings.fusion
    header = findings.header
    versions = {"odar": __version__, "python": platform.python_version(), **{n: version(n) for n in LIBRARIES}}
    agents = {}
    for name in settings.agent_names:
        own = settings.agent(name)
        limits = f"T = {own.temperature:g}, top-p {own.top_p:g}, {own.max_tokens} tokens"
        agents[name] = f"{', or '.join(settings.models_of(name))}: {limits}"
    return {
        "command": command,
        "recording": f"{findings.name}, {header.samples} slow samples per item, by {header.made_by}",
        "profile": settings.profile,
        "policy": f"{settings.policy}, dial {settings.dial()}, τ {routing.tau1:g} and {routing.tau2:g}",
        "fusion": f"{fusion.rule}, β = {fusion.beta:g}, λ = {fusion.varentropy_weight:g}",
        **agents,
        "prompts": ", ".join(f"{step} {md5}" for step, md5 in header.prompt_md5s().items() if md5),
        "calibration": settings.calibration or "none",
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "collected with": ", ".join(f"{name} {number}" for name, number in header.versions.items()),
    }


def to_json(parts: Sequence[Findings]) -> str:
    """All tables as JSON: for each part and exhibit a list of rows by column name."""
    found = []
    for findings in parts:
        tables = {each.slug: each.records() for section in exhibits(findings)[0].values() for each in section}
        found.append({"recording": findings.name, "items": len(findings.table), "tables": tables})
    return json.dumps(found, ensure_ascii=False, default=float)
