"""The 25 checks on hand-made responses, and the published scores on recorded responses of GPT-4."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.lab.graders.ifeval import CHECKS, check_instructions, figures
from odar.lab.recording.files import read_table

CASES = [
    ("keywords:existence", {"keywords": ["Mom", "tea"]}, "My mom drinks TEA.", True),
    ("keywords:existence", {"keywords": ["mom", "tea"]}, "My mom.", False),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, "relation": "at least"}, "War and war.", True),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, "relation": "less than"}, "War and war.", False),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "The rocket flew.", True),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "Rock!", False),
    (
        "keywords:letter_frequency",
        {"letter": "q", "let_frequency": 2, "let_relation": "at least"},
        "Quiet quay",
        True,
    ),
    (
        "keywords:letter_frequency",
        {"letter": "q", "let_frequency": 2, "let_relation": "less than"},
        "Quiet quay",
        False,
    ),
    ("language:response_language", {"language": "de"}, "Das ist der Weg und nicht die Straße.", True),
    ("language:response_language", {"language": "de"}, "This is the way and not the street.", False),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "less than"}, "One. Two.", True),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}, "One. Two.", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\n\n***\ntwo", False),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one two-three", True),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "one two three", False),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "weekend"},
        'It is Friday.\n\n"Weekend, at last!"',
        True,
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "weekend"},
        "It is Friday.\n\nWeekend",
        False,
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name] of [city],", True),
    ("detectable_content:number_placeholders", {"num_placeholders": 3}, "Dear [name] of [city],", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\np. s. call me", True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.S. call me", False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}, "* a\n- b\n  * c", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "**bold**\n* a", False),
    ("detectable_format:constrained_response", {}, "Well. My answer is maybe.", True),
    ("detectable_format:constrained_response", {}, "Maybe.", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and **two**", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "* one *\n**", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "****", False),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\na\nSECTION 2\nb",
        True,
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\na",
        False,
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', True),
    ("detectable_format:json_format", {}, "{'a': 1}", False),
    ("detectable_format:title", {}, "<<Ode to joy>>\nO friends", True),
    ("detectable_format:title", {}, "<< >>", False),
    ("combination:two_responses", {}, "One way.\n******\nAnother.", True),
    ("combination:two_responses", {}, "Same.\n******\nSame.", False),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "say hi.\nHi!", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "Hi! Say hi.", False),
    ("startend:end_checker", {"end_phrase": "Is there more?"}, 'So it is. "is there more?"', True),
    ("startend:end_checker", {"end_phrase": "Is there more?"}, "Is there more? No.", False),
    ("startend:quotation", {}, ' "All of it." ', True),
    ("startend:quotation", {}, '"Some" of it', False),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "NASA and the EU-based lab: STOP",
        True,
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
        "A B c",
        False,
    ),
    ("change_case:english_capital", {}, "THIS IS THE WAY.", True),
    ("change_case:english_capital", {}, "This IS THE WAY.", False),
    ("change_case:english_lowercase", {}, "this is the way.", True),
    ("change_case:english_lowercase", {}, "das ist der weg und nicht die straße.", False),
    ("punctuation:no_comma", {}, "None here.", True),
    ("punctuation:no_comma", {}, "Here, one.", False),
]


@pytest.mark.parametrize(("name", "given", "response", "followed"), CASES)
def test_each_instruction(name, given, response, followed):
    assert check_instructions([name], [given], response) == (followed,)


def test_every_instruction_has_positive_and_negative_cases():
    assert len(CHECKS) == 25
    assert {name for name, *_, followed in CASES if followed} == set(CHECKS)
    assert {name for name, *_, followed in CASES if not followed} == set(CHECKS)


def test_loose_scoring_ignores_first_and_last_lines():
    response = 'Sure, here it is:\n"All of it."\nAnything else, just ask'
    for name in ("startend:quotation", "punctuation:no_comma"):
        assert check_instructions([name], [{}], response) == (False,)
        assert check_instructions([name], [{}], response, loose=True) == (True,)


@pytest.mark.parametrize("loose", [False, True])
def test_an_empty_response_follows_nothing(loose):
    names = ["punctuation:no_comma", "change_case:english_lowercase"]
    assert not any(check_instructions(names, [{}, {}], " \n", loose=loose))


@given(st.text(max_size=200))
def test_strict_scoring_implies_loose_scoring(response):
    names = ["punctuation:no_comma", "startend:quotation", "detectable_format:json_format"]
    strict, loose = (check_instructions(names, [{}] * 3, response, loose=loose) for loose in (False, True))
    assert all(second or not first for first, second in zip(strict, loose, strict=True))


def test_missing_arguments_may_be_none():
    given = {"num_words": 2, "relation": "at least", "keywords": None, "letter": None}
    assert check_instructions(["length_constraints:number_words"], [given], "two words") == (True,)


DATA = Path(os.environ.get("ODAR_TEST_DATA", "../shared/data"))
PUBLISHED = {
    "prompt-level strict": 0.7689,
    "instruction-level strict": 0.8357,
    "prompt-level loose": 0.7930,
    "instruction-level loose": 0.8537,
}
RECORDED = DATA / "ifeval" / "input_response_data_gpt4_20231107_145030.jsonl"


@pytest.mark.skipif(not RECORDED.exists(), reason=f"GPT-4's responses are not in {DATA} (set ODAR_TEST_DATA)")
def test_recorded_gpt4_responses_get_the_published_scores():
    rows = read_table(DATA / "ifeval" / "input_data.jsonl")
    assert figures(rows, [row["response"] for row in read_table(RECORDED)]) == pytest.approx(PUBLISHED, abs=0.02)
