"""Fit the weights of the belief to random cascades of recorded models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cascade.recorded import Recorded
from odar.lab.calibration.fit import Answers, fit
from odar.policy.belief import Belief, Opinion, RatedAgent, chance_level, without_guesses
from odar.policy.signals import AnswerKind, QuantileTables

START = {
    "spread": 2.0, "hard": -1.5, "usual": 0.5, "long_hard": -0.5, "sure_easy": 0.5, "long": -0.1,
    "sure": 0.3, "sure_direct": 0.5, "unstated": -0.3, "lure_options": 0.25, "lure_many": 0.15, "trap": 0.02, "lure_trap": 0.5,
    "repeat_family": 0.05, "repeat_agent": 0.5, "repeat_seen": 0.6,
    "p_offset": 0.0, "q_offset": 0.0,
}  # fmt: skip
NOT_FITTED = ("sure_direct", "repeat_agent", "repeat_seen", "p_offset", "q_offset")
"""The recorded sets of many models do not have them; offsets are for calibration."""
KIND = AnswerKind.REASONED.value
LEAST_SKILL = 0.25
MAX_ASKED = 4


@dataclass(frozen=True)
class Signals:
    """Quantiles of the signals of every answer, (M, N); a half where one is unknown."""

    length: np.ndarray
    mean_logprob: np.ndarray

    @classmethod
    def own(cls, recorded: Recorded, items: np.ndarray | None = None) -> Signals:
        """Ranks within each model's own answers to these items."""
        tables = own_tables(recorded, range(len(recorded.models)), items)
        return cls.ranked(recorded, [tables[m] for m in range(len(recorded.models))])

    @classmethod
    def shipped(cls, recorded: Recorded, models: Sequence[int], items: np.ndarray) -> Signals:
        """Ranks within the median table of some models."""
        own = list(own_tables(recorded, models, items).values())
        keys = {key for each in own for key in each.tables}
        pooled = QuantileTables({k: np.median([t.tables[k] for t in own if k in t.tables], axis=0) for k in keys})
        return cls.ranked(recorded, [pooled] * len(recorded.models))

    @classmethod
    def ranked(cls, recorded: Recorded, tables: Sequence[QuantileTables]) -> Signals:
        """Ranks by one table for each model."""
        found = {}
        for name in ("length", "mean_logprob"):
            values = np.where(recorded.group >= 0, getattr(recorded, name), np.nan)
            ranks = [
                [table.rank(KIND, name, value) for value in row]
                for table, row in zip(tables, values.tolist(), strict=True)
            ]
            found[name] = np.nan_to_num(np.array(ranks, dtype=float), nan=0.5)  # None becomes NaN
        return cls(**found)


def own_tables(
    recorded: Recorded, models: Sequence[int], items: np.ndarray | None = None
) -> dict[int, QuantileTables]:
    """Quantiles of each model's own answers to these items."""
    items = np.arange(len(recorded.prior)) if items is None else items
    found = {}
    for model in models:
        answered = items[recorded.group[model, items] >= 0]
        values = {(KIND, n): getattr(recorded, n)[model, answered] for n in ("length", "mean_logprob")}
        found[model] = QuantileTables.fit(values)
    return found


def opinion(recorded: Recorded, signals: Signals, model: object, items: np.ndarray, agent: RatedAgent) -> Opinion:
    """What a model, or one model for each item, said about these items."""
    logprob = signals.mean_logprob[model, items]
    return Opinion(
        agent,
        recorded.group[model, items].astype(int),
        length=signals.length[model, items],
        logprob=None if (logprob == 0.5).all() else logprob,
        stated=recorded.stated[model, items],
    )


def difficulty(recorded: Recorded, items: np.ndarray) -> np.ndarray | None:
    """d(x) of these items, if it is known."""
    found = recorded.prior[items]
    return None if np.isnan(found).any() else found


def known_shares(recorded: Recorded, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Skill of each model without its lucky guesses, and the share of these items that it does not answer."""
    silent = (recorded.group[:, items] < 0).mean(axis=1)
    guess = chance_level(recorded.plausible[items]).mean()
    return without_guesses(recorded.right[:, items].mean(axis=1), guess, silent), silent


def random_walks(
    recorded: Recorded, models: Sequence[int], items: np.ndarray, number: int, rng: np.random.Generator
) -> list[Answers]:
    """Random models in random order, but more often the more skilled ones later, on random items."""
    skills, silent = known_shares(recorded, items)
    signals = Signals.own(recorded, items)
    able = np.array([m for m in models if skills[m] >= LEAST_SKILL])
    asked = min(MAX_ASKED, len(able))
    rows: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = {}
    for item in rng.choice(items, number):
        chosen = rng.choice(able, asked, replace=False)
        if rng.random() < 0.6:
            chosen = chosen[np.argsort(skills[chosen])]
        families = [recorded.families[m] for m in chosen]
        rows.setdefault(tuple(families.index(f) for f in families), []).append((item, chosen))
    walks = []
    for pattern, found in rows.items():
        at, chosen = np.array([i for i, _ in found]), np.array([c for _, c in found])  # (N,), (N, asked)
        agents = [
            RatedAgent(str(j), skills[chosen[:, j]], str(pattern[j]), silent[chosen[:, j]]) for j in range(asked)
        ]
        opinions = [opinion(recorded, signals, chosen[:, j], at, agents[j]) for j in range(asked)]
        right = [recorded.right[chosen[:, j], at].astype(float) for j in range(asked)]
        prior = difficulty(recorded, at)
        walks.append(Answers(opinions, right, recorded.plausible[at], prior, prefixes_only=True))
    return walks


def fit_weights(
    walks: Sequence[Answers], start: Mapping[str, float] = START, fixed: Sequence[str] = NOT_FITTED
) -> Belief:
    """Weights with the least log loss."""
    wide = {name: 3.0 for name in start if name not in fixed}
    return fit(Belief(start), walks, wide)[0]
