"""One fitted part and the evidence for it: it takes the place of the one in use only where it is clearly better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.policy.rules import Array, Ints

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Part(Generic[M]):
    """A model, what it says of the items it was fitted to, each by a fit that had not seen it, and how it did."""

    name: str
    model: M | None
    """The fitted model; None where nothing could be fitted."""
    held_out: Array
    """Its predictions for the items, each by a fit without that item; of the one in use where there is none."""
    gain: Interval | None
    """How much lower its error on held-out items is than that of the one in use."""
    measure: str
    """What error that is."""
    note: str = ""
    """Why nothing could be fitted."""

    @property
    def better(self) -> bool:
        """Whether it is clearly better than the one in use: even the low end of its gain is one."""
        return self.gain is not None and self.gain.low > 0


def compare(errors: Array, errors_in_use: Array) -> Interval:
    """The gain of one model over another, paired by item."""
    return bootstrap_mean(errors_in_use - errors, shares=False)


def folds(count: int, seed: int, number: int = 5) -> Ints:
    """A fold for each item."""
    return np.random.default_rng(seed).permutation(count) % number
