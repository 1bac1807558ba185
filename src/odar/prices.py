"""Prices and context lengths of models by their provider, from a public table (SPEC 11.3).

`prices.json` holds the data of genai-prices (MIT); `scripts/release/prices.py` writes it. It is read at the first
look-up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources

import msgspec

from odar.catalogue import Price

MAX_NAME = 200
"""Characters of a model's name; a client can name any model, and the table's patterns are not ours."""


class TablePrice(msgspec.Struct, array_like=True):
    """What the table knows of a model: US dollars per million tokens, and its context length."""

    input: float
    cached: float | None
    output: float
    written: float | None = None
    written_1h: float | None = None
    up_to: int | None = None
    context: int | None = None

    @property
    def price(self) -> Price:
        # If the price of cached input is unknown, use the full price: the cost can be too high, never too low.
        cached = self.input if self.cached is None else self.cached
        return Price(self.input, cached, self.output, self.written, self.written_1h, self.up_to)


class _Provider(msgspec.Struct):
    url: str
    also: Sequence[str]
    """Providers whose models it offers too, at the same prices."""
    names: Mapping[str, TablePrice]
    patterns: Sequence[tuple[str, TablePrice]]


class _Table(msgspec.Struct):
    source: str
    date: str
    providers: Mapping[str, _Provider]


@lru_cache(maxsize=1024)
def find_price(provider: str, base_url: str, model: str) -> TablePrice | None:
    """The price of a provider's model; None if the provider or the model is not in the table.

    Args:
        provider: its name, which counts if the address is not in the table: a proxy in front of openai.
        base_url: its address.
        model: the name of the model at the provider.

    >>> find_price("mine", "https://api.openai.com/v1", "gpt-4.1").price.output
    8.0
    >>> find_price("vllm", "http://127.0.0.1:8000/v1", "gpt-4.1") is None
    True
    """
    if len(model) > MAX_NAME:
        return None
    found = _find_providers(provider, base_url)
    return next((row for each in found for row in _rows(each, model.lower())), None)


def table_date() -> str:
    """The day the table was read."""
    return _table().date


def _find_providers(name: str, base_url: str) -> list[_Provider]:
    """The provider with this address or name, and those whose models it offers too."""
    providers = _table().providers
    found = [each for each in providers.values() if re.match(each.url, base_url)]
    found = found or ([providers[name]] if name in providers else [])
    return found + [providers[other] for each in found for other in each.also if other in providers]


def _rows(provider: _Provider, model: str) -> Iterator[TablePrice]:
    if model in provider.names:
        yield provider.names[model]
    yield from (row for pattern, row in provider.patterns if re.search(pattern, model))


@cache
def _table() -> _Table:
    return msgspec.json.decode(resources.files("odar").joinpath("prices.json").read_bytes(), type=_Table)
