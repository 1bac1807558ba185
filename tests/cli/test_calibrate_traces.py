"""`odar calibrate --from-traces`, with traces that the engine recorded."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.store.archive import Archive
from odar.store.database import Database
from odar.store.record import Record
from odar.store.writer import make_row, write_rows
from odar.types import Query
from support.scripted import completion, step_of


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ODAR_STORE_URL", str(tmp_path / "odar.db"))


def number_of(request):
    return int(request.messages[-1].text.split()[2])


def speak(request, index):
    """Answer as a fast agent that is wrong on every third sum, with long and uncertain answers."""
    number = number_of(request)
    rng = random.Random(number)
    if step_of(request) == "answer" and number % 3 == 0:
        return [completion(f"Hm, let me see now. Answer: {number + 1}", -1.5 - rng.random())]
    return [completion(f"Judgment: CORRECT\nAnswer: {number}", -0.1 - 0.2 * rng.random())] * request.n


def serve(provider, tmp_path, count, *, content=True, marked=None, path=None):
    """Ask questions, store the traces, and mark them."""
    provider.script = speak
    settings = load_settings(config=tmp_path / "odar.toml")

    async def ask():
        async with Odar(settings) as odar:
            return [await odar.aask(f"What is {i} + 0 ?", path=path) for i in range(count)]

    answers = asyncio.run(ask())
    database = Database(settings.store)
    with database.write() as connection:
        queries = [Query(f"What is {i} + 0 ?") for i in range(count)]
        records = [Record(query, answer) for query, answer in zip(queries, answers, strict=True)]
        write_rows(connection, [make_row(record, content=content) for record in records])
    archive = Archive(database)
    for i, answer in enumerate(answers[:marked]):
        archive.mark(answer.trace.id, answer.answer == str(i))
    database.close()


def test_traffic_with_feedback_fits_posterior_and_statistics(odar, provider, store, tmp_path):
    serve(provider, tmp_path, 90, path="simple")
    result = odar("calibrate", "--from-traces")
    assert (result.code, result.err) == (0, "")
    assert "90 traces of these models and prompts, 90 with feedback" in result.out
    assert "(30 were)" in result.out
    assert "μ, σ answer measured on 90 candidates" in result.out
    assert "μ, σ verify kept: 30 candidates with log-probs are needed, 30 more" in result.out
    assert "posterior   kept: 200 finished fast answers of one kind are needed, 110 more" in result.out
    assert "as many take each path as before" in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    body = json.loads((tmp_path / "calibration.json").read_text())
    assert body["posterior"] is None
    assert any("length" in tables for row in body["sources"] for tables in (row["quantiles"] or {}).values())
    assert body["report"]["mix"]["before"] == body["report"]["mix"]["after"] == [1.0, 0.0, 0.0]
    assert body["settings"] == {"routing.tau1": 1.0, "routing.tau2": 1.0}
    assert body["made"]["data"] == "traces"


def test_texts_are_not_needed_for_chosen_fast_answers(odar, provider, store, tmp_path):
    serve(provider, tmp_path, 70, content=False, path="simple")
    body = json.loads(odar("calibrate", "--from-traces", "--json").out)
    assert (body["fast_answers"], body["with_feedback"]) == (70, 70)
    assert {part["part"] for part in body["parts"]} == {"estimator", "posterior"}


def test_a_correct_verification_marks_a_different_fast_answer_wrong(odar, provider, store, tmp_path):
    serve(provider, tmp_path, 60, path="medium")
    with_texts = json.loads(odar("calibrate", "--from-traces", "--json").out)
    assert with_texts["fast_answers"] >= 40
    assert with_texts["measured"] == {"answer": 60, "verify": 60}


def test_too_little_feedback_says_how_much_is_missing(odar, provider, store, tmp_path):
    serve(provider, tmp_path, 12, marked=9, path="simple")
    result = odar("calibrate", "--from-traces")
    assert result.code == 1
    assert "12 traces of these models and prompts, 9 with feedback" in result.out
    assert "200 finished fast answers of one kind are needed, 191 more" in result.out
    assert "50 items are needed, 41 more" in result.out
    assert "not written" in result.err
    assert not (tmp_path / "calibration.json").exists()


def test_an_empty_store_or_a_file_argument_is_rejected(odar, provider, store, tmp_path):
    result = odar("calibrate", "--from-traces")
    assert (result.code, "holds no trace of m with the prompts in use" in result.err) == (2, True)
    result = odar("calibrate", "--from-traces", "data.jsonl")
    assert (result.code, "does not go together" in result.err) == (2, True)
    result = odar("calibrate", "--from-traces", "--set", "store.enabled=false")
    assert (result.code, "store.enabled is false" in result.err) == (2, True)


def test_traces_with_other_prompts_are_skipped(odar, provider, store, tmp_path):
    serve(provider, tmp_path, 5, path="simple")
    result = odar("calibrate", "--from-traces", "--set", "prompts=tiny")
    assert (result.code, "holds no trace" in result.err) == (2, True)


def test_a_posterior_that_is_not_in_use_is_marked(odar, provider, store, tmp_path):
    serve(provider, tmp_path, 90, path="simple")
    result = odar("calibrate", "--from-traces", "--set", "routing.mode=prior")
    assert "            not in use: routing.mode = prior" in result.out


def test_traffic_without_feedback_shows_no_path_mix(odar, provider, store, tmp_path):
    serve(provider, tmp_path, 5, marked=0, path="hard")
    result = odar("calibrate", "--from-traces")
    assert result.code == 1
    assert "of 0 it is known whether the fast answer was wrong (0 were)" in result.out
    assert "simple / medium / hard of these" not in result.out


def test_an_unwritable_output_is_an_error(odar, provider, store, tmp_path):
    serve(provider, tmp_path, 90, path="simple")
    result = odar("calibrate", "--from-traces", "--out", "nowhere/c.json")
    assert (result.code, "nowhere/c.json cannot be written: No such file" in result.err) == (2, True)
