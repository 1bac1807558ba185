"""Everything a report shows, computed from recordings before anything is drawn.

A report has a part for each pair of models. Recordings of the same items with other models or prompts are ablations
of that part. Adversarial variants of a benchmark (`gsm8k+masking`) are never pooled with the benchmark itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from odar.agents.prompts import PARTS, load_prompts
from odar.calibration.bootstrap import Interval, resampled_means
from odar.errors import InputError, SettingsError
from odar.evals.adversarial import ATTACKS, AttackRow, attack_rows
from odar.evals.benchmarks.base import BENCHMARKS
from odar.evals.estimator_study import FeatureRow, TransferRow, feature_rows, transfer_rows
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.policies import SIZES, run, run_all, suites
from odar.evals.replay.simulate import PolicyOutcome, Setting, prior_of, route
from odar.evals.router_quality import RouterRow, oracle_score, router_row
from odar.evals.statistics import (
    LEAST_ITEMS,
    Difference,
    Standing,
    item_names,
    label_free,
    paired,
    standings,
    strata_of,
)
from odar.policy.fusion import SOLVE, VERIFY
from odar.policy.path import MEDIUM
from odar.policy.rules import Array, Bools
from odar.recording.header import changed_facts
from odar.recording.schema import RIGHT

T = TypeVar("T")
STRATA = (("at least 90%", 0.9, 1.01), ("70 to 90%", 0.7, 0.9), ("below 70%", 0.0, 0.7))
"""Difficulty of a benchmark by the accuracy of the fast agent on it, as the paper stratifies them."""


KINDS = {
    "E1": "difficulty: another path had a right answer, this one had none",
    "E2": "expert: the wrong field was chosen, and with it the model",
    "E3": "acceptance: the verifier called a wrong answer CORRECT",
    "E4": "selection: a right answer was on the table, another was chosen",
    "E5": "knowledge: no right answer anywhere, on a set of facts",
    "E6": "reasoning: no right answer anywhere, on a set of reasoning",
}
FIELDS = {
    "mathematics": "math",
    "coding": "code",
    "logic": "logic",
    "language": "language",
    "commonsense": "commonsense",
    "knowledge": "knowledge",
    "knowledge qa": "knowledge",
    "multimodal": "multimodal",
}
"""The expert that a category or subject calls for."""
REASONING = ("mathematics", "coding", "logic", "multi-hop", "advanced cognition", "abstract", "instruction")


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """The kind of every error, E1 to E6 (SPEC 7.5), by rule: the first fault counts.

    The paper's annotators distinguished E5 and E6 by reading; here the kind of set decides.
    """

    kinds: list[str]
    """E1 to E6 for each item, empty where ODAR was right."""

    @property
    def counts(self) -> dict[str, int]:
        """How many of each kind."""
        return {kind: self.kinds.count(kind) for kind in KINDS}

    def examples(self, kind: str) -> list[int]:
        """The first two rows of a kind."""
        return [row for row, found in enumerate(self.kinds) if found == kind][:2]


@dataclass(frozen=True, slots=True)
class Routers:
    """How well the choice between weak and strong is made (SPEC 7.6)."""

    strong: str
    """The policy that counts as the strong model; the fast agent is the weak one."""
    rows: list[RouterRow]
    scores: dict[str, Array]
    weak: Array
    strong_score: Array


@dataclass(frozen=True, slots=True)
class Variant:
    """An ablation that was recorded: the same questions, other models or prompts."""

    name: str
    """What differs from the main recording."""
    items: int
    change: Difference
    """Accuracy of ODAR minus that of the main recording, on the items of both."""
    calls: float


@dataclass(frozen=True, slots=True)
class Findings:
    """One pair of models: its recording, replayed in every way."""

    name: str
    """The recording's file, or the first of several."""
    arrays: PanelArrays
    """Without adversarial variants, unless there is nothing else."""
    setting: Setting
    outcomes: dict[str, PolicyOutcome]
    left_out: dict[str, str]
    """Policies this recording cannot show, and why."""
    main: list[Standing]
    errors: Taxonomy
    routers: Routers | str
    """Or why there are none."""
    restratified: tuple[Difference, Difference]
    """ODAR against single-fast by the drawn strata, and by label-free ones (SPEC 7.4)."""
    variants: list[Variant]
    attacks: list[AttackRow]
    features: list[FeatureRow] | str
    """Each group of features taken out and the estimator trained again; or why not."""
    transfer: list[TransferRow] | str
    """Trained on one category, applied to the others; or why not."""

    @property
    def odar(self) -> PolicyOutcome:
        """ODAR as the recording's engine was set."""
        return self.outcomes["odar"]

    @property
    def benchmarks(self) -> dict[str, Bools]:
        """The items of each benchmark, by category and name."""
        category = dict(zip((key.set for key in self.arrays.items.keys), self.arrays.items.category, strict=True))
        return {
            name: self.arrays.of_set(name) for name in sorted(category, key=lambda name: (category[name], name))
        }

    def category(self, benchmark: str) -> str:
        """The category of a benchmark."""
        return self.arrays.items.category[int(np.argmax(self.arrays.of_set(benchmark)))]

    def means(self, outcome: PolicyOutcome) -> list[float]:
        """The accuracy of a policy on each benchmark."""
        return [float(outcome.score[mask].mean()) for mask in self.benchmarks.values()]

    def gain(self, first: PolicyOutcome, second: PolicyOutcome, mask: Bools | None = None) -> Difference:
        """Accuracy of one policy minus that of another, over all items or some."""
        rows = np.arange(len(self.arrays)) if mask is None else np.flatnonzero(mask)
        names, strata = item_names(self.arrays), strata_of(self.arrays)
        return paired(first.score[rows], second.score[rows], [names[i] for i in rows], [strata[i] for i in rows])

    def suite(self, name: str) -> list[PolicyOutcome]:
        """The outcomes of a suite, as far as there are any."""
        return [self.outcomes[spec] for spec in suites(self.arrays)[name] if spec in self.outcomes]

    @property
    def consistency(self) -> str:
        """The name of self-consistency with as many samples as there are, five at most."""
        return f"self-consistency:k={min(5, self.arrays.samples)}"


def gather(panels: Mapping[str, PanelArrays], train: str = "Mathematics") -> list[Findings]:
    """Replay everything: a part for each pair of models, ablations that were recorded within it.

    `train` is the category or benchmark that the estimator of the out-of-domain study is trained on.
    """
    parts: dict[str, PanelArrays] = {}
    variants: dict[str, list[PanelArrays]] = {}
    for name, arrays in panels.items():
        keys = set(arrays.items.keys)
        base = next((known for known, other in parts.items() if keys & set(other.items.keys)), None)
        if base is None:
            parts[name] = arrays
        else:
            variants.setdefault(base, []).append(arrays)
    return [_gather(name, arrays, variants.get(name, []), train) for name, arrays in parts.items()]


def _gather(name: str, recorded: PanelArrays, others: Sequence[PanelArrays], train: str) -> Findings:
    clean = np.array(["+" not in key.set for key in recorded.items.keys])
    arrays = recorded.rows(clean) if clean.any() else recorded
    outcomes: dict[str, PolicyOutcome] = {}
    left_out: dict[str, str] = {}
    replayed = [suite for suite in suites(arrays) if suite != "features"]  # which feature_rows trains anyway
    for spec, found in run_all(arrays, ["odar", *replayed]):
        if isinstance(found, InputError):
            left_out[spec] = str(found)
        else:
            outcomes[spec] = found
    setting, odar = Setting.of(arrays.header), outcomes["odar"]
    main = [odar, *(outcomes[spec] for spec in suites(arrays)["baselines"] if spec in outcomes)]
    prior = prior_of(arrays, setting)
    estimates = {"prior": prior}
    posterior = route(arrays, setting.changed({"mode": "posterior"})).difficulty
    if (posterior != prior).any():
        estimates["posterior"] = posterior
    pair = odar.score, outcomes["single-fast"].score
    return Findings(
        name=name,
        arrays=arrays,
        setting=setting,
        outcomes=outcomes,
        left_out=left_out,
        main=standings(arrays, main, odar),
        errors=taxonomy(arrays, setting, odar),
        routers=_routers(arrays, outcomes, estimates),
        restratified=(
            paired(*pair, item_names(arrays), strata_of(arrays)),
            paired(*pair, item_names(arrays), label_free(arrays)),
        ),
        variants=[variant(arrays, odar, other) for other in others],
        attacks=attack_rows(recorded),
        features=_or_reason(feature_rows, arrays),
        transfer=_or_reason(lambda panel: transfer_rows(panel, train=train), arrays),
    )


def _or_reason(study: Callable[[PanelArrays], T], arrays: PanelArrays) -> T | str:
    """The result of a study, or why the recording does not allow it."""
    try:
        return study(arrays)
    except InputError as error:
        return str(error)


def variant(arrays: PanelArrays, odar: PolicyOutcome, other: PanelArrays) -> Variant:
    """Compare ODAR on another recording of the same items with the main one."""
    rows = {key: i for i, key in enumerate(other.items.keys)}
    shared = [i for i, key in enumerate(arrays.items.keys) if key in rows]
    theirs = run(other, "odar")
    picked = [rows[arrays.items.keys[i]] for i in shared]
    names, strata = item_names(arrays), strata_of(arrays)
    change = paired(
        theirs.score[picked], odar.score[shared], [names[i] for i in shared], [strata[i] for i in shared]
    )
    changes = ", ".join(
        f"{fact} = {value}" for fact, value in changed_facts(other.header.facts, arrays.header.facts)
    )
    return Variant(changes or "other settings", len(shared), change, float(theirs.calls[picked].mean()))


def macro(values: Sequence[Array]) -> Interval:
    """The unweighted mean over benchmarks with its interval; without one if a benchmark has too few items."""
    mean = float(np.mean([each.mean() for each in values]))
    if min(map(len, values)) < LEAST_ITEMS:
        return Interval(mean, float("nan"), float("nan"))
    draws = np.mean([resampled_means(each, seed, 4000) for seed, each in enumerate(values)], axis=0)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Interval(mean, float(low), float(high))


def facets(strata: Sequence[str]) -> list[list[str]]:
    """The parts of strata such as "Algebra, Level 5": a list per part, or one list where they have no parts.

    >>> facets(["Algebra, Level 5", "Geometry, Level 1"])
    [['Algebra', 'Geometry'], ['Level 5', 'Level 1']]
    """
    split = [stratum.split(", ") for stratum in strata]
    if len({len(parts) for parts in split}) == 1 and len(split[0]) <= 3:
        return [list(column) for column in zip(*split, strict=True)]
    return [list(strata)]


def missing_commands(findings: Findings) -> list[tuple[str, str]]:
    """Ablations that need answers which were not recorded, with the command that records them."""
    header = findings.arrays.header
    if header.imported:
        return []
    collect = f"odar eval collect {findings.name} --profile {header.settings['profile']} --out"
    fast, slow = (header.models[role][0] for role in ("fast", "slow"))
    found = []
    if fast != slow and not findings.variants:
        found = [
            (f"homogeneous agents, {fast} twice", f"{collect} fast-fast.jsonl --set slow.model={fast}"),
            (f"homogeneous agents, {slow} twice", f"{collect} slow-slow.jsonl --set fast.model={slow}"),
        ]
    if not findings.variants:
        prompts = str(header.settings["prompts"])
        found += [
            (f"prompts without {part}", f"{collect} no-{part}.jsonl --set 'prompts={prompts} without {part}'")
            for part in PARTS
            if _can_lack(prompts, part)
        ]
    if "odar:dispatch=off" in findings.left_out:
        found.append(("expert and model router off", f"{collect} no-dispatch.jsonl --set dispatch.models=false"))
    if findings.arrays.samples < max(SIZES):
        found.append((f"n up to {max(SIZES)}", f"{collect} n9.jsonl --samples {max(SIZES)}"))
    if not findings.arrays.verified:
        found.append(("the Medium path", f"{collect} verified.jsonl"))
    if not any(row.recorded for row in findings.attacks):
        known = [name for name in findings.benchmarks if name in BENCHMARKS.names()] or ["gsm8k", "math"]
        sets = [f"{name}+{attack}" for name in known for attack in ATTACKS]
        command = f"odar eval collect {' '.join(sets)} --profile {header.settings['profile']} --out attacked.jsonl"
        found.append(("adversarial rewrites, answered by the models", command))
    return found


def _can_lack(prompts: str, part: str) -> bool:
    try:
        return bool(load_prompts(f"{prompts} without {part}"))
    except SettingsError:
        return False


def _routers(arrays: PanelArrays, outcomes: dict[str, PolicyOutcome], estimates: dict[str, Array]) -> Routers | str:
    """The router's figures beside random, length and an oracle, by the code that scores `routellm_gsm8k`."""
    weak = outcomes["single-fast"].score
    strong = max((outcomes["single-slow"], outcomes["always-hard"]), key=lambda each: float(each.score.mean()))
    if strong.score.mean() <= weak.mean():
        return (
            f"The strong side ({strong.name}, {strong.score.mean():.3f}) is no better than the fast agent "
            f"({weak.mean():.3f}): there is no gap that a router could recover."
        )
    rng = np.random.default_rng(42)
    scores: dict[str, Array] = {
        "random": rng.random(len(arrays)),
        "length": np.array([len(text) for text in arrays.items.query], dtype=np.float64),
        **{f"difficulty, {name}": values for name, values in estimates.items()},
        "oracle": oracle_score(weak, strong.score),
    }
    try:
        rows = [router_row(name, score, weak, strong.score, rng) for name, score in scores.items()]
    except InputError as error:
        return f"Router quality cannot be measured here: {error}."
    return Routers(strong.name, rows, scores, weak, strong.score)


def frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the Pareto-optimal (cost, accuracy) points, the cheapest first.

    >>> frontier([(1, 0.5), (2, 0.4), (3, 0.7)])
    [0, 2]
    """
    best, kept = -np.inf, list[int]()
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if points[i][1] > best:
            best = points[i][1]
            kept.append(i)
    return kept


def taxonomy(arrays: PanelArrays, setting: Setting, outcome: PolicyOutcome) -> Taxonomy:
    """Return the kind of each of ODAR's errors."""
    wrong = outcome.score < RIGHT
    elsewhere = arrays.answers.score[:, : SOLVE + setting.n].max(axis=1) >= RIGHT
    accepted = (outcome.path == MEDIUM) & (arrays.answers.judgment[:, VERIFY] == 1)
    fields = fields_of(arrays)
    checks: list[tuple[str, Bools]] = [
        ("E4", outcome.best >= RIGHT),
        ("E3", accepted),
        ("E2", _misdirected(arrays, fields)),
        ("E1", elsewhere),
        ("E6", np.array([field in REASONING for field in fields])),
    ]
    kinds = np.full(len(arrays), "E5", dtype=object)
    for kind, holds in reversed(checks):
        kinds[holds] = kind
    return Taxonomy([str(kind) if is_wrong else "" for kind, is_wrong in zip(kinds, wrong, strict=True)])


def fields_of(arrays: PanelArrays) -> list[str]:
    """Return the field of each item: its subject if that is a known field, else the category of its benchmark."""
    known = {*FIELDS, *REASONING}
    pairs = zip(arrays.items.stratum, arrays.items.category, strict=True)
    return [(stratum if stratum.lower() in known else category).lower() for stratum, category in pairs]


def _misdirected(arrays: PanelArrays, fields: list[str]) -> Bools:
    """Where the expert is not the field's, in a panel in which experts choose among models."""
    if all(len(models) == 1 for models in arrays.header.models.values()):
        return np.zeros(len(arrays), dtype=bool)
    pairs = zip(fields, arrays.items.expert, strict=True)
    return np.array([FIELDS.get(field, expert) != expert for field, expert in pairs])
