from __future__ import annotations

import json

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import InputError
from odar.recording.header import FORMAT, Header, calibration_of, describe_changes, header_of
from odar.recording.journal import Journal
from support import panels


@pytest.fixture(scope="module")
def header() -> Header:
    return header_of(Odar(panels.settings()), 5)


def test_a_header_comes_back_the_same(header):
    text = json.dumps(header.to_row())
    assert "\n" not in text
    again = Header.from_json(text, "p")
    assert json.dumps(again.to_row()) == text
    assert again.format == FORMAT
    assert calibration_of(again).to_json() == Odar(panels.settings()).calibration.to_json()


def test_what_is_in_it_is_valid_json_infinity_included(header):
    paper = header_of(Odar(panels.settings(fusion__beta=float("inf"))), 5)
    found = json.loads(json.dumps(paper.to_row()), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert float(found["settings"]["fusion"]["beta"]) == float("inf")
    assert header.settings["profile"] == "tiny"


def test_the_samples_of_the_path_and_those_of_the_panel_are_two_things():
    more = header_of(Odar(panels.settings(routing__samples=9)), 5)
    assert (more.samples, more.settings["routing"]["samples"]) == (9, 5)


def test_every_step_of_every_model_has_its_terms(header):
    steps = {(source["step"], source["model"]) for source in header.sources}
    assert steps == {("answer", "quick"), ("verify", "deep"), ("solve", "deep")}
    assert header.together == {"quick": True, "deep": True}
    assert set(header.prompts) == {"answer", "verify", "solve"}


CHANGES = [
    ({"fast__temperature": 0.7}, True),
    ({"slow__top_p": 0.5}, True),
    ({"slow__max_tokens": 17}, True),
    ({"slow__model": "quick"}, True),
    ({"fast__stop": ["\n\n"]}, True),
    ({"routing__samples": 7}, True),
    ({"prompts": "tiny"}, True),
    ({"fast__timeout_s": 99.0}, False),
    ({"slow__timeout_s": 99.0}, False),
    ({"routing__tau1": 0.25}, False),
    ({"routing__mode": "prior"}, False),
    ({"fusion__beta": 0.5}, False),
    ({"fusion__rule": "majority"}, False),
    ({"limits__deadline_s": 60.0}, False),
]


@pytest.mark.parametrize(("change", "other"), CHANGES, ids=[next(iter(change)) for change, _ in CHANGES])
def test_answers_depend_on_models_prompts_and_sampling_and_on_nothing_that_a_replay_can_change(
    header, change, other
):
    assert (header_of(Odar(panels.settings(**change))).made_by != header.made_by) is other


def test_a_file_made_by_something_else_is_refused_and_the_difference_named(header, tmp_path):
    other = header_of(Odar(panels.settings(fast__temperature=0.7, slow__max_tokens=17)))
    path = tmp_path / "x.jsonl"
    with Journal(path, header.to_row()):
        pass
    before = path.read_bytes()
    why = r"other models, prompts or settings \(fast.temperature was 0.2 and is 0.7; slow.max_tokens was"
    with pytest.raises(InputError, match=why), Journal(path, other.to_row()):
        pass
    assert path.read_bytes() == before


def test_local_weights_are_named_by_their_hash():
    facts = header_of(Odar(load_settings("tiny", environ={}))).facts
    assert [len(card["weights"]) for card in facts["models"].values()] == [64] * len(facts["models"])


def test_an_address_is_never_written_out(header):
    secret = "https://me:secret@host/v1"
    settings = panels.settings(providers={n: {"kind": "openai", "base_url": secret} for n in ("fast", "slow")})
    made = header_of(Odar(settings))
    assert "secret" not in json.dumps(made.to_row())
    assert "models.quick.address was " in describe_changes(made.facts, header.facts)


def test_only_the_first_changes_are_named():
    assert describe_changes({"a": 1}, {"a": 1}) == ""
    now, before = {str(i): i for i in range(5)}, {str(i): -i for i in range(1, 6)}
    assert describe_changes(now, before).endswith(" and 3 more)")
    assert "0 was missing and is 0" in describe_changes(now, before)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a recording"),
        ("null", "is not a recording"),
        ("{}", "has format None"),
        ('{"format": "odar-recording-0"}', "collect it again"),
        ('{"format": "odar-recording-2"}', "upgrade odar"),
        ('{"format": "odar-calibration-1"}', "is it the right file"),
        ('{"format": "odar-recording-1"}', "is not a recording: .*missing"),
        ('{"format": "odar-recording-1", "more": 1}', "is not a recording"),
        ("[" * 999, "is not a recording"),
    ],
)
def test_what_is_no_header_is_refused_with_its_name(text, why):
    with pytest.raises(InputError, match=f"mine.*{why}"):
        Header.from_json(text, "mine.parquet")
