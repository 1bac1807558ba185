"""A wall clock that can be set while a process runs: a small preloaded library of ours (`wallclock.c`).

Only the calendar moves, as when somebody or NTP sets a machine's clock: the monotonic clock, by which deadlines and
timers are kept, goes on as before. The machine's own clock is not touched.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

HOUR_S, DAY_S = 3600, 86_400
_SOURCE = Path(__file__).with_name("wallclock.c")


class MovableClock:
    """The clock of processes started with `environ`. Raises LookupError without a C compiler."""

    def __init__(self, folder: Path) -> None:
        library, file = folder / "wallclock.so", folder / "clock"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise LookupError(f"wallclock.c cannot be compiled: {error} (Debian: apt-get install gcc)") from None
        file.write_bytes(bytes(8))
        with file.open("r+b") as handle:
            self._seconds = mmap.mmap(handle.fileno(), 8)
        self.environ = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(file)}

    def move(self, seconds: int) -> None:
        """Set the offset from the true time in seconds."""
        struct.pack_into("=q", self._seconds, 0, seconds)

    def close(self) -> None:
        self._seconds.close()
