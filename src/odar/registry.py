"""Plug-ins: a registry maps names to objects.

Built-in things are registered as "module:attribute" so that listing the names imports nothing; other
packages add theirs by an entry point in the registry's group.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

from odar.errors import UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects by name, loaded when first used.

    >>> numbers: Registry[float] = Registry("number", {"pi": "math:pi"})
    >>> round(numbers["pi"], 2)
    3.14
    >>> numbers.add("two", 2.0)
    >>> sorted(numbers.names())
    ['pi', 'two']
    """

    def __init__(self, kind: str, built_in: Mapping[str, str], group: str | None = None) -> None:
        self._kind = kind
        self._places = dict(built_in)
        self._things: dict[str, T] = {}
        self._group = group

    def add(self, name: str, thing: T) -> None:
        """Register an object; it replaces an earlier one of the same name."""
        self._things[name] = thing

    def names(self) -> set[str]:
        """Return every name that can be asked for, entry points of other packages included."""
        return {*self._places, *self._things, *self._entry_points()}

    def __getitem__(self, name: str) -> T:
        if name not in self._things:
            if name in self._places:
                module, _, attribute = self._places[name].partition(":")
                self._things[name] = getattr(importlib.import_module(module), attribute)
            elif name in (found := self._entry_points()):
                self._things[name] = cast(T, found[name].load())
            else:
                raise UnknownName(self._kind, name, self.names())
        return self._things[name]

    def _entry_points(self) -> dict[str, importlib.metadata.EntryPoint]:
        return {point.name: point for point in entry_points(group=self._group)} if self._group else {}
