"""scripts/explanations.py: the four stories that docs/guides/traces.md tells."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "explanations.py"


def test_the_four_questions_ask_the_stages_that_the_page_says():
    script = runpy.run_path(str(SCRIPT))
    stages = [re.findall(r"(?m)^(fast|second|slow\S*) ", text) for text in script["explanations"]().values()]
    agree, differ, slow_first, tool = stages
    assert agree == tool == ["fast", "second"]
    assert differ[:3] == ["fast", "second", "slow"]
    assert slow_first == ["slow"]
    page = script["PAGE"].read_text("utf-8")
    assert all(
        question in page for question in (script["AGREE"], script["DIFFER"], script["SLOW_FIRST"], script["TOOL"])
    )
