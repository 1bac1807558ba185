"""Recorded answers of many models on the same items, as arrays: MMLU-Pro, MATH level 5, CRUX.

Reading and scoring the texts takes two minutes, and d(x) by estimators that have not seen the item four more (`pip install -e
'.[train]'`), so all of it is kept under ~/.cache/odar-cascade.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from odar.policy.equivalence import group_answers

CACHE = Path.home() / ".cache" / "odar-cascade"
FAMILIES = {
    "qwen": ("qwen", "qwq"), "llama": ("llama", "nemotron"), "gemma": ("gemma",), "gemini": ("gemini",),
    "gpt": ("gpt", "o1-", "o3-", "o4-", "chatgpt"), "claude": ("claude",), "deepseek": ("deepseek",),
    "mistral": ("mistral", "mixtral"), "phi": ("phi-",), "grok": ("grok",),
}  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """What M models answered to N items. NaN where a signal is unknown; group −1 where no answer was given."""

    name: str
    models: list[str]
    families: list[str]
    right: np.ndarray  # (M, N) bool
    group: np.ndarray  # (M, N) int: equal answers to an item have the same number
    length: np.ndarray  # (M, N) characters
    mean_logprob: np.ndarray  # (M, N)
    stated: np.ndarray  # (M, N) bool
    prior: np.ndarray  # (N,) d(x) by an estimator that was not trained on the item
    plausible: np.ndarray  # (N,) number of plausible answers; 0 for many

    @property
    def accuracy(self) -> np.ndarray:
        """Share of right answers of each model."""
        return self.right.mean(axis=1)


def family_of(model: str) -> str:
    """The family of a model by its name."""
    lower = model.lower()
    return next((family for family, marks in FAMILIES.items() if any(mark in lower for mark in marks)), lower)


def load(name: str, data: Path) -> Recorded:
    """One set from the cache, or from the data folder."""
    file = CACHE / f"{name}.npz"
    if not file.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        found = mmlu_pro(data) if name == "mmlu_pro" else outputs(data, name)
        np.savez_compressed(file, **found)
    with np.load(file, allow_pickle=False) as kept:
        return from_arrays(name, dict(kept))


def from_arrays(name: str, arrays: dict[str, np.ndarray]) -> Recorded:
    """A set from its arrays, of which one has the models' names."""
    models = [str(m) for m in arrays.pop("models")]
    return Recorded(name, models, [family_of(m) for m in models], **arrays)


def mmlu_pro(data: Path) -> dict[str, np.ndarray]:
    """The outcomes of 83 models, without the items on which the local pair is judged."""
    items = mmlu_pro_items(data)
    prior = out_of_fold_prior(data, items)
    items = [item for item in items if item["row"] in prior]
    return {**mmlu_pro_outcomes(data, items), "prior": np.array([prior[item["row"]] for item in items])}


def mmlu_pro_items(data: Path) -> list[dict]:
    """The questions, with row and options."""
    return [
        json.loads(line) for line in (data / "mmlu_pro_outcomes" / "items.jsonl").read_text("utf8").splitlines()
    ]


def mmlu_pro_outcomes(data: Path, items: list[dict]) -> dict[str, np.ndarray]:
    """What all models answered to these items: the arrays of `Recorded` but for the prior."""
    import pyarrow.parquet

    place = {item["row"]: i for i, item in enumerate(items)}
    table = pyarrow.parquet.read_table(data / "mmlu_pro_outcomes" / "outcomes.parquet").to_pydict()
    models = sorted(set(table["model"]))
    number = {model: i for i, model in enumerate(models)}
    shape = (len(models), len(items))
    found = {
        "right": np.zeros(shape, bool), "group": np.full(shape, -1, np.int16),
        "length": np.full(shape, np.nan), "mean_logprob": np.full(shape, np.nan),
    }  # fmt: skip
    columns = ("model", "row", "correct", "answer", "response_tokens", "mean_token_probability")
    for model, row, right, answer, tokens, probability in zip(*(table[c] for c in columns), strict=True):
        if row not in place:
            continue
        at = number[model], place[row]
        found["right"][at] = right
        found["group"][at] = ord(answer) - ord("A") if answer else -1
        found["length"][at] = np.nan if tokens is None else tokens * 4
        found["mean_logprob"][at] = np.nan if probability is None else np.log(max(probability, 1e-6))
    for row in found["mean_logprob"]:
        if len(np.unique(row[np.isfinite(row)])) < 50:  # none, or a constant
            row[:] = np.nan
    return {
        **found,
        "models": np.array(models),
        "stated": found["group"] >= 0,
        "plausible": np.array([len(item["options"]) for item in items]),
    }


def out_of_fold_prior(data: Path, items: list[dict]) -> dict[int, float]:
    """d(x) by row, without the items on which the local pair is judged."""
    file = CACHE / "prior.npz"
    if not file.exists():
        from mixture import judged, question_hash

        rows = [item["row"] for item in items if question_hash(item["question"]) not in judged()]
        np.savez(file, row=np.array(rows), prior=difficulty_of_unseen(data))
    with np.load(file) as kept:
        return dict(zip(kept["row"].tolist(), kept["prior"].tolist(), strict=True))


def difficulty_of_unseen(data: Path, folds: int = 5) -> np.ndarray:
    """d(x) of every MMLU-Pro item by an estimator that was not trained on it, with the map of the shipped one."""
    from mixture import training_mixture
    from train_estimator import features, weights

    from odar.difficulty.estimator import LearnedEstimator
    from odar.lab.training import EPOCHS, fit

    rows = training_mixture(data)
    x = features(rows, CACHE / "features.npy")
    target = np.array([row.target for row in rows])
    mmlu = np.array([row.source == "mmlu_pro" for row in rows])
    fold = np.where(mmlu, np.random.default_rng(42).integers(0, folds, len(rows)), -1)
    raw = np.zeros(len(rows))
    for number in range(folds):
        keep = fold != number
        kept = [row for row, is_kept in zip(rows, keep, strict=True) if is_kept]
        estimator = fit(x[keep], target[keep], weights(kept), seeds=(42,), epochs=EPOCHS)
        raw[~keep] = estimator.predict(x[~keep])
    return np.interp(raw[mmlu], *np.array(LearnedEstimator.load().map).T)


def outputs(data: Path, name: str) -> dict[str, np.ndarray]:
    """A set with full outputs, read and scored as `odar eval import` does."""
    from odar.difficulty.estimator import LearnedEstimator
    from odar.lab.recording.importers import read_answers
    from odar.lab.recording.joining import join_answers, to_items
    from odar.lab.recording.schema import Attempt
    from odar.types import FAST, SLOW

    file = data / f"{name}_outputs" / "outputs.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf8") as rows:
        models = sorted(json.loads(next(rows))["outputs"])
    estimator = LearnedEstimator.load()
    by_model: list[dict[str, Attempt]] = []
    for model in models:
        answers = read_answers(file, columns={"text": "outputs.{model}"}, model=model)
        items = to_items(join_answers({FAST: answers, SLOW: answers}), estimator, name, {})
        by_model.append({item.query: item.attempts[0] for item in items})
    everything = dict.fromkeys(query for answers in by_model for query in answers)
    shape = (len(models), len(everything))
    right = np.zeros(shape, bool)
    stated = np.zeros(shape, bool)
    length = np.full(shape, np.nan)
    group = np.full(shape, -1, np.int16)
    for i, query in enumerate(everything):
        answers = {
            m: known[query] for m, known in enumerate(by_model) if query in known
        }  # an empty output is missing
        for m, attempt in answers.items():
            right[m, i] = bool(attempt.score)
            stated[m, i] = attempt.stated
            length[m, i] = len(attempt.text)
        given = [m for m, attempt in answers.items() if attempt.answer.strip() or attempt.score]
        texts = [answers[m].answer.strip() or "''" for m in given]  # the empty string is an answer of CRUX
        group[given, i] = group_answers(texts)
    return {
        "models": np.array(models),
        "right": right,
        "group": group,
        "length": length,
        "mean_logprob": np.full(shape, np.nan),
        "stated": stated,
        "prior": np.full(len(everything), np.nan),  # the shipped estimator was trained on these items
        "plausible": np.zeros(len(everything), int),
    }
