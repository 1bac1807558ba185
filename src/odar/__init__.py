"""ODAR, the open-domain adaptive reasoner: as much model compute as each question needs, and no more.

    import odar
    print(odar.ask("Is Paris the capital of France?"))

Importing this package loads nothing heavy: every name below is fetched when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from odar.api import aask, ask, decide
    from odar.config import load_settings
    from odar.engine import Odar
    from odar.errors import BudgetExceeded, InputError, OdarError, ProviderError, SettingsError
    from odar.options import AskOptions
    from odar.policy.dial import Dial
    from odar.settings import Settings
    from odar.types import Answer, Candidate, Image, Query, Route, Stage, Trace

__all__ = [
    "Answer",
    "AskOptions",
    "BudgetExceeded",
    "Candidate",
    "Dial",
    "Image",
    "InputError",
    "Odar",
    "OdarError",
    "ProviderError",
    "Query",
    "Route",
    "Settings",
    "SettingsError",
    "Stage",
    "Trace",
    "aask",
    "ask",
    "decide",
    "load_settings",
]

_HOMES = {
    "odar.api": ("aask", "ask", "decide"),
    "odar.config": ("load_settings",),
    "odar.engine": ("Odar",),
    "odar.errors": ("BudgetExceeded", "InputError", "OdarError", "ProviderError", "SettingsError"),
    "odar.options": ("AskOptions",),
    "odar.policy.dial": ("Dial",),
    "odar.settings": ("Settings",),
    "odar.types": ("Answer", "Candidate", "Image", "Query", "Route", "Stage", "Trace"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'odar' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
