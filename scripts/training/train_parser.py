"""Train the shipped dependency parser (SPEC 2.4) on UD English EWT and export it for the package.

    python scripts/training/train_parser.py --data ../shared/data/ud_english_ewt --out src/odar/difficulty/data

The pipeline is tok2vec + parser and nothing else. Only what features f9, f10 and f13 read is learned: heads,
sentence starts, and which arcs head a subordinate clause. It is fast because relations are collapsed into "clause" and
"dep", which leaves a few transitions to score instead of a hundred, and because there is no upper layer.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import spacy
from spacy.attrs import NORM, ORTH
from spacy.lang.norm_exceptions import BASE_NORMS
from spacy.symbols import IDS
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus, Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_config_from_str

CLAUSES = frozenset({"advcl", "advcl:relcl", "acl", "acl:relcl", "ccomp", "csubj", "csubj:pass", "csubj:outer"})

CONFIG = """
[paths]
train = "{train}"
dev = "{dev}"
[system]
seed = 42
gpu_allocator = null
[nlp]
lang = "en"
pipeline = ["tok2vec","parser"]
batch_size = 256
[components]
[components.tok2vec]
factory = "tok2vec"
[components.tok2vec.model]
@architectures = "spacy.Tok2Vec.v2"
[components.tok2vec.model.embed]
@architectures = "spacy.MultiHashEmbed.v2"
width = {width}
attrs = {attrs}
rows = {rows}
include_static_vectors = false
[components.tok2vec.model.encode]
@architectures = "spacy.MaxoutWindowEncoder.v2"
width = {width}
depth = {depth}
window_size = 1
maxout_pieces = {pieces}
[components.parser]
factory = "parser"
min_action_freq = 300
update_with_oracle_cut_size = 100
[components.parser.model]
@architectures = "spacy.TransitionBasedParser.v2"
state_type = "parser"
extra_state_tokens = false
hidden_width = {hidden}
maxout_pieces = 2
use_upper = {upper}
nO = null
[components.parser.model.tok2vec]
@architectures = "spacy.Tok2VecListener.v1"
width = {width}
upstream = "*"
[corpora]
[corpora.train]
@readers = "spacy.Corpus.v1"
path = ${{paths.train}}
max_length = 0
[corpora.dev]
@readers = "spacy.Corpus.v1"
path = ${{paths.dev}}
max_length = 0
[training]
seed = 42
dropout = 0.1
max_steps = {steps}
eval_frequency = 1000
patience = 0
dev_corpus = "corpora.dev"
train_corpus = "corpora.train"
[training.optimizer]
@optimizers = "Adam.v1"
learn_rate = {rate}
[training.batcher]
@batchers = "spacy.batch_by_words.v1"
size = 2000
tolerance = 0.2
discard_oversize = false
[training.score_weights]
dep_uas = 0.5
dep_las = 0.3
sents_f = 0.2
"""


def read_conllu(path: Path) -> list[tuple[list[str], list[bool], list[int], list[str]]]:
    """Sentences as (words, space after, head indices, relations); multiword ranges and empty nodes are skipped."""
    sentences, words, spaces, heads, deps, glued = [], [], [], [], [], set()  # type: ignore[var-annotated]
    for line in [*path.read_text("utf8").splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line:
            if words:
                sentences.append((words, spaces, heads, deps))
            words, spaces, heads, deps, glued = [], [], [], [], set()
            continue
        cells = line.split("\t")
        if "-" in cells[0]:
            # "don't" is one orthographic token over two words: no blank between the parts
            first, last = map(int, cells[0].split("-"))
            glued |= set(range(first, last))
            if "SpaceAfter=No" in cells[9]:
                glued.add(last)
            continue
        if "." in cells[0]:
            continue
        i = int(cells[0])
        words.append(cells[1])
        spaces.append("SpaceAfter=No" not in cells[9] and i not in glued)
        head = int(cells[6])
        heads.append(i - 1 if head == 0 else head - 1)
        deps.append("ROOT" if head == 0 else "clause" if cells[7] in CLAUSES else "dep")
    return sentences


def to_docbin(sentences: list, target: Path, group: int, rng: random.Random) -> None:
    """Group neighbouring sentences into documents, so that the parser learns where sentences start.

    A tenth of the training sentences are lower-cased: queries are written less carefully than the treebank.
    """
    vocab = spacy.blank("en").vocab
    bin_ = DocBin(attrs=["ORTH", "SPACY", "HEAD", "DEP", "SENT_START"])
    start = 0
    while start < len(sentences):
        size = rng.randint(1, group)
        words, spaces, heads, deps, starts = [], [], [], [], []  # type: ignore[var-annotated]
        for w, s, h, d in sentences[start : start + size]:
            offset = len(words)
            w = [x.lower() for x in w] if group > 1 and rng.random() < 0.1 else w
            words += w
            spaces += [*s[:-1], True]
            heads += [x + offset for x in h]
            deps += d
            starts += [True] + [False] * (len(w) - 1)
        bin_.add(Doc(vocab, words=words, spaces=spaces, heads=heads, deps=deps, sent_starts=starts))
        start += size
    bin_.to_disk(target)


def tokenizer_rules(tokenizer: Any) -> dict[str, Any]:
    """The rules with which `odar.difficulty.tokenizer` splits texts like this tokenizer."""
    searches = {"prefix": "prefix_search", "suffix": "suffix_search", "infix": "infix_finditer", "url": "url_match"}
    return {
        "format": "odar-tokenizer/1",
        "exceptions": {
            chunk: [[word[ORTH], word.get(NORM, "")] for word in words]
            for chunk, words in sorted(tokenizer.rules.items())
        },
        "norms": dict(sorted(BASE_NORMS.items())),
        "symbols": {name: number for name, number in sorted(IDS.items()) if name},
        **{name: getattr(tokenizer, search).__self__.pattern for name, search in searches.items()},
    }


def weights(nlp: Any) -> dict[str, np.ndarray]:
    """The arrays that `odar.difficulty.parser` computes with."""
    layers, parser = list(nlp.get_pipe("tok2vec").model.walk()), nlp.get_pipe("parser")
    tables = [layer for layer in layers if layer.name == "hashembed"]
    found = {f"table{i}": table.get_param("E") for i, table in enumerate(tables)}
    found["seeds"] = np.array([table.attrs["seed"] for table in tables], np.uint32)
    maxouts, norms = ([layer for layer in layers if layer.name == kind] for kind in ("maxout", "layernorm"))
    for i, (maxout, norm) in enumerate(zip(maxouts, norms, strict=True)):
        found |= {f"maxout{i}_{name}": maxout.get_param(name) for name in "Wb"}
        found |= {f"norm{i}_{name}": norm.get_param(name) for name in "Gb"}
    state = parser.model.get_ref("lower")
    linear = next(layer for layer in parser.model.walk() if layer.name == "linear")
    found |= {f"state_{name}": state.get_param(name) for name in ("W", "b", "pad")}
    found |= {f"linear_{name}": linear.get_param(name) for name in "Wb"}
    return found | {"moves": np.array(parser.move_names), "format": np.array("odar-parser/1")}


def export(nlp: Any, out: Path) -> None:
    """Write tokenizer.json and parser.npz: the package runs them without spaCy."""
    out.mkdir(parents=True, exist_ok=True)
    rules = json.dumps(tokenizer_rules(nlp.tokenizer), ensure_ascii=False, indent=0)
    (out / "tokenizer.json").write_text(rules + "\n", "utf-8")
    np.savez_compressed(out / "parser.npz", **weights(nlp))


def main() -> None:
    """Train, score on the test part, and write weights and tokenizer rules."""
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, required=True)
    cli.add_argument("--work", type=Path, default=Path("/tmp/odar-parser"))
    cli.add_argument("--width", type=int, default=48)
    cli.add_argument("--depth", type=int, default=2)
    cli.add_argument("--pieces", type=int, default=2)
    cli.add_argument("--hidden", type=int, default=32)
    cli.add_argument("--upper", default="false")
    cli.add_argument("--steps", type=int, default=5000)
    cli.add_argument("--rate", type=float, default=0.002)
    args = cli.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    rng = random.Random(42)
    for part in ("train", "dev", "test"):
        to_docbin(
            read_conllu(args.data / f"{part}.conllu"),
            args.work / f"{part}.spacy",
            6 if part == "train" else 4,
            rng,
        )
    config = load_config_from_str(
        CONFIG.format(
            train=args.work / "train.spacy",
            dev=args.work / "dev.spacy",
            width=args.width,
            depth=args.depth,
            pieces=args.pieces,
            hidden=args.hidden,
            upper=args.upper,
            steps=args.steps,
            rate=args.rate,
            attrs='["NORM","PREFIX","SUFFIX","SHAPE"]',
            rows="[3000,1000,2000,1000]",
        ),
    )
    config = spacy.blank("en").config.merge(config)
    nlp = init_nlp(config)
    (args.work / "model").mkdir(exist_ok=True)
    train(nlp, args.work / "model")
    best = spacy.load(args.work / "model" / "model-best")
    examples: list[Example] = list(Corpus(args.work / "test.spacy")(best))
    scores = best.evaluate(examples)
    print({k: round(scores[k], 4) for k in ("dep_uas", "dep_las", "sents_f")})
    print({k: round(v["f"], 3) for k, v in scores["dep_las_per_type"].items()})
    export(best, args.out)


if __name__ == "__main__":
    main()
