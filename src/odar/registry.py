"""Plug-ins: a registry maps names to objects.

Objects of other modules are registered as "module:attribute", so that listing the names does not import them; other
packages add theirs with an entry point in the registry's group.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from odar.errors import UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects by name, loaded when first used.

    >>> numbers: Registry[float] = Registry("number", {"pi": "math:pi", "half": 0.5})
    >>> round(numbers["pi"], 2)
    3.14
    >>> numbers.add("two", 2.0)
    >>> sorted(numbers.names())
    ['half', 'pi', 'two']
    """

    def __init__(self, kind: str, built_in: Mapping[str, T | str], group: str | None = None) -> None:
        self._kind = kind
        self._group = group
        self._loaded: dict[str, T] = {}
        self._built_in: dict[str, EntryPoint] = {}
        for name, value in built_in.items():
            if isinstance(value, str):
                self._built_in[name] = EntryPoint(name, value, group or "")
            else:
                self._loaded[name] = value

    def add(self, name: str, value: T) -> None:
        """Register an object; it replaces an earlier one of the same name."""
        self._loaded[name] = value

    def names(self) -> set[str]:
        return {*self._built_in, *self._loaded, *self._plug_ins()}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            entry_point = self._built_in.get(name) or self._plug_ins().get(name)
            if entry_point is None:
                raise UnknownName(self._kind, name, self.names())
            self._loaded[name] = cast(T, entry_point.load())
        return self._loaded[name]

    def _plug_ins(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self._group)} if self._group else {}
