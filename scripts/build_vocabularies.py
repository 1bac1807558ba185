"""Build the math, code and logic vocabularies with their idf (SPEC 2.1, f15-f17) as a readable JSON file.

    pip install -e '.[train]'
    python scripts/build_vocabularies.py --data ../shared/data

Terms are selected in two steps per domain. First, terms that discriminate: the mean TF-IDF in the domain minus the mean elsewhere (sources
have equal weight, so that a large set does not dominate its domain), without stop words, names, and terms in more than half of the
domain's queries. Then, of the best `CANDIDATES`, those whose presence goes with a higher d* within its own source: a
vocabulary that only said "this is mathematics" would repeat f22. The paper's own examples come first, and as many terms
are kept as the paper keeps: 87, 92 and 73.

Then the terms of university courses for short questions (`odar.difficulty.university`), from `university_terms.txt`: with
their plurals, without those that everyday text holds, and without those that go with a lower d* within their source.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable
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
UNIVERSITY = {"math": 2.3, "code": 6.6, "logic": 8.6}
"""What the idf of a university term is multiplied with, so that it moves the logit as far in each field: with idf 11 by 0.4 in a
question of twelve words. Chosen on short questions of our own (tests/difficulty/short.tsv), not on traps."""
EVERYDAY = 3
"""A term in more everyday texts than these is no term of university courses."""
EASIER = -1.0
"""A t statistic: terms below it go with a lower d* than their sources have."""
PROPS = {
    "object_counting",
    "dyck_languages",
}  # their words are props (broccoli, trombones), not terms of a domain
# Drawing code and typesetting of MATH, not mathematics.
TYPESETTING = {
    "asy", "draw", "label", "linewidth", "pmatrix", "dir", "dot", "begin", "end", "mathbf", "overline", "circ", "cdot",
    "filldraw", "pair", "array", "cycle", "left", "right", "text", "size", "defaultpen", "align", "real", "xaxis",
    "yaxis", "ticks", "rlabel", "fontsize", "black", "red", "blue", "green", "dashed", "fill", "circle",
}  # fmt: skip
TARGET = Path(__file__).parents[1] / "src/odar/difficulty/data/vocabularies.json"


def names_of(rows: list[Row]) -> set[str]:
    """Words mostly capitalised in mid-sentence: a story's "Alice" is no term of logic."""
    seen: dict[str, list[int]] = {}
    for row in rows:
        for word in row.text.split()[1:]:
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
    rows = [r for r in rows if r.source not in ("anchors", "crux") and r.task not in PROPS]
    vectorizer = TfidfVectorizer(tokenizer=terms, token_pattern=None, lowercase=False, sublinear_tf=True, min_df=12)
    matrix = vectorizer.fit_transform([r.text for r in rows])
    words = vectorizer.get_feature_names_out()
    idf = dict(zip(words, vectorizer.idf_, strict=True))
    domains, sources = np.array([r.domain for r in rows]), np.array([r.source for r in rows])
    target = np.array([r.target for r in rows])
    unfit = names_of(rows) | set(ENGLISH_STOP_WORDS)
    result: dict[str, dict[str, float]] = {}
    for field, (domain, size) in SIZES.items():
        ours = domains == domain
        parts = [ours & (sources == s) for s in sorted(set(sources[ours]))]
        if not parts:  # a source was left out that was all we had of this domain
            result[field] = {t: round(float(max(vectorizer.idf_)), 4) for t in PAPER[field]}
            continue
        inside = np.mean([np.asarray(matrix[p].mean(0)).ravel() for p in parts], axis=0)
        outside = np.asarray(matrix[~ours].mean(0)).ravel()
        frequency = np.asarray((matrix[ours] > 0).mean(0)).ravel()
        candidates = [
            i
            for i in np.argsort(outside - inside, kind="stable")
            if words[i] not in unfit and len(words[i]) > 2 and "'" not in words[i] and frequency[i] <= 0.5
            and inside[i] > outside[i] and (field != "math" or words[i] not in TYPESETTING)
        ][:CANDIDATES]  # fmt: skip
        residual = target.copy()
        for part in parts:
            residual[part] -= target[part].mean()
        harder = gain((matrix[ours][:, candidates] > 0).toarray(), residual[ours])
        kept = PAPER[field] + [words[candidates[i]] for i in np.argsort(-harder, kind="stable")]
        kept = list(dict.fromkeys(kept))[:size]
        # a term of the paper that our data hardly has counts as seen in fewer than min_df queries
        result[field] = {t: round(float(idf.get(t, max(vectorizer.idf_))), 4) for t in sorted(kept)}
    return result


def everyday_texts(data: Path) -> list[str]:
    """Everyday text that is not in the training mixture: TruthfulQA, AlpacaEval's instructions, the treebank's training part."""
    with (data / "truthfulqa" / "TruthfulQA.csv").open(encoding="utf8", newline="") as file:
        texts = [row["Question"] for row in csv.DictReader(file)]
    with gzip.open(data / "alpaca_eval" / "outputs.jsonl.gz", "rt", encoding="utf8") as file:
        texts += [json.loads(line)["query"] for line in file]
    trees = (data / "ud_english_ewt" / "train.conllu").read_text("utf8").splitlines()
    return texts + [line.removeprefix("# text = ") for line in trees if line.startswith("# text = ")]


def is_everyday(row: Row) -> bool:
    """Whether a row asks about everyday things or what is learned at school."""
    school = row.source == "llmrouter" and row.domain in ("knowledge", "commonsense", "language")
    return school or row.source in ("gsm8k", "strategyqa")


def forms(term: str) -> set[str]:
    """A term with its plural, or a plural with its singular."""
    if term.endswith("s"):
        return {term} if term.endswith(("ss", "us", "is", "ics")) else {term, term[:-1]}
    if re.search("[^aeiou]y$", term):
        return {term, term[:-1] + "ies"}
    return {term, term + ("es" if term.endswith(("x", "ch", "sh")) else "s")}


def document_counts(texts: Iterable[str]) -> Counter[str]:
    """In how many texts each term is."""
    return Counter(term for text in texts for term in set(terms(text)))


def university(rows: list[Row], everyday: list[str]) -> dict[str, dict[str, float]]:
    """Term to weight per field: those of `university_terms.txt` that neither `everyday` nor these rows speak against."""
    everyday = everyday + [row.text for row in rows if is_everyday(row)]
    common = document_counts(everyday)
    listed: dict[str, str] = {}
    for line in Path(__file__).with_name("university_terms.txt").read_text("utf8").splitlines():
        if line.startswith("["):
            field = line[1:].split(":")[0]
        elif not line.startswith("#"):
            for term in terms(line):
                for form in forms(term):
                    listed.setdefault(form, field)
    public = [row for row in rows if row.source != "anchors"]
    target, sources = np.array([row.target for row in public]), np.array([row.source for row in public])
    for source in set(sources):
        target[sources == source] -= target[sources == source].mean()
    seen: dict[str, list[float]] = {}
    for row, residual in zip(public, target, strict=True):
        for term in set(terms(row.text)) & listed.keys():
            seen.setdefault(term, []).append(residual)
    easier = {t for t, values in seen.items() if sum(values) / np.sqrt(len(values)) / target.std() < EASIER}
    result: dict[str, dict[str, float]] = {field: {} for field in SIZES}
    for term, field in sorted(listed.items()):
        if common[term] <= EVERYDAY and term not in easier:
            idf = np.log((1 + len(everyday)) / (1 + common[term])) + 1
            result[field][term] = round(UNIVERSITY[field] * float(idf), 2)
    return result


def by_weight(weights: dict[str, float]) -> dict[str, str]:
    """Weight to its terms: thousands of terms have four weights."""
    return {
        str(weight): " ".join(t for t, w in weights.items() if w == weight)
        for weight in sorted(set(weights.values()), reverse=True)
    }


def main() -> None:
    """Write the file, from the rows that are not held out."""
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, default=TARGET)
    args = cli.parse_args()
    rows = [r for r in training_mixture(args.data) if not r.held_out]
    result, courses = build(rows), university(rows, everyday_texts(args.data))
    for field, vocabulary in result.items():
        print(field, len(vocabulary), *vocabulary)
        print(f"{len(courses[field])} terms of university courses")
    document = {
        "format": "odar-vocabularies/1",
        "made_by": "scripts/build_vocabularies.py",
        "data": "MMLU-Pro (MIT), LLMRouter (MIT), MATH (MIT), GSM8K train (MIT), StrategyQA (MIT), BBH (MIT), TruthfulQA (Apache-2.0), "
        "AlpacaEval (Apache-2.0), UD English EWT (CC BY-SA 4.0); terms by hand (scripts/university_terms.txt)",
        "vocabularies": result,
        "university": {field: by_weight(weights) for field, weights in courses.items()},
    }
    args.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf8")


if __name__ == "__main__":
    main()
