"""Behaviour of the value types."""

from __future__ import annotations

import pytest

from odar.types import CANCELLED, NO_USAGE, Call, Step


@pytest.mark.parametrize(
    ("error", "failed"),
    [(None, False), (CANCELLED, False), ("HTTP 500", True), ("", True), ("cancelled by a proxy", True)],
)
def test_a_cancelled_call_is_not_a_failed_one(error, failed):
    assert Call(Step.SOLVE, "p", "m", 1, NO_USAGE, None, 0.1, error=error).failed is failed
