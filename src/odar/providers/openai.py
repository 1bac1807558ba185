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
from odar.types import Token

_UNREADABLE = "\ufffd"
"""The text of a token that is a part of a character."""
_MOST_UNREAD = 8
"""Characters that such a token may cover."""


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
    model = payload.get("model")
    usage = read_usage(payload.get("usage") or {}, reasoned=False, tier=payload.get("service_tier"))
    return Reply((Completion(text, tuple(tokens)),), usage, model if isinstance(model, str) else "")


def _token(entry: Mapping[str, Any] | None) -> Token:
    """The prompt's own token: with no alternatives asked for, the only one; where there are more, the first."""
    if not entry:  # the very first token of a prompt has nothing before it
        return Token("", None)
    own = next(iter(entry.values()))
    return Token(own.get("decoded_token") or "", logprob_of(own["logprob"]))


def _ending(text: str, tokens: Sequence[Token]) -> list[Token]:
    """The last tokens that make up the text, each with its share of it.

    A token that holds a part of a character cannot be read as a whole: it covers as many characters as its
    neighbours leave it. Every share that is still possible is followed, from the end of the text to its beginning.

    >>> [token.text for token in _ending("is 4", [Token("\\n", -1.0), Token("is", -1.0), Token(" 4", -2.0)])]
    ['is', ' 4']
    """
    starts: list[dict[int, int]] = []
    """For each token, the last one first: where it may begin in the text, and where it then ends."""
    ends = {len(text)}
    for token in reversed(tokens):
        starts.append({end - size: end for end in ends for size in _sizes(token.text, text[:end])})
        ends = set(starts[-1])
        if 0 in ends or not ends:
            break
    if 0 not in ends:
        raise ValueError("prompt_logprobs do not end with the text that was sent")
    own, at = tokens[len(tokens) - len(starts) :], 0
    found = []
    for token, start in zip(own, reversed(starts), strict=True):
        found.append(Token(text[at : start[at]], token.logprob))
        at = start[at]
    return found


def _sizes(token: str, left: str) -> list[int]:
    """How many characters at the end of `left` a token can cover."""
    if _UNREADABLE not in token:
        if left.endswith(token):
            return [len(token)]
        # The chat template's last characters may share a token with the text's first.
        return [len(left)] if token.endswith(left) else []
    head, tail = token.split(_UNREADABLE)[0], token.split(_UNREADABLE)[-1]
    known = len(head) + len(tail)
    return [
        size
        for size in range(known, min(len(left), known + _MOST_UNREAD) + 1)
        for share in [left[len(left) - size :]]
        if share.startswith(head) and share.endswith(tail) and all(c in token for c in share if c.isascii())
    ]
