"""Findings of a report: recordings with the outcome of every policy, and kinds of errors.

A report has a part for each pair of models. Recordings of the same items with other models or prompts are ablations
of that part. Adversarial variants of a benchmark (`gsm8k+masking`) are never pooled with the benchmark itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from odar.errors import InputError
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.policies import run_policies, suites
from odar.evals.replay.simulate import PolicyOutcome, Setting
from odar.evals.report.draw import TEXTS
from odar.evals.statistics import Difference, PolicySummary, paired_difference, summarize_policies
from odar.policy.arrays import Bools
from odar.policy.fusion import SOLVE, VERIFY
from odar.policy.path import MEDIUM
from odar.recording.schema import MIN_RIGHT_SCORE

KINDS: dict[str, str] = TEXTS["errors"]["kinds"]
"""Kinds of error (SPEC 7.5). The paper separates E5 and E6 by reading; here the field of the item decides."""
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
"""The right expert for a category or subject."""
REASONING = ("mathematics", "coding", "logic", "multi-hop", "advanced cognition", "abstract", "instruction")


@dataclass(frozen=True, slots=True)
class Findings:
    """The recording of one pair of models, and the outcomes of all policies on it."""

    name: str
    """File names of the recordings."""
    recorded: PanelArrays
    """All items, including adversarial variants."""
    arrays: PanelArrays
    """The items without adversarial variants; all items if there are no others."""
    setting: Setting
    outcomes: dict[str, PolicyOutcome]
    left_out: dict[str, str]
    """Policies that this recording does not support, with the reason."""
    main: list[PolicySummary]
    others: list[PanelArrays]
    """Recordings of the same questions with other models or prompts."""
    train: str
    """The category or benchmark whose estimator routes the others in the out-of-domain study."""

    @property
    def odar(self) -> PolicyOutcome:
        """The outcome of ODAR with the settings of the recording."""
        return self.outcomes["odar"]

    @property
    def benchmarks(self) -> dict[str, Bools]:
        """A mask of the items of each benchmark, ordered by category and name."""
        ordered = sorted(self.arrays.sets(), key=lambda name: (self.category(name), name))
        return {name: self.arrays.of_set(name) for name in ordered}

    def category(self, benchmark: str) -> str:
        """Return the category of a benchmark."""
        return self.arrays.items.category[int(np.argmax(self.arrays.of_set(benchmark)))]

    def means(self, outcome: PolicyOutcome) -> list[float]:
        """Return the accuracy of a policy on each benchmark."""
        return [float(outcome.score[mask].mean()) for mask in self.benchmarks.values()]

    def gain(self, first: PolicyOutcome, second: PolicyOutcome, mask: Bools | None = None) -> Difference:
        """Return the accuracy of one policy minus that of another, on all items or some."""
        rows = np.arange(len(self.arrays)) if mask is None else np.flatnonzero(mask)
        return paired_difference(self.arrays, first.score[rows], second.score[rows], rows)

    def suite(self, name: str) -> list[PolicyOutcome]:
        """Return the outcomes of a suite, without unsupported policies."""
        return [self.outcomes[spec] for spec in suites(self.arrays)[name] if spec in self.outcomes]

    @property
    def consistency(self) -> str:
        """The spec of self-consistency with up to five samples."""
        return f"self-consistency:k={min(5, self.arrays.samples)}"


def replay_recordings(panels: Mapping[str, PanelArrays], train: str = "Mathematics") -> list[Findings]:
    """Replay all policies on some recordings; those of the same items become ablations of the first."""
    parts: dict[str, PanelArrays] = {}
    others: dict[str, list[PanelArrays]] = {}
    for name, arrays in panels.items():
        keys = set(arrays.items.keys)
        base = next((known for known, other in parts.items() if keys & set(other.items.keys)), None)
        if base is None:
            parts[name] = arrays
        else:
            others.setdefault(base, []).append(arrays)
    return [_replay(name, arrays, others.get(name, []), train) for name, arrays in parts.items()]


def _replay(name: str, recorded: PanelArrays, others: list[PanelArrays], train: str) -> Findings:
    clean = np.array(["+" not in key.set for key in recorded.items.keys])
    arrays = recorded.rows(clean) if clean.any() else recorded
    outcomes: dict[str, PolicyOutcome] = {}
    left_out: dict[str, str] = {}
    for spec, found in run_policies(arrays, ["all"]):
        if isinstance(found, InputError):
            left_out[spec] = str(found)
        else:
            outcomes[spec] = found
    main = [outcomes[spec] for spec in ("odar", *suites(arrays)["baselines"]) if spec in outcomes]
    rows = summarize_policies(arrays, main, outcomes["odar"])
    return Findings(
        name, recorded, arrays, Setting.from_header(arrays.header), outcomes, left_out, rows, others, train
    )


def error_kinds(arrays: PanelArrays, setting: Setting, outcome: PolicyOutcome) -> list[str]:
    """Return the kind of error of each item, E1 to E6, by the first cause; empty if the answer is right."""
    wrong = outcome.score < MIN_RIGHT_SCORE
    elsewhere = arrays.answers.score[:, : SOLVE + setting.n].max(axis=1) >= MIN_RIGHT_SCORE
    accepted = (outcome.path == MEDIUM) & (arrays.answers.judgment[:, VERIFY] == 1)
    fields = fields_of(arrays)
    checks: list[tuple[str, Bools]] = [
        ("E4", outcome.best >= MIN_RIGHT_SCORE),
        ("E3", accepted),
        ("E2", _wrong_expert(arrays, fields)),
        ("E1", elsewhere),
        ("E6", np.array([field in REASONING for field in fields])),
    ]
    kinds = np.full(len(arrays), "E5", dtype=object)
    for kind, holds in reversed(checks):
        kinds[holds] = kind
    return [str(kind) if is_wrong else "" for kind, is_wrong in zip(kinds, wrong, strict=True)]


def fields_of(arrays: PanelArrays) -> list[str]:
    """Return the field of each item: its subject if that is a known field, else the category of its benchmark."""
    known = {*FIELDS, *REASONING}
    pairs = zip(arrays.items.stratum, arrays.items.category, strict=True)
    return [(stratum if stratum.lower() in known else category).lower() for stratum, category in pairs]


def _wrong_expert(arrays: PanelArrays, fields: Sequence[str]) -> Bools:
    """Return the items with an expert of another field; none if there is only one model to choose."""
    if all(len(models) == 1 for models in arrays.header.models.values()):
        return np.zeros(len(arrays), dtype=bool)
    pairs = zip(fields, arrays.items.expert, strict=True)
    return np.array([FIELDS.get(field, expert) != expert for field, expert in pairs])
