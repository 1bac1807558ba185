from __future__ import annotations

from dataclasses import replace

import pytest

from odar.calibration_file import Calibration
from odar.catalogue import ModelCard, Price
from odar.engine import Odar
from odar.errors import InputError
from odar.lab.recording.files import open_recording, write_recording
from odar.lab.recording.importers import ImportedAnswer
from odar.lab.recording.joining import assign_roles, import_models, imported_header, join_answers, to_items
from odar.lab.recording.schema import Task
from odar.lab.replay.policies import run_policy
from odar.lab.replay.table import ReplayTable
from odar.types import Query, Step, Usage
from support import panels


def said(name, query="", answer="4", **more) -> ImportedAnswer:
    return ImportedAnswer(
        **{"id": name, "query": query, "answer": answer, "text": answer, "usage": Usage(), **more}
    )


def listed(joined, *names):
    return {agent: [tuple(getattr(each, name) for name in names) for each in own] for agent, own in joined.items()}


def test_answers_are_joined_by_the_text_of_the_question():
    fast = [said("1", "2 + 2?", gold="4"), said("2", "3  +\n3?", gold="6"), said("3", "only here", gold="x")]
    slow = [said("x", "3 + 3?", "6"), said("y", "2 + 2?", "4"), said("z", "2 + 2?", "5")]
    first, second = join_answers({"fast": fast, "slow": slow})
    assert listed(first, "id", "score") == {"fast": [("1", 1.0)], "slow": [("y", 1.0), ("z", 0.0)]}
    assert listed(second, "id", "score") == {"fast": [("2", 0.0)], "slow": [("x", 1.0)]}


def test_a_question_needs_an_answer_of_every_agent():
    answers = {"fast": [said("1", "x", score=1), said("2", "y", score=1)], "second": [said("1", "x", score=0)]}
    (only,) = join_answers({**answers, "slow": [said("1", "x", score=1), said("2", "y", score=1)]})
    assert listed(only, "id", "score") == {"fast": [("1", 1)], "second": [("1", 0)], "slow": [("1", 1)]}


def test_questions_with_the_same_text_are_joined_by_id():
    fast = [said("1", "Which?", gold="a"), said("2", "Which?", gold="b")]
    slow = [said("2", "Which?", "b"), said("1", "Which?", "a")]
    joined = join_answers({"fast": fast, "slow": slow})
    assert [(own["fast"][0].id, own["slow"][0].answer) for own in joined] == [("1", "a"), ("2", "b")]


def test_answers_without_questions_are_joined_by_id():
    known = {"a": Task("a", Query("2 + 2?"), "4"), "b": Task("b", Query("3 + 3?"), ["6", "six"])}
    fast, slow = [said("a"), said("b", answer="six")], [said("b"), said("a", answer="5")]
    joined = join_answers({"fast": fast, "slow": slow}, known)
    assert [listed(answers, "query", "score") for answers in joined] == [
        {"fast": [("2 + 2?", 1.0)], "slow": [("2 + 2?", 0.0)]},
        {"fast": [("3 + 3?", 1.0)], "slow": [("3 + 3?", 0.0)]},
    ]
    (plain,) = join_answers({"fast": [said("a", score=0.25)], "slow": [said("a", score=1.0)]})
    assert listed(plain, "score") == {"fast": [(0.25,)], "slow": [(1.0,)]}


def test_answers_that_cannot_be_joined_or_scored_are_an_error():
    with pytest.raises(InputError, match=r"no question is in all files, by text: the first are 'x' and 'y'"):
        join_answers({"fast": [said("1", "x", score=1)], "slow": [said("1", "y", score=1)]})


def test_answers_without_labels_have_no_score_and_are_left_out_beside_others():
    (plain,) = join_answers({"fast": [said("1", "x")], "slow": [said("1", "x")]})
    assert listed(plain, "score") == {"fast": [(None,)], "slow": [(None,)]}
    fast = [said("1", "x"), said("2", "y", gold="4")]
    (labelled,) = join_answers({"fast": fast, "slow": [said("1", "x"), said("2", "y")]})
    assert listed(labelled, "id", "score") == {"fast": [("2", 1.0)], "slow": [("2", 1.0)]}


def test_ids_join_questions_whose_texts_have_other_encodings():
    fast = [said(str(i), f"Für {i}?", gold="4") for i in range(8)]
    slow = [said(str(i), f"Für {i}?" if i % 4 else f"F\u00c3\u00bcr {i}?") for i in range(8)]
    assert len(join_answers({"fast": fast, "slow": slow})) == 8
    shuffled = [said(str(7 - i), f"Für {i}?") for i in range(8)]  # the ids mean something else: texts decide
    joined = join_answers({"fast": fast, "slow": shuffled})
    assert [(own["fast"][0].id, own["slow"][0].id) for own in joined] == [(str(i), str(7 - i)) for i in range(8)]
    numbered = [said(str(i), f"Für {i + 1}?", has_id=False) for i in range(7)]  # a row is missing
    joined = join_answers({"fast": [replace(each, has_id=False) for each in fast], "slow": numbered})
    assert [own["slow"][0].id for own in joined] == [str(i) for i in range(7)]


@pytest.mark.parametrize("subjects", [2, 3])
def test_ids_that_begin_again_for_each_subject_lose_no_question(subjects):
    def answers(model):
        texts = [(str(i), f"{i} + {subject}?") for subject in range(subjects) for i in range(5)]
        return [said(name, text, gold="4", output_usd=float(len(model))) for name, text in texts]

    models = {name: answers(name) for name in ("mini", "large")}
    found = import_models(Odar(panels.settings()), models, {}, {}, "mine")
    assert (len(found.items), len({item.key for item in found.items}), found.left_out) == (5 * subjects,) * 2 + (0,)
    models = {(each.agent, each.model) for item in found.items for each in item.attempts}
    assert models == {("fast", "mini"), ("slow", "large")} == set(found.models.items())


def test_roles_follow_from_costs_and_families():
    costs = {"mini": 1.0, "nano": 0.5, "flash": 0.7, "large": 9.0}
    families = {"mini": "gpt", "nano": "gpt", "flash": "gemini", "large": "gpt"}
    assert assign_roles(costs, families, {}) == {
        "fast": "nano", "second": "flash", "slow": "large", "mini": "mini"
    }  # fmt: skip
    named = assign_roles({**costs, "large": None}, families, {"slow": "large", "second": "mini"})
    assert named == {"fast": "nano", "second": "mini", "slow": "large", "flash": "flash"}
    with pytest.raises(InputError, match=r"the cost of large is unknown.*--price large=IN,OUT"):
        assign_roles({**costs, "large": None}, families, {})
    with pytest.raises(InputError, match=r"--slow big: no such model"):
        assign_roles(costs, families, {"slow": "big"})
    with pytest.raises(InputError, match="at least two models"):
        assign_roles({"mini": 1.0}, families, {})


def test_a_grader_replaces_the_scores_of_the_files():
    answers = {"fast": [said("1", "x", score=1.0, gold="4")], "slow": [said("1", "x", score=1.0)]}
    (joined,) = join_answers(answers, None, lambda task, text, answer: 0.5)
    assert listed(joined, "score") == {"fast": [(0.5,)], "slow": [(0.5,)]}


def test_joined_answers_become_a_recording(tmp_path):
    fast = said("1", "What is 7 + 0 ?", gold="7", model="small", usage=Usage(1000, 0, 500), seconds=1.0)
    slow = said("1", "What is 7 + 0 ?", "7", model="large", output_usd=0.25, mean_logprob=-0.5)
    cards = {name: ModelCard(name, "imported", name, logprobs=name == "small") for name in ("small", "large")}
    unknown = said("2", "And 8?", gold="8", model="small")
    more = [slow, said("1", "What is 7 + 0 ?", model="large"), said("2", "And 8?", "8", model="large")]
    joined = join_answers({"fast": [fast, unknown], "slow": more})
    items = to_items(joined, panels.Spread(), "mine", {"fast": Price(1.0, 0.1, 4.0)})
    first, second = items[0], items[1]
    assert (first.key.set, first.difficulty, len(first.features)) == ("mine", 7 * 37 % 100 / 100, 24)
    assert [(each.agent, each.step, each.index) for each in first.attempts] == [
        ("fast", Step.ANSWER, 0), ("slow", Step.SOLVE, 0), ("slow", Step.SOLVE, 1),
    ]  # fmt: skip
    assert first.attempts[0].prompt_usd + first.attempts[0].output_usd == pytest.approx(0.003)
    assert first.attempts[1].output_usd == 0.25
    assert second.attempts[0].prompt_usd is None  # no usage, no cost
    priced = {"fast": replace(cards["small"], price=Price(1.0, 0.1, 4.0)), "slow": cards["large"]}
    header = imported_header(Odar(panels.settings()), items, [], priced)
    settings = header.to_settings()
    assert (header.imported, header.samples, settings.models_of("slow")) == (True, 1, ("large",))
    assert (settings.card("small").price, settings.card("large").price) == (Price(1.0, 0.1, 4.0), None)
    # only the slow answers have log-probabilities, whatever the catalogue says
    assert (settings.card("small").logprobs, settings.card("large").logprobs) == (False, True)
    path = tmp_path / "x.jsonl.gz"
    write_recording(path, header, items)
    assert list(open_recording(path).items()) == items
    table = ReplayTable.from_items(items, header)
    assert run_policy(table, "single-slow").score.tolist() == [1.0, 1.0]
    assert table.nominal  # the price of the slow model is unknown


def test_settings_that_were_fitted_to_other_models_are_not_imported(tmp_path):
    file = tmp_path / "calibration.json"
    fitted = {"policy": "slow", "routing.dial": "economy", "routing.stages": ["slow"]}
    file.write_text(Calibration(settings=fitted).to_json())
    joined = join_answers({"fast": [said("1", "x", score=1)], "slow": [said("1", "x", score=1)]})
    odar = Odar(panels.settings(calibration=str(file)))
    items = to_items(joined, panels.Spread(), "mine", {})
    cards = {agent: ModelCard(agent, "imported", agent) for agent in ("fast", "slow")}
    settings = imported_header(odar, items, [], cards).to_settings()
    assert odar.settings.policy == "slow"
    assert (settings.policy, settings.routing.dial, settings.routing.stages) == ("cascade", "balanced", ())
    kept = Odar(panels.settings(calibration=str(file), routing__dial="quality"))
    header = imported_header(kept, items, [], cards)
    assert header.to_settings().routing.dial == "quality"
