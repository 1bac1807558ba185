from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.catalogue import Price
from odar.evals.panel.entry import Bill, attempt, attempt_from_json, attempt_to_json, bill, shares
from odar.evals.panel.figures import figures_of
from odar.policy.energy import measure
from odar.policy.fusion import missing_share
from odar.types import Candidate, Step, Token, Usage

PRICE = Price(1.0, 0.1, 4.0)


def spoken(text="Answer: 4", logprob: float | None = -0.1):
    tokens = tuple(Token(word + " ", logprob) for word in text.split())
    return Candidate(Step.SOLVE, "m", text, "4", (*tokens, Token("<eos>", -0.5, True)))


def test_an_attempt_survives_json_and_gives_its_candidate_back():
    one = attempt(spoken(), 3, 1.0, Bill(2, Usage(10, 0, 5, 0), PRICE, 1.5), 5)
    assert attempt_from_json(json.loads(json.dumps(attempt_to_json(one)))) == one
    again = one.candidate
    assert (again.text, again.answer, again.step) == ("Answer: 4", "4", Step.SOLVE)
    assert again.tokens[0].logprob == float(np.float32(-0.1))
    assert again.tokens[-1].control


def test_figures_are_those_of_fusion():
    one = attempt(spoken(), 0, 1.0, Bill(0, Usage(), None, 0.0), None)
    figures = figures_of(one)
    energy = measure(one.candidate.tokens, 0.1, None)
    assert (figures.energy, figures.varentropy) == (energy.energy, energy.varentropy)
    assert (figures.total, figures.missing, figures.length) == (2, 0, 2)
    silent = figures_of(attempt(spoken(logprob=None), 0, 0.0, Bill(0, Usage(), None, 0.0), None))
    assert (silent.energy, silent.missing / silent.total) == (None, missing_share([spoken(logprob=None)]))


@given(st.integers(0, 10_000), st.lists(st.text(min_size=1, max_size=50), min_size=1, max_size=9))
def test_shares_add_up_to_the_whole(total, texts):
    parts = shares(total, [Candidate(Step.SOLVE, "m", text, "") for text in texts])
    assert sum(parts) == total
    assert min(parts) >= 0
    assert shares(None, [Candidate(Step.SOLVE, "m", "x", "")] * 2) == [None, None]


def test_a_prompt_is_billed_once_for_each_request():
    paid = Bill(2, Usage(1000, 0, 30, 0), PRICE, 1.0)
    samples = [attempt(spoken(), i, 0.0, paid, 10) for i in range(3)]
    assert bill(samples) == pytest.approx(PRICE.cost(Usage(1000, 0, 30, 0)))
    other = attempt(spoken(), 3, 0.0, Bill(5, Usage(1000, 0, 10, 0), PRICE, 1.0), 10)
    assert bill([*samples, other]) == pytest.approx(PRICE.cost(Usage(2000, 0, 40, 0)))


def test_an_unknown_price_or_count_is_an_unknown_bill():
    assert bill([attempt(spoken(), 0, 0.0, Bill(0, Usage(9, 0, 9, 0), None, 1.0), 9)]) is None
    assert bill([attempt(spoken(), 0, 0.0, Bill(0, Usage(), PRICE, 1.0), None)]) is None
