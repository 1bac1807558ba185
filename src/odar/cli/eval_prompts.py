"""`odar eval prompts`: compare prompt sets on the same questions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import click

from odar.agents.prompts import load_prompts
from odar.cli.local import prepare_models
from odar.cli.options import FILE, json_option, settings_options
from odar.cli.runs import RunOptions, record_questions, run_options
from odar.cli.terminal import notice, print_columns, print_json
from odar.lab.recording.questions import load_questions
from odar.lab.recording.schema import RecordedItem
from odar.settings import Settings
from odar.types import Step


@click.command("prompts")
@click.argument("questions", type=FILE, metavar="FILE.jsonl")
@click.argument("prompt_sets", nargs=-1, required=True, metavar="SET...")
@run_options(concurrency=4, engine=False)
@json_option("Print the figures as JSON.")
@settings_options
def prompts_command(
    questions: str, prompt_sets: tuple[str, ...], run: RunOptions, as_json: bool, settings: Settings
) -> None:
    """Let the agents answer the questions of FILE.jsonl with each prompt SET, and show what each set is worth.

    A SET is the name of a shipped one or a folder of your own. Each gets one slow sample a question; you see
    accuracy, tokens, and how many answers were cut off or stated no result.
    The same command continues after Ctrl-C.

    \b
    odar eval prompts questions.jsonl default my-prompts/ --budget 2
    """
    for name in prompt_sets:
        load_prompts(name)  # reports an unknown set before any call is paid for
    loaded = load_questions(questions)
    prepare_models(settings, quiet=as_json)
    rows: list[dict[str, Any]] = []
    for name in prompt_sets:
        notice(f"prompts {name}")
        tried = replace(settings, prompts=name, routing=replace(settings.routing, samples=1))
        items = record_questions(run, tried, loaded, questions)
        rows += prompt_rows(name, items)
    if as_json:
        print_json(rows)
        return
    titles = {name: name.removeprefix("accuracy_").replace("_", " ") for name in FORMATS}
    columns = {titles[name]: [format(row[name], form) for row in rows] for name, form in FORMATS.items()}
    print_columns(columns, left=("step",), gap=2)


FORMATS = {
    "prompts": "", "step": "", "answers": "d", "accuracy": ".3f", "tokens": ".0f", "cut_off": ".2f",
    "unstated": ".2f", "accuracy_per_100_tokens": ".2f",
}  # fmt: skip
"""The figures of a prompt set (SPEC 3.7)."""


def prompt_rows(prompts: str, items: Iterable[RecordedItem]) -> list[dict[str, Any]]:
    """The figures of a prompt set, means or shares, with a row for each step that has answers."""
    attempts = [attempt for item in items for attempt in item.attempts]
    rows = []
    for step in Step:
        if own := [attempt for attempt in attempts if attempt.step is step]:
            accuracy = sum(attempt.score or 0.0 for attempt in own) / len(own)
            tokens = sum(attempt.usage.output or len(attempt.tokens) for attempt in own) / len(own)
            row = {
                "prompts": prompts,
                "step": step.value,
                "answers": len(own),
                "accuracy": accuracy,
                "tokens": tokens,
                "cut_off": sum(attempt.finish == "length" for attempt in own) / len(own),
                "unstated": sum(not attempt.stated for attempt in own) / len(own),
                "accuracy_per_100_tokens": 100 * accuracy / tokens if tokens else 0.0,
            }
            rows.append(row)
    return rows
