from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import UnknownName
from odar.lab.adversarial import ATTACKS, inject_complexity, mask_complexity
from odar.lab.benchmarks.base import BENCHMARKS
from odar.lab.recording.schema import Task
from odar.lab.replay.table import ReplayTable, load_table
from odar.lab.report.analyses import attacks
from odar.lab.report.findings import replay_recordings
from odar.types import Query
from support.panels import synthetic_panel

HARD = Task(
    "t1",
    Query("Determine all integers $x$ such that $x^2 = 9$. Hence evaluate $\\frac{x}{2}$."),
    "3",
)


def task(text: str, name: str = "t") -> Task:
    return Task(name, Query(text), "gold")


def test_injection_keeps_the_question_unchanged():
    rewritten = inject_complexity(HARD)
    assert HARD.query.text in rewritten.query.text
    assert len(rewritten.query.text) > 2 * len(HARD.query.text)
    assert (rewritten.id, rewritten.gold) == (HARD.id, HARD.gold)


def test_masking_replaces_formulas_and_difficult_words():
    text = mask_complexity(HARD).query.text
    assert text.endswith("Find all whole numbers x where x squared is 9. So find (x) over (2).")


def test_masking_keeps_code_quotations_and_options():
    text = mask_complexity(
        task('Determine `x`:\n```\nx = "prove"\n```\nSay "therefore"!\n\nA. compute\nB. derive')
    ).query.text
    assert '```\nx = "prove"\n```' in text
    assert '"therefore"' in text
    assert text.endswith("\nA. compute\nB. derive")
    assert "Find `x`" in text


def test_masking_keeps_amounts_of_money_and_nested_formulas():
    assert "pays $5 for x = 1 and $10" in mask_complexity(task("She pays $5 for x = 1 and $10 for y.")).query.text
    assert "$\\sum_{n=1}^{k} n$" in mask_complexity(task("Find $\\sum_{n=1}^{k} n$.")).query.text
    assert "$x^{2n}$" in mask_complexity(task("Find $x^{2n}$.")).query.text


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_rewrite_depends_only_on_the_id(attack):
    tasks = [task("What is 2 + 2?", str(number)) for number in range(30)]
    once, again = ([ATTACKS[attack](t).query.text for t in tasks] for _ in range(2))
    assert once == again
    assert len(set(once)) > 1  # not the same disguise for every task


numbers = re.compile(r"\d+")


@given(
    st.lists(
        st.sampled_from(["Compute", "$a = 7$", "41", "$\\frac{5}{6}$", "for all", "apples", "$y^9$", "integer"])
    )
)
def test_rewrites_keep_all_numbers(words):
    original = " ".join(words)
    for rewrite in ATTACKS.values():
        assert set(numbers.findall(original)) <= set(numbers.findall(rewrite(task(original)).query.text))


def test_an_attacked_benchmark_keeps_tasks_and_scores():
    plain, disguised = BENCHMARKS["starter"], BENCHMARKS["starter+injection"]
    assert (disguised.name, disguised.category, disguised.metric) == ("starter+injection", "Starter", "accuracy")
    assert (disguised.source, disguised.size) == (plain.source, plain.size)
    pairs = list(zip(plain.load(), disguised.load(), strict=True))
    assert all(a.id == b.id and a.query.text in b.query.text for a, b in pairs)
    assert disguised.score(pairs[0][1], "", "13") == plain.score(pairs[0][0], "", "13") == 1.0


def test_unknown_attacks_and_benchmarks_are_named():
    with pytest.raises(UnknownName, match="attack 'flattery'"):
        BENCHMARKS["starter+flattery"]
    with pytest.raises(UnknownName, match="benchmark 'gsm9k'; did you mean 'gsm8k'"):
        BENCHMARKS["gsm9k+masking"]


def under_attack(tmp_path, benchmarks):
    table = load_table(synthetic_panel(tmp_path, 40, benchmarks=benchmarks))
    items = [
        replace(item, key=item.key._replace(id=str(i // len(benchmarks)))) for i, item in enumerate(table.items)
    ]
    paper = ReplayTable(items, replace(table.settings, policy="paper"), table.prompts, header=table.header)
    (findings,) = replay_recordings({"panel": paper})
    (exhibit,) = attacks(findings)
    return findings, exhibit.records()


def test_without_recorded_answers_an_attack_changes_only_routing(tmp_path):
    _, (row, paper, masked, _) = under_attack(tmp_path, (("alpha", "Mathematics"),))
    assert (row["benchmark, attack"], masked["benchmark, attack"]) == ("alpha, injection", "alpha, masking")
    assert paper["benchmark, attack"] == "alpha, injection, paper's policy"
    assert (row["items"], row["answers"]) == (40, "routing only")
    assert row["d attacked"] > row["d"] + 0.2  # it looks harder
    assert row["attacked calls"] > row["calls"] and row["same path"] < 1
    assert row["change"] == pytest.approx(row["attacked"] - row["accuracy"])


def test_recorded_answers_to_rewritten_questions_are_compared_in_pairs(tmp_path):
    findings, (rerouted, _, row, _) = under_attack(
        tmp_path, (("gsm8k", "Mathematics"), ("gsm8k+masking", "Mathematics"))
    )
    assert (row["items"], row["answers"]) == (20, "recorded")
    assert row["accuracy"] == pytest.approx(findings.odar.score.mean())
    assert (rerouted["benchmark, attack"], rerouted["answers"]) == ("gsm8k, injection", "routing only")
