"""Answers of several models, imported from different files, joined by question into a recording."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from odar.calibration_file import Calibration
from odar.call_prices import REFERENCE_TOKENS, USUAL_TOKENS
from odar.catalogue import ModelCard, Price
from odar.difficulty.base import Estimator
from odar.engine import Odar
from odar.errors import InputError, UnknownName, one_line
from odar.lab.benchmarks.base import BENCHMARKS
from odar.lab.recording.header import Header, digest_json, header_of, model_entry
from odar.lab.recording.importers import ImportedAnswer
from odar.lab.recording.questions import question_set
from odar.lab.recording.schema import Attempt, Grader, ItemKey, RecordedItem, Task, features_of, sort_attempts
from odar.settings import Settings
from odar.types import FAST, SECOND, SLOW, Ask, Query, Usage

UNKNOWN_DIFFICULTY = 0.5
"""The prior of a question whose text is unknown."""
_UNCALIBRATED = {"stages": [], "dial": "balanced", "tau1": 0.3, "tau2": 0.7}
"""Values of `routing` in place of those that a calibration has fitted to other models."""
Joined = Mapping[str, Sequence[ImportedAnswer]]
"""The scored answers to one question by agent, which all hold its text and its right answer."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A recording made of imported answers, and what a reader should know about it."""

    header: Header
    items: list[RecordedItem]
    left_out: int
    """Questions of the fast model that are not in all files, or that alone have no label."""

    @property
    def models(self) -> dict[str, str]:
        """The model of each agent."""
        return dict(self.header.facts["models"])

    @property
    def warnings(self) -> list[str]:
        """What is wrong with the answers, and the options that mend it."""
        found = []
        attempts = [each for item in self.items for each in item.attempts]
        if all(each.score == 0 for each in attempts):
            item = self.items[0]
            example = f"{one_line(item.attempts[0].answer, 30)!r} against {one_line(str(item.gold), 30)!r}"
            found.append(
                f"no answer of any model is right, such as {example}: are the right answers in another form? name "
                "their column with --map gold=COLUMN, or a grader with --score-by"
            )
        return found + [
            f"the price of {model} is unknown; set it with --price {model}=IN,OUT (dollars per million tokens)"
            if not self.header.settings["models"][model]["price"]
            else f"answers of {model} have no token counts, so costs follow from the length of the texts; name "
            "their columns with --map input_tokens=COLUMN and --map output_tokens=COLUMN"
            for model in sorted({each.model for each in attempts if each.output_usd is None})
        ]


def import_models(
    odar: Odar,
    models: Mapping[str, Sequence[ImportedAnswer]],
    prices: Mapping[str, Price],
    roles: Mapping[str, str | None],
    name: str,
    files: Iterable[Path] = (),
    *,
    known: Mapping[str, Task] | None = None,
    score: Grader | None = None,
) -> Imported:
    """Join the answers of several models into a recording.

    Args:
        odar: gives the difficulty, the catalogue and the other settings; makes no call.
        models: the answers of each model.
        prices: of some models, in place of the catalogue's.
        roles: the model of some agents; the others follow from the costs.
        name: set of the questions whose file names none.
        files: what was imported; the header holds their hashes.
        known: texts and right answers by id.
        score: rates every answer in place of the scores of the files.
    """
    if unknown := prices.keys() - models.keys():
        raise InputError(f"--price {unknown.pop()}: no such model in the files (they have: {', '.join(models)})")
    cards = {model: _card(odar.settings, model) for model in models}
    cards |= {model: replace(cards[model], price=price) for model, price in prices.items()}
    costs = {model: mean_cost(own, cards[model].price) for model, own in models.items()}
    families = {
        model: model if card.model_family == card.provider else card.model_family for model, card in cards.items()
    }
    agents = assign_roles(costs, families, roles)
    answers = {agent: [replace(each, model=model) for each in models[model]] for agent, model in agents.items()}
    joined = join_answers(answers, known, score)
    for model, card in cards.items():
        if price := card.price or _implied_price(models[model], costs[model]):
            cards[model] = replace(card, price=price, n=False)  # answers of a file have a prompt each
    of_agent = {agent: cards[model] for agent, model in agents.items()}
    items = to_items(joined, odar.estimator, name, {agent: card.price for agent, card in of_agent.items()})
    header = imported_header(odar, items, files, of_agent)
    left_out = len(set(map(_question_id, answers[FAST]))) - len(joined)
    return Imported(header, items, left_out)


# --- the agent of each model, by cost ----------------------------------------------------------------------------


def assign_roles(
    costs: Mapping[str, float | None], families: Mapping[str, str], given: Mapping[str, str | None]
) -> dict[str, str]:
    """The model of each agent: the cheapest is fast, the most expensive slow, a cheap one second.

    Second is the cheapest of another family than fast, if it costs less than slow. The other models are agents of
    their own, named after the model.

    Args:
        costs: dollars of an answer of each model, None if unknown.
        families: the family of each model.
        given: the model of some agents, which replaces the choice by cost.

    Raises:
        InputError: there are fewer than two models, a given one is unknown, or a role depends on an unknown cost.

    >>> assign_roles({"a": 1, "b": 9, "c": 2, "d": 1.5}, dict(a="x", b="y", c="y", d="x"), {})
    {'fast': 'a', 'second': 'c', 'slow': 'b', 'd': 'd'}
    """
    # check the given roles, and whether enough models and costs are known for the others
    roles = {agent: name for agent, name in given.items() if name}
    for agent, name in roles.items():
        if name not in costs:
            raise InputError(f"--{agent} {name}: no such model in the files (they have: {', '.join(costs)})")
    left = sorted((name for name in costs if name not in roles.values()), key=lambda name: costs[name] or 0.0)
    needed = {FAST, SLOW} - roles.keys()
    if len(costs) < 2 or len(left) < len(needed):
        raise InputError(f"answers of {', '.join(costs)} only; give those of at least two models")
    unknown = next((name for name in left if costs[name] is None), None)
    if needed and len(left) > 1 and unknown is not None:
        raise InputError(
            f"the cost of {unknown} is unknown, so its role is too: give --price {unknown}=IN,OUT, or name the "
            "models of --fast and --slow"
        )
    # assign the others by cost
    if SLOW in needed:
        roles[SLOW] = left.pop()
    if FAST in needed:
        roles[FAST] = left.pop(0)
    if SECOND not in roles:
        slow_cost = costs[roles[SLOW]]
        for name in left:
            cost = costs[name]
            is_cheaper = cost is None or slow_cost is None or cost < slow_cost
            if is_cheaper and families[name] != families[roles[FAST]]:
                roles[SECOND] = name
                left.remove(name)
                break
    models = {agent: roles[agent] for agent in (FAST, SECOND, SLOW) if agent in roles}
    for name in left:
        models[_agent_name(name, models)] = name
    return models


def _agent_name(model: str, taken: Container[str]) -> str:
    """A name for the agent of a model.

    >>> _agent_name("openai/GPT-4.1", []), _agent_name("4x", ["m-4x"])
    ('openai-gpt-4-1', 'm-4x-2')
    """
    name = re.sub(r"[^a-z0-9_-]+", "-", model.lower())[:24]
    name = name if name[:1].isalpha() else f"m-{name}"
    return next(each for each in (name, *(f"{name}-{i}" for i in range(2, 1000))) if each not in taken)


def mean_cost(answers: Sequence[ImportedAnswer], price: Price | None) -> float | None:
    """Mean dollars of an answer: as recorded, or by tokens and price, at the usual length if tokens are unknown."""
    costs = [each.output_usd for each in answers]
    if price is not None and all(cost is None for cost in costs):
        usual = Usage(REFERENCE_TOKENS, 0, USUAL_TOKENS)
        used = [replace(each.usage, input=each.usage.input or 0, cached=each.usage.cached or 0) for each in answers]
        costs = [price.cost(usage if usage.output is not None else usual) for usage in used]
    known = [cost for cost in costs if cost is not None]
    return sum(known) / len(known) if known else None


def _implied_price(answers: Sequence[ImportedAnswer], cost: float | None) -> Price | None:
    """The price of generated tokens that explains a recorded cost, for the decisions of the cascade."""
    if cost is None:
        return None
    written = [each.usage.output or USUAL_TOKENS for each in answers]
    return Price(0.0, 0.0, 1_000_000 * cost * len(written) / sum(written))


# --- answers → questions -----------------------------------------------------------------------------------------


def join_answers(
    answers: Mapping[str, Sequence[ImportedAnswer]],
    known: Mapping[str, Task] | None = None,
    score: Grader | None = None,
) -> list[Joined]:
    """Join the answers of several agents by question: by set and id if the files name them, else by its text.

    Ids are not trusted if one of them has several texts in the file of the fast agent, or if more than half of the
    questions with equal ids have different texts in different files. Answers without a score and without a right
    answer have the score None; if others have one, their questions are left out.

    Args:
        answers: by agent. Of the slow agent every answer to a question becomes a sample, of the others the first
            one counts. A question needs an answer of every agent.
        known: texts and right answers, by id, for files that do not hold them.
        score: rates every answer; without it, the scores of the files count, or else equivalence.

    Raises:
        InputError: no question is in all files.
    """
    known = known or {}
    answers = {agent: [_with_known_question(each, known) for each in given] for agent, given in answers.items()}
    # identify questions by their ids, or by their texts
    fast = answers[FAST]
    others = [each for agent, given in answers.items() if agent != FAST for each in given]
    has_text = all(each.query for each in (*fast, *others))
    by_id = not has_text or (all(each.has_id for each in (*fast, *others)) and _ids_match(fast, others))

    ids: dict[str, set[str]] = {}
    for answer in () if by_id else fast:
        ids.setdefault(_normalized(answer.query), set()).add(answer.id)

    def question_key(answer: ImportedAnswer) -> str:
        text = "" if by_id else _normalized(answer.query)
        # Two questions may have the same text, and other options: then the id decides.
        return f"{answer.set}/{answer.id}" if by_id or len(ids.get(text, ())) > 1 else text

    # the answers to each question of the fast agent, by agent
    questions: dict[str, dict[str, list[ImportedAnswer]]] = {question_key(answer): {} for answer in fast}
    for agent, given in answers.items():
        for answer in given:
            by_agent = questions.get(question_key(answer))
            if by_agent is not None and (agent == SLOW or agent not in by_agent):
                by_agent.setdefault(agent, []).append(answer)
    # the questions that all agents answered
    joined = [_scored(by_agent, score) for by_agent in questions.values() if by_agent.keys() == answers.keys()]
    if not joined:
        how = "id" if by_id else "text"
        examples = " and ".join(repr(one_line(question_key(given[0]), 40)) for given in answers.values())
        raise InputError(f"no question is in all files, by {how}: the first are {examples}")
    labelled = [
        by_agent for by_agent in joined if all(each.score is not None for each in chain(*by_agent.values()))
    ]
    return labelled or joined


def _with_known_question(answer: ImportedAnswer, known: Mapping[str, Task]) -> ImportedAnswer:
    """The answer with text and right answer of its question, as far as the file does not hold them."""
    task = known.get(answer.id)
    if task is None:
        return answer
    gold = task.gold if answer.gold is None else answer.gold
    return replace(answer, query=answer.query or task.query.text, gold=gold)


def _ids_match(fast: Sequence[ImportedAnswer], others: Sequence[ImportedAnswer]) -> bool:
    """Whether answers with equal ids are mostly to the same question: texts may differ in their encoding."""
    texts = {(each.set, each.id): _normalized(each.query) for each in fast}
    if len(texts) < len(set(map(_question_id, fast))):
        return False
    pairs = [(texts[each.set, each.id], _normalized(each.query)) for each in others if (each.set, each.id) in texts]
    same = sum(one == other for one, other in pairs)
    return bool(pairs) and 2 * same >= len(pairs)


def _question_id(answer: ImportedAnswer) -> tuple[str, str, str]:
    """The identity of a question within one file, whose ids may begin again for each subject."""
    return answer.set, answer.id, _normalized(answer.query)


def _normalized(text: str) -> str:
    return " ".join(text.split())


def _scored(answers: Mapping[str, Sequence[ImportedAnswer]], score: Grader | None) -> Joined:
    """The answers to one question with their scores, the text of the fast one, and the first right answer."""
    query = answers[FAST][0].query
    gold = next((each.gold for own in answers.values() for each in own if each.gold is not None), None)
    task = Task(answers[FAST][0].id, Query(query), gold)

    def scored(answer: ImportedAnswer) -> ImportedAnswer:
        found = answer.score
        if gold is not None and (score is not None or found is None):
            found = float((score or question_set("").score)(task, answer.text, answer.answer))
        return replace(answer, query=query, gold=gold, score=found)

    return {agent: [scored(each) for each in own] for agent, own in answers.items()}


# --- questions → recording ---------------------------------------------------------------------------------------


def to_items(
    joined: Sequence[Joined], estimator: Estimator, name: str, prices: Mapping[str, Price | None]
) -> list[RecordedItem]:
    """Make recorded items of joined questions.

    `name` is the set of questions whose file names none, `prices` are for answers whose cost is not in the file.
    If several questions have the same id, all are numbered instead.
    """
    has_ids = len({(own[FAST][0].set, own[FAST][0].id) for own in joined}) == len(joined)
    items: list[RecordedItem] = []
    for answers in joined:
        fast = answers[FAST][0]
        set_ = fast.set or name
        benchmark = BENCHMARKS[set_] if set_ in BENCHMARKS.names() else None
        estimate = estimator.estimate(Query(fast.query)) if fast.query.strip() else None
        attempts = [
            _attempt(each, agent, index, prices.get(agent))
            for agent, own in answers.items()
            for index, each in enumerate(own)
        ]
        items.append(
            RecordedItem(
                key=ItemKey(set_, fast.id if has_ids else str(len(items)), 0),
                category=benchmark.category if benchmark else "Imported",
                metric=benchmark.metric if benchmark else "score",
                fold=len(items) % 5,
                query=fast.query,
                gold=fast.gold,
                features=() if estimate is None else features_of(estimate),
                difficulty=UNKNOWN_DIFFICULTY if estimate is None else estimate.difficulty,
                expert="general",
                attempts=tuple(sort_attempts(replace(each, request=i) for i, each in enumerate(attempts))),
            )
        )
    return items


def _attempt(answer: ImportedAnswer, agent: str, index: int, price: Price | None) -> Attempt:
    values = {each.name: getattr(answer, each.name) for each in fields(Attempt)}
    values |= {"agent": agent, "step": Ask(agent).step, "index": index, "model": answer.model or agent}
    if answer.output_usd is not None:
        values["prompt_usd"] = 0.0
    elif price is not None:
        values["prompt_usd"] = price.cost(replace(answer.usage, output=0))
        values["output_usd"] = price.cost(replace(answer.usage, input=0, cached=0))
    return Attempt(**values)


def imported_header(
    odar: Odar, items: Sequence[RecordedItem], files: Iterable[Path], cards: Mapping[str, ModelCard]
) -> Header:
    """The header of imported answers: the engine's settings with the agents and models of the files."""
    header = header_of(odar)
    # a model whose answers have no log-probabilities is replayed as one that gives none
    attempts = [attempt for item in items for attempt in item.attempts]
    with_logprobs = {each.agent for each in attempts if each.tokens or each.mean_logprob or each.answer_logprob}
    cards = {agent: replace(card, logprobs=agent in with_logprobs) for agent, card in cards.items()}
    # the settings of the agents, with the current sampling in place of the unknown one
    agents: dict[str, Any] = {}
    for agent, card in cards.items():
        own = header.settings.get(agent) or header.settings[FAST]
        agents[agent] = {**own, "model": card.name, "alternatives": [], "fallbacks": []}
    further = {agent: agents.pop(agent) for agent in cards if agent not in (FAST, SECOND, SLOW)}
    fitted = {path for path, origin in odar.settings.origins.items() if origin.startswith("calibration")}
    routing = {name: value for name, value in _UNCALIBRATED.items() if ("routing", name) in fitted}
    settings = {
        **header.settings,
        "policy": "cascade" if ("policy",) in fitted else header.settings["policy"],
        "second": None,
        **agents,
        "agents": further,
        "models": {card.name: model_entry(card) for card in cards.values()},
        "routing": {**header.settings["routing"], **routing},
        "calibration": "",
    }
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    facts = {"imported": hashes, "models": {agent: card.name for agent, card in cards.items()}}
    return replace(
        header,
        made_by=digest_json(facts),
        facts=facts,
        samples=min(sum(each.agent == SLOW for each in item.attempts) for item in items),  # what every item has
        settings=settings,
        calibration=json.loads(Calibration().to_json()),
        imported=True,
    )


def _card(settings: Settings, name: str) -> ModelCard:
    try:
        return settings.card(name)
    except UnknownName:
        return ModelCard(name, "imported", name)
