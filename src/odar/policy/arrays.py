"""Arrays over many questions: their types, and the base of dataclasses that hold several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Rows:
    """Base of dataclasses whose arrays, lists and other `Rows` have one row for each question."""

    __slots__ = ()

    def rows(self, index: Ints | Bools | slice) -> Self:
        """Return some of the questions, by a mask or by their positions; values without rows stay."""
        columns = {each.name: _select(getattr(self, each.name), index) for each in fields(cast(Any, self))}
        return cast(Self, replace(cast(Any, self), **columns))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the questions of several parts, in order; values without rows are those of the first part."""
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cast(Any, cls))}
        return cls(**{name: _concatenate(values) for name, values in columns.items()})


def _select(values: Any, index: Ints | Bools | slice) -> Any:
    match values:
        case np.ndarray():
            return values[index]
        case list():
            return [values[row] for row in np.arange(len(values))[index].tolist()]
        case Rows():
            return values.rows(index)
    return values


def _concatenate(parts: Sequence[Any]) -> Any:
    match parts[0]:
        case np.ndarray():
            return np.concatenate(parts)
        case list():
            return list(chain.from_iterable(parts))
        case Rows():
            return type(parts[0]).concatenate(parts)
    return parts[0]
