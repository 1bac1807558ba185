"""A small disk that can be filled: a tmpfs of a few megabytes, mounted where only this run can see it.

No root is needed: the mount lives in a user namespace of its own and is gone with the process that holds it. Where
the system forbids that (some containers do), `SmallDisk` raises LookupError, and says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

_BLOCK = 64 * 2**10


class SmallDisk:
    """A disk mounted over a folder. Processes started with `prefix` see it."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        script = f'mount -t tmpfs -o size={megabytes}m tmpfs "$1" && echo ready && exec cat'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(folder)]
        try:
            self._holder = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise LookupError(f"unshare cannot be run: {error}") from None
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            _, said = self._holder.communicate()
            raise LookupError(f"no mount in a namespace of one's own: {said.decode().strip()}")

    @property
    def prefix(self) -> list[str]:
        """Command prefix of processes that see the disk."""
        target = str(self._holder.pid)
        return ["nsenter", "--target", target, "--user", "--mount", "--preserve-credentials", "--"]

    @property
    def _inside(self) -> Path:
        return Path(f"/proc/{self._holder.pid}/root{self.folder}")

    def fill(self) -> int:
        """Fill the disk and return the number of bytes written."""
        written = 0
        with (self._inside / "ballast").open("ab", buffering=0) as file, suppress(OSError):
            for size in (_BLOCK, 512, 1):
                with suppress(OSError):
                    while count := file.write(b"\0" * size):
                        written += count
        return written

    def free(self) -> int:
        figures = os.statvfs(self._inside)
        return figures.f_bavail * figures.f_frsize

    def clear(self) -> None:
        (self._inside / "ballast").unlink()

    def rescue(self, folder: Path) -> None:
        """Copy everything to a folder that outlives the disk."""
        shutil.copytree(self._inside, folder, dirs_exist_ok=True)

    def close(self) -> None:
        """Unmount the disk by ending its last process."""
        for pipe in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            assert pipe is not None
            pipe.close()
        self._holder.wait(10)
