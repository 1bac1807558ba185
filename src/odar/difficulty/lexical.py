"""Lexical features f1-f8 (SPEC 2.1): what can be counted without knowing the language's grammar."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

from odar.difficulty.table import LONGEST, WordTable
from odar.difficulty.text import has_latex

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

_GAP = re.compile(r"(?<=\S) (?=\S)")
_BPE_LIMIT = 500_000  # bpe-openai refuses a million characters


def char_length(text: str) -> float:
    """f1: characters in the query."""
    return float(len(text))


def word_count(words: list[str]) -> float:
    """f2: whitespace-separated tokens."""
    return float(len(words))


def token_count(text: str) -> float:
    """f3: cl100k_base tokens, exact, from ranks inside the wheel of `bpe-openai`.

    >>> token_count("Is Paris the capital of France?")
    7.0
    """
    words = text.split()
    if words and " ".join(words) == text:
        return float(_tokens(words[0]) + sum(map(_TOKENS_BEHIND_BLANK.__getitem__, words[1:])))
    return float(sum(map(_tokens, _pieces(text))))


def avg_word_length(words: list[str]) -> float:
    """f4: mean characters per word; 0 for no words."""
    return sum(map(len, words)) / len(words) if words else 0.0


def max_word_length(words: list[str]) -> float:
    """f5: characters of the longest word."""
    return float(max(map(len, words), default=0))


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


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that the tokenizer accepts, cut before single blanks, where no token can lie across."""
    start = 0
    while len(text) - start > _BPE_LIMIT:
        gap = _GAP.search(text, start + _BPE_LIMIT // 2, start + _BPE_LIMIT)
        end = gap.start() if gap else start + _BPE_LIMIT
        yield text[start:end]
        start = end
    yield text[start:]


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
    with warnings.catch_warnings():
        # on import it reads its ranks by a function of importlib.resources that Python deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        import bpe_openai

        return bpe_openai.get_encoding("cl100k_base")
