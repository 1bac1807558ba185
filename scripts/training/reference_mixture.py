"""The reference mixture of SPEC 2.10: features of 2,120 public questions, the path mix on them, and the map of d.

    python scripts/training/reference_mixture.py --data ../shared/data     # reads the questions, writes reference_mixture.npz
    python scripts/training/reference_mixture.py                           # the mix of the shipped estimator, from that file

The file holds each question's set, stratum, hash and 24 features, never its text.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from mixture import level, lines, question_hash

from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import phi_batch
from odar.types import Query

FILE = Path(__file__).parents[2] / "tests/difficulty/reference_mixture.npz"
PAPER = (0.41, 0.35, 0.24)
"""Shares of simple, medium and hard over the paper's 23 benchmarks."""


def questions(data: Path) -> Iterator[tuple[str, str, str]]:
    """(set, stratum, question), the first rows of each set by id."""
    levels: Counter[str] = Counter()
    for r in lines(data / "math" / "test.jsonl"):
        levels[level(r)] += 1
        if level(r) != "?" and levels[level(r)] <= 60:
            yield "math", level(r), r["problem"]
    for r in lines(data / "gsm8k" / "train.jsonl")[:200]:
        yield "gsm8k", "", r["question"]
    for r in lines(data / "mmlu_pro_outcomes" / "items.jsonl")[:300]:
        yield "mmlu_pro", "", r["question"]
    for file in sorted((data / "bbh").glob("*.json")):
        for e in json.loads(file.read_text("utf8"))["examples"][:10]:
            yield "bbh", file.stem, e["input"]
    for e in json.loads((data / "bbeh" / "data.json").read_text("utf8"))["examples"][:150]:
        yield "bbeh", "", e["input"]
    for r in lines(data / "strategyqa" / "train.jsonl")[:200]:
        yield "strategyqa", "", r["question"]
    with (data / "truthfulqa" / "TruthfulQA.csv").open(encoding="utf8", newline="") as file:
        for r, _ in zip(csv.DictReader(file), range(200), strict=False):
            yield "truthfulqa", "", r["Question"]
    for r in lines(data / "ifeval" / "input_data.jsonl")[:150]:
        yield "ifeval", "", r["prompt"]
    for name, count in (("crux", 150), ("alpaca_eval", 200)):
        folder = "crux_outputs" if name == "crux" else name
        with gzip.open(data / folder / "outputs.jsonl.gz", "rt", encoding="utf8") as file:
            for line, _ in zip(file, range(count), strict=False):
                yield name, "", json.loads(line)["query"]


def write(data: Path) -> None:
    """Features of the mixture's questions."""
    rows = list(questions(data))
    np.savez_compressed(
        FILE,
        set=np.array([row[0] for row in rows]),
        stratum=np.array([row[1] for row in rows]),
        hash=np.array([question_hash(row[2]) for row in rows]),
        features=phi_batch(Query(row[2]) for row in rows).astype(np.float32),
    )


def paths(d: np.ndarray) -> np.ndarray:
    """Shares of simple, medium and hard."""
    return np.bincount(np.digitize(d, [0.3, 0.7]), minlength=3) / len(d)


def show(model: LearnedEstimator) -> None:
    """The path mix by set, and the mean d by level of MATH."""
    with np.load(FILE) as file:
        names, strata, x = file["set"], file["stratum"], file["features"].astype(float)
    d = model.predict(x)
    print(f"{'set':14} {'n':>5} {'simple':>7} {'medium':>7} {'hard':>7} {'mean d':>7}")
    parts = {"all": np.ones(len(d), bool)}
    parts |= {name: names == name for name in dict.fromkeys(names.tolist())}
    parts |= {f"math level {n}": (names == "math") & (strata == str(n)) for n in range(1, 6)}
    for name, part in parts.items():
        simple, medium, hard = paths(d[part])
        print(f"{name:14} {part.sum():5} {simple:7.1%} {medium:7.1%} {hard:7.1%} {d[part].mean():7.3f}")
    print(f"{'the paper':14} {'':5} {PAPER[0]:7.1%} {PAPER[1]:7.1%} {PAPER[2]:7.1%}")


def main() -> None:
    """Write the file if there is data; show the mix."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--data", type=Path)
    cli.add_argument("--estimator", type=Path, help="another estimator's file")
    args = cli.parse_args()
    if args.data:
        write(args.data)
    show(LearnedEstimator.load(args.estimator))


if __name__ == "__main__":
    main()
