"""A throw-away PostgreSQL server for tests, where one is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def binaries() -> Path | None:
    """The folder with initdb and pg_ctl: on the path, or where Debian puts them."""
    places = [Path(found).parent for found in [shutil.which("initdb")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "pg_ctl").exists()), None)


@contextmanager
def server() -> Iterator[str]:
    """Start a server on a Unix socket in a temporary folder and yield the URL of its database."""
    bin_ = binaries()
    if bin_ is None:
        raise LookupError("PostgreSQL is not installed: no initdb on the path or in /usr/lib/postgresql")
    folder = Path(tempfile.mkdtemp(prefix="odar-pg-", dir="/tmp"))  # a socket's path must be short
    user = _account()

    def run(*command: str | Path) -> None:
        with (folder / "said").open("w+") as said:  # not a pipe: the server would keep it open
            options = {"stdout": said, "stderr": said, "cwd": folder, "timeout": 60}
            if user:
                options |= {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
            if subprocess.run(list(map(str, command)), **options).returncode:
                said.seek(0)
                raise RuntimeError(f"{command[0]}: {said.read()}")

    if user:
        shutil.chown(folder, user)
    try:
        data, log = folder / "data", folder / "log"
        run(bin_ / "initdb", "-D", data, "-U", "odar", "--auth=trust", "-E", "UTF8", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=50"
        run(bin_ / "pg_ctl", "-D", data, "-l", log, "-w", "-o", options, "start")
        try:
            yield f"postgresql://odar@/postgres?host={folder}"
        finally:
            run(bin_ / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> str | None:
    """Whom to run as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
