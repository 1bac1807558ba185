from __future__ import annotations

import json
from pathlib import Path

import pytest

from odar.engine import Odar
from odar.errors import InputError
from odar.evals.panel.header import FORMAT, Header, calibration_of, fingerprint, header_of, refuse_other
from support import panels


@pytest.fixture(scope="module")
def header() -> Header:
    return header_of(Odar(panels.settings()), 5)


def test_a_header_comes_back_the_same(header):
    text = header.to_json()
    assert "\n" not in text
    again = Header.from_json(text, "p")
    assert again.to_json() == text
    assert again.format == FORMAT
    assert calibration_of(again).to_json() == Odar(panels.settings()).calibration.to_json()


def test_what_is_in_it_is_valid_json_infinity_included(header):
    paper = header_of(Odar(panels.settings(fusion__beta=float("inf"))), 5)
    found = json.loads(paper.to_json(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
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
    assert (fingerprint(Odar(panels.settings(**change))) != header.made_by) is other


def test_a_file_made_by_something_else_is_refused_with_both_names(header):
    other = header_of(Odar(panels.settings(fast__temperature=0.7)), 5)
    refuse_other(header, header, Path("p"))
    with pytest.raises(InputError, match=f"{header.made_by}, not {other.made_by}"):
        refuse_other(header, other, Path("p"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a panel"),
        ("null", "is not a panel"),
        ("{}", "has format None"),
        ('{"format": "odar-panel-1"}', "collect it again"),
        ('{"format": "odar-panel-3"}', "upgrade odar"),
        ('{"format": "odar-calibration-1"}', "is it the right file"),
        ('{"format": "odar-panel-2"}', "is not a panel: .*missing"),
        ('{"format": "odar-panel-2", "more": 1}', "is not a panel"),
        ("[" * 999, "is not a panel"),
    ],
)
def test_what_is_no_header_is_refused_with_its_name(text, why):
    with pytest.raises(InputError, match=f"mine.*{why}"):
        Header.from_json(text, "mine.parquet")
