"""Tables of the store, in types that SQLite and PostgreSQL share, and the version of the schema."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    text,
)

from odar.errors import StoreError

VERSION = 5
"""Of the tables below; increase it with every change of them."""
_LOCK = 0x0DA2_5708
"""PostgreSQL's advisory lock for creating tables: an arbitrary number that identifies odar."""
_KEY = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is compared byte by byte, so that indexes work whatever language the server is set to."""
metadata = MetaData()
meta = Table("meta", metadata, Column("name", Text, primary_key=True), Column("value", BigInteger, nullable=False))
"""Counters: `schema` is the version of the tables, `keys` grows whenever the keys change."""
traces = Table(
    "traces",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("started_at", _KEY, nullable=False),  # UTC, ISO 8601 to the millisecond: text that sorts as time does
    Column("day", _KEY, nullable=False),
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
    Column("key_id", _KEY),
    Column("forced", Boolean),  # the caller chose the path; NULL in rows from before it was noted, as the next two
    Column("slow_calls", Integer),  # answers by the slow agent, failed calls left out
    Column("slow_cost_usd", Float),  # what they cost; NULL where unknown
    Column("changed", Boolean),  # the answer given is not the fast agent's; NULL unless both agents answered
    Column("fast_answers", Integer),  # NULL in rows from before they were counted, as the next three
    Column("fast_cut_off", Integer),  # ended at max_tokens, where the client set no limit itself
    Column("slow_answers", Integer),
    Column("slow_cut_off", Integer),
    Index("traces_by_time", "started_at", "id"),
    Index("traces_by_day", "day"),
    Index("traces_by_key", "key_id", "started_at"),
)
documents = Table(
    "documents",
    metadata,
    Column("trace_id", _KEY, primary_key=True),
    Column("body", Text, nullable=False),
    Column("question", Text),  # with `store.content` only, for search
    Column("answer", Text),
)
feedback = Table(
    "feedback",
    metadata,
    Column("trace_id", _KEY, primary_key=True),
    Column("correct", Boolean, nullable=False),
    Column("note", Text),
    Column("at", Text, nullable=False),
)
keys = Table(
    "keys",
    metadata,
    Column("id", _KEY, primary_key=True),
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
    Column("target_calls", Float),
    Column("target_cost_usd", Float),
    Index(
        "keys_by_name",
        "name",
        unique=True,
        sqlite_where=text("revoked_at IS NULL"),
        postgresql_where=text("revoked_at IS NULL"),
    ),
)
spending = Table(
    "spending",
    metadata,
    Column("key_id", _KEY, primary_key=True),
    Column("day", _KEY, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("cost_usd", Float, nullable=False),  # of the requests whose cost is known
    Column("unknown", BigInteger, nullable=False),  # requests whose cost is not
)
"""What each key spent on each UTC day: written in one transaction with the traces, kept when those are deleted."""
reservations = Table(
    "reservations",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("key_id", _KEY, nullable=False),
    Column("day", _KEY, nullable=False),
    Column("usd", Float, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("expires_at", Float, nullable=False),  # seconds since 1970; counts no more from then on
    Index("reservations_by_key", "key_id"),
)
"""The most that running requests can cost: added to what was spent until they are settled."""
key_buckets = Table(
    "key_buckets",
    metadata,
    Column("key_id", _KEY, primary_key=True),
    Column("requests", Float, nullable=False),
    Column("tokens", Float, nullable=False),
    Column("at", Float, nullable=False),
)
"""How many requests and tokens a key's rates allowed at that moment."""
responses = Table(
    "responses",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("key_id", _KEY, nullable=False),  # empty without keys
    Column("day", _KEY, nullable=False),
    Column("conversation", Text, nullable=False),  # JSON list of items, up to and with this response
    Index("responses_by_day", "day"),
)
"""Conversations of /v1/responses; with `store.responses` only."""
threshold_changes = Table(
    "threshold_changes",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
    Column("certificate", Text, nullable=False),  # digest of the certificate within which t moves
    Column("kind", Text, nullable=False),  # feedback, or undo
    Column("key_id", _KEY),
    Column("trace_id", _KEY),
    Column("correct", Boolean),
    Column("t_before", Float, nullable=False),
    Column("t_after", Float, nullable=False),
    Column("tau1", Float, nullable=False),
    Column("tau2", Float, nullable=False),
    Index("threshold_changes_by_trace", "trace_id"),
)
"""Every move of the thresholds by feedback (`routing.learn`), numbered from 1; rows are added and never changed."""


def create_tables(connection: Connection, name: str) -> None:
    """Create the tables of an empty database, inside the transaction that is open.

    `name` is the store's, for errors. Two processes that start at once take turns: SQLite's write lock is held
    since BEGIN IMMEDIATE, PostgreSQL's advisory lock until the end of the transaction.

    Raises:
        StoreError: another version of odar made the tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    version = schema_version(connection)
    if version not in (0, VERSION):
        remedy = "upgrade odar" if version > VERSION else "move it away"
        raise StoreError(
            f"store {name} has schema {version}; this odar knows {VERSION}: {remedy}, or point store.url elsewhere"
        )
    if version == 0:
        metadata.create_all(connection)
        connection.execute(insert(meta), [{"name": "schema", "value": VERSION}, {"name": "keys", "value": 0}])


def schema_version(connection: Connection) -> int:
    """The version of the tables; 0 for an empty database."""
    if not inspect(connection).has_table("meta"):
        return 0
    version = connection.execute(text("SELECT value FROM meta WHERE name = 'schema'")).scalar()
    if version is None:
        raise StoreError("there is a table `meta` that is not odar's: point store.url elsewhere")
    return int(version)
