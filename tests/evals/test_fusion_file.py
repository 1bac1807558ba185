from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from odar.calibration.bootstrap import bootstrap_mean
from odar.errors import InputError
from odar.evals.fusion_file import apply_rules, load_questions, oracle, stop_early
from odar.policy.fusion import Fusion


def row(gold, *answers, lps=None):
    candidates = [
        {"model": "m", "text": f"So.\nAnswer: {a}", "tokens": [["So", lp], [f" {a}", lp]]}
        for a, lp in zip(answers, lps or [-0.5] * len(answers), strict=True)
    ]
    return {"gold": gold, "candidates": candidates}


def write(tmp_path, *rows):
    file = tmp_path / "samples.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def test_rules_differ_as_they_should(tmp_path):
    questions = load_questions(
        write(
            tmp_path,
            row("1", "1", "1", "2", lps=[-0.5, -0.5, -0.1]),  # the vote is right, the surest is wrong
            row("2", "1", "1", "2", lps=[-0.5, -0.5, -0.1]),  # the other way round
            row("1", "1", "1", "1"),
            row(["3", "three"], "three", "4", "5", lps=[-0.1, -0.9, -0.9]),
        ),
        0.1,
    )
    results = {result.rule: result for result in apply_rules(questions, 0.0, 0.2, seed=0)}
    assert results["fep β=0"].accuracy == results["majority"].accuracy
    assert results["fep β=0"].against_majority.value == 0.0
    assert results["fep β=inf (argmin)"].accuracy.value == 0.75
    assert results["majority"].accuracy.value == 0.75
    assert oracle(questions) == 1.0


def test_stopping_early_looks_at_fewer(tmp_path):
    questions = load_questions(write(tmp_path, *[row("1", *"11111")] * 3, row("1", *"12131")), 0.1)
    early = stop_early(questions, Fusion("majority"), 0.8)
    assert early.slow_calls == (2 * 3 + 5) / 4
    assert early.saved == pytest.approx(1 - 11 / 20)
    assert (early.accuracy, early.against_all.value) == (1.0, 0.0)
    assert stop_early(questions, Fusion("majority"), 1.0).slow_calls == (3 * 3 + 5) / 4
    assert stop_early(questions, Fusion("majority"), 0.8, first_look=4).slow_calls == (4 * 3 + 5) / 4


def test_the_fast_answer_is_not_one_of_the_samples_that_stop(tmp_path):
    """Two slow samples agree, so that a third is not needed; the fast answer is there whatever happens."""
    made = row("1", *"211")
    made["candidates"][0]["agent"] = "fast"
    early = stop_early(load_questions(write(tmp_path, made), 0.1), Fusion("majority"), 0.8)
    assert (early.slow_calls, early.saved, early.accuracy) == (2.0, 0.0, 1.0)


def test_a_compressed_file_with_a_header_is_the_same_file(tmp_path):
    plain = write(tmp_path, row("1", *"112"), row("2", *"122"))
    packed = tmp_path / "samples.jsonl.gz"
    header = json.dumps({"format": "odar-samples-1", "made_by": "x"}) + "\n"
    packed.write_bytes(gzip.compress((header + plain.read_text()).encode()))
    assert load_questions(packed, 0.1) == load_questions(plain, 0.1)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        load_questions(packed, 0.1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is not a recorded question"),
        ('{"gold": "1"}', "lacks 'candidates'"),
        ('{"gold": "1", "candidates": []}', "no candidates"),
        ('{"gold": "1", "candidates": [{"tokens": [["a"]]}]}', "line 1"),
        ("", "holds no recorded questions"),
    ],
)
def test_a_bad_file_is_named(tmp_path, line, message):
    file = tmp_path / "samples.jsonl"
    file.write_text(line)
    with pytest.raises(InputError) as caught:
        load_questions(file, 0.1)
    assert message in str(caught.value)


def test_bootstrap_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        interval = bootstrap_mean(rng.random(60) < 0.7, seed, resamples=400)
        covered += interval.low <= 0.7 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99


def test_identical_rules_differ_by_exactly_nothing():
    interval = bootstrap_mean(np.zeros(50))
    assert (interval.value, interval.low, interval.high) == (0.0, 0.0, 0.0)


def test_items_that_failed_when_they_were_sampled_are_passed_over(tmp_path):
    good = {"id": "a", "gold": "4", "candidates": [{"answer": "4"}], "cost_usd": 0.1, "error": None, "digest": "d"}
    bad = {"id": "b", "cost_usd": None, "error": {"type": "ProviderTimeout", "message": "late"}, "digest": "e"}
    file = tmp_path / "samples.jsonl"
    file.write_text("\n".join(map(json.dumps, [{"format": "odar-samples-1"}, bad, good, bad])))
    assert [question.correct for question in load_questions(file, 0.1)] == [(True,)]
    file.write_text(json.dumps(bad))
    with pytest.raises(InputError, match="holds no recorded questions"):
        load_questions(file, 0.1)
