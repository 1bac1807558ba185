"""Choosing among free-text answers and routing by agreement, on recorded outputs: the tables of docs/peers.md.

    python scripts/benchmarks/bench_freetext.py DATA            # all parts; writes the tables into docs/peers.md
    python scripts/benchmarks/bench_freetext.py DATA --only pair --stdout

DATA is the folder with `alpaca_eval` and `freetext_cascade`. Skills are fitted on four fifths of the questions and
used on the other fifth.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from odar.lab.graders.text import f1, normalize
from odar.lab.intervals import Interval, bootstrap_mean
from odar.lab.replay.policies import run_policy
from odar.lab.replay.table import load_table
from odar.lab.router_quality import apgr
from odar.policy.fusion import Fusion
from odar.policy.fusion_rules import Ballot, free_energy_rule, winner
from odar.policy.similarity import lexical_similarity, weighted_words, word_overlap
from odar.types import Candidate, Energy, Step, Token

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "peers.md"
FEWEST = 12
"""Items below which no interval is printed."""
PARTS = ("alpaca", "cascade", "pair", "timing")
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
FOLDS = 5
GAMMAS = (0.0, 0.5, 1.0, 2.0, 4.0, 16.0)
"""Exponents of the skill weights that are tried."""
LABELS = ("entailment", "contradiction", "not mentioned")


def read(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a compressed JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def similarities(texts: Sequence[Sequence[str]], compare: Callable[[Sequence[str]], Array]) -> Array:
    """Return (N, M, M) similarities."""
    return np.array([compare(row) for row in texts])


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
    weights = np.broadcast_to(np.ones(m) if skills is None else skills, (n, m))
    ballots = [Ballot(np.zeros(m), np.arange(m), weights[i], 0.0, s[i]) for i in range(n)]
    return np.array([winner(free_energy_rule(ballot)) for ballot in ballots])


def fold_masks(count: int, seed: int) -> list[NDArray[np.bool_]]:
    """Divide items at random into folds, and return the mask of each."""
    fold = np.random.default_rng(seed).permutation(count) % FOLDS
    return [fold == number for number in range(FOLDS)]


def skilled(s: Array, score: Array, seed: int = 0) -> Ints:
    """Choose with w = exp(γ·logit p), where p is a source's mean score; γ and p from the other folds."""
    winners = np.zeros(len(s), dtype=np.int64)
    for test in fold_masks(len(s), seed):
        train = ~test
        share = np.clip(score[train].mean(axis=0), 0.01, 0.99)
        logits = np.log(share / (1 - share))
        weights = [np.exp(gamma * (logits - logits.max()))[None, :] for gamma in GAMMAS]
        best = max(weights, key=lambda w: picked(score[train], medoid(s[train], w)).mean())
        winners[test] = medoid(s[test], best)
    return winners


def best_single(score: Array, seed: int = 0) -> Ints:
    """Choose the source that is best on the other folds."""
    best = np.zeros(len(score), dtype=np.int64)
    for test in fold_masks(len(score), seed):
        best[test] = score[~test].mean(axis=0).argmax()
    return best


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


def alpaca(rows: list[dict[str, Any]], models: Sequence[str]) -> dict[str, Any]:
    """Every way to choose one of the models' outputs, as mean preference over GPT-4-turbo's."""
    texts = [[row["outputs"][model]["text"] for model in models] for row in rows]
    score = np.array([[row["outputs"][model]["preference"] for model in models] for row in rows])
    lengths = np.array([[len(text) for text in row] for row in texts], dtype=np.float64)
    controlled = length_controlled(score, lengths)
    soft = similarities(texts, lexical_similarity)
    chosen: dict[str, Ints] = {
        "longest": lengths.argmax(axis=1),
        "medoid without a floor": medoid(similarities(texts, without_floor)),
        "medoid, sentence by sentence": medoid(similarities(texts, by_sentences)),
        "**soft free energy**": medoid(soft),
        "**soft free energy, skills**": skilled(soft, score),
    }
    chosen |= {"best single model": best_single(score), "the best output of each": score.argmax(axis=1)}
    table = {"random": _figures(score.mean(axis=1), controlled.mean(axis=1))}
    table |= {name: _figures(picked(score, each), picked(controlled, each)) for name, each in chosen.items()}

    def minus(one: str, other: str) -> tuple[Interval, Interval]:
        return _figures(
            picked(score, chosen[one]) - picked(score, chosen[other]),
            picked(controlled, chosen[one]) - picked(controlled, chosen[other]),
            shares=False,
        )

    differences = {"skills minus best single": minus("**soft free energy, skills**", "best single model")}
    return {"questions": len(rows), "rules": table, "differences": differences}


def _figures(plain: Array, controlled: Array, *, shares: bool = True) -> tuple[Interval, Interval]:
    return bootstrap_mean(plain, shares=shares), bootstrap_mean(controlled, shares=False)


def cascade(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Two answers of the fast model and one of the slow: which is chosen, and what routing by agreement gives."""
    texts = [[row["fast"][0]["text"], row["fast"][1]["text"], row["slow"][0]["text"]] for row in rows]
    score = np.array(
        [[_score(row["set"], row["gold"], text) for text in each] for row, each in zip(rows, texts, strict=True)]
    )
    mean_logprob = np.array([row["fast"][1]["mean_logprob"] for row in rows])
    soft = similarities(texts, lexical_similarity)
    agreement = np.array([word_overlap(first, second) for first, second, _ in texts])
    names = ("fast, first sample", "fast, second sample", "slow")
    table = {name: bootstrap_mean(score[:, column]) for column, name in enumerate(names)}
    with_skills = picked(score, skilled(soft, score))
    table["soft free energy, equal weights"] = bootstrap_mean(picked(score, medoid(soft)))
    table["soft free energy, skills"] = bootstrap_mean(with_skills)
    table["skills minus slow"] = bootstrap_mean(with_skills - score[:, 2], shares=False)
    signals = {"mean log-prob": -mean_logprob, "agreement by words": -agreement}
    signals["log-prob and agreement by words"] = _rank(-mean_logprob) + _rank(-agreement)
    # the log-prob is of the second sample, so that one's answer is what routing would return
    routed = {f"APGR of {name}": apgr(signal, score[:, 1], score[:, 2]) for name, signal in signals.items()}
    return {**table, **routed}


def pair(recording: Path) -> dict[str, Any]:
    """The Hard path against one slow answer on the free text of a recorded pair of models."""
    table = load_table(recording)
    fusion = table.fusion_of(table.settings)
    free = np.array([fusion.free_text_similarity(item.attempts, item.query) is not None for item in table.items])
    sets = sorted({item.key.set for item, own in zip(table.items, free, strict=True) if own})
    parts = {**{f"set {name}": table.of_set(name) for name in sets}, "free text": free}
    hard, slow = (run_policy(table, name).score for name in ("always-hard", "single-slow"))
    return {
        name: (
            int(own.sum()),
            bootstrap_mean(hard[own]),
            bootstrap_mean(slow[own]),
            bootstrap_mean(hard[own] - slow[own], shares=False),
        )
        for name, own in parts.items()
    }


def _score(name: str, gold: str, text: str) -> float:
    """F1; of ContractNLI, whether the first label that the text names is the right one."""
    if name != "cnli":
        return f1([gold], text)
    said = normalize(text)
    places = {label: said.find(label) for label in LABELS if label in said}
    return float(bool(places) and min(places, key=lambda label: places[label]) == normalize(gold))


def _rank(values: Array) -> Array:
    """Return ranks as shares; equal values have equal ranks, so no order of sorting decides."""
    return np.asarray(rankdata(values) / len(values))


def timing() -> dict[str, float]:
    """Return CPU milliseconds of one decision between six answers of 200 tokens that were not seen before."""
    text = "the river carries sand and small stones from mountains to lakes where fine layers slowly settle"
    words = text.split()
    rng = np.random.default_rng(0)

    def six() -> list[Candidate]:
        texts = [" ".join(rng.choice(words, 198)) + "." for _ in range(6)]
        tokens = [tuple(Token(f" {word}", -0.1) for word in text.split()) for text in texts]
        energy = Energy(0.1, 0.0, 0.1, 0.1)
        return [
            Candidate(Step.SOLVE, "slow", "m", t, t, each, energy=energy)
            for t, each in zip(texts, tokens, strict=True)
        ]

    found = {}
    for name in ("none", "lexical"):
        fusion, taken = Fusion(beta=0.25, similarity=name), []
        for _ in range(8):
            candidates = six()
            started = time.process_time()
            fusion.choose(candidates)
            taken.append(time.process_time() - started)
        found[name] = float(np.median(taken[1:])) * 1000  # the first loads the model
    return found


def main() -> None:
    """Measure the parts, and write their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--recording", type=Path, default=ROOT / "runs" / "local-pair" / "recording.jsonl.gz")
    parser.add_argument("--only", choices=PARTS, help="Run only this part.")
    parser.add_argument("--stdout", action="store_true", help="Print the tables instead of writing docs/peers.md.")
    given = parser.parse_args()
    for part in PARTS if given.only is None else (given.only,):
        if part == "alpaca":
            rows = read(given.data / "alpaca_eval" / "outputs.jsonl.gz")
            text = alpaca_table({name: alpaca(rows, models) for name, models in GROUPS.items()})
        elif part == "cascade":
            rows = read(given.data / "freetext_cascade" / "outcomes.jsonl.gz")
            sets = sorted({row["set"] for row in rows})
            text = cascade_table({n: cascade([r for r in rows if r["set"] == n]) for n in sets})
        else:
            text = pair_table(pair(given.recording)) if part == "pair" else timing_table(timing())
        print(text, flush=True)
        if not given.stdout:
            page, name = PAGE.read_text("utf-8"), f"bench_freetext {part}"
            begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
            before, _, rest = page.partition(begin)
            PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}", "utf-8")


def alpaca_table(found: dict[str, Any]) -> str:
    """Preference and length-controlled preference of every rule in each group of models."""
    lines = ["| | " + " | ".join(f"{name} | length controlled" for name in found) + " |", "|---" * 5 + "|"]
    for kind, write in (("rules", str), ("differences", Interval.signed)):
        for rule in next(iter(found.values()))[kind]:
            cells = [write(each) for group in found.values() for each in group[kind][rule]]
            lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cascade_table(found: dict[str, Any]) -> str:
    """Who is chosen among the three answers, and the APGR of each signal, one column for each set."""
    lines = ["| | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    for name in next(iter(found.values())):
        values = [group[name] for group in found.values()]
        cells = [f"{v:.3f}" if isinstance(v, float) else v.signed() if "minus" in name else str(v) for v in values]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pair_table(found: dict[str, Any]) -> str:
    """The Hard path and one slow answer, on each set with free text and on its free-text items alone."""
    lines = ["| | items | hard path | one slow answer | difference |", "|---|---|---|---|---|"]
    for name, (count, hard, slow, difference) in found.items():
        few = count < FEWEST  # an interval of so few would say nothing (SPEC 7.8)
        cells = [f"{each.value:.3f}" if few else str(each) for each in (hard, slow)]
        cells += ["too few to say" if few else difference.signed()]
        lines.append(f"| {name} | {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def timing_table(found: dict[str, float]) -> str:
    """CPU time of a decision."""
    lines = ["| `fusion.similarity` | CPU time of a decision, ms |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {ms:.1f} |" for name, ms in found.items())])


if __name__ == "__main__":
    main()
