"""Choosing among free-text answers and routing by agreement, on recorded outputs: the tables of docs/peers.md.

    python scripts/bench_freetext.py DATA            # all parts; writes the tables into docs/peers.md
    python scripts/bench_freetext.py DATA --only pair --stdout

DATA is the folder with `alpaca_eval` and `freetext_cascade`. Skills are fitted on four fifths of the questions and
used on the other fifth. Embeddings (`odar pull all-minilm-l6-v2`) take ten minutes of one core the first time and are
kept in `--cache`; `--no-embeddings` leaves them out.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.fusion_fit import GAMMAS
from odar.calibration.parts import fold_masks
from odar.config import load_settings
from odar.evals.preference import answer_pairs
from odar.evals.router_quality import apgr
from odar.evals.scorers.text import f1, normalize
from odar.policy.fusion import Fusion
from odar.policy.rules import Votes, fuse
from odar.policy.similarity import SIMILARITIES, lexical, weighted_words, word_overlap
from odar.policy.stopping import Stopping
from odar.providers.minilm import FLOOR, WEIGHTS
from odar.providers.weights import find_weights
from odar.recording.files import open_recording
from odar.types import Candidate, Energy, Step, Token

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
ROOT = Path(__file__).parents[1]
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
LABELS = ("entailment", "contradiction", "not mentioned")


def read(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a compressed JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def similarities(texts: Sequence[Sequence[str]], compare: Callable[[Sequence[str]], Array]) -> Array:
    """Return (N, M, M) similarities."""
    return np.array([compare(row) for row in texts])


class Embeddings:
    """Vectors of texts, kept in a file: encoding takes minutes."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._known: dict[str, Any] = {}
        if cache.exists():
            kept = np.load(cache)
            self._known = dict(zip(kept["keys"].tolist(), kept["vectors"], strict=True))

    def load(self, texts: Iterable[str]) -> None:
        """Encode what is missing, and save it every thousand texts."""
        missing = {key: text for text in texts if (key := _key(text)) not in self._known}
        encoder = SIMILARITIES["minilm"].prepare() if missing else None  # type: ignore[attr-defined]
        for number, (key, text) in enumerate(missing.items(), 1):
            assert encoder is not None
            self._known[key] = encoder.encode([text])[0]
            if number % 1000 == 0 or number == len(missing):
                print(f"{number} of {len(missing)} texts encoded", file=sys.stderr)
                vectors = np.array(list(self._known.values()))
                np.savez(self._cache, keys=np.array(list(self._known)), vectors=vectors)

    def cosines(self, texts: Sequence[str]) -> Array:
        """Return the cosines of all pairs; `load` must have seen the texts."""
        vectors = np.array([self._known[_key(text)] for text in texts], dtype=np.float64)
        found = np.maximum(np.clip(vectors @ vectors.T, 0.0, 1.0), np.eye(len(texts)))
        return np.asarray(found.round(4))  # equal texts are equal on every machine

    def similarity(self, texts: Sequence[str]) -> Array:
        """Return what `fusion.similarity = "minilm"` does."""
        found = self.cosines(texts)
        return np.where(found < FLOOR, 0.0, found)


def _key(text: str) -> str:
    return hashlib.sha256((text or " ").encode()).hexdigest()


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


def alpaca(rows: list[dict[str, Any]], models: Sequence[str], embeddings: Embeddings | None) -> dict[str, Any]:
    """Every way to choose one of the models' outputs, as mean preference over GPT-4-turbo's."""
    texts = [[row["outputs"][model]["text"] for model in models] for row in rows]
    score = np.array([[row["outputs"][model]["preference"] for model in models] for row in rows])
    lengths = np.array([[len(text) for text in row] for row in texts], dtype=np.float64)
    controlled = length_controlled(score, lengths)
    soft = similarities(texts, lexical)
    chosen: dict[str, Ints] = {
        "longest": lengths.argmax(axis=1),
        "medoid without a floor": medoid(similarities(texts, without_floor)),
        "medoid, sentence by sentence": medoid(similarities(texts, by_sentences)),
        "**soft free energy**": medoid(soft),
        "soft free energy, stopped early": stopped(soft),
        "**soft free energy, skills**": skilled(soft, score),
    }
    if embeddings is not None:
        embeddings.load(text for row in texts for text in row)
        s = similarities(texts, embeddings.similarity)
        chosen |= {"embedding medoid": medoid(s), "embedding medoid, skills": skilled(s, score)}
    chosen |= {"best single model": best_single(score), "the best output of each": score.argmax(axis=1)}
    table = {"random": _figures(score.mean(axis=1), controlled.mean(axis=1))}
    table |= {name: _figures(picked(score, each), picked(controlled, each)) for name, each in chosen.items()}

    def minus(one: str, other: str) -> tuple[Interval, Interval]:
        return _figures(
            picked(score, chosen[one]) - picked(score, chosen[other]),
            picked(controlled, chosen[one]) - picked(controlled, chosen[other]),
            shares=False,
        )

    differences = {
        "skills minus best single": minus("**soft free energy, skills**", "best single model"),
        "stopped early minus all read": minus("soft free energy, stopped early", "**soft free energy**"),
    }
    if embeddings is not None:
        differences["embeddings minus words"] = minus("embedding medoid", "**soft free energy**")
    return {
        "questions": len(rows),
        "rules": table,
        "differences": differences,
        "read": float(outputs_read(soft).mean()),
    }


def _figures(plain: Array, controlled: Array, *, shares: bool = True) -> tuple[Interval, Interval]:
    return bootstrap_mean(plain, shares=shares), bootstrap_mean(controlled, shares=False)


def outputs_read(s: Array, seed: int = 0) -> Ints:
    """Return how many outputs are read before the choice is settled (SPEC 5.12), in the order of `_orders`."""
    stopping, total, found = Stopping(0.8), s.shape[1], []
    for each, order in zip(s, _orders(s, seed), strict=True):
        counts = range(stopping.first_size(total), total)
        first = (n for n in counts if stopping.is_settled(each[np.ix_(order[:n], order[:n])], total - n))
        found.append(next(first, total))
    return np.array(found)


def stopped(s: Array, seed: int = 0) -> Ints:
    """Choose among the outputs that are read until the choice is settled."""
    counts, orders = outputs_read(s, seed), _orders(s, seed)
    present = np.zeros(s.shape[:2], dtype=bool)
    for row, (count, order) in enumerate(zip(counts, orders, strict=True)):
        present[row, order[:count]] = True
    groups = np.where(present, np.arange(s.shape[1]), -1)
    votes = Votes(np.zeros(groups.shape), groups, np.zeros(groups.shape, dtype=bool), similarity=s)
    return fuse(votes, 0.0, np.ones((1, s.shape[1])))


def _orders(s: Array, seed: int) -> Ints:
    """Models in another random order for each question: they stand for samples of one model."""
    return np.random.default_rng(seed).permuted(np.tile(np.arange(s.shape[1]), (len(s), 1)), axis=1)


def cascade(rows: list[dict[str, Any]], embeddings: Embeddings | None) -> dict[str, Any]:
    """Two answers of the fast model and one of the slow: which is chosen, and what routing by agreement gives."""
    texts = [[row["fast"][0]["text"], row["fast"][1]["text"], row["slow"][0]["text"]] for row in rows]
    score = np.array(
        [[_score(row["set"], row["gold"], text) for text in each] for row, each in zip(rows, texts, strict=True)]
    )
    mean_logprob = np.array([row["fast"][1]["mean_logprob"] for row in rows])
    soft = similarities(texts, lexical)
    agreement = np.array([word_overlap(first, second) for first, second, _ in texts])
    names = ("fast, first sample", "fast, second sample", "slow")
    table = {name: bootstrap_mean(score[:, column]) for column, name in enumerate(names)}
    with_skills = picked(score, skilled(soft, score))
    table["soft free energy, equal weights"] = bootstrap_mean(picked(score, medoid(soft)))
    table["soft free energy, skills"] = bootstrap_mean(with_skills)
    table["skills minus slow"] = bootstrap_mean(with_skills - score[:, 2], shares=False)
    signals = {"mean log-prob": -mean_logprob, "agreement by words": -agreement}
    if embeddings is not None:
        embeddings.load(text for each in texts for text in each[:2])
        signals["agreement by embeddings"] = -similarities([each[:2] for each in texts], embeddings.cosines)[
            :, 0, 1
        ]
    signals["log-prob and agreement by words"] = _rank(-mean_logprob) + _rank(-agreement)
    # the log-prob is of the second sample, so that one's answer is what routing would return
    routed = {f"APGR of {name}": apgr(signal, score[:, 1], score[:, 2]) for name, signal in signals.items()}
    return {**table, **routed}


def pair(recording: Path) -> dict[str, Any]:
    """The Hard path against one slow answer on the free text of a recorded pair of models."""
    opened = open_recording(recording)
    settings = load_settings(opened.header.settings["profile"])
    fusion = Fusion(settings.fusion.rule, settings.fusion.beta)
    found: dict[str, Any] = {}
    items = [item for item in opened.items() if item.attempts]
    free = [
        item
        for item in items
        if fusion.free_text_similarity([each.candidate for each in item.attempts], item.query) is not None
    ]
    sets = sorted({item.key.set for item in free})
    for name, part in {
        **{f"set {each}": [i for i in items if i.key.set == each] for each in sets},
        "free text": free,
    }.items():
        scores = []
        for item in part:
            by_answer = {each.answer: each.score or 0.0 for each in item.attempts}
            for one in answer_pairs([item], "hard", "slow", fusion, settings.fusion.varentropy_weight):
                scores.append((by_answer[one.first], by_answer[one.second]))
        hard, slow = np.array(scores or [(0.0, 0.0)]).T
        found[name] = (
            len(scores),
            bootstrap_mean(hard),
            bootstrap_mean(slow),
            bootstrap_mean(hard - slow, shares=False),
        )
    return found


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
            Candidate(Step.SOLVE, "m", t, t, each, energy=energy) for t, each in zip(texts, tokens, strict=True)
        ]

    found = {}
    for name in ("none", "lexical", "minilm"):
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
    parser.add_argument("--no-embeddings", action="store_true", help="Skip everything that needs the encoder.")
    parser.add_argument(
        "--cache", type=Path, default=Path("/tmp/odar-embeddings.npz"), help="Folder for cached vectors."
    )
    parser.add_argument("--recording", type=Path, default=ROOT / "runs" / "local-pair" / "recording.jsonl.gz")
    parser.add_argument("--only", choices=PARTS, help="Run only this part.")
    parser.add_argument("--stdout", action="store_true", help="Print the tables instead of writing docs/peers.md.")
    given = parser.parse_args()
    embeddings = None if given.no_embeddings else Embeddings(given.cache)
    for part in PARTS if given.only is None else (given.only,):
        if part == "alpaca":
            rows = read(given.data / "alpaca_eval" / "outputs.jsonl.gz")
            text = alpaca_table({name: alpaca(rows, models, embeddings) for name, models in GROUPS.items()})
        elif part == "cascade":
            rows = read(given.data / "freetext_cascade" / "outcomes.jsonl.gz")
            sets = sorted({row["set"] for row in rows})
            text = cascade_table({n: cascade([r for r in rows if r["set"] == n], embeddings) for n in sets})
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
    read = ", ".join(f"{group['read']:.2f} ({name})" for name, group in found.items())
    return "\n".join(lines) + f"\n\nOutputs that are read of five if the choice is stopped early: {read}."


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
    """CPU time of a decision, and what each similarity needs on disk."""
    disk = sum(file.path.stat().st_size for file in find_weights(WEIGHTS).files) / 1e6
    needs = {"none": "nothing", "lexical": "nothing", "minilm": f"no package; {disk:.0f} MB of weights"}
    lines = ["| `fusion.similarity` | CPU time of a decision, ms | what it needs |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {ms:.1f} | {needs[name]} |" for name, ms in found.items())])


if __name__ == "__main__":
    main()
