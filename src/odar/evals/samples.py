"""One fast and several slow answers to each question, with every token's log-probability: food for `odar fuse`."""

from __future__ import annotations

from typing import Any

from odar.agents.ledger import Ledger
from odar.calibration.collect import needed
from odar.calibration.items import Item
from odar.engine import Odar
from odar.recording.journal import Row
from odar.types import Candidate, Role

FORMAT = "odar-samples-1"
DIGITS = 3
"""Log-probabilities are rounded to this: it moves no F̃ by more than its third digit, and halves the file."""


async def sample(odar: Odar, item: Item, ledger: Ledger, seed: int | None) -> Row:
    """The fast answer, then all slow samples, none left out: a row as `fusion_file` reads it."""
    team = odar.team(item.query, ledger, seed)
    fast = needed(await team.answer(), team)
    slow = needed(await team.solve(odar.settings.routing.samples), team)
    gold = item.answers[0] if len(item.answers) == 1 else list(item.answers)
    candidates = [_candidate(candidate) for candidate in fast + slow]
    return {"id": item.id, "query": item.query.text, "gold": gold, "candidates": candidates}


def _candidate(candidate: Candidate) -> dict[str, Any]:
    """The text is left out: it is its tokens, one after the other."""
    counted = [token for token in candidate.tokens if not token.control]
    return {
        "model": candidate.model,
        "agent": "fast" if candidate.role is Role.FAST else "slow",
        "answer": candidate.answer,
        "tokens": [[t.text, None if t.logprob is None else round(t.logprob, DIGITS)] for t in counted],
    }
