"""Choosing among free-text answers, and routing by agreement, on recorded outputs: the tables of docs/peers.md.

    python scripts/bench_freetext.py DATA [--limit 100] [--embed 100] [--json]

DATA is the folder with `alpaca_eval` and `freetext_cascade`. Skills are fitted on four fifths of the questions and
used on the other fifth. Embeddings take half an hour for all questions on two cores, so `--embed` takes some.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.fusion_fit import GAMMAS
from odar.calibration.parts import folds
from odar.evals.router_quality import apgr
from odar.evals.scorers.text import f1, normal
from odar.policy.fusion import Fusion
from odar.policy.rules import Votes, fuse
from odar.policy.similarity import SIMILARITIES, lexical, weighted_words, word_overlap
from odar.types import Candidate, Energy, Step, Token

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
FOLDS = 5
GROUPS = {
    "five FuseChat models": (
        "FuseChat-Llama-3.2-1B-Instruct",
        "FuseChat-Llama-3.2-3B-Instruct",
        "FuseChat-Qwen-2.5-7B-Instruct",
        "FuseChat-Llama-3.1-8B-Instruct",
        "FuseChat-Gemma-2-9B-Instruct",
    ),
    "five unlike models": (
        "gemma-7b-it",
        "OpenHermes-2.5-Mistral-7B",
        "vicuna-13b-v1.5",
        "gpt-3.5-turbo-1106",
        "claude-2.1",
    ),
}
LABELS = ("entailment", "contradiction", "not mentioned")


def read(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a compressed JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def similarities(texts: Sequence[Sequence[str]], compare: Callable[[Sequence[str]], Array]) -> Array:
    """Return (N, M, M) similarities, with progress."""
    found = []
    for number, row in enumerate(texts, 1):
        found.append(compare(row))
        if number % 50 == 0 and sys.stderr.isatty():
            print(f"\r{number} of {len(texts)}", end="", file=sys.stderr)
    return np.array(found)


def dice(first: Sequence[str], second: Sequence[str]) -> Array:
    """Return `word_overlap` of every pair, as a table."""
    words = [weighted_words(text) for text in (*first, *second)]
    columns = {word: place for place, word in enumerate(dict.fromkeys(w for each in words for w in each))}
    weights = np.zeros((len(words), max(1, len(columns))))
    for row, each in enumerate(words):
        weights[row, [columns[word] for word in each]] = list(each.values())
    one, other = weights[: len(first)], weights[len(first) :]
    common = np.array([np.minimum(row, other).sum(axis=1) for row in one])
    return np.asarray(2 * common / np.maximum(1e-9, one.sum(axis=1)[:, None] + other.sum(axis=1)[None, :]))


def without_floor(texts: Sequence[str]) -> Array:
    """Compare words, without the floor."""
    return np.maximum(dice(texts, texts), np.eye(len(texts)))


def by_sentences(texts: Sequence[str]) -> Array:
    """Compare each sentence with the most similar one of the other answer; the mean over both directions."""
    cut = [[s for s in re.split(r"(?<=[.!?])\s+|\n+", text) if s.strip()][:30] or [text] for text in texts]
    s = np.eye(len(texts))
    for i, one in enumerate(cut):
        for j in range(i):
            table = dice(one, cut[j])
            s[i, j] = s[j, i] = (table.max(axis=0).mean() + table.max(axis=1).mean()) / 2
    return s


def medoid(s: Array, skills: Array | None = None) -> Ints:
    """Choose by soft answer free energy at β = 0; without log-probs all energies are equal."""
    n, m, _ = s.shape
    votes = Votes(np.zeros((n, m)), np.tile(np.arange(m), (n, 1)), np.zeros((n, m), dtype=bool), similarity=s)
    return fuse(votes, 0.0, np.ones((1, m)) if skills is None else skills)


def skilled(s: Array, score: Array, seed: int = 0) -> Ints:
    """Choose with w = exp(γ·logit p), where p is a source's mean score; γ and p from the other folds."""
    fold, winners = folds(len(s), seed, FOLDS), np.zeros(len(s), dtype=np.int64)
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        share = np.clip(score[train].mean(axis=0), 0.01, 0.99)
        logits = np.log(share / (1 - share))
        weights = [np.exp(gamma * (logits - logits.max()))[None, :] for gamma in GAMMAS]
        best = max(weights, key=lambda w: picked(score[train], medoid(s[train], w)).mean())
        winners[test] = medoid(s[test], best)
    return winners


def best_single(score: Array, seed: int = 0) -> Ints:
    """Choose the source that is best on the other folds."""
    fold = folds(len(score), seed, FOLDS)
    best = np.array([score[fold != number].mean(axis=0).argmax() for number in range(FOLDS)])
    return np.asarray(best[fold])


def picked(score: Array, winners: Ints) -> Array:
    """Return the scores of the chosen answers."""
    return np.asarray(score[np.arange(len(score)), winners])


def length_controlled(score: Array, lengths: Array) -> Array:
    """Return preferences without what length explains.

    Within each question, preference is regressed on the logarithm of the length, both as differences to the
    question's mean; what the slope predicts is taken off.
    """
    x = np.log(np.maximum(lengths, 1.0))
    x = x - x.mean(axis=1, keepdims=True)
    y = score - score.mean(axis=1, keepdims=True)
    return np.asarray(score - (x * y).sum() / (x * x).sum() * x)


def alpaca(rows: list[dict[str, Any]], models: Sequence[str], embed: int) -> dict[str, Any]:
    """Every way to choose one of the models' outputs, as mean preference over GPT-4-turbo's."""
    texts = [[row["outputs"][model]["text"] for model in models] for row in rows]
    score = np.array([[row["outputs"][model]["preference"] for model in models] for row in rows])
    lengths = np.array([[len(text) for text in row] for row in texts], dtype=np.float64)
    controlled = length_controlled(score, lengths)
    soft = similarities(texts, lexical)
    chosen: dict[str, Ints] = {
        "soft free energy, β = 0": medoid(soft),
        "medoid, no floor": medoid(similarities(texts, without_floor)),
        "medoid by sentences": medoid(similarities(texts, by_sentences)),
        "soft free energy with skills": skilled(soft, score),
        "longest": lengths.argmax(axis=1),
        "shortest": lengths.argmin(axis=1),
        "best single model": best_single(score),
    }
    table = {name: _row(score, controlled, winners) for name, winners in chosen.items()}
    table["random"] = {
        "preference": bootstrap_mean(score.mean(axis=1)),
        "controlled": bootstrap_mean(controlled.mean(axis=1)),
    }
    table["best of each question"] = _row(score, controlled, score.argmax(axis=1))
    found = {"questions": len(rows), "rules": table}
    if embed:
        some = np.linspace(0, len(rows) - 1, min(embed, len(rows))).astype(int)
        s = similarities([texts[i] for i in some], SIMILARITIES["minilm"])
        part, part_controlled = score[some], controlled[some]
        found["embedded"] = {
            "questions": len(some),
            "rules": {
                "embedding medoid": _row(part, part_controlled, medoid(s)),
                "embedding medoid with skills": _row(part, part_controlled, skilled(s, part)),
                "soft free energy, β = 0": _row(part, part_controlled, medoid(soft[some])),
                "soft free energy with skills": _row(part, part_controlled, skilled(soft[some], part)),
                "random": {
                    "preference": bootstrap_mean(part.mean(axis=1)),
                    "controlled": bootstrap_mean(part_controlled.mean(axis=1)),
                },
            },
            "embedding minus words": bootstrap_mean(
                picked(part, medoid(s)) - picked(part, medoid(soft[some])), shares=False
            ),
        }
    return found


def _row(score: Array, controlled: Array, winners: Ints) -> dict[str, Interval]:
    return {
        "preference": bootstrap_mean(picked(score, winners)),
        "controlled": bootstrap_mean(picked(controlled, winners)),
    }


def cascade(rows: list[dict[str, Any]], embed: int) -> dict[str, Any]:
    """Two answers of the fast model and one of the slow: which is chosen, and what routing by agreement gives."""
    texts = [[row["fast"][0]["text"], row["fast"][1]["text"], row["slow"][0]["text"]] for row in rows]
    score = np.array(
        [[_score(row["set"], row["gold"], text) for text in each] for row, each in zip(rows, texts, strict=True)]
    )
    mean_logprob = np.array([row["fast"][1]["mean_logprob"] for row in rows])
    soft = similarities(texts, lexical)
    agreement = np.array([word_overlap(first, second) for first, second, _ in texts])
    chosen = {
        "soft free energy, β = 0": medoid(soft),
        "soft free energy with skills": skilled(soft, score),
        "best single model": best_single(score),
    }
    table = {name: bootstrap_mean(picked(score, winners)) for name, winners in chosen.items()}
    for column, name in enumerate(("fast, first sample", "fast, second sample", "slow")):
        table[name] = bootstrap_mean(score[:, column])
    table["skills minus best single"] = bootstrap_mean(
        picked(score, chosen["soft free energy with skills"]) - picked(score, chosen["best single model"]),
        shares=False,
    )
    signals = {"mean log-prob": -mean_logprob, "agreement by words": -agreement}
    if embed:
        s = similarities([each[:2] for each in texts], SIMILARITIES["minilm"].cosines)  # type: ignore[attr-defined]
        signals["agreement by embeddings"] = -s[:, 0, 1]
    signals["log-prob and agreement"] = _rank(-mean_logprob) + _rank(-agreement)
    # the log-prob is of the second sample, so that one's answer is what routing would return
    routed = {name: apgr(signal, score[:, 1], score[:, 2]) for name, signal in signals.items()}
    return {"questions": len(rows), "rules": table, "apgr": routed}


def _score(name: str, gold: str, text: str) -> float:
    """F1; of ContractNLI, whether the first label that the text names is the right one."""
    if name != "cnli":
        return f1([gold], text)
    said = normal(text)
    places = {label: said.find(label) for label in LABELS if label in said}
    return float(bool(places) and min(places, key=lambda label: places[label]) == normal(gold))


def _rank(values: Array) -> Array:
    return np.asarray(values.argsort().argsort() / len(values))


def timing() -> dict[str, float]:
    """Return CPU milliseconds of one decision between six answers of 200 tokens."""
    lexicon = "the river carries sand and small stones from mountains to lakes where fine layers slowly settle"
    words = lexicon.split()
    rng = np.random.default_rng(0)
    candidates = []
    for _ in range(6):
        text = " ".join(rng.choice(words, 198)) + "."
        tokens = tuple(Token(f" {word}", -0.1) for word in text.split())
        candidates.append(Candidate(Step.SOLVE, "m", text, text, tokens, energy=Energy(0.1, 0.0, 0.1, 0.1)))
    found = {}
    for name in ("none", "lexical", "minilm"):
        fusion = Fusion(beta=0.25, similarity=name)
        fusion.choose(candidates)
        started = time.process_time()
        for _ in range(5):
            fusion.choose(candidates)
        found[name] = (time.process_time() - started) / 5 * 1000
    return found


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--embed", type=int, default=0, metavar="N", help="Questions to embed; 0 embeds none.")
    parser.add_argument("--limit", type=int, metavar="N", help="Instructions of AlpacaEval, evenly spread.")
    parser.add_argument("--only", choices=["alpaca", "cascade", "timing"], help="One part alone.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    if given.only in (None, "alpaca"):
        rows = read(given.data / "alpaca_eval" / "outputs.jsonl.gz")
        if given.limit:
            rows = [rows[i] for i in np.linspace(0, len(rows) - 1, given.limit).astype(int)]
        found["alpaca_eval"] = {}
        for name, models in GROUPS.items():
            found["alpaca_eval"][name] = alpaca(rows, models, given.embed)
            print(f"{name}: done", file=sys.stderr)
            if not given.json:
                show({name: found["alpaca_eval"].pop(name)})
                sys.stdout.flush()
    if given.only in (None, "cascade"):
        rows = read(given.data / "freetext_cascade" / "outcomes.jsonl.gz")
        sets = sorted({row["set"] for row in rows})
        found["freetext_cascade"] = {
            name: cascade([row for row in rows if row["set"] == name], given.embed) for name in sets
        }
    if given.only == "timing":
        found["cpu_ms"] = timing()
    if given.json:
        print(json.dumps(found))
    else:
        show(found)


def show(found: Any, depth: int = 0) -> None:
    """Print nested results, a line for each figure."""
    for name, value in found.items():
        lead = "  " * depth + name
        if isinstance(value, Interval):
            print(f"{lead:44}{value.signed() if 'minus' in name else value}")
        elif isinstance(value, dict) and "controlled" in value:
            print(f"{lead:44}" + "   ".join(f"{each}" for each in value.values()))
        elif isinstance(value, dict):
            print(lead)
            show(value, depth + 1)
        else:
            print(f"{lead:44}{value:.3f}" if isinstance(value, float) else f"{lead:44}{value}")


if __name__ == "__main__":
    main()
