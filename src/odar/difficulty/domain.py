"""The 8-way domain classifier of f22-f24 (SPEC 2.3): hashed n-grams and one linear layer, in numpy."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.text import DATA, cached_by_word
from odar.formats import check_format
from odar.types import Query

DOMAINS = ("mathematics", "coding", "logic", "commonsense", "knowledge", "multimodal", "language", "other")
"""Names of the classes, in the order of the probabilities."""

FORMAT = "odar-domain/1"
BUCKETS = 1 << 16

_IMAGE, _START, _END = "\0image", "\0start", "\0end"  # no token of a text is equal to these
_TOKEN = re.compile(r"[^\W\d_]+(?:'[a-z]+)?|\d+|[^\w\s]")


@dataclass(frozen=True)
class LinearDomainClassifier:
    """Softmax regression on hashed word uni- and bigrams.

    Args:
        weights: (`BUCKETS`, 8), with tf-idf's idf folded in by the trainer.
        bias: (8,).

    >>> flat = LinearDomainClassifier(np.zeros((BUCKETS, 8)), np.zeros(8))
    >>> float(flat.probabilities(Query("anything")).sum())
    1.0
    """

    weights: NDArray[np.floating]
    bias: NDArray[np.floating]

    def probabilities(self, query: Query) -> NDArray[np.float64]:
        """The probability of each of `DOMAINS`."""
        index, value = hashed_ngrams(query)
        logits = self.bias + value @ self.weights.take(index, axis=0).astype(np.float64)
        odds = np.exp(logits - np.maximum.reduce(logits))
        return cast("NDArray[np.float64]", odds / np.add.reduce(odds))

    @classmethod
    def load(cls, path: Path | None = None) -> LinearDomainClassifier:
        """Read a file that `scripts/training/train_domain.py` wrote; by default the shipped one."""
        source = path or DATA.joinpath("domain.npz")
        with source.open("rb") as file, np.load(file, allow_pickle=False) as saved:
            saved_format = str(saved["format"]) if "format" in saved else "none"
            check_format(saved_format, FORMAT, str(source), "train it again with scripts/training/train_domain.py")
            # One byte per weight and one scale per class: 0.5 MB before compression.
            weights = saved["weights"].astype(np.float32) * saved["scale"].astype(np.float32)
            return cls(weights, saved["bias"].astype(np.float64))


def hashed_ngrams(query: Query) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Bucket indices and L2-normalised (1 + ln count) values of the query's uni- and bigrams.

    CRC-32 gives the same buckets in every process, unlike `hash()`. A bigram's bucket mixes those of its words.
    Marks at both ends of the text tell its first and last words from the others.
    """
    tokens = _TOKEN.findall(query.text.lower())
    marked = [_IMAGE if query.images else _START, *tokens, _END]
    words = np.array(list(map(_crc, marked)), dtype=np.uint32)
    pairs = words[:-1] * np.uint32(2654435761) + words[1:]
    pairs ^= pairs >> np.uint32(15)
    buckets = np.concatenate([words, pairs]) & np.uint32(BUCKETS - 1)
    found, counts = np.unique(buckets, return_counts=True)
    value = 1.0 + np.log(counts)
    return found.astype(np.int64), value / np.sqrt(value @ value)


@cached_by_word
def _crc(token: str) -> int:
    """The hash of a token; all numbers have the same."""
    return zlib.crc32(b"0" if token[0].isdigit() else token.encode())


@cache
def shipped_classifier() -> LinearDomainClassifier:
    return LinearDomainClassifier.load()
