"""A temporary PostgreSQL server for tests, if PostgreSQL is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def binaries() -> Path | None:
    """The folder with initdb and pg_ctl: on the path, or where Debian puts them."""
    places = [Path(found).parent for found in [shutil.which("initdb")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "pg_ctl").exists()), None)


class Cluster:
    """A server on a Unix socket in a temporary folder. Made by `cluster`."""

    def __init__(self, bin_: Path, folder: Path) -> None:
        self.url = f"postgresql://odar@/postgres?host={folder}"
        self._bin, self._folder, self._user = bin_, folder, _account()
        if self._user:
            shutil.chown(folder, self._user)
        self._run("initdb", "-U", "odar", "--auth=trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k {self._folder} -c listen_addresses='' -c fsync=off -c max_connections=50"
        self._run("pg_ctl", "-l", self._folder / "log", "-w", "-o", options, "start")

    def stop(self) -> None:
        """Stop it as in a crash: without waiting, so that the log is replayed at the next start."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def _run(self, name: str, *arguments: str | Path) -> None:
        with (self._folder / "said").open("w+") as said:  # not a pipe: the server would keep it open
            options = {"stdout": said, "stderr": said, "cwd": self._folder, "timeout": 60}
            if self._user:
                options |= {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": []}
            command = [self._bin / name, "-D", self._folder / "data", *arguments]
            if subprocess.run(list(map(str, command)), **options).returncode:
                said.seek(0)
                raise RuntimeError(f"{name}: {said.read()}")


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Yield a started server; raise LookupError if PostgreSQL is not installed."""
    bin_ = binaries()
    if bin_ is None:
        raise LookupError("PostgreSQL is not installed: no initdb on the path or in /usr/lib/postgresql")
    folder = Path(tempfile.mkdtemp(prefix="odar-pg-", dir="/tmp"))  # a socket's path must be short
    try:
        made = Cluster(bin_, folder)
        made.start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server() -> Iterator[str]:
    """Start a server and yield the URL of its database."""
    with cluster() as made:
        yield made.url


def _account() -> str | None:
    """Return the account to run as, because PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server that lasts for the session."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'odar[postgres]'")
    try:
        with server() as url:
            yield url
    except LookupError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of a new schema on the server, which is quicker than a new database."""
    import psycopg

    name = f"odar_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres_server}&options=-csearch_path%3D{name}"
