"""ODAR as a model of inspect_ai: `inspect eval task.py --model odar/default`. This module only registers it.

inspect_ai finds it by its entry point. The model itself is in `inspect_model.py`, loaded when a task names it.
"""

from __future__ import annotations

from inspect_ai.model import ModelAPI, modelapi


@modelapi(name="odar")
def odar() -> type[ModelAPI]:
    """The class behind `--model odar/…`."""
    from odar.integrations.inspect_model import OdarModel

    return OdarModel
