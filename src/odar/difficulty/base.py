"""What every difficulty estimator is, and where to find them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from odar.files import user_path
from odar.registry import Registry
from odar.types import Estimate, Query


class Estimator(Protocol):
    """Gives a query a difficulty in [0, 1]. Deterministic, fast, without I/O."""

    @property
    def name(self) -> str:
        """What the trace calls it."""
        ...

    def estimate(self, query: Query) -> Estimate:
        """How hard the query looks."""
        ...


@runtime_checkable
class LazyEstimator(Estimator, Protocol):
    """An estimator that can give bounds for d first, and the exact value at a higher cost."""

    def unparsed(self, query: Query) -> Estimate:
        """An estimate with an interval."""
        ...

    def parsed(self, query: Query, estimate: Estimate) -> Estimate:
        """The same estimate with the exact value."""
        ...


ESTIMATORS: Registry[Callable[[], Estimator]] = Registry(
    "estimator",
    {
        "constant": "odar.difficulty.baselines:ConstantEstimator",
        "learned": "odar.difficulty.estimator:shipped_estimator",
        "length": "odar.difficulty.baselines:LengthEstimator",
    },
    group="odar.estimators",
)
"""Estimators by name; each entry makes one when called without arguments."""


def open_estimator(name: str, calibrated: Mapping[str, Any] | None = None, origin: str = "") -> Estimator:
    """An estimator by its registered name, or the file that `odar train estimator` wrote.

    The learned one has the weights that the calibration `origin` found, where there are any.

    >>> open_estimator("length").name
    'length'
    """
    if name not in ESTIMATORS.names() and name.endswith(".json"):
        from odar.difficulty.estimator import LearnedEstimator

        return LearnedEstimator.load(user_path(name, setting="routing.estimator"))
    if calibrated is None or name != "learned":
        return ESTIMATORS[name]()
    from odar.difficulty.estimator import calibrated_estimator

    return calibrated_estimator(calibrated, origin)
