"""A record as one JSON document.

With `content` everything is in it. Without, no text that a user or a model wrote is: texts become their lengths,
tokens their log-probabilities, and an error message that repeats a piece of either is withheld.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from odar.formats import dump_json
from odar.policy.energy import scaffold_mask
from odar.policy.fusion import Fusion
from odar.store.record import OK, Record, path_of
from odar.types import (
    Answer,
    Assignment,
    Call,
    Candidate,
    Decision,
    Estimate,
    Image,
    Look,
    Path,
    Query,
    SessionUse,
    TargetUse,
)

VERSION = 1
WITHHELD = "(withheld: it quotes the content)"
_QUOTE = 12
"""This many characters in a row of a query or an answer count as a quotation of it."""


def to_document(record: Record, *, content: bool) -> dict[str, Any]:
    """The record as plain data; unknown is None."""
    whole = record.outcome
    base = whole.trace if isinstance(whole, Answer) else whole
    private = () if content else (record.query.text, *(c.text for c in base.candidates))
    decision = base.decision
    document: dict[str, Any] = {
        "version": VERSION,
        "id": base.id,
        "started_at": base.started_at,
        "profile": base.profile,
        "content": content,
        "key_id": record.key_id,
        "query": _query(record.query, content),
        "decision": None if decision is None else _decision(decision, content),
        "candidates": [_candidate(candidate, content) for candidate in base.candidates],
        "groups": _groups(base.candidates),
        "calls": [_call(call, private) for call in base.calls],
        "spend": _plain(base.spend) | {"usage": _plain(base.spend.usage)},
        "extra": dict(record.extra),
    }
    if isinstance(whole, Answer):
        trace = whole.trace
        return document | {
            "status": OK,
            "error": None,
            "path": path_of(trace.decision),
            "answer": _text("answer", whole.answer, content) | _text("text", whole.text, content),
            "verdict": _plain(trace.verdict),
            "prompts": dict(trace.prompts),
            "degradations": [_said(reason, private) for reason in trace.degradations],
        }
    return document | {
        "status": whole.status,
        "error": None if whole.error is None else _said(whole.error, private),
        "path": whole.path,
        "answer": None,
        "verdict": None,
        "prompts": {},
        "degradations": [],
    }


def dumps(document: Mapping[str, Any]) -> str:
    """Strict JSON that any parser and any database takes: odd characters are escaped."""
    return dump_json(document, odd="backslashreplace").decode()


def loads(text: str) -> dict[str, Any]:
    """The document behind the text."""
    document: dict[str, Any] = json.loads(text)
    return document


def _plain(thing: Any) -> dict[str, Any]:
    """A dataclass one level deep; `dataclasses.asdict` copies every number in it and takes ten times as long."""
    kind = type(thing)
    if kind not in _FIELDS:
        _FIELDS[kind] = kind.__slots__, attrgetter(*kind.__slots__)
    names, values = _FIELDS[kind]
    return dict(zip(names, values(thing), strict=True))


_FIELDS: dict[type, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {}
"""Of each dataclass in a record, the names of its fields, and what gets them."""


def _text(name: str, text: str, content: bool) -> dict[str, Any]:
    return {name: text, f"{name}_characters": len(text)} if content else {f"{name}_characters": len(text)}


def _said(message: str, private: Iterable[str]) -> str:
    """A message of a provider, unless it repeats what is private."""
    runs = {message[i : i + _QUOTE] for i in range(len(message) - _QUOTE + 1)}
    for text in private:
        quoted = any(run in text for run in runs)
        if quoted or (text.strip() and len(text) < _QUOTE and text.strip() in message):
            return WITHHELD
    return message


def _query(query: Query, content: bool) -> dict[str, Any]:
    return _text("text", query.text, content) | {"images": [_image(image, content) for image in query.images]}


def _image(image: Image, content: bool) -> dict[str, Any]:
    figures = {"media_type": image.media_type, "bytes": len(image.data)}
    return figures | {"data": base64.b64encode(image.data).decode(), "url": image.url} if content else figures


def _decision(decision: Decision, content: bool) -> dict[str, Any]:
    assignment = _plain(decision.assignment)
    if not content:  # "keywords: integral, matrix" is made of words of the query
        assignment["cue"] = decision.assignment.cue.partition(":")[0]
    parts = {"path": decision.path.value, "estimate": _plain(decision.estimate), "assignment": assignment}
    nested = {name: getattr(decision, name) for name in ("look", "target", "session")}
    return _plain(decision) | parts | {n: None if each is None else _plain(each) for n, each in nested.items()}


def _candidate(candidate: Candidate, content: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"step": candidate.step.value, "model": candidate.model}
    out |= _text("text", candidate.text, content) | _text("answer", candidate.answer, content)
    out |= {"judgment": candidate.judgment, "finish": candidate.finish, "stated": candidate.stated}
    out["energy"] = None if candidate.energy is None else _plain(candidate.energy)
    # By column: a third of the bytes of one object per token, and the texts are easily left out.
    tokens = candidate.tokens
    out["logprobs"] = [token.logprob for token in tokens]
    out["control"] = [index for index, token in enumerate(tokens) if token.control]
    # Format tokens (SPEC 5.4) can only be recognised by their texts, which may not be stored.
    mask = scaffold_mask([token.text for token in tokens])
    out["scaffold"] = [index for index, format_ in enumerate(mask) if format_ and not tokens[index].control]
    return out | {"tokens": [token.text for token in tokens]} if content else out


def _groups(candidates: Sequence[Candidate]) -> list[int]:
    """A number per candidate, the same for equal answers: what fusion saw, without the answers themselves."""
    return Fusion().groups(candidates) if len(candidates) > 1 else [0] * len(candidates)


def _call(call: Call, private: Iterable[str]) -> dict[str, Any]:
    error = None if call.error is None else _said(call.error, private)
    return _plain(call) | {"step": call.step.value, "usage": _plain(call.usage), "error": error}


_NESTED = {"estimate": Estimate, "assignment": Assignment, "look": Look, "target": TargetUse, "session": SessionUse}


def read_decision(tree: Mapping[str, Any]) -> Decision:
    """The decision in a document, with lists for tuples."""
    nested = {name: None if tree.get(name) is None else kind(**tree[name]) for name, kind in _NESTED.items()}
    return Decision(**{**tree, **nested, "path": Path(tree["path"])})
