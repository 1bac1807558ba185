"""Whether a fit may take the place of what is in use: accuracy first, then what it costs.

A fit that is never less often right on a few hundred items does not exist: two equal settings differ by an item or
two. So a loss that may be chance is borne, but only for a saving that is none, and only up to a tolerance. The more
items, the less may be chance: with thousands of them next to no loss is.
"""

from __future__ import annotations

from odar.calibration.bootstrap import Interval

TOLERANCE = 0.05
"""Of accuracy: what a cheaper fit may lose at the low end of its interval; its likeliest loss is half as much."""


def objection(accuracy: Interval, price: Interval, tolerance: float = TOLERANCE) -> str:
    """Why a fit must not be installed; empty where it may be.

    Args:
        accuracy: its accuracy minus that of what is in use.
        price: the same for what an item costs.
        tolerance: the accuracy that a saving may cost, if the items were kind to it; 0 bears no loss at all.

    >>> fewer_calls = Interval(-0.9, -1.2, -0.6)
    >>> objection(Interval(-0.01, -0.03, 0.01), fewer_calls), objection(Interval(-0.03, -0.05, -0.01), fewer_calls)
    ('', 'it is clearly less often right than what is in use')
    """
    if accuracy.high < 0:
        return "it is clearly less often right than what is in use"
    if accuracy.value < 0:
        if price.high >= 0:
            return "it is less often right than what is in use, and not clearly cheaper"
        if accuracy.low < -tolerance:
            return f"it may be right {-accuracy.low:.3f} less often than what is in use, more than {tolerance:g}"
    if price.low > 0 and accuracy.low <= 0:
        return "it costs more than what is in use, and is not clearly more often right"
    return ""
