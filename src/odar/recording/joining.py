"""Answers of a fast and a slow model, imported from different files, joined by question into recorded items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

from odar.catalogue import Price
from odar.difficulty.base import Estimator
from odar.engine import Odar
from odar.errors import InputError, one_line
from odar.policy.equivalence import equivalent
from odar.recording.header import Header, digest_json, header_of
from odar.recording.importers import ImportedAnswer, KnownQuestion
from odar.recording.schema import Attempt, ItemKey, RecordedItem, Task, features_of
from odar.types import Query, Role, Step

Score = Callable[[Task, str, str], float]
"""Scores an answer from 0 to 1, given the task, the text and the final answer."""
UNKNOWN_DIFFICULTY = 0.5
"""The prior of a question whose text is unknown."""
_SAMPLING = ("temperature", "top_p", "max_tokens")


Joined = tuple[ImportedAnswer, ...]
"""The scored answers to one question, which all hold its text and its right answer: the fast one, then the slow."""


def join_answers(
    fast: Sequence[ImportedAnswer],
    slow: Sequence[Sequence[ImportedAnswer]],
    known: Mapping[str, KnownQuestion] | None = None,
    score: Score | None = None,
) -> list[Joined]:
    """Join the answers of a fast and a slow model by question: by its text, or by set and id where it is unknown.

    Args:
        fast: of each question the first answer counts.
        slow: one list per file; each answer to a question becomes a sample.
        known: texts and right answers, by id, for files that do not hold them.
        score: rates every answer; without it, the scores of the files count, or else equivalence.

    Raises:
        InputError: no question is in both, or an answer cannot be scored.
    """
    known = known or {}
    by_text = all(_question_text(each, known) for answers in (fast, *slow) for each in answers)
    names: dict[str, set[str]] = {}
    for answer in fast if by_text else ():
        names.setdefault(_normalized(_question_text(answer, known)), set()).add(answer.id)

    def key_of(answer: ImportedAnswer) -> str:
        text = _normalized(_question_text(answer, known)) if by_text else ""
        # Two questions may have the same text, and other options: then the id decides.
        return text if by_text and len(names.get(text, ())) < 2 else f"{answer.set}/{answer.id}"

    first: dict[str, ImportedAnswer] = {}
    for answer in fast:
        first.setdefault(key_of(answer), answer)
    found: dict[str, list[ImportedAnswer]] = {key: [] for key in first}
    for answers in slow:
        for answer in answers:
            if (key := key_of(answer)) in found:
                found[key].append(answer)
    joined = [_join((first[key], *others), known, score) for key, others in found.items() if others]
    if not joined:
        how = "text" if by_text else "id"
        examples = [repr(one_line(key_of(each[0]), 40)) for each in (fast, slow[0])]
        raise InputError(f"no question is in both files, by {how}: the first are {examples[0]} and {examples[1]}")
    return joined


def _question_text(answer: ImportedAnswer, known: Mapping[str, KnownQuestion]) -> str:
    return answer.query or (known[answer.id].query if answer.id in known else "")


def _normalized(text: str) -> str:
    return " ".join(text.split())


def _join(answers: Joined, known: Mapping[str, KnownQuestion], score: Score | None) -> Joined:
    query = _question_text(answers[0], known)
    gold = next((each.gold for each in answers if each.gold is not None), None)
    if gold is None and answers[0].id in known:
        gold = known[answers[0].id].gold
    return tuple(_score(replace(each, query=query, gold=gold), score) for each in answers)


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
    prices: Mapping[Role, Price | None],
    kinds: Mapping[str, tuple[str, str]] | None = None,
) -> list[RecordedItem]:
    """Make recorded items of joined questions.

    `name` is the set of questions whose file names none, `prices` are for answers whose cost is not in the file,
    `kinds` holds category and metric of the sets that are benchmarks.
    """
    items: list[RecordedItem] = []
    for fast, *slow in joined:
        name_of_set = fast.set or name
        category, metric = (kinds or {}).get(name_of_set, ("Imported", "score"))
        estimate = estimator.estimate(Query(fast.query)) if fast.query.strip() else None
        samples = (_attempt(each, Step.SOLVE, index, prices.get(Role.SLOW)) for index, each in enumerate(slow))
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
                attempts=(_attempt(fast, Step.ANSWER, 0, prices.get(Role.FAST)), *samples),
            )
        )
    return items


def _attempt(answer: ImportedAnswer, step: Step, index: int, price: Price | None) -> Attempt:
    usage, paid = answer.usage, answer.cost_usd
    if paid is None and price is not None:
        prompt_usd, output_usd = price.cost(replace(usage, output=0)), price.cost(replace(usage, input=0, cached=0))
    else:
        prompt_usd, output_usd = (None, None) if paid is None else (0.0, paid)
    recorded = {each.name: getattr(answer, each.name) for each in fields(Attempt)}
    own = {"step": step, "index": index, "request": list(Step).index(step) + index}
    own |= {"model": answer.model or step.role.value, "control": (False,) * len(answer.tokens)}
    return Attempt(**recorded | own | {"prompt_usd": prompt_usd, "output_usd": output_usd})


def imported_header(odar: Odar, items: Sequence[RecordedItem], files: Mapping[str, str]) -> Header:
    """Return the header of an imported recording, with the hash of each imported file."""
    models = {
        role.value: sorted({each.model for item in items for each in item.attempts if each.step.role is role})
        for role in Role
    }
    facts = {"imported": dict(files), "models": models}
    return replace(
        header_of(odar),
        made_by=digest_json(facts),
        facts=facts,
        samples=min(len(item.attempts) - 1 for item in items),  # what every item has
        models=models,
        together={name: False for names in models.values() for name in names},
        prompts={},
        sources=[
            {"step": step.value, "model": name, "prompt_md5": "", **dict.fromkeys(_SAMPLING)}
            for step in (Step.ANSWER, Step.SOLVE)
            for name in models[step.role.value]
        ],
        imported=True,
    )
