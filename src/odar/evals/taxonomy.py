"""Why ODAR was wrong, E1 to E6 (SPEC 7.5), by rules over the panel: what went wrong first is what counts.

E1 difficulty   another path had a right answer, the one taken had none
E2 expert       the wrong expert was chosen, and experts choose the model here
E3 acceptance   the verifier called a wrong answer CORRECT
E4 selection    a right answer was on the table, and another was chosen
E5 knowledge    nobody had a right answer, on a set that asks for facts
E6 reasoning    nobody had a right answer, on a set that asks for reasoning

The paper's annotators told E5 from E6 by reading; here the kind of set stands in for that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.setting import Setting
from odar.evals.replay.simulate import PolicyOutcome
from odar.policy.fusion import SOLVE, VERIFY
from odar.policy.path import MEDIUM
from odar.policy.rules import Bools

KINDS = {
    "E1": "difficulty: another path had a right answer, this one had none",
    "E2": "expert: the wrong field was chosen, and with it the model",
    "E3": "acceptance: the verifier called a wrong answer CORRECT",
    "E4": "selection: a right answer was on the table, another was chosen",
    "E5": "knowledge: no right answer anywhere, on a set of facts",
    "E6": "reasoning: no right answer anywhere, on a set of reasoning",
}
RIGHT = 0.5
"""A score below this is an error."""
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
    """The kind of every error."""

    kinds: list[str]
    """E1 to E6 for each item, empty where ODAR was right."""

    @property
    def counts(self) -> dict[str, int]:
        """How many of each kind."""
        return {kind: self.kinds.count(kind) for kind in KINDS}

    def examples(self, kind: str, most: int = 2) -> list[int]:
        """Some rows of a kind."""
        return [row for row, found in enumerate(self.kinds) if found == kind][:most]


def taxonomy(arrays: PanelArrays, setting: Setting, outcome: PolicyOutcome) -> Taxonomy:
    """Sort ODAR's errors."""
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
    """What each item is about: its subject if that is a field we know, else the category of its benchmark."""
    known = {*FIELDS, *REASONING}
    pairs = zip(arrays.items.stratum, arrays.items.category, strict=True)
    return [(stratum if stratum.lower() in known else category).lower() for stratum, category in pairs]


def _misdirected(arrays: PanelArrays, fields: list[str]) -> Bools:
    """Where the expert is not the field's, in a panel in which experts choose among models."""
    if all(len(models) == 1 for models in arrays.header.models.values()):
        return np.zeros(len(arrays), dtype=bool)
    pairs = zip(fields, arrays.items.expert, strict=True)
    return np.array([FIELDS.get(field, expert) != expert for field, expert in pairs])
