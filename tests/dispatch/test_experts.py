from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.dispatch.experts import Expert, route_expert
from odar.types import Image, Query


@pytest.mark.parametrize(
    ("text", "expert"),
    [
        ("What is the derivative of x^2?", "math"),
        ("How many apples are left if 3 of 12 are eaten?", "math"),
        ("Write a Python function that reverses a linked list.", "code"),
        ("Why does this raise an exception?", "code"),
        ("Given the premises, is the conclusion necessarily true?", "logic"),
        ("Translate 'good morning' into French.", "language"),
        ("Who wrote Hamlet?", "knowledge"),
        ("What is the capital of Peru?", "knowledge"),
        ("Do penguins fly?", "commonsense"),
        ("```\nx = 1\n```", "code"),
        ("Prove it.", "math"),
        ("12 + 30", "math"),
        ("Hello there", "general"),
        ("", "general"),
        ("你好吗", "general"),
    ],
)
def test_cues_choose_the_expert(text, expert):
    assert route_expert(Query(text)).expert == expert


def test_modality_comes_before_keywords():
    routed = route_expert(Query("Solve the equation in this picture", (Image("image/png", b"x"),)))
    assert (routed.expert, routed.cue) == (Expert.MULTIMODAL, "modality: image")


def test_more_keywords_win_and_ties_go_by_the_fixed_order():
    assert route_expert(Query("Write a python function for the integral")).expert is Expert.CODE
    assert route_expert(Query("the integral in python")).expert is Expert.MATH


def test_keywords_are_whole_words():
    assert route_expert(Query("I saw a prankster at the summit")).expert is Expert.GENERAL


def test_the_cue_is_named():
    assert route_expert(Query("Solve the equation by calculus")).cue == "keywords: calculus, equation"


@given(st.text(max_size=300))
def test_routing_is_total_and_deterministic(text):
    assert route_expert(Query(text)) == route_expert(Query(text))
