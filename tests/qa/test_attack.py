"""The brief attacks of `make attack`; counts are checked, times are not."""

from __future__ import annotations

import pytest
from attack.attacks import ATTACKS
from attack.scene import run

BRIEF = [each for each in ATTACKS.values() if each.brief]


@pytest.mark.parametrize("attack", BRIEF, ids=lambda attack: attack.name)
async def test_the_attack_fails_and_healthy_clients_get_their_answers(attack, tmp_path):
    result = await run(attack, tmp_path / "gateway", 1.0, clients=2, timed=False)
    assert result.problems == []
    assert result.answers or not attack.healthy
