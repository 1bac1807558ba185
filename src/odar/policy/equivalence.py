"""Equality of final answers: numbers, choices, yes and no, LaTeX, lists, sets, dates, words.

`canonical` maps every string to a form; two answers are equal if their forms are. `group_answers` partitions a set
of answers, in which "42" also equals "42 km" if no other unit occurs. Both accept any string, raise no exception
and use no symbolic algebra.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from odar.policy.answers import concluding_number


class Form(NamedTuple):
    """Canonical form of an answer: its kind, its value, and the unit of a number."""

    kind: str
    value: str
    unit: str = ""


_MAX_NORMALISED = 32_000
"""Characters of the longest answer in which white space does not matter."""
MAX_CHARACTERS = 2_000
"""Length above which texts are compared word for word: they are prose or code."""
MAX_DEPTH = 8
"""Maximum depth of nested lists; deeper ones are text."""

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH = "|".join(name[:3] + f"(?:{name[3:]})?" if len(name) > 3 else name for name in _MONTHS)
_DATES = (
    re.compile(rf"(?P<month>{_MONTH})\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<year>\d{{4}})"),
    re.compile(rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<month>{_MONTH})\.?,? (?P<year>\d{{4}})"),
    re.compile(r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"),
)
_CHOICE = re.compile(r"\(?([a-j])\)?[.):]?|(?:option|choice) \(?([a-j])\)?[.:]?")
_CHOICE_WITH_TEXT = re.compile(r"\(([a-j])\)[.:]? \S.*|([a-j])[.)] \S.*")
_VERDICT = re.compile(r"(yes|no|true|false)(?:[,.;:!] .*|[.!])?")
_LATEX = (
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:left|right|big|Big|displaystyle|,|;|!|:|quad)(?![a-zA-Z])"), ""),
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\^\s*\\circ|\^\{\s*\\circ\s*\}|°"), " degrees"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\\\$"), "$"),
    (re.compile(r"\\[()\[\]]"), ""),
    (re.compile(r"\\(?:cdot|times)"), "*"),
)
_ASSIGNMENT = re.compile(r"[a-z](?:_\w)? ?= ?(?=[^=])")
_ARTICLE = re.compile(r"^(?:the|an?) ")


def canonical(answer: str) -> Form:
    """Return the form in which equal answers are equal.

    >>> canonical("1,000") == canonical("1000.0") == canonical("10^3")
    True
    >>> canonical("50%") == canonical("1/2")
    False
    >>> canonical("(B)") == canonical("b.")
    True
    """
    if len(answer) > MAX_CHARACTERS:  # not cached: it can have megabytes
        return Form("text", answer if len(answer) > _MAX_NORMALISED else " ".join(answer.split()))
    return _cached_form(answer)


@lru_cache(maxsize=64)  # each candidate of a question is needed several times
def _cached_form(answer: str) -> Form:
    return _canonical(answer, MAX_DEPTH)


def _canonical(answer: str, levels: int) -> Form:
    """Return the canonical form; collections nested deeper than `levels` are text."""
    text = _clean(answer)
    form = _choice(text) or _date(text) or _number(text) or _verdict(text)
    if form is None and levels:
        form = _collection(text, levels)
    return form or _free_text(text)


def group_answers(answers: Sequence[str]) -> list[int]:
    """Return a group number for each answer; equal answers share it.

    A number without a unit equals the same number with one, if only one unit occurs with it. If one of the answers
    is a number, prose counts as the number that it concludes with.

    >>> group_answers(["42", "42 km", "$7", "7 dollars", "Paris"])
    [0, 0, 1, 1, 2]
    >>> group_answers(["5", "5 kg", "5 g"])
    [0, 1, 2]
    >>> group_answers(["18", "She sells 9 eggs for $2 each, so she makes 9 * 2 = 18 dollars."])
    [0, 0]
    """
    forms = [canonical(answer) for answer in answers]
    if any(form.kind == "number" for form in forms):
        forms = [_concluding_form(form, answer) for form, answer in zip(forms, answers, strict=True)]
    units: dict[str, set[str]] = {}
    for form in forms:
        if form.kind == "number" and form.unit:
            units.setdefault(form.value, set()).add(form.unit)
    numbers: dict[Form, int] = {}
    result = []
    for form in forms:
        seen = units.get(form.value, set())
        if form.kind == "number" and not form.unit and len(seen) == 1:
            form = Form("number", form.value, next(iter(seen)))
        result.append(numbers.setdefault(form, len(numbers)))
    return result


def _concluding_form(form: Form, answer: str) -> Form:
    """Return the number that prose concludes with, if there is one; other forms unchanged."""
    if form.kind not in ("text", "formula"):
        return form
    number = concluding_number(answer)
    return form if number is None else _number(_clean(number)) or form


def equivalent(a: str, b: str) -> bool:
    """Return whether two answers are equal."""
    return len(set(group_answers([a, b]))) == 1


def _clean(answer: str) -> str:
    text = unicodedata.normalize("NFKC", answer).replace("−", "-").replace("’", "'")
    text = text.replace("$$", "$").strip()
    if text.count("$") == 2 and text.startswith("$") and text.rstrip(".").endswith("$"):
        text = text.rstrip(".").strip("$")
    if "\\" in text or "^" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    text = " ".join(text.casefold().split()).strip(" \"'`*_。")
    return text.rstrip(".!。 ") or text


def _choice(text: str) -> Form | None:
    match = _CHOICE.fullmatch(text) or _CHOICE_WITH_TEXT.fullmatch(text)
    return Form("choice", next(letter for letter in match.groups() if letter)) if match else None


def _date(text: str) -> Form | None:
    for pattern in _DATES:
        if match := pattern.fullmatch(text):
            month = match["month"]
            number = int(month) if month.isdigit() else [name[:3] for name in _MONTHS].index(month[:3]) + 1
            if 1 <= number <= 12 and 1 <= int(match["day"]) <= 31:
                return Form("date", f"{match['year']}-{number:02}-{int(match['day']):02}")
    return None


def _number(text: str) -> Form | None:
    quantity = parse_quantity(_ASSIGNMENT.sub("", text, count=1) if _ASSIGNMENT.match(text) else text)
    return None if quantity is None else Form("number", _exact(quantity[0]), quantity[1])


def _exact(value: Fraction) -> str:
    """Return the exact fraction, in hexadecimal because Python limits the length of decimal integers."""
    return f"{value.numerator:x}/{value.denominator:x}"


def _collection(text: str, levels: int) -> Form | None:
    inner, kind = text, "list"
    if text[:1] + text[-1:] in ("[]", "()", "{}"):
        inner, kind = text[1:-1], "set" if text[0] == "{" else "list"
    elif text.startswith("\\{") and text.endswith("\\}"):
        inner, kind = text[2:-2], "set"
    elif not re.search(r",\S|, | and |;", text) or len(text) > 200:
        return None
    parts = [part for part in re.split(r"(?<!\s)\s*(?:,\s*and\s|[,;]|\sand\s)\s*", inner) if part.strip()]
    if len(parts) < 2 and kind == "list" and inner == text:
        return None
    if any(len(part.split()) > 4 for part in parts):
        return None  # a sentence with commas, not a list
    forms = [":".join(_canonical(part, levels - 1)) for part in parts]
    return Form(kind, " | ".join(sorted(set(forms)) if kind == "set" else forms))


def _verdict(text: str) -> Form | None:
    match = _VERDICT.fullmatch(text)
    return Form("verdict", match.group(1)) if match else None


def _free_text(text: str) -> Form:
    """Return the form of any other text: without spaces if it is a formula, else without its first article."""
    if "\\" in text or re.search(r"[\^_{}=]", text):
        return Form("formula", re.sub(r"\s+", "", text))
    return Form("text", _ARTICLE.sub("", text))


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
_MAX_NUMBER_CHARACTERS = 120
_SHORTEST_UNKNOWN_UNIT = 3


def parse_quantity(text: str) -> tuple[Fraction, str] | None:
    """Return the exact number that a case-folded text consists of, and its unit, which may be empty; or None.

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
    for symbol in sorted(_CURRENCY, key=len, reverse=True):
        if rest.startswith(symbol):
            unit, rest = _CURRENCY[symbol], rest[len(symbol) :].strip()
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
        unit = _UNIT_OF.get(word) or _CURRENCY.get(word) or (word if _is_unit(word) else "")
        if not unit:
            return None
    return -value if sign == "-" else value, unit


def _is_unit(word: str) -> bool:
    """Return whether an unknown word may be a unit: m^2, km/h, apples, but not the algebra in 4x, 4x^2, 3y/2."""
    stem = _STEM.match(word)
    return stem is not None and (stem[0] in _UNIT_OF or len(stem[0]) >= _SHORTEST_UNKNOWN_UNIT)


def _leading_number(text: str) -> tuple[Fraction, int] | None:
    """Return the longest number at the start of a text, and its end."""
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
