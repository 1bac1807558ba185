"""An answer as plain data, for `odar ask --json` and the gateway."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from odar.policy.fusion import Fusion
from odar.types import Answer, Candidate, Look


def summary(answer: Answer) -> dict[str, Any]:
    """Return the answer and its trace as one JSON-ready object; unknown is null."""
    trace, decision, spend = answer.trace, answer.trace.decision, answer.trace.spend
    groups = Fusion().groups(trace.candidates)
    return {
        "answer": answer.answer,
        "text": answer.text,
        "path": decision.path.value,
        "difficulty": decision.difficulty,
        "prior": decision.estimate.difficulty,
        "posterior": decision.posterior,
        "target": decision.target and dataclasses.asdict(decision.target),
        "session": decision.session and dataclasses.asdict(decision.session),
        "certificate": decision.certificate or None,
        "look": decision.look and _look(decision.look),
        "estimator": decision.estimate.estimator,
        "features": {
            name: {"value": value, "share": share} for name, value, share in decision.estimate.contributions
        },
        "reason": decision.reason,
        "expert": decision.assignment.expert,
        "scorer": trace.verdict.scorer,
        "scorer_reason": trace.verdict.reason,
        "degraded": answer.degraded,
        "degradations": list(trace.degradations),
        "calls": spend.calls,
        "cost_usd": spend.cost_usd,
        "latency_s": spend.seconds,
        "usage": dataclasses.asdict(spend.usage),
        "candidates": [
            _candidate(candidate, chosen=i == trace.verdict.winner)
            | {"group": groups[i], "weight": _at(trace.verdict.weights, i)}
            | {"group_energy": _at(trace.verdict.energies, i)}
            for i, candidate in enumerate(trace.candidates)
        ],
        "ledger": [{**dataclasses.asdict(call), "step": call.step.value} for call in trace.calls],
        "prompts": dict(trace.prompts),
        "profile": trace.profile,
        "started_at": trace.started_at,
        "trace_id": trace.id,
    }


def _look(look: Look) -> dict[str, Any]:
    return {
        **dataclasses.asdict(look),
        "signals": {name: {"value": value, "rank": rank} for name, value, rank in look.signals},
        "terms": {name: {"value": value, "share": share} for name, value, share in look.terms},
    }


def _candidate(candidate: Candidate, *, chosen: bool) -> dict[str, Any]:
    energies = ("energy", "varentropy", "free_energy", "aligned")
    return {
        "agent": candidate.role.value,
        "step": candidate.step.value,
        **{name: getattr(candidate, name) for name in ("model", "answer", "text", "judgment", "finish")},
        "tokens": len(candidate.tokens) or None,
        **{name: getattr(candidate.energy, name, None) for name in energies},
        "chosen": chosen,
    }


def _at(values: Sequence[float], index: int) -> float | None:
    return values[index] if index < len(values) and math.isfinite(values[index]) else None
