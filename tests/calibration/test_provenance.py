from __future__ import annotations

import json
import os

import pytest

from odar.calibration.provenance import Provenance, latest, provenance
from odar.errors import InputError
from odar.evals.samples import FORMAT
from odar.recording.journal import Journal
from test_engine import MODELS, engine


def made(**settings):
    return provenance(engine(**settings)[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"fast__temperature": 0.9},
        {"slow__max_tokens": 7},
        {"slow__stop": ["Q:"]},
        {"routing__samples": 3},
        {"fusion__stop_confidence": 0.95},
        {"fusion__stop_confidence": 0.8, "fusion__first_wave": 4},
        {"fusion__surrogate": "deep", "models": {**MODELS, "deep": {**MODELS["deep"], "prompt_logprobs": True}}},
        {"prompts": "tiny"},
        {"models": {**MODELS, "deep": {**MODELS["deep"], "id": "deep-2"}}},
        {"models": {**MODELS, "deep": {**MODELS["deep"], "extra": {"reasoning_effort": "high"}}}},
        {"models": {**MODELS, "deep": {**MODELS["deep"], "n": False}}},
    ],
    ids=lambda settings: ", ".join(settings),
)
def test_what_changes_the_recorded_calls_is_seen(settings):
    assert made(**settings).digest != made().digest
    assert made(**settings).changes(made())


@pytest.mark.parametrize(
    "settings",
    [
        {"routing__tau1": 0.2, "fusion__beta": 1.0, "fusion__rule": "majority"},
        {"fast__timeout_s": 99, "limits__deadline_s": 99},
        {"fusion__first_wave": 2},  # nobody stops early here, so there are no waves
        {"fusion__missing_limit": 0.5},  # nor is there a surrogate to spare
    ],
    ids=lambda settings: ", ".join(settings),
)
def test_what_does_not_is_not(settings):
    assert made(**settings) == made()
    assert made(**settings).changes(made()) == []


def test_another_way_of_sampling_is_another_origin(monkeypatch):
    before = made()
    monkeypatch.setattr("odar.calibration.provenance.PROCEDURE", 99)
    assert made().digest != before.digest


def test_another_seed_is_another_origin():
    odar = engine()[0]
    assert provenance(odar, seed=1).changes(provenance(odar)) == ["seed was 42 and is 1"]


def test_neither_addresses_nor_further_fields_are_told(monkeypatch):
    secret = "sk-of-nobody"
    models = {**MODELS, "deep": {**MODELS["deep"], "extra": {"key": secret}}}
    odar = engine(models=models)[0]
    assert secret not in json.dumps(provenance(odar).header("f"))
    assert secret not in str(provenance(odar).changes(made()))


def test_the_facts_survive_their_file():
    now = made(fusion__stop_confidence=0.8)
    header = json.loads(json.dumps(now.header("f")))
    assert Provenance.of_header(header).digest == now.digest == header["made_by"]
    assert now.changes(Provenance.of_header(header)) == []
    assert Provenance.of_header({"format": "f", "made_by": "x"}) is None


def test_a_fact_that_is_new_is_told():
    assert Provenance({"a": 1}).changes(Provenance({})) == ["a was not there and is 1"]


def test_what_was_written_last_is_found(tmp_path):
    assert latest(tmp_path) is None
    (tmp_path / "notes.jsonl").write_text("no header")
    assert latest(tmp_path) is None
    for age, name in ((3, "old"), (2, "new"), (1, "older version")):
        header = {"format": "f", "made_by": "x"} if " " in name else Provenance({"is": name}).header("f")
        file = tmp_path / f"{name}.jsonl"
        file.write_text(json.dumps(header) + "\n")
        os.utime(file, (1000 - age, 1000 - age))
    os.utime(tmp_path / "notes.jsonl", (2000, 2000))
    assert latest(tmp_path) == (tmp_path / "older version.jsonl", None)
    (tmp_path / "older version.jsonl").unlink()
    assert latest(tmp_path) == (tmp_path / "new.jsonl", Provenance({"is": "new"}))


def open_file(path, made_by):
    with Journal(path, made_by.header(FORMAT), made_by.since):
        pass


def test_a_file_that_something_else_made_says_what_differs(tmp_path):
    open_file(tmp_path / "s.jsonl", Provenance({"slow": {"temperature": 1.0}}))
    with pytest.raises(InputError, match=r"slow.temperature was 1.0 and is 0.3"):
        open_file(tmp_path / "s.jsonl", Provenance({"slow": {"temperature": 0.3}}))


def test_only_the_first_differences_are_listed(tmp_path):
    open_file(tmp_path / "s.jsonl", Provenance(dict.fromkeys("abcde", 1)))
    with pytest.raises(InputError, match=r"c was 1 and is 2 and 2 more\)"):
        open_file(tmp_path / "s.jsonl", Provenance(dict.fromkeys("abcde", 2)))


def test_a_file_of_another_format_is_named_as_such(tmp_path):
    (tmp_path / "s.jsonl").write_text(json.dumps({"format": "odar-samples-0"}) + "\n")
    with pytest.raises(InputError, match="has format 'odar-samples-0'; this odar reads 'odar-samples-1'"):
        open_file(tmp_path / "s.jsonl", Provenance({}))
