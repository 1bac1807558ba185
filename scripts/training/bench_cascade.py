"""The frontier of the cascade on recorded models, with model families and items left out of the fit (issue 31).

    python scripts/training/bench_cascade.py --data ../shared/data [--triples 300] [--splits 3] [--sets mmlu_pro math_l5 crux]
    python scripts/training/bench_cascade.py --data ../shared/data --set-aside    # families and items that chose nothing, MMLU-Pro

Every call is charged; fast and second cost 1, slow 3, 10 or 20. The figure is the mean gain over the upper hull of the fixed
choices {fast, second, slow} at equal cost, over the middle half of the cost range, interpolated along the dial.

- Families: each split teaches one half of the model families and judges triples of the other half, both ways.
- Items: MMLU-Pro teaches one half of the items and judges the other; MATH level 5 and CRUX are left out as a whole.
- day one: skills by price tier, shipped quantiles. 400 unlabelled: skills from agreement, own quantiles. 400 labels: skills
  and a few weights fitted near the shipped ones. These 400 items are never judged.
- Intervals: 95%, of the median, from 1,000 draws of slow models with replacement; triples that share one go together.
- paper: the paper's policy against the same hull at its own cost, where d is known (MMLU-Pro); it needs no fit.
- `--set-aside`: teaches the other families and two thirds of the items, and judges triples of `SET_ASIDE` on the last third.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from cascade.fit import Signals, fit_weights, known_shares, random_walks
from cascade.frontier import (
    Table,
    Triple,
    answers_of,
    at_cost,
    curve,
    gain,
    gate_curve,
    paper_point,
    qualifying,
    table,
    upper_hull,
)
from cascade.recorded import Recorded, load

from odar.lab.calibration.fit import Answers, fit_with_labels
from odar.policy.belief import Belief, RatedAgent
from odar.policy.policies import CHEAP_SKILL, STRONG_SKILL
from odar.served.agreement import skills_from_agreement

SETS = ("mmlu_pro", "math_l5", "crux")
RATIOS = (3, 10, 20)
WALKS = {"mmlu_pro": 8000, "math_l5": 1500, "crux": 1500}
LABELS = 400
QUARTERS = (0.25, 0.5, 0.75)
SET_ASIDE = ("deepseek", "gemini", "gemma", "gpt")
"""Families, by a hash of their names, that took no part in choosing the present form of the belief."""


def family_halves(sets: dict[str, Recorded], seed: int) -> tuple[set[str], set[str]]:
    """All families in two halves with about as many models of MMLU-Pro."""
    listed = sets["mmlu_pro"].families
    everyone = sorted({family for each in sets.values() for family in each.families})
    rng = np.random.default_rng(seed)
    first: set[str] = set()
    for family in rng.permutation(everyone):
        if sum(f in first or f == family for f in listed) <= 0.55 * len(listed):
            first.add(str(family))
    return first, set(everyone) - first


def models_of(recorded: Recorded, families: set[str]) -> list[int]:
    """Numbers of the models of these families."""
    return [m for m, family in enumerate(recorded.families) if family in families]


def fitted(sets: dict[str, Recorded], families: set[str], left_out: str, taught: np.ndarray, seed: int) -> Belief:
    """Weights from these families, without the items that are judged."""
    rng = np.random.default_rng(seed + 100)
    walks = []
    for name, recorded in sets.items():
        models = models_of(recorded, families)
        if (name == left_out and name != "mmlu_pro") or len(models) < 3:
            continue
        items = taught if name == "mmlu_pro" else np.arange(len(recorded.prior))
        walks += random_walks(recorded, models, items, WALKS[name], rng)
    return fit_weights(walks)


def rate_agents(
    recorded: Recorded, triple: Triple, skills: Sequence[float], seen: np.ndarray
) -> dict[str, RatedAgent]:
    """The three agents with these skills, and the shares of these questions that they do not answer."""
    return {
        role: RatedAgent(
            role, float(skill), recorded.families[model],
            float((recorded.group[model, seen] < 0).mean()) if len(seen) else 0.0,
        )
        for role, skill, model in zip("FSL", skills, triple.models, strict=True)
    }  # fmt: skip


def agreements(answers: Answers) -> dict[tuple[int, int, int], tuple[float, float]]:
    """On how many questions each two agents gave an answer, and agreed, at the usual number of plausible answers."""
    groups = [o.group for o in answers.opinions]
    usual = int(np.median(answers.plausible))
    return {
        (i, j, usual): (float(((groups[i] >= 0) & (groups[j] >= 0)).sum()),
                 float(((groups[i] == groups[j]) & (groups[i] >= 0)).sum()))
        for i in range(len(groups)) for j in range(i)
    }  # fmt: skip


def knowledge(
    row: str, belief: Belief, recorded: Recorded, shipped: Signals, own: Signals, triple: Triple,
    seen: np.ndarray, ratio: float,
) -> tuple[Belief, Signals, dict[str, RatedAgent]]:  # fmt: skip
    """The belief, the quantiles and the agents with their skills, as a user knows them."""
    skills = [CHEAP_SKILL, CHEAP_SKILL, STRONG_SKILL if ratio >= 2 else CHEAP_SKILL]
    if row == "day one":
        return belief, shipped, rate_agents(recorded, triple, skills, seen[:0])
    if row == "true skills":
        return (
            belief,
            own,
            rate_agents(
                recorded,
                triple,
                known_shares(recorded, np.arange(len(recorded.prior)))[0][list(triple.models)],
                seen,
            ),
        )
    agents = rate_agents(recorded, triple, skills, seen)
    answers = answers_of(recorded, own, triple, agents, seen)
    found = skills_from_agreement(belief, list(agents.values()), agreements(answers))
    agents = rate_agents(recorded, triple, found, seen)
    if row.endswith("labels"):
        belief, named = fit_with_labels(belief, [answers_of(recorded, own, triple, agents, seen)])
        agents = rate_agents(recorded, triple, [named[role] for role in "FSL"], seen)
    return belief, own, agents


def calibration_error(p: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """Mean distance of p from the share that is right, over ten bins of equal size."""
    order = np.array_split(np.argsort(p), bins)
    return float(sum(abs(p[rows].mean() - right[rows].mean()) * len(rows) for rows in order) / len(p))


def predicted(found: Table) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """p and q in all states of a triple, and what came true."""
    answered = [name for name in found.p if name]
    return {
        "p": (np.concatenate([found.p[n] for n in answered]), np.concatenate([found.right[n] for n in answered])),
        "q": (np.concatenate(list(found.q.values())), np.concatenate([found.right["L"]] * len(found.q))),
    }


def draw_reliability(file: Path, found: dict[str, list[dict[str, tuple[np.ndarray, np.ndarray]]]]) -> None:
    """Share that is right against p and q, in ten bins of equal size, all triples together; a line for each row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2, sharey=True), "pq", strict=True):
        axes.plot([0, 1], [0, 1], color="0.8", linewidth=1)
        for row, triples in found.items():
            said, true = (np.concatenate(each) for each in zip(*(t[name] for t in triples), strict=True))
            bins = np.array_split(np.argsort(said), 10)
            axes.plot(
                [said[b].mean() for b in bins], [true[b].mean() for b in bins], marker="o", markersize=3, label=row
            )
        axes.set_xlabel(name)
    figure.axes[0].set_ylabel("share that is right")
    figure.axes[0].legend(frameon=False)
    figure.savefig(file, metadata={"Date": None})


def cost_at_slow(points: Sequence[tuple[float, float]], slow: float, ratio: float) -> float:
    """Least cost, as a share of slow's, from which on the dial is at most half a point below slow."""
    return min((cost / ratio for cost, right in points if right >= slow - 0.005), default=1.0)


def judge(
    row: str, belief: Belief, recorded: Recorded, signals: tuple[Signals, Signals],
    triples: Sequence[Triple], seen: np.ndarray, items: np.ndarray, stages: str,
) -> Iterator[dict[str, float]]:  # fmt: skip
    """One result for each triple and ratio."""
    for triple in triples:
        for ratio in RATIOS:
            if ratio == RATIOS[0] or row == "day one":
                known, ranks, agents = knowledge(row, belief, recorded, *signals, triple, seen, ratio)
                found = table(known, recorded, ranks, triple, agents, items)
            points = curve(known, found, ratio, stages)
            fast, second, slow = (float(found.right[role].mean()) for role in "FSL")
            fixed = [(1.0, fast), (1.0, second), (float(ratio), slow)]
            if "S" not in stages:
                fixed.pop(1)
            p_error, q_error = (calibration_error(*each) for each in predicted(found).values())
            yield {
                "ratio": ratio,
                "slow": triple.slow,
                "gain": gain(points, fixed, ratio),
                "gain over fast, slow": gain(points, [fixed[0], fixed[-1]], ratio),
                "gate": gain(gate_curve(found, ratio), fixed, ratio),
                "cost": cost_at_slow(points, slow, ratio),
                "p error": p_error,
                "q error": q_error,
            }


def judge_paper(
    recorded: Recorded, triples: Sequence[Triple], items: np.ndarray
) -> Iterator[tuple[float, int, float, float]]:
    """Ratio, slow model, points over the hull at the same cost, and points over slow, for each triple and ratio."""
    for triple in triples:
        fast, second, slow = (float(recorded.right[m, items].mean()) for m in triple.models)
        for ratio in RATIOS:
            cost, right = paper_point(recorded, triple, ratio, items)
            hull = upper_hull([(1.0, fast), (1.0, second), (float(ratio), slow)])
            yield ratio, triple.slow, 100 * (right - float(at_cost(hull, np.array(cost)))), 100 * (right - slow)


def interval(gains: np.ndarray, slow: np.ndarray, draws: int = 1000) -> str:
    """95% interval of the median; triples with the same slow model are drawn together."""
    groups = [gains[slow == model] for model in np.unique(slow)]
    rng = np.random.default_rng(0)
    found = [
        np.median(np.concatenate([groups[i] for i in rng.integers(0, len(groups), len(groups))]))
        for _ in range(draws)
    ]
    low, high = np.quantile(found, (0.025, 0.975))
    return f"[{low:+.1f}, {high:+.1f}]"


def report(name: str, row: str, results: Sequence[dict[str, float]]) -> None:
    """Print one line for each price ratio."""
    for ratio in RATIOS:
        of = {key: np.array([r[key] for r in results if r["ratio"] == ratio]) for key in results[0]}
        print(
            f"| {name} | {row} | {ratio} | {len(of['gain'])} | {np.median(of['gain']):+.2f} {interval(of['gain'], of['slow'])} "
            f"| {(of['gain'] > 0).mean():.0%} "
            f"| {(of['gain'] > -0.5).mean():.0%} | {(of['gain over fast, slow'] > -0.5).mean():.0%} "
            f"| {np.median(of['gain'] - of['gate']):+.2f} | {' '.join(f'{c:.2f}' for c in np.quantile(of['cost'], QUARTERS))} "
            f"| {np.median(of['p error']):.3f} / {np.quantile(of['p error'], 0.9):.3f} "
            f"| {np.median(of['q error']):.3f} / {np.quantile(of['q error'], 0.9):.3f} |",
            flush=True,
        )


def main() -> None:
    """Judge all rows on all sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--triples", type=int, default=100, help="random triples of each half; 0 for all")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--rows", nargs="+", default=["day one", "400 unlabelled", "400 labels", "true skills"],
                        help='"N unlabelled" and "N labels" for up to 400')  # fmt: skip
    parser.add_argument("--set-aside", action="store_true", help="judge the families that chose nothing, once")
    parser.add_argument(
        "--reliability", type=Path, metavar="SVG", help="draw p and q against what came true, and end"
    )
    parser.add_argument("--stages", default="FSL", choices=("FSL", "FL"))
    options = parser.parse_args()
    sets = {name: load(name, options.data) for name in SETS}
    print("| set | row | ratio | triples | median gain | > 0 | > −0.5 | > −0.5 over {fast, slow} | over the gate "
          "| cost at slow − 0.5, quartiles | error of p, median / 90% | error of q |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    drawn: dict[str, list[dict[str, tuple[np.ndarray, np.ndarray]]]] = {}
    for name in options.sets:
        recorded = sets[name]
        results: dict[str, list[dict[str, float]]] = {}
        paper: list[tuple[float, int, float, float]] = []
        for seed in range(options.splits):
            rng = np.random.default_rng(seed)
            order = rng.permutation(len(recorded.prior))
            first, second = family_halves(sets, seed)
            half = len(order) // 2 if name == "mmlu_pro" else LABELS
            ways = [(first, second), (second, first)]
            if options.set_aside:
                order = np.roll(np.random.default_rng(99).permutation(len(recorded.prior)), -(len(order) // 3))
                half = len(order) - len(order) // 3
                ways = [((first | second) - set(SET_ASIDE), set(SET_ASIDE))]
            for taught, unseen in ways:
                learned_from = order[:half] if name == "mmlu_pro" else np.arange(len(sets["mmlu_pro"].prior))
                alone = options.rows == ["paper"]
                belief = Belief.load() if alone else fitted(sets, taught, name, learned_from, seed)
                seen, items = order[:LABELS], np.sort(order[half:])
                triples = qualifying(recorded, models_of(recorded, unseen))
                if options.triples and len(triples) > options.triples:
                    triples = [triples[i] for i in rng.choice(len(triples), options.triples, replace=False)]
                shipped_from = order[:half] if name == "mmlu_pro" else order[:LABELS]
                shipped = Signals.shipped(recorded, models_of(recorded, taught), shipped_from)
                if "paper" in options.rows and not np.isnan(recorded.prior).any():
                    paper.extend(judge_paper(recorded, triples, items))
                for row in [each for each in options.rows if each != "paper"]:
                    known = seen[: int(row.split()[0])] if row[0].isdigit() else seen
                    signals = shipped, Signals.own(recorded, known)
                    if options.reliability:
                        for triple in triples:
                            learned, ranks, agents = knowledge(row, belief, recorded, *signals, triple, known, 10)
                            found = table(learned, recorded, ranks, triple, agents, items)
                            drawn.setdefault(row, []).append(predicted(found))
                        continue
                    results.setdefault(row, []).extend(
                        judge(row, belief, recorded, signals, triples, known, items, options.stages)
                    )
        for row, judged in results.items():
            if judged:
                report(name, row, judged)
        for ratio in RATIOS if paper else ():
            slow, over, lost = np.array([each[1:] for each in paper if each[0] == ratio]).T
            print(
                f"| {name} | paper | {ratio} | {len(over)} | {np.median(over):+.2f} {interval(over, slow)} "
                f"| {(over > 0).mean():.0%} | over slow {np.median(lost):+.2f} |",
                flush=True,
            )
    if options.reliability:
        draw_reliability(options.reliability, drawn)


if __name__ == "__main__":
    main()
