"""Train the shipped difficulty estimator (SPEC 2.5-2.8) and write its report beside the weights.

    python scripts/training/train_estimator.py --data ../shared/data

Needs the parser, the vocabularies, the domain classifier and the reference mixture: docs/training.md has the order, and what follows.

The report: Pearson r and path accuracy on held-out rows; r and APGR, beside those of the question's length, on whole held-out sources
(with vocabularies rebuilt without them); held-out questions in templates of benchmarks; permutation importance, ablation by group,
transfer from mathematics to code, and APGR on routellm_gsm8k, which nothing here was trained on.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import mixture
import numpy as np
from build_vocabularies import build
from mixture import SOURCES, Row, lines, recorded, stratum_source, training_mixture
from reference_mixture import FILE as REFERENCE
from templates import held_out, multiple_choice

from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import FEATURES, FIELDS, GROUPS, phi_batch, tfidf
from odar.difficulty.text import clean, terms
from odar.lab.intervals import bootstrap_interval
from odar.lab.router_quality import apgr, auroc, cpt, pearson
from odar.lab.training import EPOCHS, fit
from odar.types import Query

OUT = Path(__file__).parents[2] / "src/odar/difficulty/data"
ANCHOR_WEIGHT = 10.0
"""A hand-written anchor weighs as much as ten average rows: with more, r on left-out sets falls (docs/lab-notes.md)."""
MAP_SHARES = (0.45, 0.775)
"""Shares of the reference mixture below τ1 and below τ2 after the map; the paper's are 0.41 and 0.76 (SPEC 2.10)."""
TFIDF = slice(FEATURES.index("tfidf_math"), FEATURES.index("tfidf_logic") + 1)
RECORDED = ("mmlu_pro", "llmrouter", "math", "crux")
"""Sources with outcomes of weak and strong models."""
MIN_GAP = 0.02
"""Least gap of accuracy between the models of a pair: APGR divides by it."""
ROUNDS = 3
"""The targets of anchors are difficulties after the map, which is known only after a fit."""


def features(rows: list[Row], cache: Path | None) -> np.ndarray:
    """φ of every row, read from `cache` where it was kept; delete it when parser, vocabularies or classifier change."""
    if cache and cache.exists():
        x = np.load(cache)
        if len(x) != len(rows):
            raise SystemExit(f"{cache} holds {len(x)} rows, the mixture {len(rows)}: delete it")
        return x
    x = phi_batch(Query(r.prompt) for r in rows)
    if cache:
        np.save(cache, x)
    return x


def weights(rows: list[Row]) -> np.ndarray:
    """A task weighs as the root of its rows, between all rows alike and all tasks alike; anchors are apart."""
    size = Counter((r.source, r.task) for r in rows)
    weight = np.array([size[r.source, r.task] ** -0.5 for r in rows])
    weight /= weight.mean()
    weight[[r.source == "anchors" for r in rows]] = ANCHOR_WEIGHT
    return weight


def fit_with_map(x: np.ndarray, y: np.ndarray, rows: list[Row], epochs: int = EPOCHS) -> LearnedEstimator:
    """Weights and the monotone map of d that gives the reference mixture its shares (SPEC 2.10)."""
    with np.load(REFERENCE) as file:
        reference = file["features"].astype(float)
    anchored, target = np.array([r.source == "anchors" for r in rows]), y.copy()
    for left in reversed(range(ROUNDS)):
        settings: dict[str, Any] = {"epochs": 10, "seeds": (42,)} if left else {"epochs": epochs}
        model = fit(x, target, weights(rows), **settings)
        low, high = np.round(np.quantile(model.predict(reference), MAP_SHARES), 4).tolist()
        model = replace(model, map=((0.0, 0.0), (low, 0.3), (high, 0.7), (1.0, 1.0)))
        target[anchored] = unmapped(model, y[anchored])
    return model


def unmapped(model: LearnedEstimator, d: np.ndarray) -> np.ndarray:
    """What the model gave before the map."""
    raw, mapped = zip(*model.map, strict=True)
    return np.interp(d, mapped, raw)


def strata(rows: list[Row]) -> np.ndarray:
    """Weights that make every task count alike in a correlation."""
    size = Counter((r.source, r.task) for r in rows)
    return np.array([1 / size[r.source, r.task] for r in rows])


def weighted_r(a: np.ndarray, b: np.ndarray, w: np.ndarray) -> float:
    """Pearson's r with row weights."""
    w = w / w.sum()
    a, b = a - w @ a, b - w @ b
    return float((w @ (a * b)) / np.sqrt((w @ (a * a)) * (w @ (b * b))))


def path(d: np.ndarray) -> np.ndarray:
    """0, 1, 2 for simple, medium, hard at the thresholds of SPEC 2.7."""
    return np.digitize(d, [0.3, 0.7])


def scores(d: np.ndarray, y: np.ndarray, rows: list[Row]) -> dict[str, float]:
    """r, r with tasks alike, and the share of queries on the path their d* asks for."""
    return {
        "rows": len(rows),
        "r": round(pearson(d, y), 4),
        "r_tasks_alike": round(weighted_r(d, y, strata(rows)), 4),
        "path_accuracy": round(float((path(d) == path(y)).mean()), 4),
    }


def with_vocabulary(x: np.ndarray, rows: list[Row], vocabulary: dict[str, dict[str, float]]) -> np.ndarray:
    """The same features with f15-f17 from another vocabulary."""
    x = x.copy()
    for i, row in enumerate(rows):
        counts = Counter(terms(clean(row.core)))
        x[i, TFIDF] = [tfidf(counts, vocabulary[f]) for f in FIELDS]
    return x


def held_out_sources(x: np.ndarray, y: np.ndarray, rows: list[Row], data: Path) -> dict[str, dict[str, float]]:
    """Each source predicted by a model, and vocabularies, that never saw it; "pooled" joins all of them.

    Beside r is that of the question's length, and APGR of both where outcomes of pairs of models are recorded.
    """
    source = np.array([r.source for r in rows])
    result, pooled = {}, np.zeros(len(rows))
    for left_out in SOURCES:
        rest = [r for r in rows if r.source != left_out]
        unseen = [r for r in rows if r.source == left_out]
        other = with_vocabulary(x, rows, build(rest))
        keep = source != left_out
        model = fit(other[keep], y[keep], weights(rest), seeds=(42,), epochs=EPOCHS)
        d = pooled[~keep] = model.predict(other[~keep])
        length = np.array([len(r.core) for r in unseen], float)
        result[left_out] = scores(d, y[~keep], unseen) | {
            "r_of_length": round(pearson(np.log(length), y[~keep]), 4)
        }
        if left_out in RECORDED:
            questions = [r.text for r in unseen]
            for name, score in (("apgr", d), ("apgr_of_length", length)):
                result[left_out][name] = round(mean_apgr(questions, score, *recorded(data, left_out)), 4)
        print("without", left_out, result[left_out], flush=True)
    public = source != "anchors"
    result["mean over sets"] = {
        key: round(float(np.mean([result[s][key] for s in SOURCES if key in result[s]])), 4)
        for key in ("r", "r_of_length", "path_accuracy", "apgr", "apgr_of_length")
    }
    result["pooled"] = scores(pooled[public], y[public], [r for r in rows if r.source != "anchors"])
    return result


def mean_apgr(
    questions: list[str],
    score: np.ndarray,
    outcomes: dict[str, dict[str, float]],
    weak: tuple[str, ...],
    strong: tuple[str, ...],
) -> float:
    """APGR of a score, mean over the pairs of a weak and a better strong model that answered these questions."""
    at = [i for i, question in enumerate(questions) if question in outcomes]
    right = {m: np.array([outcomes[questions[i]][m] for i in at], float) for m in (*weak, *strong)}
    pairs = [(right[w], right[s]) for w in weak for s in strong if right[w].mean() < right[s].mean() - MIN_GAP]
    return float(np.mean([apgr(score[at], *pair) for pair in pairs]))


def in_templates(model: LearnedEstimator, rows: list[Row], data: Path) -> dict[str, dict[str, float]]:
    """d of held-out MMLU-Pro questions in prompts of benchmarks: APGR, the mix of paths, and r with d of the question."""
    held_out_questions = {r.text for r in rows if r.source == "mmlu_pro" and r.held_out}
    items = [i for i in lines(data / "mmlu_pro_outcomes" / "items.jsonl") if i["question"] in held_out_questions]
    questions, outcomes = [i["question"] for i in items], recorded(data, "mmlu_pro")
    prompts = {"the question alone": questions}
    for made in (multiple_choice, held_out):
        by_item = [made(i["question"], i["options"], i["category"]) for i in items]
        prompts |= {name: [each[name] for each in by_item] for name in by_item[0]}
    d = {name: model.predict(phi_batch(map(Query, texts))) for name, texts in prompts.items()}
    result = {}
    for name, texts in prompts.items():
        shares = np.bincount(path(d[name]), minlength=3) / len(d[name])
        length = np.array([len(text) for text in texts], float)
        result[name] = {
            "apgr": round(mean_apgr(questions, d[name], *outcomes), 4),
            "apgr_of_length": round(mean_apgr(questions, length, *outcomes), 4),
            "simple": round(float(shares[0]), 3),
            "hard": round(float(shares[2]), 3),
            "r_with_the_question": round(pearson(d[name], d["the question alone"]), 4),
        }
    return result


def variance(y: np.ndarray, rows: list[Row]) -> dict[str, float]:
    """How much of d* is the task's mean, and the r of a model that knew nothing but those means."""
    public = [i for i, r in enumerate(rows) if r.source != "anchors"]
    tasks: dict[tuple[str, str], list[float]] = {}
    for i in public:
        tasks.setdefault((rows[i].source, rows[i].task), []).append(y[i])
    within = sum(np.var(v) * len(v) for v in tasks.values()) / len(public)
    share = 1 - within / np.var(y[public])
    return {"between_tasks": round(float(share), 4), "r_of_task_means": round(float(np.sqrt(share)), 4)}


def permutation_importance(model: LearnedEstimator, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Mean drop of r over ten shuffles of each feature (SPEC 2.8)."""
    rng, base, drops = np.random.default_rng(42), pearson(model.predict(x), y), {}
    for i, feature in enumerate(FEATURES):
        losses = []
        for _ in range(10):
            shuffled = x.copy()
            shuffled[:, i] = rng.permutation(shuffled[:, i])
            losses.append(base - pearson(model.predict(shuffled), y))
        drops[feature] = round(float(np.mean(losses)), 4)
    return drops


def ablation(x: np.ndarray, y: np.ndarray, train: np.ndarray, rows: list[Row]) -> dict[str, dict[str, float]]:
    """Retrained without each feature group."""
    result = {}
    for group, columns in GROUPS.items():
        less = x.copy()
        less[:, columns] = 0.0
        taught = [r for r, t in zip(rows, train, strict=True) if t]
        model = fit(less[train], y[train], weights(taught), seeds=(42,), epochs=EPOCHS)
        test = [r for r, t in zip(rows, train, strict=True) if not t]
        result[f"without {group}"] = scores(model.predict(less[~train]), y[~train], test)
    return result


def transfer(x: np.ndarray, y: np.ndarray, rows: list[Row]) -> dict[str, dict[str, float]]:
    """Train on mathematics alone, test on code."""
    maths = np.array([r.domain == "mathematics" and r.source != "anchors" for r in rows])
    code = np.array([r.domain == "coding" and r.source != "anchors" for r in rows])
    taught = [r for r, m in zip(rows, maths, strict=True) if m]
    model = fit(x[maths], y[maths], weights(taught), seeds=(42,), epochs=EPOCHS)
    asked = [r for r, c in zip(rows, code, strict=True) if c]
    return {"maths to code": scores(model.predict(x[code]), y[code], asked)}


def routellm(model: LearnedEstimator, data: Path) -> dict[str, object]:
    """APGR on GSM8K test, zero-shot, from the prompt alone."""
    rows = [r for r in lines(data / "routellm_gsm8k" / "outcomes.jsonl") if not r["contaminated"]]
    weak = np.array([r["weak_correct"] for r in rows], float)
    strong = np.array([r["strong_correct"] for r in rows], float)
    length = np.array([len(r["prompt"]) for r in rows], float)
    d = model.predict(phi_batch(Query(r["prompt"]) for r in rows))
    rng = np.random.default_rng(42)
    random = [apgr(rng.random(len(rows)), weak, strong) for _ in range(200)]
    return {
        "rows": len(rows),
        "random": round(float(np.mean(random)), 4),
        "length": round(apgr(length, weak, strong), 4),
        "learned": [round(v, 4) for v in bootstrap_interval(apgr, d, weak, strong, rng=rng)],
        "learned_cpt50": round(cpt(d, weak, strong, 0.5), 4),
        "learned_cpt80": round(cpt(d, weak, strong, 0.8), 4),
        "learned_auroc_weak_wrong": round(auroc(d, 1 - weak), 4),
        "published": {"random": 0.497, "BERT": 0.531, "MF": 0.565, "SW": 0.568, "causal LLM 7B": 0.622},
    }


def about(taught: list[Row]) -> dict[str, object]:
    """What made the weights; travels with the file."""
    return {
        "made_by": "scripts/training/train_estimator.py",
        "rows": {s: sum(r.source == s for r in taught) for s in [*SOURCES, "anchors"]},
        "data": "MMLU-Pro outcomes (MIT), LLMRouter (MIT), MATH (MIT), GSM8K train (MIT), StrategyQA (MIT), BBH (MIT), "
        "MATH level 5 and CRUXEval outputs (Apache-2.0: ZeroEval); hand-written anchors (scripts/training/data/anchors.tsv)",
        "acc_fast": stratum_source(),
        "target": "d* = 0.5 T/max T + 0.5 (1 - Acc_fast), scripts/training/mixture.py",
        "thresholds": [0.3, 0.7],
    }


def main() -> None:
    """Train on the rows that are not held out, report, save."""
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, default=OUT)
    cli.add_argument("--cache", type=Path, help="file for cached features")
    cli.add_argument("--fit-only", action="store_true", help="write the weights but not the report")
    cli.add_argument(
        "--acc-fast", default=mixture.STRATA, help="table of failures: acc_assumed.json, acc_fast.json"
    )
    args = cli.parse_args()
    mixture.STRATA = args.acc_fast
    rows = training_mixture(args.data)
    y = np.array([r.target for r in rows])
    x = features(rows, args.cache)
    train = np.array([not r.held_out for r in rows])
    taught = [r for r in rows if not r.held_out]
    test = [r for r in rows if r.held_out]
    model = fit_with_map(x[train], y[train], taught)
    model = replace(model, about=about(taught))
    model.save(args.out / "estimator.json")
    if args.fit_only:
        return
    d = model.predict(x[~train])
    before = unmapped(model, d)
    rng = np.random.default_rng(42)
    report: dict[str, object] = {
        "held_out_rows": scores(d, y[~train], test),
        "held_out_rows_before_the_map": scores(before, y[~train], test),
        "held_out_rows_r_interval": [round(v, 4) for v in bootstrap_interval(pearson, d, y[~train], rng=rng)],
        "held_out_rows_by_source": {
            s: scores(
                *(v[[r.source == s for r in test]] for v in (d, y[~train])),
                [r for r in test if r.source == s],
            )
            for s in SOURCES
        },
        "variance_of_the_target": variance(y, rows),
        "routellm_gsm8k": routellm(model, args.data),
        "permutation_importance": permutation_importance(model, x[~train], y[~train]),
        "ablation": ablation(x, y, train, rows),
        "transfer": transfer(x, y, rows),
        "templates": in_templates(model, rows, args.data),
        "held_out_sources": held_out_sources(x, y, rows, args.data),
    }
    print(json.dumps(report, indent=1))
    (args.out / "estimator.report.json").write_text(json.dumps(report, indent=1) + "\n", "utf8")


if __name__ == "__main__":
    main()
