"""Calibration with a surrogate: its scores are recorded, fitted, installed and used by the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.calibration.evidence import evidence_of, fit_statistics, fit_surrogate_statistics
from odar.calibration.fit import fit
from odar.calibration.install import current_parts, statistics_calibration, to_calibration
from odar.recording.collect import Job, collect_work, make_items
from odar.recording.executor import run
from odar.recording.header import header_of
from odar.recording.journal import Journal
from odar.recording.questions import QuestionSet
from odar.recording.schema import SurrogateScore, Task, item_from_json, total_cost
from odar.recording.work import OpenEngineWork
from odar.types import Query
from support.fault_server import ok, status
from support.panels import opened
from support.population import current_parts as made_up_incumbents
from support.population import population, setup
from support.scored import engine, three_servers

TASKS = [Task(str(i), Query(f"What is {i} + {i}?"), ["four"]) for i in range(30)]
JOBS = [Job(QuestionSet("doubles"), task, 0, 42) for task in TASKS]
SCORE = (17 / 1e6, 7)
"""Cost of scoring a text, with 7 tokens in and 1 out."""


@pytest.fixture
async def servers():
    async with three_servers() as found:
        yield found


async def recorded(odar, path, jobs=JOBS):
    header = header_of(odar)
    with Journal(path, header.to_row()) as journal:
        await run(make_items(odar, jobs), opened(odar), journal)
        failures = [key for key, row in journal.entries.items() if row.failed]
    with Journal(path, header.to_row()) as again:  # as a resumed run reads it
        return list(map(item_from_json, again.rows())), failures


def worst_cost(odar, jobs):
    (item,) = make_items(odar, jobs)
    return item.worst_cost_usd


async def test_scores_are_recorded_with_the_answers(servers, tmp_path):
    async with engine(servers) as odar:
        (entry,), failures = await recorded(odar, tmp_path / "r.jsonl", JOBS[:1])
    assert failures == []
    fast, verify, first, *others = entry.attempts
    assert fast.logprobs == ()  # the model has none of its own
    assert fast.surrogate.energy < verify.surrogate.energy == first.surrogate.energy
    assert fast.surrogate.model == "judge"
    assert fast.surrogate.cost_usd == pytest.approx(SCORE[0])
    assert len(others) == 2  # every sample is recorded, however early the engine would stop


async def test_the_cost_of_a_path_includes_its_scores(servers, tmp_path):
    async with engine(servers) as odar:
        entries, _ = await recorded(odar, tmp_path / "r.jsonl", JOBS[:1])
        medium = (await odar.aask(TASKS[0].query, path="medium")).trace.spend
        hard = (await odar.aask(TASKS[0].query, path="hard")).trace.spend
        found = current_parts(odar).setup.outcomes(evidence_of(entries, 0.1))
    assert found.calls.tolist() == [[1, medium.calls, hard.calls]]
    assert found.cost[0, 1:] == pytest.approx([medium.cost_usd, hard.cost_usd])
    fast = entries[0].attempts[0]
    assert found.cost[0, 0] == pytest.approx(fast.prompt_usd + fast.output_usd)


async def test_candidates_with_log_probs_are_not_scored(servers, tmp_path):
    fast, _, scores = servers
    fast.behave(ok("Answer: four"))
    async with engine(servers, slow_model="quick") as odar:
        (entry,), _ = await recorded(odar, tmp_path / "r.jsonl", JOBS[:1])
    assert entry.attempts[0].surrogate is None
    assert entry.attempts[0].logprobs
    assert scores.requests == []
    assert fit_surrogate_statistics(evidence_of([entry], 0.1)) is None


async def test_an_item_with_failed_scores_is_a_failure(servers, tmp_path):
    servers[2].behave(status(400))
    async with engine(servers) as odar:
        entries, failures = await recorded(odar, tmp_path / "r.jsonl", JOBS[:2])
    assert (entries, len(failures)) == ([], 2)


async def test_the_worst_case_includes_the_scores(servers, tmp_path):
    async with engine(servers) as odar, engine(servers, fusion__surrogate="") as alone:
        worst = worst_cost(odar, JOBS[:1])
        assert worst > worst_cost(alone, JOBS[:1])
        entries, _ = await recorded(odar, tmp_path / "r.jsonl", JOBS[:1])
    assert 0 < total_cost(entries[0].attempts) <= worst


async def test_an_unknown_price_makes_the_cost_unknown(servers, tmp_path):
    async with engine(servers, judge_price={}) as odar:
        assert worst_cost(odar, JOBS[:1]) is None
        entries, _ = await recorded(odar, tmp_path / "r.jsonl", JOBS[:1])
    assert entries[0].attempts[0].surrogate.cost_usd is None
    found = setup(samples=3).outcomes(evidence_of(entries, 0.1))
    assert np.isnan(found.cost[0]).tolist() == [False, True, True]


async def test_the_engine_uses_the_fitted_statistics_of_the_surrogate(servers, tmp_path):
    """Raw energies are compared before, and energies aligned by the μ and σ of the scores after."""
    async with engine(servers) as odar:
        entries, _ = await recorded(odar, tmp_path / "r.jsonl")
        before = (await odar.aask(TASKS[0].query, path="medium")).trace.verdict
        fitted = fit(evidence_of(entries, 0.1), current_parts(odar))
        calibration = to_calibration(odar, replace(fitted, setup=_skilled(odar, entries)), {})
    (tmp_path / "c.json").write_text(calibration.to_json())
    async with engine(servers, calibration=str(tmp_path / "c.json")) as odar:
        trace = (await odar.aask(TASKS[0].query, path="medium")).trace
        known = current_parts(odar).setup
    assert before.scorer == "fep by surrogate judge (uncalibrated)"
    assert trace.verdict.scorer == "fep by surrogate judge"
    assert [c.energy.origin for c in trace.candidates] == ["calibrated", "calibrated"]
    assert {s.scorer for s, known in calibration.statistics.items() if known.count} == {"judge"}
    assert not any(each and each.count for each in known.statistics)
    assert [statistics.count for statistics in known.surrogate] == [30, 30, 90]
    assert known.fusion.skills.tolist() == [0.5, 1.0, 1.0]


def _skilled(odar, entries):
    """Return a setup with the statistics of these records and fixed skills."""
    found = evidence_of(entries, 0.1)
    today = current_parts(odar).setup
    fusion = replace(today.fusion, skills=np.array([0.5, 1.0, 1.0]))
    return replace(
        today, fusion=fusion, statistics=fit_statistics(found), surrogate=fit_surrogate_statistics(found)
    )


async def test_statistics_alone_include_those_of_the_surrogate(servers, tmp_path):
    async with engine(servers) as odar:
        entries, _ = await recorded(odar, tmp_path / "r.jsonl")
        found = evidence_of(entries, 0.1)
        calibration = statistics_calibration(odar, found, {})
    assert {s.scorer for s, known in calibration.statistics.items() if known.count} == {"judge"}


def scored(attempt, shift):
    """Remove half of the log-probabilities, so that the surrogate decides."""
    score = SurrogateScore("judge", -attempt.logprobs[0] + shift, 0.0, 0.001)
    half = len(attempt.tokens) // 2
    return replace(attempt, surrogate=score, logprobs=((None,) * half + attempt.logprobs)[: len(attempt.tokens)])


def twice_measured(size=60):
    """Return items whose surrogate scores equal their own energies on another scale."""
    return [
        replace(item, attempts=tuple(scored(each, 5.0 if i == 0 else 7.0) for i, each in enumerate(item.attempts)))
        for item in population(size=size)
    ]


def test_statistics_of_model_and_surrogate_are_separate():
    found = evidence_of(twice_measured(), 0.1)
    own, by_surrogate = fit_statistics(found), fit_surrogate_statistics(found)
    for mine, its, shift in zip(own, by_surrogate, (5.0, 7.0, 7.0), strict=True):
        assert its.mean == pytest.approx(mine.mean + shift, abs=1e-5)
        assert its.deviation == pytest.approx(mine.deviation, abs=1e-5)
    assert own[0].quantiles is not None
    assert by_surrogate[0].quantiles is None  # the posterior looks at the model's own log-probabilities


def test_votes_are_aligned_by_their_scorer():
    plain, found = evidence_of(population(size=60), 0.1), evidence_of(twice_measured(), 0.1)
    by_models = setup(statistics=fit_statistics(plain)).votes(plain)
    by_surrogate = setup(statistics=fit_statistics(found), surrogate=fit_surrogate_statistics(found)).votes(found)
    there = by_models.groups >= 0
    assert by_surrogate.energy[there] == pytest.approx(by_models.energy[there], abs=1e-4)
    assert found.rows(np.arange(7)).candidates.energy == pytest.approx(plain.candidates.energy[:7])


def test_the_posterior_uses_the_log_probabilities_of_its_own_model():
    plain, found = evidence_of(population(size=60), 0.1), evidence_of(twice_measured(), 0.1)
    assert found.fast.signals.mean_logprob == pytest.approx(plain.fast.signals.mean_logprob)
    fitted = fit(found, made_up_incumbents())
    assert fitted.setup.surrogate is None or fitted.setup.surrogate[0].mean > 4
    assert fitted.before.calls.value > fit(plain, made_up_incumbents()).before.calls.value


def test_without_a_surrogate_no_scores_are_fitted():
    assert fit_surrogate_statistics(evidence_of(population(size=10), 0.1)) is None


async def test_scores_can_be_requested_through_a_remembering_provider(servers, tmp_path):
    """`odar calibrate` opens the engine with such providers."""
    async with engine(servers) as odar:
        settings = odar.settings
    header = header_of(odar)
    for _ in range(2):
        work = OpenEngineWork(settings, collect_work)
        with Journal(tmp_path / "r.jsonl", header.to_row()) as journal:
            await run(make_items(odar, JOBS[:1]), work, journal)
            (entry,) = map(item_from_json, journal.rows())
    assert entry.attempts[0].surrogate is not None
