"""An answer as plain data: what `odar ask --json` prints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from odar.policy.fusion import Fusion
from odar.types import Answer, Call, Candidate, Look


def summary(answer: Answer) -> dict[str, Any]:
    """The answer and its trace as one JSON-ready object; unknown is null."""
    trace = answer.trace
    return {
        "answer": answer.answer,
        "text": answer.text,
        "path": trace.decision.path.value,
        "difficulty": trace.decision.difficulty,
        "prior": trace.decision.estimate.difficulty,
        "posterior": trace.decision.posterior,
        "target": None if trace.decision.target is None else dataclasses.asdict(trace.decision.target),
        "session": None if trace.decision.session is None else dataclasses.asdict(trace.decision.session),
        "certificate": trace.decision.certificate or None,
        "look": None if trace.decision.look is None else _look(trace.decision.look),
        "estimator": trace.decision.estimate.estimator,
        "features": {
            name: {"value": value, "share": share} for name, value, share in trace.decision.estimate.contributions
        },
        "reason": trace.decision.reason,
        "expert": trace.decision.assignment.expert,
        "scorer": trace.verdict.scorer,
        "scorer_reason": trace.verdict.reason,
        "degraded": answer.degraded,
        "degradations": list(trace.degradations),
        "calls": trace.spend.calls,
        "cost_usd": trace.spend.cost_usd,
        "latency_s": trace.spend.seconds,
        "usage": dataclasses.asdict(trace.spend.usage),
        "candidates": [
            _candidate(candidate, chosen=index == trace.verdict.winner)
            | {"group": group, "weight": _at(trace.verdict.weights, index)}
            | {"group_energy": _at(trace.verdict.energies, index)}
            for index, (candidate, group) in enumerate(
                zip(trace.candidates, Fusion().groups(trace.candidates), strict=True)
            )
        ],
        "ledger": [_call(call) for call in trace.calls],
        "prompts": dict(trace.prompts),
        "profile": trace.profile,
        "started_at": trace.started_at,
        "trace_id": trace.id,
    }


def _look(look: Look) -> dict[str, Any]:
    return {
        "kind": look.kind,
        "stated": look.stated,
        "finished": look.finished,
        "quantiles": look.quantiles,
        "signals": {name: {"value": value, "rank": rank} for name, value, rank in look.signals},
        "terms": {name: {"value": value, "share": share} for name, value, share in look.terms},
    }


def _candidate(candidate: Candidate, *, chosen: bool) -> dict[str, Any]:
    energy = candidate.energy
    return {
        "agent": candidate.role.value,
        "step": candidate.step.value,
        "model": candidate.model,
        "answer": candidate.answer,
        "text": candidate.text,
        "judgment": candidate.judgment,
        "finish": candidate.finish,
        "tokens": len(candidate.tokens) or None,
        "energy": energy.energy if energy else None,
        "varentropy": energy.varentropy if energy else None,
        "free_energy": energy.free_energy if energy else None,
        "aligned": energy.aligned if energy else None,
        "chosen": chosen,
    }


def _call(call: Call) -> dict[str, Any]:
    return {**dataclasses.asdict(call), "step": call.step.value}


def _at(values: Sequence[float], index: int) -> float | None:
    return values[index] if index < len(values) and math.isfinite(values[index]) else None
