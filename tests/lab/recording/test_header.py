from __future__ import annotations

import json
from dataclasses import replace

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import InputError
from odar.lab.recording.header import FORMAT, Header, describe_changes, header_of
from odar.lab.runs.journal import Journal
from support import panels


@pytest.fixture(scope="module")
def header() -> Header:
    return header_of(Odar(panels.settings()), 5)


def test_a_header_survives_a_round_trip(header):
    text = json.dumps(header.to_row())
    assert "\n" not in text
    again = Header.from_json(text, "p")
    assert json.dumps(again.to_row()) == text
    assert again.format == FORMAT
    assert again.to_calibration().to_json() == Odar(panels.settings()).calibration.to_json()


def test_a_header_with_infinity_is_valid_json(header):
    paper = header_of(Odar(panels.settings(fusion__beta=float("inf"))), 5)
    found = json.loads(json.dumps(paper.to_row()), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert float(found["settings"]["fusion"]["beta"]) == float("inf")
    assert header.settings["profile"] == "tiny"


def test_recorded_samples_and_routing_samples_are_independent():
    more = header_of(Odar(panels.settings(routing__samples=9)), 5)
    assert (more.samples, more.settings["routing"]["samples"]) == (9, 5)


def test_a_header_holds_the_settings_of_a_replay():
    made = panels.settings(fusion__beta=float("inf"), second__model="deep", policy="paper")
    again = header_of(Odar(made)).to_settings()
    for name in ("fast", "second", "slow", "agents", "routing", "fusion", "policy"):
        assert getattr(again, name) == getattr(made, name), name
    assert again.card("quick").price == made.card("quick").price
    assert set(again.models) == {"quick", "deep"}
    assert again.providers["openai"].cheap  # a model of a vendor has a skill of its own until one is measured


def test_incomplete_settings_are_rejected(header):
    broken = replace(header, settings={**header.settings, "fusion": {}})
    with pytest.raises(InputError, match=r"settings in the recording cannot be read: .*\$\.fusion"):
        broken.to_settings()


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
    ({"policy": "paper"}, False),
    ({"second__model": "deep"}, True),
    ({"fusion__beta": 0.5}, False),
    ({"fusion__rule": "majority"}, False),
    ({"limits__deadline_s": 60.0}, False),
]


@pytest.mark.parametrize(("change", "other"), CHANGES, ids=[next(iter(change)) for change, _ in CHANGES])
def test_made_by_covers_what_changes_answers_and_nothing_else(header, change, other):
    assert (header_of(Odar(panels.settings(**change))).made_by != header.made_by) is other


def test_a_file_with_other_settings_is_rejected_and_the_difference_named(header, tmp_path):
    other = header_of(Odar(panels.settings(fast__temperature=0.7, slow__max_tokens=17)))
    path = tmp_path / "x.jsonl"
    with Journal(path, header.to_row()):
        pass
    before = path.read_bytes()
    why = r"other models, prompts or settings \(agents.fast.temperature was 0.2 and is 0.7; agents.slow.max_tokens"
    with pytest.raises(InputError, match=why), Journal(path, other.to_row()):
        pass
    assert path.read_bytes() == before


def test_local_weights_are_identified_by_their_hash():
    facts = header_of(Odar(load_settings("tiny", environ={}, calibration=""))).facts
    assert [len(card["weights"]) for card in facts["models"].values()] == [64] * len(facts["models"])


def test_a_provider_address_is_not_in_the_header(header):
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
        ('{"format": "odar-recording-3"}', "upgrade odar"),
        ('{"format": "odar-calibration-1"}', "is it the right file"),
        ('{"format": "odar-recording-2"}', "is not a recording: .*missing"),
        ('{"format": "odar-recording-2", "more": 1}', "is not a recording"),
        ("[" * 999, "is not a recording"),
    ],
)
def test_an_invalid_header_is_rejected(text, why):
    with pytest.raises(InputError, match=f"mine.*{why}"):
        Header.from_json(text, "mine.parquet")
