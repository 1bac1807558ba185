"""What runs inside the sandbox before the untrusted program: takes rights away, then runs the file it is given.

Started by `sandbox` as `python -I sandbox_start.py SECONDS MEMORY FILE_SIZE FILES PROCESSES ALONE FILE`; imports
nothing of ODAR's, so that the program finds nothing of ODAR's loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import sys
from pathlib import Path

_NOBODY = 65534
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # Landlock's system calls, the same on every architecture
_NO_NEW_PRIVILEGES, _KEEP_CAPABILITIES = 38, 8
_EXECUTE, _WRITE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_READ_ANYWHERE = (
    1 << 2
)  # CAP_DAC_READ_SEARCH: file permissions do not hide the interpreter; Landlock says what is seen
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/opt", "/etc/ld.so.cache", "/etc/localtime", "/proc/self", "/System")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


def main(arguments: list[str]) -> None:
    """Give up rights, then run the file."""
    seconds, memory, file_size, files, processes, alone = map(int, arguments[:6])
    file = arguments[6]
    root = os.geteuid() == 0
    running = 0 if root or alone else _running()
    restrict_files(Path.cwd())
    if root:
        become_nobody()
    limit(seconds, memory, file_size, files, None if running is None else running + processes)
    sys.argv = [file]
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_path(file, run_name="__main__")


def limit(seconds: int, memory: int, file_size: int, files: int, processes: int | None) -> None:
    """Resource limits, soft and hard alike."""
    import resource

    wanted = [
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_CORE, 0),
    ]
    if processes is not None:
        wanted.append((resource.RLIMIT_NPROC, processes))
    for kind, most in wanted:
        with contextlib.suppress(ValueError, OSError):  # a system that lacks one still has the others
            resource.setrlimit(kind, (most, most))


def restrict_files(place: Path) -> bool:
    """Landlock, where the kernel has it: read the system and the interpreter, write here alone, no TCP."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE, None, 0, 1)
    if version < 1:
        return False
    handled = (1 << {1: 13, 2: 14}.get(version, 15)) - 1
    everything = (ctypes.c_uint64 * 3)(handled, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = libc.syscall(_CREATE, everything, size, 0)
    prefixes = {
        sys.prefix,
        sys.base_prefix,
        str(Path(sys.executable).resolve().parents[1]),
        str(Path(__file__).parent),
    }
    for path in (*_SYSTEM, *prefixes):
        _allow(libc, rules, path, _READ)
    for path in _DEVICES:
        _allow(libc, rules, path, _READ_FILE | _WRITE)
    _allow(libc, rules, str(place), handled)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = int(libc.syscall(_RESTRICT, rules, 0))
    os.close(rules)
    return done == 0


def become_nobody() -> None:
    """From root to a user that owns nothing, since root's processes are not counted."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(_NOBODY)
    os.setuid(_NOBODY)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)(_READ_ANYWHERE, _READ_ANYWHERE, 0, 0, 0, 0)
    libc.capset(header, data)


def _allow(libc: ctypes.CDLL, rules: int, path: str, access: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not Path(path).is_dir():
        access &= _EXECUTE | _READ_FILE | _WRITE | _TRUNCATE
    rule = access.to_bytes(8, sys.byteorder) + handle.to_bytes(4, sys.byteorder)
    libc.syscall(_ADD, rules, 1, rule, 0)
    os.close(handle)


def _running() -> int | None:
    """Processes and threads this user has now, which the limit counts in; None where they cannot be counted."""
    count = 0
    try:
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if entry.stat().st_uid == os.getuid():
                        count += sum(1 for _ in Path(f"/proc/{entry.name}/task").iterdir())
    except OSError:
        return None
    return count


if __name__ == "__main__":
    main(sys.argv[1:])
