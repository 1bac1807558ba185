"""Answers of several models, imported from different files, joined by question into recorded items."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

from odar.calibration_file import Calibration
from odar.catalogue import ModelCard, Price
from odar.difficulty.base import Estimator
from odar.engine import Odar
from odar.errors import InputError, UnknownName, one_line
from odar.lab.recording.header import Header, digest_json, header_of, model_entry
from odar.lab.recording.importers import ImportedAnswer
from odar.lab.recording.schema import Attempt, Grader, ItemKey, RecordedItem, Task, features_of, sort_attempts
from odar.planning import REFERENCE_TOKENS, USUAL_TOKENS
from odar.policy.equivalence import equivalent
from odar.settings import Settings
from odar.types import FAST, SECOND, SLOW, Ask, Query, Usage

UNKNOWN_DIFFICULTY = 0.5
"""The prior of a question whose text is unknown."""

_UNCALIBRATED = {"policy": "cascade", "stages": [], "dial": "balanced", "tau1": 0.3, "tau2": 0.7}
"""Values of the settings that a calibration can set."""
Joined = Mapping[str, Sequence[ImportedAnswer]]
"""The scored answers to one question by agent, which all hold its text and its right answer."""


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
    # the models that the user named
    roles = {agent: name for agent, name in given.items() if name}
    for agent, name in roles.items():
        if name not in costs:
            raise InputError(f"--{agent} {name}: no such model in the files (they have: {', '.join(costs)})")
    if len(costs) < 2:
        raise InputError(f"answers of {', '.join(costs)} only; give those of at least two models")
    left = [name for name in costs if name not in roles.values()]
    is_open = FAST not in roles or SLOW not in roles
    unknown = next((name for name in left if costs[name] is None), None)
    if is_open and len(left) > 1 and unknown is not None:
        raise InputError(
            f"the cost of {unknown} is unknown, so its role is too: give --price {unknown}=IN,OUT, or name the "
            "models of --fast and --slow"
        )
    # slow and fast by cost
    left.sort(key=lambda name: costs[name] or 0.0)
    if SLOW not in roles:
        roles[SLOW] = left.pop()
    if FAST not in roles:
        roles[FAST] = left.pop(0)
    # the second by family and cost
    slow_cost = costs[roles[SLOW]]
    for name in left if SECOND not in roles else ():
        cost = costs[name]
        is_cheaper = cost is None or slow_cost is None or cost < slow_cost
        if is_cheaper and families[name] != families[roles[FAST]]:
            roles[SECOND] = name
            break
    # agents of their own for the rest
    models = {agent: roles[agent] for agent in (FAST, SECOND, SLOW) if agent in roles}
    for name in left:
        if name not in models.values():
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
    known = [each.cost_usd for each in answers if each.cost_usd is not None]
    if not known and price is not None:
        usual = Usage(REFERENCE_TOKENS, 0, USUAL_TOKENS)
        used = [replace(each.usage, input=each.usage.input or 0, cached=each.usage.cached or 0) for each in answers]
        costs = [price.cost(usage if usage.output is not None else usual) for usage in used]
        known = [cost for cost in costs if cost is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class Imported:
    """A recording made of imported answers, and what a reader should know about it."""

    header: Header
    items: list[RecordedItem]
    models: Mapping[str, str]
    """The model of each agent."""
    left_out: int
    """Questions of the fast model that are not in all files, or that alone have no label."""
    unpriced: tuple[str, ...]
    """Models of unknown price, some of whose answers have no cost either."""
    uncounted: tuple[str, ...]
    """Models of known price, some of whose answers have neither a cost nor token counts."""

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
        found += [
            f"the price of {model} is unknown; set it with --price {model}=IN,OUT (dollars per million tokens)"
            for model in self.unpriced
        ]
        found += [
            f"answers of {model} have no token counts, so their costs follow from the length of the texts; name "
            "their columns with --map input_tokens=COLUMN and --map output_tokens=COLUMN"
            for model in self.uncounted
        ]
        return found


def import_models(
    odar: Odar,
    models: Mapping[str, Sequence[ImportedAnswer]],
    prices: Mapping[str, Price],
    roles: Mapping[str, str | None],
    name: str,
    files: Mapping[str, str],
    *,
    known: Mapping[str, Task] | None = None,
    score: Grader | None = None,
    kinds: Mapping[str, tuple[str, str]] | None = None,
) -> Imported:
    """Join the answers of several models into a recording.

    Args:
        odar: gives the difficulty, the catalogue and the other settings; makes no call.
        models: the answers of each model.
        prices: of some models, in place of the catalogue's.
        roles: the model of some agents; the others follow from the costs.
        name: set of the questions whose file names none.
        files: hashes of the imported files, for the header.
        known: texts and right answers by id.
        score: rates every answer in place of the scores of the files.
        kinds: category and metric of the sets that are benchmarks.
    """
    if unknown := prices.keys() - models.keys():
        raise InputError(f"--price {unknown.pop()}: no such model in the files (they have: {', '.join(models)})")
    cards = {model: _card(odar.settings, model, prices.get(model)) for model in models}
    costs = {model: mean_cost(own, cards[model].price) for model, own in models.items()}
    families = {model: card.model_family for model, card in cards.items()}
    families |= {model: model for model, card in cards.items() if families[model] == card.provider}
    agents = assign_roles(costs, families, roles)
    joined = join_answers({agent: models[model] for agent, model in agents.items()}, known, score)
    by_agent = {
        agent: cards[model].price or _implied_price(models[model], costs[model]) for agent, model in agents.items()
    }
    items = to_items(joined, odar.estimator, name, by_agent, kinds)
    questions = {(each.set, each.id) for each in models[agents[FAST]]}
    costless = {each.agent for item in items for each in item.attempts if each.output_usd is None}
    unpriced = tuple(model for agent, model in agents.items() if agent in costless and by_agent[agent] is None)
    uncounted = tuple(model for agent, model in agents.items() if agent in costless and by_agent[agent] is not None)
    header = imported_header(odar, items, files, by_agent)
    return Imported(header, items, agents, len(questions) - len(joined), unpriced, uncounted)


def _implied_price(answers: Sequence[ImportedAnswer], cost: float | None) -> Price | None:
    """The price of generated tokens that explains a recorded cost, for the decisions of the cascade."""
    if cost is None:
        return None
    written = [each.usage.output or USUAL_TOKENS for each in answers]
    return Price(0.0, 0.0, 1_000_000 * cost * len(written) / sum(written))


def join_answers(
    answers: Mapping[str, Sequence[ImportedAnswer]],
    known: Mapping[str, Task] | None = None,
    score: Grader | None = None,
) -> list[Joined]:
    """Join the answers of several agents by question: by set and id if the files name them, else by its text.

    Ids are not trusted if more than half of the questions with equal ids have different texts. Answers without a
    score and without a right answer have the score None; if others have one, their questions are left out.

    Args:
        answers: by agent. Of the slow agent every answer to a question becomes a sample, of the others the first
            one counts. A question needs an answer of every agent.
        known: texts and right answers, by id, for files that do not hold them.
        score: rates every answer; without it, the scores of the files count, or else equivalence.

    Raises:
        InputError: no question is in all files.
    """
    known = known or {}
    answers = {agent: [_completed(each, known) for each in given] for agent, given in answers.items()}
    # what names a question: its id, or its text
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


def _completed(answer: ImportedAnswer, known: Mapping[str, Task]) -> ImportedAnswer:
    """The answer with text and right answer of its question, as far as the file does not hold them."""
    task = known.get(answer.id)
    if task is None:
        return answer
    gold = task.gold if answer.gold is None else answer.gold
    return replace(answer, query=answer.query or task.query.text, gold=gold)


def _ids_match(fast: Sequence[ImportedAnswer], others: Sequence[ImportedAnswer]) -> bool:
    """Whether answers with equal ids are mostly to the same question: texts may differ in their encoding."""
    texts = {(each.set, each.id): _normalized(each.query) for each in fast}
    pairs = [(texts[each.set, each.id], _normalized(each.query)) for each in others if (each.set, each.id) in texts]
    same = sum(one == other for one, other in pairs)
    return bool(pairs) and 2 * same >= len(pairs)


def _normalized(text: str) -> str:
    return " ".join(text.split())


def _scored(answers: Mapping[str, Sequence[ImportedAnswer]], score: Grader | None) -> Joined:
    """The answers to one question with their scores, the text of the fast one, and the first right answer."""
    query = answers[FAST][0].query
    gold = next((each.gold for own in answers.values() for each in own if each.gold is not None), None)
    score = score or _score_by_equivalence

    def scored(answer: ImportedAnswer) -> ImportedAnswer:
        known = answer.score
        if gold is not None and (known is None or score is not _score_by_equivalence):
            known = float(score(Task(answer.id, Query(query), gold), answer.text, answer.answer))
        return replace(answer, query=query, gold=gold, score=known)

    return {agent: [scored(each) for each in own] for agent, own in answers.items()}


def _score_by_equivalence(task: Task, text: str, answer: str) -> float:
    accepted = task.gold if isinstance(task.gold, list) else [task.gold]
    return float(any(equivalent(answer, str(each)) for each in accepted))


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
    usage = answer.usage
    paid = answer.cost_usd
    prompt_usd = None if paid is None else 0.0
    output_usd = paid
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
    """The header of imported answers: the engine's settings with the agents, models and prices of the files."""
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
    others = {agent: agents.pop(agent) for agent in models if agent not in (FAST, SECOND, SLOW)}
    settings = {**header.settings, "second": None, **agents, "agents": others, "models": entries, "calibration": ""}
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
    """The settings of an agent of these models, with the current sampling in place of the unknown one."""
    own = header.settings.get(agent) or header.settings[FAST]
    return {**own, "model": models[0], "alternatives": list(models[1:]), "fallbacks": []}


def _card(settings: Settings, name: str, price: Price | None) -> ModelCard:
    try:
        card = settings.card(name)
    except UnknownName:
        card = ModelCard(name, "imported", name)
    return card if price is None else replace(card, price=price, n=False)
