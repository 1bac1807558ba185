from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.catalogue import Price
from odar.lab.recording.schema import (
    attempt_from_json,
    attempt_to_json,
    attempts_of,
    output_shares,
    recorded_signals,
    total_cost,
)
from odar.policy.energy import measure_energy, missing_share, token_figures
from odar.types import Candidate, Step, Token, Usage

PRICE = Price(1.0, 0.1, 4.0)


def spoken(text="Answer: 4", logprob: float | None = -0.1):
    tokens = tuple(Token(word + " ", logprob) for word in text.split())
    return Candidate(Step.SOLVE, "slow", "m", text, "4", (*tokens, Token("<eos>", -0.5, True)))


def test_an_attempt_survives_json():
    one = attempts_of([spoken(logprob=-0.123456)], 3, 2, Usage(10, 0, 5, 0), PRICE, 1.5)[0]
    assert attempt_from_json(json.loads(json.dumps(attempt_to_json(one)))) == one
    assert (one.text, one.answer, one.step, one.agent) == ("Answer: 4", "4", Step.SOLVE, "slow")
    assert one.tokens[0].logprob == -0.1235
    assert one.tokens[-1].control


def test_numbers_stand_in_for_the_tokens():
    one = attempts_of([spoken()], 0, 0, Usage(), None, 0.0)[0]
    light = one.without_tokens()
    energy = measure_energy(one.tokens, 0.1, None)
    assert (light.figures.energy, light.figures.varentropy) == (energy.energy, energy.varentropy)
    assert (light.figures.total, light.figures.missing, light.tokens) == (2, 0, ())
    assert light.signals == recorded_signals(one) and light.without_tokens() is light
    assert attempt_to_json(one).keys().isdisjoint({"figures", "signals"})
    assert light.figures == token_figures(light) == token_figures(one)
    silent = attempts_of([spoken(logprob=None)], 0, 0, Usage(), None, 0.0)[0].without_tokens()
    assert silent.figures.energy is None
    assert missing_share([silent.figures]) == 1.0


@given(st.integers(0, 10_000), st.lists(st.text(min_size=1, max_size=50), min_size=1, max_size=9))
def test_output_shares_add_up_to_the_total(total, texts):
    parts = output_shares(total, [Candidate(Step.SOLVE, "slow", "m", text, "") for text in texts])
    assert sum(parts) == total
    assert min(parts) >= 0
    assert output_shares(None, [Candidate(Step.SOLVE, "slow", "m", "x", "")] * 2) == [None, None]


def test_a_prompt_is_billed_once_for_each_request():
    samples = attempts_of([spoken()] * 3, 0, 2, Usage(1000, 0, 30, 0), PRICE, 1.0)
    assert total_cost(samples) == pytest.approx(PRICE.cost(Usage(1000, 0, 30, 0)))
    other = attempts_of([spoken()], 3, 5, Usage(1000, 0, 10, 0), PRICE, 1.0)[0]
    assert total_cost([*samples, other]) == pytest.approx(PRICE.cost(Usage(2000, 0, 40, 0)))


def test_an_unknown_price_or_count_is_an_unknown_total_cost():
    assert total_cost([attempts_of([spoken()], 0, 0, Usage(9, 0, 9, 0), None, 1.0)[0]]) is None
    assert total_cost([attempts_of([spoken()], 0, 0, Usage(), PRICE, 1.0)[0]]) is None


def test_json_omits_derivable_fields():
    said = Candidate(Step.ANSWER, "fast", "m", "4 ", "4", (Token("4", -0.1), Token(" ", 0.0)))
    (plain,) = attempts_of([said], 0, 0, Usage(10, 0, 2, 0), PRICE, 1.0)
    assert attempt_to_json(plain).keys() == {
        "agent", "step", "model", "answer", "tokens", "logprobs", "usage", "prompt_usd", "output_usd", "seconds",
    }  # fmt: skip
    with pytest.raises(ValueError, match="2 tokens, but 1 log-probabilities"):
        attempt_from_json({**attempt_to_json(plain), "logprobs": [-0.1]})
