"""docs/security.md is consistent with the code."""

from __future__ import annotations

import re
from pathlib import Path

from odar.calibration_file import FITTED
from odar.inputs import MAX_BYTES
from odar.serving.protocols.json_body import MAX_DEPTH
from odar.settings import GatewaySettings

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_named_test_exists():
    named = set(re.findall(r"`(tests/[\w/.]+)`", TEXT))
    assert len(named) > 15
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_limits_in_the_text_are_those_of_the_code():
    gateway = GatewaySettings()
    assert f"`max_body_mb` {gateway.max_body_mb:g}, {MAX_DEPTH} levels of nesting" in TEXT
    assert f"{MAX_BYTES // 1024**2} MB a picture" in TEXT
    assert f'`gateway.image_urls = "{gateway.image_urls}"`' in TEXT
    assert all(f'"{allowed}"' in TEXT for allowed in ("public", "any", "none"))
    assert all(key.rpartition(".")[2] in TEXT for key in FITTED)


def test_every_table_row_is_complete():
    for block in re.findall(r"(?:^\|.*\|\n)+", TEXT, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1, block
