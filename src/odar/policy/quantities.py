"""Text → numbers with their units, exactly: "$1,200", "3/4", "2.5e3", "10^3 km"; and the numbers in prose."""

from __future__ import annotations

import re
import tomllib
from fractions import Fraction
from functools import cache
from importlib import resources

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
"""1,234.5 or 1234.5 or .5"""
_PLAIN = re.compile(rf"(?P<whole>{_DIGITS})(?:e(?P<exponent>[-+]?\d{{1,3}}))?")
"""1,234.5 or 6.02e23"""
_POWER = re.compile(
    rf"(?:(?P<factor>{_DIGITS}) ?[*×x] ?)?(?P<base>{_DIGITS}) ?(?:\^|\*\*) ?\{{?(?P<exponent>-?\d{{1,3}})\}}?"
)
"""10^3 or 3 * 10^{-4} or 2**8"""
_RATIO = re.compile(rf"(?:(?P<whole>\d+) )?(?P<over>{_DIGITS}) ?/ ?(?P<under>{_DIGITS})")
"""3/4 or 1 3/4"""
_FRAC = re.compile(rf"(?P<whole>\d+)? ?\\frac ?\{{ ?(?P<over>-?(?:{_DIGITS})) ?\}} ?\{{ ?(?P<under>{_DIGITS}) ?\}}")
"""\\frac{3}{4} or 1\\frac{3}{4}"""
_SIGNED = re.compile(r"(?P<sign>[-+]?) ?(?P<rest>.+)", re.DOTALL)
_WORDS_AFTER = re.compile(r" ?(?P<unit>[a-z%¢°][a-z0-9%/^]*(?: [a-z]+)?)?")
"""The unit after a number: " km/h", "%", " square meters"."""
_STEM = re.compile(r"[a-z%¢°]+")
_MAX_NUMBER_CHARACTERS = 120
_SHORTEST_UNKNOWN_UNIT = 3


def parse_quantity(text: str) -> tuple[Fraction, str] | None:
    """The exact number that a case-folded text consists of, and its unit, which may be empty; else None.

    >>> parse_quantity("1,000"), parse_quantity("-3/4")
    ((Fraction(1000, 1), ''), (Fraction(-3, 4), ''))
    >>> parse_quantity("$5") == parse_quantity("5 dollars")
    True
    >>> parse_quantity("five") is None
    True
    """
    text = text.strip()
    if not text or len(text) > _MAX_NUMBER_CHARACTERS or not any(c.isdigit() for c in text):
        return None
    match = _SIGNED.fullmatch(text)
    sign, rest = (match["sign"], match["rest"]) if match else ("", text)
    unit = ""
    currencies, units = _units()
    for symbol in sorted(currencies, key=len, reverse=True):
        if rest.startswith(symbol):
            unit, rest = currencies[symbol], rest[len(symbol) :].strip()
            break
    if rest.startswith("-") and not sign:
        sign, rest = "-", rest[1:].strip()
    number = _leading_number(rest)
    if number is None:
        return None
    value, end = number
    after = _WORDS_AFTER.fullmatch(rest[end:])
    if after is None or (after["unit"] and unit):
        return None
    if word := after["unit"]:
        unit = units.get(word) or currencies.get(word) or (word if _is_unit(word) else "")
        if not unit:
            return None
    return -value if sign == "-" else value, unit


@cache
def _units() -> tuple[dict[str, str], dict[str, str]]:
    """The currency of each of its signs, and the unit of each of its names."""
    tree = tomllib.loads(resources.files("odar.policy").joinpath("units.toml").read_text("utf-8"))
    currencies = {sign: currency for currency, signs in tree["currencies"].items() for sign in signs}
    return currencies, {name: unit for unit, names in tree["units"].items() for name in (unit, *names)}


def _is_unit(word: str) -> bool:
    """Whether an unknown word may be a unit: m^2, km/h, apples, but not the algebra in 4x, 4x^2, 3y/2."""
    stem = _STEM.match(word)
    return stem is not None and (stem[0] in _units()[1] or len(stem[0]) >= _SHORTEST_UNKNOWN_UNIT)


def _leading_number(text: str) -> tuple[Fraction, int] | None:
    """The longest number at the start of a text, and its end."""
    best: tuple[Fraction, int] | None = None
    for pattern, read in ((_FRAC, _ratio), (_RATIO, _ratio), (_POWER, _power), (_PLAIN, _plain)):
        match = pattern.match(text)
        if match and (best is None or match.end() > best[1]):
            value = read(match)
            if value is not None:
                best = value, match.end()
    return best


def _plain(match: re.Match[str]) -> Fraction:
    return _decimal(match["whole"]) * Fraction(10) ** int(match["exponent"] or 0)


def _power(match: re.Match[str]) -> Fraction | None:
    base = _decimal(match["base"])
    exponent = int(match["exponent"])
    if base == 0 and exponent < 0:
        return None
    return _decimal(match["factor"] or "1") * base**exponent


def _ratio(match: re.Match[str]) -> Fraction | None:
    under = _decimal(match["under"])
    return None if under == 0 else int(match["whole"] or 0) + _decimal(match["over"]) / under


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n")
_NUMBER = re.compile(r"(?<![\w.])-?[$€£]?\d[\d,]*(?:\.\d+)?%?(?![\w])")
"""-3 or $1,200.50 or 5%"""
_MIN_PROSE_WORDS = 4
_TAIL = 2_000
"""Number of characters at the end in which the last sentence is searched."""


def concluding_number(text: str) -> str | None:
    """The last number in the last sentence of a text; None if it has no number or is not prose.

    >>> concluding_number("She has 16 - 7 = 9 eggs left. So she makes 9 * $2 = $18 every day.")
    '$18'
    >>> concluding_number("42 km") is None
    True
    """
    if len(text.split(maxsplit=_MIN_PROSE_WORDS)) < _MIN_PROSE_WORDS:
        return None
    tail = text[-_TAIL:].strip()
    starts = [match.end() for match in _SENTENCE_END.finditer(tail)]
    numbers = numbers_in(tail[starts[-1] if starts else 0 :])
    return numbers[-1] if numbers else None


def numbers_in(sentence: str) -> list[str]:
    """The numbers in a sentence, with a currency or percent sign.

    >>> numbers_in("In 2 years it costs $1,200, or 5% more.")
    ['2', '$1,200', '5%']
    """
    return [number.rstrip(",") for number in _NUMBER.findall(sentence)]
