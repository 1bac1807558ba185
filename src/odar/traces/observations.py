"""Observed questions: what the cascade and slow answered, how often they agree, and the fallback to slow (SPEC 10).

Everything is in the database, so that all processes and replicas count together and fall back together.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, select

from odar.settings import Settings
from odar.traces.confidence_sequence import Differences, betting_interval
from odar.traces.database import OBSERVATION, Database, comparisons, observations, spending, upsert
from odar.traces.filter import parse_time
from odar.traces.overview import grouped, sum_of, truncate_time
from odar.traces.writer import replace_invalid_chars

EVERY_KEY = "*"
"""Key id of a fallback for all keys."""
LIVE_SHARE = 0.05
"""Share of questions that are compared with slow, in the suggested settings."""
MAX_TEXT = 20_000


@dataclass(frozen=True, slots=True)
class Observation:
    """One question that the cascade and slow answered."""

    id: str
    at: str
    """UTC, ISO 8601 to the millisecond."""
    key_id: str
    """Empty without keys."""
    kind: str
    """Kind of the request, such as number or open-ended."""
    stages: str
    """What the cascade asked, such as "fast,second"."""
    slow_usd: float | None
    cascade_usd: float | None
    spent_usd: float
    same: bool | None
    """Whether the cascade gives slow's answer; None for open-ended requests."""
    slow_same: bool | None = None
    """Whether slow gives its own answer when it is asked again; None if it was not."""
    question: str | None = None
    """Texts are given only if `store.content` allows it."""
    slow_answer: str | None = None
    cascade_answer: str | None = None


def cascade_id(settings: Settings) -> str:
    """A hash of the agents and the dial, so that observations of different cascades are not mixed."""
    agents = [(name, settings.agent(name)) for name in settings.agent_names]
    routing = (settings.policy, settings.routing.stages, str(settings.dial()))
    text = repr((agents, routing, settings.prompts, settings.calibration))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Observations:
    """Reads and writes the observations of one cascade. Call it outside the event loop."""

    def __init__(self, database: Database, cascade: str) -> None:
        self._database = database
        self._cascade = cascade
        self._lock = threading.Lock()
        self._fallbacks: dict[str, str] = {}
        """Since when slow answers instead of the cascade, by key, as of the last `refresh`."""

    @property
    def fallback_at(self) -> str | None:
        """Since when slow answers questions of some keys or all; None while the cascade does."""
        return min(self._fallbacks.values(), default=None)

    def fell_back(self, key_id: str) -> bool:
        return not self._fallbacks.keys().isdisjoint((key_id, EVERY_KEY))

    def add(self, row: Observation, at_most_differ: float | None = None) -> Differences | None:
        """Store an observation; return the comparison if it makes the cascade fall back to slow.

        It falls back for a key if that key's questions exceed `at_most_differ`. It falls back for all keys if all
        questions together exceed it, and still do without any single key, so that no key decides about others.
        Only one process gets the comparison of a fallback. None as `at_most_differ` never falls back.
        """
        texts = ("kind", "stages", "question", "slow_answer", "cascade_answer")
        values = {**asdict(row), "cascade": self._cascade}
        values |= {name: replace_invalid_chars(values[name] and values[name][:MAX_TEXT]) for name in texts}
        with self._database.write() as connection:
            if connection.scalar(select(observations.c.id).where(observations.c.id == row.id)) is not None:
                return None
            connection.execute(insert(observations).values(**values))
            if row.same is None or row.slow_same is None:
                return None
            found = self._count(connection, row.key_id, row.same, row.slow_same)
            if at_most_differ is None:
                return None
            # does the cascade fall back for all keys, or else for this one?
            total = Differences(*map(sum, zip(*found.values(), strict=True)))
            rests = (Differences(*(a - b for a, b in zip(total, own, strict=True))) for own in found.values())
            if len(found) > 1 and total.exceeds(at_most_differ) and all(r.exceeds(at_most_differ) for r in rests):
                account = EVERY_KEY
                judged = total
            elif found[row.key_id].exceeds(at_most_differ):
                account = row.key_id
                judged = found[account]
            else:
                return None
            # only the process that notices it first falls back
            c = comparisons.c
            own = (c.cascade == self._cascade, c.key_id.in_((account, EVERY_KEY)), c.fallback_at.is_not(None))
            if connection.scalar(select(func.count()).where(*own)):
                return None
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._upsert(connection, account, dict.fromkeys(Differences._fields, 0), fallback_at=now)
        self.refresh()
        return judged

    def _count(self, connection: Connection, key_id: str, same: bool, slow_same: bool) -> dict[str, Differences]:
        """Add a question to the sequence of its key; return those of all keys."""
        query = select(comparisons).where(comparisons.c.cascade == self._cascade).order_by(comparisons.c.key_id)
        # locked in one order, so that no two processes wait for each other
        rows = connection.execute(query.with_for_update()).all()
        counts = {row.key_id: Differences(*(getattr(row, name) for name in Differences._fields)) for row in rows}
        counts.pop(EVERY_KEY, None)
        outcome = Differences(
            only_cascade=int(slow_same and not same),
            only_slow=int(same and not slow_same),
            neither_or_both=int(same == slow_same),
        )
        self._upsert(connection, key_id, outcome._asdict())
        own = counts.get(key_id, Differences())
        return {**counts, key_id: Differences(*map(sum, zip(own, outcome, strict=True)))}

    def _upsert(self, connection: Connection, key_id: str, added: dict[str, int], **values: str) -> None:
        """Add to the counts of a key, and set further values."""
        statement = upsert(connection)(comparisons).values(cascade=self._cascade, key_id=key_id, **added, **values)
        changed = {name: comparisons.c[name] + count for name, count in added.items()} | values
        connection.execute(statement.on_conflict_do_update(index_elements=["cascade", "key_id"], set_=changed))

    def comparison(self) -> Differences:
        sums = [func.coalesce(func.sum(comparisons.c[name]), 0) for name in Differences._fields]
        statement = select(*sums).where(comparisons.c.cascade == self._cascade)
        with self._database.read() as connection:
            return Differences(*map(int, connection.execute(statement).one()))

    def refresh(self) -> None:
        """Read whether slow answers instead of the cascade."""
        c = comparisons.c
        with self._lock, self._database.read() as connection:  # an older state must not replace a newer one
            query = select(c.key_id, c.fallback_at).where(c.cascade == self._cascade, c.fallback_at.is_not(None))
            self._fallbacks = {row.key_id: row.fallback_at for row in connection.execute(query)}

    def resume(self) -> bool:
        """Let the cascade answer again, and start a new confidence sequence; return whether it had fallen back."""
        self.refresh()
        with self._database.write() as connection:
            connection.execute(delete(comparisons).where(comparisons.c.cascade == self._cascade))
        had_fallen_back = bool(self._fallbacks)
        self._fallbacks = {}
        return had_fallen_back

    def report(
        self, since: str | None = None, key_id: str | None = None, step: str = "day", examples: int = 0
    ) -> dict[str, Any]:
        """What the cascade would have saved, and how often it agrees with slow.

        The series is by `step` (day, hour or minute); up to `examples` questions with differing answers are shown.
        """
        # the queries
        c = observations.c
        conditions: list[ColumnElement[bool]] = [c.cascade == self._cascade]
        conditions += [] if since is None else [c.at >= parse_time(since)]
        conditions += [] if key_id is None else [c.key_id == key_id]
        groups: dict[str, list[ColumnElement[Any]]] = {
            "total": [],
            "keys": [c.key_id.label("name")],
            "kinds": [c.kind.label("name")],
            "series": [truncate_time(c.at, step).label("name")],
        }
        differing = select(observations).where(*conditions, c.same.is_(False)).order_by(c.at.desc(), c.id)
        today = datetime.now(UTC).date().isoformat()
        of_observing = spending.c.key_id.startswith(OBSERVATION), spending.c.day == today
        spent = select(func.sum(spending.c.cost_usd)).where(*of_observing)
        # their results, together with the confidence sequence
        with self._database.read() as connection:
            rows = {
                name: [_figures(row) for row in grouped(connection, conditions, *by, **_SUMS)]
                for name, by in groups.items()
            }
            found = connection.execute(differing.limit(examples)).mappings() if examples else ()
            shown = [dict(row) for row in found]
            spent_today = connection.scalar(spent) or 0.0
        comparison = self.comparison()
        return {
            **rows,
            "total": rows["total"][0],
            "excess": comparison.excess()._asdict(),
            "excess_questions": comparison.questions,
            "fallback_at": self.fallback_at,
            "spent_today_usd": spent_today,
            "differing": shown,
        }


_IS_PRICED = observations.c.slow_usd.is_not(None) & observations.c.cascade_usd.is_not(None)
_SUMS: dict[str, ColumnElement[Any]] = {
    "questions": func.count(),
    "priced": func.count(case((_IS_PRICED, 1))),
    "slow_usd": sum_of(case((_IS_PRICED, observations.c.slow_usd)), 0.0),
    "cascade_usd": sum_of(case((_IS_PRICED, observations.c.cascade_usd)), 0.0),
    "spent_usd": sum_of(observations.c.spent_usd, 0.0),
    "compared": func.count(observations.c.same),
    "agreed": func.count(case((observations.c.same, 1))),
    "repeated": func.count(observations.c.slow_same),
    "slow_agreed": func.count(case((observations.c.slow_same, 1))),
}
"""Sums over observations; costs only where both are known."""


def _figures(sums: dict[str, Any]) -> dict[str, Any]:
    slow_usd = sums["slow_usd"]
    return {
        **sums,
        "saved": (slow_usd - sums["cascade_usd"]) / slow_usd if slow_usd else None,
        "agreement": _share(sums["agreed"], sums["compared"]),
        "slow_agreement": _share(sums["slow_agreed"], sums["repeated"]),
    }


def _share(count: int, of: int) -> dict[str, Any]:
    return betting_interval({1.0: count, 0.0: of - count})._asdict()


def agreement_lines(report: Mapping[str, Any]) -> list[str]:
    """How much more often the cascade differs from slow than slow from itself, and the fallback if any."""
    excess = report["excess"]
    if excess["mean"] is None:
        text = "slow was not asked twice yet, so how often it differs from itself is unknown"
    else:
        bounds = f"{100 * excess['mean']:+.1f} points [{100 * excess['low']:+.1f}, {100 * excess['high']:+.1f}]"
        text = f"differs from slow more often than slow itself: {bounds}"
    lines = [text]
    if report["fallback_at"] is not None:
        lines.append(f"since {report['fallback_at']} slow answers: odar observe --resume")
    return lines


def settings_toml(settings: Settings) -> str:
    """Lines for odar.toml that make the observed cascade answer, and compare a share of its answers with slow."""
    lines = [f'policy = "{settings.policy}"', *settings.agent_lines(), ""]
    share = f"share = {LIVE_SHARE}  # of the questions are also answered by slow"
    lines += ["[routing]", f"dial = {json.dumps(settings.routing.dial)}", "", "[observe]", share]
    lines.append(f"at_most_differ = {settings.observe.at_most_differ:g}")
    return "\n".join([*lines, f"budget_usd_day = {settings.observe.budget_usd_day:g}", ""])


def interval_text(interval: Mapping[str, Any]) -> str:
    """A share with its bounds.

    >>> interval_text({"mean": 0.925, "low": 0.9, "high": 0.95})
    '92.5% [90.0, 95.0]'
    """
    if interval["mean"] is None:
        return "-"
    return f"{interval['mean']:.1%} [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]"
