"""When two final answers are the same answer: numbers, choices, yes/no, LaTeX, lists, sets, dates, words.

`canonical` maps every string to a form such that equal forms mean equal answers; equality of forms is an
equivalence relation by construction. `group` partitions a set of answers, and there lets "42" join "42 km" when no
other unit is in play. Both are total and fast: any string in, no exception, no symbolic algebra.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

from odar.fusion.conclusion import conclusion
from odar.fusion.quantity import parse_quantity


class Form(NamedTuple):
    """An answer's canonical form: what kind it is, its value, and the unit of a number."""

    kind: str
    value: str
    unit: str = ""


class Equivalence(Protocol):
    """Decides which answers of a set are the same; evaluation plugs in a stronger one."""

    def __call__(self, answers: Sequence[str]) -> list[int]:
        """A number per answer; equal answers share it."""
        ...


LONGEST = 2_000
"""Longer texts are compared as they are, white space aside: they are prose or code, not a final answer."""
DEEPEST = 8
"""A list in a list in a list… of more levels is text too."""

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
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
    """The form in which equal answers are equal.

    >>> canonical("1,000") == canonical("1000.0") == canonical("10^3")
    True
    >>> canonical("50%") == canonical("1/2")
    False
    >>> canonical("(B)") == canonical("b.")
    True
    """
    return _canonical(answer, DEEPEST)


def _canonical(answer: str, levels: int) -> Form:
    """The form; a collection may hold collections for so many levels more, and is text beyond them."""
    if len(answer) > LONGEST:
        return Form("text", " ".join(answer.split()))
    text = _clean(answer)
    simple = _choice(text) or _date(text) or _number(text) or _verdict(text)
    return simple or (_collection(text, levels) if levels else None) or _words(text)


def group(answers: Sequence[str]) -> list[int]:
    """A number per answer; equal answers share it. A bare number joins the only unit its value appears with.

    Where one of the answers is a number, the question asks for one: prose then counts as the number it comes to.

    >>> group(["42", "42 km", "$7", "7 dollars", "Paris"])
    [0, 0, 1, 1, 2]
    >>> group(["5", "5 kg", "5 g"])
    [0, 1, 2]
    >>> group(["18", "She sells 9 eggs for $2 each, so she makes 9 * 2 = 18 dollars."])
    [0, 0]
    """
    forms = [canonical(answer) for answer in answers]
    if any(form.kind == "number" for form in forms):
        forms = [_concluded(form, answer) for form, answer in zip(forms, answers, strict=True)]
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


def _concluded(form: Form, answer: str) -> Form:
    """The number that prose comes to, where it comes to one; everything else as it is."""
    if form.kind not in ("text", "formula"):
        return form
    last = conclusion(answer)
    number = None if last is None else _number(_clean(last))
    return form if number is None else number


def equivalent(a: str, b: str) -> bool:
    """Whether two answers are the same one.

    >>> equivalent("\\\\frac{1}{2}", "0.5")
    True
    """
    return len(set(group([a, b]))) == 1


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
    return None if quantity is None else Form("number", _exact(quantity.value), quantity.unit)


def _exact(value: Fraction) -> str:
    """Exact, and in hexadecimal because Python refuses to write very long integers in decimal."""
    return f"{value.numerator:x}/{value.denominator:x}"


def _collection(text: str, levels: int) -> Form | None:
    inner, kind = text, "list"
    if text[:1] + text[-1:] in ("[]", "()", "{}"):
        inner, kind = text[1:-1], "set" if text[0] == "{" else "list"
    elif text.startswith("\\{") and text.endswith("\\}"):
        inner, kind = text[2:-2], "set"
    elif not re.search(r",\S|, | and |;", text) or len(text) > 200:
        return None
    parts = [part for part in re.split(r"\s*(?:,\s*and\s|[,;]|\sand\s)\s*", inner) if part.strip()]
    if len(parts) < 2 and kind == "list" and inner == text:
        return None
    if any(len(part.split()) > 4 for part in parts):
        return None  # a sentence with commas, not a list
    forms = [":".join(_canonical(part, levels - 1)) for part in parts]
    return Form(kind, " | ".join(sorted(set(forms)) if kind == "set" else forms))


def _verdict(text: str) -> Form | None:
    match = _VERDICT.fullmatch(text)
    return Form("verdict", match.group(1)) if match else None


def _words(text: str) -> Form:
    """Free text, without articles, spaces in formulas and closing punctuation."""
    if "\\" in text or re.search(r"[\^_{}=]", text):
        return Form("formula", re.sub(r"\s+", "", text))
    return Form("text", _ARTICLE.sub("", text))
