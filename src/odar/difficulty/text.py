"""Texts for the features (SPEC 2.2): cleaning, LaTeX masking, terms, lengths, syllables, and a cache by word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, wraps
from importlib import resources
from typing import Any, TypeVar

PLACEHOLDER = "formula"
"""Replacement of LaTeX before readability and parsing: an ordinary noun, so that the syntax stays intact."""

_SURROGATES = re.compile("[\ud800-\udfff]")

# Pandoc's rule for inline maths: no blank after the opening "$" nor before the closing one, and no digit
# after the closing one. "$5 and $7" is money and stays.
_INLINE = re.compile(r"(?<![\\$])\$(?=[^\s$])[^$\n]{0,400}?(?<![\s\\])\$(?!\d)")
_OPENER = re.compile(r"\$\$|\\[\[(]|\\begin\{(\w{1,20}\*?)\}|\$")
_CLOSERS = {"$$": "$$", r"\[": r"\]", r"\(": r"\)"}
_LONGEST_BLOCK = 4000
_LATEX_COMMAND = re.compile(r"\\[A-Za-z]+(?:\{[^{}]{0,200}\})*")
_TERM = re.compile(r"[a-z][a-z'+#]*")
_ACCENTS = re.compile("[\u0300-\u036f]")

READ_LIMIT = 20_000
"""Characters that the features read; only lengths and word counts are of the whole text. More would change nothing,
because the estimator clips every count far below."""
_COUNT_LIMIT = 1 << 20
"""Characters whose words are counted."""
TABLE_LIMIT = 1 << 14
"""Number of words whose results are kept."""
MAX_WORD_LENGTH = 100
"""Characters of the longest word whose results are kept."""
V = TypeVar("V")
DATA = resources.files("odar.difficulty").joinpath("data")
"""Folder of the shipped weights and vocabularies."""


def word_lengths(text: str) -> list[int]:
    """The length of each word; in a very long text, those at its beginning."""
    return list(map(len, text[:_COUNT_LIMIT].split()))


def clean(text: str) -> str:
    """Replace each lone surrogate by U+FFFD, so that every tokenizer accepts the text."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def mask_latex(text: str) -> str:
    r"""Replace LaTeX blocks and commands by a placeholder word.

    >>> mask_latex(r"Solve $x^2=4$ for \alpha.")
    'Solve formula for formula.'
    >>> mask_latex("It costs $5, not $7.")
    'It costs $5, not $7.'
    """
    if "$" in text or "\\" in text:
        pieces = []
        position = 0
        for start, end in _latex_blocks(text):
            pieces += [text[position:start], PLACEHOLDER]
            position = end
        text = _LATEX_COMMAND.sub(PLACEHOLDER, "".join([*pieces, text[position:]]))
    return text


def terms(text: str) -> list[str]:
    """The words of a text in lower case, without accents and digits, as the vocabularies have them.

    >>> terms("The Schrödinger equation")
    ['the', 'schrodinger', 'equation']
    """
    lower = text.lower()
    if not lower.isascii():
        lower = _ACCENTS.sub("", unicodedata.normalize("NFD", lower))
    return _TERM.findall(lower)


def _latex_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each block; a regular expression would take quadratic time."""
    position = 0
    while opener := _OPENER.search(text, position):
        end = _block_end(text, opener)
        if end:
            yield opener.start(), end
        position = end or opener.start() + 1


def _block_end(text: str, opener: re.Match[str]) -> int:
    """The end of the block that begins here, or 0."""
    mark, environment = opener[0], opener[1]
    if mark == "$":
        inline = _INLINE.match(text, opener.start())
        return inline.end() if inline else 0
    closer = rf"\end{{{environment}}}" if environment else _CLOSERS[mark]
    earliest = opener.end() + (0 if environment else 1)
    position = text.find(closer, earliest, opener.end() + _LONGEST_BLOCK + len(closer))
    return position + len(closer) if position != -1 else 0


def cached_by_word(compute: Callable[[str], V]) -> Callable[[str], V]:
    """A function of a word that keeps its last results; those of very long words are computed again."""
    cached = lru_cache(TABLE_LIMIT)(compute)

    @wraps(compute)
    def result(word: str) -> V:
        return cached(word) if len(word) <= MAX_WORD_LENGTH else compute(word)

    return result


_has_letter = re.compile(r"\w").search
_QUOTE = re.compile(r"\'(?![tsd]|ve|ll|re)")
_PUNCTUATION = re.compile(r"[^\w\s\']")


@cached_by_word
def count_syllables(word: str) -> int:
    """Number of syllables of a word with its punctuation, as textstat counts them without its dictionary.

    Syllables are where a word can be hyphenated; punctuation alone has none.

    >>> count_syllables("Photosynthesis,"), count_syllables("through"), count_syllables("--")
    (5, 1, 0)
    """
    if not _has_letter(word):
        return 0
    bare = _PUNCTUATION.sub("", _QUOTE.sub("", word[:MAX_WORD_LENGTH])).lower()
    if bare.isdecimal():  # hyphenation patterns have no digits: a number is one syllable
        return 1
    english = _english()
    syllables = len(english.positions(bare)) + 1
    english.hd.cache.clear()  # it would keep every word
    return syllables


@cache
def _english() -> Any:
    from pyphen import Pyphen

    return Pyphen(lang="en_US", cache=False)
