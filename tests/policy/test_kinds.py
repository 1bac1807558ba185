"""Kinds of requests: open-ended or of exact form, and the number of plausible answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odar.conversation import ChatParameters, Format, Message, Tool, ToolChoice
from odar.policy.kinds import Kind, request_kind
from odar.types import Query

EVERYDAY = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "docs" / "data" / "everyday.jsonl").read_text("utf-8").splitlines()
]
WEATHER = (Tool("get_weather", parameters={"type": "object"}),)


@pytest.mark.parametrize("item", EVERYDAY, ids=lambda item: item["id"])
def test_everyday_requests(item):
    found = request_kind(Query(item["prompt"]))
    expected = {"choice": {Kind.CHOICE}, "yes/no": {Kind.YES_NO}, "arithmetic": {Kind.NUMBER}}
    exact = {Kind.SHORT, Kind.NUMBER, Kind.YES_NO}
    assert found.kind in expected.get(item["kind"], exact if item["answer"] is not None else {Kind.OPEN_ENDED})


@pytest.mark.parametrize(
    ("text", "kind", "answers"),
    [
        ("Which is red?\nA) blood\nB) snow\nC) grass", Kind.CHOICE, 3),
        ("Is the argument valid?\nOptions:\n- valid\n- invalid", Kind.YES_NO, 2),
        ("Is a tomato a fruit or a vegetable?", Kind.CHOICE, 2),
        ("Which came first: the telephone or the telegraph?", Kind.CHOICE, 2),
        ("Can you see the Statue of Freedom from the Statue of Liberty?", Kind.YES_NO, 2),
        ("If you have black hair, do you need bleach?", Kind.YES_NO, 2),
        ("Did Dr. Seuss live in Paris?", Kind.YES_NO, 2),
        ("What is true of bees? Answer with yes or no.", Kind.YES_NO, 2),
        ("Ist ein Wal ein Fisch?", Kind.YES_NO, 2),
        ("Wie heißt die Hauptstadt der Schweiz?", Kind.SHORT, 0),
        ("Quelle est la capitale de la France ?", Kind.SHORT, 0),
        ("¿Cuál es la capital de Perú?", Kind.SHORT, 0),
        ("Was ist 12 mal 13?", Kind.NUMBER, 0),
        ("Was Bach German?", Kind.YES_NO, 2),
        ("Wie kocht man Reis?", Kind.OPEN_ENDED, 0),
        ("What is the difference between 20 and 8?", Kind.NUMBER, 0),
        ("Write 0.125 as a fraction in lowest terms.", Kind.NUMBER, 0),
        ("Find $x$ if $x + 2 = 5$.", Kind.NUMBER, 0),
        ("((2 + 3) * 4) =", Kind.NUMBER, 0),
        ("Add these up. Give your answer as an integer.", Kind.NUMBER, 0),
        ("not True or False is", Kind.SHORT, 0),
        ("Sort the following words: List: b a", Kind.SHORT, 0),
        ("Explain the riddle. Put your final answer in \\boxed{}.", Kind.SHORT, 0),
        ("Q: red?\nA: colour\n\nQ: Write a word for the moon.\nA:", Kind.SHORT, 0),
        ("What is the capital of France?", Kind.SHORT, 0),
        ("What is the difference between a crocodile and an alligator?", Kind.OPEN_ENDED, 0),
        ("Can you explain how a fridge works?", Kind.OPEN_ENDED, 0),
        ("Why is the sky blue?", Kind.SHORT, 0),
        ("What are some movies still banned in Australia?", Kind.SHORT, 0),
        ("What are some good movies for a rainy day?", Kind.OPEN_ENDED, 0),
        ("Why should I learn Latin?", Kind.OPEN_ENDED, 0),
        ("How do I get rid of ants?", Kind.OPEN_ENDED, 0),
        ("What are bees? Use at least 300 words.", Kind.OPEN_ENDED, 0),
        ("What does this picture show?", Kind.OPEN_ENDED, 0),
        ("good morning!", Kind.OPEN_ENDED, 0),
        ("", Kind.SHORT, 0),  # a recording without its questions
        ("<system-reminder>\nIs it true?\n</system-reminder>\nhi", Kind.OPEN_ENDED, 0),
        ("A long article.\n" * 500 + "\nSummarise this in two sentences.", Kind.OPEN_ENDED, 0),
    ],
)
def test_kind_and_number_of_plausible_answers(text, kind, answers):
    assert request_kind(Query(text)) == (kind, answers)


@pytest.mark.parametrize(
    ("text", "parameters", "kind"),
    [
        ("What is the weather in Rome?", ChatParameters(tools=WEATHER), Kind.TOOL_CALL),
        ("What is the weather in Rome?", ChatParameters(tools=WEATHER, tool_choice=ToolChoice("none")), Kind.SHORT),
        ("hi", ChatParameters(tools=WEATHER), Kind.OPEN_ENDED),
        ("hi", ChatParameters(tools=WEATHER, tool_choice=ToolChoice("required")), Kind.TOOL_CALL),
        ("Is 91 prime?", ChatParameters(tools=WEATHER), Kind.YES_NO),
        ("Write a story.", ChatParameters(format=Format()), Kind.OPEN_ENDED),
        ("Extract name and age: Ann is 7.", ChatParameters(format=Format()), Kind.SHORT),
        (
            "What is the mood?",
            ChatParameters(format=Format({"properties": {"mood": {"enum": ["good", "bad", "mixed"]}}})),
            Kind.CHOICE,
        ),
        ("Rate it.", ChatParameters(format=Format({"properties": {"stars": {"type": "integer"}}})), Kind.NUMBER),
        ("Spam?", ChatParameters(format=Format({"properties": {"spam": {"type": "boolean"}}})), Kind.YES_NO),
    ],
)
def test_tools_and_response_format_count(text, parameters, kind):
    assert request_kind(Query(text, parameters=parameters)).kind is kind


def test_an_empty_message_of_a_conversation_takes_one_call():
    assert request_kind(Query.from_messages((Message("user", ""),))).kind is Kind.OPEN_ENDED


def test_a_turn_in_a_tool_loop_is_a_tool_call():
    turns = (Message("user", "Write a story."), Message("assistant", ""), Message("tool", "done", tool_call_id="1"))
    assert request_kind(Query.from_messages(turns)).kind is Kind.TOOL_CALL
