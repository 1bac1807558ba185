"""The page itself: one HTML file with everything in it, no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from odar.evals.report import tables
from odar.evals.report.draw import Figure, to_svg
from odar.evals.report.figures.common import label
from odar.evals.report.findings import Findings, Routers
from odar.evals.report.gallery import gallery
from odar.evals.report.markup import Markup, number, p_value, tag
from odar.evals.report.palette import DAY, NIGHT
from odar.evals.standing import Standing
from odar.evals.taxonomy import KINDS
from odar.recording.schema import RecordedItem
from odar.types import Step

LONGEST, LONGEST_ANSWER = 280, 120
"""Characters of a question and of an answer in an example; the recording has the rest."""


@dataclass(frozen=True, slots=True)
class Made:
    """How the report came to be."""

    command: str
    date: str
    versions: Mapping[str, str]
    recording: str


def page(findings: Findings, examples: Mapping[int, RecordedItem], made: Made) -> str:
    """The whole file. `examples` holds the entries behind some rows of the arrays."""
    figures = {slug: _figure(figure, findings) for slug, figure in gallery(findings).items()}
    body = [
        _header(findings, made),
        _main(findings, figures),
        _groups(findings, figures),
        _ablations(findings, figures),
        _limits(findings, figures),
        _errors(findings, examples, figures),
        _routing(findings, figures),
        _sure(findings),
        _origin(findings, made),
    ]
    title = f"ODAR on {', '.join(_benchmarks(findings))}"
    style = resources.files("odar.evals.report").joinpath("page.css").read_text(encoding="utf-8")
    root = f":root{{{DAY.css()}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{NIGHT.css()}}}}}\n"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"{tag('title', title)}<style>{root}{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{tag("main", *body)}</body></html>\n'


def _header(findings: Findings, made: Made) -> Markup:
    rows = {row.name: row for row in findings.main}
    ours, fast, hard = rows["odar"], rows["single-fast"], rows["always-hard"]
    arrays = findings.arrays
    seeds = ", ".join(str(seed) for seed in sorted({key.seed for key in arrays.items.keys}))
    models = ", ".join(dict.fromkeys(names[0] for names in arrays.header.models.values()))
    about = f"{len(arrays)} items of {', '.join(_benchmarks(findings))} · {models} · seed {seeds} · {made.date}"
    tiles = [
        _tile(number(ours.accuracy.value), f"ODAR's accuracy at {ours.calls:.2f} calls an item", ours=True),
        _tile(number(fast.accuracy.value), "the fast agent alone, 1 call"),
        _tile(number(hard.accuracy.value), f"the Hard path for all, {hard.calls:.2f} calls"),
        _tile(number(rows["oracle-router"].accuracy.value), "the right path known in hindsight"),
    ]
    return tag(
        "header",
        tag("h1", "What adaptive compute gained, and how sure we are"),
        tag("p", about),
        tag("p", _verdict(ours, fast, hard), class_="lead"),
        tag("div", *tiles, class_="tiles"),
    )


def _verdict(ours: Standing, fast: Standing, hard: Standing) -> str:
    """What the numbers say, in words that claim no more than they do."""

    def against(other: Standing, name: str) -> str:
        assert other.gain is not None, "only the reference has no gain, and that is ODAR"
        gap = other.gain.interval
        if not (gap.low > 0 or gap.high < 0):
            return (
                f"no difference from {name} can be shown ({number(-gap.value, '+.3f')}, p {p_value(other.gain.p)})"
            )
        better = "better" if gap.value < 0 else "worse"
        return f"it is {better} than {name} by {number(abs(gap.value))} (p {p_value(other.gain.p)})"

    saved = 1 - ours.calls / hard.calls
    return (
        f"ODAR answers {ours.accuracy.value:.1%} right with {ours.calls:.2f} calls an item, {saved:.0%} fewer than "
        f"the Hard path for all: {against(fast, 'the fast agent alone')}; {against(hard, 'the Hard path for all')}."
    )


def _main(findings: Findings, figures: Mapping[str, Markup]) -> Markup:
    return _section(
        "Every policy on the same answers",
        "Each row replays the same recorded answers; nothing was asked again. Intervals are 95%, by stratified "
        "bootstrap over items; p is adjusted for the whole table (Benjamini-Hochberg). Efficiency is points of "
        "accuracy above the fast agent for each call.",
        tables.main_table(findings),
        figures["pareto"],
        _pair(figures["mix"], figures["latency"]),
    )


def _groups(findings: Findings, figures: Mapping[str, Markup]) -> Markup:
    side = tag("div", figures["best-of-n"], tag("figure", tables.fusion_table(findings)))
    pair = tag("div", figures["radar"], side, class_="pair")
    return _section("Where it helps", "", pair, tables.group_table(findings))


def _ablations(findings: Findings, figures: Mapping[str, Markup]) -> Markup:
    left_out = [f"{label(spec)}: {why}." for spec, why in findings.left_out.items()]
    note = tag("p", "Not shown: ", " ".join(left_out), class_="note") if left_out else Markup()
    prompts = "Prompts are compared by collecting a recording with each set: odar eval compare A B."
    return _section("What each part is worth", prompts, figures["ablations"], figures["sweeps"], note)


def _limits(findings: Findings, figures: Mapping[str, Markup]) -> Markup:
    return _section(
        "Oracle gap and safety tax",
        "The oracle router takes the cheapest path that turns out right; the tax is what ODAR calls beyond it.",
        tables.oracle_table(findings),
        tag("h2", "Cost stability"),
        tables.stability_table(findings),
    )


def _errors(findings: Findings, examples: Mapping[int, RecordedItem], figures: Mapping[str, Markup]) -> Markup:
    shown = [_example(findings, row, entry) for row, entry in examples.items()]
    kinds = tag("dl", *(part for kind, text in KINDS.items() for part in (tag("dt", kind), tag("dd", text))))
    return _section(
        "Errors",
        "Sorted by rule, not by reading; E5 and E6 are told apart by the kind of set alone.",
        tag("div", figures["errors"], tag("figure", kinds), class_="pair"),
        tag("div", *shown, class_="pair examples"),
    )


def _example(findings: Findings, row: int, entry: RecordedItem) -> Markup:
    kind = findings.errors.kinds[row]
    given = entry.attempts[int(findings.odar.winner[row])]
    judged = next((each.judgment for each in entry.attempts if each.step is Step.VERIFY), None)
    path = ("Simple", "Medium", "Hard")[int(findings.odar.path[row])]
    said = {True: ", verifier: CORRECT", False: ", verifier: INCORRECT", None: ""}[
        judged if path == "Medium" else None
    ]
    gold = entry.gold if isinstance(entry.gold, str) else " or ".join(map(str, _listed(entry.gold)))
    return tag(
        "div",
        tag("p", tag("span", kind, class_="kind"), f" {entry.key.set} {entry.key.id}, {path}{said}"),
        tag("p", tag("q", _short(entry.query))),
        tag(
            "p", "answered ", tag("b", _short(given.answer, LONGEST_ANSWER)), ", right is ", tag("b", _short(gold))
        ),
        class_="example",
    )


def _routing(findings: Findings, figures: Mapping[str, Markup]) -> Markup:
    routers = findings.routers
    if not isinstance(routers, Routers):
        return _section("Router quality and calibration", routers, _pair(figures["calibration"]))
    words = (
        "APGR is the area under the gap recovered, CPT the share of strong calls that recovers so much of it, as "
        "RouteLLM defines them; AUROC is for telling the fast agent's failures. The same code scores the published "
        "routellm_gsm8k rows."
    )
    pair = _pair(figures["router"], figures["calibration"])
    return _section("Router quality and calibration", words, tables.router_table(routers), pair)


def _sure(findings: Findings) -> Markup:
    words = "The same figures by other routes. Published rows stand as published: their weights cannot be had."
    pair = tag("div", tables.sureness_table(findings), tables.published_table(), class_="pair")
    return _section("How sure", words, pair)


def _origin(findings: Findings, made: Made) -> Markup:
    header, setting = findings.arrays.header, findings.setting
    routing = (
        f"τ {setting.tau1:g} and {setting.tau2:g}, {setting.mode}, estimator {setting.estimator}, n = {setting.n}"
    )
    stop = "every sample" if setting.stop is None else f"stops at {setting.stop:g}"
    fusion = f"{setting.rule}, β = {setting.beta:g}, λ = {setting.lam:g}, {stop}"
    facts: list[tuple[str, Any]] = [
        ("command", tag("code", made.command)),
        (
            "recording",
            f"{made.recording}, {findings.arrays.samples} slow samples an item, made by {header.made_by}",
        ),
        ("profile", header.settings["profile"]),
        ("routing", routing),
        ("fusion", fusion),
        *((role, _agent(header.settings[role], header.models[role])) for role in ("fast", "slow")),
        ("prompts", ", ".join(f"{step} {md5}" for step, md5 in header.prompts.items())),
        ("calibration", header.settings["calibration"] or "none"),
        ("seeds", ", ".join(str(seed) for seed in sorted({key.seed for key in findings.arrays.items.keys}))),
        ("versions", ", ".join(f"{name} {version}" for name, version in made.versions.items())),
        ("collected with", ", ".join(f"{name} {version}" for name, version in header.versions.items())),
    ]
    return _section(
        "How this was made", "", tag("dl", *(t for k, v in facts for t in (tag("dt", k), tag("dd", v))))
    )


def _agent(agent: Mapping[str, Any], models: list[str]) -> str:
    others = f", or {', '.join(models[1:])}" if models[1:] else ""
    return (
        f"{models[0]}{others}: T = {agent['temperature']:g}, top-p {agent['top_p']:g}, {agent['max_tokens']} tokens"
    )


def _figure(figure: Figure, findings: Findings) -> Markup:
    title = tag("h3", figure.title, id=f"title-{figure.slug}")
    return tag("figure", tag("figcaption", title, figure.caption), Markup(to_svg(figure, findings)))


def _section(title: str, words: str, *content: Markup) -> Markup:
    return tag("section", tag("h2", title), *([tag("p", words)] if words else []), *content)


def _pair(*figures: Markup) -> Markup:
    return tag("div", *figures, class_="pair")


def _tile(value: str, words: str, *, ours: bool = False) -> Markup:
    return tag("div", tag("b", value), tag("span", words), class_="tile ours" if ours else "tile")


def _benchmarks(findings: Findings) -> list[str]:
    return sorted({key.set for key in findings.arrays.items.keys})


def _listed(gold: Any) -> list[Any]:
    return gold if isinstance(gold, list) else [gold]


def _short(text: str, longest: int = LONGEST) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"
