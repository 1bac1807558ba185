"""Train the 8-way domain classifier (SPEC 2.3); report it on rows and, in five folds, on whole tasks it has not seen.

pip install -e '.[train]'
python scripts/training/train_domain.py --data ../shared/data
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mixture import DATA, Row, lines, mixture
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from odar.difficulty.domain import BUCKETS, DOMAINS, FORMAT, LinearDomainClassifier, hashed_ngrams
from odar.types import Image, Query

OUT = Path(__file__).parents[2] / "src/odar/difficulty/data"
CAP = 800  # rows of one task, so that no large set decides

WRITTEN = {
    "multimodal", "multimodal_words", "chat", "code_requests", "seeds", "anchors/simple", "anchors/medium", "anchors/hard",
}  # fmt: skip
"""Our own rows: trained on, never counted in an accuracy."""

SEEING = [
    "What is shown in this image?", "Describe the picture.", "Read the text in the screenshot.",
    "Which object in the photo is closest to the camera?", "What does the chart in the figure say about sales?",
    "According to the diagram, what is the angle at B?", "How many people are in the photograph?",
    "Look at the graph above and find the maximum.", "What colour is the car in the image?",
    "Transcribe the handwritten note in the attached scan.", "Is the person in the picture smiling?",
    "Based on the map shown, which country is largest?", "What is the value of x in the figure shown below?",
]  # fmt: skip
CHAT = [
    "hello", "hi there", "how are you doing today?", "thanks!", "thank you so much", "goodbye", "good night", "what can you do?",
    "are you a robot?", "tell me about yourself", "lol", "ok great", "sounds good", "who made you?", "i am bored", "i feel sad today",
    "hola amigo", "guten Tag", "merci beaucoup", "buenos días", "ich verstehe nicht", "je ne comprends pas", "asdf qwer zxcv", "...", "?",
    "can you help me", "what should I cook tonight?", "recommend me a film", "plan a weekend trip to Rome", "give me gift ideas for my sister",
    "remind me to call mum", "set an alarm for seven", "what's the weather like", "play some music", "I would like to book a table",
]  # fmt: skip
CODE = [
    "Write a {l} function that {v}.", "Implement a class in {l} that {v}.", "Fix the bug in this {l} code that {v}.", "How do I write {l} code which {v}?",
    "Refactor my {l} script so that it {v}.", "Explain this {l} snippet, which {v}.", "Print a line in {l} that {v}.", "Why does my {l} program crash when it {v}?",
]  # fmt: skip
LANGUAGES = [
    "Python",
    "Java",
    "C++",
    "C",
    "Rust",
    "Go",
    "JavaScript",
    "SQL",
    "TypeScript",
    "Ruby",
    "Bash",
    "Kotlin",
]
VERBS = [
    "reverses a string", "sorts a list of integers", "reads a CSV file", "sends an HTTP request", "counts words in a file", "checks for palindromes",
    "merges two dictionaries", "computes Fibonacci numbers", "parses JSON", "removes duplicates from an array", "finds the shortest path in a graph",
    "prints 'hello'", "loops over the rows of a table", "returns the maximum of a list", "validates an email address with a regex",
]  # fmt: skip


@dataclass(frozen=True)
class Labelled:
    """A query with its task and domain."""

    task: str
    domain: str
    query: Query


def extra(data: Path, rng: random.Random, rows: list[Row]) -> list[Labelled]:
    """What the mixture lacks: pictures, small talk, writing, and everyday requests for code."""
    picture = (Image("image/png"),)
    made = [
        Labelled("multimodal", "multimodal", Query(t, picture))
        for t in SEEING + [r.core for r in rng.sample(rows, 200)]
    ]
    made += [Labelled("multimodal_words", "multimodal", Query(t)) for t in SEEING * 12]
    made += [Labelled("chat", "other", Query(t)) for t in CHAT * 8]
    made += [
        Labelled("code_requests", "coding", Query(c.format(l=lang, v=v)))
        for c in CODE
        for lang in LANGUAGES
        for v in VERBS
    ]
    made += [
        Labelled("ifeval", "language", Query(r["prompt"])) for r in lines(data / "ifeval" / "input_data.jsonl")
    ]
    for line in (DATA / "domain_seeds.tsv").read_text("utf8").splitlines():
        if not line.startswith("#"):
            domain, text = line.split("\t")
            made += [Labelled("seeds", domain, Query(text.replace("\\n", "\n")))] * 5
    for r in json.loads((data / "truthfulqa" / "mc_task.json").read_text("utf8")):
        made.append(Labelled("truthfulqa", "knowledge", Query(r["question"])))
    return made


def design(rows: list[Labelled]) -> csr_matrix:
    """The hashed n-grams of all rows."""
    pointers, indices, values = [0], [], []  # type: ignore[var-annotated]
    for row in rows:
        index, value = hashed_ngrams(row.query)
        indices.append(index)
        values.append(value)
        pointers.append(pointers[-1] + len(index))
    return csr_matrix((np.concatenate(values), np.concatenate(indices), pointers), shape=(len(rows), BUCKETS))


def fit(rows: list[Labelled]) -> LinearDomainClassifier:
    """Softmax regression; rare domains weigh more, by the root of their rarity."""
    x, y = design(rows), np.array([DOMAINS.index(r.domain) for r in rows])
    weight = (np.bincount(y, minlength=len(DOMAINS)) / len(y))[y] ** -0.5
    model = LogisticRegression(C=6.0, max_iter=300)
    model.fit(x, y, sample_weight=weight / weight.mean())
    return LinearDomainClassifier(model.coef_.T.copy(), model.intercept_.copy())


def classify(model: LinearDomainClassifier, query: Query) -> str:
    return DOMAINS[int(model.probabilities(query).argmax())]


def task_folds(rows: list[Labelled], folds: int = 5) -> dict[str, int]:
    """Whole tasks to folds, spread within each domain; hand-written rows (-1) are never tested on."""
    rng = random.Random(1)
    fold = dict.fromkeys(WRITTEN, -1)
    for domain in DOMAINS:
        tasks = sorted({r.task for r in rows if r.domain == domain} - WRITTEN)
        rng.shuffle(tasks)
        fold |= {t: i % folds for i, t in enumerate(tasks)}
    return fold


def report(rows: list[Labelled], answers: list[str]) -> dict:
    """Accuracy over rows, over tasks, and the confusion matrix (rows: truth)."""
    confusion = np.zeros((8, 8), dtype=int)
    per_task: dict[str, list[bool]] = {}
    for row, got in zip(rows, answers, strict=True):
        confusion[DOMAINS.index(row.domain), DOMAINS.index(got)] += 1
        per_task.setdefault(row.task, []).append(got == row.domain)
    return {
        "rows": len(rows),
        "accuracy": round(float(np.trace(confusion) / confusion.sum()), 4),
        "accuracy_mean_over_tasks": round(float(np.mean([np.mean(v) for v in per_task.values()])), 4),
        "per_task": {t: round(float(np.mean(v)), 3) for t, v in sorted(per_task.items())},
        "confusion": confusion.tolist(),
    }


def save(model: LinearDomainClassifier, path: Path) -> None:
    """One signed byte a weight."""
    scale = np.abs(model.weights).max(0) / 127
    quantised = np.round(model.weights / scale).astype(np.int8)
    np.savez_compressed(path, format=np.array(FORMAT), weights=quantised, scale=scale, bias=model.bias)


def main() -> None:
    """Train twice: without the held-out tasks for the report, with them for the shipped file."""
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, default=OUT)
    args = cli.parse_args()
    rng = random.Random(42)
    rows = mixture(args.data)
    everything = [Labelled(f"{r.source}/{r.task}", r.domain, Query(r.core)) for r in rows]
    everything += extra(args.data, rng, rows)
    rng.shuffle(everything)
    seen: Counter[str] = Counter()
    capped = []
    for row in everything:
        seen[row.task] += 1
        if seen[row.task] <= CAP or row.task in WRITTEN:
            capped.append(row)
    rng.shuffle(capped)  # large tasks fill their share early: without this they would all fall into one fold
    folds = task_folds(capped)
    tested, answers = [], []
    for i in range(5):
        model = fit([r for r in capped if folds[r.task] != i])
        held = [r for r in capped if folds[r.task] == i]
        tested += held
        answers += [classify(model, r.query) for r in held]
    public = [r for r in capped if r.task not in WRITTEN]
    fifth = public[: len(public) // 5]
    by_rows = fit(public[len(fifth) :] + [r for r in capped if r.task in WRITTEN])
    result = {
        "domains": DOMAINS,
        "paper": 0.892,
        "held_out_tasks": report(tested, answers),
        "held_out_rows": report(fifth, [classify(by_rows, r.query) for r in fifth]),
        "trained_on": dict(Counter(r.domain for r in capped)),
    }
    for part in ("held_out_tasks", "held_out_rows"):
        print(part, {k: v for k, v in result[part].items() if k != "confusion"})
        print(np.array(result[part]["confusion"]))
    final = fit(capped)
    save(final, args.out / "domain.npz")
    shipped = LinearDomainClassifier.load(args.out / "domain.npz")
    print(
        "8-bit agrees on",
        np.mean([classify(shipped, r.query) == classify(final, r.query) for r in capped[:2000]]),
    )
    (args.out / "domain.report.json").write_text(json.dumps(result, indent=1) + "\n", "utf8")


if __name__ == "__main__":
    main()
