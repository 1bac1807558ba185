"""OpenAI chat completions, as spoken by OpenAI, vLLM, llama.cpp, Ollama, DeepSeek, Together and many more.

vLLM also tells how likely a given text is: the text is sent as an unfinished turn, and `prompt_logprobs` come back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from odar.conversation import Message
from odar.providers.base import Completion, OnDelta, Reply, Request, Sampling
from odar.providers.http import HttpProvider
from odar.providers.openai_wire import StreamedReply, chat_body, logprob_of, read_forwarded, read_reply, read_usage
from odar.providers.response import string
from odar.types import Token

_UNREADABLE = "\ufffd"
"""The text of a token that is a part of a character."""


class OpenAIProvider(HttpProvider):
    """Models behind a chat-completions API.

    >>> OpenAIProvider("local", "http://localhost:8080/v1").name
    'local'
    """

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request; with `on_delta` and n = 1, hand over the text as it comes.

        A server may return fewer completions than asked for; some ignore `n`.
        """
        on_delta = on_delta if request.n == 1 else None

        async def send(request: Request) -> Reply:
            body = chat_body(request, stream=on_delta is not None)
            return await self.post("/chat/completions", body, request, read_reply, StreamedReply, on_delta)

        return await self.refusals.ask(request, send)

    async def score(self, request: Request, text: str) -> Reply:
        """The text with its log-probabilities as the next turn; vLLM can do it, and few others."""
        body = score_body(request, text)
        interpret = partial(read_scores, text=text)
        return await self.post("/chat/completions", body, request, interpret, StreamedReply, None)

    async def forward(self, address: str, body: Mapping[str, Any], request: Request) -> Reply:
        """Send a body to an address of the server, such as /embeddings; the reply holds what came back."""
        return await self.post(address, dict(body), request, read_forwarded, StreamedReply, None)


def score_body(request: Request, text: str) -> dict[str, Any]:
    """A chat-completions request that writes next to nothing, and has the prompt scored.

    >>> body = score_body(Request("m", (Message("user", "2 + 2?"),)), "4")
    >>> body["messages"][-1], body["prompt_logprobs"], body["max_tokens"]
    ({'role': 'assistant', 'content': '4'}, 0, 1)
    """
    conversation = (*request.messages, Message("assistant", text.strip()))
    plain = dataclasses.replace(
        request, messages=conversation, sampling=Sampling(0.0, None, 1), n=1, logprobs=False
    )
    return chat_body(plain) | {
        "prompt_logprobs": 0,  # of the prompt's own tokens, and no alternatives
        "add_generation_prompt": False,
        "continue_final_message": True,
    }


def read_scores(payload: Mapping[str, Any], text: str) -> Reply:
    """The reply to `score_body`: the text's own tokens, which end the prompt.

    Raises:
        ValueError: the server sent no `prompt_logprobs`, or they do not end with the text.
    """
    entries = payload.get("prompt_logprobs")
    if not entries:
        raise ValueError("no prompt_logprobs: this server cannot score a given text")
    tokens = _ending(text.strip(), [_token(entry) for entry in entries])
    return Reply((Completion(text, tuple(tokens)),), read_usage(payload), string(payload.get("model")))


def _token(entry: Mapping[str, Any] | None) -> Token:
    """The prompt's own token: with no alternatives asked for, the only one; where there are more, the first."""
    if not entry:  # the very first token of a prompt has nothing before it
        return Token("", None)
    own = next(iter(entry.values()))
    return Token(own.get("decoded_token") or "", logprob_of(own["logprob"]))


def _ending(text: str, tokens: Sequence[Token]) -> list[Token]:
    """The last tokens, which make up the text.

    Only ASCII characters are compared: a token that holds a part of a character is not readable. The chat
    template's last characters may share a token with the text's first.

    >>> [token.text for token in _ending("is 4", [Token("\\n", -1.0), Token("is", -1.0), Token(" 4", -2.0)])]
    ['is', ' 4']
    """
    wanted, found, start = _ascii(text), "", len(tokens)
    while start and (len(found) < len(wanted) or not _ascii(tokens[start - 1].text or "-")):
        start -= 1
        found = _ascii(tokens[start].text) + found
    if not found.endswith(wanted) or start == len(tokens):
        raise ValueError("prompt_logprobs do not end with the text that was sent")
    own = [Token(token.text.replace(_UNREADABLE, ""), token.logprob) for token in tokens[start:]]
    shared = len(found) - len(wanted)
    return [Token(own[0].text[shared:], own[0].logprob), *own[1:]]


def _ascii(text: str) -> str:
    return text.encode("ascii", "ignore").decode()
