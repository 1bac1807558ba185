"""Fit the posterior difficulty (SPEC 5.11) on recorded MMLU-Pro answers of several pairs, leave-one-pair-out.

    python scripts/fit_posterior.py --data ../shared/data [--cache features.npy]

The prior d(x) of every item comes from an estimator that was not trained on that item (five folds).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from mixture import training_mixture
from train_estimator import weights

from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import phi_batch
from odar.difficulty.posterior import AnswerStatistics, PosteriorDifficulty, unsureness
from odar.evals.router_quality import apgr, auroc, bootstrap, cpt, oracle_score
from odar.types import Query

OUT = Path(__file__).parents[1] / "src/odar/difficulty/data"
# Chosen by one rule: the fast model's token probabilities were recorded (gemma-3 has none).
PAIRS = (
    ("gpt-4.1-nano", "gpt-4.1"), ("Qwen3-30B-A3B", "Qwen3-30B-A3B-think"), ("Qwen3-8B", "Qwen3-32B-think"),
    ("gpt-4o-mini-2024-07-18", "gpt-4o-2024-08-06"), ("Qwen2.5-7B-Instruct", "Qwen2.5-32B-Instruct"),
    ("gemma-2-9b-it", "gemma-2-27b-it"), ("Meta-Llama-3.1-8B-Instruct-Turbo", "Meta-Llama-3.1-405B-Instruct-Turbo"),
    ("gpt-4.1-mini", "Qwen3-14B-think"),
)  # fmt: skip


def z(values: np.ndarray, mean: float, scale: float) -> np.ndarray:
    """z-scores."""
    return (values - mean) / scale


def main() -> None:
    """Priors out of fold, then five folds per pair and leave-one-pair-out."""
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, default=OUT)
    cli.add_argument("--cache", type=Path, help="features kept by train_estimator.py")
    args = cli.parse_args()
    rows = training_mixture(args.data)
    x = np.load(args.cache) if args.cache else phi_batch(Query(r.text) for r in rows)
    y = np.array([r.target for r in rows])
    mmlu = np.array([r.source == "mmlu_pro" for r in rows])
    fold = np.where(mmlu, np.random.default_rng(42).integers(0, 5, len(rows)), -1)
    prior = np.zeros(len(rows))
    for k in range(5):
        keep = fold != k
        kept = [r for r, f in zip(rows, keep, strict=True) if f]
        prior[~keep] = LearnedEstimator(seeds=(42,)).fit(x[keep], y[keep], weights(kept)).predict(x[~keep])
    d, fold, length = prior[mmlu], fold[mmlu], x[mmlu, 0]
    outcomes = pd.read_parquet(args.data / "mmlu_pro_outcomes" / "outcomes.parquet")
    # items.jsonl and the outcomes of each model are in the same order of rows
    table = {m: g.sort_values("row") for m, g in outcomes.groupby("model", observed=True)}
    columns, statistics = {}, {}
    for fast, _ in PAIRS:
        p = table[fast].mean_token_probability.to_numpy(float)
        tokens = table[fast].response_tokens.to_numpy(float)
        s = statistics[fast] = AnswerStatistics.fit(p, tokens)
        columns[fast] = (
            z(unsureness(p), s.unsureness_mean, s.unsureness_scale),
            z(np.log1p(tokens), s.log_tokens_mean, s.log_tokens_scale),
        )
    report, rng = {}, np.random.default_rng(42)
    for fast, strong in PAIRS:
        weak, better = (table[m].correct.to_numpy(float) for m in (fast, strong))
        u, t = columns[fast]
        cross = np.zeros(len(d))
        for k in range(5):
            a, b = fold != k, fold == k
            cross[b] = PosteriorDifficulty().fit(d[a], u[a], t[a], 1 - weak[a]).predict(d[b], u[b], t[b])
        others = [f for f, s in PAIRS if (f, s) != (fast, strong)]
        stacked = [
            np.concatenate(v)
            for v in zip(*[(d, *columns[f], 1 - table[f].correct.to_numpy(float)) for f in others], strict=True)
        ]
        left_out = PosteriorDifficulty().fit(*stacked).predict(d, u, t)
        report[f"{fast} -> {strong}"] = {
            "length": round(apgr(length, weak, better), 4),
            "prior": [round(v, 4) for v in bootstrap(apgr, d, weak, better, resamples=300, rng=rng)],
            "posterior_5_fold": [round(v, 4) for v in bootstrap(apgr, cross, weak, better, resamples=300, rng=rng)],
            "posterior_leave_pair_out": round(apgr(left_out, weak, better), 4),
            "oracle": round(apgr(oracle_score(weak, better), weak, better), 4),
            "posterior_cpt50": round(cpt(cross, weak, better, 0.5), 4),
            "posterior_cpt80": round(cpt(cross, weak, better, 0.8), 4),
            "auroc_fast_wrong_prior": round(auroc(d, 1 - weak), 4),
            "auroc_fast_wrong_posterior": round(auroc(cross, 1 - weak), 4),
        }
        print(fast, strong, report[f"{fast} -> {strong}"], flush=True)
    stacked = [
        np.concatenate(v)
        for v in zip(*[(d, *columns[f], 1 - table[f].correct.to_numpy(float)) for f, _ in PAIRS], strict=True)
    ]
    model = PosteriorDifficulty().fit(*stacked)
    model.about_ = {
        "made_by": "scripts/fit_posterior.py",
        "data": "MMLU-Pro outcomes (MIT: Linwei94/LLM-Calibration-Study), 5,222 items",
        "pairs": [f"{f} -> {s}" for f, s in PAIRS],
        "mean_leave_pair_out": round(float(np.mean([r["posterior_leave_pair_out"] for r in report.values()])), 4),
        "report": report,
    }
    (args.out / "posterior.json").write_text(json.dumps(model.document(statistics), indent=1) + "\n", "utf8")
    print(model.document()["coefficients"], model.about_["mean_leave_pair_out"])


if __name__ == "__main__":
    main()
