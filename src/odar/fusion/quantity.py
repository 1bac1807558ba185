"""Numbers as people and models write them, exactly: 1,000 · 10^3 · 1.5e3 · 3/4 · 2 1/2 · $5 · 5 km · 50%."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_PLAIN = re.compile(rf"(?P<whole>{_DIGITS})(?:e(?P<exponent>[-+]?\d{{1,3}}))?")
_POWER = re.compile(
    rf"(?:(?P<factor>{_DIGITS}) ?[*×x] ?)?(?P<base>{_DIGITS}) ?(?:\^|\*\*) ?\{{?(?P<exponent>-?\d{{1,3}})\}}?"
)
_RATIO = re.compile(rf"(?:(?P<whole>\d+) )?(?P<over>{_DIGITS}) ?/ ?(?P<under>{_DIGITS})")
_FRAC = re.compile(rf"(?P<whole>\d+)? ?\\frac ?\{{ ?(?P<over>-?(?:{_DIGITS})) ?\}} ?\{{ ?(?P<under>{_DIGITS}) ?\}}")
_CURRENCY = {"$": "usd", "us$": "usd", "usd": "usd", "€": "eur", "eur": "eur", "£": "gbp", "gbp": "gbp", "¥": "jpy"}
_UNITS = {
    "usd": "dollar, dollars, buck, bucks",
    "eur": "euro, euros",
    "gbp": "pound sterling, pounds sterling",
    "cent": "cents, ¢",
    "%": "percent, percents, per cent",
    "km": "kilometer, kilometers, kilometre, kilometres, kms",
    "m": "meter, meters, metre, metres",
    "cm": "centimeter, centimeters, centimetre, centimetres",
    "mm": "millimeter, millimeters, millimetre, millimetres",
    "mi": "mile, miles",
    "ft": "foot, feet",
    "in": "inch, inches",
    "kg": "kilogram, kilograms, kgs",
    "g": "gram, grams, gm",
    "lb": "pound, pounds, lbs",
    "l": "liter, liters, litre, litres",
    "ml": "milliliter, milliliters, millilitre, millilitres",
    "s": "second, seconds, sec, secs",
    "min": "minute, minutes, mins",
    "h": "hour, hours, hr, hrs",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "year": "years",
    "degree": "degrees, deg, °",
}
_UNIT_OF = {name: unit for unit, names in _UNITS.items() for name in (unit, *names.split(", "))}
_SIGNED = re.compile(r"(?P<sign>[-+]?) ?(?P<rest>.+)", re.DOTALL)
_WORDS_AFTER = re.compile(r" ?(?P<unit>[a-z%¢°][a-z0-9%/^]*(?: [a-z]+)?)?")
_STEM = re.compile(r"[a-z%¢°]+")
_LONGEST = 120
_SHORTEST_UNKNOWN_UNIT = 3


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact number and its unit; no unit is an empty one."""

    value: Fraction
    unit: str = ""


def parse_quantity(text: str) -> Quantity | None:
    """The number that a whole text stands for, or None where it is no number; case-folded text expected.

    >>> parse_quantity("1,000"), parse_quantity("-3/4")
    (Quantity(value=Fraction(1000, 1), unit=''), Quantity(value=Fraction(-3, 4), unit=''))
    >>> parse_quantity("$5") == parse_quantity("5 dollars")
    True
    >>> parse_quantity("five") is None
    True
    """
    text = text.strip()
    if not text or len(text) > _LONGEST or not any(c.isdigit() for c in text):
        return None
    match = _SIGNED.fullmatch(text)
    sign, rest = (match["sign"], match["rest"]) if match else ("", text)
    unit = ""
    for symbol in sorted(_CURRENCY, key=len, reverse=True):
        if rest.startswith(symbol):
            unit, rest = _CURRENCY[symbol], rest[len(symbol) :].strip()
            break
    if rest.startswith("-") and not sign:
        sign, rest = "-", rest[1:].strip()
    found = _leading_number(rest)
    if found is None:
        return None
    value, end = found
    after = _WORDS_AFTER.fullmatch(rest[end:])
    if after is None or (after["unit"] and unit):
        return None
    word = after["unit"] or ""
    known = _UNIT_OF.get(word) or _CURRENCY.get(word)
    if known is None and word and not _is_unit(word):
        return None
    unit = unit or known or word
    return Quantity(-value if sign == "-" else value, unit)


def _is_unit(word: str) -> bool:
    """Whether a word we have no name for may be one: m^2, km/h and apples, while 4x, 4x^2 and 3y/2 are algebra."""
    stem = _STEM.match(word)
    return stem is not None and (stem[0] in _UNIT_OF or len(stem[0]) >= _SHORTEST_UNKNOWN_UNIT)


def _leading_number(text: str) -> tuple[Fraction, int] | None:
    """The longest number at the start of a text, and where it ends."""
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
    base, exponent = _decimal(match["base"]), int(match["exponent"])
    if base == 0 and exponent < 0:
        return None
    return _decimal(match["factor"] or "1") * base**exponent


def _ratio(match: re.Match[str]) -> Fraction | None:
    over, under = _decimal(match["over"]), _decimal(match["under"])
    return None if under == 0 else int(match["whole"] or 0) + over / under


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))
