"""The database behind the store: tables, URL, connections and errors.

Committed data survives `kill -9` and, if the disk honours fsync, a loss of power: SQLite runs in WAL mode with
synchronous = FULL, one fsync per batch. (With NORMAL, a loss of power would lose the last batches.) PostgreSQL does
the same unless its `synchronous_commit` was changed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from sqlalchemy import (
    URL,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    exc,
    func,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite

from odar.errors import SettingsError, StoreError
from odar.files import install_command, user_path
from odar.secrets import mask_secrets
from odar.settings import StoreSettings

VERSION = 9
"""Schema version of the tables below; increase it with every change of them."""
_LOCK = 0x0DA2_5708
"""PostgreSQL's advisory lock for creating tables: an arbitrary number that identifies odar."""
_KEY = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is compared byte by byte, so that indexes work whatever language the server is set to."""
OBSERVATION = "observation"
"""The account of `observe.budget_usd_day`, kept like a key's. The part of a key has its id after a colon."""
metadata = MetaData()
meta = Table("meta", metadata, Column("name", Text, primary_key=True), Column("value", BigInteger, nullable=False))
"""Counters: `schema` is the version of the tables, `keys` grows whenever the keys change."""
traces = Table(
    "traces",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("started_at", _KEY, nullable=False),  # UTC, ISO 8601 to the millisecond: text that sorts as time does
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("path", Text),
    Column("difficulty", Float),
    Column("bin", Integer),  # hundredth of d, computed here because the databases round differently
    Column("degraded", Boolean, nullable=False),
    Column("models", Text, nullable=False),  # ",fast-model,slow-model,"
    Column("calls", Integer, nullable=False),
    Column("cost_usd", Float),
    Column("seconds", Float, nullable=False),
    Column("tokens_in", BigInteger),
    Column("tokens_out", BigInteger),
    Column("query_characters", BigInteger, nullable=False),
    Column("key_id", _KEY),
    Column("forced", Boolean),  # the caller chose the path; NULL without a plan
    Column("stages", Text),  # "fast,second,slow*2"; NULL without a decision
    Column("slow_calls", Integer),  # answers of agents that are not cheap, without failed calls
    Column("baseline_usd", Float),  # of one call to the slow agent; NULL if unknown
    Column("changed", Boolean),  # the answer given is not the fast agent's; NULL unless others answered too
    Column("answers", Text, nullable=False),  # "fast 1 0,slow 5 1": answers by agent, and those cut off
    Column("correct", Boolean),  # what a user said of the answer; NULL without feedback
    Column("note", Text),
    Column("marked_at", Text),
    Index("traces_by_time", "started_at", "id"),
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
    Column("max_path", Text),
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
"""Spending of each key on each UTC day: written in one transaction with the traces, kept when those are deleted."""
reservations = Table(
    "reservations",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("key_id", _KEY, nullable=False),
    Column("day", _KEY, nullable=False),
    Column("usd", Float, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("expires_at", Float, nullable=False),  # seconds since 1970; does not count from then on
    Column("owner", _KEY, nullable=False),  # the worker of a gateway that made it; empty for other processes
    Index("reservations_by_key", "key_id"),
)
"""Maximum cost of running requests, which counts as spent until they are charged."""
key_buckets = Table(
    "key_buckets",
    metadata,
    Column("key_id", _KEY, primary_key=True),
    Column("requests", Float, nullable=False),
    Column("tokens", Float, nullable=False),
    Column("at", Float, nullable=False),
)
"""Token buckets: the requests and tokens that a key's rates allowed at this time."""
responses = Table(
    "responses",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("key_id", _KEY, nullable=False),  # empty without keys
    Column("day", _KEY, nullable=False),
    Column("previous", _KEY),  # the response that this one continues
    Column("added", Text, nullable=False),  # JSON list of the items since then, including this response
    Index("responses_by_day", "day"),
)
"""Conversations of /v1/responses; with `store.responses` only."""
sessions = Table(
    "sessions",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("state", LargeBinary, nullable=False),
    Column("at", Float, nullable=False),  # of its last answer, in seconds since 1970
    Index("sessions_by_time", "at"),
)
"""Which models conversations use, for the gateways of several machines; on PostgreSQL only."""
observations = Table(
    "observations",
    metadata,
    Column("id", _KEY, primary_key=True),  # of the trace
    Column("cascade", _KEY, nullable=False),  # identifies the agents and settings that were observed
    Column("at", _KEY, nullable=False),
    Column("key_id", _KEY, nullable=False),  # empty without keys
    Column("kind", Text, nullable=False),
    Column("stages", Text, nullable=False),
    Column("slow_usd", Float),  # of one call to slow
    Column("cascade_usd", Float),
    Column("spent_usd", Float, nullable=False),  # by observing
    Column("same", Boolean),  # the cascade gives slow's answer; NULL for open-ended requests
    Column("slow_same", Boolean),  # slow gives its own answer again; NULL if it was not asked again
    Column("question", Text),  # with `store.content` only
    Column("slow_answer", Text),
    Column("cascade_answer", Text),
    Index("observations_by_time", "cascade", "at"),
    Index("observations_by_age", "at"),
)
"""Questions that the cascade and slow answered, for comparison."""
comparisons = Table(
    "comparisons",
    metadata,
    Column("cascade", _KEY, primary_key=True),
    Column("key_id", _KEY, primary_key=True),
    Column("only_cascade", BigInteger, nullable=False),
    Column("only_slow", BigInteger, nullable=False),
    Column("neither_or_both", BigInteger, nullable=False),
    Column("fallback_at", Text),  # since when slow answers instead of the cascade
)
"""Counts for the confidence sequence; kept when observations are deleted, until `odar observe --resume`."""
_NOT_ODAR = ("no such table", "no such column", "not a database", "malformed")
"""Messages of SQLite for a file that is not an odar database, or no longer one."""
LOCK_TIMEOUT_S = 5.0
"""Seconds that a statement waits for the lock of another process."""


class Database:
    """An open database with ODAR's tables; use `read` and `write` for transactions.

    Raises:
        SettingsError: `store.url` is invalid.
        StoreError: the database cannot be opened, or is newer than this code.
    """

    def __init__(self, settings: StoreSettings, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.url = database_url(settings)
        shown = self.url.database if self.is_sqlite else self.url.render_as_string(hide_password=True)
        self.name = mask_secrets(str(shown))
        self._lock_timeout_s = lock_timeout_s
        self.engine = self._sqlite() if self.is_sqlite else self._postgres()
        try:
            self._prepare()
            self._file = self._file_id()
        except BaseException:
            self.close()
            raise

    def reopen_if_replaced(self) -> None:
        """Open the file again if another one has its name now, such as a restored backup.

        Raises:
            StoreError: the file is gone or overwritten, or the new one cannot be opened.
        """
        file = self._file_id()
        if file is None and self.is_sqlite:
            raise StoreError(f"store {self.name} is gone; put it back, or start again", "schema")
        if file is not None:
            with self._store_errors():
                self._read_afresh()
        if file == self._file:
            return
        self.engine.dispose()
        try:
            self._prepare()
        except StoreError as error:
            raise StoreError(str(error), "schema") from error
        self._file = file

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._store_errors(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._store_errors(), self.engine.connect() as plain:
            connection = plain.execution_options(odar_write=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _file_id(self) -> tuple[int, int] | None:
        """Device and inode of an SQLite file; None if it is missing, and for PostgreSQL."""
        if not self.is_sqlite:
            return None
        try:
            facts = Path(str(self.url.database)).stat()
        except OSError:
            return None
        return facts.st_dev, facts.st_ino

    def _read_afresh(self) -> None:
        """Read the file with a new connection: the open ones do not see what is in their caches.

        SQLite must open it: closing any other descriptor of the file would release SQLite's locks.
        """
        address = Path(str(self.url.database)).absolute().as_uri() + "?mode=rw"
        with closing(sqlite3.connect(address, uri=True, timeout=self._lock_timeout_s)) as connection:
            connection.execute("PRAGMA schema_version").fetchone()

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Raise database errors as StoreError, with the name of the store."""
        try:
            yield
        except (exc.SQLAlchemyError, sqlite3.Error) as error:  # SQLite's own from the pragmas below
            cause = getattr(error, "orig", None) or error
            reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
            no_table = exc.NoResultFound | exc.ProgrammingError
            at_fault: Literal["rows", "database", "schema"] = "database"
            if isinstance(error, exc.DataError | exc.IntegrityError):
                at_fault = "rows"
            elif isinstance(error, no_table) or any(message in reason for message in _NOT_ODAR):
                at_fault = "schema"
            raise StoreError(f"store {self.name}: {reason}", at_fault) from error

    def _sqlite(self) -> Engine:
        path = Path(str(self.url.database))
        try:
            # Readable by its owner only: it may contain texts of questions. SQLite gives the WAL the same mode.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise StoreError(f"store {path} cannot be made: {error.strerror}; set store.url") from None
        engine = create_engine(self.url, connect_args={"timeout": self._lock_timeout_s})

        @event.listens_for(engine, "connect")
        def _connect(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # `_begin` below sends BEGIN
            # secure_delete: deleted rows are overwritten.
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                connection.execute(f"PRAGMA {pragma}")

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            # A transaction whose first statement reads fails to write if another one wrote meanwhile: lock first.
            writes = connection.get_execution_options().get("odar_write", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _postgres(self) -> Engine:
        try:
            import psycopg  # noqa: F401 - only to see whether it is installed
        except ImportError:
            raise SettingsError(
                f"store.url = {self.name!r} needs psycopg; run: {install_command('postgres')}"
            ) from None
        options = f"{self.url.query.get('options', '')} -c lock_timeout={self._lock_timeout_s * 1000:.0f}"
        connect = {"connect_timeout": max(2, round(self._lock_timeout_s)), "options": options.strip()}
        return create_engine(self.url, connect_args=connect, pool_pre_ping=True, pool_size=2, max_overflow=8)

    def _prepare(self) -> None:
        deadline = time.monotonic() + self._lock_timeout_s
        while True:
            try:
                with self.read() as connection:
                    if schema_version(connection) == VERSION:
                        return
                with self.write() as connection:
                    create_tables(connection, self.name)
                    return
            except StoreError as error:
                # SQLite does not wait for the lock that it needs to turn on WAL.
                if "locked" not in str(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(0.02)


def database_url(settings: StoreSettings) -> URL:
    """The URL of the database in SQLAlchemy's form.

    >>> database_url(StoreSettings(url="/tmp/odar.db")).render_as_string()
    'sqlite:////tmp/odar.db'
    >>> database_url(StoreSettings(url="postgres://me@db/odar")).drivername
    'postgresql+psycopg'
    """
    given = settings.url
    if not given:
        from platformdirs import user_data_path

        return URL.create("sqlite", database=str(user_data_path("odar") / "odar.db"))
    if "://" not in given:
        return URL.create("sqlite", database=str(user_path(given, setting="store.url")))
    try:
        url = make_url(given)
    except (exc.ArgumentError, ValueError):
        raise SettingsError("store.url cannot be read; write sqlite:///file or postgresql://user@host/db") from None
    if url.drivername == "sqlite":
        if not url.database or url.database == ":memory:":
            raise SettingsError("store.url names no file; write sqlite:///file")
        return url.set(database=str(user_path(url.database, setting="store.url")))
    if url.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise SettingsError(f"store.url has the scheme {url.drivername!r}; known: sqlite, postgresql")


def create_tables(connection: Connection, name: str) -> None:
    """Create the tables of an empty database in the open transaction; `name` names the store in errors.

    Two processes that start at once take turns: SQLite holds its write lock since BEGIN IMMEDIATE, PostgreSQL its
    advisory lock until the end of the transaction.

    Raises:
        StoreError: another version of odar created the tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
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
    version = connection.scalar(select(meta.c.value).where(meta.c.name == "schema"))
    if version is None:
        raise StoreError("there is a table `meta` that is not odar's: point store.url elsewhere")
    return int(version)


def add_spending(connection: Connection, key_id: str, day: str, requests: int, usd: float, unknown: int) -> None:
    """Add the cost of requests to a key's spending on a day; `unknown` counts those without a known cost."""
    statement = upsert(connection)(spending).values(
        key_id=key_id, day=day, requests=requests, cost_usd=usd, unknown=unknown
    )
    added = {c.name: c + statement.excluded[c.name] for c in spending.c if not c.primary_key}
    connection.execute(statement.on_conflict_do_update(index_elements=["key_id", "day"], set_=added))


def upsert(connection: Connection) -> Callable[..., postgresql.Insert] | Callable[..., sqlite.Insert]:
    """The INSERT of this database that can update a row that exists."""
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
