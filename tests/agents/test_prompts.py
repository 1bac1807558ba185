from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

import odar
from odar.agents.prompts import SETS, load_prompts
from odar.conversation import ChatParameters, Format, Message, Tool, ToolCall, Wire
from odar.errors import SettingsError
from odar.types import Image, Query, Step

ROOT = Path(__file__).parents[2]
FOLDER = Path(odar.__file__).parent / "agents/prompts"


@pytest.mark.parametrize("name", ["paper", "tiny"])
def test_every_set_has_the_format_rules_of_spec_3_1(name):
    prompts = load_prompts(name).exact
    assert "Answer:" in prompts[Step.ANSWER].system + "".join(reply for _, reply in prompts[Step.ANSWER].examples)
    verify = prompts[Step.VERIFY].system + "".join(reply for _, reply in prompts[Step.VERIFY].examples)
    assert all(word in verify for word in ("Judgment:", "CORRECT", "INCORRECT", "Answer:"))
    shown = "{draft}" if name == "paper" else "{proposal}"
    assert shown in prompts[Step.VERIFY].user
    assert shown not in prompts[Step.SOLVE].user + prompts[Step.ANSWER].user


def test_the_local_pair_verifies_by_solving():
    """Small models adopt any proposal they see, so the Medium path uses the prompt of the Hard path."""
    prompts = load_prompts("local").exact
    query = Query("What is 2 + 2?")
    assert prompts[Step.VERIFY].messages(query, proposal="5") == prompts[Step.SOLVE].messages(query)


def test_the_papers_set_names_every_step_of_the_protocols():
    prompts = load_prompts("paper").exact
    assert all(word in prompts[Step.VERIFY].system for word in ("Restate", "Validate", "Judge", "Correct"))
    assert all(word in prompts[Step.SOLVE].system for word in ("Analyze", "Strategize", "Execute", "Verify"))


@pytest.mark.parametrize(
    ("name", "step", "gone"),
    [
        ("paper without step-limit", Step.ANSWER, "three short steps"),
        ("paper without self-correction", Step.ANSWER, "correct yourself"),
        ("paper without protocol", Step.VERIFY, "Restate"),
        ("paper without self-check", Step.SOLVE, "Verify"),
        ("paper without structure", Step.SOLVE, "Analyze"),
        ("local without step-limit", Step.ANSWER, "three short steps"),
    ],
)
def test_a_part_can_be_left_out(name, step, gone):
    full, changed = load_prompts(name.partition(" ")[0]).exact, load_prompts(name).exact
    assert gone in full[step].system and gone not in changed[step].system
    assert "Answer: <response>" in changed[step].system
    assert changed[step].md5 != full[step].md5
    assert {s for s in Step if changed[s] != full[s]} <= {step, Step.VERIFY}


def test_a_missing_part_is_named():
    assert load_prompts("local without examples").exact[Step.ANSWER].examples == ()
    with pytest.raises(SettingsError, match="no part 'charm'"):
        load_prompts("paper without charm")
    with pytest.raises(SettingsError, match="have no self-check that could be left out"):
        load_prompts("local without self-check")


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("step", list(Step))
def test_the_md5_is_that_of_the_file(name, step):
    file = FOLDER / name / f"{step}.toml"
    assert load_prompts(name).exact[step].md5 == hashlib.md5(file.read_bytes()).hexdigest()


def test_the_chat_set_leaves_a_conversation_unchanged():
    turns = (
        Message("system", "Speak like a pirate."),
        Message("user", "Hello", wire=Wire("openai", {"role": "user", "content": "Hello", "name": "ann"})),
        Message("assistant", "", tool_calls=(ToolCall("1", "look", "{}"),)),
        Message("tool", "a ship", tool_call_id="1"),
    )
    prompts = load_prompts("chat").exact
    query = Query.from_messages(turns)
    assert prompts[Step.ANSWER].messages(query) == prompts[Step.SOLVE].messages(query) == turns
    *same, closing = prompts[Step.VERIFY].messages(query, "42", "It is 42.")
    assert tuple(same) == turns
    assert closing.role == "user"
    assert "<draft>\nIt is 42.\n</draft>" in closing.text
    assert not any(prompt.asks_for_judgment for prompt in prompts.values())
    assert load_prompts("paper").exact[Step.VERIFY].asks_for_judgment


def test_other_sets_fill_the_last_user_turn_of_a_conversation():
    turns = (Message("user", "One"), Message("assistant", "1"), Message("user", "Two"), Message("assistant", "…"))
    messages = load_prompts("paper").exact[Step.VERIFY].messages(Query.from_messages(turns), "2", "It is 2.")
    assert [m.role for m in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert messages[3].text == "Two\n\nProposed answer:\nIt is 2."


def test_braces_in_a_query_are_not_replaced():
    text = (
        load_prompts("paper")
        .exact[Step.VERIFY]
        .messages(Query("f-string {query} {draft} {x}"), "", "{query}")[-1]
        .text
    )
    assert text == "f-string {query} {draft} {x}\n\nProposed answer:\n{query}"


def test_only_the_verifier_gets_the_proposal():
    prompts = load_prompts("paper").exact
    picture = Image("image/png", b"x")
    last = prompts[Step.VERIFY].messages(Query("How many?", (picture,)), "four", "Two and two: four")[-1]
    assert "How many?" in last.text
    assert "Proposed answer:\nTwo and two: four" in last.text
    assert last.images == (picture,)
    assert "four" not in prompts[Step.SOLVE].messages(Query("How many?"), "four")[-1].text


def test_prompts_can_be_read_from_a_folder(tmp_path):
    for step in Step:
        (tmp_path / f"{step}.toml").write_text('user = "Q: {query}"\n')
    prompts = load_prompts(str(tmp_path)).exact
    assert [message.text for message in prompts[Step.ANSWER].messages(Query("hi"))] == ["Q: hi"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('user = "no place for it"', "must contain {query}"),
        ("user = 5", "lacks a text"),
        ("", "lacks a text for 'user'"),
        ("user = ", "not valid TOML"),
        ('user = "{query}"\nexamples = [{query = "x"}]', "lacks a text for 'reply'"),
    ],
)
def test_a_bad_prompt_file_is_named(tmp_path, content, message):
    for step in Step:
        (tmp_path / f"{step}.toml").write_text(content)
    with pytest.raises(SettingsError, match=r"answer\.toml") as caught:
        load_prompts(str(tmp_path))
    assert message in str(caught.value)


def test_a_missing_set_or_file_is_named(tmp_path):
    with pytest.raises(
        SettingsError, match=r"'nowhere' is neither a folder nor one of: chat, default, local, paper, tiny"
    ):
        load_prompts("nowhere")
    with pytest.raises(SettingsError, match="No such file"):
        load_prompts(str(tmp_path))


EXACT = Query("What is 17 + 25?")
OPEN = Query("Write a short poem about autumn.")


@pytest.mark.parametrize("name", ["default", "local", "tiny"])
def test_open_ended_requests_are_sent_as_they_are(name):
    prompts = load_prompts(name)
    assert prompts.is_open_ended(OPEN) and not prompts.is_open_ended(EXACT)
    assert prompts.choose(open_ended=True)[Step.ANSWER].messages(OPEN) == OPEN.messages
    assert "Answer:" in str(prompts.choose(open_ended=False)[Step.ANSWER].messages(EXACT))


def test_the_paper_has_one_prompt_for_all_requests():
    prompts = load_prompts("paper")
    assert not prompts.is_open_ended(OPEN)
    assert prompts.choose(open_ended=True) == prompts.exact


@pytest.mark.parametrize(
    ("turns", "parameters", "sets"),
    [
        (("user", "assistant", "user"), ChatParameters(), {"default", "local"}),  # earlier turns set the form
        (("user",), ChatParameters(tools=(Tool("look"),)), {"default", "local"}),
        (("user",), ChatParameters(format=Format()), {"default", "local"}),
        (
            ("system", "user"),
            ChatParameters(),
            {"local"},
        ),  # worked examples could contradict the client's instructions
        (("user",), ChatParameters(), set()),
    ],
)
def test_a_client_that_sets_the_form_of_the_reply_gets_no_other_form(turns, parameters, sets):
    query = Query.from_messages(tuple(Message(role, "What is 17 + 25?") for role in turns), parameters)
    assert {name for name in ("default", "local") if load_prompts(name).is_open_ended(query)} == sets


def test_the_prompts_of_the_local_recording_are_unchanged():
    """`runs/local-pair` was recorded with these prompts; with others, nothing fitted to it would hold."""
    with gzip.open(ROOT / "runs/local-pair/recording.jsonl.gz", "rt") as lines:
        recorded = json.loads(next(lines))["prompts"]
    assert {step.value: prompt.md5 for step, prompt in load_prompts("local").exact.items()} == recorded


def test_a_folder_can_have_prompts_for_open_ended_requests(tmp_path):
    (tmp_path / "open").mkdir()
    for step in Step:
        (tmp_path / f"{step}.toml").write_text('user = "Q: {query}"\n')
        (tmp_path / "open" / f"{step}.toml").write_text('user = "Task: {query}"\n')
    prompts = load_prompts(str(tmp_path))
    assert prompts.choose(open_ended=True)[Step.SOLVE].messages(OPEN)[-1].text.startswith("Task: Write")
    assert prompts.choose(open_ended=False)[Step.SOLVE].messages(EXACT)[-1].text == "Q: What is 17 + 25?"
