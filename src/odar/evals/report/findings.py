"""Everything a report shows, computed from a panel before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odar.errors import InputError
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.policies import run_all, suites
from odar.evals.replay.setting import Setting
from odar.evals.replay.simulate import PolicyOutcome, prior_of, route
from odar.evals.router_quality import oracle_score
from odar.evals.routing_bench import Outcomes, RouterRow, router_row
from odar.evals.standing import Standing, item_names, label_free, paired, standings, strata_of
from odar.evals.statistics import Difference
from odar.evals.taxonomy import Taxonomy, groups_of, taxonomy
from odar.policy.fusion import FAST
from odar.policy.rules import Array, Bools

BINS = 8
"""Bins of the calibration plots, of equal numbers of items."""


@dataclass(frozen=True, slots=True)
class Routers:
    """How well the choice between weak and strong is made (SPEC 7.6)."""

    strong: str
    """The policy that stands for the strong model; the fast agent is the weak one."""
    rows: list[RouterRow]
    scores: dict[str, Array]
    weak: Array
    strong_score: Array


@dataclass(frozen=True, slots=True)
class Findings:
    """A panel, replayed in every way."""

    arrays: PanelArrays
    setting: Setting
    outcomes: dict[str, PolicyOutcome]
    left_out: dict[str, str]
    """Policies this panel cannot show, and why."""
    main: list[Standing]
    groups: list[str]
    """The group of each item: category, or subject."""
    errors: Taxonomy
    routers: Routers | str
    """Or why there are none."""
    reliability: dict[str, list[tuple[float, float, int]]]
    """By estimate: (mean difficulty, share of fast answers that were wrong, items) of each bin."""
    restratified: tuple[Difference, Difference]
    """ODAR against single-fast by the drawn strata, and by label-free ones (SPEC 7.4)."""

    @property
    def odar(self) -> PolicyOutcome:
        """ODAR as the panel's engine was set."""
        return self.outcomes["odar"]

    @property
    def group_names(self) -> list[str]:
        """The groups in order."""
        return sorted(set(self.groups))

    def mask(self, group: str) -> Bools:
        """(N,): the items of a group."""
        return np.array([each == group for each in self.groups])

    def suite(self, name: str) -> list[PolicyOutcome]:
        """The outcomes of a suite, as far as there are any."""
        return [self.outcomes[spec] for spec in suites(self.arrays)[name] if spec in self.outcomes]


def gather(arrays: PanelArrays) -> Findings:
    """Replay everything on a arrays."""
    outcomes: dict[str, PolicyOutcome] = {}
    left_out: dict[str, str] = {}
    for spec, found in run_all(arrays, ["all"]):
        if isinstance(found, InputError):
            left_out[spec] = str(found)
        else:
            outcomes[spec] = found
    setting, odar = Setting.of(arrays.header), outcomes["odar"]
    main = [odar, *(outcomes[spec] for spec in suites(arrays)["baselines"] if spec in outcomes)]
    prior = prior_of(arrays, setting)
    wrong = 1 - arrays.answers.score[:, FAST]
    estimates = {"prior": prior}
    posterior = route(arrays, setting.changed({"mode": "posterior"})).difficulty
    if (posterior != prior).any():
        estimates["posterior"] = posterior
    pair = odar.score, outcomes["single-fast"].score
    return Findings(
        arrays=arrays,
        setting=setting,
        outcomes=outcomes,
        left_out=left_out,
        main=standings(arrays, main, odar),
        groups=groups_of(arrays),
        errors=taxonomy(arrays, setting, odar),
        routers=_routers(arrays, setting, outcomes, estimates),
        reliability={name: reliability(values, wrong) for name, values in estimates.items()},
        restratified=(
            paired(*pair, item_names(arrays), strata_of(arrays)),
            paired(*pair, item_names(arrays), label_free(arrays)),
        ),
    )


def reliability(difficulty: Array, wrong: Array, bins: int = BINS) -> list[tuple[float, float, int]]:
    """Mean difficulty, share of errors and number of items, in bins of equal numbers of items."""
    parts = np.array_split(np.argsort(difficulty, kind="stable"), min(bins, len(difficulty)))
    return [(float(difficulty[part].mean()), float(wrong[part].mean()), len(part)) for part in parts]


def _routers(
    arrays: PanelArrays, setting: Setting, outcomes: dict[str, PolicyOutcome], estimates: dict[str, Array]
) -> Routers | str:
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
    data = Outcomes("panel", arrays.items.query, weak, strong.score)
    try:
        rows = [router_row(data, name, score, rng) for name, score in scores.items()]
    except InputError as error:
        return f"Router quality cannot be measured here: {error}."
    return Routers(strong.name, rows, scores, weak, strong.score)


def frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Which (cost, accuracy) points no other is both cheaper than and as good as, the cheapest first.

    >>> frontier([(1, 0.5), (2, 0.4), (3, 0.7)])
    [0, 2]
    """
    best, kept = -np.inf, list[int]()
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if points[i][1] > best:
            best = points[i][1]
            kept.append(i)
    return kept
