"""A table of what is known of words: each is looked at once, and memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

V = TypeVar("V")

LIMIT = 1 << 15
"""Words kept; then the table starts afresh."""
LONGEST = 100
"""Characters: longer words are rare, and a table of them would be large."""


class WordTable(dict[str, V]):
    """What a function gives for a word. Not `lru_cache`: that turns its list of uses over at every look.

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
