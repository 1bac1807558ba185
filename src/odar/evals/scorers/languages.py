"""Which language a text is in: by its script, and where languages share one, by their commonest words.

Enough to tell whether a response is in the language that was asked for (IFEval), with no dependency: `langdetect`
has had no release since 2021, has no wheel, and gives different answers to the same text unless its global seed is
set.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from functools import cache
from importlib import resources

_SCRIPTS = {
    "HANGUL": "ko",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "CJK": "zh",
    "THAI": "th",
    "BENGALI": "bn",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "MALAYALAM": "ml",
    "GREEK": "el",
    "HEBREW": "he",
}
_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f\u0900-\u0963\u200c])*")  # vowel signs are no letters to re
_MOST = 20_000  # characters that are looked at


def language(text: str) -> str | None:
    """The ISO 639-1 code of the language a text is mostly in; None where it has no letters.

    >>> language("Das ist nicht der Weg, den wir gehen."), language("これは本です"), language("42")
    ('de', 'ja', None)
    """
    text = unicodedata.normalize("NFC", text[:_MOST])
    scripts = Counter(_script(char) for char in text if char.isalpha())
    if not scripts:
        return None
    if scripts["HIRAGANA"] + scripts["KATAKANA"]:
        scripts["HIRAGANA"] += scripts.pop("CJK", 0)  # Japanese is written with Han characters too
    script = scripts.most_common(1)[0][0]
    if script in _common():
        words = Counter(_WORD.findall(text.lower()))
        share = {code: sum(words[word] for word in common) for code, common in _common()[script].items()}
        return max(share, key=lambda code: share[code])
    return _SCRIPTS.get(script, script.lower())


@cache
def _common() -> dict[str, dict[str, frozenset[str]]]:
    text = resources.files("odar.evals.scorers").joinpath("languages.toml").read_text(encoding="utf-8")
    return {
        script: {code: frozenset(words.split()) for code, words in table.items()}
        for script, table in tomllib.loads(text).items()
    }


def _script(char: str) -> str:
    """The first word of a character's Unicode name, which for letters is their script."""
    return unicodedata.name(char, "UNKNOWN").split()[0].partition("-")[0]
