from __future__ import annotations

import pickle
from functools import partial

import pytest

from odar.errors import InputError
from odar.lab.recording.collect import collect_work
from odar.lab.recording.executor import WorkItem, WorkResult, run
from odar.lab.recording.journal import Journal, Memo
from odar.lab.recording.work import open_engine_work, use_memo
from odar.types import Query
from support.engine import settings
from support.scripted import ScriptedProvider, completion

ASKED: list[str] = []


def shouting(odar):
    """Work at the top of a module, so that it can be sent away."""

    async def work(item: WorkItem, memo: Memo) -> WorkResult:
        with use_memo(memo):
            answer = await odar.aask(Query(item.payload), path="simple")
        row = {
            "id": item.key,
            "text": answer.final.upper(),
            "cost_usd": None,
            "error": None,
            "digest": item.digest,
        }
        return WorkResult(row)

    return work


def providers(_):
    def script(request, index):
        ASKED.append(request.messages[-1].text)
        return [completion("Answer: yes")] * request.n

    return {name: ScriptedProvider(script, name) for name in ("fast", "slow")}


@pytest.fixture(autouse=True)
def nobody_asked():
    ASKED.clear()


async def test_one_engine_serves_all_items(tmp_path):
    work = partial(open_engine_work, settings(), shouting, providers)
    items = [WorkItem(str(i), f"What is {i}?") for i in range(3)]
    with Journal(tmp_path / "out.jsonl") as journal:
        done = await run(items, work, journal)
        assert (done.done, done.failed) == (3, 0)
        assert [row["text"] for row in journal.rows()] == ["YES"] * 3
    assert len(ASKED) == 3


async def test_providers_are_closed_after_an_error():
    opened = providers(None)
    with pytest.raises(InputError):
        async with partial(open_engine_work, settings(), shouting, lambda _: opened)():
            raise InputError("stop")
    assert all(provider.closed for provider in opened.values())


def test_work_with_an_engine_can_be_pickled():
    sent = pickle.loads(pickle.dumps(partial(open_engine_work, settings(), collect_work, providers)))
    assert sent.args[1] is collect_work
    assert sent.args[0] == settings()
