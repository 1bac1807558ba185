"""What several figures share: names as they fit, patches for legends, sizes."""

from __future__ import annotations

from typing import Any

WIDE, HALF = (9.6, 3.9), (4.9, 3.6)
"""Inches: the whole width of the page, or half of it."""
PATHS = ("Simple", "Medium", "Hard")
SHORT_NAMES = {"odar": "ODAR", "cot": "CoT"}
SHORT = {"self-consistency": "SC", "best-of-n": "BoN"}


def label(spec: str) -> str:
    """A policy's name as it fits beside a point.

    >>> label("self-consistency:k=5"), label("odar:rule=none"), label("odar:mode=prior")
    ('SC-5', 'no fusion', 'mode=prior')
    """
    name, _, rest = spec.partition(":")
    if spec == "odar:rule=none":
        return "no fusion"
    if name in SHORT:
        return f"{SHORT[name]}-{rest.partition('=')[2]}"
    if name in SHORT_NAMES:
        return rest or SHORT_NAMES[name]
    return name.replace("-", " ")


def patch(colour: str) -> Any:
    """A field of colour for a legend."""
    from matplotlib.patches import Patch

    return Patch(color=colour, linewidth=0)
