"""Day one with one vendor's key: its cheap and its strong model on MMLU-Pro, nothing calibrated.

    python scripts/training/bench_vendor_pairs.py --data ../shared/data

Ten pairs of recorded models, on the items on which the shipped estimator of d(x) was not trained. Every call is charged. Skills:
`tiers` are those of any cheap and any expensive model (`CHEAP_SKILL` and `STRONG_SKILL`); `vendors` are the medians of the other vendors'
cheap and strong models, as a user meets them; `own` are the models' own. The shipped belief was fitted to these models too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from cascade.fit import Signals
from cascade.frontier import Triple, curve, gain, table
from cascade.recorded import Recorded, from_arrays, mmlu_pro_items, mmlu_pro_outcomes
from mixture import Row

from odar.difficulty.estimator import LearnedEstimator
from odar.policy.belief import Belief, RatedAgent, chance_level, without_guesses
from odar.policy.dial import NAMES
from odar.policy.policies import CHEAP_SKILL, STRONG_SKILL
from odar.types import Query

PAIRS = {
    "openai": (
        ("gpt-4o-mini-2024-07-18", "gpt-4o-2024-08-06"),
        ("gpt-4.1-nano", "gpt-4.1"),
        ("gpt-4.1-mini", "gpt-4.1"),
    ),
    "anthropic": (
        ("claude-3-haiku-20240307", "claude-3-7-sonnet-20250219"),
        ("claude-3-5-haiku-20241022", "claude-3-7-sonnet-20250219"),
    ),
    "google": (
        ("gemini-1.5-flash-8b", "gemini-1.5-pro"),
        ("gemini-1.5-flash", "gemini-1.5-pro"),
        ("gemini-2.0-flash-lite", "gemini-2.0-flash"),
    ),
    "xai": (("grok-3-mini-beta", "grok-3-beta"),),
    "deepseek": (("deepseek-chat", "deepseek-reasoner"),),
}
RATIOS = (10, 20)


def recorded(data: Path) -> tuple[Recorded, np.ndarray]:
    """All models on all items, and the numbers of the items that the estimator has not seen."""
    items = mmlu_pro_items(data)
    unseen = np.flatnonzero([Row("mmlu_pro", "", "", item["question"], 0.0).held_out for item in items])
    estimator = LearnedEstimator.load()
    prior = np.full(len(items), np.nan)
    for i in unseen:
        prior[i] = estimator.estimate_without_parse(Query(items[i]["question"])).difficulty
    return from_arrays("mmlu_pro", {**mmlu_pro_outcomes(data, items), "prior": prior}), unseen


def main() -> None:
    """Judge all pairs with all skills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    known, items = recorded(options.data)
    silent = (known.group < 0).mean(axis=1)
    guess = float(chance_level(known.plausible).mean())
    skill = dict(zip(known.models, without_guesses(known.accuracy, guess, silent), strict=True))
    cheap = {fast: vendor for vendor, pairs in PAIRS.items() for fast, _ in pairs}
    strong = {slow: vendor for vendor, pairs in PAIRS.items() for _, slow in pairs}
    medians = [float(np.median([skill[model] for model in models])) for models in (cheap, strong)]
    print(
        f"{len(items)} items, d {known.prior[items].mean():.2f} in the mean; median skill of cheap {medians[0]:.2f}, of strong {medians[1]:.2f}\n"
    )
    belief = Belief.load()
    means: dict[tuple[str, int], list[list[float]]] = {}
    print("| pair | skills | ratio | economy: cost, points | balanced | quality | gain over mixtures |")
    print("|---|---|---|---|---|---|---|")
    for vendor, pairs in PAIRS.items():
        others = [i for i, model in enumerate(known.models) if vendor not in (cheap.get(model), strong.get(model))]
        signals = Signals.shipped(known, others, items)
        own_vendor_out = [
            float(np.median([skill[model] for model, of in models.items() if of != vendor]))
            for models in (cheap, strong)
        ]
        for fast, slow in pairs:
            triple = Triple(known.models.index(fast), known.models.index(fast), known.models.index(slow))
            rows = {
                "tiers": [CHEAP_SKILL, STRONG_SKILL],
                "vendors": own_vendor_out,
                "own": [skill[fast], skill[slow]],
            }
            for name, (low, high) in rows.items():
                family = known.families[triple.fast]
                agents = {role: RatedAgent(role, s, family) for role, s in (("F", low), ("S", low), ("L", high))}
                states = table(belief, known, signals, triple, agents, items)
                alone = [float(states.right[role].mean()) for role in "FL"]
                for ratio in RATIOS:
                    named = curve(belief, states, ratio, "FL", [points / 100 for points in NAMES.values()])
                    above = gain(
                        curve(belief, states, ratio, "FL"), [(1.0, alone[0]), (float(ratio), alone[1])], ratio
                    )
                    row = [value for cost, right in named for value in (cost / ratio, 100 * (right - alone[1]))]
                    means.setdefault((name, ratio), []).append([*row, above])
                    show(f"{fast} → {slow}", name, ratio, [*row, above])
    told = {fast: bool(np.isfinite(known.mean_logprob[known.models.index(fast)]).any()) for fast in cheap}
    with_logprobs = np.array([told[fast] for pairs in PAIRS.values() for fast, _ in pairs])
    for label, chosen in (("with log-probs", with_logprobs), ("without", ~with_logprobs)):
        for (name, ratio), rows in means.items():
            show(
                f"mean of {chosen.sum()} pairs {label}", name, ratio, list(np.mean(np.array(rows)[chosen], axis=0))
            )


def show(pair: str, name: str, ratio: int, row: list[float]) -> None:
    """Print one line: cost in units of slow alone, and points of accuracy against it."""
    parts = [f"{row[i]:.2f}, {row[i + 1]:+.1f}" for i in (0, 2, 4)]
    print(f"| {pair} | {name} | {ratio} | {' | '.join(parts)} | {row[-1]:+.2f} |", flush=True)


if __name__ == "__main__":
    main()
