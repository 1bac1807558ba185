"""HTML in small pieces; whatever comes from a panel is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from odar.calibration.bootstrap import Interval


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Cell = str | Markup


def esc(text: object) -> Markup:
    """Anything as text of a page.

    >>> esc("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return text if isinstance(text, Markup) else Markup(escape(str(text), quote=True))


def tag(name: str, *content: object, **attributes: str) -> Markup:
    """An element; `class_` is written for class.

    >>> tag("p", "1 < 2", class_="note")
    '<p class="note">1 &lt; 2</p>'
    """
    written = "".join(f' {key.rstrip("_")}="{esc(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>{''.join(map(esc, content))}</{name}>")


def table(head: Sequence[Cell], rows: Sequence[Sequence[Cell]], marked: Sequence[bool] = ()) -> Markup:
    """A table whose first column is a heading and whose others are figures; marked rows stand out."""
    top = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = []
    for i, row in enumerate(rows):
        cells = [tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])]
        style = {"class_": "ours"} if i < len(marked) and marked[i] else {}
        body.append(tag("tr", *cells, **style))
    whole = tag("table", tag("thead", top), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0")


def number(value: float | None, form: str = ".3f", unknown: str = "unknown") -> str:
    """A figure with a real minus sign; unknown is said, never shown as 0.

    >>> number(-0.5), number(-0.0001, "+.3f"), number(None), number(float("nan"))
    ('−0.500', '0.000', 'unknown', 'unknown')
    """
    if value is None or np.isnan(value):
        return unknown
    text = f"{value:{form}}"
    if not text.strip("+-0.%"):
        text = f"{0.0:{form}}".lstrip("+")  # nothing has no sign
    return text.replace("-", "−")


def interval(value: Interval, form: str = ".3f") -> Markup:
    """A mean with its interval in a lighter hand."""
    span = "" if np.isnan(value.low) else f"{number(value.low, form)} to {number(value.high, form)}"
    return Markup(f"{number(value.value, form)} {tag('small', span)}")


def p_value(p: float | None) -> str:
    """A p-value as it is read.

    >>> p_value(0.00001), p_value(0.034), p_value(None)
    ('< 0.001', '0.034', '–')
    """
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
