"""Findings of a report: recordings with the outcome of every policy, and kinds of errors.

A report has a part for each pair of models. Recordings of the same items with other models or prompts are ablations
of that part. Adversarial variants of a benchmark (`gsm8k+masking`) are never pooled with the benchmark itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from odar.lab.recording.header import Header
from odar.lab.recording.schema import MIN_RIGHT_SCORE
from odar.lab.replay.outcomes import Outcomes
from odar.lab.replay.policies import run_policies, suites
from odar.lab.replay.table import ReplayTable
from odar.lab.report.exhibit import TEXTS
from odar.lab.statistics import Difference, PolicySummary, paired_difference, summarize_policies
from odar.policy.arrays import Bools
from odar.policy.equivalence import group_candidates
from odar.types import SLOW, Step

ERROR_KINDS: dict[str, str] = TEXTS["errors"]["kinds"]
"""Kinds of error (SPEC 7.5). The paper separates E5 and E6 by reading; here the field of the item decides."""
EXPERTS: dict[str, str] = TEXTS["errors"]["experts"]
"""The right expert for a category or subject."""
REASONING: list[str] = TEXTS["errors"]["reasoning"]
"""Categories and subjects that need reasoning, not only facts."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The recording of one pair of models, and the outcomes of all policies on it."""

    name: str
    """File names of the recordings."""
    recorded: ReplayTable
    """All items, including adversarial variants."""
    table: ReplayTable
    """The items without adversarial variants; all items if there are no others."""
    outcomes: dict[str, Outcomes]
    """By the spec of the policy, such as `paper:n=3`."""
    left_out: dict[str, str]
    """Policies that this recording does not support, with the reason."""
    main: list[PolicySummary]
    """The figures of ODAR and the baselines, with gains over ODAR."""
    others: list[ReplayTable]
    """Recordings of the same questions with other models or prompts."""
    train: str
    """The category or benchmark whose estimator routes the others in the out-of-domain study."""

    @property
    def header(self) -> Header:
        assert self.table.header is not None
        return self.table.header

    @property
    def odar(self) -> Outcomes:
        return self.outcomes["odar"]

    @property
    def benchmarks(self) -> dict[str, Bools]:
        """A mask of the items of each benchmark, ordered by category and name."""
        ordered = sorted(self.table.sets(), key=lambda name: (self.category(name), name))
        return {name: self.table.of_set(name) for name in ordered}

    def category(self, benchmark: str) -> str:
        return self.table.items[int(np.argmax(self.table.of_set(benchmark)))].category

    @property
    def categories(self) -> dict[str, list[str]]:
        """The benchmarks of each category."""
        return {category: list(names) for category, names in groupby(self.benchmarks, self.category)}

    def means(self, outcome: Outcomes) -> list[float]:
        return [float(outcome.score[mask].mean()) for mask in self.benchmarks.values()]

    def gain(self, first: Outcomes, second: Outcomes, mask: Bools | None = None) -> Difference:
        rows = np.arange(len(self.table)) if mask is None else np.flatnonzero(mask)
        return paired_difference(self.table, first.score[rows], second.score[rows], rows)

    def suite(self, name: str) -> list[Outcomes]:
        return [self.outcomes[spec] for spec in suites(self.table)[name] if spec in self.outcomes]

    @property
    def compared(self) -> list[str]:
        """The policies that every comparison shows, as far as the recording supports them."""
        names = ("odar", "paper", "single-fast", "single-slow", self.consistency)
        return [name for name in names if name in self.outcomes]

    @property
    def consistency(self) -> str:
        """The spec of self-consistency with up to five samples."""
        return f"self-consistency:k={min(5, self.table.samples(SLOW))}"


def replay_recordings(tables: Mapping[str, ReplayTable], train: str = "Mathematics") -> list[Findings]:
    """The findings of each recording; one with mostly the same items as an earlier one becomes its ablation."""
    parts: dict[str, ReplayTable] = {}
    others: dict[str, list[ReplayTable]] = {}
    for name, table in tables.items():
        keys = set(table.column("key"))
        shared = {known: len(keys & set(other.column("key"))) for known, other in parts.items()}
        base = next((known for known, number in shared.items() if 2 * number > len(keys)), None)
        if base is None:
            parts[name] = table
        else:
            others.setdefault(base, []).append(table)
    return [_replay(name, table, others.get(name, []), train) for name, table in parts.items()]


def _replay(name: str, recorded: ReplayTable, others: list[ReplayTable], train: str) -> Findings:
    clean = np.array(["+" not in item.key.set for item in recorded.items])
    table = recorded if clean.all() or not clean.any() else recorded.replaced(rows=clean)
    outcomes, left_out = run_policies(table, ["all"])
    main = [outcomes[spec] for spec in ("odar", *suites(table)["baselines"]) if spec in outcomes]
    rows = summarize_policies(table, main, outcomes["odar"])
    return Findings(name, recorded, table, outcomes, left_out, rows, others, train)


def error_kinds(table: ReplayTable, outcome: Outcomes) -> list[str]:
    """The kind of error of each item, by the first cause that holds; empty if the answer is right."""
    fields = fields_of(table)
    checks: list[tuple[str, Bools]] = [
        ("E4", outcome.best >= MIN_RIGHT_SCORE),
        ("E3", np.array([_accepted(table, outcome, i) for i in range(len(table))])),
        ("E2", wrong_experts(table) & experts_matter(table)),
        ("E1", np.array([any((a.score or 0.0) >= MIN_RIGHT_SCORE for a in item.attempts) for item in table.items])),
        ("E6", np.array([field in REASONING for field in fields])),
    ]
    kinds = np.full(len(table), "E5", dtype=object)
    for kind, holds in reversed(checks):
        kinds[holds] = kind
    return ["" if right else str(kind) for kind, right in zip(kinds, outcome.right, strict=True)]


def _accepted(table: ReplayTable, outcome: Outcomes, row: int) -> bool:
    """Whether a verifier said CORRECT, or an agent of a later stage repeated the answer."""
    stages = outcome.stages[row] if outcome.stages else ()
    asks = [ask for stage in stages for ask in stage.asks]
    if any(ask.verify for ask in asks):
        return any(each.judgment for each in table.items[row].attempts if each.step is Step.VERIFY)
    if len(stages) < 2:
        return False
    attempts = table.items[row].attempts
    winner = attempts[outcome.winner[row]]
    first = {each.agent: each for each in reversed(attempts) if each.step is not Step.VERIFY}
    others = [first[agent] for agent in {ask.agent for ask in asks} - {winner.agent}]
    groups = group_candidates([winner, *others])
    return groups[0] >= 0 and groups[0] in groups[1:]


def fields_of(table: ReplayTable) -> list[str]:
    """The field of each item: its subject if that is a known field, else the category of its benchmark."""
    known = {*EXPERTS, *REASONING}
    return [(item.stratum if item.stratum.lower() in known else item.category).lower() for item in table.items]


def wrong_experts(table: ReplayTable) -> Bools:
    pairs = zip(fields_of(table), table.column("expert"), strict=True)
    return np.array([EXPERTS.get(field, expert) != expert for field, expert in pairs])


def experts_matter(table: ReplayTable) -> bool:
    """Whether an expert changes anything: it chooses among several models, or has thresholds of its own."""
    settings = table.settings
    models = any(len(settings.models_of(name)) > 1 for name in settings.agent_names)
    return models or bool({*settings.routing.tau1_by_expert, *settings.routing.tau2_by_expert})
