"""Prints, as JSON, every pattern that the package compiles while its modules are imported and a question is answered.

Run in a process of its own, in which no module of the package has been imported: `python -m support.record_patterns`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

spec = importlib.util.find_spec("odar")
assert spec is not None
assert spec.origin is not None
SOURCE = Path(spec.origin).parent
seen: dict[tuple[str, bool, int, str, int], None] = {}
compile_pattern = re._compile  # type: ignore[attr-defined]


def record(pattern: Any, flags: int) -> Any:
    """Compile a pattern as `re` does, and note the line of the package that asked for it."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename in (re.__file__, __file__):
        frame = frame.f_back
    file = Path(frame.f_code.co_filename)
    if SOURCE in file.parents and isinstance(pattern, str | bytes):
        text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
        place = (file.relative_to(SOURCE).as_posix(), frame.f_lineno)
        seen[text, isinstance(pattern, bytes), int(flags), *place] = None
    return compile_pattern(pattern, flags)


def main() -> None:
    """Import everything and use what compiles its patterns on first use."""
    re._compile = record  # type: ignore[attr-defined]
    for module in pkgutil.walk_packages([str(SOURCE)], "odar."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:  # Ray and other extras are optional
                assert not str(error.name).startswith("odar"), error
    from odar.difficulty.estimator import shipped_estimator
    from odar.lab.adversarial import _simplify
    from odar.policy.experts import route_expert
    from odar.policy.kinds import request_kind
    from odar.types import Query

    query = Query(
        "Prove that $x^2 + 1 > 0$ for every real number, e.g. at http://a.example, and explain it's true."
    )
    shipped_estimator().estimate(query)
    route_expert(query)
    request_kind(query)
    _simplify(query.text)
    print(json.dumps(list(seen)))


if __name__ == "__main__":
    main()
