"""Tables of the store, and the migrations that bring an older database up to date.

A migration is history and is never edited; a change of the tables is a new step at the end. Only SQL that SQLite
and PostgreSQL both accept.
"""

from __future__ import annotations

from collections.abc import Callable

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
    inspect,
    text,
)

from odar.errors import StoreError

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
    Column("target_calls", Float),
    Column("target_cost_usd", Float),
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
responses = Table(
    "responses",
    metadata,
    Column("id", Text, primary_key=True),
    Column("key_id", Text, nullable=False),  # empty without keys
    Column("day", Text, nullable=False),
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
    Column("key_id", Text),
    Column("trace_id", Text),
    Column("correct", Boolean),
    Column("t_before", Float, nullable=False),
    Column("t_after", Float, nullable=False),
    Column("tau1", Float, nullable=False),
    Column("tau2", Float, nullable=False),
    Index("threshold_changes_by_trace", "trace_id"),
)
"""Every move of the thresholds by feedback (`routing.learn`), numbered from 1; rows are added and never changed."""
_LOCK = 0x0DA2_5708
"""PostgreSQL's advisory lock for migrations; any number, as long as nobody else takes it."""


def migrate(connection: Connection, name: str) -> int:
    """Bring the database up to date inside the transaction that is open; returns how many steps it took.

    `name` is the store's, for errors. Two processes that start at once take turns: SQLite's write lock is held
    since BEGIN IMMEDIATE, PostgreSQL's advisory lock until the end of the transaction.

    Raises:
        StoreError: a newer version of odar has been here.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    version = schema_version(connection)
    if version > len(MIGRATIONS):
        raise StoreError(
            f"store {name} has schema {version}; this odar knows {len(MIGRATIONS)}: upgrade odar, or point "
            "store.url elsewhere"
        )
    for step in MIGRATIONS[version:]:
        step(connection)
    connection.execute(text("UPDATE meta SET value = :v WHERE name = 'schema'"), {"v": len(MIGRATIONS)})
    return len(MIGRATIONS) - version


def schema_version(connection: Connection) -> int:
    """The version of the tables; 0 for an empty database."""
    if not inspect(connection).has_table("meta"):
        return 0
    version = connection.execute(text("SELECT value FROM meta WHERE name = 'schema'")).scalar()
    if version is None:
        raise StoreError("there is a table `meta` that is not odar's: point store.url elsewhere")
    return int(version)


def up_to_date(connection: Connection) -> bool:
    """Whether there is nothing to migrate, found out without taking a lock."""
    return schema_version(connection) == len(MIGRATIONS)


def _first_tables(connection: Connection) -> None:
    # Sorted and compared byte by byte, so that an index serves whatever the server's language is.
    key = 'TEXT COLLATE "C"' if connection.dialect.name == "postgresql" else "TEXT"
    for statement in (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
        "INSERT INTO meta (name, value) VALUES ('schema', 0), ('keys', 0)",
        f"""CREATE TABLE traces (
            id {key} PRIMARY KEY, started_at {key} NOT NULL, day {key} NOT NULL, profile TEXT NOT NULL,
            status TEXT NOT NULL, error TEXT, path TEXT, difficulty DOUBLE PRECISION, bin INTEGER, expert TEXT,
            scorer TEXT, degraded BOOLEAN NOT NULL, models TEXT NOT NULL, calls INTEGER NOT NULL,
            cost_usd DOUBLE PRECISION, seconds DOUBLE PRECISION NOT NULL, tokens_in BIGINT, tokens_out BIGINT,
            query_characters BIGINT NOT NULL, answer_characters BIGINT, key_id {key})""",
        "CREATE INDEX traces_by_time ON traces (started_at, id)",
        "CREATE INDEX traces_by_day ON traces (day)",
        "CREATE INDEX traces_by_key ON traces (key_id, started_at)",
        f"CREATE TABLE documents (trace_id {key} PRIMARY KEY, body TEXT NOT NULL, question TEXT, answer TEXT)",
        f"""CREATE TABLE feedback (
            trace_id {key} PRIMARY KEY, correct BOOLEAN NOT NULL, note TEXT, at TEXT NOT NULL)""",
        f"""CREATE TABLE keys (
            id {key} PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL, digest TEXT NOT NULL,
            created_at TEXT NOT NULL, revoked_at TEXT, budget_day_usd DOUBLE PRECISION,
            budget_month_usd DOUBLE PRECISION, rate_per_min DOUBLE PRECISION, models TEXT, paths TEXT)""",
        "CREATE UNIQUE INDEX keys_by_name ON keys (name) WHERE revoked_at IS NULL",
        f"""CREATE TABLE spending (
            key_id {key}, day {key}, requests BIGINT NOT NULL, cost_usd DOUBLE PRECISION NOT NULL,
            unknown BIGINT NOT NULL, PRIMARY KEY (key_id, day))""",
    ):
        connection.execute(text(statement))


def _figures_for_the_dashboard(connection: Connection) -> None:
    for statement in (
        "ALTER TABLE traces ADD COLUMN forced BOOLEAN",
        "ALTER TABLE traces ADD COLUMN slow_calls INTEGER",
        "ALTER TABLE traces ADD COLUMN slow_cost_usd DOUBLE PRECISION",
        "ALTER TABLE keys ADD COLUMN admin BOOLEAN NOT NULL DEFAULT FALSE",
    ):
        connection.execute(text(statement))


def _reservations(connection: Connection) -> None:
    key = 'TEXT COLLATE "C"' if connection.dialect.name == "postgresql" else "TEXT"
    for statement in (
        "ALTER TABLE keys ADD COLUMN max_parallel INTEGER",
        "ALTER TABLE keys ADD COLUMN tokens_per_min DOUBLE PRECISION",
        f"""CREATE TABLE reservations (
            id {key} PRIMARY KEY, key_id {key} NOT NULL, day {key} NOT NULL, usd DOUBLE PRECISION NOT NULL,
            tokens BIGINT NOT NULL, expires_at DOUBLE PRECISION NOT NULL)""",
        "CREATE INDEX reservations_by_key ON reservations (key_id)",
        f"""CREATE TABLE key_buckets (
            key_id {key} PRIMARY KEY, requests DOUBLE PRECISION NOT NULL, tokens DOUBLE PRECISION NOT NULL,
            at DOUBLE PRECISION NOT NULL)""",
    ):
        connection.execute(text(statement))


def _targets_and_learning(connection: Connection) -> None:
    key = 'TEXT COLLATE "C"' if connection.dialect.name == "postgresql" else "TEXT"
    for statement in (
        "ALTER TABLE traces ADD COLUMN changed BOOLEAN",
        "ALTER TABLE traces ADD COLUMN fast_answers INTEGER",
        "ALTER TABLE traces ADD COLUMN fast_cut_off INTEGER",
        "ALTER TABLE traces ADD COLUMN slow_answers INTEGER",
        "ALTER TABLE traces ADD COLUMN slow_cut_off INTEGER",
        "ALTER TABLE keys ADD COLUMN target_calls DOUBLE PRECISION",
        "ALTER TABLE keys ADD COLUMN target_cost_usd DOUBLE PRECISION",
        f"""CREATE TABLE threshold_changes (
            number INTEGER PRIMARY KEY, at TEXT NOT NULL, certificate TEXT NOT NULL, kind TEXT NOT NULL,
            key_id {key}, trace_id {key}, correct BOOLEAN, t_before DOUBLE PRECISION NOT NULL,
            t_after DOUBLE PRECISION NOT NULL, tau1 DOUBLE PRECISION NOT NULL, tau2 DOUBLE PRECISION NOT NULL)""",
        "CREATE INDEX threshold_changes_by_trace ON threshold_changes (trace_id)",
    ):
        connection.execute(text(statement))


def _responses(connection: Connection) -> None:
    key = 'TEXT COLLATE "C"' if connection.dialect.name == "postgresql" else "TEXT"
    for statement in (
        f"""CREATE TABLE responses (
            id {key} PRIMARY KEY, key_id {key} NOT NULL, day {key} NOT NULL, conversation TEXT NOT NULL)""",
        "CREATE INDEX responses_by_day ON responses (day)",
    ):
        connection.execute(text(statement))


MIGRATIONS: list[Callable[[Connection], None]] = [
    _first_tables,
    _figures_for_the_dashboard,
    _reservations,
    _targets_and_learning,
    _responses,
]
