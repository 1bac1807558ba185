"""Fit the posterior difficulty (SPEC 5.11) on recorded MMLU-Pro answers of many pairs, leave-one-pair-out.

    python scripts/fit_posterior.py --data ../shared/data [--cache features.npy]

Takes two minutes with the features that train_estimator.py kept. Pairs are chosen by rule, not by hand: within a family of
models released together, each model whose token probabilities were recorded is the fast one, and the most accurate of the
family the slow one, if it leads by at least `GAP` (APGR divides by the gap). The coefficients are fitted on, and the mean
is taken over, the pairs whose fast model is right at least half of the time: a router cannot save calls where most queries need
the slow model (a perfect one reaches APGR 1 − s/2 when it must send a share s). The others are reported beside them.

The prior d(x) of every item comes from an estimator that was not trained on that item (five folds). A left-out pair is
judged by a fit on the pairs of other fast models; "and subject" leaves out the item's subject as well.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from mixture import lines, training_mixture
from train_estimator import features, weights

from odar.difficulty.estimator import LearnedEstimator
from odar.evals.router_quality import apgr, auroc, bootstrap, cpt, oracle_score
from odar.policy.posterior import AnswerStatistics, PosteriorDifficulty

OUT = Path(__file__).parents[1] / "src/odar/policy"
GAP, FAST_RIGHT, RECORDED = 0.05, 0.5, 0.99
FOLDS = 5
# Chat models at their released precision. Models that think are only ever the slow one: a fast agent does not think.
FAMILIES = {
    "GPT-4.1": ("gpt-4.1-nano", "gpt-4.1-mini", "gpt-4.1"),
    "GPT-4o": ("gpt-4o-mini-2024-07-18", "gpt-4o-2024-08-06"),
    "Gemini 1.5": ("gemini-1.5-flash-8b", "gemini-1.5-flash", "gemini-1.5-pro"),
    "Gemini 2.0": ("gemini-2.0-flash-lite", "gemini-2.0-flash"),
    "Gemma 2": ("gemma-2-9b-it", "gemma-2-27b-it"),
    "Gemma 3": ("gemma-3-1b-it", "gemma-3-4b-it", "gemma-3-12b-it", "gemma-3-27b-it"),
    "Llama 3.1": tuple(f"Meta-Llama-3.1-{size}B-Instruct-Turbo" for size in (8, 70, 405)),
    "Llama 3.2": ("Llama-3.2-1B-Instruct", "Llama-3.2-3B-Instruct"),
    "Llama 4": ("Llama-4-Scout-17B-16E-Instruct", "Llama-4-Maverick-17B-128E-Instruct-FP8"),
    "Phi 3": ("Phi-3-mini-128k-instruct", "Phi-3-medium-128k-instruct"),
    "Phi 3.5": ("Phi-3.5-mini-instruct", "Phi-3.5-MoE-instruct"),
    "Qwen 2.5": tuple(f"Qwen2.5-{size}B-Instruct" for size in (3, 7, 14, 32)),
    "Qwen 3": (
        *(f"Qwen3-{n}{mode}" for n in ("0.6B", "1.7B", "4B", "8B", "14B", "30B-A3B", "32B") for mode in ("", "-think")),
        "Qwen3-235B-A22B-fp8-tput",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """What one model made of every item."""

    right: np.ndarray
    unsure: np.ndarray
    length: np.ndarray
    silent: np.ndarray
    """No option could be found in the response."""
    statistics: AnswerStatistics | None

    @classmethod
    def of(cls, table: pd.DataFrame) -> Answers:
        """From the recorded rows of a model, in the order of items.jsonl."""
        probability = table.mean_token_probability.to_numpy(float)
        tokens = table.response_tokens.to_numpy(float)
        right, silent = table.correct.to_numpy(float), table.answer.isna().to_numpy(float)
        if np.isfinite(probability).mean() < RECORDED:
            return cls(right, probability, tokens, silent, None)
        probability = np.where(np.isfinite(probability), probability, np.nanmedian(probability))
        s = AnswerStatistics.fit(probability, tokens)
        return cls(right, *s.scores(probability, tokens), silent, s)


@dataclass(frozen=True)
class Items:
    """The questions, with what is known of them before any answer."""

    prior: np.ndarray
    phi: np.ndarray
    fold: np.ndarray
    subject: np.ndarray


def pairs(answers: dict[str, Answers]) -> list[tuple[str, str]]:
    """Every pair that the rule of this module's docstring allows."""
    found = []
    for family in FAMILIES.values():
        best = max(family, key=lambda m: answers[m].right.mean())
        for model in family:
            gap = answers[best].right.mean() - answers[model].right.mean()
            if gap >= GAP and answers[model].statistics and not model.endswith("-think"):
                found.append((model, best))
    return found


def fit(items: Items, models: list[Answers], rows: np.ndarray) -> PosteriorDifficulty:
    """One posterior from some models' answers to some items."""
    column = {
        name: np.concatenate([getattr(m, name)[rows] for m in models])
        for name in ("right", "unsure", "length", "silent")
    }
    prior, phi = np.tile(items.prior[rows], len(models)), np.tile(items.phi[rows], (len(models), 1))
    return PosteriorDifficulty().fit(
        prior, column["unsure"], column["length"], 1 - column["right"], unanswered=column["silent"], features=phi
    )


def predict(model: PosteriorDifficulty, items: Items, fast: Answers, rows: np.ndarray) -> np.ndarray:
    """d(x, y_fast) of some items."""
    return model.predict(
        items.prior[rows], fast.unsure[rows], fast.length[rows],
        unanswered=fast.silent[rows], features=items.phi[rows],
    )  # fmt: skip


def folded(items: Items, part: np.ndarray, taught: list[Answers], fast: Answers) -> np.ndarray:
    """Each item's posterior by a fit on the other parts."""
    scores = np.zeros(len(part))
    for value in np.unique(part):
        scores[part == value] = predict(fit(items, taught, part != value), items, fast, part == value)
    return scores


def judge(items: Items, fast: Answers, slow: Answers, others: list[Answers]) -> dict[str, object]:
    """Every figure of one pair."""
    rng, everything = np.random.default_rng(42), np.ones(len(items.prior), dtype=bool)
    cross = folded(items, items.fold, [fast], fast)
    left_out = predict(fit(items, others, everything), items, fast, everything)
    figures = {
        "fast_right": fast.right.mean(), "slow_right": slow.right.mean(), "unanswered": fast.silent.mean(),
        "length": apgr(items.phi[:, 0], fast.right, slow.right),
        "prior": apgr(items.prior, fast.right, slow.right),
        "posterior_leave_pair_out": apgr(left_out, fast.right, slow.right),
        "posterior_leave_pair_and_subject_out": apgr(
            folded(items, items.subject, others, fast), fast.right, slow.right
        ),
        "oracle": apgr(oracle_score(fast.right, slow.right), fast.right, slow.right),
        "posterior_cpt50": cpt(cross, fast.right, slow.right, 0.5),
        "posterior_cpt80": cpt(cross, fast.right, slow.right, 0.8),
        "auroc_fast_wrong_prior": auroc(items.prior, 1 - fast.right),
        "auroc_fast_wrong_posterior": auroc(cross, 1 - fast.right),
    }  # fmt: skip
    interval = bootstrap(apgr, cross, fast.right, slow.right, resamples=300, rng=rng)
    rounded: dict[str, object] = {k: round(float(v), 4) for k, v in figures.items()}
    return rounded | {"posterior_5_fold": [round(v, 4) for v in interval]}


def load(data: Path, cache: Path | None) -> Items:
    """The MMLU-Pro items with out-of-fold priors."""
    rows = training_mixture(data)
    x, y = features(rows, cache), np.array([r.target for r in rows])
    mmlu = np.array([r.source == "mmlu_pro" for r in rows])
    fold = np.where(mmlu, np.random.default_rng(42).integers(0, FOLDS, len(rows)), -1)
    prior = np.zeros(len(rows))
    for k in range(FOLDS):
        keep = fold != k
        kept = [r for r, f in zip(rows, keep, strict=True) if f]
        prior[~keep] = LearnedEstimator(seeds=(42,)).fit(x[keep], y[keep], weights(kept)).predict(x[~keep])
    subject = np.array([i["category"] for i in lines(data / "mmlu_pro_outcomes" / "items.jsonl")])
    return Items(prior[mmlu], x[mmlu], fold[mmlu], subject)


def main() -> None:
    """Judge every pair, then fit on all that the rule allows."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, default=OUT)
    cli.add_argument("--cache", type=Path, help="features kept by train_estimator.py")
    args = cli.parse_args()
    items = load(args.data, args.cache)
    outcomes = pd.read_parquet(args.data / "mmlu_pro_outcomes" / "outcomes.parquet")
    answers = {m: Answers.of(g.sort_values("row")) for m, g in outcomes.groupby("model", observed=True)}
    every = pairs(answers)
    sound = [(f, s) for f, s in every if answers[f].right.mean() >= FAST_RIGHT]
    report: dict[str, dict[str, object]] = {}
    for fast, slow in every:
        others = [answers[f] for f, _ in sound if f != fast]
        report[f"{fast} -> {slow}"] = judge(items, answers[fast], answers[slow], others)
        print(fast, slow, report[f"{fast} -> {slow}"], flush=True)
    model = fit(items, [answers[f] for f, _ in sound], np.ones(len(items.prior), dtype=bool))
    kept = [report[f"{f} -> {s}"] for f, s in sound]
    means = {
        name: {
            key: round(float(np.mean([np.ravel(r[key])[0] for r in part])), 4)
            for key in (
                "prior",
                "posterior_5_fold",
                "posterior_leave_pair_out",
                "posterior_leave_pair_and_subject_out",
            )
        }
        for name, part in (("fast right at least half of the time", kept), ("all", list(report.values())))
    }
    model.about_ = {
        "made_by": "scripts/fit_posterior.py",
        "data": "MMLU-Pro outcomes (MIT: Linwei94/LLM-Calibration-Study), 5,222 items",
        "label": "the fast answer is wrong",
        "pairs": [f"{f} -> {s}" for f, s in sound],
        "means": means,
    }
    statistics = {f: s for f, _ in every if (s := answers[f].statistics)}
    (args.out / "posterior.json").write_text(json.dumps(model.document(statistics), indent=1) + "\n", "utf8")
    (args.out / "posterior.report.json").write_text(json.dumps(report, indent=1) + "\n", "utf8")
    print(json.dumps(means, indent=1), model.document()["coefficients"])


if __name__ == "__main__":
    main()
