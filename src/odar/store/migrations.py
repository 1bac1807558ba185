"""How the tables came to be: a list of steps, each run once, in order, all under one lock.

A step is history and is never edited; a change of the tables is a new step at the end, and `schema.py` says what
comes out. Only SQL that SQLite and PostgreSQL both take.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, inspect, text

from odar.errors import StoreError

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


MIGRATIONS: list[Callable[[Connection], None]] = [_first_tables, _figures_for_the_dashboard, _reservations]
