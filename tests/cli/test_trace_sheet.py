"""The sheet printed by `--explain` and `odar traces show`."""

from __future__ import annotations

import re

from odar.cli.explain import print_document

NAMES = ("energy", "varentropy", "free_energy", "aligned")


def candidate(step, judgment, answer, energies):
    return {
        "agent": "fast" if step == "answer" else "slow",
        "step": step,
        "judgment": judgment,
        "final": answer,
        "energy": dict(zip(NAMES, energies, strict=True)),
    }


LINES = [
    candidate("answer", None, "8", (0.05661, 0.0051, 0.0571, -1.22)),
    candidate("solve", None, "The answer is a leg.", (0.0706, 0.22, 0.0926, 0.94)),
]


def shown(capsys, lines, facts=(), winner=0):
    print_document({"candidates": lines, "verdict": {"winner": winner}}, facts, verbose=True)
    return capsys.readouterr().out.splitlines()


def test_the_layout_of_facts_and_candidates(capsys):
    assert [line.rstrip() for line in shown(capsys, LINES, [("path", "hard (asked for\nby the caller)")])] == [
        "path  hard (asked for by the caller)",
        "",
        "  agent       answer                                  E       V       F       F̃",
        "* fast answer 8                                  0.0566   0.005  0.0571   -1.22",
        "  slow solve  The answer is a leg.               0.0706   0.220  0.0926   +0.94",
        "E energy per character · V varentropy · F = E + λV · F̃ aligned · * chosen",
    ]


def test_answers_are_shortened_and_numbers_are_not(capsys):
    hostile = "[bold]漢字[/bold] \x1b[31m" + "word " * 100
    line = candidate("verify", False, hostile, (123.45678, None, 1e-9, float("inf")))
    _, _, row, _ = shown(capsys, [line])[-4:]
    assert row.split()[-4:] == ["123.4568", "-", "0.0000", "+inf"]
    assert "[bold]漢字[/bold]" in row
    assert "…" in row
    assert "\x1b" not in row


def test_lines_fit_80_columns(capsys):
    facts = [("degraded", "x" * 300)]
    wide = candidate("verify", True, "y" * 300, (99999.9, 99999.9, 99999.9, 99999.9))
    assert max(map(len, shown(capsys, [*LINES, wide], facts))) <= 80


def test_without_candidates_there_is_no_table(capsys):
    assert shown(capsys, [], [("error", "no agent")]) == ["error  no agent"]


def test_explain_and_traces_show_print_the_same(odar, provider):
    asked = odar("ask", "--verbose", "--path", "hard", "--set", "store.content=true", "What is 2 + 2?")
    trace_id = re.search(r"^trace +(\w+)", asked.err, re.MULTILINE)[1]
    recorded = odar("traces", "show", trace_id, "--verbose")
    table = asked.err.partition("  agent")[2]
    assert table.count("slow solve") == 5
    assert recorded.out.partition("  agent")[2] == table
    facts = set(asked.err.splitlines()) & set(recorded.out.splitlines())
    names = {line.split("  ")[0] for line in facts}
    assert {
        "start",
        "fast+slow*5",
        "answer",
        "path",
        "models",
        "difficulty",
        "features",
        "expert",
        "calls",
        "cost",
    } <= names
