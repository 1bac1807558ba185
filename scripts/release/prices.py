"""Write src/odar/prices.json from the data of genai-prices: prices and context lengths by provider and model.

    python -m pip install --upgrade genai-prices && python scripts/release/prices.py

Where a price changes with the hour of the day, the highest is taken: a cost is then too high at times, never too low.
Left out are models without a price per token, and models that also charge for each request, which would look too cheap.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices import types
from genai_prices.data import providers

FILE = Path(__file__).parents[2] / "src" / "odar" / "prices.json"
OTHER_PROTOCOLS = {"aws", "cursor", "elevenlabs", "github-copilot", "openai-decisions"}
"""Providers that speak neither OpenAI's nor Anthropic's protocol, or sell no tokens."""
FIELDS = ("input_mtok", "cache_read_mtok", "output_mtok", "cache_write_mtok", "cache_write_1h_mtok")
TODAY = datetime.datetime.now(datetime.UTC)


def main() -> None:
    """Write the file, and check it against the package."""
    tables = {provider.id: table_of(provider) for provider in providers if provider.id not in OTHER_PROTOCOLS}
    source = f"genai-prices {version('genai-prices')}, MIT, Copyright (c) Pydantic Services Inc."
    head = {"source": source, "date": TODAY.date().isoformat()}
    FILE.write_text(dump(head, {name: table for name, table in tables.items() if table["names"]}), encoding="utf-8")
    check()


def table_of(provider: types.Provider) -> dict[str, Any]:
    """Return one provider: the pattern of its addresses, rows by exact name, and rows by pattern in order."""
    names: dict[str, Any] = {}
    patterns: list[Any] = []
    for model in provider.models:
        if (row := row_of(model)) is None:
            continue
        for clause in alternatives(model.match):
            if isinstance(clause, types.ClauseEquals):
                names.setdefault(clause.equals.lower(), row)
            else:
                patterns.append([pattern_of(clause), row])
    also = [name for name in provider.fallback_model_providers or () if name not in OTHER_PROTOCOLS]
    return {"url": provider.api_pattern, "also": also, "names": names, "patterns": patterns}


def row_of(model: types.ModelInfo) -> list[float | None] | None:
    """Return prices per million tokens, the longest prompt that they hold for, and the context; None if unknown."""
    prices = price_of(model)
    values = [getattr(prices, name, None) for name in FIELDS] if prices else []
    if not values or values[0] is None or getattr(prices, "requests_kcount", None) is not None:
        return None
    if values[2] is None:  # embeddings write nothing
        if "embed" not in model.id:
            return None
        values[2] = 0
    starts = [value.tiers[0].start for value in values if isinstance(value, types.TieredPrices)]
    row = [number(value.base if isinstance(value, types.TieredPrices) else value) for value in values]
    row += [min(starts, default=None), model.context_window]
    while row[-1] is None:
        row.pop()
    return row


def price_of(model: types.ModelInfo) -> types.ModelPrice | None:
    """Return the price of today, the highest of the day."""
    if not isinstance(model.prices, list):
        return model.prices
    hours = [TODAY.replace(hour=hour) for hour in range(24)]
    return max((model.get_prices(hour) for hour in hours), key=lambda price: number(price.output_mtok) or 0.0)


def number(value: Any) -> float | None:
    """Return a plain number, without a fraction where it has none."""
    if value is None or isinstance(value, types.TieredPrices):
        return None if value is None else number(value.base)
    return int(value) if value == int(value) else float(value)


def alternatives(clause: Any) -> Iterator[Any]:
    """Yield the clauses of which one must match."""
    if isinstance(clause, types.ClauseOr):
        for each in clause.or_:
            yield from alternatives(each)
    else:
        yield clause


def pattern_of(clause: Any) -> str:
    """Return a regular expression for `re.search` on a name in lower case."""
    match clause:
        case types.ClauseStartsWith(starts_with=text):
            return "^" + re.escape(text.lower())
        case types.ClauseEndsWith(ends_with=text):
            return re.escape(text.lower()) + "$"
        case types.ClauseContains(contains=text):
            return re.escape(text.lower())
        case types.ClauseRegex(regex=text):
            return str(text)
        case types.ClauseAnd(and_=parts):
            return "^" + "".join(f"(?=.*(?:{pattern_of(part).removeprefix('^')}))" for part in parts)
        case types.ClauseOr(or_=parts):
            return "|".join(map(pattern_of, parts))
        case _:
            return "^" + re.escape(clause.equals.lower()) + "$"


def dump(head: dict[str, str], tables: dict[str, Any]) -> str:
    """Return the file as JSON with a line for each model, so that a diff shows which price has changed."""
    lines = []
    for provider, table in tables.items():
        names = ",\n".join(f"  {json.dumps(name)}: {short(row)}" for name, row in sorted(table["names"].items()))
        patterns = ",\n".join(f"  {short(each)}" for each in table["patterns"])
        shared = f'"url": {json.dumps(table["url"])}, "also": {short(table["also"])}'
        lines.append(f'{json.dumps(provider)}: {{{shared}, "names": {{\n{names}}}, "patterns": [\n{patterns}]}}')
    return json.dumps(head)[:-1] + ', "providers": {\n' + ",\n".join(lines) + "}}\n"


def short(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":"))


def check() -> None:
    """Print how many models there are, and those whose price differs from the package's own lookup."""
    from odar.prices import find_price

    found = 0
    for provider in providers:
        address = provider.api_pattern.replace("\\.", ".")
        if provider.id in OTHER_PROTOCOLS or not re.match(provider.api_pattern, address):
            continue
        for model in provider.models:
            own = provider.find_model(model.id)
            expected = None if own is None else row_of(own)
            got = find_price("", address, model.id)
            found += got is not None
            if expected is not None and (got is None or got.price.input != expected[0]):
                print(f"{provider.id}/{model.id}: {got} here, {expected} there")
    print(f"{FILE.stat().st_size:,} bytes; checked {found} models")


if __name__ == "__main__":
    main()
