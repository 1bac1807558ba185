"""Text as the features see it: cleaned, with LaTeX masked, cut into words (SPEC 2.2)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

PLACEHOLDER = "formula"
"""What a LaTeX block becomes before readability and parsing: an ordinary noun, so that syntax survives."""

_SURROGATES = re.compile("[\ud800-\udfff]")

# Pandoc's rule for inline maths: no blank after the opening "$" nor before the closing one, and no digit
# after the closing one. "$5 and $7" is money and stays.
_INLINE = re.compile(r"(?<![\\$])\$(?=[^\s$])[^$\n]{0,400}?(?<![\s\\])\$(?!\d)")
_OPENER = re.compile(r"\$\$|\\[\[(]|\\begin\{(\w{1,20}\*?)\}|\$")
_CLOSERS = {"$$": "$$", r"\[": r"\]", r"\(": r"\)"}
_LONGEST_BLOCK = 4000
_LATEX_COMMAND = re.compile(r"\\[A-Za-z]+(?:\{[^{}]{0,200}\})*")
_ZEROS = bytes(ord("0") if 0x31 <= byte <= 0x39 else byte for byte in range(256))
_TERM = re.compile(r"[a-z][a-z'+#]*")
_ACCENTS = re.compile("[\u0300-\u036f]")


READ_LIMIT = 20_000
"""Characters that the features read. Lengths and counts of words are exact for any text; what is read beyond this
many characters would change nothing, because the estimator clips every count long before."""
_SHORT = 1 << 16


class Lengths(NamedTuple):
    """Exact lengths of a text: characters, words, characters in words, characters of the longest word."""

    characters: int
    words: int
    in_words: int
    longest: int


def lengths(text: str) -> Lengths:
    """Lengths of a text of any size. A long one is read word by word, so that other threads can run in between."""
    if len(text) <= _SHORT:
        sizes = list(map(len, text.split()))
    else:
        sizes = [match.end() - match.start() for match in re.finditer(r"\S+", text)]
    return Lengths(len(text), len(sizes), sum(sizes), max(sizes, default=0))


def clean(text: str) -> str:
    """Lone surrogates become U+FFFD, one for one, so that every tokenizer accepts the text."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def digits_as_zeros(text: str) -> str:
    """The text with 0 for every digit from 1 to 9: a table of words then has one entry for all numbers of a length.

    cl100k_base has a token for every number of up to three digits, and no hyphenation pattern has a digit in it, so
    neither tokens nor syllables change.

    >>> digits_as_zeros("No. 1984 of ２")
    'No. 0000 of ２'
    """
    return text.encode().translate(_ZEROS).decode()


def mask_latex(text: str) -> str:
    r"""LaTeX blocks and stray commands become a placeholder word.

    >>> mask_latex(r"Solve $x^2=4$ for \alpha.")
    'Solve formula for formula.'
    >>> mask_latex("It costs $5, not $7.")
    'It costs $5, not $7.'
    """
    if "$" in text or "\\" in text:
        pieces, position = [], 0
        for start, end in _latex_blocks(text):
            pieces += [text[position:start], PLACEHOLDER]
            position = end
        text = _LATEX_COMMAND.sub(PLACEHOLDER, "".join([*pieces, text[position:]]))
    return text


def has_latex(text: str) -> bool:
    """Return whether a LaTeX block or command is in the text."""
    if "$" not in text and "\\" not in text:
        return False
    return _LATEX_COMMAND.search(text) is not None or any(True for _ in _latex_blocks(text))


def terms(text: str) -> list[str]:
    """Return the lower-cased word terms that vocabularies work on; letters lose their accents.

    >>> terms("The Schrödinger equation")
    ['the', 'schrodinger', 'equation']
    """
    lower = text.lower()
    if not lower.isascii():
        lower = _ACCENTS.sub("", unicodedata.normalize("NFD", lower))
    return _TERM.findall(lower)


def _latex_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield where blocks begin and end, in linear time; a regular expression would be quadratic."""
    closers: dict[str, int] = {}
    position = 0
    while opener := _OPENER.search(text, position):
        end = _block_end(text, opener, closers)
        if end:
            yield opener.start(), end
        position = end or opener.start() + 1


def _block_end(text: str, opener: re.Match[str], closers: dict[str, int]) -> int:
    """Return where the block that is opened here ends, or 0; `closers` remembers where each closer is next."""
    mark, name = opener[0], opener[1]
    if mark == "$":
        inline = _INLINE.match(text, opener.start())
        return inline.end() if inline else 0
    closer = rf"\end{{{name}}}" if name else _CLOSERS[mark]
    earliest = opener.end() + (0 if name else 1)
    at = closers.get(closer, 0)
    if 0 <= at < earliest:
        at = closers[closer] = text.find(closer, earliest)
    return at + len(closer) if 0 <= at <= opener.end() + _LONGEST_BLOCK else 0


V = TypeVar("V")

LIMIT = 1 << 13
"""Words kept; then the table is cleared."""
LONGEST = 100
"""Characters: longer words are rare, and a table of them would be large."""


class WordTable(dict[str, V]):
    """What a function gives for a word, computed once, in bounded memory. `lru_cache` reorders at every hit.

    >>> lengths = WordTable(len, limit=2)
    >>> lengths["one"], lengths["three"], lengths["seven"], sorted(lengths)
    (3, 5, 5, ['seven'])
    """

    def __init__(self, look: Callable[[str], V], limit: int = LIMIT) -> None:
        super().__init__()
        self._look, self._limit = look, limit

    def __missing__(self, word: str) -> V:
        value = self._look(word)
        if len(word) <= LONGEST:
            if len(self) >= self._limit:
                self.clear()
            self[word] = value
        return value
