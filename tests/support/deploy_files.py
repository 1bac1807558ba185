"""The deployment files, read."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def read_yaml(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text())


def dashboard() -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana/dashboards/odar.json").read_text())


def dockerfile() -> list[tuple[str, str]]:
    """(instruction, arguments), with continued lines joined and comments left out."""
    text = "\n".join(line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]


def image_environment() -> dict[str, str]:
    """ENV of the image that runs."""
    found = {}
    for instruction, arguments in dockerfile():
        if instruction == "ENV":
            found |= dict(part.split("=", 1) for part in shlex.split(arguments))
    return found


def health_command() -> list[str]:
    (arguments,) = [arguments for instruction, arguments in dockerfile() if instruction == "HEALTHCHECK"]
    return json.loads(arguments[arguments.index("[") :])


def seconds(text: str) -> float:
    """
    >>> seconds("50s"), seconds("2m")
    (50.0, 120.0)
    """
    number, unit = re.fullmatch(r"([\d.]+)([smh])", text).groups()
    return float(number) * {"s": 1, "m": 60, "h": 3600}[unit]
