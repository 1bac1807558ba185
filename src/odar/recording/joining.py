"""Answers of several models, imported from different files, joined by question into recorded items."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

from odar.calibration_file import Calibration
from odar.catalogue import ModelCard, Price
from odar.difficulty.base import Estimator
from odar.engine import Odar
from odar.errors import InputError, UnknownName, one_line
from odar.policy.equivalence import equivalent
from odar.recording.header import Header, digest_json, header_of, model_entry
from odar.recording.importers import ImportedAnswer, KnownQuestion
from odar.recording.schema import Attempt, ItemKey, RecordedItem, Task, features_of, sort_attempts
from odar.settings import Settings
from odar.types import FAST, SLOW, Ask, Query

Score = Callable[[Task, str, str], float]
"""Scores an answer from 0 to 1, given the task, the text and the final answer."""
UNKNOWN_DIFFICULTY = 0.5
"""The prior of a question whose text is unknown."""

_UNCALIBRATED = {"policy": "cascade", "stages": [], "dial": "balanced", "tau1": 0.3, "tau2": 0.7}
"""Values of the settings that a calibration can set."""
Joined = Mapping[str, Sequence[ImportedAnswer]]
"""The scored answers to one question by agent, which all hold its text and its right answer."""


def join_answers(
    answers: Mapping[str, Sequence[Sequence[ImportedAnswer]]],
    known: Mapping[str, KnownQuestion] | None = None,
    score: Score | None = None,
) -> list[Joined]:
    """Join the answers of several agents by question: by its text, or by set and id where it is unknown.

    Args:
        answers: one list per file, by agent. Of the slow agent every answer to a question becomes a sample, of the
            others the first one counts. A question needs a fast and a slow answer.
        known: texts and right answers, by id, for files that do not hold them.
        score: rates every answer; without it, the scores of the files count, or else equivalence.

    Raises:
        InputError: no question is in all files, or an answer cannot be scored.
    """
    known = known or {}
    every = [answer for files in answers.values() for file in files for answer in file]
    by_text = all(_question_text(each, known) for each in every)
    fast = [answer for file in answers[FAST] for answer in file]
    names: dict[str, set[str]] = {}
    for answer in fast if by_text else ():
        names.setdefault(_normalized(_question_text(answer, known)), set()).add(answer.id)

    def key_of(answer: ImportedAnswer) -> str:
        text = _normalized(_question_text(answer, known)) if by_text else ""
        # Two questions may have the same text, and other options: then the id decides.
        return text if by_text and len(names.get(text, ())) < 2 else f"{answer.set}/{answer.id}"

    found: dict[str, dict[str, list[ImportedAnswer]]] = {key_of(answer): {} for answer in fast}
    for agent, files in answers.items():
        for answer in (answer for file in files for answer in file):
            if (own := found.get(key_of(answer))) is not None and (agent == SLOW or agent not in own):
                own.setdefault(agent, []).append(answer)
    joined = [_join(own, known, score) for own in found.values() if own.keys() == answers.keys()]
    if not joined:
        how = "text" if by_text else "id"
        examples = " and ".join(repr(one_line(key_of(files[0][0]), 40)) for files in answers.values())
        raise InputError(f"no question is in all files, by {how}: the first are {examples}")
    return joined


def _question_text(answer: ImportedAnswer, known: Mapping[str, KnownQuestion]) -> str:
    return answer.query or (known[answer.id].query if answer.id in known else "")


def _normalized(text: str) -> str:
    return " ".join(text.split())


def _join(
    answers: Mapping[str, Sequence[ImportedAnswer]], known: Mapping[str, KnownQuestion], score: Score | None
) -> Joined:
    first = answers[FAST][0]
    query = _question_text(first, known)
    golds = (each.gold for own in answers.values() for each in own)
    gold = next((gold for gold in golds if gold is not None), None)
    if gold is None and first.id in known:
        gold = known[first.id].gold
    return {
        agent: [_score(replace(each, query=query, gold=gold), score) for each in own]
        for agent, own in answers.items()
    }


def _score(answer: ImportedAnswer, score: Score | None) -> ImportedAnswer:
    if answer.score is not None and score is None:
        return answer
    if answer.gold is None:
        raise InputError(
            f"answer {answer.id!r} has no score, and no right answer is known: name a column with --map "
            "score=COLUMN or --map gold=COLUMN, or give --questions"
        )
    if score is not None:
        task = Task(answer.id, Query(answer.query), answer.gold)
        return replace(answer, score=float(score(task, answer.text, answer.answer)))
    accepted = answer.gold if isinstance(answer.gold, list) else [answer.gold]
    return replace(answer, score=float(any(equivalent(answer.answer, str(each)) for each in accepted)))


def to_items(
    joined: Sequence[Joined],
    estimator: Estimator,
    name: str,
    prices: Mapping[str, Price | None],
    kinds: Mapping[str, tuple[str, str]] | None = None,
) -> list[RecordedItem]:
    """Make recorded items of joined questions.

    `name` is the set of questions whose file names none, `prices` are for answers whose cost is not in the file,
    `kinds` holds category and metric of the sets that are benchmarks.
    """
    items: list[RecordedItem] = []
    for answers in joined:
        fast = answers[FAST][0]
        name_of_set = fast.set or name
        category, metric = (kinds or {}).get(name_of_set, ("Imported", "score"))
        estimate = estimator.estimate(Query(fast.query)) if fast.query.strip() else None
        numbered = [(agent, index, each) for agent, own in answers.items() for index, each in enumerate(own)]
        attempts = [
            _attempt(each, agent, index, number, prices.get(agent))
            for number, (agent, index, each) in enumerate(numbered)
        ]
        items.append(
            RecordedItem(
                key=ItemKey(name_of_set, fast.id, 0),
                category=category,
                metric=metric,
                fold=len(items) % 5,
                query=fast.query,
                gold=fast.gold,
                features=() if estimate is None else features_of(estimate),
                difficulty=UNKNOWN_DIFFICULTY if estimate is None else estimate.difficulty,
                expert="general",
                attempts=tuple(sort_attempts(attempts)),
            )
        )
    return items


def _attempt(answer: ImportedAnswer, agent: str, index: int, request: int, price: Price | None) -> Attempt:
    usage, paid = answer.usage, answer.cost_usd
    prompt_usd, output_usd = (None, None) if paid is None else (0.0, paid)
    if paid is None and price is not None:
        prompt_usd = price.cost(replace(usage, output=0))
        output_usd = price.cost(replace(usage, input=0, cached=0))
    recorded = {each.name: getattr(answer, each.name) for each in fields(Attempt)}
    own = {"agent": agent, "step": Ask(agent).step, "index": index, "request": request}
    own |= {"model": answer.model or agent, "control": (False,) * len(answer.tokens)}
    return Attempt(**recorded | own | {"prompt_usd": prompt_usd, "output_usd": output_usd})


def imported_header(
    odar: Odar,
    items: Sequence[RecordedItem],
    files: Mapping[str, str],
    prices: Mapping[str, Price | None] | None = None,
) -> Header:
    """Return the header of an imported recording, with the hash of each imported file."""
    models: dict[str, list[str]] = {}
    for attempt in (attempt for item in items for attempt in item.attempts):
        if attempt.model not in models.setdefault(attempt.agent, []):
            models[attempt.agent].append(attempt.model)
    facts = {"imported": dict(files), "models": models}
    header = header_of(odar)
    agents = {agent: _agent(header, agent, names) for agent, names in models.items()}
    cards = {
        name: _card(odar.settings, name, (prices or {}).get(agent))
        for agent, names in models.items()
        for name in names
    }
    entries = {name: model_entry(card) for name, card in cards.items()}
    settings = {**header.settings, "second": None, "agents": {}, **agents, "models": entries, "calibration": ""}
    # What a calibration has set was fitted to other models.
    fitted = {path[-1] for path, origin in odar.settings.origins.items() if origin.startswith("calibration")}
    defaults = {name: value for name, value in _UNCALIBRATED.items() if name in fitted}
    settings |= {"policy": defaults.pop("policy", settings["policy"])}
    settings |= {"routing": {**settings["routing"], **defaults}}
    return replace(
        header,
        made_by=digest_json(facts),
        facts=facts,
        samples=min(sum(each.agent == SLOW for each in item.attempts) for item in items),  # what every item has
        settings=settings,
        prompts={},
        calibration=json.loads(Calibration().to_json()),
        imported=True,
    )


def _agent(header: Header, agent: str, models: Sequence[str]) -> dict[str, object]:
    """Return the settings of an agent, whose sampling is unknown, with the models that answered."""
    own = header.settings.get(agent) or header.settings[FAST]
    return {**own, "model": models[0], "alternatives": list(models[1:]), "fallbacks": []}


def _card(settings: Settings, name: str, price: Price | None) -> ModelCard:
    """Return the catalogue entry of a model, with another price if one is given."""
    try:
        card = settings.card(name)
    except UnknownName:
        card = ModelCard(name, "imported", name)
    return card if price is None else replace(card, price=price, n=False)
