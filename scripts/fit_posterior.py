"""Fit and judge the posterior difficulty (SPEC 5.11) on recorded answers of many pairs of models.

    pip install -e '.[train]'
    python scripts/fit_posterior.py --data ../shared/data [--cache features.npy] [--report-only]

Takes about four minutes of CPU, one less with the features that train_estimator.py kept; items whose hash is in judged.json are
left out of everything. What is fitted is the *gain*, slow right minus fast
right: a question that both models fail is not worth a call.

- Reasoned answers: `mmlu_pro_outcomes`, every pair of models with a gap of at least 10 points. Judged with model families
  *and* items left out, five random splits, both ways. The prior d(x) of every item is by an estimator that was not trained
  on that item. `nano → 4.1`: zero-shot is a fit without any GPT-4 model; calibrated is five folds of that pair's own items.
- `math_l5_outputs` and `crux_outputs`, every pair with such a gap, own quantiles, no log-probabilities: each is judged with
  weights that were fitted to the other sets; the shipped weights are fitted to all of them.
- Free text: `freetext_cascade`. The log-prob belongs to the second sample, so that one is scored again and served.
- Direct answers: the weights are those of SPEC 5.11; there is no recorded pair, but most answers of `freetext_cascade` are short.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from mixture import judged, lines, question_hash, training_mixture
from reference_mixture import FILE as MIXTURE
from train_estimator import features, university_part, weights
from train_estimator import fitted as fitted_estimator

from odar.calibration.parts import fit_weights
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import university_weights
from odar.evals.router_quality import apgr
from odar.policy.posterior import EASY_RANGE, HARD_RANGE, PAPER_MIX, TERMS, UNSURE_CAP, PosteriorDifficulty
from odar.policy.signals import RANKED, AnswerKind, QuantileTables, SignalArrays, answer_kind
from odar.recording.files import open_recording
from odar.recording.importers import ImportOptions, read_answers
from odar.recording.joining import join_answers, to_items
from odar.recording.schema import CHARACTERS_PER_TOKEN, Attempt, recorded_signals
from odar.types import Step

OUT = Path(__file__).parents[1] / "src/odar/policy"
GAP = 0.10
FAST_RIGHT = 0.3
"""A fast model below this is judged but not fitted to: nearly every question needs the slow one."""
SPLITS = 5
TOLERANCE = 0.02
RECORDING = Path(__file__).parents[1] / "runs/local-pair/recording.jsonl.gz"
OUTPUTS = ("math_l5_outputs", "crux_outputs")
FAMILIES = (
    "qwen3", "qwen2.5", "llama-3", "llama-4", "phi-", "gemma", "gpt-4", "gemini", "grok", "mistral", "mixtral",
    "claude", "deepseek", "o1", "o3", "o4",
)  # fmt: skip
UNSEEN_KINDS = {
    AnswerKind.DIRECT: {"unsure_answer": 1.0, "unstated": 0.3, "looks_hard": 0.35, "disagreement": 1.5},
    AnswerKind.FREE_TEXT: {"unsure_answer": 1.0, "unstated": 0.3, "looks_hard": 0.15, "disagreement": 1.5},
}
"""SPEC 5.11: the quantile plus 0.1 to 0.3 times the standardised prior (a rank has a deviation of 0.29). A missing mark has a
small weight by judgement: the local pair's calibration half has 31 such answers, and its APGR is the same from 0 to 1."""
DISAGREEMENT = 0.5
"""Of reasoned answers: no pair of the outcomes has a second sample. On ContractNLI it counts as much as the rest."""
REASONED = ("long_and_unsure", "unstated", "not_easy")
"""Of all terms those that get a weight on every split; the others get none, or one that changes from split to split. Only the
sets with full outputs have unmarked answers; an MMLU-Pro answer without an option counts as unfinished."""


@dataclass(frozen=True)
class Model:
    """What one model made of every item."""

    name: str
    right: np.ndarray
    signals: SignalArrays
    """Ranks do not depend on the unit, so the log of the mean probability is used as the mean log-probability."""

    @property
    def family(self) -> str:
        """Models of one family are never on both sides of a split."""
        return next((f for f in FAMILIES if f in self.name.lower()), self.name)

    def single(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Each signal by itself; a larger value means that the slow model should be called."""
        s = self.signals.rows(rows)
        found = {"length": s.length, "mean log-prob": -s.mean_logprob, "prior": s.prior}
        found["unstated"] = 1.0 - (s.stated & s.finished)
        return {k: v for k, v in found.items() if np.isfinite(v).all() and len(np.unique(v)) > 1}


def read_models(data: Path, prior: np.ndarray) -> list[Model]:
    """Every model of the MMLU-Pro outcomes, on the items of `prior`: those that are not kept for judging."""
    table = pd.read_parquet(data / "mmlu_pro_outcomes" / "outcomes.parquet")
    items = lines(data / "mmlu_pro_outcomes" / "items.jsonl")
    table = table[
        table.row.isin({item["row"] for item in items if question_hash(item["question"]) not in judged()})
    ]
    return [
        read_model(str(name), group.sort_values("row"), prior)
        for name, group in table.groupby("model", observed=True)
    ]


def read_model(name: str, rows: pd.DataFrame, prior: np.ndarray) -> Model:
    """One model; a probability that is missing or constant counts as unknown."""
    probability = rows.mean_token_probability.to_numpy(float)
    known = np.isfinite(probability)
    if known.mean() < 0.5 or len(np.unique(probability[known])) < 50:  # none, or a constant
        probability = np.full(len(rows), np.nan)
    else:
        probability = np.where(known, probability, np.nanmedian(probability))
    unknown = np.full(len(rows), np.nan)
    signals = SignalArrays(
        kind=np.full(len(rows), AnswerKind.REASONED.value),
        prior=prior,
        stated=np.full(len(rows), True),
        finished=~rows.answer.isna().to_numpy(bool),
        length=rows.response_tokens.to_numpy(float) * CHARACTERS_PER_TOKEN,
        mean_logprob=np.log(np.clip(probability, 1e-6, 1.0)),
        answer_logprob=unknown,
        agreement=unknown,
    )
    return Model(name, rows.correct.to_numpy(float), signals)


def out_of_fold_prior(data: Path, cache: Path | None, folds: int = 5) -> np.ndarray:
    """d(x) of every MMLU-Pro item by an estimator that was not trained on it, with the map of the shipped one."""
    rows = training_mixture(data)
    x, y = features(rows, cache), np.array([r.target for r in rows])
    part = university_part(rows, university_weights())
    mmlu = np.array([r.source == "mmlu_pro" for r in rows])
    fold = np.where(mmlu, np.random.default_rng(42).integers(0, folds, len(rows)), -1)
    raw = np.zeros(len(rows))
    for k in range(folds):
        keep = fold != k
        kept = [r for r, f in zip(rows, keep, strict=True) if f]
        raw[~keep] = fitted_estimator(x[keep], part[keep], y[keep], weights(kept), seeds=(42,)).predict(x[~keep])
    return np.interp(raw[mmlu], *np.array(LearnedEstimator.load().map_).T)


def read_outputs(data: Path, name: str) -> list[Model]:
    """Every model of a set with full outputs, read as `odar eval import` reads them."""
    file = data / name / "outputs.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf8") as rows:
        names = sorted(json.loads(next(rows))["outputs"])
    estimator, models = LearnedEstimator.load(), []
    for model in names:
        answers = read_answers(file, ImportOptions(columns={"text": "outputs.{model}"}, model=model))
        fast = [
            (item, item.attempts[0]) for item in to_items(join_answers(answers, [answers]), estimator, name, {})
        ]
        signals = SignalArrays.from_answers([recorded_signals(attempt, item.difficulty) for item, attempt in fast])
        models.append(Model(model, np.array([attempt.score for _, attempt in fast], float), signals))
    return models


def judge_outputs(models: list[Model], posterior: PosteriorDifficulty, best: str) -> dict[str, object]:
    """Every pair of a set that the weights were not fitted to; `best` is the single signal that was best on MMLU-Pro."""
    rows, noise, every = [], [], np.arange(len(models[0].right))
    for fast in models:
        if slow := partners(fast, models, every):
            gain = gains(fast, slow, every)
            d = posterior.predict(fast.signals, QuantileTables.from_signals(fast.signals))
            found = {"posterior": np.where(np.isnan(d), fast.signals.prior, d)}
            if best in fast.single(every):
                noise.append(deviations(found["posterior"], fast.single(every)[best], gain))
            each = {name: apgrs(values, gain) for name, values in (found | fast.single(every)).items()}
            rows += [{"fast": fast.name, "slow": m.name, "fast_right": fast.right.mean(), "best": best}
                     | {name: values[i] for name, values in each.items()} for i, m in enumerate(slow)]  # fmt: skip
    table = pd.DataFrame(rows)
    strong = table[table.fast_right >= FAST_RIGHT]
    return {
        "all pairs": compared(table, ("posterior",)),
        "noise of so few items": noise_report(np.concatenate(noise, axis=1)),
        f"fast model right on {FAST_RIGHT:.0%} or more": compared(strong, ("posterior",)),
        "lowest": {
            f"{r.fast} → {r.slow}": round(r.posterior, 3) for r in table.nsmallest(3, "posterior").itertuples()
        },
    }


def deviations(ours: np.ndarray, other: np.ndarray, gain: np.ndarray, resamples: int = 200) -> np.ndarray:
    """(resamples, partners) how far the difference of two scores' APGR is from its own value, on items drawn again."""
    rng = np.random.default_rng(42)  # the same draws for every fast model
    value = apgrs(ours, gain) - apgrs(other, gain)
    drawn = (rng.integers(0, len(gain), len(gain)) for _ in range(resamples))
    return np.array([apgrs(ours[i], gain[i]) - apgrs(other[i], gain[i]) - value for i in drawn])


def noise_report(noise: np.ndarray) -> dict[str, object]:
    """What a posterior that is exactly as good as the best single signal would show on so few items."""
    above = (noise > -TOLERANCE).mean(axis=1)
    low, high = np.quantile(above, (0.05, 0.95))
    return {
        "standard error of a pair's difference": round(float(noise.std()), 4),
        f"pairs above −{TOLERANCE} if every true difference was 0": round(float(above.mean()), 4),
        "of nine draws in ten between": [round(float(low), 4), round(float(high), 4)],
    }


def partners(fast: Model, models: list[Model], rows: np.ndarray) -> list[Model]:
    """The slow models that lead by at least `GAP` on these items."""
    return [m for m in models if m.right[rows].mean() - fast.right[rows].mean() >= GAP]


def gains(fast: Model, slow: list[Model], rows: np.ndarray) -> np.ndarray:
    """(items, partners) slow right minus fast right."""
    return np.column_stack([m.right[rows] - fast.right[rows] for m in slow])


def apgrs(score: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """APGR of one score for many partners of a fast model at once; equal scores share their gain."""
    _, place, counts = np.unique(-score, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(place, column) for column in gain.T], axis=1)
    curve = np.vstack(
        [np.zeros(gain.shape[1]), np.cumsum(np.repeat(sums / counts[:, None], counts, axis=0), axis=0)]
    )
    at = np.linspace(0, 1, 11) * len(score)
    low = np.minimum(at.astype(int), len(score) - 1)
    between = curve[low] + (at - low)[:, None] * (curve[low + 1] - curve[low])
    return np.trapezoid(between / curve[-1], dx=0.1, axis=0)


def score(posterior: PosteriorDifficulty, model: Model, rows: np.ndarray, tables: QuantileTables) -> np.ndarray:
    """The score of a model's answers; unfinished ones have the highest."""
    signals = model.signals.rows(rows)
    found = posterior.score(AnswerKind.REASONED, posterior.terms(signals, AnswerKind.REASONED, tables))
    return np.where(signals.finished, found, 1.0)


def fit_reasoned(*sets: tuple[list[Model], np.ndarray]) -> dict[str, float]:
    """Weights from every pair of these models on these items; a fast model counts by the root of its partners."""
    terms, gain, weight = [], [], []
    for models, rows in sets:
        for fast in models:
            slow = partners(fast, models, rows)
            if not slow or fast.right[rows].mean() < FAST_RIGHT:
                continue
            signals = fast.signals.rows(rows)
            tables, per_pair = QuantileTables.from_signals(signals), gains(fast, slow, rows)
            kept = signals.finished
            terms.append(EMPTY.terms(signals, AnswerKind.REASONED, tables)[kept])
            gain.append((per_pair / per_pair.mean(axis=0)).mean(axis=1)[kept])
            weight.append(np.full(kept.sum(), len(slow) ** 0.5 / kept.sum()))
    groups = np.repeat(np.arange(len(terms)), [len(t) for t in terms])
    return fit_weights(np.vstack(terms), np.concatenate(gain), np.concatenate(weight), groups=groups, only=REASONED)


EMPTY = PosteriorDifficulty({k: {"length": 1.0} for k in AnswerKind}, dict.fromkeys(AnswerKind, (0.3, 0.7)))


def with_reasoned(found: dict[str, float]) -> PosteriorDifficulty:
    """A posterior with these weights of reasoned answers."""
    return EMPTY.with_weights(AnswerKind.REASONED, found)


def splits(models: list[Model], items: int) -> Iterator[tuple[list[Model], list[Model], np.ndarray, np.ndarray]]:
    """Models and items to fit to, models and items to judge by: no family and no item is in both."""
    families = sorted({m.family for m in models})
    for seed in range(SPLITS):
        rng = np.random.default_rng(seed)
        order = rng.permutation(items)
        some, others = np.sort(order[: items // 2]), np.sort(order[items // 2 :])
        first: set[str] = set()
        for family in rng.permutation(families):
            if sum(m.family in first or m.family == family for m in models) <= 0.55 * len(models):
                first.add(str(family))
        a, b = [m for m in models if m.family in first], [m for m in models if m.family not in first]
        yield a, b, some, others
        yield b, a, some, others


def judge_left_out(models: list[Model]) -> dict[str, object]:
    """Every left-out pair against the single signal that was best on the training pairs."""
    rows_out = []
    fitted = []
    for taught, unseen, train, test in splits(models, len(models[0].right)):
        single: dict[str, list[float]] = {}
        for fast in taught:
            if slow := partners(fast, taught, train):
                for name, values in fast.single(train).items():
                    single.setdefault(name, []).extend(apgrs(values, gains(fast, slow, train)))
        averages = {name: float(np.mean(v)) for name, v in single.items()}
        best = max(averages, key=lambda name: averages[name])
        posterior = with_reasoned(fit_reasoned((taught, train)))
        fitted.append(posterior.weights[AnswerKind.REASONED])
        shipped = pooled_tables([m for m in taught if m.right.mean() >= FAST_RIGHT], train)
        for fast in unseen:
            slow = partners(fast, unseen, test)
            if not slow:
                continue
            gain = gains(fast, slow, test)
            ours = apgrs(score(posterior, fast, test, QuantileTables.from_signals(fast.signals.rows(train))), gain)
            few = apgrs(
                score(posterior, fast, test, QuantileTables.from_signals(fast.signals.rows(train[:60]), 10)), gain
            )
            cold = apgrs(score(posterior, fast, test, shipped), gain)
            silent = replace(fast, signals=replace(fast.signals, mean_logprob=fast.signals.answer_logprob))
            none = apgrs(
                score(posterior, silent, test, QuantileTables.from_signals(silent.signals.rows(train))), gain
            )
            alone = {name: apgrs(values, gain) for name, values in fast.single(test).items()}
            for i, partner in enumerate(slow):
                row = {"fast": fast.name, "slow": partner.name, "fast_right": fast.right.mean(), "best": best,
                       "posterior": ours[i], "60 answers": few[i], "shipped tables": cold[i],
                       "no log-probs": none[i]}  # fmt: skip
                rows_out.append(row | {name: values[i] for name, values in alone.items()})
    table = pd.DataFrame(rows_out)
    return {"table": table, "weights": fitted}


def pooled_tables(models: list[Model], rows: np.ndarray) -> QuantileTables:
    """The median table of several models, for models of which nothing is known."""
    own = [QuantileTables.from_signals(m.signals.rows(rows)).tables for m in models]
    keys = {key for tables in own for key in tables}
    return QuantileTables({key: np.median([t[key] for t in own if key in t], axis=0) for key in sorted(keys)})


def compared(table: pd.DataFrame, ours: Sequence[str]) -> dict[str, object]:
    """Mean APGR by signal, and the differences that SPEC 5.11 judges by."""
    singles = [name for name in ("length", "mean log-prob", "prior", "unstated") if name in table]
    report: dict[str, object] = {"pairs": len(table)}
    report["mean APGR"] = {name: round(float(table[name].mean()), 4) for name in (*singles, *ours)}
    best = np.array([row.get(row["best"], np.nan) for _, row in table.iterrows()], dtype=float)
    for name in ours:
        for label, other in {
            "best single signal": best,
            **{single: table[single].to_numpy(float) for single in singles},
        }.items():
            difference = (table[name].to_numpy(float) - other)[np.isfinite(other)]
            report[f"{name} − {label}"] = {
                "pairs": len(difference),
                "median": round(float(np.median(difference)), 4),
                f"above −{TOLERANCE}": round(float((difference > -TOLERANCE).mean()), 4),
            }
    short = table[table[ours[0]].to_numpy(float) - best <= -TOLERANCE]
    report["fast models of the pairs below"] = {
        str(k): int(v) for k, v in short.groupby("fast").size().sort_values(ascending=False).items()
    }
    return report


def judge_nano(models: list[Model]) -> dict[str, float]:
    """gpt-4.1-nano → gpt-4.1: single signals, zero-shot, and calibrated by five folds of its own items."""
    by_name = {m.name: m for m in models}
    fast, slow = by_name["gpt-4.1-nano"], by_name["gpt-4.1"]
    rows = np.arange(len(fast.right))
    out = {name: apgr(values, fast.right, slow.right) for name, values in fast.single(rows).items()}
    others = [m for m in models if m.family != "gpt-4"]
    posterior = with_reasoned(fit_reasoned((others, rows)))
    pooled = pooled_tables([m for m in others if m.right.mean() >= FAST_RIGHT], rows)
    tables = QuantileTables.from_signals(fast.signals)
    out["zero-shot, shipped tables"] = apgr(score(posterior, fast, rows, pooled), fast.right, slow.right)
    out["zero-shot, own quantiles"] = apgr(score(posterior, fast, rows, tables), fast.right, slow.right)
    fold = np.random.default_rng(42).integers(0, 5, len(rows))
    found = np.zeros(len(rows))
    for k in range(5):
        seen = fold != k
        own = QuantileTables.from_signals(fast.signals.rows(seen))
        terms = posterior.terms(fast.signals, AnswerKind.REASONED, own)
        kept = seen & fast.signals.finished
        fitted = fit_weights(
            terms[kept], (slow.right - fast.right)[kept], start=posterior.weights[AnswerKind.REASONED]
        )
        found[~seen] = score(with_reasoned(fitted), fast, rows, own)[~seen]
    out["calibrated, 5-fold"] = apgr(found, fast.right, slow.right)
    return {name: round(value, 4) for name, value in out.items()}


def words(text: str) -> list[str]:
    """Words as SQuAD's F1 counts them."""
    plain = "".join(c for c in text.lower() if c.isalnum() or c.isspace())
    return [w for w in plain.split() if w not in ("a", "an", "the")]


def f1(a: str, b: str) -> float:
    """Overlap of words, from 0 to 1."""
    left, right = words(a), words(b)
    common = sum(min(left.count(w), right.count(w)) for w in set(left))
    return 2 * common / (len(left) + len(right)) if common else float(left == right)


LABELS = ("entailment", "contradiction", "not mentioned")


def label(text: str) -> str:
    """The first label of ContractNLI that a text names."""
    places = [(text.lower().find(name), name) for name in LABELS if name in text.lower()]
    return min(places)[1] if places else ""


def free_text(data: Path) -> dict[str, list[dict]]:
    """The rows of `freetext_cascade` by set."""
    found: dict[str, list[dict]] = {}
    with gzip.open(data / "freetext_cascade" / "outcomes.jsonl.gz", "rt", encoding="utf8") as file:
        for row in map(json.loads, file):
            found.setdefault(row["set"], []).append(row)
    return found


def served_signals(rows: list[dict]) -> SignalArrays:
    """The second fast sample, which has a log-probability, as `odar eval import` reads it."""
    found = []
    for first, served in (row["fast"] for row in rows):
        text, mean = served["text"], served["mean_logprob"]
        attempt = Attempt(step=Step.ANSWER, model="fast", text=text, answer=text, mean_logprob=mean)
        found.append(replace(recorded_signals(attempt, np.nan), agreement=f1(first["text"], text)))
    return SignalArrays.from_answers(found)


def judge_free_text(data: Path, posterior: PosteriorDifficulty) -> dict[str, dict[str, float]]:
    """`freetext_cascade` by set: each signal alone, and the posterior with shipped weights and own quantiles."""
    report = {}
    for name, part in free_text(data).items():
        pairs = [(row["fast"][1]["text"], row["gold"]) for row in part]
        fast = np.array([float(label(t) == label(g)) if name == "cnli" else f1(t, g) for t, g in pairs])
        slow = np.array([row["slow"][0]["score"] for row in part])
        two = served_signals(part)
        one = replace(two, agreement=np.full(len(two), np.nan))
        own = QuantileTables.from_signals(two)
        scores = {
            "length": two.length,
            "mean log-prob": -two.mean_logprob,
            "log-prob of the whole text": -two.mean_logprob * np.maximum(1, two.length / CHARACTERS_PER_TOKEN),
            "agreement of two samples": -two.agreement,
            "posterior, one sample": posterior.predict(one, own),
            "posterior, two samples": posterior.predict(two, own),
            "posterior, one sample, shipped tables": posterior.predict(one),
        }
        report[name] = {k: round(apgr(v, fast, slow), 4) for k, v in scores.items()} | {
            "direct": round(float((two.kind == "direct").mean()), 3),
            "fast": round(float(fast.mean()), 4), "slow": round(float(slow.mean()), 4),
        }  # fmt: skip
    return report


def free_text_tables(data: Path) -> QuantileTables:
    """Shipped quantiles of free text and of direct answers: Llama-3.1-8B on three sets.

    Direct answers of larger models are far surer (half of them above a probability of 0.999). So half of their table is
    spread evenly over the magnitudes of the log-probability from 1e-6 to 1: whatever the model, no large part of
    its answers has nearly one rank.
    """
    signals = served_signals([row for name, rows in free_text(data).items() if name != "cnli" for row in rows])
    tables = QuantileTables.from_signals(signals)
    for name in ("answer_logprob", "mean_logprob"):
        known = getattr(signals, name)[signals.kind == "direct"]
        wide = -np.logspace(-6, 0, len(known))
        tables = QuantileTables.fit({("direct", name): [*known, *wide]}).with_fallback(tables)
    return tables


def prior_tables() -> QuantileTables:
    """Shipped quantiles of d(x): the shipped estimator on the reference mixture of SPEC 2.10."""
    with np.load(MIXTURE) as file:
        d = LearnedEstimator.load().predict(file["features"].astype(float))
    return QuantileTables.fit({(kind.value, "prior"): d for kind in AnswerKind})


def rescaled(tables: QuantileTables) -> QuantileTables:
    """Tables of the mean log-probability from those of the log of the mean probability: lower, by Jensen's inequality.

    The factor is the median of the reasoned answers in the recording of the local pair, the only ones with both figures.
    """
    ratios = []
    for item in open_recording(RECORDING).items():
        for attempt in item.attempts:
            if answer_kind(attempt.text, attempt.answer, attempt.stated) is AnswerKind.REASONED and attempt.tokens:
                known = [
                    v
                    for v, control in zip(attempt.logprobs, attempt.control, strict=True)
                    if v is not None and not control
                ]
                ratios.append(np.mean(known) / np.log(np.mean(np.exp(known))))
    factor = float(np.median(ratios))
    print(f"mean log-probability / log of the mean probability: {factor:.2f}, {len(ratios)} reasoned answers")
    scaled = {key: factor * table for key, table in tables.tables.items() if key[1] == "mean_logprob"}
    return QuantileTables(tables.tables | scaled)


def knots(posterior: PosteriorDifficulty, models: list[Model]) -> dict[str, tuple[float, float]]:
    """The scores below which the paper's shares of answers are; unknown kinds as for independent, uniform ranks."""
    found = {}
    for kind in AnswerKind:
        if kind is AnswerKind.REASONED:
            some = [m for m in models if m.right.mean() >= FAST_RIGHT]
            every = np.arange(len(models[0].right))
            values = np.concatenate(
                [score(posterior, m, every, QuantileTables.from_signals(m.signals)) for m in some]
            )
        else:
            terms = np.random.default_rng(42).random((20_000, len(TERMS)))
            terms[:, [TERMS.index("disagreement"), TERMS.index("unstated")]] = np.nan, 0.0
            values = posterior.score(kind, terms)
        low, high = np.quantile(values, PAPER_MIX)
        found[kind.value] = (round(float(low), 4), round(float(high), 4))
    return found


def main() -> None:
    """Judge, then fit on everything and write the file."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, default=OUT)
    cli.add_argument("--cache", type=Path, help="features kept by train_estimator.py")
    cli.add_argument("--report-only", action="store_true", help="evaluate only; write nothing")
    args = cli.parse_args()
    models = read_models(args.data, out_of_fold_prior(args.data, args.cache))
    every = np.arange(len(models[0].right))
    outputs = {name: read_outputs(args.data, name) for name in OUTPUTS}
    fitted = {"mmlu_pro": (models, every)} | {
        name: (part, np.arange(len(part[0].right))) for name, part in outputs.items()
    }
    found = fit_reasoned(*fitted.values())
    posterior = with_reasoned(found | {"disagreement": DISAGREEMENT})
    for kind, row in UNSEEN_KINDS.items():
        posterior = posterior.with_weights(kind, row)
    tables = pooled_tables([m for m in models if m.right.mean() >= FAST_RIGHT], every)
    shipped = prior_tables().with_fallback(free_text_tables(args.data)).with_fallback(rescaled(tables))
    posterior = replace(posterior, knots=knots(posterior, models), tables=shipped)
    report: dict[str, object] = {
        "weights": found,
        "gpt-4.1-nano → gpt-4.1": judge_nano(models),
        "freetext_cascade": judge_free_text(args.data, posterior),
    }
    left_out = judge_left_out(models)
    report["left-out pairs"] = {"splits": SPLITS * 2} | compared(
        left_out["table"], ("posterior", "60 answers", "shipped tables", "no log-probs")
    )
    best = left_out["table"]["best"].mode()[0]
    for name, part in outputs.items():
        others = fit_reasoned(*(each for other, each in fitted.items() if other != name))
        report[name] = judge_outputs(part, posterior.with_weights(AnswerKind.REASONED, others), best)
    report["weights by split"] = {
        term: [round(float(w.get(term, 0.0)), 3) for w in left_out["weights"]] for term in REASONED
    }
    print(json.dumps(report, indent=1, ensure_ascii=False))
    if args.report_only:
        return
    document = replace(
        posterior,
        about={
            "made_by": "scripts/fit_posterior.py",
            "data": "MMLU-Pro outcomes (MIT: Linwei94/LLM-Calibration-Study), 5,222 items, 83 models; "
            "MATH level 5 and CRUXEval outputs (Apache-2.0: WildEval/ZeroEval), 15 models; "
            "free-text outcomes (Apache-2.0: wangy8205165/ANLP-LLM-Routing-and-Cascading)",
            "label": "slow right minus fast right",
            "caps": {"unsure": UNSURE_CAP, "easy": EASY_RANGE, "hard": HARD_RANGE},
            "signals": list(RANKED),
        },
    ).to_dict()
    (args.out / "posterior.json").write_text(json.dumps(document, indent=1) + "\n", "utf8")
    (args.out / "posterior.report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf8")


if __name__ == "__main__":
    main()
