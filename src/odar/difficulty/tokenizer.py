"""The tokens of spaCy's English tokenizer, and the hashed attributes that the parser was trained on.

The rules (exceptions such as "don't", and patterns for prefixes, suffixes and infixes) are data that
`scripts/training/train_parser.py` exports with the weights. Only training needs spaCy; a test compares the two if
it is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_M = 0xC6A4A7935BD1E995
_LONG_RUN = re.compile(r"(.)\1{4,}", re.DOTALL)


Word = tuple[str, str]
"""A token's text and its normalised form ("not" for "n't")."""


class Tokenizer:
    """Splits a chunk, which is a word with its punctuation or a run of white space, into tokens.

    Args:
        rules: `exceptions` (tokens of a chunk), `norms`, `symbols`, patterns `prefix`, `suffix`, `infix`, `url`.
    """

    def __init__(self, rules: Mapping[str, Any]) -> None:
        self._norms: dict[str, str] = rules["norms"]
        self._symbols: dict[str, int] = rules["symbols"]
        self._prefix = re.compile(rules["prefix"]).search
        self._suffix = re.compile(rules["suffix"]).search
        self._infixes = re.compile(rules["infix"]).finditer
        self._url: Callable[[str], Any] = re.compile(rules["url"]).match
        self._exceptions = {
            chunk: [(text, norm or self._norm(text)) for text, norm in words]
            for chunk, words in rules["exceptions"].items()
        }
        # exceptions with punctuation are also recognised inside a chunk, by their tokens
        self._sequences = {
            tuple(text for text, _ in self._split(chunk, {})): words
            for chunk, words in self._exceptions.items()
            if self._prefix(chunk) or self._suffix(chunk) or any(self._infixes(chunk))
        }
        self._longest = max(map(len, self._sequences), default=0)

    def __call__(self, chunk: str) -> list[Word]:
        words = self._exceptions.get(chunk)
        return self._merge(self._split(chunk, self._exceptions) if words is None else words)

    def attributes(self, word: Word) -> tuple[int, int, int, int]:
        """The ids of norm, prefix, suffix and shape."""
        text, norm = word
        return self._id(norm), self._id(text[0]), self._id(text[-3:]), self._id(word_shape(text))

    def _norm(self, text: str) -> str:
        return self._norms.get(text) or text.lower()

    def _id(self, text: str) -> int:
        return self._symbols.get(text) or murmur_hash(text.encode())

    def _word(self, text: str) -> Word:
        return text, self._norm(text)

    def _split(self, chunk: str, exceptions: Mapping[str, list[Word]]) -> list[Word]:
        """Split off prefixes and suffixes until the rest is empty or an exception; then split at infixes."""
        prefixes: list[str] = []
        suffixes: list[str] = []
        last = -1
        while chunk and len(chunk) != last and chunk not in exceptions:
            last = len(chunk)
            before = len(found[0]) if (found := self._prefix(chunk)) else 0
            after = 0
            if not before or chunk[before:] not in exceptions:
                after = len(found[0]) if (found := self._suffix(chunk[before:])) else 0
                if after and chunk[:-after] in exceptions:
                    before = 0
            if before:
                prefixes.append(chunk[:before])
            if after and before + after <= len(chunk):
                suffixes.append(chunk[-after:])
                chunk = chunk[before:-after]
            else:
                chunk = chunk[before:]
        middle = exceptions.get(chunk)
        if middle is None:
            middle = [self._word(part) for part in self._split_at_infixes(chunk)] if chunk else []
        return [*map(self._word, prefixes), *middle, *map(self._word, reversed(suffixes))]

    def _split_at_infixes(self, chunk: str) -> list[str]:
        if self._url(chunk):
            return [chunk]
        parts = []
        start = 0
        for infix in self._infixes(chunk):
            if infix.start() == 0:
                continue
            parts += [chunk[start : infix.start()], infix[0]]
            start = infix.end()
        return [part for part in [*parts, chunk[start:]] if part]

    def _merge(self, words: list[Word]) -> list[Word]:
        """Replace token sequences that are exceptions; the longest first, then the leftmost."""
        texts = [text for text, _ in words]
        replaced: dict[int, tuple[int, list[Word]]] = {}
        taken: set[int] = set()
        for length in range(min(self._longest, len(texts)), 0, -1):
            for start in range(len(texts) - length + 1):
                end = start + length
                new = self._sequences.get(tuple(texts[start:end]))
                if new is not None:
                    if start not in taken and end - 1 not in taken:
                        replaced[start] = end, new
                    taken.update(range(start, end))
        if not replaced:
            return words
        merged = []
        at = 0
        while at < len(words):
            end, new = replaced.get(at, (at + 1, [words[at]]))
            merged += new
            at = end
        return merged


def word_shape(text: str) -> str:
    """The shape of a token: letters as x or X, digits as d, at most four of a kind in a row.

    >>> word_shape("McDonald"), word_shape("C3PO"), word_shape("1984")
    ('XxXxxxx', 'XdXX', 'dddd')
    """
    if len(text) >= 100:
        return "LONG"
    kinds = (
        "d" if char.isdigit() else char if not char.isalpha() else "X" if char.isupper() else "x" for char in text
    )
    return _LONG_RUN.sub(r"\1\1\1\1", "".join(kinds))


def murmur_hash(data: bytes, seed: int = 1) -> int:
    """MurmurHash64A, which spaCy identifies strings by.

    >>> murmur_hash(b"coffee")
    3197928453018144401
    """
    h = seed ^ (len(data) * _M & _MASK)
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        k = int.from_bytes(data[at : at + 8], "little") * _M & _MASK
        k = (k ^ (k >> 47)) * _M & _MASK
        h = (h ^ k) * _M & _MASK
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 47)) * _M & _MASK
    return h ^ (h >> 47)


def table_rows(ids: NDArray[np.uint64], seed: int) -> NDArray[np.uint32]:
    """Four 32-bit hashes of each id (n, 4), which thinc finds the rows of an embedding table by."""
    with np.errstate(over="ignore"):
        h1 = ids * np.uint64(0x87C37B91114253D5)
        h1 = (h1 << np.uint64(31)) | (h1 >> np.uint64(33))
        h1 = h1 * np.uint64(0x4CF5AD432745937F) ^ np.uint64(seed) ^ np.uint64(8)
        h1 = h1 + np.uint64(seed ^ 8)
        h2 = h1 + np.uint64(seed ^ 8)
        h1, h2 = _mix(h1), _mix(h2)
        h1 = h1 + h2
        h2 = h2 + h1
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    return np.stack([h1 & low, h1 >> shift, h2 & low, h2 >> shift], axis=-1).astype(np.uint32)


def _mix(h: NDArray[np.uint64]) -> NDArray[np.uint64]:
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))
