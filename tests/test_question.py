"""The core question: text of clients, examples, options and demands set apart; requests captured from real agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from templates import multiple_choice, open_answer  # scripts is on the path

from odar.conversation import Message
from odar.difficulty.base import estimate_turn, open_estimator
from odar.policy.experts import route_expert
from odar.question import core_question, earlier_questions
from odar.serving.protocols.messages import read_messages
from odar.serving.protocols.responses import read_responses
from odar.types import Query

CAPTURED = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "agent_requests.jsonl").read_text("utf-8").splitlines()
]
"""Requests of Claude Code 2.1.197 and Codex 0.169.0, captured in front of a scripted model; long system texts are cut."""
TASKS = {
    "hi": "hi",
    "typo": "Fix the typo in README.md: 'recieve' should be 'receive'.",
    "refactor": "Refactor the parser in src/parse.py so that the tokenizer and the recursive descent part are separate "
    "modules with no shared mutable state, and prove by tests that all 40 grammar cases still give the same trees.",
    "tools": "Please read the file note.txt and tell me.",
    "tools-continued": "thanks, now say it in German",
}


def read(request) -> Query:
    reader = {"messages": read_messages, "responses": read_responses}[request["protocol"]]
    return reader(request["body"]).query


@pytest.mark.parametrize("captured", CAPTURED)
def test_question_of_an_agent_is_what_its_user_typed(captured):
    assert core_question(read(captured)).text == TASKS[captured["task"]]


@pytest.mark.parametrize("captured", [request for request in CAPTURED if request["task"] != "tools-continued"])
def test_difficulty_and_expert_are_those_of_the_users_words_alone(captured):
    estimator, alone, query = open_estimator("learned"), Query(TASKS[captured["task"]]), read(captured)
    assert estimate_turn(estimator, query).difficulty == estimate_turn(estimator, alone).difficulty
    assert route_expert(query) == route_expert(alone)


def test_turns_that_a_client_wrote_are_no_earlier_turns():
    (query,) = (read(each) for each in CAPTURED if each["task"] == "tools-continued")
    assert earlier_questions(query, 4) == [TASKS["tools"]]


@pytest.mark.parametrize(
    "case",
    {
        "claude code": "<system-reminder>\nToday is Monday.\n</system-reminder>\n\nhi",
        "codex": "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>\nhi",
        "codex, AGENTS.md": "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nProve it.\n</INSTRUCTIONS>\nhi",
        "cline": "<task>\nhi\n</task>\n\n<environment_details>\n# VSCode Visible Files\na.py\n</environment_details>",
        "cursor": "<attached_files>\nx\n</attached_files>\n<user_query>\nhi\n</user_query>",
        "copilot": '<attachment id="a.py">\nx = 1\n</attachment>\n<userRequest>\nhi\n</userRequest>',
        "copilot, context": "<editorContext>\nThe file is a.py\n</editorContext>\nhi",
        "claude code, editor": "<ide_opened_file>The user opened a.py.</ide_opened_file>\nhi",
        "claude code, slash command": "<command-name>/ask</command-name>\n<command-args>hi</command-args>",
        "aider": "hi\n\n# *SEARCH/REPLACE block* Rules:\n\nEvery block must use this format.",
        "smolagents": "New task:\nhi",
        "documents": '<document index="1">\nA long text.\n</document>\n\nhi',
    }.items(),
)
def test_text_of_a_client_is_set_apart(case):
    core = core_question(Query(case[1]))
    assert core.text == "hi"


@pytest.mark.parametrize(
    "text",
    (
        "Why does <div> not close?\n<div>\n  <my-element>text</my-element>\n</div>",
        "<details>\nWhat is this tag for?\n</details>",
        "<system-reminder>\nnot closed",
        "Is a < b and b > c?",
        "  What is 2 + 2?\n",
        "",
        " \n ",
    ),
)
def test_a_question_without_wrapper_stays_as_it_is(text):
    assert core_question(Query(text)).text == text


def test_a_capturedof_only_client_text_is_that_text():
    text = "<document>\nA long text.\n</document>"
    assert core_question(Query(text)).text == text


@pytest.mark.parametrize(
    "result",
    (
        "[read_file for 'a.py'] Result:\nx = 1",
        "Observation:\nx = 1",
        "<system-reminder>\nBe brief.\n</system-reminder>",
    ),
)
def test_in_a_tool_loop_the_task_of_the_turn_is_the_question(result):
    turns = (Message("user", "What does a.py do?"), Message("assistant", "I read it."), Message("user", result))
    query = Query.from_messages(turns)
    assert core_question(query).text == "What does a.py do?"
    assert earlier_questions(query, 4) == []


@pytest.mark.parametrize(
    "case",
    (
        ("Which is red?\nA. blood\nB. snow\nC. grass", ("blood", "snow", "grass")),
        ("Which is red?\n(a) blood\n(b) snow", ("blood", "snow")),
        ("Which is red?\n1. blood\n2. snow", ("blood", "snow")),
        ("Which is red? (A) blood (B) snow", ("blood", "snow")),
        ("Which is red?\nOptions:\n- blood\n- snow", ("blood", "snow")),
        ("Which is red?\nAnswer Choices:\n(A) blood\n(B) snow", ("blood", "snow")),
        ("Question: Which is red?\nA) blood\nB) snow\nAnswer:", ("blood", "snow")),
    ),
)
def test_options_are_set_apart(case):
    core = core_question(Query(case[0]))
    assert (core.text, core.options) == ("Which is red?", case[1])


@pytest.mark.parametrize(
    "text",
    (
        "Write a plan with these steps:\n1. buy milk\n2. bake bread",
        "Plan A) is good, and plan B) is bad.",
        "A. M. Turing was born in London. B. Russell was not.",
        "Sort these:\n- blood\n- snow",
    ),
)
def test_other_lists_are_no_options(text):
    assert core_question(Query(text)) == (text, (), "", 0)


def test_multiple_choice_stays_a_feature_without_the_options():
    estimate = open_estimator("learned").estimate(Query("Which is red?\nA) blood\nB) snow"))
    assert {name: value for name, value, _ in estimate.contributions}["is_multiple_choice"] == 1.0


def test_few_shot_examples_are_set_apart():
    text = "Answer as in the examples.\n\nQ: Is snow white?\nA: yes\n\nQ: Is blood blue?\nA: no\n\nQ: Is grass green?\nA:"
    core = core_question(Query(text))
    assert (core.text, core.examples) == ("Is grass green?", 2)


@pytest.mark.parametrize("template", multiple_choice("", ["", ""], ""))
def test_templates_of_multiple_choice_leave_the_question(template):
    question, options = "A ball is thrown up at 5 m/s.\n\nHow high does it rise?", ["1.27 m", "2 m", "5 m"]
    core = core_question(Query(multiple_choice(question, options, "physics")[template]))
    assert (core.text, core.options) == (question, tuple(options))
    assert core.examples == (2 if "few-shot" in template else 0)


@pytest.mark.parametrize("template", open_answer(""))
def test_templates_of_open_questions_leave_the_question(template):
    assert core_question(Query(open_answer("How many primes are below 50?")[template])).text == (
        "How many primes are below 50?"
    )


@pytest.mark.parametrize(
    "text",
    (
        "The castle was built by a duke, who sold it to the king in 1402.\n\nQuestion: Who owned it in 1500?",
        "Print the answer as one number.\n\nInput: two integers.",
        "Solve the following system: x + y = 1, x - y = 0.",
        "There is a problem with my code. It prints nothing.",
        "You are a teacher and have 30 pupils. How many rows of six are there?",
        "What is the sum?\nProblem: 1 + 1\nSolution: 2",
    ),
)
def test_what_belongs_to_the_question_is_not_set_apart(text):
    assert core_question(Query(text)).text == text


@pytest.mark.parametrize("text", ("Answer the following question: ", "Please read the problem below.\n"))
def test_an_introduction_ends_before_the_question(text):
    assert core_question(Query(f"{text}Is 91 prime? Or is 97?")).text == "Is 91 prime? Or is 97?"


def test_examples_of_a_programming_task_are_part_of_it():
    text = "Add two numbers.\n\nInput: 1 2\nOutput: 3\n\nInput: 4 5\nOutput: 9"
    assert core_question(Query(text)) == (text, (), "", 0)


@pytest.mark.parametrize(
    "demand",
    (
        "Answer with the letter only.",
        "Please respond in JSON.",
        'End your answer with "Answer: X".',
        "Put your final answer in \\boxed{}.",
        "Let's think step by step.",
        "Express your answer as a common fraction.",
        "Only output the number.",
        "Do not explain your reasoning.",
        "Yes or no?",
    ),
)
def test_demands_on_the_form_are_set_apart(demand):
    core = core_question(Query(f"Is 91 prime? {demand}"))
    assert (core.text, core.demands) == ("Is 91 prime?", demand)


def test_a_demand_alone_is_the_question():
    assert core_question(Query("Answer with the letter only.")).text == "Answer with the letter only."
