"""The fast agent's answer, with which every path begins (SPEC 1): asked for once, and early where it can be."""

from __future__ import annotations

import asyncio
from typing import Self

from odar.agents.team import Team
from odar.errors import OdarError
from odar.providers.base import OnText
from odar.types import Candidate, Role


class FirstAnswer:
    """What the fast agent says, for whoever wants to know it.

    Args:
        team: whose fast agent.
        ahead: whether to ask now, before anybody knows which path it is for. An estimate then costs no time:
            the model answers meanwhile. Not where it would be paid although another agent cannot work at all.

    Leave the block, and nothing of it is left running.
    """

    def __init__(self, team: Team, *, ahead: bool) -> None:
        self._team = team
        self._asked: asyncio.Task[list[Candidate]] | None = None
        self._answers: list[Candidate] | None = None
        if ahead and _all_can_work(team):
            self._asked = asyncio.create_task(team.answer())

    async def __call__(self, on_text: OnText | None = None, samples: int = 1) -> list[Candidate]:
        """The answer, or so many; the first who wants it decides how it is asked for."""
        if self._answers is None:
            asking = self._team.answer(on_text, samples) if self._asked is None else self._asked
            self._answers = await asking
        return self._answers

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)


def _all_can_work(team: Team) -> bool:
    try:
        team.check(*(role for role in Role if role in team.cards))
    except OdarError:
        return False
    return True
