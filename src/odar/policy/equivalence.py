"""Equality of final answers: numbers, choices, yes and no, LaTeX, lists, sets, dates, words, tool calls.

`canonical_form` maps every string to a form; two answers are equal if their forms are. `group_answers` partitions a
set of answers, in which "42" also equals "42 km" if no other unit occurs. Both accept any string, never raise an
exception and use no symbolic algebra.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from odar.conversation import ToolCall
from odar.formats import dump_canonical, load_json
from odar.policy.quantities import concluding_number, parse_quantity
from odar.types import Candidate


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
"""b or (B) or option b, after case folding"""
_CHOICE_WITH_TEXT = re.compile(r"\(([a-j])\)[.:]? \S.*|([a-j])[.)] \S.*")
"""(b) Rome or b. rome"""
_YES_NO = re.compile(r"(yes|no|true|false)(?:[,.;:!] .*|[.!])?")
"""yes or no, they swim"""
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
"""Replacements in turn: \\text{cm} → cm, \\dfrac12 → \\frac{1}{2}, 90^\\circ → 90 degrees, 2 \\times 3 → 2 * 3"""
_ASSIGNMENT = re.compile(r"[a-z](?:_\w)? ?= ?(?=[^=])")
"""The beginning of x = 4 or x_1 = 4"""
_ARTICLE = re.compile(r"^(?:the|an?) ")


def canonical_form(answer: str) -> Form:
    """The form in which equal answers are equal.

    >>> canonical_form("1,000") == canonical_form("1000.0") == canonical_form("10^3")
    True
    >>> canonical_form("50%") == canonical_form("1/2")
    False
    >>> canonical_form("(B)") == canonical_form("b.")
    True
    """
    if len(answer) > MAX_CHARACTERS:  # not cached: it can have megabytes
        return Form("text", answer if len(answer) > _MAX_NORMALISED else " ".join(answer.split()))
    return _cached_form(answer, MAX_DEPTH)


def _canonical(answer: str, levels: int) -> Form:
    """The canonical form; collections nested deeper than `levels` are text."""
    text = _clean(answer)
    if match := _CHOICE.fullmatch(text) or _CHOICE_WITH_TEXT.fullmatch(text):
        return Form("choice", match[match.lastindex or 0])
    if form := _date(text) or _number(text):
        return form
    if match := _YES_NO.fullmatch(text):
        return Form("yes/no", match[1])
    if levels and (form := _collection(text, levels)):
        return form
    if "\\" in text or re.search(r"[\^_{}=]", text):
        return Form("formula", re.sub(r"\s+", "", text))
    return Form("text", _ARTICLE.sub("", text))


_cached_form = lru_cache(maxsize=64)(_canonical)  # each candidate of a question is needed several times


def group_answers(answers: Sequence[str]) -> list[int]:
    """Group number of each answer; equal answers share it.

    A number without a unit equals the same number with one, if only one unit occurs with it. If one of the answers
    is a number, prose counts as the number that it concludes with.

    >>> group_answers(["42", "42 km", "$7", "7 dollars", "Paris"])
    [0, 0, 1, 1, 2]
    >>> group_answers(["5", "5 kg", "5 g"])
    [0, 1, 2]
    >>> group_answers(["18", "She sells 9 eggs for $2 each, so she makes 9 * 2 = 18 dollars."])
    [0, 0]
    """
    forms = [canonical_form(answer) for answer in answers]
    if any(form.kind == "number" for form in forms):
        for i, answer in enumerate(answers):
            if forms[i].kind in ("text", "formula") and (number := concluding_number(answer)) is not None:
                forms[i] = _number(_clean(number)) or forms[i]
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


def equivalent(a: str, b: str) -> bool:
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
    if quantity is None:
        return None
    value, unit = quantity
    # hexadecimal, because Python limits the length of decimal integers
    return Form("number", f"{value.numerator:x}/{value.denominator:x}", unit)


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


def group_candidates(candidates: Sequence[Candidate]) -> list[int]:
    """A group number for each candidate; equal answers and equal tool calls share it."""
    texts = [i for i, candidate in enumerate(candidates) if not candidate.tool_calls]
    numbers = dict(zip(texts, group_answers([candidates[i].answer for i in texts]), strict=True))
    calls: dict[str, int] = {}
    for i, candidate in enumerate(candidates):
        if candidate.tool_calls:
            numbers[i] = len(candidates) + calls.setdefault(call_key(candidate.tool_calls), len(calls))
    return [numbers[i] for i in range(len(candidates))]


def call_key(calls: Sequence[ToolCall]) -> str:
    """Key that equal tool calls share: names and canonical arguments, sorted.

    >>> call_key([ToolCall("1", "f", '{"b": 1, "a": 2}')]) == call_key([ToolCall("2", "f", '{"a":2,"b":1.0}')])
    True
    """
    return "\n".join(sorted(f"{call.name} {canonical_json(call.arguments)}" for call in calls))


def canonical_json(text: str) -> str:
    """JSON with sorted keys, without white space, and with 1.0 as 1; other text unchanged."""
    try:
        return dump_canonical(_floats_to_ints(load_json(text.strip() or "{}")))
    except ValueError:
        return text.strip()


def _floats_to_ints(value: Any) -> Any:
    match value:
        case dict():
            return {key: _floats_to_ints(each) for key, each in value.items()}
        case list():
            return [_floats_to_ints(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    return value
