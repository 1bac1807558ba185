"""Plug-ins: a registry maps names to objects; other packages add theirs with an entry point in its group."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from odar.errors import UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects by name. Those of other packages are loaded when first used: listing the names imports nothing.

    >>> numbers: Registry[float] = Registry("number", {"half": 0.5}, group="odar.numbers")
    >>> numbers.add("two", 2.0)
    >>> sorted(numbers.names())
    ['half', 'two']
    """

    def __init__(self, kind: str, built_in: Mapping[str, T], group: str) -> None:
        self._kind = kind
        self._group = group
        self._objects = dict(built_in)

    def add(self, name: str, value: T) -> None:
        """Register an object; it replaces an earlier one of the same name."""
        self._objects[name] = value

    def names(self) -> set[str]:
        return {*self._objects, *self._plug_ins()}

    def __getitem__(self, name: str) -> T:
        if name not in self._objects:
            entry_point = self._plug_ins().get(name)
            if entry_point is None:
                raise UnknownName(self._kind, name, self.names())
            self._objects[name] = cast(T, entry_point.load())
        return self._objects[name]

    def _plug_ins(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self._group)}
