"""Values for fuzzing: any JSON, difficult numbers and texts, and mutated valid documents."""

from __future__ import annotations

import copy
import itertools
import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

EVIL_TEXTS = (
    "",
    " ",
    "\0",
    "\n",
    "‮",
    "\ufeff",
    "é",
    "𝔘",
    "a" * 5_000,
    "none",
    "null",
    "-1",
    "1e999",
    "{}",
    "~nobody/x.toml",
)
EVIL_NUMBERS = (0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 0.0, -0.0, 1e308, -1e308, 5e-324, 0.5)
TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
"""`make fuzz` tries this many times as much as the ordinary tests do."""


def examples(count: int) -> settings:
    """Return settings for `count` examples; `make fuzz` multiplies the number."""
    return settings(max_examples=count * TIMES, deadline=None)


texts = st.sampled_from(EVIL_TEXTS) | st.text(max_size=20)
numbers = st.sampled_from(EVIL_NUMBERS) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
"""Any JSON value of a reasonable size."""


def places(document: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a document."""
    found = [prefix]
    children = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in children:
        found += places(value, (*prefix, key))
    return found


@st.composite
def mutated(draw: st.DrawFn, *documents: Any, most: int = 3) -> Any:
    """Return one of these documents with some values replaced, removed or added."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(0, most))):
        path = draw(st.sampled_from(places(document)))
        if not path:
            continue
        *parents, last = path
        node = document
        for key in parents:
            node = node[key]
        match draw(st.sampled_from(("replace", "remove", "add"))):
            case "replace":
                node[last] = draw(json_values)
            case "remove":
                del node[last]
            case "add" if isinstance(node, dict):
                node[draw(texts)] = draw(json_values)
            case "add":
                node.insert(last, draw(json_values))
    return document


@st.composite
def chunks(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Return these bytes in random chunks."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]
