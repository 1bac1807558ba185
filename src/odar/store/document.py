"""A record as one JSON document.

With `content` everything is in it. Without, no text that a user or a model wrote is: texts become their lengths,
tokens their log-probabilities, and an error message that repeats a piece of either is withheld.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from odar.formats import dump_json
from odar.policy.energy import scaffold_mask
from odar.policy.fusion import Fusion
from odar.store.record import OK, Record, Unanswered, path_of
from odar.types import Answer, Call, Candidate, Decision, Image, Query

VERSION = 1
WITHHELD = "(withheld: it quotes the content)"
_QUOTE = 12
"""This many characters in a row of a query or an answer count as a quotation of it."""


def to_document(record: Record, *, content: bool) -> dict[str, Any]:
    """The record as plain data; unknown is None."""
    trace, candidates = record.trace, record.trace.candidates
    private = () if content else (record.query.text, *(candidate.text for candidate in candidates))
    document: dict[str, Any] = {
        "version": VERSION,
        "id": trace.id,
        "started_at": trace.started_at,
        "profile": trace.profile,
        "content": content,
        "key_id": record.key_id,
        "query": _query(record.query, content),
        "decision": None if trace.decision is None else _decision(trace.decision, content),
        "candidates": [_candidate(candidate, content) for candidate in candidates],
        # A number per candidate, the same for equal answers: what fusion saw, without the answers themselves.
        "groups": Fusion().groups(candidates) if len(candidates) > 1 else [0] * len(candidates),
        "calls": [_call(call, private) for call in trace.calls],
        "spend": msgspec.to_builtins(trace.spend),
        "extra": dict(record.extra),
        "status": OK,
        "error": None,
        "path": None,
        "answer": None,
        "verdict": None,
        "prompts": {},
        "degradations": [],
    }
    if isinstance(trace, Unanswered):
        error = None if trace.error is None else _said(trace.error, private)
        return document | {"status": trace.status, "error": error, "path": trace.path}
    assert isinstance(record.outcome, Answer)
    return document | {
        "path": path_of(trace.decision),
        "answer": _text("answer", record.outcome.answer, content) | _text("text", record.outcome.text, content),
        "verdict": msgspec.to_builtins(trace.verdict),
        "prompts": dict(trace.prompts),
        "degradations": [_said(reason, private) for reason in trace.degradations],
    }


def dumps(document: Mapping[str, Any]) -> str:
    """Strict JSON that any parser and any database takes: odd characters are escaped."""
    return dump_json(document, odd="backslashreplace").decode()


def loads(text: str) -> dict[str, Any]:
    """The document behind the text."""
    document: dict[str, Any] = json.loads(text)
    return document


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
    tree: dict[str, Any] = msgspec.to_builtins(decision)
    if not content:  # "keywords: integral, matrix" is made of words of the query
        tree["assignment"]["cue"] = decision.assignment.cue.partition(":")[0]
    return tree


def _candidate(candidate: Candidate, content: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"step": candidate.step.value, "model": candidate.model}
    out |= _text("text", candidate.text, content) | _text("answer", candidate.answer, content)
    out |= {"judgment": candidate.judgment, "finish": candidate.finish, "stated": candidate.stated}
    out["energy"] = None if candidate.energy is None else msgspec.to_builtins(candidate.energy)
    # By column: a third of the bytes of one object per token, and the texts are easily left out.
    tokens = candidate.tokens
    out["logprobs"] = [token.logprob for token in tokens]
    out["control"] = [index for index, token in enumerate(tokens) if token.control]
    # Format tokens (SPEC 5.4) can only be recognised by their texts, which may not be stored.
    mask = scaffold_mask([token.text for token in tokens])
    out["scaffold"] = [index for index, format_ in enumerate(mask) if format_ and not tokens[index].control]
    return out | {"tokens": [token.text for token in tokens]} if content else out


def _call(call: Call, private: Iterable[str]) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.to_builtins(call)
    return tree | {"error": None if call.error is None else _said(call.error, private)}


def read_decision(tree: Mapping[str, Any]) -> Decision:
    """The decision in a document."""
    return msgspec.convert(tree, Decision)
