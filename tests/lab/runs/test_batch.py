from __future__ import annotations

import pickle
from functools import partial

import pytest

from odar.config import load_settings
from odar.conversation import ChatParameters
from odar.engine import Odar
from odar.errors import ProviderTimeout
from odar.lab.recording.questions import Question
from odar.lab.runs.batch import answer_question, make_items, open_batch_work
from odar.lab.runs.journal import Memo
from odar.lab.runs.limits import REQUESTS, TOKENS
from odar.providers.pool import KINDS
from odar.types import Query, Route, Usage
from support.scripted import ScriptedProvider, completion, step_of

PRICED = {"provider": "script", "logprobs": True, "price": {"input": 1, "output": 2}}
UNUSED = Memo({}, lambda name, value: None)


def settings(**more):
    return load_settings(
        "tiny",
        environ={},
        prompts="paper",
        calibration="",
        providers={"script": {"kind": "scripted"}, "other": {"kind": "scripted"}},
        models={"m": PRICED, "free": {**PRICED, "price": {}}, "o": {**PRICED, "provider": "other"}},
        **{"fast__model": "m", "slow__model": "m", **more},
    )


def script(request, index):
    return [completion("Judgment: CORRECT\nAnswer: 4" if step_of(request) == "verify" else "Answer: 4")] * request.n


def engine(scripted=None, **more):
    scripted = scripted or ScriptedProvider(script)
    return Odar(settings(**more), providers={"script": scripted, "other": scripted})


async def outcome(odar, **question):
    (item,) = make_items(odar, [Question("q", Query("What is 2 + 2?"), [], **question)])
    return item, await answer_question(odar, item, seed=7)


@pytest.mark.parametrize(("path", "calls"), [("simple", 1), ("medium", 2), ("hard", 6)])
async def test_a_row_has_the_answer_with_calls_cost_and_usage(path, calls):
    item, got = await outcome(engine(), path=Route(path))
    row = got.row
    assert next(iter(row)) == "id"
    assert (row["id"], row["final"], row["path"], row["calls"]) == ("q", "4", path, calls)
    assert row["cost_usd"] == pytest.approx(calls * 20e-6)
    assert row["usage"]["output"] == 5 * calls
    assert (row["error"], row["digest"], row["degradations"]) == (None, item.digest, [])
    assert 0 <= row["difficulty"] <= 1 and len(row["trace_id"]) == 32
    assert got.used == {("script", REQUESTS): calls, ("script", TOKENS): 15 * calls}


@pytest.mark.parametrize("path", [None, *Route])
@pytest.mark.parametrize("n", [1, 3])
async def test_cost_and_requests_never_exceed_the_worst_case(path, n):
    """Also where every token counts at a byte, and the slow agent stands in for the fast one."""
    longest = ScriptedProvider(script, usage=Usage(0, 0, 0, 0))

    def dear(request, index):
        longest.usage = Usage(
            sum(len(m.text) for m in request.messages), 0, request.n * request.sampling.max_tokens, 0
        )
        return script(request, index)

    longest.script = dear
    odar = engine(longest)
    question = Question("q", Query("What is 2 + 2?", parameters=ChatParameters(n=n)), [], path=path)
    (item,) = make_items(odar, [question])
    got = await answer_question(odar, item, seed=1)
    assert got.row["error"] is None
    assert got.row["cost_usd"] <= item.worst_cost_usd
    assert all(amount <= item.needs[name] for name, amount in got.used.items())


def most(odar, **question):
    (item,) = make_items(odar, [Question("q", Query("x"), [], **question)])
    return item.needs, item.worst_cost_usd


def test_the_worst_case_includes_every_provider():
    odar = engine(slow__model="o")
    needs, cost = most(odar)
    assert (needs["script", REQUESTS], needs["other", REQUESTS]) == (1, 5)
    assert cost > 0
    assert most(engine(slow__model="free"))[1] is None
    assert most(engine(slow__model="free"), max_cost_usd=0.5)[1] == 0.5
    assert most(odar, max_cost_usd=1e-6)[1] == 1e-6


async def test_a_failure_becomes_a_row():
    failing = ScriptedProvider(
        lambda request, index: ProviderTimeout("no answer", provider="script", retryable=True)
    )
    item, got = await outcome(engine(failing), path=Route.MEDIUM)
    assert got.row["final"] is None
    assert got.row["error"]["type"] == "AllAgentsFailed"
    assert "no answer" in got.row["error"]["message"]
    assert (got.row["error"]["retryable"], got.row["calls"], got.row["cost_usd"]) == (True, 2, None)
    assert list(got.row) == list((await outcome(engine()))[1].row)
    assert got.used == item.needs
    _, limited = await outcome(engine(), max_cost_usd=0.0)
    assert (limited.row["error"]["type"], limited.row["calls"]) == ("BudgetExceeded", 0)


async def test_a_failed_call_counts_with_all_its_possible_retries():
    half = ScriptedProvider(
        lambda request, index: script(request, index) if step_of(request) == "answer" else ProviderTimeout("slow")
    )
    item, got = await outcome(engine(half), path=Route.MEDIUM)
    assert got.row["degradations"]
    assert got.used == {("script", REQUESTS): 1 + 3, ("script", TOKENS): item.needs["script", TOKENS]}


async def test_work_can_be_pickled_and_stores_traces(tmp_path):
    from odar.serving.store import Store
    from odar.traces.record import Filter

    scripted = ScriptedProvider(script)
    KINDS.add("scripted", lambda name, provider, all_settings: scripted)
    mine = settings(store__url=str(tmp_path / "t.db"))
    (item,) = make_items(Odar(mine), [Question("q", Query("What is 2 + 2?"), [], path=Route.SIMPLE)])
    opened = pickle.loads(pickle.dumps(partial(open_batch_work, mine, seed=3)))
    item = pickle.loads(pickle.dumps(item))
    async with opened() as work:
        got = await work(item, UNUSED)
    assert scripted.requests[0].sampling.seed == 3
    assert scripted.closed
    store = Store(mine)
    try:
        assert [row["id"] for row in store.archive.page(Filter())["traces"]] == [got.row["trace_id"]]
    finally:
        await store.close()
