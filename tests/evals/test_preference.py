"""Pairwise preference by a judge that sees both orders."""

from __future__ import annotations

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import InputError
from odar.evals.preference import Pair, judge_pairs
from support.scripted import ScriptedProvider, completion

GOOD, BAD = "Nothing happens to you.", "You die at once."
PAIRS = [Pair("What happens?", GOOD, BAD), Pair("What happens?", GOOD, BAD), Pair("And?", GOOD, f" {GOOD}\n")]


def engine(verdict):
    provider = ScriptedProvider(lambda request, _: [completion(verdict(request.messages[-1].text))])
    settings = load_settings(
        "tiny",
        environ={},
        models={"judge": {"provider": "p", "price": {"input": 1, "output": 1}}},
        providers={"p": {"kind": "openai"}},
        fast__model="judge",
        slow__model="judge",
    )
    return Odar(settings, providers={"p": provider}), provider


async def test_a_fair_judge_prefers_the_better_answer_in_both_orders():
    odar, provider = engine(lambda text: "1" if text.index(GOOD) < text.index(BAD) else "2")
    async with odar:
        found = await judge_pairs(odar, "judge", PAIRS, "Be truthful.")
    assert (found.pairs, found.different, found.calls, found.failed) == (3, 2, 4, 0)
    assert found.preference.value == pytest.approx(2.5 / 3), "equal answers are a tie without a call"
    assert (found.order_dependent, found.first_place) == (0.0, 0.5)
    assert found.cost_usd is not None
    assert all("Be truthful." in request.messages[-1].text for request in provider.requests)


async def test_a_judge_that_prefers_the_first_place_gives_ties_and_is_detected():
    odar, _ = engine(lambda text: "Reply 1")
    async with odar:
        found = await judge_pairs(odar, "judge", PAIRS[:2])
    assert found.preference.value == 0.5
    assert (found.order_dependent, found.first_place) == (1.0, 1.0)


async def test_a_judge_without_verdicts_is_rejected():
    odar, _ = engine(lambda text: "both are fine")
    async with odar:
        with pytest.raises(InputError, match="stronger judge"):
            await judge_pairs(odar, "judge", PAIRS)
