"""The tables as they are now. `migrations.py` makes them; a test holds the two together.

Figures and documents live apart, so that a list or an overview reads 200 bytes a trace and not 20,000.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, Table, Text

metadata = MetaData()

meta = Table("meta", metadata, Column("name", Text, primary_key=True), Column("value", BigInteger, nullable=False))
"""Counters: `schema` is the version of the tables, `keys` grows whenever the keys change."""

traces = Table(
    "traces",
    metadata,
    Column("id", Text, primary_key=True),
    Column("started_at", Text, nullable=False),  # UTC, ISO 8601 to the millisecond: text that sorts as time does
    Column("day", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("path", Text),
    Column("difficulty", Float),
    Column("bin", Integer),  # which hundredth of d; found by us: the databases do not agree on how to round
    Column("expert", Text),
    Column("scorer", Text),
    Column("degraded", Boolean, nullable=False),
    Column("models", Text, nullable=False),  # ",fast-model,slow-model,"
    Column("calls", Integer, nullable=False),
    Column("cost_usd", Float),
    Column("seconds", Float, nullable=False),
    Column("tokens_in", BigInteger),
    Column("tokens_out", BigInteger),
    Column("query_characters", BigInteger, nullable=False),
    Column("answer_characters", BigInteger),
    Column("key_id", Text),
    Column("forced", Boolean),  # the caller chose the path; NULL in rows from before it was noted, as the next two
    Column("slow_calls", Integer),  # answers by the slow agent, failed calls left out
    Column("slow_cost_usd", Float),  # what they cost; NULL where unknown
    Index("traces_by_time", "started_at", "id"),
    Index("traces_by_day", "day"),
    Index("traces_by_key", "key_id", "started_at"),
)

documents = Table(
    "documents",
    metadata,
    Column("trace_id", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("question", Text),  # with `store.content` only, for search
    Column("answer", Text),
)

feedback = Table(
    "feedback",
    metadata,
    Column("trace_id", Text, primary_key=True),
    Column("correct", Boolean, nullable=False),
    Column("note", Text),
    Column("at", Text, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("revoked_at", Text),
    Column("budget_day_usd", Float),
    Column("budget_month_usd", Float),
    Column("rate_per_min", Float),
    Column("models", Text),  # JSON list; NULL allows all
    Column("paths", Text),
    Column("admin", Boolean, nullable=False),  # may read every key's traces
    Column("max_parallel", Integer),
    Column("tokens_per_min", Float),
)

spending = Table(
    "spending",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("cost_usd", Float, nullable=False),  # of the requests whose cost is known
    Column("unknown", BigInteger, nullable=False),  # requests whose cost is not
)
"""What each key spent on each UTC day: written in one transaction with the traces, kept when those are deleted."""

reservations = Table(
    "reservations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("usd", Float, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("expires_at", Float, nullable=False),  # seconds since 1970; counts no more from then on
    Index("reservations_by_key", "key_id"),
)
"""What requests that are under way can cost at the most: added to what was spent until they are settled."""

key_buckets = Table(
    "key_buckets",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("requests", Float, nullable=False),
    Column("tokens", Float, nullable=False),
    Column("at", Float, nullable=False),
)
"""How many requests and tokens a key's rates allowed at that moment."""
