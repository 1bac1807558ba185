"""scripts/docsite/explanations.py: the four stories that docs/guides/traces.md tells."""

from __future__ import annotations

import re

from docsite import explanations  # scripts is on the path


def test_the_four_questions_ask_the_stages_that_the_page_says():
    stages = [re.findall(r"(?m)^(fast|second|slow\S*) ", text) for text in explanations.explanations().values()]
    agree, differ, slow_first, tool = stages
    assert agree == tool == ["fast", "second"]
    assert differ[:3] == ["fast", "second", "slow"]
    assert slow_first == ["slow"]
    page = explanations.PAGE.read_text("utf-8")
    asked = (explanations.AGREE, explanations.DIFFER, explanations.SLOW_FIRST, explanations.TOOL)
    assert all(question in page for question in asked)
