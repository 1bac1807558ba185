"""The most that a request can cost: computed, never built, whatever numbers the client sends."""

from __future__ import annotations

import tracemalloc

import pytest

from odar.conversation import ChatParameters, Message
from odar.engine import Odar
from odar.options import AskOptions
from odar.serving.protocols.json_body import MAX_INTEGER
from odar.serving.request_cost import walk_needs
from odar.types import Query, Route, path_of
from support.engine import MODELS, engine, settings

TURNS = (Message("user", "What is two and two?"),)


def query(max_tokens: int = 100, n: int = 1) -> Query:
    return Query.from_messages(TURNS, ChatParameters(max_tokens=max_tokens, n=n))


def needs(odar: Odar, max_tokens: int, n: int = 1) -> list[int]:
    return [need.tokens for _, need in walk_needs(odar, query(max_tokens, n), AskOptions(), priced=True)]


def names(walks) -> list[str]:
    return [", ".join(map(str, walk)) for walk in walks]


@pytest.fixture(scope="module", params=["paper", "cascade", "slow*5"])
def odar(request) -> Odar:
    return Odar(settings(policy=request.param))


@pytest.mark.parametrize("max_tokens", [20_000_000, MAX_INTEGER])
def test_a_large_number_of_a_clients_takes_no_memory(odar, max_tokens):
    needs(odar, 5)
    tracemalloc.start()
    try:
        tokens = needs(odar, max_tokens, n=128)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(tokens) > 128 * max_tokens
    assert min(tokens) > max_tokens
    assert peak < 1_000_000


def test_no_answer_is_longer_than_the_context_of_its_model():
    cards = {name: {**card, "context": 8192} for name, card in MODELS.items()}
    odar = Odar(settings(models=cards, policy="paper"))
    huge = needs(odar, 200_000_000)
    assert huge == needs(odar, 8192)
    assert huge[1] < 4 * 8192, "medium: the verifier reads a draft that fits its context"


def test_a_fallback_costs_as_much_as_its_own_longest_answer():
    cards = {**MODELS, "deep": {**MODELS["deep"], "context": 100}, "spare": MODELS["deep"]}
    odar, *_ = engine(models=cards, policy="slow", slow__model=["deep", "spare"])
    _, need = walk_needs(odar, query(1000), AskOptions(), priced=True)[0]
    assert need.usd > 1000 * MODELS["deep"]["price"]["output"] / 1e6


def test_the_walks_of_a_cascade_get_shorter_down_to_a_single_call():
    policy = Odar(settings(policy="cascade")).policy()
    assert names(policy.walks()) == [
        "fast, slow, slow*2, slow*2",
        "fast, slow, slow*2",
        "fast, slow",
        "fast",
        "fast",
        "slow",
    ]
    assert names(policy.walks(n=3))[-1] == "slow*3"
    assert names(policy.walks(max_path=Route.MEDIUM))[0] == "fast, slow"
    assert set(names(policy.walks(max_path=Route.SIMPLE))) == {"fast"}


def test_the_paper_offers_its_three_paths_and_a_forced_path_itself():
    odar = Odar(settings(policy="paper"))
    assert names(odar.policy().walks()) == ["fast+slow*5", "fast, slow:verify", "fast"]
    forced = odar.policy(AskOptions(path="medium"))
    assert names(forced.walks()) == ["fast, slow:verify"]


def test_offers_are_sorted_and_the_dearest_is_the_whole_walk(odar):
    walks = walk_needs(odar, query(), AskOptions(), priced=True)
    dollars = [need.usd for _, need in walks]
    assert dollars == sorted(dollars, reverse=True)
    assert dollars[0] > 3 * dollars[-1]


def test_without_a_budget_each_path_is_offered_once(odar):
    walks = walk_needs(odar, query(), AskOptions(), priced=False)
    paths = [path_of(walk) for walk, _ in walks]
    assert len(paths) == len(set(paths))
    assert all(need.usd == 0.0 for _, need in walks)
