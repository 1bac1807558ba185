"""Lexical features f1-f8 (SPEC 2.1): what can be counted without knowing the language's grammar."""

from __future__ import annotations

import re
import zlib
from functools import cache
from importlib import resources
from itertools import accumulate, pairwise
from typing import Any

from odar.difficulty.text import LONGEST, WordTable, has_latex

MATH_SYMBOLS = "+×÷=≠<>≤≥∑∏∫∂∇∞−"  # the last is the true minus sign, U+2212
"""The set M of the paper without the ASCII hyphen, which needs a look at its neighbours."""

_SYMBOL = re.compile(f"[{re.escape(MATH_SYMBOLS)}]")
# A hyphen that touches two or more letters belongs to a word ("2n-gon", "10-year", "pre-"): no minus.
_MINUS = re.compile(r"(?<![^\W\d_]{2})-(?![^\W\d_]{2})")
_DIGIT = re.compile(r"\d")

# Words and sentences as textstat cuts them (the tests compare): punctuation is dropped, so a word is what is
# left of a blank-separated token that has a letter or digit.
_has_letter = re.compile(r"\w").search
_QUOTE = re.compile(r"\'(?![tsd]|ve|ll|re)")
_PUNCTUATION = re.compile(r"[^\w\s\']")
_SENTENCE = re.compile(r"\b[^.!?]+[.!?]*")
# a sentence begins with a word
_three_words = re.compile(r"\w\S*+\s\W*\w\S*+\s\W*\w").match

_RANKS = 100_256
"""Tokens of cl100k_base. The file holds their lengths, one byte each, then the tokens in the order of rank."""
_SPLIT = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""How cl100k_base splits a text before it merges bytes."""


def token_count(text: str) -> float:
    """f3: cl100k_base tokens, exact, with ranks inside the package.

    >>> token_count("Is Paris the capital of France?")
    7.0
    """
    words = text.split()
    if words and " ".join(words) == text:
        return float(_tokens(words[0]) + sum(map(_TOKENS_BEHIND_BLANK.__getitem__, words[1:])))
    return float(_tokens(text))


def readability(masked: str) -> float:
    """f6: Flesch-Kincaid grade of the text with LaTeX masked, clamped to [0, 20].

    textstat's formula, words, sentences and hyphenation syllables. Not textstat itself: its English syllable
    counter downloads a pronouncing dictionary on first use, which we promise never to do.

    >>> round(readability("Photosynthesis requires considerable illumination."), 1), readability("Go on.")
    (20.0, 0.0)
    """
    counts = list(map(_SYLLABLES.__getitem__, masked.split()))
    words = len(counts) - counts.count(0)
    if not words:
        return 0.0
    # textstat does not count sentences of two words or fewer
    sentences = sum(_three_words(piece) is not None for piece in _SENTENCE.findall(masked)) or 1
    grade = 0.39 * words / sentences + 11.8 * sum(counts) / words - 15.59
    return min(20.0, max(0.0, grade))


def has_digit(text: str) -> float:
    """f7: whether any digit appears."""
    return float(_DIGIT.search(text) is not None)


def has_math_symbol(text: str) -> float:
    """f8: whether a symbol of M or a LaTeX command appears; a hyphen in a word is not a minus sign.

    >>> has_math_symbol("a well-known 10-year plan"), has_math_symbol("x-1"), has_math_symbol("a ≤ b")
    (0.0, 1.0, 1.0)
    """
    return float(bool(_SYMBOL.search(text) or ("-" in text and _MINUS.search(text)) or has_latex(text)))


def _syllables(word: str) -> int:
    """How many syllables, 0 for no word."""
    if not _has_letter(word):
        return 0
    # hyphenation patterns need no more than the beginning: a 100 kB "word" is not one
    bare = _PUNCTUATION.sub("", _QUOTE.sub("", word[:LONGEST])).lower()
    # no pattern has a digit in it: a number, of which there is always a new one, is one syllable
    return 1 if bare.isdecimal() else len(_hyphenator().positions(bare)) + 1


def _tokens(piece: str) -> int:
    return len(_bpe().encode_ordinary(piece))


_SYLLABLES = WordTable(_syllables)
# between two words, a blank belongs to the token that follows; no token lies across it
_TOKENS_BEHIND_BLANK = WordTable(lambda word: _tokens(f" {word}"))


@cache
def _hyphenator() -> Any:
    from pyphen import Pyphen

    hyphenator = Pyphen(lang="en_US")
    hyphenator.hd.cache = _Forgetful()
    return hyphenator


class _Forgetful(dict[str, Any]):
    """Keeps nothing: pyphen would remember every word for ever, and what is worth keeping a `WordTable` keeps."""

    def __setitem__(self, word: str, points: Any) -> None:
        pass


@cache
def _bpe() -> Any:
    """OpenAI's tokenizer with the ranks of cl100k_base from the package: its own loader would download them."""
    import tiktoken

    raw = resources.files("odar.difficulty").joinpath("data", "cl100k.zlib").read_bytes()
    data = zlib.decompress(raw)
    ends = list(accumulate(data[:_RANKS], initial=_RANKS))
    ranks = {data[start:end]: rank for rank, (start, end) in enumerate(pairwise(ends))}
    return tiktoken.Encoding("cl100k", pat_str=_SPLIT, mergeable_ranks=ranks, special_tokens={})
