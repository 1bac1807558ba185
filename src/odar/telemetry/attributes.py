"""Attributes of spans by OpenTelemetry's GenAI conventions; others are called `odar.*`.

https://github.com/open-telemetry/semantic-conventions-genai (status: development), read in November 2026. Texts are
only in `input_messages` and `output_messages`. Unknown values are left out, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from odar.conversation import Message, ToolCall
from odar.errors import OdarError, ProviderError
from odar.formats import load_json
from odar.providers.base import Completion, Reply, Request
from odar.settings import ProviderSettings
from odar.types import Answer, Candidate, Decision, Estimate, Step, Usage, Verdict

Attributes = dict[str, Any]
WORKFLOW = "odar"
_WELL_KNOWN = {
    "api.anthropic.com": "anthropic",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.moonshot.ai": "moonshot_ai",
    "api.openai.com": "openai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
}
"""Hosts whose provider the conventions have a name for; any other goes by the name it has in the settings."""


def of_server(name: str, settings: ProviderSettings | None) -> Attributes:
    """Name and address of a provider.

    >>> of_server("ollama", ProviderSettings(kind="openai", base_url="http://127.0.0.1:11434/v1"))
    {'gen_ai.provider.name': 'ollama', 'server.address': '127.0.0.1', 'server.port': 11434}
    """
    if settings is None or not settings.base_url:
        return {"gen_ai.provider.name": name}
    try:
        url = urlsplit(settings.base_url)
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    except ValueError:  # the provider will say what is wrong with it
        return {"gen_ai.provider.name": name}
    known = _WELL_KNOWN.get(host, "anthropic" if settings.kind == "anthropic" else name)
    return {"gen_ai.provider.name": known, "server.address": host, "server.port": port}


def of_request(request: Request, *, stream: bool) -> Attributes:
    """The request to a model."""
    sampling = request.sampling
    return _known(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": request.model,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.seed": sampling.seed,
            "gen_ai.request.choice.count": request.n if request.n != 1 else None,
            "gen_ai.request.stream": stream or None,
            "gen_ai.output.type": "json" if request.options.format else None,
        }
    )


def of_reply(reply: Reply) -> Attributes:
    """The reply and its usage."""
    return _usage(reply.usage) | _known(
        {
            "gen_ai.response.model": reply.model or None,
            "gen_ai.response.finish_reasons": [completion.finish for completion in reply.completions] or None,
            "odar.retries": reply.retries or None,
        }
    )


def of_agent(step: Step, model: str) -> Attributes:
    """One of the two agents at work."""
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": step.role.value,
        "gen_ai.request.model": model,
        "odar.step": step.value,
    }


def of_estimate(estimate: Estimate) -> Attributes:
    """The estimated difficulty."""
    return {"odar.prior": estimate.difficulty, "odar.estimator": estimate.estimator}


def of_decision(decision: Decision) -> Attributes:
    """The path. The cue of its expert is left out: it contains words of the question."""
    return _known(
        {
            "odar.path": decision.path.value,
            "odar.difficulty": decision.difficulty,
            "odar.prior": decision.estimate.difficulty,
            "odar.posterior": decision.posterior,
            "odar.reason": decision.reason,
            "odar.expert": decision.assignment.expert,
            "odar.forced": decision.forced,
        }
    )


def of_fusion(candidates: Sequence[Candidate], verdict: Verdict) -> Attributes:
    """The winner, the scorer, and free energies F and F̃ if every candidate has them."""
    energies = [candidate.energy for candidate in candidates]
    found: Attributes = {
        "odar.candidates": len(candidates),
        "odar.winner": verdict.winner,
        "odar.scorer": verdict.scorer,
        "odar.steps": [candidate.step.value for candidate in candidates],
    }
    measured = [energy for energy in energies if energy is not None]
    if len(measured) == len(energies):
        found["odar.free_energies"] = [energy.free_energy for energy in measured]
        aligned = [energy.aligned for energy in measured]
        if None not in aligned:
            found["odar.aligned_free_energies"] = aligned
    if verdict.weights:
        found["odar.weights"] = list(verdict.weights)
    return found


def of_answer(answer: Answer) -> Attributes:
    """The answer and its trace."""
    trace = answer.trace
    return of_decision(trace.decision) | _known(
        {
            "odar.trace_id": trace.id,
            "odar.profile": trace.profile,
            "odar.scorer": trace.verdict.scorer,
            "odar.calls": trace.spend.calls,
            "odar.cost_usd": trace.spend.cost_usd,
            "odar.degraded": answer.degraded,
        }
    )


def of_error(error: BaseException) -> Attributes:
    """The kind of failure, without its message, which may quote a user.

    >>> of_error(ProviderError("too many requests", status=429))
    {'error.type': '429'}
    >>> of_error(ValueError("secret"))
    {'error.type': 'ValueError'}
    """
    status = error.status if isinstance(error, ProviderError) else None
    kind = type(error)
    name = kind.__name__ if isinstance(error, OdarError) or kind.__module__ == "builtins" else kind.__qualname__
    return {"error.type": str(status) if status is not None else name}


def of_scope(scope: Mapping[str, Any]) -> Attributes:
    """An HTTP request that came in."""
    return {
        "http.request.method": scope.get("method", "POST"),
        "http.route": scope.get("path", ""),
        "url.path": scope.get("path", ""),
        "url.scheme": scope.get("scheme", "http"),
    }


def _usage(usage: Usage) -> Attributes:
    return _known(
        {
            "gen_ai.usage.input_tokens": usage.input,
            "gen_ai.usage.cache_read.input_tokens": usage.cached,
            "gen_ai.usage.cache_creation.input_tokens": usage.written or None,
            "gen_ai.usage.output_tokens": usage.output,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
        }
    )


def _known(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


def input_messages(messages: Iterable[Message]) -> str:
    """A conversation as JSON, without the data of images.

    >>> input_messages([Message("user", "Hi")])
    '[{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]'
    """
    return _dump([{"role": message.role, "parts": _parts(message)} for message in messages])


def output_messages(completions: Iterable[Completion]) -> str:
    """What a model wrote, one message a sample."""
    return _dump(
        [
            {
                "role": "assistant",
                "parts": [*_text(completion.text), *map(_call, completion.tool_calls)],
                "finish_reason": completion.finish,
            }
            for completion in completions
        ]
    )


def _parts(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}]
    pictures = [{"type": "blob", "modality": "image", "mime_type": image.media_type} for image in message.images]
    return [*_text(message.text), *pictures, *map(_call, message.tool_calls)]


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": text}] if text else []


def _call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = load_json(call.arguments)
    except ValueError:
        arguments = call.arguments  # a model may write broken JSON
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
