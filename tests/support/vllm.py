"""A server that scores prompts as vLLM does, word by word or byte by byte."""

from __future__ import annotations

from typing import Any

from support.fault_server import Behaviour, Exchange
from support.payloads import chat_payload


def entry(text: str, logprob: float, number: int = 7) -> dict[str, Any]:
    """One prompt token, keyed by its id."""
    return {str(number): {"logprob": logprob, "rank": 1, "decoded_token": text}}


def prompt_payload(template: str, text: str, width: int) -> dict[str, Any]:
    """A reply whose prompt is a template and a text, cut every `width` bytes; half a character decodes to U+FFFD."""
    raw = text.encode()
    pieces = [raw[i : i + width].decode(errors="replace") for i in range(0, len(raw), width)]
    entries = [None, *(entry(letter, -9.0) for letter in template), *(entry(piece, -0.5) for piece in pieces)]
    return {**chat_payload("."), "prompt_logprobs": entries}


def scorer(likely: str = "", *, likely_logprob: float = -0.1, other: float = -2.0) -> Behaviour:
    """Scores word by word: texts that hold `likely` are likely, others are not. Refuses what vLLM refuses."""

    async def behave(exchange: Exchange) -> None:
        body = exchange.json
        if body.get("continue_final_message") and body.get("add_generation_prompt", True):
            await exchange.send_json({"error": {"message": "cannot set both"}}, 400)
            return
        if body.get("prompt_logprobs") is None:
            await exchange.send_json(chat_payload("no scores were asked for"))
            return
        text = body["messages"][-1]["content"]
        logprob = likely_logprob if likely and likely in text else other
        words = text.split(" ")
        pieces = [word + " " for word in words[:-1]] + [words[-1]]
        entries = [None, *(entry("<t>", -9.0) for _ in range(4)), *(entry(piece, logprob) for piece in pieces)]
        usage = {"prompt_tokens": len(entries), "completion_tokens": 1}
        await exchange.send_json({**chat_payload(".", usage=usage), "prompt_logprobs": entries})

    return behave
