"""What an item may take at most: never less than what it takes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odar.conversation import ChatParameters, Tool
from odar.engine import Odar
from odar.lab.runs.limits import REQUESTS, TOKENS, used_amounts, worst_case
from odar.types import Ask, Call, Query, Step, Usage
from support import panels
from support.scripted import ScriptedProvider, completion

ASKS = (Ask("fast"), Ask("slow", verify=True), Ask("slow", 5))
KINDS = (REQUESTS, TOKENS)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=200).filter(str.strip)


@pytest.fixture(scope="module")
def odar() -> Odar:
    return Odar(panels.settings())


@settings(max_examples=40, deadline=None)
@given(texts, st.integers(1, 9))
def test_more_requests_need_more(odar, text, count):
    query = Query(text)
    fewer, cheaper = worst_case(odar, query, [Ask("slow", count)])
    more, dearer = worst_case(odar, query, [Ask("fast"), Ask("slow", count + 1)])
    assert {name for name, _ in fewer} == {"slow"} and {name for name, _ in more} == {"fast", "slow"}
    assert more["slow", REQUESTS] == fewer["slow", REQUESTS] + 1 == count + 1
    assert more["slow", TOKENS] > fewer["slow", TOKENS]
    assert dearer > cheaper > 0


@settings(max_examples=40, deadline=None)
@given(texts)
def test_requests_add_up(odar, text):
    query = Query(text)
    apart = [worst_case(odar, query, [ask]) for ask in ASKS]
    needs, cost = worst_case(odar, query, ASKS)
    assert cost == pytest.approx(sum(each for _, each in apart))
    assert needs == sum((found for found, _ in apart), Counter())


def test_descriptions_of_tools_and_long_drafts_count(odar):
    verify = [Ask("slow", verify=True)]
    tool = Tool("look_up", "Finds a word. " * 50)
    with_tool = Query("What is 7 ?", parameters=ChatParameters(tools=(tool,)))
    (plain, plain_usd), (tools, tools_usd) = (
        worst_case(odar, query, verify) for query in (Query("What is 7 ?"), with_tool)
    )
    assert tools["slow", TOKENS] >= plain["slow", TOKENS] + len(tool.description) and tools_usd > plain_usd
    poem, _ = worst_case(odar, Query("Write a poem about rain."), verify)
    assert poem["slow", TOKENS] > 2 * odar.settings.limits.max_tokens  # the draft and the answer


@settings(max_examples=20, deadline=None)
@given(texts, st.integers(1, 400))
def test_a_longer_question_never_needs_less(odar, text, more):
    short, long = (worst_case(odar, Query(each), ASKS) for each in (text, text + " and" * more))
    assert long[1] >= short[1]
    assert all(long[0][name] >= short[0][name] for name in short[0])


@pytest.mark.parametrize("model", ["quick", "deep"])
def test_an_unknown_price_makes_the_total_unknown(model):
    unpriced = {name: {**card, "price": None} if name == model else card for name, card in panels.MODELS.items()}
    cards = {
        name: {key: value for key, value in card.items() if value is not None} for name, card in unpriced.items()
    }
    odar = Odar(panels.settings(models=cards))
    needs, cost = worst_case(odar, Query("What is 7 ?"), ASKS)
    assert cost is None
    assert needs["fast", TOKENS] and needs["slow", TOKENS]  # tokens are known all the same
    other = Ask("slow" if model == "quick" else "fast")
    assert worst_case(odar, Query("What is 7 ?"), [other])[1] is not None  # the other one's alone is known


@pytest.mark.parametrize("path", ["simple", "medium", "hard"])
@pytest.mark.parametrize("text", ["What is 7 ?", "Wie heißt die Straße? 北京 " * 20])
async def test_no_question_costs_more_than_its_worst_case(path, text):
    """Models that write as long as they may, and say so on the bill."""
    config = panels.settings(fast__max_tokens=40, slow__max_tokens=60)

    def wordy(request, index):
        return [completion("Answer: " + "7 " * 20, -0.3) for _ in range(request.n)]

    def billed(name: str, limit: int) -> ScriptedProvider:
        return ScriptedProvider(wordy, name, usage=Usage(len(text.encode()) // 3 + 50, 0, limit, 0))

    async with Odar(config, providers={"fast": billed("fast", 40), "slow": billed("slow", 5 * 60)}) as odar:
        query = Query(text)
        needs, most = worst_case(odar, query, ASKS)
        answer = await odar.aask(query, path=path)
        taken = used_amounts(answer.trace.calls, needs)
        assert answer.trace.spend.cost_usd <= most
        assert all(amount <= needs[name] for name, amount in taken.items())


def call(provider: str = "p", usage: Usage | None = None, error: str | None = None, retries: int = 0) -> Call:
    return Call(Step.ANSWER, "fast", provider, "m", 1, usage or Usage(10, 0, 5, 0), 0.1, 1.0, retries, error)


def amounts(**given: tuple[int, int]) -> dict[tuple[str, str], int]:
    return {(name, kind): each for name, both in given.items() for kind, each in zip(KINDS, both, strict=True)}


NEEDS = amounts(p=(6, 1000), q=(1, 50))


@pytest.mark.parametrize(
    ("calls", "taken"),
    [
        ([], {}),
        ([call()], {"p": (1, 15)}),
        ([call(), call(retries=2)], {"p": (4, 30)}),
        ([call(), call("q")], {"p": (1, 15), "q": (1, 15)}),
        ([call(error="HTTP 500")], {"p": (3, 15)}),  # it may have been tried as often as is allowed
        ([call(error="cancelled")], {"p": (1, 15)}),
        ([call(usage=Usage(10, 0, None, None))], {"p": (1, 1000)}),  # unknown may have been the most
        ([call(usage=Usage(None, None, 5, None)), call()], {"p": (2, 1000)}),
        ([call(usage=Usage(2000, 0, 5, 0)), call(usage=Usage())], {"p": (2, 2005)}),
        ([call("elsewhere", Usage())], {"elsewhere": (1, 0)}),
    ],
)
def test_usage_is_computed_from_calls(calls, taken):
    assert used_amounts(calls, NEEDS) == amounts(**taken)
