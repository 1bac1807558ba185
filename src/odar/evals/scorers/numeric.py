"""Answers that are one number."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from odar.policy.equivalence import parse_quantity

_NUMBER = re.compile(r"(?<![\w.])[-+]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?|(?<![\w.])[-+]?\.\d+")


def numeric(gold: str, answer: str) -> float:
    """1 where the answer is the gold number, units aside.

    An answer that is a quantity as a whole counts as it stands (`$1,000`, `3/4`, `18 dollars`, `1.5e3`); of a
    sentence, the last number counts, as GSM8K's own script has it. Thousands separators, currency signs, a closing
    full stop, bold marks and Unicode minus signs do not matter; a rounded number is another number.

    >>> numeric("18", "She makes $18.00 every day."), numeric("18", "18 or 19")
    (1.0, 0.0)
    """
    wanted, given = number(gold), number(answer)
    return float(wanted is not None and wanted == given)


def within(gold: str, answer: str, tolerance: float) -> float:
    """1 where the answer is a number at most this far from the gold one: for sets that ask for decimals.

    >>> within("1.2", "1.24", 0.05)
    1.0
    """
    wanted, given = number(gold), number(answer)
    return float(wanted is not None and given is not None and abs(wanted - given) <= Fraction(str(tolerance)))


def number(text: str) -> Fraction | None:
    """The number a text stands for: the whole of it, or the last one in it.

    >>> number("x = 1,234.50"), number("none")
    (Fraction(2469, 2), None)
    """
    plain = unicodedata.normalize("NFKC", text[-2_000:]).replace("−", "-").replace("\\$", "$").strip().strip("*`$ ")
    plain = plain.rstrip(".") or plain
    whole = parse_quantity(plain.casefold())
    if whole is not None:
        return whole.value
    found = _NUMBER.findall(plain)
    if not found:
        return None
    try:
        return Fraction(found[-1].replace(",", "").replace("$", ""))
    except ZeroDivisionError:
        return None
