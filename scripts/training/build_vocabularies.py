"""Build the math, code and logic vocabularies with their idf (SPEC 2.1, f15-f17) as a readable JSON file.

    python scripts/training/build_vocabularies.py --data ../shared/data

Terms are selected in two steps per domain. First, terms that discriminate: the mean TF-IDF in the domain minus the mean elsewhere (sources
have equal weight, so that a large set does not dominate its domain), without stop words, names, terms in more than half of the
domain's queries, and terms of a single task: soap and cousins belong to the stories of one set, not to logic. Tasks that are made of random
things (a falcon, kiwis, a minivan) are left out.
Then, of the best `CANDIDATES`, those whose presence goes with a higher d* within its own source: a
vocabulary that only said "this is mathematics" would repeat f22. The paper's own examples come first, and at most as many terms
are kept as the paper keeps: 87, 92 and 73.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np
from mixture import Row, training_mixture
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer

from odar.difficulty.text import terms

SIZES = {"math": ("mathematics", 87), "code": ("coding", 92), "logic": ("logic", 73)}
CANDIDATES = 300
PAPER = {
    "math": ["theorem", "derivative", "integral", "matrix", "eigenvalue", "convergence", "polynomial"],
    "code": ["algorithm", "function", "complexity", "implement", "recursive", "runtime", "optimize"],
    "logic": ["valid", "satisfiable", "contradiction", "premise", "inference", "deduction", "entailment"],
}
PROPS = re.compile(
    "object_counting|dyck_languages|logicgrid|logical_deduction|tracking_shuffled|colored_objects|penguins|temporal"
)
"""Tasks that are made from a template and random things: their words (broccoli, trombones, a falcon) are no terms of a domain."""
# Drawing code and typesetting of MATH, not mathematics.
TYPESETTING = {
    "asy", "draw", "label", "linewidth", "pmatrix", "dir", "dot", "begin", "end", "mathbf", "overline", "circ", "cdot",
    "filldraw", "pair", "array", "cycle", "left", "right", "text", "size", "defaultpen", "align", "real", "xaxis",
    "yaxis", "ticks", "rlabel", "fontsize", "black", "red", "blue", "green", "dashed", "fill", "circle",
}  # fmt: skip
TARGET = Path(__file__).parents[2] / "src/odar/difficulty/data/vocabularies.json"


def names_of(rows: list[Row]) -> set[str]:
    """Words mostly capitalised in mid-sentence: a story's "Alice" is no term of logic."""
    seen: dict[str, list[int]] = {}
    for row in rows:
        for word in row.core.split()[1:]:
            letters = word.strip(".,?!:;()\"'").removesuffix("'s")
            if letters.isalpha():
                seen.setdefault(letters.lower(), [0, 0])[letters[0].isupper()] += 1
    return {word for word, (lower, upper) in seen.items() if upper > lower}


def gain(present: NDArray[np.bool_], residual: NDArray[np.float64]) -> NDArray[np.float64]:
    """t statistic of each term's presence against d* less its source's mean."""
    n = present.sum(0)
    mean = residual @ present / np.maximum(n, 1)
    return mean * np.sqrt(n) / residual.std()


def build(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Term to idf per domain, from these rows alone."""
    # the words of CRUX are names in Python
    rows = [r for r in rows if r.source not in ("anchors", "crux") and not PROPS.search(r.task)]
    vectorizer = TfidfVectorizer(tokenizer=terms, token_pattern=None, lowercase=False, sublinear_tf=True, min_df=12)
    matrix = vectorizer.fit_transform([r.core for r in rows])
    words = vectorizer.get_feature_names_out()
    idf = dict(zip(words, vectorizer.idf_, strict=True))
    domains, sources = np.array([r.domain for r in rows]), np.array([r.source for r in rows])
    tasks, target = np.array([r.task for r in rows]), np.array([r.target for r in rows])
    unfit = names_of(rows) | set(ENGLISH_STOP_WORDS) | {"do", "does", "did"}
    result: dict[str, dict[str, float]] = {}
    for field, (domain, size) in SIZES.items():
        ours = domains == domain
        parts = [ours & (sources == s) for s in sorted(set(sources[ours]))]
        if not parts:  # a source was left out that was all we had of this domain
            result[field] = {t: round(float(max(vectorizer.idf_)), 4) for t in PAPER[field]}
            continue
        inside = np.mean([np.asarray(matrix[p].mean(0)).ravel() for p in parts], axis=0)
        outside = np.asarray(matrix[~ours].mean(0)).ravel()
        counts = [np.asarray((matrix[ours & (tasks == t)] > 0).sum(0)).ravel() for t in sorted(set(tasks[ours]))]
        count, spread = np.sum(counts, axis=0), np.count_nonzero(counts, axis=0)
        candidates = [
            i
            for i in np.argsort(outside - inside, kind="stable")
            if words[i] not in unfit and len(words[i]) > 2 and "'" not in words[i] and count[i] <= ours.sum() / 2 and spread[i] > 1
            and inside[i] > outside[i] and (field != "math" or words[i] not in TYPESETTING)
        ][:CANDIDATES]  # fmt: skip
        residual = target.copy()
        for part in parts:
            residual[part] -= target[part].mean()
        harder = gain((matrix[ours][:, candidates] > 0).toarray(), residual[ours])
        kept = PAPER[field] + [words[candidates[i]] for i in np.argsort(-harder, kind="stable") if harder[i] > 0]
        kept = list(dict.fromkeys(kept))[:size]
        # a term of the paper that our data hardly has counts as seen in fewer than min_df queries
        result[field] = {t: round(float(idf.get(t, max(vectorizer.idf_))), 4) for t in sorted(kept)}
    return result


def main() -> None:
    """Write the file, from the rows that are not held out."""
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, default=TARGET)
    args = cli.parse_args()
    rows = [r for r in training_mixture(args.data) if not r.held_out]
    result = build(rows)
    for field, vocabulary in result.items():
        print(field, len(vocabulary), *vocabulary)
    document = {
        "format": "odar-vocabularies/1",
        "made_by": "scripts/training/build_vocabularies.py",
        "data": "MMLU-Pro (MIT), LLMRouter (MIT), MATH (MIT), GSM8K train (MIT), StrategyQA (MIT), BBH (MIT)",
        "vocabularies": result,
    }
    args.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf8")


if __name__ == "__main__":
    main()
