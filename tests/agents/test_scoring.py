"""Surrogate scoring in the engine: answers from Anthropic, scored by a server with the vLLM protocol."""

from __future__ import annotations

import pytest

from odar.config import load_settings
from odar.errors import SettingsError
from odar.types import Candidate, Step
from support.fault_server import hang, ok, status
from support.payloads import message_payload
from support.scored import engine, three_servers


@pytest.fixture
async def servers():
    async with three_servers() as found:
        yield found


async def test_the_surrogate_decides_without_logprobs(servers):
    async with engine(servers) as odar:
        got = await odar.aask("What is 2 + 2?", path="medium")
    trace = got.trace
    assert got.answer == "four"  # without it, the slow answer would have won
    assert trace.verdict.scorer == "fep by surrogate judge (uncalibrated)"
    assert "raw free energy by surrogate judge" in trace.verdict.reason
    assert [candidate.energy.scorer for candidate in trace.candidates] == ["judge", "judge"]
    assert trace.candidates[0].energy.free_energy < trace.candidates[1].energy.free_energy
    assert trace.candidates[1].tokens == ()  # the model itself returned no tokens
    assert trace.degradations == ()


async def test_calls_of_the_surrogate_are_counted(servers):
    async with engine(servers) as odar:
        got = await odar.aask("What is 2 + 2?", path="medium")
    scoring = [call for call in got.trace.calls if call.scoring]
    assert [(call.step, call.model) for call in scoring] == [(Step.ANSWER, "judge"), (Step.VERIFY, "judge")]
    assert got.trace.spend.calls == 4
    assert all(call.cost_usd == pytest.approx((7 * 1 + 1 * 10) / 1e6) for call in scoring)
    assert got.trace.spend.cost_usd == pytest.approx(sum(call.cost_usd for call in got.trace.calls))


async def test_the_surrogate_scores_the_question_with_each_answer(servers):
    async with engine(servers) as odar:
        await odar.aask("What is 2 + 2?", path="hard")
    bodies = [request.json for request in servers[2].requests]
    assert len(bodies) == 4
    assert {body["messages"][0]["content"] for body in bodies} == {"What is 2 + 2?"}
    assert {body["messages"][-1]["content"] for body in bodies} == {"Answer: four", "Answer: five"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (status(500), "HTTP 500"),
        (ok("no scores"), "cannot score a given text"),
        (hang(), "no answer within"),
    ],
)
async def test_a_failing_surrogate_falls_back_to_the_next_scorer(servers, fault, said):
    servers[2].behave(fault)
    async with engine(servers) as odar:
        got = await odar.aask("What is 2 + 2?", path="medium", deadline_s=1.5)
    assert (got.answer, got.trace.verdict.scorer) == ("five", "slow")
    (reason,) = got.trace.degradations
    assert reason.startswith("surrogate judge: ")
    assert said in reason
    assert [call.error is not None for call in got.trace.calls if call.scoring] == [True] * len(
        [call for call in got.trace.calls if call.scoring]
    )


async def test_one_failed_score_discards_all_scores(servers):
    """Energies are compared only if the surrogate scored every candidate."""
    servers[2].enqueue(status(400))
    async with engine(servers) as odar:
        got = await odar.aask("What is 2 + 2?", path="medium")
    assert got.trace.verdict.scorer == "slow"
    assert [candidate.energy for candidate in got.trace.candidates] == [None, None]


@pytest.mark.parametrize("limit", [{"max_calls": 3}, {"max_cost_usd": 0.02}])
async def test_the_surrogate_is_skipped_beyond_the_limits(servers, limit):
    """The limits allow two calls for answers but not two more for scores."""
    async with engine(servers, judge_price={"input": 1000.0, "output": 1000.0}) as odar:
        got = await odar.aask("What is 2 + 2?", path="medium", **limit)
    assert got.trace.verdict.scorer == "slow"
    assert servers[2].requests == []
    assert any(reason.startswith("surrogate judge: ") for reason in got.trace.degradations)


async def test_the_surrogate_is_not_called_if_it_is_not_needed(servers):
    servers[0].behave(ok("Answer: four"))
    async with engine(servers) as odar:
        assert (await odar.aask("What is 2 + 2?", path="simple")).trace.verdict.scorer == "only"
    async with engine(servers, slow_model="quick") as odar:  # both with log-probs
        assert (await odar.aask("What is 2 + 2?", path="medium")).trace.verdict.scorer == "fep (uncalibrated)"
    assert servers[2].requests == []


async def test_without_a_surrogate_the_slow_answer_wins(servers):
    async with engine(servers, fusion__surrogate="") as odar:
        got = await odar.aask("What is 2 + 2?", path="medium")
    assert (got.answer, got.trace.verdict.scorer) == ("five", "slow")


async def test_tool_calls_are_not_scored(servers):
    block = {"type": "tool_use", "id": "1", "name": "add", "input": {}}
    servers[1].behave(lambda exchange: exchange.send_json(message_payload("", content=[block])))
    async with engine(servers) as odar:
        team = odar.team(odar.make_query("What is 2 + 2?"), odar.ledger())
        said, called = Candidate(Step.ANSWER, "quick", "4", "4"), Candidate(Step.SOLVE, "deep", "", "")
        assert odar.judge.surrogate.is_needed([said, said], team)
        assert not odar.judge.surrogate.is_needed([said, called], team)


async def test_served_energies_are_kept_by_scorer_and_source(servers, monkeypatch):
    """Energies of the surrogate are not mixed with those of other scorers."""
    monkeypatch.setattr("odar.policy.alignment.MIN_SERVED", 2)
    monkeypatch.setattr("odar.store.alignment.MIN_SERVED", 2)
    async with engine(servers) as odar:
        await odar.aask("What is 2 + 2?", path="medium")
        odar.alignment.sync()
        rows = odar.alignment_report()
    assert {(row.model, row.step, row.scorer) for row in rows} == {
        ("quick", "answer", "judge"),
        ("deep", "verify", "judge"),
    }


def test_a_model_that_cannot_score_is_rejected():
    with pytest.raises(SettingsError, match=r"fusion.surrogate = 'gpt-4.1' cannot score.*smollm2-135m"):
        load_settings(profile="tiny", fusion__surrogate="gpt-4.1")
    assert load_settings(profile="tiny", fusion__surrogate="smollm2-135m").fusion.surrogate
