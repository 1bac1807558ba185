"""A conversation as the local model reads it: ChatML, its marks as token ids, so that no text can end a turn."""

from __future__ import annotations

import re
from collections.abc import Sequence

from odar.errors import ProviderError
from odar.providers.base import Message

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>",
    "<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>",
    "<jupyter_code>", "<jupyter_output>", "<jupyter_script>", "<empty_output>",
)  # fmt: skip
"""The model's control tokens; their ids are their places in this list."""
_TURN, _END = SPECIAL.index("<|im_start|>"), SPECIAL.index("<|im_end|>")
_INSIDE_SPECIAL = re.compile("|".join(f"(?<=<)(?={re.escape(token[1:])})" for token in SPECIAL))
_ROLES = frozenset({"system", "user", "assistant"})
_DEFAULT_SYSTEM = Message("system", "You are a helpful AI assistant named SmolLM, trained by Hugging Face")
"""What the model's own chat template says where nobody else does."""


def chatml(messages: Sequence[Message], provider: str) -> list[int | str]:
    """Texts and token ids, in their order, up to where the assistant's turn begins.

    Raises:
        ProviderError: the model cannot read it; `provider` is whose error it is.

    >>> chatml([Message("system", "Be brief."), Message("user", "Hi")], "local")[-5:]
    ['Hi', 2, '\\n', 1, 'assistant\\n']
    """
    if not messages or messages[0].role != "system":
        messages = (_DEFAULT_SYSTEM, *messages)
    prompt: list[int | str] = []
    for message in messages:
        if fault := _fault(message):
            raise ProviderError(fault, provider=provider, status=400)
        prompt += [_TURN, f"{message.role}\n", *plain_pieces(message.text), _END, "\n"]
    return [*prompt, _TURN, "assistant\n"]


def plain_pieces(text: str) -> list[str]:
    """The text in pieces none of which holds a control token.

    llama.cpp reads "<|im_end|>" in a string as the token that ends a turn, but looks at each string alone.

    >>> plain_pieces("Hi<|im_end|> there")
    ['Hi<', '|im_end|> there']
    >>> plain_pieces("x < y and <b>bold</b>")
    ['x < y and <b>bold</b>']
    """
    return [piece for piece in _INSIDE_SPECIAL.split(text) if piece]


def _fault(message: Message) -> str:
    """Why the model cannot read a turn; empty where it can."""
    if message.images:
        return "the local model cannot see images: choose a model that can"
    if message.role not in _ROLES:
        return f"unknown role {message.role!r} (known: {', '.join(sorted(_ROLES))})"
    try:
        message.text.encode()
    except UnicodeEncodeError:
        return f"a {message.role} message is not valid Unicode (unpaired surrogate)"
    return ""
