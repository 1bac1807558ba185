"""Scripts of the repository, to test them as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent.parent.parent / "scripts"


def script(name: str) -> ModuleType:
    """NAME.py of a folder of scripts/, imported."""
    (place,) = FOLDER.rglob(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"odar_scripts_{name}", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
