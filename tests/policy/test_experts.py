from __future__ import annotations

import tomllib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.catalogue import ModelCard
from odar.policy.experts import Expert, assign, route_expert, route_model
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
        ("Evaluate the integral of x e^x from 0 to 1.", "math"),
        ("Find the smallest prime p such that p + 2 is prime.", "math"),
        ("Write a function in Rust that returns the sum of a list.", "code"),
        ("Is f(x) = 1/x a function of x that is continuous?", "code"),
        ("What is the product of 12 and 13?", "math"),
        ("Fix the exception in this Python method.", "code"),
        ("How do I return a book?", "general"),
        ("Is there a method to his madness?", "commonsense"),
        ("What is the return on investment in education?", "general"),
        ("Which king's function was to import silk?", "knowledge"),
        ("What matrix of social relations did Foucault describe?", "general"),
        ("Who had an average childhood?", "knowledge"),
        ("The prime of Miss Jean Brodie: who wrote it?", "general"),
        ("Write a function that reverses a list.", "code"),
        ("Why does this function return None?\ndef f(x): print(x)", "code"),
        ("What is the derivative of sin x?", "math"),
        ("Is 91 prime?", "math"),
        ("What is the average of 3, 5 and 10?", "math"),
    ],
)
def test_cues_choose_the_expert(text, expert):
    assert route_expert(Query(text))[0] == expert


@pytest.mark.parametrize(
    ("text", "not_"),
    [
        ("What is the function of love in Shakespeare's sonnets?", "code"),
        ("Explain the integral role of women in the French Revolution.", "math"),
        ("Who is the prime minister of Japan?", "math"),
        ("What does it mean to return home after years abroad?", "code"),
        ("With the exception of Pluto, which bodies are planets?", "code"),
        ("Is a ball python a good pet?", "code"),
        ("Sum up the plot in two lines.", "math"),
        ("How does the liver function as a filter?", "code"),
        ("Why do import tariffs raise prices?", "code"),
    ],
)
def test_a_keyword_in_another_sense_is_not_a_cue(text, not_):
    assert route_expert(Query(text))[0] != not_


def test_modality_comes_before_keywords():
    routed = route_expert(Query("Solve the equation in this picture", (Image("image/png", b"x"),)))
    assert routed == (Expert.MULTIMODAL, "modality: image")


def test_more_keywords_win_and_ties_go_by_the_fixed_order():
    assert route_expert(Query("Write a python function for the integral"))[0] is Expert.CODE
    assert route_expert(Query("the polynomial in python"))[0] is Expert.MATH


def test_keywords_are_whole_words():
    assert route_expert(Query("I saw a prankster at the summit"))[0] is Expert.GENERAL


@given(st.text(max_size=300))
def test_routing_never_raises_and_is_deterministic(text):
    assert route_expert(Query(text)) == route_expert(Query(text))


RULES = tomllib.loads(resources.files("odar.policy").joinpath("experts.toml").read_text("utf-8"))


DEFAULT = ModelCard("default", "p", "default", scores={"math": 0.6})
SEER = ModelCard("seer", "p", "seer", images=True)
MATHEMATICIAN = ModelCard("mathematician", "p", "mathematician", scores={"math": 0.9, "code": 0.4})
PICTURE = Image("image/png", b"x")


@pytest.mark.parametrize(
    ("expert", "images", "chosen"),
    [
        (Expert.GENERAL, False, "default"),
        (Expert.MATH, False, "mathematician"),
        (Expert.CODE, False, "default"),
        (Expert.MULTIMODAL, True, "seer"),
        (Expert.MATH, True, "seer"),
    ],
)
def test_another_model_needs_a_reason(expert, images, chosen):
    assert route_model([DEFAULT, SEER, MATHEMATICIAN], expert, images=images).name == chosen


def test_without_a_model_for_images_the_default_model_is_assigned():
    assert route_model([DEFAULT, MATHEMATICIAN], Expert.MULTIMODAL, images=True) is DEFAULT


def test_agents_that_cannot_see_an_image_are_left_out():
    cards = {"fast": [DEFAULT, MATHEMATICIAN], "slow": [SEER]}
    assert assign(Query("What is this?", (PICTURE,)), cards).models == {"slow": "seer"}
    blind = {"fast": [DEFAULT], "slow": [MATHEMATICIAN]}
    assert set(assign(Query("What is this?", (PICTURE,)), blind).models) == {"fast", "slow"}
