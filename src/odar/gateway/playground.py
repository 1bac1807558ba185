"""POST /dashboard/api/ask: a question, answered with the whole trace, whatever the store keeps of it."""

from __future__ import annotations

from typing import Any

from odar.gateway.chat import read_chat
from odar.gateway.chat_reply import ChatStream
from odar.gateway.chat_request import ChatRequest
from odar.gateway.endpoint import WireProtocol
from odar.gateway.errors import openai_body
from odar.gateway.fields import Fields
from odar.store.document import to_document
from odar.store.record import Record
from odar.types import Answer


def read_question(body: Any) -> ChatRequest:
    """A question with a path and a limit; a chat of one turn for everything that follows."""
    fields = Fields(body)
    question = fields.needed("question", fields.text("question"))
    if not question.strip():
        raise fields.bad("question", "is empty")
    model = fields.text("model") or "odar"
    limits = {"path": fields.text("path"), "max_cost": fields.number("max_cost")}
    for name in fields.rest():
        raise fields.bad(name, "is unknown; known are question, model, path, max_cost")
    return read_chat({"model": model, "messages": [{"role": "user", "content": question}], "odar": limits})


def write_document(answer: Answer, ask: ChatRequest) -> dict[str, Any]:
    """The trace as the store would keep it with its texts: the page shows it as it shows a stored one."""
    return {"id": answer.trace.id, "document": to_document(Record(ask.query, answer), content=True)}


PLAYGROUND = WireProtocol("playground", read_question, write_document, ChatStream, openai_body)
